//! A small HTTP client on a kernel socket, with control over the exact bytes in both directions.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

/// Time limit for a connect or a read, long enough for several retransmissions.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Connects to a server.
pub(crate) fn connect(to: SocketAddr) -> Result<TcpStream> {
    let connect = || {
        let stream = TcpStream::connect_timeout(&to, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true).map(|()| stream)
    };
    connect().with_context(|| format!("connecting to {to}"))
}

/// One connection to a server.
pub(crate) struct Connection {
    stream: TcpStream,
    /// Received bytes that are not yet part of a returned response.
    pending: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// Returns the value of a header field, or an error if the field is missing.
    pub(crate) fn field(&self, name: &str) -> Result<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let field = lines.find(|(field, _)| field.eq_ignore_ascii_case(name));
        let value = field.map(|(_, value)| value.trim());
        value.with_context(|| format!("no {name} in\n{}", self.head))
    }

    /// Returns the head's length in bytes, including its empty line.
    pub(crate) fn head_len(&self) -> usize {
        self.head.len()
    }

    pub(crate) fn expect_status(&self, status: u16) -> Result<()> {
        let (found, head) = (self.status, &self.head);
        ensure!(
            found == status,
            "status {found} instead of {status}:\n{head}"
        );
        Ok(())
    }

    /// Returns an error unless the response has status 200 and this body.
    pub(crate) fn expect_body(&self, body: &[u8]) -> Result<()> {
        self.expect_status(200)?;
        same(&self.body, body)
    }
}

/// If the bytes differ, returns an error with the offset of the first difference.
pub(crate) fn same(received: &[u8], expected: &[u8]) -> Result<()> {
    if received == expected {
        return Ok(());
    }
    let pairs = received.iter().zip(expected);
    let equal = pairs.take_while(|(one, other)| one == other).count();
    let (received_len, expected_len) = (received.len(), expected.len());
    bail!("{received_len} bytes instead of {expected_len}, different from byte {equal}")
}

impl Connection {
    pub(crate) fn open(to: SocketAddr) -> Result<Self> {
        let (stream, pending) = (connect(to)?, Vec::new());
        Ok(Self { stream, pending })
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        let sent = self.stream.write_all(bytes.as_ref());
        sent.context("sending a request")
    }

    /// Returns a handle by which another thread can send on this connection.
    pub(crate) fn sender(&self) -> Result<TcpStream> {
        self.stream.try_clone().context("sharing a connection")
    }

    /// Sends a FIN. Responses can still be received.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let done = self.stream.shutdown(Shutdown::Write);
        done.context("closing for writing")
    }

    /// Sends `METHOD PATH HTTP/1.1` with a Host field and the header lines `more`, and receives the
    /// response.
    pub(crate) fn request(&mut self, method: &str, path: &str, more: &str) -> Result<Response> {
        self.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: storm.test\r\n{more}\r\n"
        ))?;
        self.receive(method != "HEAD")
    }

    /// Receives one response, or only its head if `has_body` is false.
    pub(crate) fn receive(&mut self, has_body: bool) -> Result<Response> {
        let (status, head_len) = loop {
            if let Some(found) = parse(&self.pending)? {
                break found;
            }
            self.receive_more()?;
        };
        let head = self.pending.drain(..head_len).collect();
        let mut response = Response {
            status,
            head: String::from_utf8(head).context("the head of a response")?,
            body: Vec::new(),
        };
        if has_body && !matches!(status, 100..=199 | 204 | 304) {
            let length = response.field("Content-Length")?;
            let length = length.parse().with_context(|| length.to_string())?;
            while self.pending.len() < length {
                self.receive_more()?;
            }
            response.body = self.pending.drain(..length).collect();
        }
        Ok(response)
    }

    /// Returns an error unless the server closes the connection without sending more.
    pub(crate) fn expect_end(&mut self) -> Result<()> {
        let mut rest = std::mem::take(&mut self.pending);
        let read = self.stream.read_to_end(&mut rest);
        read.context("waiting for the end")?;
        ensure!(rest.is_empty(), "the server sent more instead of closing");
        Ok(())
    }

    /// Waits until data arrives, but does not read the data.
    pub(crate) fn wait(&mut self) -> Result<()> {
        let peeked = self.stream.peek(&mut [0]);
        peeked.context("waiting for a response").map(drop)
    }

    /// Receives the next part of a body, after [`receive`](Self::receive) has returned only the
    /// head.
    pub(crate) fn receive_part(&mut self) -> Result<Vec<u8>> {
        if self.pending.is_empty() {
            self.receive_more()?;
        }
        Ok(std::mem::take(&mut self.pending))
    }

    fn receive_more(&mut self) -> Result<()> {
        let mut chunk = [0; 16_384];
        let read = self.stream.read(&mut chunk);
        let (read, had) = (read.context("receiving a response")?, self.pending.len());
        ensure!(
            read > 0,
            "the server closed after {had} bytes of a response"
        );
        self.pending.extend_from_slice(&chunk[..read]);
        Ok(())
    }
}

/// Returns the status and the length of a response head, or `None` while the head is incomplete.
fn parse(bytes: &[u8]) -> Result<Option<(u16, usize)>> {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut fields);
    let parsed = head.parse(bytes).context("a response")?;
    Ok(match parsed {
        httparse::Status::Complete(length) => head.code.map(|code| (code, length)),
        httparse::Status::Partial => None,
    })
}
