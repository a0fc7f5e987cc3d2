//! A TCP client on one side of a simulated link, built on smoltcp.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use nmio::{Frame, Handler, Instant, Port};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};

use crate::{CLIENT, CLIENT_MAC, SERVER, send};

/// Client port of the first connection. Each later connection uses the next port.
pub const FIRST_PORT: u16 = 50_000;

/// Prefix lengths in bits of the client's IPv4 and IPv6 networks.
const PREFIXES: [u8; 2] = [24, 64];
const ETHERNET_HEADER: usize = 14;
/// Minimum delay before smoltcp's timers cause the next poll. In some states, smoltcp always asks
/// to be polled immediately. Without a minimum delay, virtual time would never advance.
const REST: Duration = Duration::from_millis(1);

/// Queues of frames between smoltcp and the port.
#[derive(Debug)]
struct Wire {
    received: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
    mtu: usize,
}

struct Arrived(Vec<u8>);
struct Outgoing<'w>(&'w mut VecDeque<Vec<u8>>);

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.push_back(frame);
        result
    }
}

impl Device for Wire {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Outgoing<'a>;

    fn receive(
        &mut self,
        _now: smoltcp::time::Instant,
    ) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let frame = self.received.pop_front()?;
        Some((Arrived(frame), Outgoing(&mut self.sent)))
    }

    fn transmit(&mut self, _now: smoltcp::time::Instant) -> Option<Self::TxToken<'_>> {
        Some(Outgoing(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + ETHERNET_HEADER;
        capabilities
    }
}

/// The script of one connection. The client sends `bytes` in pieces. Unless `half_close` or
/// `aborts` is set, the client closes the connection after the server has closed, or when it has
/// received `expected` bytes.
#[derive(Clone, Debug)]
pub struct Talk {
    /// The server's address.
    pub server: IpAddr,
    /// Time at which the client opens the connection.
    pub start: Instant,
    /// All bytes to send.
    pub bytes: Vec<u8>,
    /// Maximum length of a piece in bytes. The client sends a piece when the server has
    /// acknowledged the previous piece.
    pub piece: usize,
    /// Number of bytes with which the server answers each piece. The client waits for them before
    /// it sends the next piece.
    pub answer: usize,
    /// Minimum pause between the last received byte and the next piece.
    pub think: Duration,
    /// Additional offsets in `bytes` at which a piece ends.
    pub cuts: Vec<usize>,
    /// Whether the client closes only its own direction after the last piece.
    pub half_close: bool,
    /// Whether the client resets the connection once all pieces are acknowledged.
    pub aborts: bool,
    /// Number of bytes to receive before the client closes.
    pub expected: usize,
    /// Sizes of the receive and the send buffer in bytes.
    pub buffers: (usize, usize),
    /// Maximum number of bytes to read at a time, and the pause between two reads.
    pub reads: (usize, Duration),
}

impl Default for Talk {
    /// Returns a script that sends nothing and receives until the server closes.
    fn default() -> Self {
        Self {
            server: SERVER[0],
            start: Instant::ZERO,
            bytes: Vec::new(),
            piece: usize::MAX,
            answer: 0,
            think: Duration::ZERO,
            cuts: Vec::new(),
            half_close: false,
            aborts: false,
            expected: usize::MAX,
            buffers: (65_535, 32_768),
            reads: (usize::MAX, Duration::ZERO),
        }
    }
}

/// A connection that executes a [`Talk`].
#[derive(Debug)]
pub struct Connection {
    talk: Talk,
    server_port: u16,
    local_port: u16,
    handle: Option<SocketHandle>,
    sent: usize,
    pieces: usize,
    /// Earliest time for the next piece.
    next_at: Instant,
    /// Earliest time for the next read.
    read_at: Instant,
    /// Whether the client has closed or reset the connection. A half-close does not count.
    closing: bool,
    /// All bytes received.
    pub received: Vec<u8>,
    /// Arrival times of the first and the last received byte.
    pub arrived: Option<(Instant, Instant)>,
    /// Whether the server closed before the client, without a reset. A half-close by the client
    /// does not count as closing.
    pub closed_by_server: bool,
    /// Whether the connection is closed or in TIME-WAIT.
    pub done: bool,
}

impl Connection {
    /// Returns the time at which the client opens the connection.
    pub fn start(&self) -> Instant {
        self.talk.start
    }

    /// Sends the next piece if the script allows it now. Returns true if a piece was sent.
    fn send(&mut self, socket: &mut Socket<'_>, now: Instant) -> bool {
        let all = self.talk.bytes.len();
        let answered = self.received.len() >= self.pieces * self.talk.answer;
        let ready = answered && now >= self.next_at && socket.send_queue() == 0;
        if self.sent == all || !ready || !socket.may_send() {
            return false;
        }
        let end = all.min(self.sent.saturating_add(self.talk.piece));
        let cuts = self.talk.cuts.iter().copied();
        let end = cuts.filter(|cut| *cut > self.sent).fold(end, usize::min);
        let bytes = &self.talk.bytes[self.sent..end];
        self.sent += socket.send_slice(bytes).expect("an open socket");
        self.pieces += 1;
        true
    }

    fn receive(&mut self, socket: &mut Socket<'_>, now: Instant) -> bool {
        let before = self.received.len();
        let (most, pause) = self.talk.reads;
        let mut left = if now < self.read_at { 0 } else { most };
        while left > 0 && socket.can_recv() {
            let received = &mut self.received;
            let take = |bytes: &mut [u8]| {
                let len = bytes.len().min(left);
                received.extend_from_slice(&bytes[..len]);
                left -= len;
                (len, ())
            };
            socket.recv(take).expect("an open socket");
            self.read_at = now + pause;
        }
        if self.received.len() > before {
            let (first, _) = self.arrived.unwrap_or((now, now));
            self.arrived = Some((first, now));
            self.next_at = now + self.talk.think;
        }
        self.received.len() > before
    }

    /// Closes, half-closes or resets the connection if the script says so. Returns true if it did.
    fn finish(&mut self, socket: &mut Socket<'_>) -> bool {
        let begun = socket.state() != State::SynSent;
        let established = socket.state() == State::Established;
        let all_sent = self.sent == self.talk.bytes.len();
        // After the server's FIN, the client still sends its remaining bytes.
        let sends_more = socket.may_send() && !(all_sent && socket.send_queue() == 0);
        if self.closing {
            return false;
        } else if begun && !socket.may_recv() && !sends_more {
            self.closed_by_server = socket.state() != State::Closed;
        } else if established && all_sent && self.talk.aborts {
            if socket.send_queue() > 0 {
                return false;
            }
            socket.abort();
        } else if established && all_sent && self.talk.half_close {
            socket.close();
            return true;
        } else if self.received.len() < self.talk.expected || self.talk.half_close {
            return false;
        }
        self.closing = true;
        socket.close();
        true
    }

    /// Opens the connection, sends, receives and closes as the script says. Returns true if smoltcp
    /// must be polled again.
    fn work(&mut self, host: &mut Host, now: Instant) -> bool {
        if now < self.talk.start || self.done {
            return false;
        }
        let opens = self.handle.is_none();
        let handle = *self.handle.get_or_insert_with(|| {
            let server = (self.talk.server, self.server_port);
            host.connect(server, self.local_port, self.talk.buffers)
        });
        let socket = host.sockets.get_mut(handle);
        let mut busy = opens | self.send(socket, now);
        busy |= self.receive(socket, now);
        busy |= self.finish(socket);
        self.done = !opens && matches!(socket.state(), State::Closed | State::TimeWait);
        busy | self.done
    }

    fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        match self.handle {
            _ if self.done => None,
            None => Some(self.talk.start),
            Some(_) => {
                let times = [self.next_at, self.read_at];
                times.into_iter().filter(|at| *at > now).min()
            }
        }
    }
}

/// smoltcp's interface and sockets.
struct Host {
    wire: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
}

impl Host {
    fn new(mtu: usize) -> Self {
        let mut wire = Wire {
            received: VecDeque::new(),
            sent: VecDeque::new(),
            mtu,
        };
        let config = Config::new(HardwareAddress::Ethernet(EthernetAddress(CLIENT_MAC)));
        let mut interface = Interface::new(config, &mut wire, smoltcp::time::Instant::ZERO);
        interface.update_ip_addrs(|own| {
            for (address, prefix) in CLIENT.into_iter().zip(PREFIXES) {
                let address = IpCidr::new(address.into(), prefix);
                own.push(address).expect("room for two addresses");
            }
        });
        Self {
            wire,
            interface,
            sockets: SocketSet::new(Vec::new()),
        }
    }

    fn connect(
        &mut self,
        server: (IpAddr, u16),
        local_port: u16,
        (rx, tx): (usize, usize),
    ) -> SocketHandle {
        let buffer = |len| SocketBuffer::new(vec![0; len]);
        let mut socket = Socket::new(buffer(rx), buffer(tx));
        let connected = socket.connect(self.interface.context(), server, local_port);
        connected.expect("a free port");
        self.sockets.add(socket)
    }
}

/// A host at the addresses [`CLIENT`] with any number of connections.
pub struct Client {
    host: Host,
    now: Instant,
    /// Time at which smoltcp must be polled next.
    due: Option<Instant>,
    /// Connections in the order of the calls to [`Client::connect`].
    pub connections: Vec<Connection>,
}

impl Client {
    /// Makes a client on a link with this MTU.
    pub fn new(mtu: usize) -> Self {
        Self {
            host: Host::new(mtu),
            now: Instant::ZERO,
            due: Some(Instant::ZERO),
            connections: Vec::new(),
        }
    }

    /// Adds a connection to a server's port.
    pub fn connect(&mut self, server_port: u16, talk: Talk) {
        self.connections.push(Connection {
            server_port,
            local_port: FIRST_PORT + self.connections.len() as u16,
            handle: None,
            sent: 0,
            pieces: 0,
            next_at: talk.start,
            read_at: talk.start,
            talk,
            closing: false,
            received: Vec::new(),
            arrived: None,
            closed_by_server: false,
            done: false,
        });
    }

    /// Returns true if all connections are closed or in TIME-WAIT.
    pub fn done(&self) -> bool {
        self.connections.iter().all(|connection| connection.done)
    }
}

impl<P: Port> Handler<P> for Client {
    fn handle_frame(&mut self, _port: &mut P, frame: Frame, _now: Instant) {
        self.host.wire.received.push_back(frame.to_vec());
    }

    fn handle_timers(&mut self, port: &mut P, now: Instant) {
        self.now = now;
        let host = &mut self.host;
        let time = smoltcp::time::Instant::from_micros(now.as_micros().cast_signed());
        let mut busy = true;
        while busy {
            host.interface.poll(time, &mut host.wire, &mut host.sockets);
            let connections = self.connections.iter_mut();
            busy = connections.fold(false, |busy, one| busy | one.work(host, now));
        }
        let delay = host.interface.poll_delay(time, &host.sockets);
        self.due = delay.map(|delay| now + Duration::from(delay).max(REST));
        while port.room() > 0
            && let Some(bytes) = host.wire.sent.pop_front()
        {
            send(port, &bytes);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let connections = self.connections.iter();
        let connections = connections.filter_map(|one| one.poll_timeout(self.now));
        connections.chain(self.due).min()
    }
}
