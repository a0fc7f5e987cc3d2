//! Responses that the server sends as super-segments. Either the device or the kernel cuts the
//! super-segments, and the client joins the segments or not. Every byte must arrive in each case.

use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::time::Duration;

use super::Env;
use super::checks::Checks;
use super::http::Connection;
use super::matrix::Scenario;
use super::rig::{Place, Rig, device_options};
use super::web::{SIZES, body};
use crate::interrupt;
use crate::netns::{CLIENT_LINK, SERVER_LINK};
use crate::server::Server;
use crate::shell;
use anyhow::{Context as _, Result, ensure};

/// Number of payload bytes in a full segment.
const SEGMENT: usize = 1_448;
/// Lengths of responses in segments. They are around one segment, one super-segment of 64 KB, two
/// such super-segments, and one of 256 KB.
const SEGMENTS: [usize; 12] = [1, 2, 3, 44, 45, 46, 89, 90, 91, 180, 181, 182];
/// Offsets in bytes, relative to 3 bytes below each length in [`SEGMENTS`]. The responses are
/// therefore from 3 bytes shorter to 3 bytes longer than these lengths.
const AROUND: RangeInclusive<usize> = 0..=6;
/// Size of the largest body in bytes. It is more than a client can buffer.
const LARGEST: usize = SIZES[SIZES.len() - 1];
/// Size in bytes of a short body. Several responses with such a body fit into one segment.
const SHORT: usize = 100;
/// Number of pipelined requests for the short body.
const PIPELINED: usize = 16;
/// Maximum number of packets in which the responses to these requests arrive.
const MAX_PACKETS: usize = 8;
/// Words that the server logs when the device stops segmenting.
const CEASED: &str = "no longer segments TCP";
/// Time limit for these words to appear in the log.
const LOG_LIMIT: Duration = Duration::from_secs(5);
/// A file whose response has a typical head length.
const EXAMPLE: &str = "/size-65536.bin";

pub(crate) fn run(env: &Env, checks: &mut Checks) -> Result<()> {
    let head = {
        let rig = Rig::build(&Scenario::WEB)?;
        let (_server, place) = rig.start(env, &Scenario::WEB, &[])?;
        rig.as_client(|| head_len(place.socket(place.v4), EXAMPLE))??
    };
    let site = env.folder.join("edges");
    shell::make_folder(&site)?;
    let mut sizes = edges(&SEGMENTS, SEGMENT, head);
    sizes.extend([LARGEST, SHORT]);
    write_files(&site, &sizes)?;
    for (by, tso) in [("the device", true), ("the kernel", false)] {
        for (joined, gro) in [("joined", true), ("not joined", false)] {
            let rig = Rig::build(&Scenario::WEB)?;
            rig.server().set_features(SERVER_LINK, &["tso"], tso)?;
            rig.server().allow_long_supers(SERVER_LINK)?;
            rig.client().set_features(CLIENT_LINK, &["gro"], gro)?;
            let (server, place) = serve(&rig, env, &site, "")?;
            let what = format!("cut by {by}, {joined} by GRO");
            fetch_from_each(&rig, &place, &sizes, &what, checks)?;
            for address in place.addresses() {
                checks.check(format_args!("{what}, pipelined, from {address}"), || {
                    pipeline(&rig, place.socket(address))
                });
            }
            checks.check("it has sent super-segments", || expect_sent(server));
        }
    }
    device_stops(env, &site, &sizes, checks)
}

/// Serves `site` with segmentation offload and the further options `more`.
fn serve(rig: &Rig, env: &Env, site: &Path, more: &str) -> Result<(Server, Place)> {
    let site = site.display();
    let line = format!("{site} --device xdp:{SERVER_LINK},offload=on {more}");
    rig.serve(env, "sandstorm", line.split_whitespace())
}

fn fetch_from_each(
    rig: &Rig,
    place: &Place,
    sizes: &[usize],
    what: &str,
    checks: &mut Checks,
) -> Result<()> {
    rig.as_client(|| {
        for address in place.addresses() {
            checks.check(format_args!("{what}, from {address}"), || {
                fetch_all(&mut Connection::open(place.socket(address))?, sizes)
            });
        }
    })
}

/// Pipelines requests for the short body. Checks the responses, and that they arrive in few packets.
fn pipeline(rig: &Rig, to: SocketAddr) -> Result<()> {
    let mut connection = rig.as_client(|| Connection::open(to))??;
    let request = format!("GET /{SHORT}.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    let before = packets_received(rig)?;
    connection.send(request.repeat(PIPELINED))?;
    for _ in 0..PIPELINED {
        connection.receive(true)?.expect_body(&body(SHORT))?;
    }
    let packets = packets_received(rig)? - before;
    ensure!(
        packets <= MAX_PACKETS,
        "{PIPELINED} responses in {packets} packets"
    );
    Ok(())
}

/// Turns TSO off in the middle of a response. The sandboxed worker must notice, and then let the
/// kernel segment.
fn device_stops(env: &Env, site: &Path, sizes: &[usize], checks: &mut Checks) -> Result<()> {
    let rig = Rig::build(&Scenario::WEB)?;
    let (server, place) = serve(&rig, env, site, "--sandbox required --log info")?;
    let (path, largest) = (format!("/{LARGEST}.bin"), body(LARGEST));
    let open = || Connection::open(place.socket(place.v4));
    // Fetches the file and checks the number of packets at the client. A super-segment counts as
    // one packet.
    let fetch_in = |expected: Range<usize>| {
        let before = packets_received(&rig)?;
        let response = rig.as_client(|| open()?.request("GET", &path, ""))??;
        let packets = packets_received(&rig)? - before;
        response.expect_body(&largest)?;
        ensure!(
            expected.contains(&packets),
            "{packets} packets of {expected:?}"
        );
        Ok(())
    };
    checks.check("while the device cuts, super-segments arrive", || {
        fetch_in(0..LARGEST / SEGMENT / 2)
    });
    checks.check("TSO is turned off in the middle of a response", || {
        rig.as_client(|| {
            let mut connection = open()?;
            connection.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"))?;
            connection.wait()?;
            rig.server().set_features(SERVER_LINK, &["tso"], false)?;
            connection.receive(true)?.expect_body(&largest)
        })?
    });
    checks.check("the log tells of it", || {
        let is_logged = || Ok(server.output().contains(CEASED).then_some(()));
        let logged = interrupt::wait_for(LOG_LIMIT, is_logged)?;
        logged.with_context(|| format!("no {CEASED:?} in\n{}", server.output()))
    });
    checks.check("from then on, frames arrive", || {
        fetch_in(LARGEST / SEGMENT..usize::MAX)
    });
    fetch_from_each(&rig, &place, sizes, "cut by the device no longer", checks)?;
    // The sandbox must allow every system call that the switch to the kernel needs.
    checks.check("it has lived through that", || expect_sent(server));
    Ok(())
}

fn packets_received(rig: &Rig) -> Result<usize> {
    let counter = format!("cat /sys/class/net/{CLIENT_LINK}/statistics/rx_packets");
    let count = rig.client().run(&counter)?;
    count.trim().parse().context("reading a count of packets")
}

/// Stops a server and checks that it has sent super-segments, as counted in its summary.
pub(super) fn expect_sent(server: Server) -> Result<()> {
    let output = server.stop_well()?;
    ensure!(were_sent(&output), "no super-segments in\n{output}");
    Ok(())
}

/// Returns true if a server's summary counts super-segments.
pub(crate) fn were_sent(output: &str) -> bool {
    output.contains("; of these, runs in ")
}

/// Returns the length of the response head for `path`, in bytes.
pub(crate) fn head_len(to: SocketAddr, path: &str) -> Result<usize> {
    let response = Connection::open(to)?.request("HEAD", path, "")?;
    response.expect_status(200)?;
    Ok(response.head_len())
}

/// Returns sizes of bodies whose responses end at or near the given numbers of segments. A segment
/// is `segment` bytes long. Actual heads may be a byte or two longer or shorter than `head`.
pub(crate) fn edges(segments: &[usize], segment: usize, head: usize) -> Vec<usize> {
    let at = |count: usize| (count * segment - head).saturating_sub(3);
    let around = |count: &usize| AROUND.map(|more| more + at(*count)).collect::<Vec<_>>();
    segments.iter().flat_map(around).collect()
}

/// Writes the files that [`fetch_all`] fetches, with a body of each size.
pub(crate) fn write_files(site: &Path, sizes: &[usize]) -> Result<()> {
    let mut sizes = sizes.iter();
    sizes.try_for_each(|&size| shell::write(&site.join(format!("{size}.bin")), body(size)))
}

pub(crate) fn fetch_all(connection: &mut Connection, sizes: &[usize]) -> Result<()> {
    for &size in sizes {
        let response = connection.request("GET", &format!("/{size}.bin"), "")?;
        let right = response.expect_body(&body(size));
        right.with_context(|| format!("{size} bytes"))?;
    }
    Ok(())
}

/// Size in bytes of the piece that the 1 GB file repeats a thousand times.
const PIECE: usize = 1_000_000;
/// Number of fetches per address.
const REPEATS: usize = 3;
/// Lower limit on the median speed of the fetches, in Gb/s.
const MIN_GBPS: f64 = 10.0;

/// Fetches 1 GB with curl over the devices that the server makes: a veth pair and a tap device.
/// curl runs in the server's namespace.
pub(crate) fn gigabyte(env: &Env, checks: &mut Checks) -> Result<()> {
    let site = env.folder.join("gigabyte");
    shell::make_folder(&site)?;
    shell::write(&site.join("1g.bin"), body(PIECE).repeat(1_000))?;
    for device in ["auto", "tap"] {
        let scenario = Scenario::WEB.on(device);
        let rig = Rig::build(&scenario)?;
        let mut words = device_options(&scenario);
        words.insert(0, site.display().to_string());
        let (server, place) = rig.serve(env, "sandstorm", words)?;
        for address in place.addresses() {
            let what = format!("1 GB over {device} from {address}");
            checks.check(format_args!("{what} at {MIN_GBPS} Gb/s or more"), || {
                let fetch = |_| gigabits(&rig, place.socket(address));
                let speeds: Result<Vec<f64>> = (0..REPEATS).map(fetch).collect();
                let mut speeds = speeds?;
                speeds.sort_by(f64::total_cmp);
                println!("{what}: {speeds:.1?} Gb/s");
                let is_fast = speeds[REPEATS / 2] >= MIN_GBPS;
                ensure!(is_fast, "{speeds:.1?} Gb/s");
                Ok(())
            });
        }
        checks.check("it has sent super-segments", || expect_sent(server));
    }
    Ok(())
}

/// Fetches the file once with curl. Returns the speed in Gb/s.
fn gigabits(rig: &Rig, from: SocketAddr) -> Result<f64> {
    let report = "%{size_download}:%{speed_download}";
    let line = format!("curl -s -g -o /dev/null -w {report} http://{from}/1g.bin");
    let output = rig.server().run(&line)?;
    let (size, speed) = output.split_once(':').unwrap_or_default();
    ensure!(size == (1_000 * PIECE).to_string(), "curl says {output:?}");
    let bytes: f64 = speed.trim().parse().context("the speed of curl")?;
    Ok(bytes * 8.0 / 1e9)
}
