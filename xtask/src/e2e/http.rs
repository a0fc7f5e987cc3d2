//! The little HTTP that curl does not do for us: exact bytes in, exact bytes
//! out, on a socket of the kernel.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::shell::{Context as _, Failure, Result};

/// A read or a connect that takes longer has failed; long enough for several
/// retransmissions.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// One connection to a server.
pub(crate) struct Connection {
    stream: TcpStream,
    /// Bytes received and not yet part of a response.
    ahead: Vec<u8>,
}

/// A response, head and body apart.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// The value of a header field, whatever the case of its name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Bytes of the head, its empty line included.
    pub(crate) fn head_len(&self) -> usize {
        self.head.len()
    }

    /// As [`field`](Self::field), but it must be there.
    pub(crate) fn require(&self, name: &str) -> Result<&str> {
        self.field(name)
            .ok_or_else(|| Failure::new(format!("no {name} in\n{}", self.head)))
    }

    /// An error unless the status is this one.
    pub(crate) fn expect_status(&self, status: u16) -> Result<()> {
        if self.status == status {
            return Ok(());
        }
        Err(Failure::new(format!(
            "status {} instead of {status}:\n{}",
            self.status, self.head
        )))
    }

    /// An error unless it is a 200 with this body.
    pub(crate) fn expect_body(&self, body: &[u8]) -> Result<()> {
        self.expect_status(200)?;
        same(&self.body, body)
    }
}

/// An error that tells where two bodies begin to differ.
pub(crate) fn same(received: &[u8], expected: &[u8]) -> Result<()> {
    if received == expected {
        return Ok(());
    }
    let differ = received.iter().zip(expected).position(|(a, b)| a != b);
    Err(Failure::new(format!(
        "{} bytes instead of {}, different from byte {}",
        received.len(),
        expected.len(),
        differ.unwrap_or(received.len().min(expected.len()))
    )))
}

impl Connection {
    pub(crate) fn open(to: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&to, PATIENCE)
            .context(format_args!("connecting to {to}"))?;
        stream
            .set_read_timeout(Some(PATIENCE))
            .context("setting a time limit")?;
        stream.set_nodelay(true).context("setting TCP_NODELAY")?;
        Ok(Self {
            stream,
            ahead: Vec::new(),
        })
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("sending a request")
    }

    /// The same connection, to send on while another thread receives.
    pub(crate) fn sender(&self) -> Result<TcpStream> {
        self.stream.try_clone().context("sharing a connection")
    }

    /// Sends the end of the stream; responses still come.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.stream
            .shutdown(std::net::Shutdown::Write)
            .context("closing for writing")
    }

    /// Sends `METHOD PATH HTTP/1.1` with a host and these further lines, and
    /// receives the response.
    pub(crate) fn request(&mut self, method: &str, path: &str, more: &str) -> Result<Response> {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: storm.test\r\n{more}\r\n");
        self.send(request.as_bytes())?;
        self.receive(method != "HEAD")
    }

    /// Receives one response; `body` is false for the answer to a HEAD.
    pub(crate) fn receive(&mut self, body: bool) -> Result<Response> {
        let head = self.receive_head()?;
        let status = head
            .strip_prefix("HTTP/1.")
            .and_then(|rest| rest.get(2..5))
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| Failure::new(format!("no status line: {head:?}")))?;
        let mut response = Response {
            status,
            head,
            body: Vec::new(),
        };
        if body && !matches!(status, 100..=199 | 204 | 304) {
            let length = response.require("Content-Length")?;
            let length: usize = length
                .parse()
                .context(format_args!("Content-Length: {length}"))?;
            while self.ahead.len() < length {
                self.receive_more()?;
            }
            response.body = self.ahead.drain(..length).collect();
        }
        Ok(response)
    }

    /// An error unless the server closes now, without another byte.
    pub(crate) fn expect_end(&mut self) -> Result<()> {
        let mut byte = [0];
        if self.ahead.is_empty() && self.stream.read(&mut byte).context("waiting for the end")? == 0
        {
            return Ok(());
        }
        Err(Failure::new("the server sent more instead of closing"))
    }

    /// Waits until something comes, and leaves it unread.
    pub(crate) fn wait(&mut self) -> Result<()> {
        self.stream
            .peek(&mut [0])
            .context("waiting for a response")
            .map(drop)
    }

    /// What has come of a body, whose head has been received without it: what
    /// one read gives.
    pub(crate) fn receive_part(&mut self) -> Result<Vec<u8>> {
        if self.ahead.is_empty() {
            self.receive_more()?;
        }
        Ok(std::mem::take(&mut self.ahead))
    }

    fn receive_head(&mut self) -> Result<String> {
        const END: &[u8] = b"\r\n\r\n";
        let mut searched: usize = 0;
        loop {
            let from = searched.saturating_sub(END.len() - 1);
            if let Some(at) = self.ahead[from..]
                .windows(END.len())
                .position(|four| four == END)
            {
                let head: Vec<u8> = self.ahead.drain(..from + at + END.len()).collect();
                return String::from_utf8(head).context("a response's head");
            }
            searched = self.ahead.len();
            self.receive_more()?;
        }
    }

    fn receive_more(&mut self) -> Result<()> {
        let mut chunk = [0; 16_384];
        let read = self
            .stream
            .read(&mut chunk)
            .context("receiving a response")?;
        if read == 0 {
            return Err(Failure::new(format!(
                "the server closed after {} bytes of a response",
                self.ahead.len()
            )));
        }
        self.ahead.extend_from_slice(&chunk[..read]);
        Ok(())
    }
}
