//! An independent TCP client, smoltcp's, at one end of a simulated link.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use nmio::{Frame, Handler, Instant, Port};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};

/// The client's addresses, and their prefixes.
const ADDRESSES: [(&str, u8); 2] = [("10.0.0.9", 24), ("fd00::9", 64)];
const MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 9]);
const ETHERNET_HEADER: usize = 14;

/// Frames between smoltcp and the port.
struct Wire {
    received: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
    mtu: usize,
}

pub(crate) struct Received(Vec<u8>);
pub(crate) struct Sent<'w>(&'w mut VecDeque<Vec<u8>>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Sent<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.push_back(frame);
        result
    }
}

impl Device for Wire {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sent<'a>;

    fn receive(
        &mut self,
        _: smoltcp::time::Instant,
    ) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let frame = self.received.pop_front()?;
        Some((Received(frame), Sent(&mut self.sent)))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Self::TxToken<'_>> {
        Some(Sent(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + ETHERNET_HEADER;
        capabilities
    }
}

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
    pub(crate) received: Vec<u8>,
    /// The server has closed its side, after all of `received`.
    pub(crate) closed_by_server: bool,
    pub(crate) done: bool,
}

impl Connection {
    /// `true` when smoltcp has something new to look at.
    fn work(&mut self, socket: &mut Socket<'_>) -> bool {
        let mut busy = false;
        if self.sent < self.talk.bytes.len() && socket.may_send() && socket.send_queue() == 0 {
            let end = self.talk.bytes.len().min(self.sent + self.talk.piece);
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
        if established && all_sent && self.talk.half_close {
            socket.close();
            busy = true;
        }
        if self.sent > 0 && !socket.may_recv() && !self.done {
            self.closed_by_server = true;
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
    wire: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
    pub(crate) connections: Vec<Connection>,
    now: Instant,
}

impl Client {
    /// A client on a link with this MTU.
    pub(crate) fn new(mtu: usize) -> Self {
        let mut wire = Wire {
            received: VecDeque::new(),
            sent: VecDeque::new(),
            mtu,
        };
        let config = Config::new(HardwareAddress::Ethernet(MAC));
        let mut interface = Interface::new(config, &mut wire, smoltcp::time::Instant::ZERO);
        interface.update_ip_addrs(|own| {
            for (address, prefix) in ADDRESSES {
                let address: IpAddress = address.parse().unwrap();
                own.push(IpCidr::new(address, prefix)).unwrap();
            }
        });
        Self {
            wire,
            interface,
            sockets: SocketSet::new(Vec::new()),
            connections: Vec::new(),
            now: Instant::ZERO,
        }
    }

    /// Begins another connection.
    pub(crate) fn connect(&mut self, server: IpAddr, port: u16, talk: &Talk) {
        let buffer = |len| SocketBuffer::new(vec![0; len]);
        let mut socket = Socket::new(buffer(65_535), buffer(32_768));
        let local_port = 50_000 + self.connections.len() as u16;
        let context = self.interface.context();
        socket.connect(context, (server, port), local_port).unwrap();
        self.connections.push(Connection {
            talk: talk.clone(),
            handle: self.sockets.add(socket),
            sent: 0,
            received: Vec::new(),
            closed_by_server: false,
            done: false,
        });
    }

    /// Everybody has what they wanted.
    pub(crate) fn done(&self) -> bool {
        self.connections.iter().all(|connection| connection.done)
    }

    fn work<P: Port>(&mut self, port: &mut P) {
        let now = smoltcp::time::Instant::from_micros(self.now.as_micros().cast_signed());
        let mut busy = true;
        while busy {
            self.interface.poll(now, &mut self.wire, &mut self.sockets);
            busy = false;
            for connection in &mut self.connections {
                let socket = self.sockets.get_mut::<Socket<'_>>(connection.handle);
                busy |= connection.work(socket);
            }
        }
        while port.room() > 0
            && let Some(bytes) = self.wire.sent.pop_front()
            && let Some(mut frame) = port.pool().take()
        {
            frame.set_len(bytes.len());
            frame.copy_from_slice(&bytes);
            port.send(frame).unwrap();
        }
    }
}

impl<P: Port> Handler<P> for Client {
    fn handle_frame(&mut self, _port: &mut P, frame: Frame, now: Instant) {
        self.now = now;
        self.wire.received.push_back(frame.to_vec());
    }

    fn handle_timers(&mut self, port: &mut P, now: Instant) {
        self.now = now;
        self.work(port);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        // What smoltcp wants to know of time cannot be asked without `&mut`.
        Some(self.now + Duration::from_millis(1))
    }
}
