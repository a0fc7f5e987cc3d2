//! A client of the kernel that fetches a file, looks at every byte and at the
//! clock.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::shell::{Context as _, Failure, Result};

/// Longest head of a response.
const HEAD_LIMIT: usize = 4_096;

/// When one fetch was where, in µs since its connection was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Times {
    pub(crate) connected: u64,
    /// The first bytes of the response.
    pub(crate) first: u64,
    /// The last byte of the body.
    pub(crate) last: u64,
}

/// How a client reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Everything has come by then, or the fetch has failed.
    pub(crate) limit: Duration,
    /// Most bytes read at a time.
    pub(crate) chunk: usize,
    /// What it does between two reads.
    pub(crate) pause: Duration,
}

impl Reading {
    /// As fast as it can.
    pub(crate) const fn fast(limit: Duration) -> Self {
        Self {
            limit,
            chunk: 256 * 1024,
            pause: Duration::ZERO,
        }
    }
}

/// Fetches `path` on a connection of its own and compares the body with what
/// it must be.
pub(crate) fn fetch(to: SocketAddr, path: &str, body: &[u8], reading: &Reading) -> Result<Times> {
    let limit = reading.limit;
    let start = Instant::now();
    let left = || {
        limit
            .saturating_sub(start.elapsed())
            .max(Duration::from_millis(1))
    };
    let since = || start.elapsed().as_micros() as u64;
    let mut stream =
        TcpStream::connect_timeout(&to, limit).context(format_args!("connecting to {to}"))?;
    let connected = since();
    stream.set_nodelay(true).context("setting TCP_NODELAY")?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: loss.test\r\nConnection: close\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .context("sending a request")?;
    let mut buffer = vec![0; reading.chunk];
    let mut head: Vec<u8> = Vec::new();
    let (mut first, mut have) = (0, None);
    loop {
        if !reading.pause.is_zero() {
            std::thread::sleep(reading.pause);
        }
        stream
            .set_read_timeout(Some(left()))
            .context("setting a time limit")?;
        let read = stream
            .read(&mut buffer)
            .context(format_args!("{} bytes into {path}", have.unwrap_or(0)))?;
        if first == 0 {
            first = since();
        }
        let mut data = &buffer[..read];
        let at = match have {
            Some(at) => at,
            None if read == 0 => return Err(Failure::new("closed before a response")),
            None => {
                let before = head.len();
                head.extend_from_slice(data);
                let end = head.windows(4).position(|four| four == b"\r\n\r\n");
                let Some(end) = end.map(|at| at + 4) else {
                    if head.len() > HEAD_LIMIT {
                        return Err(Failure::new("a response's head without an end"));
                    }
                    continue;
                };
                expect_head(&head[..end], body.len())?;
                data = &data[end - before..];
                0
            }
        };
        if read == 0 {
            return Err(Failure::new(format!(
                "closed after {at} of {} bytes of {path}",
                body.len()
            )));
        }
        if body.get(at..at + data.len()) != Some(data) {
            return Err(Failure::new(format!(
                "wrong bytes in {path}, from byte {at} to {}",
                at + data.len()
            )));
        }
        let at = at + data.len();
        have = Some(at);
        if at == body.len() {
            return Ok(Times {
                connected,
                first,
                last: since(),
            });
        }
    }
}

fn expect_head(head: &[u8], length: usize) -> Result<()> {
    let head = String::from_utf8_lossy(head);
    let length = length.to_string();
    let right = head.starts_with("HTTP/1.1 200 ")
        && head.lines().any(|line| {
            line.split_once(':').is_some_and(|(name, value)| {
                name.eq_ignore_ascii_case("content-length") && value.trim() == length
            })
        });
    if right {
        return Ok(());
    }
    Err(Failure::new(format!(
        "not a 200 with {length} bytes:\n{head}"
    )))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Fetches `hello` from a server that says `response`.
    fn fetched(response: &'static [u8]) -> Result<Times> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 512];
            let read = stream.read(&mut request).unwrap();
            assert!(request[..read].starts_with(b"GET /x HTTP/1.1\r\n"));
            stream.write_all(response).unwrap();
        });
        let reading = Reading::fast(Duration::from_secs(5));
        let times = fetch(address, "/x", b"hello", &reading);
        server.join().unwrap();
        times
    }

    #[test]
    fn only_the_right_bytes_will_do() {
        let times = fetched(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").unwrap();
        assert!(times.connected <= times.first && times.first <= times.last);
        for (response, says) in [
            (
                &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhallo"[..],
                "wrong bytes",
            ),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
                "closed after 3",
            ),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello!",
                "not a 200",
            ),
            (
                b"HTTP/1.1 404 No\r\nContent-Length: 5\r\n\r\nhello",
                "not a 200",
            ),
            (b"", "closed before"),
        ] {
            let error = fetched(response).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
