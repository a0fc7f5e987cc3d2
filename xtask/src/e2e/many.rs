//! Many connections: slow readers and idle clients. Each may cost the server no more memory than
//! the state of its connection.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Env;
use super::checks::Checks;
use super::flood::PATH;
use super::http::Connection;
use super::matrix::Scenario;
use super::rig::{Place, Rig};
use super::supers::expect_sent;
use super::web::{SIZES, body, in_threads};
use crate::server::Server;
use crate::shell;

/// Number of slow readers. [`THREADS`] threads share them, and each reader reads [`READS`] times.
const READERS: usize = 10_000;
const THREADS: usize = 20;
const READS: usize = 8;
/// The sysctl for the slow readers' receive buffers. Each window has room for a few segments, which
/// the server sends as a super-segment.
const BUFFER: &str = "net.ipv4.tcp_rmem=4096 32768 32768";
/// Maximum growth of the server's memory per slow reader, in bytes.
const MAX_GROWTH_PER_READER: u64 = 1_024;

/// Number of idle connections.
const IDLE: u32 = 1_000_000;
/// Number of connections per client address. One address has too few ports for all connections.
const OF_ADDRESS: u32 = 50_000;
/// Number of connections that send requests.
const ASKING: u32 = 16;
/// Maximum resident memory of the server with all idle connections, in bytes.
const MAX_MEMORY: u64 = 1 << 30;

/// Ten thousand clients request a large file and read slowly.
pub(crate) fn readers(env: &Env, checks: &mut Checks) -> Result<()> {
    allow_files(2 * READERS as u64)?;
    let rig = Rig::build(&Scenario::WEB)?;
    let mut sysctl = rig.client().command("sysctl");
    shell::capture(sysctl.args(["-q", "-w", BUFFER]))?;
    let (server, place) = rig.start(env, &Scenario::WEB, &[])?;
    checks.check(
        "slow readers take no memory and delay no other client",
        || rig.as_client(|| read_slowly(&server, &place))?,
    );
    checks.check("they were sent super-segments", || expect_sent(server));
    Ok(())
}

/// Raises this process's limit on open files to at least `files`.
pub(super) fn allow_files(files: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < files) {
        let more = Rlimit {
            current: Some(files),
            maximum: limit.maximum.map(|maximum| maximum.max(files)),
        };
        setrlimit(Resource::Nofile, more).context("allowing more open files")?;
    }
    Ok(())
}

/// A client that reads from time to time, and the number of body bytes it has read so far.
struct Reader(Connection, usize);

fn read_slowly(server: &Server, place: &Place) -> Result<()> {
    let size = SIZES.into_iter().max().unwrap_or_default();
    let body = body(size);
    let path = format!("/size-{size}.bin");
    let to = place.socket(place.v4);
    let fetch = || {
        Connection::open(to)?
            .request("GET", &path, "")?
            .expect_body(&body)
    };
    // The first response makes the server allocate memory, which the check must not count.
    fetch()?;
    let (before, _) = memory(server.id())?;
    let mut readers = in_threads(vec![(); THREADS], |()| {
        let open = |_| Reader::open(to, &path);
        (0..READERS / THREADS).map(open).collect::<Result<Vec<_>>>()
    })?;
    for _ in 0..READS {
        readers = in_threads(readers, |mut readers| {
            let mut all = readers.iter_mut();
            all.try_for_each(|reader| reader.read(&body))
                .map(|()| readers)
        })?;
    }
    // Another client must be served without delay.
    fetch()?;
    let (after, peak) = memory(server.id())?;
    let read = readers
        .iter()
        .flatten()
        .map(|reader| reader.1)
        .sum::<usize>()
        / 1_000_000;
    let growth = peak.max(after).saturating_sub(before);
    let line = format!(
        "readers: {READERS} have read {read} MB of {} GB; the server's memory has grown by {} kB",
        READERS * size / 1_000_000_000,
        growth >> 10
    );
    println!("{line}");
    ensure!(growth <= MAX_GROWTH_PER_READER * READERS as u64, "{line}");
    Ok(())
}

impl Reader {
    /// Connects, sends the request and receives the response's head.
    fn open(to: SocketAddr, path: &str) -> Result<Self> {
        let mut connection = Connection::open(to)?;
        connection.send(format!("GET {path} HTTP/1.1\r\nHost: storm.test\r\n\r\n"))?;
        connection.receive(false)?.expect_status(200)?;
        Ok(Self(connection, 0))
    }

    fn read(&mut self, body: &[u8]) -> Result<()> {
        let (part, at) = (self.0.receive_part()?, self.1);
        self.1 += part.len();
        let right = body.get(at..self.1) == Some(&part[..]);
        ensure!(right, "wrong bytes after {at} of a body");
        Ok(())
    }
}

/// A million clients connect and stay idle while a few send requests.
pub(crate) fn crowd(env: &Env, checks: &mut Checks) -> Result<()> {
    let rig = Rig::build(&Scenario::WEB)?;
    let limits = ["--max-connections", "1100000", "--idle-timeout", "3600"];
    let (server, place) = rig.start(env, &Scenario::WEB, &limits)?;
    checks.check("a million idle connections in 1 GiB", || {
        let (v4, port, site) = (place.v4, place.port, env.site.display());
        let addresses = 0..=(IDLE + ASKING) / OF_ADDRESS;
        let addresses = addresses.map(|n| format!(" --address 10.99.0.{}/24", 10 + n));
        let addresses: String = addresses.collect();
        let load = env.programs.join("load");
        // The generator's measurement begins when all connections are open.
        let output = rig.client().run(&format!(
            "{} http --interface cli0 --target {v4} --port {port} --site {site} --path {PATH} \
             --connections {ASKING} --idle {IDLE} --seconds 3{addresses}",
            load.display()
        ))?;
        let json = output.lines().rev().find(|line| line.starts_with('{'));
        let report: serde_json::Value =
            serde_json::from_str(json.unwrap_or_default()).with_context(|| output.clone())?;
        let completed = report["completed"].as_u64().unwrap_or(0);
        let (_, peak) = memory(server.id())?;
        let line = format!(
            "crowd: {IDLE} idle connections: {} MB of memory at most, and {completed} requests \
             of others",
            peak >> 20
        );
        println!("{line}");
        ensure!(completed > 0 && peak <= MAX_MEMORY, "{line}");
        Ok(())
    });
    checks.check("it stops normally", || server.stop_well().map(drop));
    Ok(())
}

/// Returns the current and the peak resident memory of a process, in bytes.
pub(super) fn memory(id: u32) -> Result<(u64, u64)> {
    let path = PathBuf::from(format!("/proc/{id}/status"));
    let status = shell::read(&path)?;
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
        Some(kilobytes << 10)
    };
    let memory = bytes("VmRSS:").zip(bytes("VmHWM:"));
    memory.with_context(|| format!("no VmRSS in {}", path.display()))
}
