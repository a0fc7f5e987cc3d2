//! Runs of segments that leave as super-segments: every byte arrives, whoever
//! cuts them and however they are received.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use super::Content;
use super::checks::Checks;
use super::flood::scenario;
use super::http::Connection;
use super::rig::{self, CLIENT_LINK, Rig, SERVER_LINK};
use super::web::{SIZES, body};
use crate::interrupt;
use crate::server::Server;
use crate::shell::{self, Context as _, Failure, Result};

/// What a segment holds, whatever the client speaks.
const SEGMENT: usize = 1_448;
/// Where responses end that are measured in segments: about one of them, about
/// a super-segment of 64 KB, about two, and about one of 256 KB.
const SEGMENTS: [usize; 12] = [1, 2, 3, 44, 45, 46, 89, 90, 91, 180, 181, 182];
/// Bytes around each of these.
const AROUND: std::ops::RangeInclusive<usize> = 0..=6;
/// Bytes of the largest body: more than the buffers of a client hold.
const LARGEST: usize = SIZES[SIZES.len() - 1];
/// What the log says when the device cuts no longer, and how soon.
const CEASED: &str = "cuts TCP segments no longer";
const TOLD_LIMIT: Duration = Duration::from_secs(5);
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
    sizes.push(LARGEST);
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
    device_ceases_to_cut(programs, &site, &sizes, checks)
}

/// Turns TSO off in the middle of a response. A worker in its sandbox asks the
/// device then, and has the kernel cut from there on.
fn device_ceases_to_cut(
    programs: &Path,
    site: &Path,
    sizes: &[usize],
    checks: &mut Checks,
) -> Result<()> {
    let rig = Rig::build(&scenario())?;
    let mut command = rig.server().command(programs.join("sandstorm"));
    command.arg("serve").arg(site);
    command.args(["--sandbox", "required", "--log", "info"]);
    command.args(["--device", &format!("xdp:{SERVER_LINK},offload=on")]);
    let server = Server::start(command)?;
    let place = rig::place(&server.output(), false)?;
    let (path, largest) = (format!("/{LARGEST}.bin"), body(LARGEST));
    let whole = || {
        let mut connection = Connection::open(place.socket(place.v4))?;
        connection.request("GET", &path, "")?.expect_body(&largest)
    };
    checks.check("while the device cuts, super-segments arrive", || {
        let (fetched, packets) = packets_during(&rig, whole)?;
        fetched?;
        expect_packets(packets, 0..LARGEST / SEGMENT / 2)
    });
    checks.check("TSO is turned off in the middle of a response", || {
        let turn_off = || rig.server().set_features(SERVER_LINK, &["tso"], false);
        rig.as_client(|| {
            let mut connection = Connection::open(place.socket(place.v4))?;
            connection.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())?;
            connection.wait()?;
            turn_off()?;
            connection.receive(true)?.expect_body(&largest)
        })?
    });
    checks.check("the log tells of it", || {
        let told = || Ok(server.output().contains(CEASED).then_some(()));
        let told = interrupt::wait_for(TOLD_LIMIT, told)?;
        told.ok_or_else(|| Failure::new(format!("no {CEASED:?} in\n{}", server.output())))
    });
    checks.check("from then on, frames arrive", || {
        let (fetched, packets) = packets_during(&rig, whole)?;
        fetched?;
        expect_packets(packets, LARGEST / SEGMENT..usize::MAX)
    });
    rig.as_client(|| {
        for address in place.addresses() {
            let what = format!("cut by the device no longer, from {address}");
            checks.check(&what, || {
                fetch_all(&mut Connection::open(place.socket(address))?, sizes)
            });
        }
    })?;
    // No system call was missing from its list.
    checks.check("it has lived through that", || expect_sent(server));
    Ok(())
}

/// Runs `work` as the client: its outcome, and the packets that came meanwhile.
fn packets_during<T: Send>(rig: &Rig, work: impl Fn() -> T + Sync) -> Result<(T, usize)> {
    let before = packets_received(rig)?;
    let outcome = rig.as_client(&work)?;
    Ok((outcome, packets_received(rig)? - before))
}

/// Packets that have come over the client's link; a super-segment is one.
fn packets_received(rig: &Rig) -> Result<usize> {
    let counter = format!("/sys/class/net/{CLIENT_LINK}/statistics/rx_packets");
    let told = shell::capture_text(rig.client().command("cat").arg(counter))?;
    told.trim().parse().context("reading a count of packets")
}

fn expect_packets(packets: usize, expected: Range<usize>) -> Result<()> {
    if expected.contains(&packets) {
        return Ok(());
    }
    let segments = LARGEST / SEGMENT;
    Err(Failure::new(format!(
        "{packets} packets for {segments} segments"
    )))
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
