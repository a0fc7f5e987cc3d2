//! Real clients of many kinds on a bad network: whatever TCP they speak,
//! every byte arrives.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use super::FIRST_SEED;
use super::fetch::{Reading, fetch};
use super::forwarder::{Paths, Seen};
use super::lab::{Site, TINY};
use super::rig::{self, Rig, Stack};

use crate::e2e::checks::Checks;
use crate::e2e::http::Connection;
use crate::e2e::supers;
use crate::e2e::web::in_threads;
use crate::interrupt;
use crate::shell::{Context as _, Failure, Result, Scratch};

/// What the network does in both directions: something of everything.
const DOWN: &str = "rate=100M,delay=2ms,queue=200,loss=0.02,reorder=0.05,hold=1ms,duplicate=0.01,\
                    mark=0.02";
const UP: &str = "rate=100M,delay=2ms,queue=200,loss=0.02,ack-loss=0.02,reorder=0.05,hold=1ms,\
                  duplicate=0.01,mark=0.02";

/// One check is done by then, or has failed.
const LIMIT: Duration = Duration::from_secs(20);

/// The file that is fetched alone, and by several at once.
const LARGE: usize = 512 << 10;
const MEDIUM: usize = 128 << 10;
const AT_ONCE: usize = 6;
/// Bytes of a body whose response tells how long a head is; and how many
/// segments responses have that end where segments do, and about where a
/// super-segment of 64 KB does.
const EXAMPLE: usize = 30_000;
const EDGES: [usize; 6] = [1, 2, 3, 44, 45, 46];
/// The requests for [`TINY`], and how large each is: 600 KB in all.
const REQUESTS: usize = 150;
const REQUEST_LEN: usize = 4_000;

/// A client's TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Client {
    sack: bool,
    timestamps: bool,
    window_scaling: bool,
    ecn: bool,
    /// 16 KiB to receive into, instead of what the kernel finds right.
    small_buffer: bool,
    congestion: &'static str,
    /// The MSS that it tells; 0: its interface's.
    mss: u32,
    v6: bool,
    /// What it receives is joined to larger segments on the way up.
    gro: bool,
    /// What the server sends.
    sent: Sent,
    /// What the path does to frames larger than some.
    path: PathMtu,
}

/// In what the server hands runs of segments to its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Frames,
    /// Super-segments, which the kernel cuts.
    Supers,
}

impl Sent {
    fn device_options(self) -> &'static str {
        match self {
            Self::Frames => "",
            Self::Supers => ",offload=on",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathMtu {
    /// It takes all.
    Full,
    /// It says by ICMP that 1,400 bytes are the most.
    Told,
    /// It lets nothing beyond 1,280 bytes through, and says nothing.
    Silent,
}

impl PathMtu {
    /// In the forwarder's words.
    fn harm(self) -> &'static str {
        match self {
            Self::Full => "",
            Self::Told => ",mtu=1400,answer=yes",
            Self::Silent => ",mtu=1280",
        }
    }
}

/// What a kernel speaks today.
const MODERN: Client = Client {
    sack: true,
    timestamps: true,
    window_scaling: true,
    ecn: false,
    small_buffer: false,
    congestion: "cubic",
    mss: 0,
    v6: false,
    gro: false,
    sent: Sent::Frames,
    path: PathMtu::Full,
};

impl Client {
    fn name(&self) -> String {
        let words = [
            (!self.sack, "no SACK"),
            (!self.timestamps, "no timestamps"),
            (!self.window_scaling, "no window scaling"),
            (self.ecn, "ECN"),
            (self.small_buffer, "small buffer"),
        ];
        let mut words: Vec<String> = words
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, word)| word.to_owned())
            .collect();
        words.insert(0, self.congestion.to_owned());
        if self.mss > 0 {
            words.push(format!("MSS {}", self.mss));
        }
        let more = [
            (self.v6, "IPv6"),
            (self.gro, "GRO"),
            (self.sent == Sent::Supers, "super-segments"),
            (self.path == PathMtu::Told, "1400 bytes on the way"),
            (
                self.path == PathMtu::Silent,
                "1280 bytes on the way, in silence",
            ),
        ];
        let more = more.into_iter().filter(|(is, _)| *is);
        words.extend(more.map(|(_, word)| word.to_owned()));
        format!("client {}", words.join(", "))
    }

    /// Sizes of responses that end where segments do, as long as the path takes
    /// them.
    fn edges(&self, head: usize) -> Vec<usize> {
        let mtu = match self.path {
            PathMtu::Full => 1_500,
            PathMtu::Told => 1_400,
            PathMtu::Silent => 1_280,
        };
        let mss = mtu - if self.v6 { 60 } else { 40 };
        let mss = if self.mss > 0 {
            mss.min(self.mss as usize)
        } else {
            mss
        };
        // There is place for timestamps.
        supers::edges(&EDGES, mss - 12, head)
    }

    fn prepare(&self, rig: &Rig) -> Result<()> {
        let number = u32::from;
        let settings = [
            format!("net.ipv4.tcp_sack={}", number(self.sack)),
            format!("net.ipv4.tcp_timestamps={}", number(self.timestamps)),
            format!(
                "net.ipv4.tcp_window_scaling={}",
                number(self.window_scaling)
            ),
            // 1: asks for it; 0: does not.
            format!("net.ipv4.tcp_ecn={}", number(self.ecn)),
            format!(
                "net.ipv4.tcp_rmem={}",
                if self.small_buffer {
                    "4096 16384 16384"
                } else {
                    rig::RECEIVE_BUFFERS
                }
            ),
        ];
        rig.set_client(&settings.each_ref().map(String::as_str))?;
        let mut attributes = format!("congctl {}", self.congestion);
        if self.mss > 0 {
            attributes = format!("{attributes} advmss {}", self.mss);
        }
        rig.set_client_gro(self.gro)?;
        rig.set_client_route(&attributes)
    }
}

/// One change after the other, and all of them together.
fn sample() -> Vec<Client> {
    vec![
        MODERN,
        Client {
            congestion: "reno",
            sack: false,
            ..MODERN
        },
        Client {
            congestion: "bbr",
            timestamps: false,
            ..MODERN
        },
        Client {
            window_scaling: false,
            ..MODERN
        },
        Client {
            ecn: true,
            ..MODERN
        },
        Client {
            small_buffer: true,
            ..MODERN
        },
        Client {
            mss: 536,
            v6: true,
            ..MODERN
        },
        Client {
            sack: false,
            timestamps: false,
            window_scaling: false,
            small_buffer: true,
            congestion: "reno",
            mss: 536,
            ..MODERN
        },
        Client {
            ecn: true,
            sent: Sent::Supers,
            ..MODERN
        },
        Client {
            gro: true,
            sent: Sent::Supers,
            ..MODERN
        },
        Client {
            sent: Sent::Supers,
            path: PathMtu::Told,
            ..MODERN
        },
        Client {
            gro: true,
            sent: Sent::Supers,
            path: PathMtu::Told,
            ..MODERN
        },
        Client {
            sack: false,
            sent: Sent::Supers,
            path: PathMtu::Silent,
            ..MODERN
        },
        Client {
            timestamps: false,
            v6: true,
            gro: true,
            sent: Sent::Supers,
            path: PathMtu::Silent,
            ..MODERN
        },
    ]
}

/// Every combination of what it speaks; all else has its turn.
fn full() -> Vec<Client> {
    let mut clients = Vec::new();
    for congestion in ["cubic", "reno", "bbr"] {
        for bits in 0..32usize {
            let mss = [0, 536, 1_200, 0][bits % 4];
            let paths = [PathMtu::Full, PathMtu::Told, PathMtu::Silent];
            clients.push(Client {
                sack: bits & 1 == 0,
                timestamps: bits & 2 == 0,
                window_scaling: bits & 4 == 0,
                ecn: bits & 8 != 0,
                small_buffer: bits & 16 != 0,
                congestion,
                mss,
                v6: bits % 3 == 0,
                gro: bits % 5 < 2,
                sent: [Sent::Frames, Sent::Supers][bits % 7 % 2],
                // Small segments fit anyway.
                path: if mss == 0 {
                    paths[bits % 11 % 3]
                } else {
                    PathMtu::Full
                },
            });
        }
    }
    clients
}

/// Runs the clients whose names contain `filter`; prints as it goes.
pub(crate) fn run(
    is_full: bool,
    filter: &str,
    first_seed: Option<u64>,
    programs: &Path,
) -> Result<Checks> {
    let scratch = Scratch::create("clients")?;
    let site = Site::prepare(&scratch)?;
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .context("reading which congestion controls this kernel has")?;
    let mut clients = Vec::new();
    let everyone = if is_full { full() } else { sample() };
    for (seed, client) in (first_seed.unwrap_or(FIRST_SEED)..).zip(everyone) {
        let name = client.name();
        if !name.contains(filter) {
            continue;
        }
        let mut controls = available.split_whitespace();
        if controls.any(|control| control == client.congestion) {
            clients.push((seed, client));
        } else {
            println!("skip {name}: this kernel has no {}", client.congestion);
        }
    }
    let mut all = Checks::default();
    for sent in [Sent::Frames, Sent::Supers] {
        let clients = clients.iter().filter(|(_, client)| client.sent == sent);
        let clients: Vec<_> = clients.collect();
        if clients.is_empty() {
            continue;
        }
        let (folder, scratch) = (&site.folder, scratch.path());
        let build = |options| Rig::build(Stack::Sandstorm, programs, folder, scratch, options);
        let mut head = 0;
        if sent == Sent::Supers {
            head = head_len(build("")?, &site)?;
            for (_, client) in &clients {
                supers::write_files(folder, &client.edges(head))?;
            }
        }
        let rig = build(sent.device_options())?;
        for (seed, client) in clients {
            interrupt::check()?;
            let start = Instant::now();
            let mut checks = Checks::default();
            let outcome = check(client, &rig, &site, (*seed, head), &mut checks);
            if let Err(failure) = outcome {
                checks.fail("the client itself", &failure.to_string());
            }
            if checks.failed() > 0 {
                checks.note(&rig.server_output());
            }
            interrupt::check()?;
            checks.print(&client.name(), Some(*seed), start.elapsed());
            all.add(checks);
        }
        let output = rig.finish()?;
        let has_sent = supers::were_sent(&output);
        all.check("the server's kernel has cut what it was to", || {
            if has_sent == (sent == Sent::Supers) {
                return Ok(());
            }
            Err(Failure::new(output))
        });
    }
    Ok(all)
}

/// Bytes before the body in a response of `rig`'s server.
fn head_len(rig: Rig, site: &Site) -> Result<usize> {
    let clean = || "rate=100M,delay=1ms,queue=200".to_owned();
    let paths = Paths {
        down: clean(),
        up: clean(),
        seed: 1,
        silence_ms: 200,
    };
    let forwarder = rig.join(&paths, None)?;
    let [v4, _] = Rig::addresses();
    let head = rig.as_client(|| supers::head_len(v4, &site.file(EXAMPLE).0))??;
    forwarder.finish()?;
    rig.finish()?;
    Ok(head)
}

fn check(
    client: &Client,
    rig: &Rig,
    site: &Site,
    (seed, head): (u64, usize),
    checks: &mut Checks,
) -> Result<()> {
    client.prepare(rig)?;
    let paths = Paths {
        down: format!("{DOWN}{}", client.path.harm()),
        up: UP.to_owned(),
        seed,
        silence_ms: 200,
    };
    let forwarder = rig.join(&paths, None)?;
    let [v4, v6] = Rig::addresses();
    let to = if client.v6 { v6 } else { v4 };
    rig.as_client(|| {
        checks.check("a large file", || {
            get(to, site, LARGE, &Reading::fast(LIMIT))
        });
        checks.check("files at the same time", || {
            let one = |()| get(to, site, MEDIUM, &Reading::fast(LIMIT));
            in_threads(vec![(); AT_ONCE], one).map(drop)
        });
        checks.check("a client that reads slowly", || {
            let slowly = Reading {
                limit: LIMIT,
                chunk: 16 * 1024,
                pause: Duration::from_millis(20),
            };
            get(to, site, MEDIUM, &slowly)
        });
        checks.check("a client that sends much", || send_much(to, site));
        if client.sent == Sent::Supers {
            checks.check("every size around the edges", || {
                supers::fetch_all(&mut Connection::open(to)?, &client.edges(head))
            });
        }
    })?;
    let seen = forwarder.finish()?;
    checks.check("the network was bad", || was_bad(client, &seen));
    Ok(())
}

fn get(to: SocketAddr, site: &Site, size: usize, reading: &Reading) -> Result<()> {
    let (path, body) = site.file(size);
    fetch(to, &path, body, reading).map(drop)
}

/// Many long requests one behind the other, without waiting for responses.
fn send_much(to: SocketAddr, site: &Site) -> Result<()> {
    let (path, body) = site.file(TINY);
    let mut connection = Connection::open(to)?;
    let mut sender = connection.sender()?;
    let head = format!("GET {path} HTTP/1.1\r\nHost: loss.test\r\nX-Padding: ");
    let padding = "x".repeat(REQUEST_LEN.saturating_sub(head.len() + 4));
    let request = format!("{head}{padding}\r\n\r\n");
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || -> Result<()> {
            for number in 0..REQUESTS {
                sender
                    .write_all(request.as_bytes())
                    .context(format_args!("sending request {number}"))?;
            }
            Ok(())
        });
        for number in 0..REQUESTS {
            let response = connection.receive(true);
            response
                .and_then(|response| response.expect_body(body))
                .context(format_args!("response {number}"))?;
        }
        sending
            .join()
            .map_err(|_| Failure::new("the sending thread has panicked"))?
    })?;
    connection.finish()?;
    connection.expect_end()
}

/// An error when the forwarder has not done what it should: then the other
/// checks show nothing.
fn was_bad(client: &Client, seen: &Seen) -> Result<()> {
    if let Some(fault) = seen.fault() {
        return Err(Failure::new(fault));
    }
    for way in [&seen.down, &seen.up] {
        let path = &way.path;
        // Only who speaks ECN is marked: both ends do, or none.
        let as_asked = client.ecn == (path.marked > 0);
        if path.lost == 0 || path.held == 0 || path.doubled == 0 || !as_asked {
            return Err(Failure::new(format!("it was not: {path:?}")));
        }
    }
    if (client.path == PathMtu::Full) != (seen.down.too_big == 0) {
        let count = seen.down.too_big;
        return Err(Failure::new(format!(
            "{count} frames were too large for it"
        )));
    }
    let connections = AT_ONCE as u64 + 3 + u64::from(client.sent == Sent::Supers);
    if seen.connections != connections {
        return Err(Failure::new(format!(
            "{} connections instead of {connections}",
            seen.connections
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn clients_are_told_apart_by_their_names() {
        for clients in [sample(), full()] {
            let names: BTreeSet<String> = clients.iter().map(Client::name).collect();
            assert_eq!(names.len(), clients.len());
        }
        assert_eq!(MODERN.name(), "client cubic");
    }

    #[test]
    fn the_sample_turns_each_switch() {
        let sample = sample();
        let some = |is: fn(&Client) -> bool| sample.iter().any(is);
        assert!(some(|c| !c.sack) && some(|c| !c.timestamps) && some(|c| !c.window_scaling));
        assert!(some(|c| c.ecn) && some(|c| c.small_buffer) && some(|c| c.v6) && some(|c| c.gro));
        for congestion in ["cubic", "reno", "bbr"] {
            assert!(sample.iter().any(|c| c.congestion == congestion));
        }
        for path in [PathMtu::Full, PathMtu::Told, PathMtu::Silent] {
            for gro in [false, true] {
                let is_there =
                    |c: &Client| c.sent == Sent::Supers && (c.path, c.gro) == (path, gro);
                assert!(sample.iter().any(is_there));
            }
        }
    }
}
