//! A SYN flood from spoofed addresses, and its effect on a real client.
//!
//! Each of the client's requests opens a new connection, while the flood keeps the table of
//! half-open connections full. In the first cases the scheduler places all threads. In the last
//! case the server has a core to itself. A wake-up then takes equally long with and without a
//! flood, so the limit is lower.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::process::Signal;

use super::Env;
use super::checks::Checks;
use super::http::Connection;
use super::many::memory;
use super::matrix::Scenario;
use super::rig::{Place, Rig};
use crate::bench::rig::{SERVER_CORE, keep_away, pin};
use crate::server::Server;
use crate::shell;

/// Number of SYNs per second in the flood.
const RATE: u32 = 100_000;
/// Cases: number of SYNs per burst, whether the server gets a core to itself, and a factor. The
/// median request may take this many times as long as without a flood. Once pinned to its core, the
/// server stays there.
const CASES: [(u32, bool, f64); 3] = [(1, false, 2.0), (32, false, 2.0), (1, true, 1.5)];
/// The generator's own address, for which it answers ARP.
const GENERATOR: &str = "10.99.0.9/24";
/// Time until the server's tables are full and their memory is resident.
const WARM_UP: Duration = Duration::from_secs(2);
/// Duration of each measurement.
const MEASURED: Duration = Duration::from_secs(4);
/// Time limit for the flood to begin.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Random pause between two requests, in microseconds. With a constant pause, either every request
/// or no request would coincide with a burst.
const PAUSE: Range<u64> = 1_000..3_000;
/// Minimum fraction of [`RATE`] that the generator must reach.
const MIN_SHARE: f64 = 0.95;
/// Maximum growth of the server's memory in bytes. If the server remembered SYNs, half a million of
/// them would take 60 MB.
const MAX_GROWTH: u64 = 1 << 20;
/// Path that the client requests.
pub(super) const PATH: &str = "/size-1460.bin";

pub(crate) fn run(env: &Env, checks: &mut Checks) -> Result<()> {
    let rig = Rig::build(&Scenario::WEB)?;
    let (server, place) = rig.start(env, &Scenario::WEB, &[])?;
    for (burst, is_apart, max_slowdown) in CASES {
        let apart = if is_apart {
            ", server and client apart"
        } else {
            ""
        };
        if is_apart {
            give_core(&server)?;
        }
        let name = format!(
            "{RATE} SYNs a second, {burst} at a time{apart}: a request takes {max_slowdown} times \
             as long at most, and no memory"
        );
        checks.measure(name, || {
            let compare = || compare(&rig, &server, &place, env, burst, max_slowdown);
            if is_apart {
                on_the_other_core(compare)
            } else {
                compare()
            }
        });
    }
    let (status, output) = server.stop(Signal::TERM)?;
    checks.check("cookies were sent, and brought back", || {
        let sent = counted(&output, "SYN cookies sent")?;
        let redeemed = counted(&output, "SYN cookies redeemed")?;
        let right = status.success() && sent > u64::from(RATE) && redeemed > 100;
        ensure!(right, "{status}:\n{output}");
        Ok(())
    });
    Ok(())
}

/// Reads the count with this label from a server's summary.
pub(super) fn counted(summary: &str, label: &str) -> Result<u64> {
    let mut lines = summary.lines().map(str::trim_start);
    let value = lines.find_map(|line| line.strip_prefix(label)?.strip_prefix(':'));
    let value = value.with_context(|| format!("no {label} in the summary:\n{summary}"))?;
    value
        .replace(',', "")
        .trim()
        .parse()
        .with_context(|| label.to_string())
}

/// Pins the server's threads to [`SERVER_CORE`].
fn give_core(server: &Server) -> Result<()> {
    let path = format!("/proc/{}/task", server.id());
    for thread in std::fs::read_dir(&path).with_context(|| path.clone())? {
        let name = thread.with_context(|| path.clone())?.file_name();
        let id = name.to_str().and_then(|name| name.parse().ok());
        let is_pinned = id.is_some_and(|id| pin(id, SERVER_CORE));
        ensure!(is_pinned, "the server cannot be pinned to its core");
    }
    Ok(())
}

/// Runs `work` on a thread that stays off the server's core. The processes that `work` starts stay
/// off this core too.
fn on_the_other_core<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| keep_away().and_then(|()| work()));
        let panicked = |_| anyhow!("a thread of the client's panicked");
        thread.join().map_err(panicked)?
    })
}

/// What the client measured while it sent requests.
struct Measurement {
    requests: usize,
    median: Duration,
    max: Duration,
    /// Number of frames per second that the client's side of the link sent to the server.
    rate: f64,
    /// Server's resident memory at the beginning and at the end, in bytes.
    memory: [u64; 2],
}

/// Compares request times without and with the flood. Returns a line of figures, or an error if a
/// limit is exceeded.
fn compare(
    rig: &Rig,
    server: &Server,
    place: &Place,
    env: &Env,
    burst: u32,
    max_slowdown: f64,
) -> Result<String> {
    let quiet = rig.as_client(|| ask(place, server))??;
    let mut flood = start(rig, place, &env.programs, burst)?;
    std::thread::sleep(WARM_UP);
    let flooded = rig.as_client(|| ask(place, server))??;
    flood.expect_running()?;
    let [before, after] = flooded.memory;
    let line = format!(
        "flood, {burst} at a time, {:.0} frames/s: requests take {:?} (at most {:?}), without it \
         {:?} ({:?}); {} and {} of them; memory {} kB, then {} kB",
        flooded.rate,
        flooded.median,
        flooded.max,
        quiet.median,
        quiet.max,
        flooded.requests,
        quiet.requests,
        before >> 10,
        after >> 10,
    );
    let floods = flooded.rate >= f64::from(RATE) * MIN_SHARE;
    let is_soon = flooded.median <= quiet.median.mul_f64(max_slowdown);
    let is_small = after.saturating_sub(before) <= MAX_GROWTH;
    ensure!(floods && is_soon && is_small, "{line}");
    Ok(line)
}

/// Sends requests for the duration [`MEASURED`], each on a new connection.
fn ask(place: &Place, server: &Server) -> Result<Measurement> {
    let (memory_before, _) = memory(server.id())?;
    let sent_before = frames_sent()?;
    let begun = Instant::now();
    let mut times = Vec::new();
    let mut pauses = fastrand::Rng::with_seed(1);
    while begun.elapsed() < MEASURED {
        let start = Instant::now();
        let mut connection = Connection::open(place.socket(place.v4))?;
        let response = connection.request("GET", PATH, "Connection: close\r\n")?;
        response.expect_status(200)?;
        times.push(start.elapsed());
        std::thread::sleep(Duration::from_micros(pauses.u64(PAUSE)));
    }
    let sent = frames_sent()? - sent_before;
    let (memory_after, _) = memory(server.id())?;
    times.sort();
    Ok(Measurement {
        rate: sent as f64 / begun.elapsed().as_secs_f64(),
        requests: times.len(),
        median: times[times.len() / 2],
        max: times[times.len() - 1],
        memory: [memory_before, memory_after],
    })
}

/// Returns the number of frames that the client's side of the link has sent. Call this function in
/// the client's namespace.
fn frames_sent() -> Result<u64> {
    let devices = shell::read(Path::new("/proc/thread-self/net/dev"))?;
    let mut lines = devices.lines().map(str::trim);
    let line = lines.find_map(|line| line.strip_prefix("cli0:"));
    // Eight receive counters come first, and then the numbers of bytes and frames sent.
    let frames = line.and_then(|line| line.split_whitespace().nth(9)?.parse().ok());
    frames.context("no cli0 in /proc/thread-self/net/dev")
}

/// Starts the generator and waits until the flood begins.
fn start(rig: &Rig, place: &Place, programs: &Path, burst: u32) -> Result<Server> {
    let mut command = rig.client().command(programs.join("load"));
    let line = format!(
        "syn --interface cli0 --address {GENERATOR} --target {} --port {} --rate {RATE} \
         --burst {burst} --warmup 0 --seconds 60",
        place.v4, place.port
    );
    command.args(line.split(' '));
    Server::start_when(command, START_LIMIT, |_| {
        Ok(rig.as_client(frames_sent)?? > u64::from(RATE / 10))
    })
}
