//! Asks a server for the version of a zone, and measures its memory.

use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::bench::rig::{Rig, SERVER_ADDRESS};
use crate::bench::usage;
use crate::server::Server;
use crate::{interrupt, shell};

/// Time limit for the right answer.
const LIMIT: Duration = Duration::from_mins(5);
/// Time from one query to the next.
const INTERVAL: Duration = Duration::from_millis(1);

/// A socket of the client. Its kernel knows the server's hardware address, and asks no server that still loads
/// for it.
pub(super) struct Probe(UdpSocket);

impl Probe {
    pub(super) fn open(rig: &Rig) -> Result<Self> {
        rig.know_server()?;
        let socket = rig.inside_client(|| UdpSocket::bind("0.0.0.0:0"))?;
        let socket = socket.context("opening a socket")?;
        socket.set_nonblocking(true).context("opening a socket")?;
        Ok(Self(socket))
    }

    /// Asks for the address of `last` in this zone every millisecond, until it has this version. Returns the
    /// time since `start`.
    pub(super) fn wait(
        &self,
        server: &mut Server,
        zone: &str,
        version: u8,
        start: Instant,
    ) -> Result<Duration> {
        let query = query(&format!("last.{zone}"));
        let mut buffer = [0; 2_048];
        loop {
            // Before the server listens, the network may refuse queries.
            let _ = self.0.send_to(&query, (SERVER_ADDRESS, 53));
            std::thread::sleep(INTERVAL);
            // Replies to older queries come first, if the server has queued these while it loaded.
            while let Ok(length) = self.0.recv(&mut buffer) {
                if is_right(&buffer[..length], version) {
                    return Ok(start.elapsed());
                }
            }
            interrupt::check()?;
            server.expect_running()?;
            let output = server.output();
            ensure!(
                start.elapsed() < LIMIT,
                "no right answer after {LIMIT:?}:\n{output}"
            );
        }
    }
}

/// Returns a query for the address of a name.
fn query(name: &str) -> Vec<u8> {
    let mut query = vec![0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(label.len() as u8);
        query.extend(label.as_bytes());
    }
    query.extend([0, 0, 1, 0, 1]);
    query
}

/// Returns true for a reply without an error whose last record is the address of this version.
fn is_right(reply: &[u8], version: u8) -> bool {
    let is_good = matches!(reply, [_, _, flags, code, ..] if flags & 0x80 != 0 && code % 16 == 0);
    is_good && reply.ends_with(&[0, 4, 192, 0, 2, version])
}

/// Returns the memory of all processes of a server in MB. Each shared page counts once in total (PSS).
pub(super) fn memory(server: &Server) -> Result<f64> {
    let mut total = 0.0;
    for id in usage::family(server.id().cast_signed()) {
        let file = format!("/proc/{id}/smaps_rollup");
        let text = shell::read(Path::new(&file))?;
        total += pss(&text).with_context(|| format!("{file} has no Pss"))?;
    }
    Ok(total)
}

/// Returns the PSS in MB that a file `smaps_rollup` tells.
fn pss(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1_024.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proportional_set_size_is_found() {
        let text = "00400000-7ffd rollup\nRss:   9000 kB\nPss:   2000 kB\nPss_Dirty:  10 kB\n";
        assert_eq!(pss(text), Some(2.048));
        assert_eq!(pss("Rss: 1 kB\n"), None);
    }

    #[test]
    fn only_an_answer_of_this_version_is_right() {
        let mut reply = query("last.bench.test");
        assert_eq!(&reply[12..17], b"\x04last");
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 192, 0, 2, 101]);
        assert!(!is_right(&reply, 101), "a query");
        reply[2] = 0x84;
        assert!(is_right(&reply, 101) && !is_right(&reply, 100));
        reply[3] = 2;
        assert!(!is_right(&reply, 101), "SERVFAIL");
    }
}
