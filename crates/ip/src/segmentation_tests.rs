use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use eth::{Link, Mac, Station};
use nmio::{Pool, PoolLayout};
use proptest::prelude::*;

use super::*;
use crate::{Addresses, Host, Input, Path};

const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER: Mac = Mac([2, 0, 0, 0, 0, 9]);
const V4: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 9), Ipv4Addr::new(192, 0, 2, 1)];
const V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
];
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;

/// Returns a path from the peer to us.
fn path(v6: bool, vlan: Option<u16>) -> Path {
    let addresses = if v6 {
        Addresses::V6 {
            src: V6[0],
            dst: V6[1],
        }
    } else {
        Addresses::V4 {
            src: V4[0],
            dst: V4[1],
        }
    };
    let link = Link {
        peer: OURS,
        own: PEER,
        vlan,
    };
    Path { link, addresses }
}

fn receive(host: &mut Host, pool: &Pool, bytes: &[u8]) -> Input {
    let mut frame = pool.take().unwrap();
    frame.set_len(bytes.len());
    frame.copy_from_slice(bytes);
    host.receive(frame, nmio::Instant::ZERO)
}

/// Returns a super-segment with payload `bytes[range]`. `tcp` holds the sequence number and control
/// bits. If it is `None`, the segments are UDP datagrams.
fn super_segment(
    path: &Path,
    tcp: Option<(u32, u8)>,
    segment_len: u16,
    bytes: &Arc<[u8]>,
    range: std::ops::Range<usize>,
) -> SuperSegment {
    let gso_type = match (tcp, path.addresses) {
        (None, _) => GsoType::Udp,
        (Some(_), Addresses::V4 { .. }) => GsoType::TcpV4,
        (Some(_), Addresses::V6 { .. }) => GsoType::TcpV6,
    };
    let (protocol, header_len) = match tcp {
        Some(_) => (PROTOCOL_TCP, TCP_HEADER),
        None => (PROTOCOL_UDP, UDP_HEADER),
    };
    let at = path.header_len();
    let len = header_len + range.len();
    let mut packet = SuperSegment::new(gso_type, segment_len, (at + header_len, at), bytes, range);
    let headers = packet.headers_mut();
    path.write(headers, protocol, len);
    let pseudo = path
        .addresses
        .pseudo_sum(protocol, len)
        .fold()
        .to_be_bytes();
    if let Some((seq, control)) = tcp {
        headers[at + TCP_SEQ_AT..][..4].copy_from_slice(&seq.to_be_bytes());
        headers[at + 12] = 5 << 4;
        headers[at + TCP_CONTROL_AT] = control;
        headers[at + TCP_CHECKSUM_AT..][..2].copy_from_slice(&pseudo);
    } else {
        headers[at + UDP_LENGTH_AT..][..2].copy_from_slice(&(len as u16).to_be_bytes());
        headers[at + UDP_CHECKSUM_AT..][..2].copy_from_slice(&pseudo);
    }
    packet
}

/// Only the first segment keeps CWR, and only the last segment keeps PSH and FIN. All segments keep
/// the other control bits.
#[test]
fn each_segment_has_its_own_control_bits() {
    for v6 in [false, true] {
        let path = path(v6, None);
        let bytes: Arc<[u8]> = [7; 30].into();
        let packet = super_segment(&path, Some((1, 0xff)), 10, &bytes, 0..30);
        let control = [0, 1, 2].map(|index| {
            let mut frame = Vec::new();
            write_segment(&packet, index, &mut frame);
            frame[path.header_len() + 13]
        });
        assert_eq!(control, [0b1111_0110, 0b0111_0110, 0b0111_1111]);
    }
}

proptest! {
    /// A host accepts every segment, and the concatenated data equals the sent bytes.
    #[test]
    fn a_host_accepts_every_segment_of_a_super_segment(
        v6: bool,
        vlan: Option<u16>,
        tcp: Option<(u32, u8)>,
        segment_len in 1u16..1400,
        len in 1usize..9000,
        patch in 0usize..300,
    ) {
        let path = path(v6, vlan);
        let bytes: Arc<[u8]> = (0..len + 10).map(|i| (i * 7) as u8).collect::<Vec<_>>().into();
        let mut packet = super_segment(&path, tcp, segment_len, &bytes, 5..5 + len);
        let mut expected = bytes[5..5 + len].to_vec();
        let patch_len = len.saturating_sub(patch).min(30);
        let patch_at = patch.min(len - patch_len);
        packet.patch_mut(patch_at, patch_len).fill(0xaa);
        expected[patch_at..patch_at + patch_len].fill(0xaa);

        let served: Vec<u16> = vlan.iter().map(|tag| tag & eth::Header::VLAN_ID).collect();
        let station = Station::new(OURS, &[V4[1].into(), V6[1].into()]).with_vlans(&served);
        let mut host = Host::own(station, [0; 4]);
        let layout = PoolLayout { stride: 2048, capacity: 2048, io_frames: 1, resident_frames: 0 };
        let pool = Pool::on_heap(layout);
        let mut data = Vec::new();
        for index in 0..packet.segments() {
            let mut frame = b"before".to_vec();
            write_segment(&packet, index, &mut frame);
            let frame = &frame[6..];
            if !v6 {
                let id = &frame[path.link.header_len() + 4..][..2];
                prop_assert_eq!(id, (index as u16).to_be_bytes());
            }
            let is_last = index + 1 == packet.segments();
            match receive(&mut host, &pool, frame) {
                Input::Tcp(segment) => {
                    let (seq, control) = tcp.unwrap();
                    prop_assert!(segment.checksum_ok(PROTOCOL_TCP, TCP_CHECKSUM_AT));
                    let header = segment.payload();
                    let expected = seq.wrapping_add(data.len() as u32);
                    prop_assert_eq!(&header[TCP_SEQ_AT..8], expected.to_be_bytes());
                    let mut expected_control = control;
                    if !is_last { expected_control &= !TCP_FIN_PSH; }
                    if index > 0 { expected_control &= !TCP_CWR; }
                    prop_assert_eq!(header[TCP_CONTROL_AT], expected_control);
                    data.extend_from_slice(&header[TCP_HEADER..]);
                }
                Input::Udp(datagram) => {
                    prop_assert!(tcp.is_none());
                    prop_assert!(datagram.checksum_ok(PROTOCOL_UDP, UDP_CHECKSUM_AT));
                    let header = datagram.payload();
                    let udp_len = u16::from_be_bytes([header[UDP_LENGTH_AT], header[UDP_LENGTH_AT + 1]]);
                    prop_assert_eq!(usize::from(udp_len), header.len());
                    data.extend_from_slice(&header[UDP_HEADER..]);
                }
                other => prop_assert!(false, "{other:?}"),
            }
            let full = data.len() == (index + 1) * usize::from(segment_len);
            prop_assert!(full || is_last);
        }
        prop_assert_eq!(data, expected);
    }
}
