use std::time::Duration;

use nmio::{Batch, Pool, PoolLayout, sim};

use super::*;
use crate::HEADER_LEN;

const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER: Mac = Mac([2, 0, 0, 0, 0, 9]);
const OUR_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OUR_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const PEER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);

fn station() -> Station {
    Station::new(OURS, &[OUR_V4.into(), OUR_V6.into()])
}

fn frame(bytes: &[u8]) -> Frame {
    frame_of(2048, bytes)
}

/// Creates a frame that holds `bytes` and has room for `capacity` bytes.
fn frame_of(capacity: usize, bytes: &[u8]) -> Frame {
    let pool = Pool::on_heap(PoolLayout {
        stride: 2048,
        capacity,
        io_frames: 1,
        resident_frames: 0,
    });
    let mut frame = pool.take().unwrap();
    frame.set_len(bytes.len());
    frame.copy_from_slice(bytes);
    frame
}

fn arp_request(target: Ipv4Addr) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN + ARP_LEN];
    Link {
        peer: Mac::BROADCAST,
        own: PEER,
        vlan: None,
    }
    .write(&mut bytes, ETHERTYPE_ARP);
    ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: EthernetAddress(PEER.0),
        source_protocol_addr: Ipv4Addr::new(192, 0, 2, 9),
        target_hardware_addr: EthernetAddress([0; 6]),
        target_protocol_addr: target,
    }
    .emit(&mut ArpPacket::new_unchecked(&mut bytes[HEADER_LEN..]));
    bytes
}

fn solicitation(src: Ipv6Addr, target: Ipv6Addr, hop_limit: u8) -> Vec<u8> {
    let lladdr = (!src.is_unspecified()).then(|| RawHardwareAddress::from_bytes(&PEER.0));
    let repr = Icmpv6Repr::Ndisc(NdiscRepr::NeighborSolicit {
        target_addr: target,
        lladdr,
    });
    solicitation_to(solicited_node(target), src, &repr, hop_limit)
}

fn solicitation_to(dst: Ipv6Addr, src: Ipv6Addr, repr: &Icmpv6Repr<'_>, hop_limit: u8) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN + IPV6_HEADER_LEN + repr.buffer_len()];
    Link {
        peer: group_mac(dst),
        own: PEER,
        vlan: None,
    }
    .write(&mut bytes, ETHERTYPE_IPV6);
    let mut packet = Ipv6Packet::new_unchecked(&mut bytes[HEADER_LEN..]);
    Ipv6Repr {
        src_addr: src,
        dst_addr: dst,
        next_header: IpProtocol::Icmpv6,
        payload_len: repr.buffer_len(),
        hop_limit,
    }
    .emit(&mut packet);
    let caps = ChecksumCapabilities::default();
    repr.emit(
        &src,
        &dst,
        &mut Icmpv6Packet::new_unchecked(packet.payload_mut()),
        &caps,
    );
    bytes
}

fn answer(bytes: &[u8]) -> Option<Frame> {
    let header = Header::parse(bytes)?;
    match header.ethertype {
        ETHERTYPE_ARP => station().answer_arp(frame(bytes), &header),
        _ => station().answer_solicitation(frame(bytes), &header),
    }
}

#[test]
fn an_arp_request_is_answered_byte_for_byte() {
    let reply = answer(&arp_request(OUR_V4)).unwrap();
    #[rustfmt::skip]
    let expected = [
        2, 0, 0, 0, 0, 9,  2, 0, 0, 0, 0, 1,  8, 6,
        0, 1,  8, 0,  6, 4,  0, 2,
        2, 0, 0, 0, 0, 1,  192, 0, 2, 1,
        2, 0, 0, 0, 0, 9,  192, 0, 2, 9,
    ];
    assert_eq!(&reply[..], &expected);
}

#[test]
fn arp_for_other_addresses_is_ignored() {
    assert!(answer(&arp_request(Ipv4Addr::new(192, 0, 2, 2))).is_none());
}

#[test]
fn a_solicitation_is_answered_byte_for_byte() {
    let reply = answer(&solicitation(PEER_V6, OUR_V6, 255)).unwrap();
    #[rustfmt::skip]
    let expected = [
        2, 0, 0, 0, 0, 9,  2, 0, 0, 0, 0, 1,  0x86, 0xdd,
        0x60, 0, 0, 0,  0, 32, 58, 255,
        0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
        0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9,
        // An advertisement with the flags "solicited" and "override".
        136, 0, 0, 0,  0x60, 0, 0, 0,
        0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
        2, 1, 2, 0, 0, 0, 0, 1,
    ];
    let checksum = 14 + 40 + 2;
    assert_eq!(reply[..checksum], expected[..checksum]);
    assert_eq!(reply[checksum + 2..], expected[checksum + 2..]);
    let ip = Ipv6Packet::new_checked(&reply[HEADER_LEN..]).unwrap();
    let icmp = Icmpv6Packet::new_checked(ip.payload()).unwrap();
    assert!(icmp.verify_checksum(&OUR_V6, &PEER_V6));
}

/// A solicitation without the option for the sender's MAC address is shorter than the
/// advertisement. Therefore the frame may be too small for the advertisement.
#[test]
fn an_advertisement_must_fit_the_frame() {
    let repr = Icmpv6Repr::Ndisc(NdiscRepr::NeighborSolicit {
        target_addr: OUR_V6,
        lladdr: None,
    });
    let bytes = solicitation_to(OUR_V6, PEER_V6, &repr, 255);
    let header = Header::parse(&bytes).unwrap();
    let needed = HEADER_LEN + IPV6_HEADER_LEN + ADVERTISEMENT_LEN;
    for (capacity, fits) in [(bytes.len(), false), (needed - 1, false), (needed, true)] {
        let reply = station().answer_solicitation(frame_of(capacity, &bytes), &header);
        assert_eq!(reply.is_some(), fits, "{capacity} bytes");
    }
}

/// A group address cannot be a source (RFC 4291, section 2.7). A solicitation from the unspecified
/// address must not contain a MAC address (RFC 4861, section 7.1.1).
#[test]
fn a_solicitation_with_an_invalid_source_is_refused() {
    assert!(answer(&solicitation(ALL_NODES, OUR_V6, 255)).is_none());
    let repr = Icmpv6Repr::Ndisc(NdiscRepr::NeighborSolicit {
        target_addr: OUR_V6,
        lladdr: Some(RawHardwareAddress::from_bytes(&PEER.0)),
    });
    let group = solicited_node(OUR_V6);
    let from = |src| answer(&solicitation_to(group, src, &repr, 255));
    assert!(from(PEER_V6).is_some());
    assert!(from(Ipv6Addr::UNSPECIFIED).is_none());
}

#[test]
fn the_reply_to_duplicate_address_detection_goes_to_all_nodes() {
    let reply = answer(&solicitation(Ipv6Addr::UNSPECIFIED, OUR_V6, 255)).unwrap();
    assert_eq!(Header::parse(&reply).unwrap().dst, group_mac(ALL_NODES));
    assert_eq!(
        Ipv6Packet::new_checked(&reply[HEADER_LEN..])
            .unwrap()
            .dst_addr(),
        ALL_NODES
    );
}

#[test]
fn solicitations_that_are_forwarded_or_not_for_us_are_refused() {
    assert!(answer(&solicitation(PEER_V6, OUR_V6, 254)).is_none());
    assert!(
        answer(&solicitation(PEER_V6, PEER_V6, 255)).is_none(),
        "not our address"
    );
}

#[test]
fn duplicate_address_detection_must_be_sent_to_the_solicited_node_group() {
    assert_eq!(
        solicited_node(OUR_V6),
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 1)
    );
    let repr = Icmpv6Repr::Ndisc(NdiscRepr::NeighborSolicit {
        target_addr: OUR_V6,
        lladdr: None,
    });
    let direct = solicitation_to(OUR_V6, Ipv6Addr::UNSPECIFIED, &repr, 255);
    assert!(answer(&direct).is_none(), "RFC 4861, section 7.1.1");
    assert!(answer(&solicitation_to(OUR_V6, PEER_V6, &repr, 255)).is_some());
}

/// Writes the correct checksum into a solicitation in an untagged frame.
fn seal(bytes: &mut [u8]) {
    let addresses = (PEER_V6, solicited_node(OUR_V6));
    Icmpv6Packet::new_unchecked(&mut bytes[HEADER_LEN + IPV6_HEADER_LEN..])
        .fill_checksum(&addresses.0, &addresses.1);
}

#[test]
fn no_change_to_a_solicitation_causes_a_panic() {
    let whole = solicitation(PEER_V6, OUR_V6, 255);
    let message = HEADER_LEN + IPV6_HEADER_LEN;
    let mut answered = 0;
    for at in message..whole.len() {
        for value in 0..=255 {
            let mut bytes = whole.clone();
            bytes[at] = value;
            seal(&mut bytes);
            answered += u32::from(answer(&bytes).is_some());
        }
    }
    // For each of these bytes, only one value is valid: type, code, the target's 16 bytes, and the
    // option's length. All other bytes may have any value, except that two option types would need
    // a longer option.
    let fixed = 1 + 1 + 16 + 1;
    let free = (whole.len() - message - fixed) as u32;
    assert_eq!(answered, fixed as u32 + free * 256 - 2);
}

#[test]
fn truncated_and_flipped_messages_never_panic() {
    for whole in [arp_request(OUR_V4), solicitation(PEER_V6, OUR_V6, 255)] {
        for len in 0..whole.len() {
            assert!(answer(&whole[..len]).is_none(), "cut at {len}");
        }
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let _ = answer(&bytes);
        }
    }
}

#[test]
fn every_address_is_announced() {
    let (mut port, mut peer, clock) = sim::link(&sim::LinkConfig::default(), 0);
    station().announce(&mut port);
    port.flush().unwrap();
    clock.advance(Duration::from_millis(1));
    let mut frames = Batch::new();
    peer.receive(&mut frames, 8).unwrap();
    assert_eq!(frames.len(), 2);
    assert_eq!(Header::parse(&frames[0]).unwrap().dst, Mac::BROADCAST);
    assert_eq!(Header::parse(&frames[1]).unwrap().dst, group_mac(ALL_NODES));
    #[rustfmt::skip]
    let expected = [
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff,  2, 0, 0, 0, 0, 1,  8, 6,
        0, 1,  8, 0,  6, 4,  0, 1,
        2, 0, 0, 0, 0, 1,  192, 0, 2, 1,
        0, 0, 0, 0, 0, 0,  192, 0, 2, 1,
    ];
    assert_eq!(&frames[0][..], &expected);
}

#[test]
fn addresses_are_announced_on_every_vlan() {
    let (mut port, mut peer, clock) = sim::link(&sim::LinkConfig::default(), 0);
    station().with_vlans(&[5, 4094]).announce(&mut port);
    port.flush().unwrap();
    clock.advance(Duration::from_millis(1));
    let mut frames = Batch::new();
    peer.receive(&mut frames, 8).unwrap();
    let headers = frames.iter().map(|frame| Header::parse(frame).unwrap());
    let seen: Vec<_> = headers.map(|h| (h.vlan, h.ethertype)).collect();
    let expected =
        [None, Some(5), Some(4094)].map(|vlan| [(vlan, ETHERTYPE_ARP), (vlan, ETHERTYPE_IPV6)]);
    assert_eq!(seen, expected.as_flattened());
    assert_eq!(frames[2][12..18], [0x81, 0, 0, 5, 8, 6]);
    assert_eq!(frames[2][18..], frames[0][14..], "the same message");
    assert_eq!(frames[3][18..], frames[1][14..], "the same message");
}

#[test]
fn a_station_has_its_addresses_and_their_multicast_groups() {
    let station = station();
    assert_eq!(station.mac(), OURS);
    assert_eq!(
        station.addresses(),
        [IpAddr::from(OUR_V4), IpAddr::from(OUR_V6)]
    );
    // The Ethernet group of ff02::1:ff00:1 (RFC 2464, section 7).
    let ours = Mac([0x33, 0x33, 0xff, 0, 0, 1]);
    assert!(station.listens_to(ours));
    assert!(!station.listens_to(Mac([0x33, 0x33, 0xff, 0, 0, 2])));
    assert!(
        !station.listens_to(Mac([0x33, 0x33, 0, 0, 0, 1])),
        "all nodes"
    );
    assert!(!station.listens_to(Mac::BROADCAST));
}

#[test]
fn a_network_reserves_its_first_and_last_address() {
    let address = |last| Ipv4Addr::new(192, 0, 2, last);
    let with = |prefix| {
        let address = address(130).into();
        Station::with_prefixes(OURS, &[AddressPrefix { address, prefix }])
    };
    let in_network = |prefix| (0..=255).filter(move |n| with(prefix).is_on_link(address(*n)));
    let reserved =
        |prefix| (0..=255).filter(move |n| with(prefix).is_reserved_on_link(address(*n)));
    assert!(in_network(25).eq(128..=255));
    assert!(reserved(25).eq([128, 255]));
    assert!(in_network(30).eq(128..=131));
    assert!(reserved(30).eq([128, 131]));
    // A /31 and a /32 reserve no addresses (RFC 3021).
    assert!(in_network(31).eq([130, 131]));
    assert_eq!(reserved(31).count(), 0);
    assert!(in_network(32).eq([130]));
    assert_eq!(reserved(32).count(), 0);
    assert!(in_network(0).eq(0..=255));
    assert!(!with(25).is_on_link(Ipv4Addr::new(192, 0, 3, 130)));
}

#[test]
fn vlan_membership_ignores_the_priority_bits() {
    let station = station().with_vlans(&[5, 0]);
    for (tag, ours) in [
        (None, true),
        (Some(5), true),
        (Some(0xe005), true),
        (Some(0xe000), true),
        (Some(4), false),
        (Some(7), false),
        (Some(0x0fff), false),
    ] {
        assert_eq!(station.is_on_vlan(tag), ours, "{tag:?}");
    }
    assert!(!self::station().is_on_vlan(Some(0)));
}

#[test]
fn the_reply_to_duplicate_address_detection_has_the_all_nodes_mac_address() {
    let reply = answer(&solicitation(Ipv6Addr::UNSPECIFIED, OUR_V6, 255)).unwrap();
    assert_eq!(reply[..6], [0x33, 0x33, 0, 0, 0, 1]);
}
