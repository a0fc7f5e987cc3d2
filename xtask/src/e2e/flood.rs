//! A flood: SYNs from clients that are not there, and what a client who is
//! there sees of it.
//!
//! The client's request is a whole connection each time, through its kernel:
//! it must get past the table of half-open connections, which is full. The
//! mark is about everything where the scheduler puts it. When the server has a
//! core, and everybody else the other, wake-ups take the same time with a flood
//! and without, and less is allowed.

use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::Content;
use super::checks::Checks;
use super::http::Connection;
use super::matrix::{Device, Program, Scenario, Xdp};
use super::rig::{Place, Rig};
use crate::bench::rig::{SERVER_CORE, keep_away, pin};
use crate::interrupt;
use crate::server::Server;
use crate::shell::{self, Context as _, Failure, Result};

/// SYNs a second.
const RATE: u32 = 100_000;
/// What is looked at, in this order: SYNs that are due together, whether the
/// server has a core of its own from here on, and request times at most, as
/// multiples of those without a flood.
const CASES: [(u32, bool, f64); 3] = [(1, false, 2.0), (32, false, 2.0), (1, true, 1.5)];
/// An address of the generator's, for its ARP.
const GENERATOR: &str = "10.99.0.9/24";
/// The flood has been there for so long before it is looked at: tables are
/// full, and their memory touched.
const WARM_UP: Duration = Duration::from_secs(2);
/// Each part of the measurement.
const MEASURED: Duration = Duration::from_secs(4);
/// What the flood takes to begin, at most.
const START_LIMIT: Duration = Duration::from_secs(10);
/// The client's time between two requests, in microseconds, by chance: any that
/// is always the same falls into step with bursts, and then each request meets
/// one, or none does.
const PAUSE: Range<u64> = 1_000..3_000;
/// Of the SYNs so many must really have been sent.
const LEAST_SHARE: f64 = 0.95;
/// A busy machine gets so many tries.
const TRIES: u32 = 3;
/// Memory that may come and go, in bytes: a flood of half a million SYNs
/// would take 60 MB if they were remembered.
const MOST_GROWTH: u64 = 1 << 20;
/// What the client asks for.
pub(crate) const PATH: &str = "/size-1460.bin";

/// What the client saw.
#[derive(Clone, Copy, Debug)]
struct Seen {
    requests: usize,
    median: Duration,
    most: Duration,
    /// Frames a second on the wire to the server.
    rate: f64,
    /// The server's resident memory at the beginning and at the end.
    memory: [u64; 2],
}

/// One worker, on one queue.
pub(crate) fn scenario() -> Scenario {
    Scenario {
        program: Program::Sandstorm { mode: "memcopy" },
        device: Device::Xdp(Xdp {
            generic: false,
            queues: 1,
            own: false,
            partial: false,
        }),
        loss: false,
    }
}

/// Runs it.
pub(crate) fn run(programs: &Path, content: &Content, checks: &mut Checks) -> Result<()> {
    let scenario = scenario();
    let rig = Rig::build(&scenario)?;
    let (server, place) = rig.start(&scenario, None, programs, content)?;
    for (burst, apart, most) in CASES {
        if apart {
            give_core(&server)?;
        }
        let mut outcome = Err(Failure::new("not tried"));
        for _ in 0..TRIES {
            interrupt::check()?;
            let compare = || compare(&rig, &server, &place, programs, burst, most);
            outcome = if apart {
                on_the_other_core(compare)
            } else {
                compare()
            };
            match &outcome {
                Ok(told) => {
                    println!("{told}");
                    break;
                }
                Err(failure) => println!("not this time: {failure}"),
            }
        }
        checks.check(
            &format!(
                "{RATE} SYNs a second, {burst} at a time{}: a request takes {most} times as long at \
                 most, and no memory",
                if apart { ", server and client apart" } else { "" }
            ),
            || outcome.map(drop),
        );
    }
    let (status, output) = server.stop(Signal::TERM)?;
    checks.check("cookies were sent, and brought back", || {
        let count = |name: &str| {
            let line = output.lines().find_map(|line| line.strip_prefix(name));
            let digits = line.unwrap_or_default().replace([',', ':', ' '], "");
            digits.parse::<u64>().unwrap_or(0)
        };
        let sent = count("SYN cookies sent");
        let redeemed = count("SYN cookies redeemed");
        if status.success() && sent > u64::from(RATE) && redeemed > 100 {
            return Ok(());
        }
        Err(Failure::new(format!("{status}:\n{output}")))
    });
    Ok(())
}

/// Keeps the server's threads on its core.
fn give_core(server: &Server) -> Result<()> {
    let path = format!("/proc/{}/task", server.id());
    for thread in std::fs::read_dir(&path).context(format_args!("reading {path}"))? {
        let name = thread.context(format_args!("reading {path}"))?.file_name();
        let id = name.to_str().and_then(|name| name.parse().ok());
        if !id.is_some_and(|id| pin(id, SERVER_CORE)) {
            return Err(Failure::new("the server cannot be kept on its core"));
        }
    }
    Ok(())
}

/// Does `work`, and all that it starts, away from the server's core.
fn on_the_other_core<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| keep_away().and_then(|()| work()));
        let failed = |_| Failure::new("a thread of the client's has panicked");
        thread.join().map_err(failed)?
    })
}

/// Without the flood and with it, which may take `most` times as long; what was
/// seen, as a line.
fn compare(
    rig: &Rig,
    server: &Server,
    place: &Place,
    programs: &Path,
    burst: u32,
    most: f64,
) -> Result<String> {
    let quiet = rig.as_client(|| ask(place, server))??;
    let mut flood = Flood::start(rig, place, programs, burst)?;
    std::thread::sleep(WARM_UP);
    let flooded = rig.as_client(|| ask(place, server))??;
    flood.stop()?;
    let line = format!(
        "flood, {burst} at a time, {:.0} frames/s: requests take {:?} (at most {:?}), without it \
         {:?} ({:?}); {} and {} of them; memory {} kB, then {} kB",
        flooded.rate,
        flooded.median,
        flooded.most,
        quiet.median,
        quiet.most,
        flooded.requests,
        quiet.requests,
        flooded.memory[0] >> 10,
        flooded.memory[1] >> 10,
    );
    let grown = flooded.memory[1].saturating_sub(flooded.memory[0]);
    let floods = flooded.rate >= f64::from(RATE) * LEAST_SHARE;
    if !floods || flooded.median > quiet.median.mul_f64(most) || grown > MOST_GROWTH {
        return Err(Failure::new(line));
    }
    Ok(line)
}

/// Asks for [`MEASURED`], by a connection each time.
fn ask(place: &Place, server: &Server) -> Result<Seen> {
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
    let rate = sent as f64 / begun.elapsed().as_secs_f64();
    let (memory_after, _) = memory(server.id())?;
    times.sort();
    Ok(Seen {
        rate,
        requests: times.len(),
        median: times[times.len() / 2],
        most: times[times.len() - 1],
        memory: [memory_before, memory_after],
    })
}

/// Bytes of a process that are in memory, and that were at most.
pub(crate) fn memory(id: u32) -> Result<(u64, u64)> {
    let path = format!("/proc/{id}/status");
    let status = std::fs::read_to_string(&path).context(format_args!("reading {path}"))?;
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
        Some(kilobytes << 10)
    };
    let memory = bytes("VmRSS:").zip(bytes("VmHWM:"));
    memory.ok_or_else(|| Failure::new(format!("no VmRSS in {path}")))
}

/// Frames that the client's end of the wire has sent; in its namespace.
fn frames_sent() -> Result<u64> {
    let path = "/proc/thread-self/net/dev";
    let devices = std::fs::read_to_string(path).context(format_args!("reading {path}"))?;
    let line = devices
        .lines()
        .find_map(|line| line.trim().strip_prefix("cli0:"));
    // Eight numbers of what was received, then bytes and frames sent.
    let frames = line.and_then(|line| line.split_whitespace().nth(9)?.parse().ok());
    frames.ok_or_else(|| Failure::new(format!("no cli0 in {path}")))
}

/// The generator; dropping it ends it.
struct Flood(Child);

impl Flood {
    /// Starts it, and waits until it floods.
    fn start(rig: &Rig, place: &Place, programs: &Path, burst: u32) -> Result<Self> {
        let program = programs.join("load");
        let mut command: Command = rig.client().command(&program);
        command
            .args(["syn", "--interface", "cli0", "--address", GENERATOR])
            .args(["--target", &place.v4.to_string()])
            .args(["--port", &place.port.to_string()])
            .args(["--rate", &RATE.to_string()])
            .args(["--burst", &burst.to_string()])
            .args(["--warmup", "0", "--seconds", "60"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().context(shell::shown(&command))?;
        let mut flood = Self(child);
        let begun = interrupt::wait_for(START_LIMIT, || {
            if let Some(status) = flood.0.try_wait().context("waiting for the flood")? {
                return Err(Failure::new(format!("load syn has ended with {status}")));
            }
            let sent = rig.as_client(frames_sent)??;
            Ok((sent > u64::from(RATE / 10)).then_some(()))
        })?;
        begun.ok_or_else(|| Failure::new("load syn sends nothing"))?;
        Ok(flood)
    }

    /// Ends it; an error if it had ended by itself.
    fn stop(&mut self) -> Result<()> {
        if let Some(status) = self.0.try_wait().context("waiting for the flood")? {
            return Err(Failure::new(format!("load syn has ended with {status}")));
        }
        Ok(())
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        // Errors mean that it is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
