//! Runs of segments that leave as super-segments: every byte arrives, whoever
//! cuts them and however they are received.

use std::path::Path;

use rustix::process::Signal;

use super::Content;
use super::checks::Checks;
use super::flood::scenario;
use super::http::Connection;
use super::rig::{self, CLIENT_LINK, Place, Rig, SERVER_LINK};
use super::web::{SIZES, body};
use crate::server::Server;
use crate::shell::{Context as _, Failure, Result};

/// What a segment holds, whatever the client speaks.
const SEGMENT: usize = 1_448;
/// Where responses end that are measured in segments: about one of them, about
/// a super-segment of 64 KB, about two, and about one of 256 KB.
const SEGMENTS: [usize; 12] = [1, 2, 3, 44, 45, 46, 89, 90, 91, 180, 181, 182];
/// Bytes around each of these.
const AROUND: std::ops::RangeInclusive<usize> = 0..=6;
/// What a response must have ahead of it to know its head's length.
const EXAMPLE: &str = "/size-65536.bin";

/// Runs it.
pub(crate) fn run(programs: &Path, content: &Content, checks: &mut Checks) -> Result<()> {
    let scenario = scenario();
    let head = {
        let rig = Rig::build(&scenario)?;
        let (_server, place) = rig.start(&scenario, None, programs, content)?;
        rig.as_client(|| head_len(&place))??
    };
    let site = content.folder.join("edges");
    let sizes = make_site(&site, head)?;
    for (cutter, tso) in [("the device", true), ("the kernel", false)] {
        for (joined, gro) in [("joined", true), ("not joined", false)] {
            let rig = Rig::build(&scenario)?;
            rig.server().set_features(SERVER_LINK, &["tso"], tso)?;
            rig.server().allow_long_supers(SERVER_LINK)?;
            rig.client().set_features(CLIENT_LINK, &["gro"], gro)?;
            let mut command = rig.server().command(programs.join("sandstorm"));
            command.arg("serve").arg(&site);
            command.args(["--device", &format!("xdp:{SERVER_LINK},offload=on")]);
            let server = Server::start(command)?;
            let place = rig::place(&server.output(), false)?;
            rig.as_client(|| {
                for address in place.addresses() {
                    let what = format!("cut by {cutter}, {joined} by GRO, from {address}");
                    checks.check(&what, || {
                        let mut connection = Connection::open(place.socket(address))?;
                        fetch_all(&mut connection, &sizes)
                    });
                }
            })?;
            checks.check("it has sent super-segments", || expect_sent(server));
        }
    }
    Ok(())
}

/// Ends a server, which has sent super-segments by its own account.
pub(super) fn expect_sent(server: Server) -> Result<()> {
    let (status, output) = server.stop(Signal::TERM)?;
    if status.success() && were_sent(&output) {
        return Ok(());
    }
    Err(Failure::new(format!("{status}:\n{output}")))
}

/// Whether a server's summary tells of super-segments.
pub(crate) fn were_sent(output: &str) -> bool {
    output.contains("; of these, runs in ")
}

fn head_len(place: &Place) -> Result<usize> {
    let mut connection = Connection::open(place.socket(place.v4))?;
    let response = connection.request("HEAD", EXAMPLE, "")?;
    response.expect_status(200)?;
    Ok(response.head_len())
}

/// Bodies that make responses end where segments and super-segments do, one
/// byte sooner, one byte later; and a large one. Heads are a byte or so shorter
/// or longer than `head`.
fn make_site(site: &Path, head: usize) -> Result<Vec<usize>> {
    std::fs::create_dir(site).context(format_args!("making {}", site.display()))?;
    let at = |segments: usize| (segments * SEGMENT - head).saturating_sub(3);
    let edges = SEGMENTS
        .iter()
        .flat_map(|&n| AROUND.map(move |more| at(n) + more));
    let sizes: Vec<usize> = edges.chain(SIZES.last().copied()).collect();
    for &size in &sizes {
        let file = site.join(format!("{size}.bin"));
        std::fs::write(&file, body(size)).context(format_args!("writing {}", file.display()))?;
    }
    Ok(sizes)
}

fn fetch_all(connection: &mut Connection, sizes: &[usize]) -> Result<()> {
    for &size in sizes {
        let response = connection.request("GET", &format!("/{size}.bin"), "")?;
        let right = response.expect_body(&body(size));
        right.context(format_args!("{size} bytes"))?;
    }
    Ok(())
}
