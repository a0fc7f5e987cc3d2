//! Marks by explicit congestion notification (RFC 3168, section 5).

use eth::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, Header};

/// The ECN field's bits, in an octet that has it at its end.
const ECN: u8 = 0b11;
/// Congestion experienced.
const CE: u8 = 0b11;

/// Marks a frame's packet as one that has met congestion; whether it could be:
/// its sender must have said that it understands.
pub fn mark(frame: &mut [u8]) -> bool {
    let Some(header) = Header::parse(frame) else {
        return false;
    };
    let packet = &mut frame[header.len()..];
    match header.ethertype {
        ETHERTYPE_IPV4 if packet.len() >= 20 => {
            let old = u16::from_be_bytes([packet[0], packet[1]]);
            if packet[1] & ECN == 0 {
                return false;
            }
            packet[1] |= CE;
            let new = u16::from_be_bytes([packet[0], packet[1]]);
            // RFC 1624, equation 3.
            let checksum = u16::from_be_bytes([packet[10], packet[11]]);
            let sum = ip::Sum::ZERO.word(!checksum).word(!old).word(new);
            packet[10..12].copy_from_slice(&sum.finish().to_be_bytes());
            true
        }
        ETHERTYPE_IPV6 if packet.len() >= 40 => {
            // The traffic class stands across two octets.
            let shifted = ECN << 4;
            let speaks = packet[1] & shifted != 0;
            if speaks {
                packet[1] |= CE << 4;
            }
            speaks
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use ip::{Addresses, Path, Sum};

    use super::*;

    #[test]
    fn only_who_speaks_ecn_is_marked_and_the_checksum_still_fits() {
        let mut frame = crate::Segment {
            port: 4_000,
            seq: 7,
            ack: 9,
            flags: 16,
            window: 512,
        }
        .frame(b"data");
        assert!(!mark(&mut frame));
        // ECT(0), with its checksum.
        frame[15] = 2;
        frame[24..26].fill(0);
        let sum = Sum::of(&frame[14..34]).finish();
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        assert!(mark(&mut frame));
        assert_eq!(frame[15], 3);
        assert_eq!(Sum::of(&frame[14..34]).finish(), 0);
        assert!(!mark(&mut frame[..30]));
    }

    #[test]
    fn version_6_has_the_field_across_two_octets() {
        let path = Path {
            link: crate::path().link,
            addresses: Addresses::V6 {
                src: "fd00::1".parse().unwrap(),
                dst: "fd00::2".parse().unwrap(),
            },
        };
        let mut frame = vec![0; path.header_len()];
        path.write(&mut frame, 6, 0);
        assert!(!mark(&mut frame));
        frame[15] |= 0x10;
        assert!(mark(&mut frame));
        assert_eq!(frame[14..16], [0x60, 0x30]);
    }
}
