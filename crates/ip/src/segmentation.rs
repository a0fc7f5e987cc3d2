//! Splits super-segments into segments in software, as a kernel or a device would.

use eth::ETHERTYPE_IPV4;
use nmio::SuperSegment;
use nmio::super_segment::GsoType;

use crate::{IPV4_HEADER_LEN, IPV6_HEADER_LEN, PROTOCOL_TCP, PROTOCOL_UDP};
use nmio::checksum::Sum;

/// Offsets of TCP's sequence number, control bits and checksum.
const TCP_SEQ_AT: usize = 4;
const TCP_CONTROL_AT: usize = 13;
const TCP_CHECKSUM_AT: usize = 16;
/// The control bits FIN and PSH, and CWR. Only the last segment keeps FIN and PSH. Only the first
/// segment keeps CWR.
const TCP_FIN_PSH: u8 = 1 | 8;
const TCP_CWR: u8 = 128;
/// Offsets of UDP's length and checksum.
const UDP_LENGTH_AT: usize = 4;
const UDP_CHECKSUM_AT: usize = 6;

/// Appends segment number `index` of a super-segment to `frame`, as a complete frame. Adjusts the
/// lengths, sequence number, control bits, IPv4 identification and checksums for this segment.
///
/// This function is for ports where no kernel or device splits super-segments, such as those of
/// [`nmio::sim`].
///
/// # Panics
/// Panics if the super-segment has no segment with this index, or if its headers are not valid
/// packet headers.
pub fn write_segment(packet: &SuperSegment, index: usize, frame: &mut Vec<u8>) {
    let begin = frame.len();
    let at = packet.transport_at();
    let len = packet.segment_len();
    let [headers, payload @ ..] = packet.gather();
    frame.extend_from_slice(headers);
    let mut skip = index * len;
    let mut remaining = len;
    for slice in payload {
        let from = skip.min(slice.len());
        let to = (from + remaining).min(slice.len());
        frame.extend_from_slice(&slice[from..to]);
        skip -= from;
        remaining -= to - from;
    }
    let frame = &mut frame[begin..];
    assert!(
        frame.len() > headers.len(),
        "the super-segment has this segment"
    );

    let link = eth::Header::parse(frame).expect("a frame has an Ethernet header");
    let (network, transport) = frame[link.len()..].split_at_mut(at - link.len());
    let mut sum = if link.ethertype == ETHERTYPE_IPV4 {
        fix_ipv4(network, transport.len(), index);
        Sum::of(&network[12..IPV4_HEADER_LEN])
    } else {
        network[4..6].copy_from_slice(&(transport.len() as u16).to_be_bytes());
        Sum::of(&network[8..IPV6_HEADER_LEN])
    };
    let is_last = index + 1 == packet.segments();
    let (protocol, checksum_at) = match packet.gso_type() {
        GsoType::TcpV4 | GsoType::TcpV6 => {
            fix_tcp(transport, index, index * len, is_last);
            (PROTOCOL_TCP, TCP_CHECKSUM_AT)
        }
        GsoType::Udp => {
            let len = transport.len() as u16;
            transport[UDP_LENGTH_AT..][..2].copy_from_slice(&len.to_be_bytes());
            (PROTOCOL_UDP, UDP_CHECKSUM_AT)
        }
    };
    transport[checksum_at..][..2].fill(0);
    sum = sum
        .word(u16::from(protocol))
        .dword(transport.len() as u32)
        .add(Sum::of(transport));
    let checksum = match packet.gso_type() {
        GsoType::TcpV4 | GsoType::TcpV6 => sum.finish(),
        GsoType::Udp => sum.finish_udp(),
    };
    transport[checksum_at..][..2].copy_from_slice(&checksum.to_be_bytes());
}

fn fix_ipv4(header: &mut [u8], payload_len: usize, index: usize) {
    let total_len = (IPV4_HEADER_LEN + payload_len) as u16;
    header[2..4].copy_from_slice(&total_len.to_be_bytes());
    let id = u16::from_be_bytes([header[4], header[5]]).wrapping_add(index as u16);
    header[4..6].copy_from_slice(&id.to_be_bytes());
    header[10..12].fill(0);
    let checksum = Sum::of(header).finish();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn fix_tcp(header: &mut [u8], index: usize, offset: usize, is_last: bool) {
    let seq: &mut [u8; 4] = header[TCP_SEQ_AT..]
        .first_chunk_mut()
        .expect("a segment holds its header");
    *seq = u32::from_be_bytes(*seq)
        .wrapping_add(offset as u32)
        .to_be_bytes();
    if index > 0 {
        header[TCP_CONTROL_AT] &= !TCP_CWR;
    }
    if !is_last {
        header[TCP_CONTROL_AT] &= !TCP_FIN_PSH;
    }
}

#[cfg(test)]
#[path = "segmentation_tests.rs"]
mod tests;
