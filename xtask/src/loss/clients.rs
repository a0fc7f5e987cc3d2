//! Linux clients with many TCP settings on an impaired network. Every byte must arrive.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::json;

use super::cells::SIZES;
use super::forwarder::{Counters, Paths};
use super::lab::{fetch, make_site};
use super::rig::{ADDRESSES, RECEIVE_BUFFERS, Rig, SERVER, Stack, routes};
use crate::e2e::checks::Checks;
use crate::e2e::http::{Connection, same};
use crate::e2e::supers;
use crate::e2e::web::{body, in_threads};
use crate::interrupt;
use crate::netns::CLIENT_LINK;
use crate::shell;

/// File that lists the kernel's congestion controls.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Clients of the sample. Each begins with its congestion control. Further words name what differs
/// from the default client, server and path.
const SAMPLE: [&str; 15] = [
    "cubic",
    "reno, no SACK",
    "bbr, no timestamps",
    "cubic, no window scaling",
    "cubic, ECN",
    "cubic, small buffer",
    "cubic, MSS 536, IPv6",
    "reno, no SACK, no timestamps, no window scaling, small buffer, MSS 536",
    "cubic, server with BBR",
    "cubic, ECN, super-segments",
    "cubic, GRO, super-segments",
    "cubic, path MTU 1400, super-segments",
    "cubic, GRO, path MTU 1400, super-segments",
    "cubic, no SACK, black hole 1280, super-segments",
    "cubic, no timestamps, IPv6, GRO, black hole 1280, super-segments",
];

/// Size in bytes of the file that is fetched on a single connection.
const LARGE: usize = 512 << 10;
/// Size in bytes of the file that is fetched on several connections, and by the slow reader.
const MEDIUM: usize = 128 << 10;
/// Number of simultaneous connections.
const AT_ONCE: usize = 6;
/// Size in bytes of a file whose response has a typical head length.
const EXAMPLE: usize = SIZES[1];
/// Lengths of responses in segments: around one segment, and around a super-segment of 64 KB.
const EDGES: [usize; 6] = [1, 2, 3, 44, 45, 46];
/// Size in bytes of the file that the client requests by pipelining.
const TINY: usize = SIZES[0];
/// Number of pipelined requests.
const REQUESTS: usize = 150;
/// Length of a pipelined request in bytes.
const REQUEST_LEN: usize = 4_000;
/// Pause of the slow reader before each read.
const PAUSE: Duration = Duration::from_millis(20);

/// A client with its server and its path, in words like those of [`SAMPLE`].
#[derive(Clone, Debug, PartialEq, Eq)]
struct Client(String);

impl Client {
    fn words(&self) -> impl Iterator<Item = &str> {
        self.0.split(", ")
    }

    fn congestion(&self) -> &str {
        self.words().next().unwrap_or_default()
    }

    fn has(&self, word: &str) -> bool {
        self.words().any(|one| one == word)
    }

    /// Returns the number that follows a word in the client's name, such as 536 in `MSS 536`.
    fn number(&self, word: &str) -> Option<usize> {
        let mut words = self.words();
        words.find_map(|one| one.strip_prefix(word)?.trim_start().parse().ok())
    }

    /// Returns the kind of server, and whether it sends super-segments. Clients for which both are
    /// equal share a server.
    fn server(&self) -> (Stack, bool) {
        let stack = if self.has("server with BBR") {
            Stack::Bbr
        } else {
            Stack::Sandstorm
        };
        (stack, self.has("super-segments"))
    }

    /// Returns the path MTU from the server to the client, and whether ICMP reports it.
    fn path_mtu(&self) -> Option<(usize, bool)> {
        let icmp = self.number("path MTU").map(|mtu| (mtu, true));
        icmp.or(self.number("black hole").map(|mtu| (mtu, false)))
    }

    /// Returns sizes of bodies whose responses end near segment boundaries on this client's path.
    fn edges(&self, head: usize) -> Vec<usize> {
        let mtu = self.path_mtu().map_or(1_500, |(mtu, _)| mtu);
        let mss = mtu - if self.has("IPv6") { 60 } else { 40 };
        let mss = self.number("MSS").unwrap_or(mss).min(mss);
        // Timestamps take 12 bytes of each segment.
        supers::edges(&EDGES, mss - 12, head)
    }

    fn prepare(&self, rig: &Rig) -> Result<()> {
        let off = |word| u32::from(!self.has(word));
        let (sack, timestamps) = (off("no SACK"), off("no timestamps"));
        let (scaling, ecn) = (off("no window scaling"), 1 - off("ECN"));
        let buffers = if self.has("small buffer") {
            "4096 16384 16384"
        } else {
            RECEIVE_BUFFERS
        };
        let gro = if self.has("GRO") { "on" } else { "off" };
        let mss = self.number("MSS");
        let mss = mss.map_or(String::new(), |mss| format!("advmss {mss}"));
        let attributes = format!("congctl {} {mss}", self.congestion());
        rig.client_script(&format!(
            "sysctl -q -w net.ipv4.tcp_sack={sack} net.ipv4.tcp_timestamps={timestamps} \
               net.ipv4.tcp_window_scaling={scaling} net.ipv4.tcp_ecn={ecn} \
               net.ipv4.tcp_rmem='{buffers}'
             ethtool -K {CLIENT_LINK} gro {gro}
             {}",
            routes(CLIENT_LINK, SERVER, &attributes)
        ))
    }
}

/// Returns a client for every combination of congestion control, TCP options, ECN and buffer size.
/// The other settings vary, but not in every combination.
fn full() -> Vec<Client> {
    let mut clients = Vec::new();
    for congestion in ["cubic", "reno", "bbr"] {
        for bits in 0..32_usize {
            // With a small MSS, segments fit any path, so these clients have no reduced path MTU.
            let (mss, path) = match bits % 4 {
                1 => (true, "MSS 536"),
                2 => (true, "MSS 1200"),
                _ => (
                    bits % 11 % 3 > 0,
                    ["", "path MTU 1400", "black hole 1280"][bits % 11 % 3],
                ),
            };
            let words = [
                (bits & 1 > 0, "no SACK"),
                (bits & 2 > 0, "no timestamps"),
                (bits & 4 > 0, "no window scaling"),
                (bits & 8 > 0, "ECN"),
                (bits & 16 > 0, "small buffer"),
                (bits % 3 == 0, "IPv6"),
                (bits % 5 < 2, "GRO"),
                (mss, path),
                (bits % 13 == 0, "server with BBR"),
                (bits % 7 % 2 == 1, "super-segments"),
            ];
            let words = words.iter().filter(|(is, _)| *is).map(|(_, word)| *word);
            let words: Vec<&str> = std::iter::once(congestion).chain(words).collect();
            clients.push(Client(words.join(", ")));
        }
    }
    clients
}

fn sample() -> Vec<Client> {
    SAMPLE.map(|words| Client(words.to_owned())).into()
}

/// Runs the clients whose names contain `filter`, and prints their results.
pub(crate) fn run(is_full: bool, filter: &str, first_seed: u64, programs: &Path) -> Result<Checks> {
    let scratch = shell::scratch("clients")?;
    let site = make_site(&scratch)?;
    let available = shell::read(Path::new(AVAILABLE))?;
    let all = if is_full { full() } else { sample() };
    let mut clients = Vec::new();
    for (seed, client) in (first_seed..).zip(all) {
        let mut controls = available.split_whitespace();
        if !format!("client {}", client.0).contains(filter) {
            continue;
        }
        if controls.any(|control| control == client.congestion()) {
            clients.push((seed, client));
        } else {
            let control = client.congestion();
            println!("skip client {}: this kernel has no {control}", client.0);
        }
    }
    let build = |stack, options| Rig::build(stack, programs, &site, scratch.path(), options);
    let mut head = 0;
    let with_supers = || clients.iter().filter(|(_, client)| client.server().1);
    if with_supers().next().is_some() {
        head = head_len(build(Stack::Sandstorm, "")?)?;
        for (_, client) in with_supers() {
            supers::write_files(&site, &client.edges(head))?;
        }
    }
    let mut total = Checks::default();
    for (stack, is_super) in [Stack::Sandstorm, Stack::Bbr]
        .into_iter()
        .flat_map(|stack| [(stack, false), (stack, true)])
    {
        let of_server = |(_, client): &&(u64, Client)| client.server() == (stack, is_super);
        let some: Vec<_> = clients.iter().filter(of_server).collect();
        if some.is_empty() {
            continue;
        }
        let rig = build(
            stack,
            if is_super {
                ",offload=on"
            } else {
                ",offload=off"
            },
        )?;
        for (seed, client) in some {
            interrupt::check()?;
            let (start, mut checks) = (Instant::now(), Checks::default());
            if let Err(failure) = check(client, &rig, (*seed, head), &mut checks) {
                checks.fail("the client itself", &format!("{failure:#}"));
            }
            if checks.failed() > 0 {
                checks.note(&rig.server_output());
            }
            let name = format!("client {}", client.0);
            checks.print(&name, Some(*seed), start.elapsed());
            total.add(checks);
        }
        let output = rig.finish()?;
        total.check("the server is of the requested kind", || {
            let control = if stack == Stack::Bbr { "bbr" } else { "cubic" };
            let mut lines = output.lines().filter(|line| line.contains("congestion"));
            let is_named = lines.any(|line| line.trim_end().ends_with(control));
            let is_right = is_named && supers::were_sent(&output) == is_super;
            ensure!(is_right, "{output}");
            Ok(())
        });
    }
    Ok(total)
}

/// Returns the length of a typical response head, in bytes.
fn head_len(rig: Rig) -> Result<usize> {
    let forwarder = rig.join(&paths(&Client(String::new()), 1), None)?;
    let [v4, _] = ADDRESSES;
    let head = rig.as_client(|| supers::head_len(v4, &format!("/{EXAMPLE}.bin")))??;
    forwarder.finish()?;
    rig.finish()?;
    Ok(head)
}

/// Returns paths with a bottleneck, loss, delay, reordering, duplication and ECN marks. The path
/// MTU is reduced only for some clients.
fn paths(client: &Client, seed: u64) -> Paths {
    let mut down = json!({
        "rate": 100_000_000, "queue": 200, "delay_us": 2_000, "loss": 0.02, "reorder": 0.05,
        "hold_us": 1_000, "duplicate": 0.01, "mark": 0.02,
    });
    let mut up = down.clone();
    up["ack_loss"] = json!(0.02);
    if let Some((mtu, icmp)) = client.path_mtu() {
        (down["mtu"], down["icmp"]) = (mtu.into(), icmp.into());
    }
    Paths { down, up, seed }
}

fn check(
    client: &Client,
    rig: &Rig,
    (seed, head): (u64, usize),
    checks: &mut Checks,
) -> Result<()> {
    client.prepare(rig)?;
    let forwarder = rig.join(&paths(client, seed), None)?;
    let [v4, v6] = ADDRESSES;
    let to = if client.has("IPv6") { v6 } else { v4 };
    rig.as_client(|| {
        checks.check("a large file", || fetch(to, LARGE).map(drop));
        checks.check("files at the same time", || {
            in_threads(vec![(); AT_ONCE], |()| fetch(to, MEDIUM)).map(drop)
        });
        checks.check("a client that reads slowly", || read_slowly(to));
        checks.check("a client that sends long requests", || send_much(to));
        if client.server().1 {
            checks.check("every size around the edges", || {
                supers::fetch_all(&mut Connection::open(to)?, &client.edges(head))
            });
        }
    })?;
    let counters = forwarder.finish()?;
    checks.check("the network was bad", || was_bad(client, &counters));
    Ok(())
}

fn read_slowly(to: SocketAddr) -> Result<()> {
    let mut connection = Connection::open(to)?;
    let request = format!("GET /{MEDIUM}.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    connection.send(request.as_bytes())?;
    connection.receive(false)?.expect_status(200)?;
    let mut received = Vec::new();
    while received.len() < MEDIUM {
        std::thread::sleep(PAUSE);
        received.extend(connection.receive_part()?);
    }
    same(&received, &body(MEDIUM))
}

/// Sends long requests without waiting for the responses, and checks each response.
fn send_much(to: SocketAddr) -> Result<()> {
    let mut connection = Connection::open(to)?;
    let mut sender = connection.sender()?;
    let head = format!("GET /{TINY}.bin HTTP/1.1\r\nHost: loss.test\r\nX-Padding: ");
    let padding = "x".repeat(REQUEST_LEN.saturating_sub(head.len() + 4));
    let request = format!("{head}{padding}\r\n\r\n");
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let mut requests = 0..REQUESTS;
            requests.try_for_each(|_| sender.write_all(request.as_bytes()))
        });
        for number in 0..REQUESTS {
            let response = connection.receive(true);
            let right = response.and_then(|response| response.expect_body(&body(TINY)));
            right.with_context(|| format!("response {number}"))?;
        }
        let sent = sending.join();
        let sent = sent.map_err(|_| anyhow!("the sending thread has panicked"))?;
        sent.context("sending requests")
    })?;
    connection.finish()?;
    connection.expect_end()
}

/// Returns an error unless the impairments and the number of connections are as intended. Otherwise
/// the other checks prove nothing.
fn was_bad(client: &Client, counters: &Counters) -> Result<()> {
    let get = |name: String| counters.get(&name);
    for way in ["down", "up"] {
        for name in ["lost", "held", "duplicated"] {
            ensure!(get(format!("{way}/{name}"))? > 0, "none was {name} {way}");
        }
        // The forwarder marks frames if, and only if, the client uses ECN.
        let marked = get(format!("{way}/marked"))?;
        ensure!(
            client.has("ECN") == (marked > 0),
            "{marked} were marked {way}"
        );
    }
    let too_big = get("down/too_big".to_owned())?;
    let is_right = client.path_mtu().is_some() == (too_big > 0);
    ensure!(is_right, "{too_big} frames were above the path MTU");
    let expected = AT_ONCE as u64 + 3 + u64::from(client.server().1);
    let connections = get("connections".to_owned())?;
    ensure!(
        connections == expected,
        "{connections} connections instead of {expected}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn client_names_are_unique_and_consist_of_known_words() {
        let mut known = BTreeSet::new();
        for client in full() {
            known.extend(client.words().map(str::to_owned));
        }
        // The sample uses each word at least once, except `MSS 1200`.
        let mut used = BTreeSet::from(["MSS 1200".to_owned()]);
        for client in sample() {
            used.extend(client.words().map(str::to_owned));
        }
        assert_eq!(used, known);
        for clients in [sample(), full()] {
            let names: BTreeSet<&str> = clients.iter().map(|client| &*client.0).collect();
            assert_eq!(names.len(), clients.len());
        }
    }

    #[test]
    fn the_sample_has_each_path_with_super_segments_and_with_gro() {
        for path in [None, Some((1_400, true)), Some((1_280, false))] {
            for gro in [false, true] {
                let fits = |client: &Client| {
                    client.server().1 && client.path_mtu() == path && client.has("GRO") == gro
                };
                assert!(sample().iter().any(fits), "{path:?}, GRO {gro}");
            }
        }
    }
}
