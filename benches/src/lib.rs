//! A client for benches. It builds the frames that a server receives byte by byte, so that a bench
//! measures only the server.
//!
//! Every bench runs over [`nmio::sim::Sink`], a port that completes each send at once. The measured
//! time includes taking a frame from the pool and copying the request into it. On a real port the
//! kernel does this work. The `reflect` bench does this work and sends the shortest possible
//! answer, so a ratio to its time shows the server's own work.

pub mod load;
pub mod workload;

use std::net::Ipv4Addr;

use eth::{Link, Mac};
use ip::{Addresses, PROTOCOL_TCP, PROTOCOL_UDP, Path, Sum};
use nmio::sim::Sink;
use nmio::{Handler, Instant};

/// MAC and IP address of the server.
pub const SERVER: (Mac, Ipv4Addr) = (Mac([2, 0, 0, 0, 0, 1]), Ipv4Addr::new(192, 0, 2, 1));
/// MAC and IP address of the client.
pub const CLIENT: (Mac, Ipv4Addr) = (Mac([2, 0, 0, 0, 0, 2]), Ipv4Addr::new(198, 51, 100, 2));

/// Control bits of the TCP header.
pub mod flags {
    /// The sender has no more data.
    pub const FIN: u8 = 1;
    /// Synchronizes the sequence numbers.
    pub const SYN: u8 = 2;
    /// The receiver should deliver the data at once.
    pub const PSH: u8 = 8;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 16;
}

/// Returns the path from the client to the server.
pub fn path() -> Path {
    Path {
        link: Link {
            peer: SERVER.0,
            own: CLIENT.0,
            vlan: None,
        },
        addresses: Addresses::V4 {
            src: CLIENT.1,
            dst: SERVER.1,
        },
    }
}

/// Creates the host that answers at the server's address.
pub fn host() -> ip::Host {
    ip::Host::own(eth::Station::new(SERVER.0, &[SERVER.1.into()]))
}

/// A TCP segment from the client.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// The client's port.
    pub port: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// See [`flags`].
    pub flags: u8,
    /// Advertised window.
    pub window: u16,
}

impl Segment {
    /// Builds the whole frame with `data`. A SYN advertises an MSS of 1,460 bytes.
    pub fn frame(&self, data: &[u8]) -> Vec<u8> {
        let options: &[u8] = if self.flags & flags::SYN == 0 {
            &[]
        } else {
            &[2, 4, 5, 180]
        };
        let header_len = 20 + options.len();
        let mut tcp = vec![0; header_len + data.len()];
        tcp[..2].copy_from_slice(&self.port.to_be_bytes());
        tcp[2..4].copy_from_slice(&80u16.to_be_bytes());
        tcp[4..8].copy_from_slice(&self.seq.to_be_bytes());
        tcp[8..12].copy_from_slice(&self.ack.to_be_bytes());
        tcp[12] = (header_len as u8 / 4) << 4;
        tcp[13] = self.flags;
        tcp[14..16].copy_from_slice(&self.window.to_be_bytes());
        tcp[20..header_len].copy_from_slice(options);
        tcp[header_len..].copy_from_slice(data);
        finish(tcp, PROTOCOL_TCP, 16)
    }

    /// Puts other sequence and acknowledgement numbers into a frame from [`Segment::frame`]. The
    /// incremental checksum update keeps the client's share of the measured time small.
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
}

/// A TCP client that passes its segments directly to a server's handler.
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
    /// Opens a connection: the client sends two segments, the server one.
    pub fn open<H: Handler<Sink>>(sink: &mut Sink, server: &mut H, port: u16, window: u16) -> Self {
        let mut client = Self {
            port,
            seq: 1000,
            ack: 0,
            window,
        };
        client.send(sink, server, flags::SYN, &[]);
        client.ack = numbers(sink.last()).0.wrapping_add(1);
        client.send(sink, server, flags::ACK, &[]);
        client
    }

    /// Builds the frame of the next segment.
    pub fn segment(&self, flags: u8, data: &[u8]) -> Vec<u8> {
        let segment = Segment {
            port: self.port,
            seq: self.seq,
            ack: self.ack,
            flags,
            window: self.window,
        };
        segment.frame(data)
    }

    /// Sends the next segment to the server.
    pub fn send<H: Handler<Sink>>(
        &mut self,
        sink: &mut Sink,
        server: &mut H,
        flags: u8,
        data: &[u8],
    ) {
        let frame = sink.frame_from(&self.segment(flags, data));
        server.handle_frame(sink, frame, Instant::ZERO);
        let controls = u32::from(flags & (flags::SYN | flags::FIN) != 0);
        self.seq = self.seq.wrapping_add(data.len() as u32 + controls);
    }
}

/// Builds the frame of a UDP datagram from the client.
pub fn datagram(src_port: u16, dst_port: u16, data: &[u8]) -> Vec<u8> {
    let mut udp = vec![0; 8 + data.len()];
    let len = udp.len() as u16;
    udp[..2].copy_from_slice(&src_port.to_be_bytes());
    udp[2..4].copy_from_slice(&dst_port.to_be_bytes());
    udp[4..6].copy_from_slice(&len.to_be_bytes());
    udp[8..].copy_from_slice(data);
    finish(udp, PROTOCOL_UDP, 6)
}

fn finish(mut transport: Vec<u8>, protocol: u8, checksum_at: usize) -> Vec<u8> {
    let path = path();
    let pseudo = path.addresses.pseudo_sum(protocol, transport.len());
    let field = pseudo.add(Sum::of(&transport)).finish_udp();
    transport[checksum_at..checksum_at + 2].copy_from_slice(&field.to_be_bytes());
    let mut frame = vec![0; path.header_len()];
    path.write(&mut frame, protocol, transport.len());
    frame.extend_from_slice(&transport);
    frame
}

/// Returns the sequence number, the acknowledgement number and the data length of a TCP segment
/// from the server.
///
/// # Panics
/// Panics when `frame` is not a TCP segment over IPv4.
pub fn numbers(frame: &[u8]) -> (u32, u32, u32) {
    let be32 = |at: usize| {
        u32::from_be_bytes(frame[at..at + 4].try_into().expect("the slice has 4 bytes"))
    };
    let total = u16::from_be_bytes([frame[16], frame[17]]);
    let header = u16::from(frame[46] >> 4) * 4;
    (be32(38), be32(42), u32::from(total - 20 - header))
}
