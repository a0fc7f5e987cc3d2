//! The [workloads](workload) of the benches, a client for them, and [load generators](load).
//!
//! The client builds its frames directly, without a network stack, so that a bench measures only
//! the server.
//!
//! Every bench runs over [`nmio::sim::Sink`], a port that completes each send immediately. The
//! measured time includes taking a frame from the pool and copying the request into it. On a real
//! port, the kernel does this work. The server of the `reflect` bench only sends the frame back.
//! The time of `reflect` therefore shows approximately how much of another bench's time is not the
//! server's own work.

pub mod load;
pub mod workload;

use std::net::Ipv4Addr;

use ip::Sum;
use nmio::sim::Sink;
use nmio::{Handler, Instant, Port};
use testkit::{End, FIN, Layout, Opt, Route, SYN, Segment};

/// MAC and IP address of the server.
const SERVER: ([u8; 6], Ipv4Addr) = ([2, 0, 0, 0, 0, 1], Ipv4Addr::new(192, 0, 2, 1));
/// MAC and IP address of the client.
const CLIENT: ([u8; 6], Ipv4Addr) = ([2, 0, 0, 0, 0, 2], Ipv4Addr::new(198, 51, 100, 2));

/// Returns the path from the client to the server.
fn route(client_port: u16, server_port: u16) -> Route {
    let end = |(mac, ip): ([u8; 6], Ipv4Addr), port| End {
        mac,
        ip: ip.into(),
        port,
    };
    Route {
        src: end(CLIENT, client_port),
        dst: end(SERVER, server_port),
        vlan: None,
    }
}

/// Creates a host with the server's address.
pub fn host() -> ip::Host {
    ip::Host::own(
        eth::Station::new(eth::Mac(SERVER.0), &[SERVER.1.into()]),
        [0; 4],
    )
}

/// Builds the frame of a UDP datagram from the client.
pub fn datagram(src_port: u16, dst_port: u16, data: &[u8]) -> Vec<u8> {
    route(src_port, dst_port).datagram(data)
}

/// The client's access to a server and its port.
pub trait Wire {
    /// The server's port.
    type Port: Port;

    /// Lets the server receive a frame and handle it.
    fn deliver<H: Handler<Self::Port>>(&mut self, server: &mut H, frame: &[u8]);

    /// Returns the last packet that the server sent.
    fn last(&self) -> &[u8];
}

impl Wire for Sink {
    type Port = Self;

    #[inline(always)]
    fn deliver<H: Handler<Self>>(&mut self, server: &mut H, frame: &[u8]) {
        let frame = self.frame_from(frame);
        server.handle_frame(self, frame, Instant::ZERO);
    }

    fn last(&self) -> &[u8] {
        self.last()
    }
}

/// A TCP client that passes its segments to a server over a [`Wire`].
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// TCP port of the client.
    pub port: u16,
    /// Sequence number of the next byte that the client sends.
    pub seq: u32,
    /// Sequence number of the next byte that the client expects.
    pub ack: u32,
    /// Window that the client advertises.
    pub window: u16,
}

impl Client {
    /// Opens a connection with the three segments of the handshake.
    pub fn open<W: Wire, H: Handler<W::Port>>(
        wire: &mut W,
        server: &mut H,
        port: u16,
        window: u16,
    ) -> Self {
        let mut client = Self {
            port,
            seq: 1000,
            ack: 0,
            window,
        };
        client.send(wire, server, SYN, &[]);
        client.ack = numbers(wire.last()).0.wrapping_add(1);
        client.send(wire, server, testkit::ACK, &[]);
        client
    }

    /// Builds the frame of the next segment. A SYN advertises an MSS of 1,460 bytes.
    pub fn segment(&self, bits: u16, data: &[u8]) -> Vec<u8> {
        let options = if bits & SYN == 0 {
            Vec::new()
        } else {
            vec![Opt::Mss(1460)]
        };
        let segment = Segment {
            bits,
            seq: self.seq,
            ack: self.ack,
            window: self.window,
            options,
            data: data.to_vec(),
            ..Segment::default()
        };
        route(self.port, 80).segment(&segment, Layout::Dense)
    }

    /// Sends the next segment to the server.
    pub fn send<W: Wire, H: Handler<W::Port>>(
        &mut self,
        wire: &mut W,
        server: &mut H,
        bits: u16,
        data: &[u8],
    ) {
        wire.deliver(server, &self.segment(bits, data));
        let controls = u32::from(bits & (SYN | FIN) != 0);
        self.seq = self.seq.wrapping_add(data.len() as u32 + controls);
    }
}

/// Puts other sequence and acknowledgement numbers into a frame from [`Client::segment`]. Updates
/// the checksum incrementally, which keeps the client's share of the measured time small.
pub fn patch(frame: &mut [u8], seq: u32, ack: u32) {
    let tcp = &mut frame[34..];
    let be32 = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
    let old = Sum::ZERO.dword(!be32(4)).dword(!be32(8));
    let field = u16::from_be_bytes([tcp[16], tcp[17]]);
    let sum = old.word(!field).dword(seq).dword(ack);
    tcp[4..8].copy_from_slice(&seq.to_be_bytes());
    tcp[8..12].copy_from_slice(&ack.to_be_bytes());
    tcp[16..18].copy_from_slice(&sum.finish().to_be_bytes());
}

/// Returns the sequence number, the acknowledgement number and the data length of a TCP segment
/// from the server.
///
/// # Panics
/// May panic if `frame` is not a TCP segment over IPv4.
pub fn numbers(frame: &[u8]) -> (u32, u32, u32) {
    let be32 = |at: usize| {
        u32::from_be_bytes(frame[at..at + 4].try_into().expect("the slice has 4 bytes"))
    };
    let total = u16::from_be_bytes([frame[16], frame[17]]);
    let header = u16::from(frame[46] >> 4) * 4;
    (be32(38), be32(42), u32::from(total - 20 - header))
}
