//! Helpers for the tests of this crate: two stations, and packets from the peer to us.

use std::net::{Ipv4Addr, Ipv6Addr};

use eth::{Link, Mac, Station};
use nmio::{Drain, Frame, Instant, Pool, PoolLayout, Port};

use crate::host::Input;
use crate::icmp::IcmpError;
use crate::packet::Packet;
use crate::{Addresses, Host, PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_UDP, Path, Sum, Transports};

pub(crate) const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub(crate) const PEER: Mac = Mac([2, 0, 0, 0, 0, 9]);
pub(crate) const V4: (Ipv4Addr, Ipv4Addr) =
    (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 9));
pub(crate) const V6: (Ipv6Addr, Ipv6Addr) = (
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9),
);

pub(crate) fn host() -> Host {
    Host::own(Station::new(OURS, &[V4.0.into(), V6.0.into()]), [0; 4])
}

/// Returns the path from the peer to us.
pub(crate) fn to_us(v6: bool) -> Path {
    let addresses = if v6 {
        Addresses::V6 {
            src: V6.1,
            dst: V6.0,
        }
    } else {
        Addresses::V4 {
            src: V4.1,
            dst: V4.0,
        }
    };
    Path {
        link: Link {
            peer: OURS,
            own: PEER,
            vlan: None,
        },
        addresses,
    }
}

pub(crate) fn packet(path: Path, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; path.header_len() + payload.len()];
    let start = path.write(&mut bytes, protocol, payload.len());
    bytes[start..].copy_from_slice(payload);
    bytes
}

pub(crate) fn frame(bytes: &[u8]) -> Frame {
    let pool = Pool::on_heap(PoolLayout {
        stride: 2048,
        capacity: 2048,
        io_frames: 1,
        resident_frames: 0,
    });
    let mut frame = pool.take().unwrap();
    frame.set_len(bytes.len());
    frame.copy_from_slice(bytes);
    frame
}

/// Builds a UDP datagram from port 12,345 to port 53, with a correct checksum.
pub(crate) fn datagram(v6: bool, data: &[u8]) -> Vec<u8> {
    let path = to_us(v6);
    let len = 8 + data.len();
    let mut udp = vec![0x30, 0x39, 0, 53, (len >> 8) as u8, len as u8, 0, 0];
    udp.extend_from_slice(data);
    let sum = path.addresses.pseudo_sum(PROTOCOL_UDP, len);
    let field = sum.add(Sum::of(&udp)).finish_udp();
    udp[6..8].copy_from_slice(&field.to_be_bytes());
    packet(path, PROTOCOL_UDP, &udp)
}

/// Builds an IPv4 "fragmentation needed" error with an MTU of 1,300 bytes. The error is from the
/// peer and quotes our packet in the frame `ours`.
pub(crate) fn too_big(ours: &[u8]) -> Vec<u8> {
    let mut message = vec![3, 4, 0, 0, 0, 0, 0x05, 0x14];
    message.extend_from_slice(&ours[eth::HEADER_LEN..]);
    let field = Sum::of(&message).finish();
    message[2..4].copy_from_slice(&field.to_be_bytes());
    packet(to_us(false), PROTOCOL_ICMP, &message)
}

pub(crate) fn echo(v6: bool) -> Vec<u8> {
    echo_of(v6, &[0x12, 0x34, 0, 1, b'p', b'i', b'n'])
}

/// Builds an echo request. `rest` holds the identifier, the sequence number and the data.
pub(crate) fn echo_of(v6: bool, rest: &[u8]) -> Vec<u8> {
    let path = to_us(v6);
    let (kind, protocol) = if v6 {
        (128, PROTOCOL_ICMPV6)
    } else {
        (8, PROTOCOL_ICMP)
    };
    let mut message = vec![kind, 0, 0, 0];
    message.extend_from_slice(rest);
    let pseudo = if v6 {
        path.addresses.pseudo_sum(protocol, message.len())
    } else {
        Sum::ZERO
    };
    let field = pseudo.add(Sum::of(&message)).finish();
    message[2..4].copy_from_slice(&field.to_be_bytes());
    packet(path, protocol, &message)
}

/// Inserts `options` into an IPv4 packet. Their length must be a multiple of four bytes.
pub(crate) fn with_options(mut bytes: Vec<u8>, options: &[u8]) -> Vec<u8> {
    bytes.splice(34..34, options.iter().copied());
    let total_len = (bytes.len() - 14) as u16;
    bytes[14] += (options.len() / 4) as u8;
    bytes[16..18].copy_from_slice(&total_len.to_be_bytes());
    fix_header(&mut bytes);
    bytes
}

/// Corrects the checksum of the IPv4 header in an untagged frame.
pub(crate) fn fix_header(bytes: &mut [u8]) {
    let end = 14 + usize::from(bytes[14] & 15) * 4;
    bytes[24..26].fill(0);
    let field = Sum::of(&bytes[14..end]).finish();
    bytes[24..26].copy_from_slice(&field.to_be_bytes());
}

/// Inserts extension headers, each given as type and bytes, into an IPv6 packet. Overwrites the
/// first byte of each with the type of the next header.
pub(crate) fn with_extensions(mut bytes: Vec<u8>, extensions: &[(u8, &[u8])]) -> Vec<u8> {
    let mut next = bytes[20];
    for (kind, extension) in extensions.iter().rev() {
        bytes.splice(54..54, extension.iter().copied());
        bytes[54] = next;
        next = *kind;
    }
    bytes[20] = next;
    let payload_len = (bytes.len() - 54) as u16;
    bytes[18..20].copy_from_slice(&payload_len.to_be_bytes());
    bytes
}

/// A transport that serves one port over one protocol. Logs a letter for each call that handles or
/// prefetches something. If the call is about a batch, the letter is followed by the batch's length
/// or the packet's index. `INTERCEPTS` is that of [`Transports`].
#[derive(Default)]
pub(crate) struct RecordingTransport<const INTERCEPTS: bool = true> {
    pub(crate) protocol: u8,
    pub(crate) port: u16,
    pub(crate) declines: bool,
    pub(crate) due: Option<Instant>,
    pub(crate) floods: bool,
    pub(crate) is_closed: bool,
    pub(crate) prefetches: bool,
    pub(crate) intercepts: bool,
    pub(crate) log: String,
}

impl RecordingTransport {
    pub(crate) fn on(protocol: u8, port: u16) -> Self {
        Self::of(protocol, port)
    }
}

impl<const INTERCEPTS: bool> RecordingTransport<INTERCEPTS> {
    pub(crate) fn of(protocol: u8, port: u16) -> Self {
        Self {
            protocol,
            port,
            is_closed: true,
            ..Self::default()
        }
    }

    fn take(&mut self, what: &str, packet: Packet) -> Option<Packet> {
        self.log += what;
        self.declines.then_some(packet)
    }
}

impl<const INTERCEPTS: bool, P: Port> Transports<P> for RecordingTransport<INTERCEPTS> {
    const INTERCEPTS: bool = INTERCEPTS;

    fn intercept(&mut self, _: &mut P, frame: Frame, _: Instant) -> Option<Frame> {
        self.log += if self.intercepts { "f" } else { "" };
        (!self.intercepts).then_some(frame)
    }
    fn serves(&self, protocol: u8, port: u16) -> bool {
        (protocol, port) == (self.protocol, self.port)
    }
    fn handle_tcp(&mut self, _: &mut P, segment: Packet, _: Instant) -> Option<Packet> {
        self.take("t", segment)
    }
    fn refuse_tcp(&mut self, _: &mut P, segment: Packet) -> Option<Packet> {
        self.take("r", segment)
    }
    fn handle_udp(&mut self, _: &mut P, datagram: Packet, _: Instant) -> Option<Packet> {
        self.take("u", datagram)
    }
    fn handle_icmp_error(&mut self, _: &IcmpError, _: Instant) -> bool {
        self.log += "e";
        true
    }
    fn wants_prefetch(&self, len: usize) -> bool {
        self.prefetches && len > 1
    }
    fn prefetch_batch(&mut self, batch: &[Input]) {
        self.log += "l";
        self.log += &batch.len().to_string();
    }
    fn handle_prefetched_udp(
        &mut self,
        _: &mut P,
        datagram: Packet,
        index: usize,
        _: Instant,
    ) -> Option<Packet> {
        self.take(&format!("u{index}"), datagram)
    }
    fn handle_timers(&mut self, _: &mut P, _: Instant) {
        self.log += "T";
    }
    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
    fn handle_messages(&mut self, _: &mut P, _: Instant) {
        self.log += "M";
    }
    fn is_flooded(&self, _: Instant) -> bool {
        self.floods
    }
    fn handle_drain(&mut self, _: &mut P, _: Instant) -> Drain {
        self.log += "D";
        self.due.map_or(Drain::Done, Drain::Busy)
    }
    fn handle_stop(&mut self, _: &mut P, _: Instant) -> bool {
        self.log += "S";
        self.is_closed
    }
}

/// Builds a packet from port 40,000 to port `dst`. The transports of this test ignore its checksum.
pub(crate) fn to_port(v6: bool, protocol: u8, dst: u16) -> Vec<u8> {
    let mut header = [0; 20];
    header[..2].copy_from_slice(&40_000u16.to_be_bytes());
    header[2..4].copy_from_slice(&dst.to_be_bytes());
    packet(to_us(v6), protocol, &header)
}
