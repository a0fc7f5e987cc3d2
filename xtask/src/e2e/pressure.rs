//! Pressure: clients of one address that hold what they do not use, and what a
//! client at another address sees of it.
//!
//! Each case fills something of the server's: receive buffers with halves of
//! requests, the connection table with them, with readers whose window is shut
//! and with readers that hardly read, write buffers with answers that nobody
//! reads. Connections that the server takes away are opened again at once.
//!
//! Each answer to the other client must come within a second. The median of its
//! small requests may be three times that of a quiet server. Later the server's
//! memory may be one and a half times what it was.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
use rustix::process::Signal;

use super::checks::Checks;
use super::flood::{self, memory};
use super::http::Connection;
use super::matrix::{Program, Scenario};
use super::rig::{Place, Rig};
use super::{Content, dns, readers};
use crate::interrupt;
use crate::server::Server;
use crate::shell::{self, Context as _, Failure, Result};

/// Threads that the abusers share.
const THREADS: usize = 4;
/// Files that this program may have open beside the abusers' connections.
const FILES: usize = 1_000;
/// The abusers' addresses: one client address, as it is one IPv6 network, with
/// ports enough to fill a table.
const ABUSERS: [&str; 2] = ["fd99::66", "fd99::67"];
/// The time between two bytes of a request, and between two looks at whether a
/// connection is still there.
const ROUND: Duration = Duration::from_secs(1);
/// Rounds between two reads of a reader that hardly reads, and what it reads.
const SIP_ROUNDS: u32 = 9;
const SIP: usize = 500;
/// Queries of one connection that reads no answer.
const QUERIES: usize = 250;
/// What a client with a shut window has place for.
const SMALL_BUFFER: usize = 2_048;
/// A request of several segments has so many bytes of cookies, …
const COOKIES: usize = 4_096;
/// … and is one of so many.
const LONG_EACH: usize = 5;
/// The marks.
const MOST_WAIT: Duration = Duration::from_secs(1);
const MOST_MEDIAN: f64 = 3.0;
const MOST_MEMORY: f64 = 1.5;
/// A busy machine gets so many tries.
const TRIES: u32 = 3;

/// What an abuser does with a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Abuse {
    /// Half a request, and then a byte a round.
    HalfHead,
    /// Asks for a large file and reads nothing.
    ShutWindow,
    /// Asks for a large file and reads [`SIP`] bytes now and then.
    Sip,
    /// Asks [`QUERIES`] questions and reads no answer.
    Queries,
}

/// What is tried.
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
const FEW: usize = 1_000;
const ALL: usize = 10_000;
const TABLE: &[&str] = &["--max-connections", "16000"];
const MINUTE: Option<Duration> = Some(Duration::from_mins(1));

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

/// The whole. Tables are smaller than by default, so that one program may have
/// the files open that fill them.
const WHOLE: [Case; 6] = [
    Case {
        requests: ALL,
        memory_after: MINUTE,
        ..SAMPLE[0]
    },
    Case {
        name: "a table full of halves of requests",
        options: TABLE,
        abuses: &[(Abuse::HalfHead, 17_000)],
        requests: ALL,
        memory_after: MINUTE,
        ..SAMPLE[0]
    },
    Case {
        name: "a table full of shut windows",
        options: TABLE,
        abuses: &[(Abuse::ShutWindow, 17_000)],
        requests: ALL,
        memory_after: MINUTE,
        ..SAMPLE[0]
    },
    Case {
        name: "a table full of readers that hardly read",
        options: TABLE,
        abuses: &[(Abuse::Sip, 17_000)],
        requests: ALL,
        memory_after: MINUTE,
        ..SAMPLE[0]
    },
    Case {
        name: "a table full of everything",
        options: TABLE,
        abuses: &[
            (Abuse::HalfHead, 5_700),
            (Abuse::ShutWindow, 5_700),
            (Abuse::Sip, 5_700),
        ],
        requests: ALL,
        memory_after: MINUTE,
        ..SAMPLE[0]
    },
    Case {
        requests: ALL,
        memory_after: MINUTE,
        ..SAMPLE[2]
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
        let connections: usize = case.abuses.iter().map(|(_, count)| count).sum();
        readers::allow_files((FILES + connections) as u64)?;
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
        let (full, over) = (&Barrier::new(THREADS + 1), &AtomicBool::new(false));
        std::thread::scope(|scope| {
            let abuse = |thread| scope.spawn(move || self.abuse(thread, place, full, over));
            let abusers: Vec<_> = (0..THREADS).map(abuse).collect();
            full.wait();
            std::thread::sleep(ROUND);
            let seen = self.ask(place);
            over.store(true, Ordering::Relaxed);
            for abuser in abusers {
                let panicked = |_| Failure::new("a thread of the abusers' has panicked");
                abuser.join().map_err(panicked)??;
            }
            seen
        })
    }

    /// One thread's part of the abuse, until it is `over`. Waits at `full` when
    /// all is open.
    fn abuse(&self, thread: usize, place: &Place, full: &Barrier, over: &AtomicBool) -> Result<()> {
        let from = ABUSERS[thread % ABUSERS.len()];
        let from = SocketAddr::new(from.parse::<IpAddr>().context(from)?, 0);
        let to = place.socket(place.v6);
        let mut abusers = Vec::new();
        let mut failed = None;
        for (abuse, count) in self.abuses {
            for _ in 0..count / THREADS {
                match abuse.open(from, to) {
                    Ok(stream) => abusers.push((*abuse, stream)),
                    Err(failure) => failed = Some(failure),
                }
            }
        }
        full.wait();
        let mut round = 0;
        while !over.load(Ordering::Relaxed) {
            for (abuse, stream) in &mut abusers {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                if !abuse.goes_on(stream, round) {
                    // A refusal is as good as a place that is taken away.
                    if let Ok(again) = abuse.open(from, to) {
                        *stream = again;
                    }
                }
            }
            round += 1;
            std::thread::sleep(ROUND);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Asks, by a connection for two requests each time.
    fn ask(&self, place: &Place) -> Result<Seen> {
        let (mut short, mut long) = (Vec::new(), Vec::new());
        let cookies = format!("Cookie: {}\r\n", "c".repeat(COOKIES));
        for n in 0..self.requests / 2 {
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

impl Abuse {
    /// Opens a connection and begins.
    fn open(self, from: SocketAddr, to: SocketAddr) -> Result<TcpStream> {
        let what = || format!("a connection from {from} to {to}");
        let fd = socket(AddressFamily::INET6, SocketType::STREAM, None).context(what())?;
        // Otherwise the client's kernel buffers all the answers.
        if matches!(self, Self::ShutWindow | Self::Sip | Self::Queries) {
            sockopt::set_socket_recv_buffer_size(&fd, SMALL_BUFFER).context(what())?;
        }
        bind(&fd, &from).context(what())?;
        connect(&fd, &to).context(what())?;
        let mut stream = TcpStream::from(fd);
        stream.write_all(&self.first_bytes()).context(what())?;
        stream.set_nonblocking(true).context(what())?;
        Ok(stream)
    }

    fn first_bytes(self) -> Vec<u8> {
        match self {
            Self::HalfHead => b"GET / HTTP/1.1\r\nHost: a\r\nX: ".to_vec(),
            Self::ShutWindow | Self::Sip => {
                b"GET /size-30000000.bin HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()
            }
            Self::Queries => (0..QUERIES as u16)
                .flat_map(|id| dns::framed(&dns::question(id)))
                .collect(),
        }
    }

    /// Goes on with a connection; `false` when the server has taken it away.
    fn goes_on(self, stream: &mut TcpStream, round: u32) -> bool {
        let done = match self {
            Self::HalfHead => stream.write(b"x"),
            Self::Sip if round.is_multiple_of(SIP_ROUNDS) => stream.read(&mut [0; SIP]),
            _ => return matches!(stream.take_error(), Ok(None)),
        };
        match done {
            Ok(count) => count > 0,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
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
