//! smoltcp at one end of a simulated link.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use nmio::{Frame, Instant, Port};
use smoltcp::iface::{Config, Context, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};

/// smoltcp's addresses, with the lengths of their prefixes.
const ADDRESSES: [(&str, u8); 2] = [("10.0.0.9", 24), ("fd00::9", 64)];
const MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 9]);
const ETHERNET_HEADER: usize = 14;
/// smoltcp says of some states that work is due at once, whatever was done.
const REST: Duration = Duration::from_millis(1);

/// Frames between smoltcp and the port.
#[derive(Debug)]
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
        _now: smoltcp::time::Instant,
    ) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let frame = self.received.pop_front()?;
        Some((Received(frame), Sent(&mut self.sent)))
    }

    fn transmit(&mut self, _now: smoltcp::time::Instant) -> Option<Self::TxToken<'_>> {
        Some(Sent(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + ETHERNET_HEADER;
        capabilities
    }
}

/// A host of smoltcp's, for a [handler](nmio::Handler) to make its own.
pub(crate) struct Smol {
    wire: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
    now: Instant,
    /// When smoltcp has something to do next.
    due: Option<Instant>,
}

impl Smol {
    /// A host on a link with this MTU.
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
            now: Instant::ZERO,
            due: Some(Instant::ZERO),
        }
    }

    /// Opens a connection with buffers of these sizes.
    pub(crate) fn connect(
        &mut self,
        server: (IpAddr, u16),
        local_port: u16,
        (rx, tx): (usize, usize),
    ) -> SocketHandle {
        let buffer = |len| SocketBuffer::new(vec![0; len]);
        let mut socket = Socket::new(buffer(rx), buffer(tx));
        let context: &mut Context = self.interface.context();
        socket.connect(context, server, local_port).unwrap();
        self.due = Some(self.now);
        self.sockets.add(socket)
    }

    pub(crate) fn socket(&mut self, handle: SocketHandle) -> &mut Socket<'static> {
        self.sockets.get_mut(handle)
    }

    /// Takes a received frame. It is looked at in [`Smol::work`].
    pub(crate) fn take(&mut self, frame: &Frame, now: Instant) {
        self.now = now;
        self.wire.received.push_back(frame.to_vec());
    }

    /// Lets smoltcp work, and `use_sockets` use what it did, for as long as
    /// that one says that it has done something; then sends.
    pub(crate) fn work<P: Port>(
        &mut self,
        port: &mut P,
        now: Instant,
        mut use_sockets: impl FnMut(&mut Self) -> bool,
    ) {
        self.now = now;
        let time = smoltcp::time::Instant::from_micros(now.as_micros().cast_signed());
        loop {
            self.interface.poll(time, &mut self.wire, &mut self.sockets);
            if !use_sockets(self) {
                break;
            }
        }
        let delay = self.interface.poll_delay(time, &self.sockets);
        self.due = delay.map(|delay| now + Duration::from(delay).max(REST));
        while port.room() > 0
            && let Some(bytes) = self.wire.sent.pop_front()
            && let Some(mut frame) = port.pool().take()
        {
            frame.set_len(bytes.len());
            frame.copy_from_slice(&bytes);
            port.send(frame).unwrap();
        }
    }

    /// See [`nmio::Handler::poll_timeout`].
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
}
