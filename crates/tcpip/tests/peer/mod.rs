//! A TCP client for tests: clear before fast, independent of the server's
//! code, each of its options on or off, and able to misbehave.
//!
//! A [`Client`] is what happens at the other end of a simulated link. It asks
//! for contents, one byte a request, and checks every byte that comes, in
//! whichever order; nothing is kept of them but which have come. What a
//! server must never do makes it panic: wrong bytes or sums, data beyond the
//! window or the segment size, options that were not agreed on.
//!
//! Deliberately absent: sending more than requests, congestion control,
//! urgent data, PAWS' 24-day rule.

mod connection;

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use nmio::{Frame, Handler, Instant, Port};
use testkit::{Route, read_segment, send};

pub(crate) use connection::{Connection, Seen};
pub(crate) use testkit::smol::FIRST_PORT;

/// How a client takes part in TCP.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    /// The segment size that is told; `None`: not told.
    pub(crate) mss: Option<u16>,
    /// The shift that is told; `None`: windows are not scaled.
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack: bool,
    /// Tell of duplicates in SACK blocks (RFC 2883).
    pub(crate) dsack: bool,
    pub(crate) timestamps: bool,
    pub(crate) ecn: bool,
    pub(crate) acks: Acks,
    /// Bytes of the receive buffer.
    pub(crate) buffer: u64,
    pub(crate) reader: Reader,
    /// Each time so many segments have come out of order, all that lies
    /// behind a hole is thrown away; 0: never.
    pub(crate) renege_every: u32,
}

impl Default for Behaviour {
    /// As today's systems: all options, an ACK for every second segment, and
    /// a buffer that is no limit.
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

/// When data in order is acknowledged. All else is at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acks {
    /// When so many segments have come,
    pub(crate) every: u32,
    /// or after this time.
    pub(crate) after: Duration,
    /// So many ACKs are sent for it, each for a part (Savage's ACK division).
    pub(crate) divided: u32,
    /// Bytes that are acknowledged before they have come (Savage's optimistic
    /// ACK), when no hole is known.
    pub(crate) ahead: u64,
}

impl Default for Acks {
    /// RFC 9293, section 3.8.6.3, with Linux' delay.
    fn default() -> Self {
        Self {
            every: 2,
            after: Duration::from_millis(40),
            divided: 1,
            ahead: 0,
        }
    }
}

/// When the application takes data out of the receive buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    /// At once.
    Prompt,
    /// So many bytes a second.
    Slow(u64),
    /// At once, but when `at` bytes are read it rests for a while.
    Pause { at: u64, lasting: Duration },
}

/// What is asked for on one connection.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// The request for a content, and the content.
    pub(crate) request: u8,
    pub(crate) content: Rc<[u8]>,
    /// How often it is asked for. After the last time the client closes;
    /// when it is asked for once only, the server does.
    pub(crate) times: u64,
    /// Time between an answer's end and the next request.
    pub(crate) think: Duration,
    /// When the connection is opened.
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

    /// Begins another connection.
    pub(crate) fn connect(&mut self, behaviour: &Behaviour, task: &Task) {
        let port = FIRST_PORT + self.connections.len() as u16;
        let route = Route::to_server(self.v6, port, self.server_port);
        let iss = self.seed.u32(..);
        let connection = Connection::new(route, iss, behaviour, task);
        self.connections.push(connection);
    }

    /// All connections are over.
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
