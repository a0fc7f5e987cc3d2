//! The matrix's tasks, done by smoltcp.

use std::net::IpAddr;

use nmio::{Frame, Handler, Instant, Port};
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::State;

use crate::peer::smol::Smol;
use crate::peer::{FIRST_PORT, Seen, Task};

/// Bytes of a send buffer: requests are short.
const SEND_BUFFER: usize = 1024;

/// One connection.
struct Download {
    task: Task,
    handle: Option<SocketHandle>,
    local_port: u16,
    /// Requests sent, and bytes received.
    sent: u64,
    received: u64,
    request_at: Instant,
    seen: Seen,
    done: bool,
}

impl Download {
    fn len(&self) -> u64 {
        self.task.content.len() as u64 * self.task.times
    }

    /// `true` when there is something new for smoltcp to look at.
    fn work(&mut self, smol: &mut Smol, client: &SmolClientConfig, now: Instant) -> bool {
        if now < self.task.start || self.done {
            return false;
        }
        let mut busy = false;
        let handle = *self.handle.get_or_insert_with(|| {
            busy = true;
            let buffers = (client.buffer, SEND_BUFFER);
            smol.connect(client.server, self.local_port, buffers)
        });
        let socket = smol.socket(handle);
        let answered = self.received / self.task.content.len() as u64;
        if answered == self.sent
            && self.sent < self.task.times
            && self.request_at <= now
            && socket.can_send()
        {
            self.sent += socket.send_slice(&[self.task.request]).unwrap() as u64;
            busy = true;
        }
        while socket.can_recv() {
            socket.recv(|bytes| (self.check(bytes, now), ())).unwrap();
            busy = true;
        }
        let over = self.received == self.len() && self.task.times > 1;
        if (over || self.sent > 0 && !socket.may_recv()) && socket.may_send() {
            socket.close();
            busy = true;
        }
        let state = socket.state();
        if self.sent > 0 && matches!(state, State::Closed | State::TimeWait) {
            self.seen.reset = self.received < self.len();
            self.done = true;
            busy = true;
        }
        busy
    }

    /// Takes bytes of the stream, all of them.
    fn check(&mut self, bytes: &[u8], now: Instant) -> usize {
        let content = &self.task.content[..];
        self.seen.first_byte.get_or_insert(now);
        let mut rest = bytes;
        while !rest.is_empty() {
            assert!(self.received < self.len(), "more than was asked for");
            let at = (self.received % content.len() as u64) as usize;
            let (now, later) = rest.split_at(rest.len().min(content.len() - at));
            let wrong = (now != &content[at..at + now.len()]).then_some(self.received);
            assert_eq!(wrong, None, "wrong bytes");
            self.received += now.len() as u64;
            rest = later;
        }
        if self.received.is_multiple_of(content.len() as u64) {
            self.request_at = now + self.task.think;
        }
        if self.received == self.len() {
            self.seen.last_byte = Some(now);
        }
        bytes.len()
    }
}

/// What all connections have in common.
#[derive(Clone, Copy)]
struct SmolClientConfig {
    server: (IpAddr, u16),
    buffer: usize,
}

/// smoltcp as the matrix' client. What came twice it does not tell.
pub(crate) struct SmolClient {
    smol: Smol,
    now: Instant,
    config: SmolClientConfig,
    downloads: Vec<Download>,
}

impl SmolClient {
    pub(crate) fn new(server: (IpAddr, u16), buffer: usize) -> Self {
        Self {
            smol: Smol::new(1500),
            now: Instant::ZERO,
            config: SmolClientConfig { server, buffer },
            downloads: Vec::new(),
        }
    }

    pub(crate) fn connect(&mut self, task: Task) {
        self.downloads.push(Download {
            local_port: FIRST_PORT + self.downloads.len() as u16,
            handle: None,
            sent: 0,
            received: 0,
            request_at: task.start,
            task,
            seen: Seen::default(),
            done: false,
        });
    }

    pub(crate) fn done(&self) -> bool {
        self.downloads.iter().all(|download| download.done)
    }

    pub(crate) fn complete(&self) -> bool {
        (self.downloads.iter()).all(|download| download.received == download.len())
    }

    pub(crate) fn seen(&self) -> Vec<(Instant, Seen)> {
        (self.downloads.iter())
            .map(|download| (download.task.start, download.seen))
            .collect()
    }
}

impl<P: Port> Handler<P> for SmolClient {
    fn handle_frame(&mut self, _port: &mut P, frame: Frame, now: Instant) {
        self.smol.take(&frame, now);
    }

    fn handle_timers(&mut self, port: &mut P, now: Instant) {
        self.now = now;
        let (downloads, config) = (&mut self.downloads, &self.config);
        self.smol.work(port, now, |smol| {
            let mut busy = false;
            for download in &mut *downloads {
                busy |= download.work(smol, config, now);
            }
            busy
        });
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let waiting = self.downloads.iter().filter(|download| !download.done);
        let requests = waiting.filter_map(|download| match download.handle {
            None => Some(download.task.start),
            Some(_) => Some(download.request_at).filter(|at| *at > self.now),
        });
        requests.chain(self.smol.poll_timeout()).min()
    }
}
