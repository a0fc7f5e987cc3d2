//! The `virtio_net_hdr`, which precedes each packet on tap devices, on packet sockets, and on ports of
//! VALE switches that are set up for it.
//!
//! It tells the receiver which checksum and segmentation work remains.

use crate::checksum::Sum;
use crate::super_segment::{GsoType, SuperSegment};

/// Size of a `virtio_net_hdr` in bytes.
pub(crate) const VNET_HEADER: usize = 10;

/// Flag: the checksum field holds only the pseudo-header's sum, and the receiver must complete the
/// checksum.
const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP_V4: u8 = 1;
/// One UDP datagram that IP would fragment.
const GSO_UDP: u8 = 3;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// Set in addition to a kind of TCP: the first segment has the CWR bit.
const GSO_ECN: u8 = 0x80;
// Offsets of the checksum field in the transport headers, in bytes.
const TCP_CHECKSUM_AT: u16 = 16;
const UDP_CHECKSUM_AT: u16 = 6;

/// The `virtio_net_hdr` of a packet that needs neither checksumming nor segmentation.
pub(crate) const FINISHED: [u8; VNET_HEADER] = [0; VNET_HEADER];

/// Builds the `virtio_net_hdr` of a super-segment.
pub(crate) fn vnet_header(packet: &SuperSegment) -> [u8; VNET_HEADER] {
    let (gso, checksum_at) = match packet.gso_type() {
        GsoType::TcpV4 => (GSO_TCP_V4, TCP_CHECKSUM_AT),
        GsoType::TcpV6 => (GSO_TCP_V6, TCP_CHECKSUM_AT),
        GsoType::Udp => (GSO_UDP_L4, UDP_CHECKSUM_AT),
    };
    let headers = (packet.headers().len() as u16).to_ne_bytes();
    let segment = (packet.segment_len() as u16).to_ne_bytes();
    let transport = (packet.transport_at() as u16).to_ne_bytes();
    let checksum_at = checksum_at.to_ne_bytes();
    // A single segment needs no segmentation.
    let gso = if packet.segments() > 1 { gso } else { 0 };
    let segment = if gso == 0 { [0; 2] } else { segment };
    [
        NEEDS_CHECKSUM,
        gso,
        headers[0],
        headers[1],
        segment[0],
        segment[1],
        transport[0],
        transport[1],
        checksum_at[0],
        checksum_at[1],
    ]
}

/// Completes a received packet as its `virtio_net_hdr` says: computes a partial checksum. A TCP
/// super-segment stays whole.
///
/// Returns `false` if the packet cannot be used. This includes a run of UDP datagrams, which would
/// look like one long datagram.
#[must_use]
pub(crate) fn complete(vnet: [u8; VNET_HEADER], packet: &mut [u8]) -> bool {
    if !matches!(
        vnet[1] & !GSO_ECN,
        GSO_NONE | GSO_TCP_V4 | GSO_TCP_V6 | GSO_UDP
    ) {
        return false;
    }
    partial_checksum(vnet).is_none_or(|partial| finish_checksum(packet, partial))
}

/// Returns the position of a partial checksum, or `None` if the checksum is complete.
///
/// The first number is the offset of the first byte that the checksum covers. The second is the
/// offset of the checksum field relative to that byte.
fn partial_checksum(vnet: [u8; VNET_HEADER]) -> Option<(usize, usize)> {
    let u16_at = |at: usize| usize::from(u16::from_ne_bytes([vnet[at], vnet[at + 1]]));
    (vnet[0] & NEEDS_CHECKSUM != 0).then(|| (u16_at(6), u16_at(8)))
}

/// Completes a partial checksum.
///
/// The checksum covers `packet` from offset `start`. The checksum field is `field` bytes after
/// `start` and holds the pseudo-header's sum. Returns `false` if the checksum field is outside the
/// packet.
fn finish_checksum(packet: &mut [u8], (start, field): (usize, usize)) -> bool {
    let Some(rest) = packet.get_mut(start..) else {
        return false;
    };
    let checksum = Sum::of(rest).finish_udp().to_be_bytes();
    let checksum_field = rest
        .get_mut(field..)
        .and_then(|rest| rest.first_chunk_mut());
    checksum_field.map(|field| *field = checksum).is_some()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_super_segment_gets_a_virtio_net_header() {
        let bytes: Arc<[u8]> = vec![0; 3000].into();
        let run = SuperSegment::new(GsoType::TcpV6, 1428, (86, 54), &bytes, 0..3000);
        let header = vnet_header(&run);
        let u16_at = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        assert_eq!((header[0], header[1]), (1, 4));
        assert_eq!([2, 4, 6, 8].map(u16_at), [86, 1428, 54, 16]);
        let one = SuperSegment::new(GsoType::Udp, 1428, (42, 34), &bytes, 0..100);
        let header = vnet_header(&one);
        assert_eq!((header[0], header[1], header[4], header[5]), (1, 0, 0, 0));
        assert_eq!(header[8..], 6u16.to_ne_bytes());
    }

    #[test]
    fn a_partial_checksum_is_completed() {
        // Four bytes that the checksum does not cover, then a header. The header's checksum field,
        // at offset 2 of the header, holds a partial sum.
        let mut packet = [9, 9, 9, 9, 0x12, 0x34, 0x00, 0x07, 0x56, 0x78];
        assert!(finish_checksum(&mut packet, (4, 2)));
        // With the completed field, the sum over the header is the complement of the field's
        // original value.
        assert_eq!(Sum::of(&packet[4..]).fold(), !0x0007);
        assert_eq!(packet[..6], [9, 9, 9, 9, 0x12, 0x34]);
    }

    #[test]
    fn a_checksum_outside_the_packet_is_refused() {
        let mut packet = [0; 10];
        assert!(finish_checksum(&mut packet, (4, 4)));
        assert!(!finish_checksum(&mut packet, (4, 5)));
        assert!(!finish_checksum(&mut packet, (11, 0)));
    }

    #[test]
    fn only_packets_that_stay_valid_whole_are_completed() {
        let header = |flags, gso| {
            let [start, field] = [4u16, 2].map(u16::to_ne_bytes);
            [
                flags, gso, 0, 0, 0, 0, start[0], start[1], field[0], field[1],
            ]
        };
        let partial = [9, 9, 9, 9, 0x12, 0x34, 0x00, 0x07, 0x56, 0x78];
        for (flags, gso, usable) in [
            (0, 0, true),
            (1, 0, true),
            (1, 1, true),
            (1, 0x84, true),
            (1, 3, true),
            (1, 2, false),
            (1, 5, false),
            (0, 0xff, false),
        ] {
            let mut packet = partial;
            assert_eq!(complete(header(flags, gso), &mut packet), usable, "{gso}");
            let is_changed = packet != partial;
            assert_eq!(is_changed, usable && flags == 1);
        }
        assert!(!complete(header(1, 0), &mut [0; 7]));
    }
}
