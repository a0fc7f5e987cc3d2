//! The answer to a packet that does not fit: ICMP "fragmentation needed" (RFC
//! 1191, section 4) and ICMPv6 "packet too big" (RFC 4443, section 3.2).

use eth::{ETHERTYPE_IPV4, Header, Link};
use ip::{Addresses, Path, Sum};

use super::segment::ip_packet;

const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_ICMPV6: u8 = 58;
/// Bytes of an ICMP error before the packet that it is about.
const ICMP_HEADER_LEN: usize = 8;
/// Of an IPv4 packet that is answered, its header and 8 bytes behind it are
/// told (RFC 792); of an IPv6 one as much as fits the least MTU.
const QUOTED_V4: usize = 28;
const QUOTED_V6: usize = 1_280 - 40 - ICMP_HEADER_LEN;

/// The frame that goes back to the sender of `frame`, which had to fit `mtu`
/// bytes. It seems to come from the packet's destination: there is no router
/// with an address here. `None` when the packet may be fragmented, or is none.
pub fn answer(frame: &[u8], mtu: usize) -> Option<Vec<u8>> {
    let header = Header::parse(frame)?;
    let (ethertype, packet) = ip_packet(frame)?;
    let is_v4 = ethertype == ETHERTYPE_IPV4;
    let (addresses, protocol, quoted) = if is_v4 {
        let may_be_fragmented = packet.get(6)? & 0x40 == 0;
        if may_be_fragmented {
            return None;
        }
        let address = |at: usize| packet.get(at..)?.first_chunk::<4>().copied();
        let addresses = Addresses::V4 {
            src: address(16)?.into(),
            dst: address(12)?.into(),
        };
        (addresses, PROTOCOL_ICMP, QUOTED_V4)
    } else {
        let address = |at: usize| packet.get(at..)?.first_chunk::<16>().copied();
        let addresses = Addresses::V6 {
            src: address(24)?.into(),
            dst: address(8)?.into(),
        };
        (addresses, PROTOCOL_ICMPV6, QUOTED_V6)
    };
    let path = Path {
        link: Link {
            peer: header.src,
            own: header.dst,
            vlan: header.vlan,
        },
        addresses,
    };
    let mtu = u32::try_from(mtu).ok()?;
    let quoted = &packet[..packet.len().min(quoted)];
    let mut icmp = vec![0; ICMP_HEADER_LEN];
    // Type and code. The MTU stands in all of the last 4 bytes in ICMPv6, and
    // in the last 2 in ICMP, whose field has no more.
    icmp[..2].copy_from_slice(if is_v4 { &[3, 4] } else { &[2, 0] });
    icmp[4..].copy_from_slice(&mtu.to_be_bytes());
    icmp.extend_from_slice(quoted);
    let pseudo = if is_v4 {
        Sum::ZERO
    } else {
        addresses.pseudo_sum(protocol, icmp.len())
    };
    let checksum = pseudo.add(Sum::of(&icmp)).finish();
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
    let mut answer = vec![0; path.header_len()];
    path.write(&mut answer, protocol, icmp.len());
    answer.extend_from_slice(&icmp);
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_is_told_the_mtu_and_its_own_header() {
        let big = crate::Segment {
            port: 4_000,
            seq: 7,
            ack: 9,
            flags: 16,
            window: 512,
        }
        .frame(&[0; 1_000]);
        let answer = answer(&big, 900).unwrap();
        // Back to where it came from.
        assert_eq!(answer[..6], big[6..12]);
        let (_, packet) = ip_packet(&answer).unwrap();
        assert_eq!(packet[9], PROTOCOL_ICMP);
        assert_eq!(packet[12..16], big[14 + 16..14 + 20]);
        assert_eq!(packet[16..20], big[14 + 12..14 + 16]);
        let icmp = &packet[20..];
        assert_eq!(icmp[..2], [3, 4]);
        assert_eq!(icmp[4..8], [0, 0, 3, 132]);
        assert_eq!(icmp[8..], big[14..14 + 28]);
        assert_eq!(Sum::of(icmp).finish(), 0, "the checksum fits");
    }

    #[test]
    fn a_packet_of_version_6_is_answered_by_icmp_of_version_6() {
        let path = Path {
            link: crate::path().link,
            addresses: Addresses::V6 {
                src: "fd00::1".parse().unwrap(),
                dst: "fd00::2".parse().unwrap(),
            },
        };
        let mut big = vec![0; path.header_len() + 1_400];
        path.write(&mut big, 6, 1_400);
        let answer = answer(&big, 1_300).unwrap();
        let (_, packet) = ip_packet(&answer).unwrap();
        assert_eq!((packet.len(), packet[6]), (1_280, PROTOCOL_ICMPV6));
        let icmp = &packet[40..];
        assert_eq!(icmp[..2], [2, 0]);
        assert_eq!(icmp[4..8], 1_300u32.to_be_bytes());
        let back = Addresses::V6 {
            src: "fd00::2".parse().unwrap(),
            dst: "fd00::1".parse().unwrap(),
        };
        let sum = back.pseudo_sum(PROTOCOL_ICMPV6, icmp.len());
        assert_eq!(sum.add(Sum::of(icmp)).finish(), 0);
    }

    #[test]
    fn what_may_be_fragmented_is_not_answered() {
        let mut frame = crate::Segment {
            port: 1,
            seq: 0,
            ack: 0,
            flags: 16,
            window: 0,
        }
        .frame(b"x");
        frame[20] = 0;
        assert_eq!(answer(&frame, 30), None);
        assert_eq!(answer(&frame[..20], 30), None);
    }
}
