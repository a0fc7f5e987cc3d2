//! Ten thousand clients that ask for a large file and hardly read: what they
//! have not read is theirs to wait for, and takes no memory of the server's.

use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Content;
use super::checks::Checks;
use super::flood::{memory, scenario};
use super::http::Connection;
use super::rig::{Place, Rig};
use super::supers::expect_sent;
use super::web::{SIZES, body, in_threads};
use crate::server::Server;
use crate::shell::{self, Context as _, Failure, Result};

/// Clients.
const READERS: usize = 10_000;
/// Threads that they share.
const THREADS: usize = 20;
/// Times that each of them reads.
const READS: usize = 8;
/// What they have for what they have not read: windows of some segments, which
/// are sent as runs.
const BUFFER: &str = "net.ipv4.tcp_rmem=4096 32768 32768";
/// Memory of the server that each of them may take, in bytes: what is known of
/// a connection.
const MOST_EACH: u64 = 1_024;
/// Files that this program may have open meanwhile.
const FILES: u64 = 2 * READERS as u64;

/// Runs it.
pub(crate) fn run(programs: &Path, content: &Content, checks: &mut Checks) -> Result<()> {
    allow_files(FILES)?;
    let scenario = scenario();
    let rig = Rig::build(&scenario)?;
    let mut sysctl = rig.client().command("sysctl");
    shell::capture(sysctl.args(["-q", "-w", BUFFER]))?;
    let (server, place) = rig.start(&scenario, None, programs, content)?;
    let mut told = String::new();
    checks.check("slow readers take no memory and hold nobody up", || {
        told = rig.as_client(|| read_slowly(&server, &place))??;
        Ok(())
    });
    println!("{told}");
    checks.check("they were sent super-segments", || expect_sent(server));
    Ok(())
}

/// Lets this program have so many files open.
pub(super) fn allow_files(files: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < files) {
        let maximum = limit.maximum.map(|maximum| maximum.max(files));
        let more = Rlimit {
            current: Some(files),
            maximum,
        };
        setrlimit(Resource::Nofile, more).context("allowing more open files")?;
    }
    Ok(())
}

/// A client that reads now and then.
struct Reader {
    connection: Connection,
    /// Bytes of the body that it has read.
    at: usize,
}

/// What became of them and of the server's memory.
fn read_slowly(server: &Server, place: &Place) -> Result<String> {
    let size = SIZES.into_iter().max().unwrap_or_default();
    let body = body(size);
    let path = format!("/size-{size}.bin");
    let to = place.socket(place.v4);
    let fetch = || -> Result<()> {
        let response = Connection::open(to)?.request("GET", &path, "")?;
        response.expect_body(&body)
    };
    // Once before, so that what the first response takes is there.
    fetch()?;
    let (before, _) = memory(server.id())?;
    let mut readers = in_threads(vec![(); THREADS], |()| {
        let open = |_| Reader::open(to, &path);
        (0..READERS / THREADS).map(open).collect::<Result<Vec<_>>>()
    })?;
    for _ in 0..READS {
        readers = in_threads(readers, |mut readers| {
            for reader in &mut readers {
                reader.read(&body)?;
            }
            Ok(readers)
        })?;
    }
    // Another one is not held up.
    fetch()?;
    let (after, most) = memory(server.id())?;
    let read: usize = readers.iter().flatten().map(|reader| reader.at).sum();
    let grown = most.max(after).saturating_sub(before);
    let line = format!(
        "readers: {READERS} have read {} MB of {} GB; the server's memory has grown by {} kB",
        read / 1_000_000,
        READERS * size / 1_000_000_000,
        grown >> 10
    );
    if grown > MOST_EACH * READERS as u64 {
        return Err(Failure::new(line));
    }
    Ok(line)
}

impl Reader {
    /// Asks, and receives the head of the response.
    fn open(to: std::net::SocketAddr, path: &str) -> Result<Self> {
        let mut connection = Connection::open(to)?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: storm.test\r\n\r\n");
        connection.send(request.as_bytes())?;
        connection.receive(false)?.expect_status(200)?;
        Ok(Self { connection, at: 0 })
    }

    fn read(&mut self, body: &[u8]) -> Result<()> {
        let part = self.connection.receive_part()?;
        if body.get(self.at..self.at + part.len()) != Some(&part[..]) {
            let at = self.at;
            return Err(Failure::new(format!("wrong bytes after {at} of a body")));
        }
        self.at += part.len();
        Ok(())
    }
}
