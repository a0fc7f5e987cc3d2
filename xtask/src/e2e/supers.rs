//! Runs of segments that leave as super-segments: every byte arrives, whoever
//! cuts them and however they are received.

use std::net::SocketAddr;
use std::path::Path;

use rustix::process::Signal;

use super::Content;
use super::checks::Checks;
use super::flood::scenario;
use super::http::Connection;
use super::rig::{self, CLIENT_LINK, Rig, SERVER_LINK};
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
        rig.as_client(|| head_len(place.socket(place.v4), EXAMPLE))??
    };
    let site = content.folder.join("edges");
    std::fs::create_dir(&site).context(format_args!("making {}", site.display()))?;
    let mut sizes = edges(&SEGMENTS, SEGMENT, head);
    sizes.extend(SIZES.last());
    write_files(&site, &sizes)?;
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

/// Bytes before the body in a response to a request for `path`.
pub(crate) fn head_len(to: SocketAddr, path: &str) -> Result<usize> {
    let mut connection = Connection::open(to)?;
    let response = connection.request("HEAD", path, "")?;
    response.expect_status(200)?;
    Ok(response.head_len())
}

/// Sizes of bodies that make responses end where these numbers of segments of
/// `segment` bytes do, one byte sooner, one byte later. Heads are a byte or so
/// shorter or longer than `head`.
pub(crate) fn edges(segments: &[usize], segment: usize, head: usize) -> Vec<usize> {
    let at = |count: usize| (count * segment - head).saturating_sub(3);
    let around = |count: &usize| AROUND.map(|more| more + at(*count)).collect::<Vec<_>>();
    segments.iter().flat_map(around).collect()
}

/// Makes the files that [`fetch_all`] fetches.
pub(crate) fn write_files(site: &Path, sizes: &[usize]) -> Result<()> {
    for &size in sizes {
        let file = site.join(format!("{size}.bin"));
        std::fs::write(&file, body(size)).context(format_args!("writing {}", file.display()))?;
    }
    Ok(())
}

pub(crate) fn fetch_all(connection: &mut Connection, sizes: &[usize]) -> Result<()> {
    for &size in sizes {
        let response = connection.request("GET", &format!("/{size}.bin"), "")?;
        let right = response.expect_body(&body(size));
        right.context(format_args!("{size} bytes"))?;
    }
    Ok(())
}
