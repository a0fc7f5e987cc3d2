//! Building blocks of a TCP client: parsed segments, prepared packets, connections by 4-tuple, and
//! ranges received out of order.
//!
//! The states of a connection are in [`http`](super::http). HTTP is the only application, so these
//! modules need no general interface.

mod ranges;
mod slots;

use eth::HEADER_LEN as LINK_LEN;
use etherparse::{TcpOptionElement, TcpOptionsIterator};
use ip::{Addresses, IPV4_HEADER_LEN, PROTOCOL_TCP, Path, Sum};
use nmio::{Frame, Port};

use super::link::Place;

pub(super) use ranges::{Ranges, combined, continued};
pub(super) use slots::{NOBODY, Slots};

/// Length in bytes of a header without options.
pub(super) const HEADER_LEN: usize = 20;
/// Offset of the checksum field in the header.
pub(super) const CHECKSUM_AT: usize = 16;
/// MSS that the client advertises: the value for IPv4 with an MTU of 1,500 bytes.
pub(super) const MSS: u16 = 1460;
/// MSS of a peer that advertises none (RFC 9293, section 3.7.1).
pub(super) const DEFAULT_MSS: u16 = 536;
/// Shift count of the window scale option that the client sends (RFC 7323).
pub(super) const WINDOW_SCALE: u8 = 7;
/// Maximum shift count. Larger shift counts are reduced to this value (RFC 7323, section 2.3).
const MAX_WINDOW_SCALE: u8 = 14;
/// Maximum number of SACK blocks in one header (RFC 2018, section 3).
pub(super) const MAX_SACK_BLOCKS: usize = 4;

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const PSH: u8 = 8;
pub(super) const ACK: u8 = 16;

const OPTION_NOP: u8 = 1;
const OPTION_MSS: u8 = 2;
const OPTION_WINDOW_SCALE: u8 = 3;
const OPTION_SACK_PERMITTED: u8 = 4;
const OPTION_SACK: u8 = 5;

/// Returns true if sequence number `a` precedes `b` (RFC 9293, section 3.4).
#[inline(always)]
pub(super) const fn before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

/// Header of a received segment. The data is `payload[data_at..]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) src_port: u16,
    pub(super) dst_port: u16,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) control: u8,
    pub(super) window: u16,
    /// Offset of the data from the start of the header.
    pub(super) data_at: usize,
    /// Length of the data in bytes.
    pub(super) len: u32,
}

impl Segment {
    /// Parses the header at the start of an IP payload. Returns `None` if the header is truncated
    /// or its data offset is invalid.
    #[inline(always)]
    pub(super) fn parse(payload: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_LEN] = payload.first_chunk()?;
        let u16_at = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let u32_at = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let data_at = usize::from(header[12] >> 4) * 4;
        if data_at < HEADER_LEN {
            return None;
        }
        Some(Self {
            src_port: u16_at(0),
            dst_port: u16_at(2),
            seq: u32_at(4),
            ack: u32_at(8),
            control: header[13],
            window: u16_at(14),
            data_at,
            len: payload.len().checked_sub(data_at)? as u32,
        })
    }

    #[inline(always)]
    pub(super) const fn has(&self, bits: u8) -> bool {
        self.control & bits != 0
    }
}

/// Values from the options of a SYN-ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Negotiated {
    pub(super) mss: u16,
    /// Window scale of the peer. `None` means that windows are not scaled in either direction.
    pub(super) window_scale: Option<u8>,
    pub(super) sack: bool,
}

impl Negotiated {
    /// Parses the options of `header`, which ends where the data begins. Parsing stops at an
    /// invalid or unknown option, so later options keep their defaults.
    pub(super) fn read(header: &[u8]) -> Self {
        let mut all = Self {
            mss: DEFAULT_MSS,
            window_scale: None,
            sack: false,
        };
        let options = header.get(HEADER_LEN..).unwrap_or(&[]);
        for option in TcpOptionsIterator::from_slice(options).flatten() {
            match option {
                TcpOptionElement::MaximumSegmentSize(mss) => all.mss = mss,
                TcpOptionElement::WindowScale(shift) => {
                    all.window_scale = Some(shift.min(MAX_WINDOW_SCALE));
                }
                TcpOptionElement::SelectiveAcknowledgementPermitted => all.sack = true,
                _ => {}
            }
        }
        all
    }
}

/// Header fields that differ between the packets made from one [`Template`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fields {
    pub(super) src: u32,
    pub(super) src_port: u16,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) window: u16,
}

/// A prepared packet to the server in which all [`Fields`] are zero.
#[derive(Clone, Debug)]
pub(super) struct Template {
    bytes: Box<[u8]>,
    ip_sum: Sum,
    tcp_sum: Sum,
}

impl Template {
    pub(super) fn new(place: &Place, control: u8, options: &[u8], data: &[u8]) -> Self {
        let tcp_len = HEADER_LEN + options.len() + data.len();
        let path = Path {
            link: place.link,
            addresses: Addresses::V4 {
                src: std::net::Ipv4Addr::UNSPECIFIED,
                dst: place.target.0,
            },
        };
        let mut bytes = vec![0; path.header_len() + tcp_len];
        let start = path.write(&mut bytes, PROTOCOL_TCP, tcp_len);
        let (headers, tcp) = bytes.split_at_mut(start);
        let ip = &mut headers[start - IPV4_HEADER_LEN..];
        ip[10..12].fill(0);
        tcp[2..4].copy_from_slice(&place.target.1.to_be_bytes());
        tcp[12] = ((HEADER_LEN + options.len()) as u8 / 4) << 4;
        tcp[13] = control;
        tcp[HEADER_LEN..][..options.len()].copy_from_slice(options);
        tcp[HEADER_LEN + options.len()..].copy_from_slice(data);
        let pseudo = path.addresses.pseudo_sum(PROTOCOL_TCP, tcp_len);
        Self {
            ip_sum: Sum::from_folded(Sum::of(ip).fold()),
            tcp_sum: Sum::from_folded(pseudo.add(Sum::of(tcp)).fold()),
            bytes: bytes.into(),
        }
    }

    /// Returns the length of the frame in bytes.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Writes the packet to `frame`, which must have the packet's length.
    #[inline(always)]
    pub(super) fn write(&self, frame: &mut [u8], fields: &Fields) {
        self.write_with(frame, fields, Sum::ZERO);
    }

    /// Like [`Template::write`], but for a caller that then replaces zero bytes of the packet.
    /// `more` is the sum of the new bytes, which the checksum must include.
    #[inline(always)]
    pub(super) fn write_with(&self, frame: &mut [u8], fields: &Fields, more: Sum) {
        const IP: usize = LINK_LEN;
        const TCP: usize = LINK_LEN + IPV4_HEADER_LEN;
        frame.copy_from_slice(&self.bytes);
        let header: &mut [u8; TCP + HEADER_LEN] =
            frame.first_chunk_mut().expect("a template has all headers");
        let ip = self.ip_sum.dword(fields.src).finish();
        header[IP + 10..IP + 12].copy_from_slice(&ip.to_be_bytes());
        header[IP + 12..IP + 16].copy_from_slice(&fields.src.to_be_bytes());
        let tcp = (self.tcp_sum.add(more))
            .dword(fields.src)
            .word(fields.src_port)
            .dword(fields.seq)
            .dword(fields.ack)
            .word(fields.window)
            .finish();
        header[TCP..TCP + 2].copy_from_slice(&fields.src_port.to_be_bytes());
        header[TCP + 4..TCP + 8].copy_from_slice(&fields.seq.to_be_bytes());
        header[TCP + 8..TCP + 12].copy_from_slice(&fields.ack.to_be_bytes());
        header[TCP + 14..TCP + 16].copy_from_slice(&fields.window.to_be_bytes());
        header[TCP + 16..TCP + 18].copy_from_slice(&tcp.to_be_bytes());
    }
}

/// Takes a free frame from the port's pool and sets its length.
#[inline(always)]
fn take<P: Port>(port: &mut P, len: usize) -> Option<Frame> {
    let mut frame = port.pool().take().filter(|frame| len <= frame.capacity())?;
    frame.set_len(len);
    Some(frame)
}

/// Sends a prepared packet. Returns false if the port has no free frame or no room.
#[inline(always)]
pub(super) fn send<P: Port>(port: &mut P, packet: &Template, fields: &Fields) -> bool {
    let Some(mut frame) = take(port, packet.len()) else {
        return false;
    };
    packet.write(&mut frame, fields);
    port.send(frame).is_ok()
}

/// Sends a prepared packet without options whose data has `bytes` at the offset `at`. The template
/// has zeros there. Both `at` and the number of bytes are even, as the checksum needs.
#[inline(always)]
pub(super) fn send_with<P: Port, const N: usize>(
    port: &mut P,
    packet: &Template,
    fields: &Fields,
    at: usize,
    bytes: [u8; N],
) -> bool {
    const { assert!(N.is_multiple_of(2)) };
    let Some(mut frame) = take(port, packet.len()) else {
        return false;
    };
    packet.write_with(&mut frame, fields, Sum::of(&bytes));
    frame[LINK_LEN + IPV4_HEADER_LEN + HEADER_LEN + at..][..N].copy_from_slice(&bytes);
    port.send(frame).is_ok()
}

/// Templates of the packets without data.
#[derive(Clone, Debug)]
pub(super) struct PacketTemplates {
    pub(super) syn: Template,
    pub(super) fin: Template,
    pub(super) reset: Template,
    pub(super) reset_ack: Template,
    /// ACKs with 0 to [`MAX_SACK_BLOCKS`] SACK blocks. The bytes of the blocks are zero.
    pub(super) acks: [Template; MAX_SACK_BLOCKS + 1],
}

impl PacketTemplates {
    pub(super) fn new(place: &Place) -> Self {
        let [high, low] = MSS.to_be_bytes();
        #[rustfmt::skip]
        let syn = [
            OPTION_MSS, 4, high, low,
            OPTION_NOP, OPTION_NOP, OPTION_SACK_PERMITTED, 2,
            OPTION_NOP, OPTION_WINDOW_SCALE, 3, WINDOW_SCALE,
        ];
        let bare = |control| Template::new(place, control, &[], &[]);
        let ack = |blocks: usize| {
            let mut options = vec![OPTION_NOP, OPTION_NOP, OPTION_SACK, 2 + 8 * blocks as u8];
            options.resize(4 + 8 * blocks, 0);
            Template::new(place, ACK, if blocks == 0 { &[] } else { &options }, &[])
        };
        debug_assert_eq!(place.link.header_len(), LINK_LEN);
        Self {
            syn: Template::new(place, SYN, &syn, &[]),
            fin: bare(FIN | ACK),
            reset: bare(RST),
            reset_ack: bare(RST | ACK),
            acks: std::array::from_fn(ack),
        }
    }

    /// Sends an ACK with these SACK blocks. Returns false if the port has no free frame or no room.
    pub(super) fn send_ack<P: Port>(
        &self,
        port: &mut P,
        fields: &Fields,
        blocks: &[(u32, u32)],
    ) -> bool {
        let packet = &self.acks[blocks.len()];
        let Some(mut frame) = take(port, packet.len()) else {
            return false;
        };
        let sum = |sum: Sum, (start, end): &(u32, u32)| sum.dword(*start).dword(*end);
        packet.write_with(&mut frame, fields, blocks.iter().fold(Sum::ZERO, sum));
        let at = frame.len() - 8 * blocks.len();
        for (option, (start, end)) in frame[at..].chunks_exact_mut(8).zip(blocks) {
            option[..4].copy_from_slice(&start.to_be_bytes());
            option[4..].copy_from_slice(&end.to_be_bytes());
        }
        port.send(frame).is_ok()
    }
}

#[cfg(test)]
#[path = "tcp/tests.rs"]
mod tests;
