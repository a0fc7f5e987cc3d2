//! Pressure: clients of one address that hold what they do not use, and what a
//! client at another address sees of it.
//!
//! Each case fills something of the server's: receive buffers with halves of
//! requests, the connection table with them, with readers whose window is shut
//! and with readers that hardly read, scoreboards with holes, write buffers with
//! answers that nobody reads. Connections that the server takes away are opened again at once.
//!
//! Each answer to the other client must come within a second. The median of its
//! small requests may be three times that of a quiet server. Later the server's
//! memory may be one and a half times what it was.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::abusers::{Abuse, Abusers};
use super::checks::Checks;
use super::flood::{self, memory};
use super::http::Connection;
use super::matrix::{Program, Scenario};
use super::rig::{Place, Rig, SERVER_LINK};
use super::{Content, dns};
use crate::interrupt;
use crate::server::Server;
use crate::shell::{self, Context as _, Failure, Result};

/// The abusers' processes.
const PROCESSES: usize = 4;
/// The other client begins so long after the last of them.
const SETTLED: Duration = Duration::from_secs(3);
/// The abusers' addresses: one client address, as it is one IPv6 network, with
/// ports enough to fill a table.
const ABUSERS: [&str; 2] = ["fd99::66", "fd99::67"];
/// A request of several segments has so many bytes of cookies, …
const COOKIES: usize = 4_096;
/// … and is one of so many.
const LONG_EACH: usize = 5;
/// The other client waits so long before it connects again: the abusers go on
/// meanwhile.
const PAUSE: Duration = Duration::from_millis(1);
/// Frames that wait at the clients' end of the link.
const QUEUE: usize = 100_000;
/// The marks.
const MOST_WAIT: Duration = Duration::from_secs(1);
const MOST_MEDIAN: f64 = 3.0;
const MOST_MEMORY: f64 = 1.5;
/// A busy machine gets so many tries.
const TRIES: u32 = 3;

/// What is tried.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    program: Program,
    options: &'static [&'static str],
    abuses: &'static [(Abuse, usize)],
    /// The summary's count that shows whether anything ran short.
    shortage: &'static str,
    /// Requests of the other client.
    requests: usize,
    /// Memory is looked at so long after the abusers have gone.
    memory_after: Option<Duration>,
}

const SANDSTORM: Program = Program::Sandstorm { mode: "memcopy" };
const NAMESTORM: Program = Program::Namestorm {
    mode: "turnaround",
    hash: "wire",
};
const EVICTED: &str = "connections evicted";
/// Requests in the sample.
const FEW: usize = 1_000;

/// What is always tried: small tables where many would take long.
const SAMPLE: [Case; 3] = [
    Case {
        name: "4,200 halves of requests",
        program: SANDSTORM,
        options: &[],
        abuses: &[(Abuse::HalfHead, 4_200)],
        shortage: EVICTED,
        requests: FEW,
        memory_after: None,
    },
    Case {
        name: "a small table full of everything",
        program: SANDSTORM,
        options: &["--max-connections", "3000"],
        abuses: &[
            (Abuse::HalfHead, 1_100),
            (Abuse::ShutWindow, 1_100),
            (Abuse::Sip, 1_100),
        ],
        shortage: EVICTED,
        requests: FEW,
        memory_after: None,
    },
    Case {
        name: "4,300 connections with unread answers",
        program: NAMESTORM,
        options: &[],
        abuses: &[(Abuse::Queries, 4_300)],
        shortage: "write buffers taken",
        requests: FEW,
        memory_after: Some(Duration::from_secs(15)),
    },
];

/// The whole, with default options. The table has 65,536 places.
const WHOLE: [Case; 8] = [
    SAMPLE[0].whole(),
    Case {
        name: "a table full of halves of requests",
        abuses: &[(Abuse::HalfHead, 70_000)],
        ..SAMPLE[0].whole()
    },
    Case {
        name: "a table full of shut windows",
        abuses: &[(Abuse::ShutWindow, 70_000)],
        ..SAMPLE[0].whole()
    },
    Case {
        name: "a table full of readers that hardly read",
        abuses: &[(Abuse::Sip, 70_000)],
        ..SAMPLE[0].whole()
    },
    Case {
        name: "a table full of everything",
        abuses: &[
            (Abuse::HalfHead, 24_000),
            (Abuse::ShutWindow, 22_000),
            (Abuse::Sip, 22_000),
        ],
        ..SAMPLE[0].whole()
    },
    Case {
        name: "scoreboards full of holes",
        abuses: &[(Abuse::Holes, 3_000)],
        shortage: "scoreboards taken",
        ..SAMPLE[0].whole()
    },
    SAMPLE[2].whole(),
    Case {
        name: "8,600 connections with unread answers or half a question",
        abuses: &[(Abuse::Queries, 4_300), (Abuse::HalfQuestion, 4_300)],
        ..SAMPLE[2].whole()
    },
];

/// Runs the sample.
pub(crate) fn sample(programs: &Path, content: &Content, checks: &mut Checks) -> Result<()> {
    run(&SAMPLE, programs, content, checks)
}

/// Runs all of it.
pub(crate) fn whole(programs: &Path, content: &Content, checks: &mut Checks) -> Result<()> {
    run(&WHOLE, programs, content, checks)
}

fn run(cases: &[Case], programs: &Path, content: &Content, checks: &mut Checks) -> Result<()> {
    for case in cases {
        let mut outcome = Err(Failure::new("not tried"));
        for _ in 0..TRIES {
            interrupt::check()?;
            outcome = case.run(programs, content);
            match &outcome {
                Ok(told) => {
                    println!("{told}");
                    break;
                }
                Err(failure) => println!("not this time: {failure}"),
            }
        }
        let name = format!("{}: a client at another address is served", case.name);
        checks.check(&name, || outcome.map(drop));
    }
    Ok(())
}

/// What the client at another address saw.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Of the requests of one segment.
    median: Duration,
    /// Of all.
    most: Duration,
}

impl Case {
    /// The same, with as many requests as the marks say, and memory later.
    const fn whole(self) -> Self {
        Self {
            requests: 10_000,
            memory_after: Some(Duration::from_mins(1)),
            ..self
        }
    }

    fn run(&self, programs: &Path, content: &Content) -> Result<String> {
        let scenario = Scenario {
            program: self.program,
            ..flood::scenario()
        };
        let rig = Rig::build(&scenario)?;
        for address in ABUSERS {
            rig.client()
                .ip(&format!("address add {address}/64 dev cli0 nodad"))?;
        }
        let ports = "net.ipv4.ip_local_port_range=1024 65535";
        let mut sysctl = rig.client().command("sysctl");
        shell::capture(sysctl.args(["-q", "-w", ports]))?;
        // Thousands of connections of one kernel send again at the same moment: the
        // link queues that, instead of dropping what the other client sends.
        let queue = format!("qdisc add dev cli0 root pfifo limit {QUEUE}");
        let mut tc = rig.client().command("tc");
        shell::capture(tc.args(queue.split(' ')))?;
        if self.abuses.iter().any(|(abuse, _)| *abuse == Abuse::Holes) {
            // A super-segment that comes whole is one hole at most.
            rig.server().set_features(SERVER_LINK, &["tso"], false)?;
        }
        let (server, place) = rig.start_with(&scenario, None, programs, content, self.options)?;
        let (quiet, pressed) = rig.as_client(|| {
            let quiet = self.ask(&place)?;
            let memory = memory(server.id())?.0;
            Ok::<_, Failure>(((quiet, memory), self.press(&place)?))
        })??;
        let (quiet, memory_before) = quiet;
        let mut line = format!(
            "pressure, {}: requests take {:?} (at most {:?}), on a quiet server {:?} ({:?})",
            self.name, pressed.median, pressed.most, quiet.median, quiet.most
        );
        let mut is_met =
            pressed.most <= MOST_WAIT && pressed.median <= quiet.median.mul_f64(MOST_MEDIAN);
        if let Some(wait) = self.memory_after {
            let after = memory_after(&server, wait)?;
            line = format!(
                "{line}; memory {} kB, {} s later {} kB",
                memory_before >> 10,
                wait.as_secs(),
                after >> 10
            );
            is_met &= after as f64 <= memory_before as f64 * MOST_MEMORY;
        }
        let (status, output) = server.stop(Signal::TERM)?;
        let (what, count) = (self.shortage, counted(&output, self.shortage)?);
        line = format!("{line}; {what}: {count}");
        // Without a shortage nothing was tried.
        if !status.success() || !is_met || count == 0 {
            return Err(Failure::new(format!("{line}\n{status}:\n{output}")));
        }
        Ok(line)
    }

    /// The same while the abusers are there.
    fn press(&self, place: &Place) -> Result<Seen> {
        let to = place.socket(place.v6);
        let mut abusers = Vec::new();
        for process in 0..PROCESSES {
            let from = ABUSERS[process % ABUSERS.len()];
            let from = SocketAddr::new(from.parse::<IpAddr>().context(from)?, 0);
            let part = |(abuse, count): &(Abuse, usize)| (*abuse, count / PROCESSES);
            let part: Vec<_> = self.abuses.iter().map(part).collect();
            abusers.push(Abusers::start(from, to, &part)?);
        }
        abusers.iter_mut().try_for_each(Abusers::wait)?;
        std::thread::sleep(SETTLED);
        self.ask(place)
    }

    /// Asks, by a connection for two requests each time.
    fn ask(&self, place: &Place) -> Result<Seen> {
        let (mut short, mut long) = (Vec::new(), Vec::new());
        let cookies = format!("Cookie: {}\r\n", "c".repeat(COOKIES));
        for n in 0..self.requests / 2 {
            std::thread::sleep(PAUSE);
            let is_long = n % LONG_EACH == 0;
            let start = Instant::now();
            match self.program {
                Program::Sandstorm { .. } => {
                    let mut connection = Connection::open(place.socket(place.v4))?;
                    connection
                        .request("GET", flood::PATH, "")?
                        .expect_status(200)?;
                    short.push(start.elapsed());
                    let start = Instant::now();
                    let more = if is_long { &cookies } else { "" };
                    let close = format!("{more}Connection: close\r\n");
                    connection
                        .request("GET", flood::PATH, &close)?
                        .expect_status(200)?;
                    let times = if is_long { &mut long } else { &mut short };
                    times.push(start.elapsed());
                }
                Program::Namestorm { .. } => {
                    let mut stream = dns::connect(place.socket(place.v4))?;
                    dns::ask_over(&mut stream, 1)?;
                    short.push(start.elapsed());
                    let start = Instant::now();
                    dns::ask_over(&mut stream, 2)?;
                    short.push(start.elapsed());
                }
            }
        }
        short.sort();
        let median = short[short.len() / 2];
        let most = short.into_iter().chain(long).max().unwrap_or_default();
        Ok(Seen { median, most })
    }
}

/// A count of the server's summary.
fn counted(summary: &str, label: &str) -> Result<u64> {
    let value = summary
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(label)?.strip_prefix(':'));
    let missing = || Failure::new(format!("no count of {label} in the summary:\n{summary}"));
    let digits: String = value.ok_or_else(missing)?.replace(',', "");
    digits.trim().parse().context(label)
}

/// Bytes of the server that are in memory in a while.
fn memory_after(server: &Server, wait: Duration) -> Result<u64> {
    interrupt::wait_for(wait, || Ok(None::<()>))?;
    Ok(memory(server.id())?.0)
}
