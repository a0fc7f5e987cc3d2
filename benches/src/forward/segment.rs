//! As much of a frame as the forwarder must know: the TCP segment in it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use arrayvec::ArrayVec;
use eth::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, Header};

/// TCP's protocol number.
const PROTOCOL_TCP: u8 = 6;
/// Kind of the SACK option (RFC 2018, section 3).
const OPTION_SACK: u8 = 5;
/// Blocks that fit into the options.
const MAX_SACK_BLOCKS: usize = 4;

/// TCP's flags that count here.
pub mod flags {
    /// The sender has no more data.
    pub const FIN: u8 = 1;
    /// A connection begins.
    pub const SYN: u8 = 2;
    /// A connection is reset.
    pub const RST: u8 = 4;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 16;
}

/// A TCP segment, as its header tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Who sends it.
    pub src: SocketAddr,
    /// To whom.
    pub dst: SocketAddr,
    /// Sequence number of the first byte, or of the SYN.
    pub seq: u32,
    /// Acknowledgement number, of a segment with [`flags::ACK`].
    pub ack: u32,
    /// See [`flags`].
    pub flags: u8,
    /// The window field as it stands.
    pub window: u16,
    /// Bytes of data.
    pub len: u32,
    /// What the SACK option tells.
    pub sack: ArrayVec<(u32, u32), MAX_SACK_BLOCKS>,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The IP packet of a frame, padding cut off, and its version's Ethertype.
/// `None` when it is none, or cut short.
pub fn ip_packet(frame: &[u8]) -> Option<(u16, &[u8])> {
    let header = Header::parse(frame)?;
    let packet = frame.get(header.len()..)?;
    let len = match header.ethertype {
        ETHERTYPE_IPV4 => usize::from(u16_at(packet, 2)?),
        ETHERTYPE_IPV6 => usize::from(u16_at(packet, 4)?) + 40,
        _ => return None,
    };
    Some((header.ethertype, packet.get(..len)?))
}

impl Segment {
    /// Reads a frame. `None` when it carries no TCP over IPv4 or IPv6, or
    /// only a fragment, or is malformed. Checksums are not looked at.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let (ethertype, packet) = ip_packet(frame)?;
        let (src, dst, tcp): (IpAddr, IpAddr, &[u8]) = if ethertype == ETHERTYPE_IPV4 {
            let header_len = usize::from(packet.first()? & 15) * 4;
            let is_fragment = u16_at(packet, 6)? & 0x3fff != 0;
            if header_len < 20 || *packet.get(9)? != PROTOCOL_TCP || is_fragment {
                return None;
            }
            let address = |at| Some(Ipv4Addr::from_bits(u32_at(packet, at)?));
            let tcp = packet.get(header_len..)?;
            (address(12)?.into(), address(16)?.into(), tcp)
        } else {
            if *packet.get(6)? != PROTOCOL_TCP {
                return None;
            }
            let address = |at: usize| -> Option<Ipv6Addr> {
                let octets: [u8; 16] = *packet.get(at..)?.first_chunk()?;
                Some(octets.into())
            };
            (address(8)?.into(), address(24)?.into(), packet.get(40..)?)
        };
        let header_len = usize::from(tcp.get(12)? >> 4) * 4;
        let options = tcp.get(20..header_len)?;
        Some(Self {
            src: SocketAddr::new(src, u16_at(tcp, 0)?),
            dst: SocketAddr::new(dst, u16_at(tcp, 2)?),
            seq: u32_at(tcp, 4)?,
            ack: u32_at(tcp, 8)?,
            flags: *tcp.get(13)?,
            window: u16_at(tcp, 14)?,
            len: (tcp.len() - header_len) as u32,
            sack: sack_blocks(options),
        })
    }

    /// Whether all of `flags` are set.
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Whether it only acknowledges.
    pub fn is_plain_ack(&self) -> bool {
        self.len == 0 && self.flags & (flags::SYN | flags::FIN | flags::RST) == 0
    }
}

fn sack_blocks(mut options: &[u8]) -> ArrayVec<(u32, u32), MAX_SACK_BLOCKS> {
    let mut blocks = ArrayVec::new();
    while let Some((&kind, rest)) = options.split_first() {
        let len = match kind {
            0 => break,
            1 => {
                options = rest;
                continue;
            }
            _ => rest.first().map_or(0, |&len| usize::from(len)),
        };
        let Some(option) = options.get(..len).filter(|_| len >= 2) else {
            break;
        };
        if kind == OPTION_SACK {
            for block in option[2..].chunks_exact(8).take(MAX_SACK_BLOCKS) {
                blocks.extend(u32_at(block, 0).zip(u32_at(block, 4)));
            }
        }
        options = &options[len..];
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(data: &[u8]) -> Vec<u8> {
        let segment = crate::Segment {
            port: 4_000,
            seq: 7,
            ack: 9,
            flags: flags::ACK,
            window: 512,
        };
        segment.frame(data)
    }

    #[test]
    fn a_segment_is_read_whole() {
        let segment = Segment::parse(&frame(b"hello")).unwrap();
        assert_eq!(segment.src, "198.51.100.2:4000".parse().unwrap());
        assert_eq!(segment.dst, "192.0.2.1:80".parse().unwrap());
        let numbers = (segment.seq, segment.ack, segment.window, segment.len);
        assert_eq!(numbers, (7, 9, 512, 5));
        assert!(!segment.is_plain_ack());
        assert!(Segment::parse(&frame(b"")).unwrap().is_plain_ack());
    }

    #[test]
    fn padding_is_no_payload() {
        let mut padded = frame(b"");
        padded.resize(60, 0);
        assert_eq!(Segment::parse(&padded).unwrap().len, 0);
    }

    #[test]
    fn what_is_cut_short_is_no_segment() {
        let whole = frame(b"hello");
        for len in 0..whole.len() {
            assert_eq!(Segment::parse(&whole[..len]), None, "{len} bytes");
        }
        let mut fragment = whole.clone();
        fragment[20] = 0x20;
        assert_eq!(Segment::parse(&fragment), None);
        let mut long_header = whole;
        long_header[46] = 0xf0;
        assert_eq!(Segment::parse(&long_header), None);
    }

    #[test]
    fn sack_blocks_are_found_among_other_options() {
        let mut options = vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 5, 18];
        for number in [100u32, 200, 300, 400] {
            options.extend(number.to_be_bytes());
        }
        assert_eq!(sack_blocks(&options)[..], [(100, 200), (300, 400)]);
        assert!(sack_blocks(&[5, 0, 1, 2]).is_empty());
        assert!(sack_blocks(&[5]).is_empty());
        assert!(sack_blocks(&[0, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]).is_empty());
    }
}
