//! A TCP client for tests, independent of the server's code. The client's code prefers clarity to
//! speed. Each of the client's options can be switched off, and the client can misbehave.
//!
//! A [`Client`] is the other side of a simulated link. It requests a content item, with one byte
//! per request, and checks every byte that arrives, in any order. The client does not store the
//! bytes, but records which of them have arrived. It panics if the server sends wrong bytes or
//! checksums, data beyond the window or the MSS, or options that were not negotiated.
//!
//! The client deliberately lacks data other than requests, congestion control, urgent data, and the
//! rule that timestamps expire after 24 days (RFC 7323, section 5.5).

mod connection;

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use nmio::{Frame, Handler, Instant, Port};
use testkit::{Route, read_segment, send};

pub(crate) use connection::{Connection, Observations};
pub(crate) use testkit::smol::FIRST_PORT;

/// TCP options and behaviour of a client.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    /// The MSS that the client sends, or `None` if it sends no MSS option.
    pub(crate) mss: Option<u16>,
    /// The window scale that the client offers, or `None` if it does not offer window scaling.
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack: bool,
    /// Whether SACK blocks also report duplicates (DSACK, RFC 2883).
    pub(crate) dsack: bool,
    pub(crate) timestamps: bool,
    pub(crate) ecn: bool,
    pub(crate) acks: Acks,
    /// Size of the receive buffer in bytes.
    pub(crate) buffer: u64,
    pub(crate) reader: Reader,
    /// Number of out-of-order segments after which the client discards all data beyond the first
    /// gap. If 0, the client never discards data.
    pub(crate) renege_every: u32,
}

impl Default for Behaviour {
    /// A client like those of current systems: all options except ECN, an ACK for every second
    /// segment, and a buffer that never limits the transfer.
    fn default() -> Self {
        Self {
            mss: Some(1460),
            window_scale: Some(10),
            sack: true,
            dsack: true,
            timestamps: true,
            ecn: false,
            acks: Acks::default(),
            buffer: 64 << 20,
            reader: Reader::Prompt,
            renege_every: 0,
        }
    }
}

/// When and how the client acknowledges segments that are in order. It acknowledges all other
/// segments as soon as they arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acks {
    /// Number of segments after which an ACK is sent.
    pub(crate) every: u32,
    /// Maximum time by which an ACK is delayed.
    pub(crate) after: Duration,
    /// Number of ACKs that the client sends in place of one, each for a part of the data (Savage's
    /// ACK division).
    pub(crate) divided: u32,
    /// Number of bytes that the client acknowledges before they arrive, as long as it knows of no
    /// gap (Savage's optimistic ACK).
    pub(crate) ahead: u64,
}

impl Default for Acks {
    /// Delayed ACKs as in RFC 9293, section 3.8.6.3, with the delay of Linux.
    fn default() -> Self {
        Self {
            every: 2,
            after: Duration::from_millis(40),
            divided: 1,
            ahead: 0,
        }
    }
}

/// When the application reads data from the receive buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    /// Reads data as soon as it arrives.
    Prompt,
    /// Reads this many bytes per second.
    Slow(u64),
    /// Reads data as soon as it arrives, except that it pauses once, after `at` bytes, for the time
    /// `lasting`.
    Pause { at: u64, lasting: Duration },
}

/// The requests of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// The byte that requests the content, and the content that must arrive.
    pub(crate) request: u8,
    pub(crate) content: Rc<[u8]>,
    /// Number of requests. If there are several, the client closes first, after the last response.
    /// If there is only one, the server closes first.
    pub(crate) times: u64,
    /// Time between the end of a response and the next request.
    pub(crate) think: Duration,
    /// Time at which the client opens the connection.
    pub(crate) start: Instant,
}

/// A client with any number of connections to one server.
#[derive(Debug)]
pub(crate) struct Client {
    v6: bool,
    server_port: u16,
    seed: fastrand::Rng,
    pub(crate) connections: Vec<Connection>,
    outbox: VecDeque<Vec<u8>>,
}

impl Client {
    pub(crate) fn new(v6: bool, server_port: u16, seed: u64) -> Self {
        Self {
            v6,
            server_port,
            seed: fastrand::Rng::with_seed(seed),
            connections: Vec::new(),
            outbox: VecDeque::new(),
        }
    }

    /// Adds a connection that performs `task`.
    pub(crate) fn connect(&mut self, behaviour: &Behaviour, task: &Task) {
        let port = FIRST_PORT + self.connections.len() as u16;
        let route = Route::to_server(self.v6, port, self.server_port);
        let iss = self.seed.u32(..);
        let connection = Connection::new(route, iss, behaviour, task);
        self.connections.push(connection);
    }

    /// Returns true if all connections are closed or reset.
    pub(crate) fn done(&self) -> bool {
        self.connections.iter().all(Connection::done)
    }

    fn send<P: Port>(&mut self, port: &mut P) {
        while port.room() > 0
            && let Some(bytes) = self.outbox.pop_front()
        {
            send(port, &bytes);
        }
    }
}

impl<P: Port> Handler<P> for Client {
    fn handle_frame(&mut self, _port: &mut P, frame: Frame, now: Instant) {
        let received = read_segment(&frame).expect("a valid segment");
        let i = usize::from(received.route.dst.port - FIRST_PORT);
        self.connections[i].handle_segment(&received, now, &mut self.outbox);
    }

    fn handle_timers(&mut self, port: &mut P, now: Instant) {
        for connection in &mut self.connections {
            connection.handle_timeout(now, &mut self.outbox);
        }
        self.send(port);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let timeouts = self.connections.iter().filter_map(Connection::poll_timeout);
        timeouts.min()
    }
}
