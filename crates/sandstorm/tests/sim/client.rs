//! An independent TCP client, smoltcp's, at one end of a simulated link.

#[path = "../../../tcpip/tests/peer/smol.rs"]
mod smol;

use std::net::IpAddr;

use nmio::{Frame, Handler, Instant, Port};
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{Socket, State};

use smol::Smol;

/// Bytes of the buffers for receiving and sending.
const BUFFERS: (usize, usize) = (65_535, 32_768);

/// What one connection does: send `bytes`, in pieces or not, and receive
/// until it has `expected` bytes or the server closes.
#[derive(Clone, Debug)]
pub(crate) struct Talk {
    pub(crate) bytes: Vec<u8>,
    /// Bytes that are sent at a time; the next ones when these are
    /// acknowledged.
    pub(crate) piece: usize,
    /// Close our half when all is sent.
    pub(crate) half_close: bool,
    /// Close when this much has come.
    pub(crate) expected: usize,
}

/// A [`Talk`] on its way.
pub(crate) struct Connection {
    talk: Talk,
    handle: SocketHandle,
    sent: usize,
    /// Where its bytes are cut beside the ends of pieces.
    pub(crate) cuts: Vec<usize>,
    /// Goes away with a reset when all is sent.
    pub(crate) aborts: bool,
    pub(crate) received: Vec<u8>,
    /// The server has closed its side, after all of `received`, and not by a reset.
    pub(crate) closed_by_server: bool,
    pub(crate) done: bool,
}

impl Connection {
    /// `true` when smoltcp has something new to look at.
    fn work(&mut self, socket: &mut Socket<'_>) -> bool {
        let mut busy = false;
        if self.sent < self.talk.bytes.len() && socket.may_send() && socket.send_queue() == 0 {
            let end = self.talk.bytes.len();
            let end = end.min(self.sent.saturating_add(self.talk.piece));
            let cuts = self.cuts.iter().copied();
            let end = cuts.filter(|cut| *cut > self.sent).fold(end, usize::min);
            self.sent += socket.send_slice(&self.talk.bytes[self.sent..end]).unwrap();
            busy = true;
        }
        while socket.can_recv() {
            let received = &mut self.received;
            let take = |bytes: &mut [u8]| {
                received.extend_from_slice(bytes);
                (bytes.len(), ())
            };
            socket.recv(take).unwrap();
            busy = true;
        }
        let established = socket.state() == State::Established;
        let all_sent = self.sent == self.talk.bytes.len();
        if established && all_sent && self.aborts && socket.send_queue() == 0 {
            socket.abort();
            self.done = true;
            return true;
        }
        if established && all_sent && self.talk.half_close {
            socket.close();
            busy = true;
        }
        // It sends all that it has, whatever the server does but for a reset.
        let sends_more = socket.may_send() && !(all_sent && socket.send_queue() == 0);
        if self.sent > 0 && !socket.may_recv() && !sends_more && !self.done {
            self.closed_by_server = socket.state() != State::Closed;
            self.done = true;
            socket.close();
            busy = true;
        }
        if self.received.len() >= self.talk.expected && !self.done && !self.talk.half_close {
            self.done = true;
            socket.close();
            busy = true;
        }
        busy
    }
}

/// smoltcp, with any number of connections to one server.
pub(crate) struct Client {
    smol: Smol,
    pub(crate) connections: Vec<Connection>,
}

impl Client {
    /// A client on a link with this MTU.
    pub(crate) fn new(mtu: usize) -> Self {
        Self {
            smol: Smol::new(mtu),
            connections: Vec::new(),
        }
    }

    /// Begins another connection.
    pub(crate) fn connect(&mut self, server: IpAddr, port: u16, talk: &Talk) -> &mut Connection {
        let at = self.connections.len();
        let local_port = 50_000 + self.connections.len() as u16;
        self.connections.push(Connection {
            talk: talk.clone(),
            handle: self.smol.connect((server, port), local_port, BUFFERS),
            sent: 0,
            cuts: Vec::new(),
            aborts: false,
            received: Vec::new(),
            closed_by_server: false,
            done: false,
        });
        &mut self.connections[at]
    }

    /// Everybody has what they wanted.
    pub(crate) fn done(&self) -> bool {
        self.connections.iter().all(|connection| connection.done)
    }
}

impl<P: Port> Handler<P> for Client {
    fn handle_frame(&mut self, _port: &mut P, frame: Frame, now: Instant) {
        self.smol.take(&frame, now);
    }

    fn handle_timers(&mut self, port: &mut P, now: Instant) {
        let connections = &mut self.connections;
        self.smol.work(port, now, |smol| {
            let mut busy = false;
            for connection in &mut *connections {
                busy |= connection.work(smol.socket(connection.handle));
            }
            busy
        });
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.smol.poll_timeout()
    }
}
