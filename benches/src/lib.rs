//! A client's end for benches: it makes the frames that a server receives,
//! byte by byte, so that only the server is measured.
//!
//! Every bench runs over [`nmio::sim::Sink`], a port whose sends complete at
//! once. What is timed includes making the received frame (a take from the
//! pool and a copy of the request), which a real port's kernel does; the
//! `reflect` bench is that and the least possible answer, so ratios to it are
//! the server's own work.

pub mod load;
pub mod workload;

use std::net::Ipv4Addr;

use eth::{Link, Mac};
use ip::{Addresses, PROTOCOL_TCP, PROTOCOL_UDP, Path, Sum};
use nmio::sim::Sink;
use nmio::{Handler, Instant};

/// The server's addresses.
pub const SERVER: (Mac, Ipv4Addr) = (Mac([2, 0, 0, 0, 0, 1]), Ipv4Addr::new(192, 0, 2, 1));
/// The client's addresses.
pub const CLIENT: (Mac, Ipv4Addr) = (Mac([2, 0, 0, 0, 0, 2]), Ipv4Addr::new(198, 51, 100, 2));

/// TCP's flags, as in its header.
pub mod flags {
    /// No more data.
    pub const FIN: u8 = 1;
    /// Synchronize.
    pub const SYN: u8 = 2;
    /// Push.
    pub const PSH: u8 = 8;
    /// The acknowledgement counts.
    pub const ACK: u8 = 16;
}

/// The way from the client to the server.
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

/// A host that answers at the server's address.
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
    /// The whole frame, with `data`; a SYN tells an MSS of 1,460 bytes.
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

    /// Changes a frame of [`Segment::frame`] into one of other numbers, by
    /// the incremental update, so that a bench does not measure its client.
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

/// A TCP client that gives its segments to a server by hand.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// Its port.
    pub port: u16,
    /// The next byte that it sends.
    pub seq: u32,
    /// The next byte that it expects.
    pub ack: u32,
    /// The window that it tells.
    pub window: u16,
}

impl Client {
    /// Opens a connection: two segments to the server, one from it.
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

    /// The next segment, as a whole frame.
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

/// A UDP datagram from the client, as a whole frame.
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

/// Sequence number, acknowledgement number and data length of a TCP segment
/// that the server has sent.
///
/// # Panics
/// When `frame` is no TCP segment over IPv4.
pub fn numbers(frame: &[u8]) -> (u32, u32, u32) {
    let be32 = |at: usize| {
        u32::from_be_bytes(frame[at..at + 4].try_into().expect("the slice has 4 bytes"))
    };
    let total = u16::from_be_bytes([frame[16], frame[17]]);
    let header = u16::from(frame[46] >> 4) * 4;
    (be32(38), be32(42), u32::from(total - 20 - header))
}
