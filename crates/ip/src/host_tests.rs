use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use eth::{Link, Mac};
use nmio::device::AddressPrefix;
use proptest::prelude::*;

use super::*;
use crate::Ecn;
use crate::icmp::ErrorKind;
use crate::path::Path;
use crate::testing::{
    OURS, PEER, V4, V6, echo, echo_of, fix_header, frame, host, packet, to_us, too_big,
};

#[test]
fn padding_is_removed() {
    let mut bytes = packet(to_us(false), PROTOCOL_UDP, b"12345678");
    bytes.resize(60, 0xee);
    let Input::Udp(packet) = host().receive(frame(&bytes), Instant::ZERO) else {
        panic!("not passed on")
    };
    assert_eq!(packet.payload(), b"12345678");
}

#[test]
fn a_reply_made_in_place_is_valid() {
    for v6 in [false, true] {
        let bytes = packet(to_us(v6), PROTOCOL_TCP, b"segment");
        let Input::Tcp(packet) = host().receive(frame(&bytes), Instant::ZERO) else {
            panic!("not passed on")
        };
        let reply = packet.turn_around(PROTOCOL_TCP);
        let peer = Host::own(Station::new(PEER, &[V4.1.into(), V6.1.into()]), [0; 4])
            .receive(reply, Instant::ZERO);
        let Input::Tcp(packet) = peer else {
            panic!("the peer refuses it: {peer:?}")
        };
        assert_eq!(packet.payload(), b"segment");
    }
}

#[test]
fn a_patched_packet_equals_one_written_from_scratch() {
    for v6 in [false, true] {
        let mut prepared = packet(to_us(v6), PROTOCOL_TCP, b"payload");
        let other = Path {
            addresses: to_us(v6).addresses.reversed(),
            ..to_us(v6)
        };
        other.patch_marked(&mut prepared, PROTOCOL_TCP, 7, Ecn::Ce);
        other.patch_marked(&mut prepared, PROTOCOL_TCP, 7, Ecn::NotEct);
        assert_eq!(prepared, packet(other, PROTOCOL_TCP, b"payload"));
    }
}

#[test]
fn ecn_bits_pass_in_both_directions() {
    for v6 in [false, true] {
        for ecn in [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce] {
            let mut bytes = packet(to_us(v6), PROTOCOL_TCP, b"segment");
            let patched = {
                let mut patched = bytes.clone();
                to_us(v6).patch_marked(&mut patched, PROTOCOL_TCP, 7, ecn);
                patched
            };
            to_us(v6).write_marked(&mut bytes, PROTOCOL_TCP, 7, ecn);
            assert_eq!(patched, bytes);
            let Input::Tcp(packet) = host().receive(frame(&bytes), Instant::ZERO) else {
                panic!("not passed on")
            };
            assert_eq!(packet.ecn(), ecn);
        }
    }
}

#[test]
fn echo_is_answered_in_own_mode_only() {
    for v6 in [false, true] {
        let Input::Reply(reply) = host().receive(frame(&echo(v6)), Instant::ZERO) else {
            panic!("no reply")
        };
        let mut expected = echo(v6);
        let start = to_us(v6).header_len();
        let mut peer = Host::own(Station::new(PEER, &[V4.1.into(), V6.1.into()]), [0; 4]);
        assert!(matches!(
            peer.receive(frame(&reply), Instant::ZERO),
            Input::Dropped
        ));
        assert_eq!(
            peer.counters().unknown_protocol,
            1,
            "valid, and nothing to answer"
        );
        expected[start] = reply[start];
        assert_eq!(reply[start + 4..], expected[start + 4..]);
        let mut shared = Host::shared(host().station.clone(), [0; 4]);
        assert!(matches!(
            shared.receive(frame(&echo(v6)), Instant::ZERO),
            Input::Dropped
        ));
    }
}

#[test]
fn an_echo_of_zeros_is_valid() {
    for v6 in [false, true] {
        let Input::Reply(reply) = host().receive(frame(&echo_of(v6, &[0; 4])), Instant::ZERO)
        else {
            panic!("no reply")
        };
        let mut peer = Host::own(Station::new(PEER, &[V4.1.into(), V6.1.into()]), [0; 4]);
        peer.receive(frame(&reply), Instant::ZERO);
        assert_eq!(peer.counters().bad_checksum, 0);
    }
}

#[test]
fn only_tcp_and_udp_accept_partial_checksums() {
    let start = to_us(true).header_len();
    let mut bytes = echo(true);
    let pseudo = to_us(true)
        .addresses
        .pseudo_sum(PROTOCOL_ICMPV6, bytes.len() - start);
    bytes[start + 2..start + 4].copy_from_slice(&pseudo.fold().to_be_bytes());
    assert!(!host().partial_checksums());
    let mut host = host().with_partial_checksums(true);
    assert!(host.partial_checksums());
    host.receive(frame(&bytes), Instant::ZERO);
    assert_eq!(host.counters().bad_checksum, 1);
}

#[test]
fn an_icmp_error_about_our_segment_is_passed_on() {
    let ours = to_us(false).addresses.reversed();
    let about = Path {
        addresses: ours,
        ..to_us(false)
    };
    let segment = [0, 80, 0x30, 0x39, 1, 2, 3, 4];
    let mut host = host();
    let bytes = too_big(&packet(about, PROTOCOL_TCP, &segment));
    let input = host.receive(frame(&bytes), Instant::ZERO);
    let Input::Error(error) = input else {
        panic!("{input:?}")
    };
    assert_eq!(
        error,
        IcmpError {
            kind: ErrorKind::TooBig { mtu: 1300 },
            addresses: ours,
            protocol: PROTOCOL_TCP,
            src_port: 80,
            dst_port: 12345,
            sequence: 0x0102_0304,
        }
    );
    assert_eq!(host.counters.icmp_errors, 1);
    // The source of the quoted segment is the peer's address, so we cannot have sent it.
    let bytes = too_big(&packet(to_us(false), PROTOCOL_TCP, &segment));
    let input = host.receive(frame(&bytes), Instant::ZERO);
    assert!(matches!(input, Input::Dropped), "{input:?}");
    assert_eq!(host.counters.icmp_errors, 1);
    assert_eq!(drops(&host.counters), [("unknown protocol", 1)]);
}

#[test]
fn only_tags_of_served_vlans_are_accepted() {
    let echo = [8, 0, 0xf7, 0xff, 0, 0, 0, 0];
    let served: [Option<u16>; 4] = [None, Some(5), Some(0xe005), Some(4094)];
    let others = [Some(4), Some(6), Some(0), Some(0xe000), Some(0xfff)];
    for vlan in served.into_iter().chain(others) {
        let mut path = to_us(false);
        path.link.vlan = vlan;
        let station = Station::new(OURS, &[V4.0.into()]).with_vlans(&[5, 4094]);
        let mut host = Host::own(station, [0; 4]);
        match host.receive(frame(&packet(path, PROTOCOL_ICMP, &echo)), Instant::ZERO) {
            Input::Reply(reply) => {
                assert!(served.contains(&vlan), "answered on {vlan:?}");
                let header = eth::Header::parse(&reply).unwrap();
                assert_eq!(header.vlan, vlan, "the reply keeps VLAN and priority");
            }
            Input::Dropped => {
                assert!(others.contains(&vlan), "dropped on {vlan:?}");
                assert_eq!(host.counters.foreign_vlan, 1);
            }
            other => panic!("{other:?}"),
        }
    }
    // By default, frames must be untagged.
    let mut path = to_us(false);
    path.link.vlan = Some(5);
    let mut host = host();
    host.receive(
        frame(&packet(path, PROTOCOL_TCP, b"segment")),
        Instant::ZERO,
    );
    assert_eq!((host.counters.foreign_vlan, host.counters.tcp), (1, 0));
}

/// Returns the reasons for which frames were dropped, with their counts.
fn drops(counters: &Counters) -> Vec<(&'static str, u64)> {
    let drops = counters.drops().into_iter();
    drops.filter(|(_, count)| *count > 0).collect()
}

type Change = (&'static str, fn(&mut Vec<u8>), &'static str);

/// Checks that each change to a good packet causes a drop for the expected reason.
fn check_drops(v6: bool, cases: &[Change]) {
    for (name, change, reason) in cases {
        let mut bytes = packet(to_us(v6), PROTOCOL_TCP, b"segment");
        change(&mut bytes);
        if !v6 && bytes.len() > 34 && *name != "checksum" {
            fix_header(&mut bytes);
        }
        let mut host = host();
        for n in 1..3 {
            let input = host.receive(frame(&bytes), Instant::ZERO);
            assert!(matches!(input, Input::Dropped), "{name}: {input:?}");
            assert_eq!(drops(&host.counters), [(*reason, n)], "{name}");
        }
    }
}

#[test]
fn ipv4_packets_are_dropped_and_counted_by_reason() {
    check_drops(
        false,
        &[
            ("cut link header", |b| b.truncate(13), "unknown ethertype"),
            ("ethertype", |b| b[12] = 9, "unknown ethertype"),
            ("cut header", |b| b.truncate(33), "malformed IP header"),
            ("one byte too few", |b| b[17] += 1, "malformed IP header"),
            ("length", |b| b[17] = 19, "malformed IP header"),
            ("version", |b| b[14] = 0x55, "malformed IP header"),
            ("checksum", |b| b[24] ^= 1, "bad IP or ICMP checksum"),
            ("fragment", |b| b[20] = 0x20, "fragment"),
            ("fragment offset", |b| b[21] = 1, "fragment"),
            ("not ours", |b| b[33] = 77, "not for us"),
            ("to a group", |b| b[0] = 1, "not for us"),
            (
                "another station",
                |b| b[5] = 7,
                "another station's MAC address",
            ),
            ("source", |b| b[26] = 127, "source address is loopback"),
        ],
    );
}

#[test]
fn ipv6_packets_are_dropped_and_counted_by_reason() {
    check_drops(
        true,
        &[
            ("cut header", |b| b.truncate(53), "malformed IP header"),
            ("one byte too few", |b| b[19] += 1, "malformed IP header"),
            ("version", |b| b[14] = 0x50, "malformed IP header"),
            ("not ours", |b| b[53] = 77, "not for us"),
            ("to a group", |b| b[38] = 0xff, "not for us"),
            (
                "another station",
                |b| b[5] = 7,
                "another station's MAC address",
            ),
            ("source", |b| b[22] = 0xff, "source address is a group"),
        ],
    );
}

#[test]
fn a_packet_without_payload_is_passed_on() {
    for v6 in [false, true] {
        let input = host().receive(frame(&packet(to_us(v6), PROTOCOL_TCP, b"")), Instant::ZERO);
        let Input::Tcp(mut packet) = input else {
            panic!("not passed on: {input:?}")
        };
        assert_eq!(packet.payload(), b"");
        let max_len = packet.payload_capacity();
        assert_eq!(max_len, 2048 - to_us(v6).header_len());
        packet.set_payload_len(max_len);
        assert_eq!(packet.payload().len(), max_len);
    }
}

/// Tests that a checksum over only the pseudo-header is recognised (see
/// [`nmio::Capabilities::partial_checksums`]).
#[test]
fn a_partial_checksum_is_recognised() {
    for v6 in [false, true] {
        let mut udp = *b"\x30\x39\x00\x35\x00\x0c\x00\x00data";
        let pseudo = to_us(v6).addresses.pseudo_sum(PROTOCOL_UDP, udp.len());
        let finished = pseudo.add(Sum::of(&udp)).finish_udp();
        let partial = pseudo.fold();
        for (field, expected) in [
            (finished, [true, true, false]),
            (partial, [false, true, true]),
            (partial ^ 1, [false, false, false]),
        ] {
            udp[6..8].copy_from_slice(&field.to_be_bytes());
            let bytes = packet(to_us(v6), PROTOCOL_UDP, &udp);
            let [strict, partial] = [false, true].map(|accept| {
                let mut host = host().with_partial_checksums(accept);
                let Input::Udp(packet) = host.receive(frame(&bytes), Instant::ZERO) else {
                    panic!("not passed on")
                };
                let is_right = packet.checksum_ok(PROTOCOL_UDP, 6);
                let is_partial = packet.has_partial_checksum(PROTOCOL_UDP, 6);
                let error = host.refuse_udp(packet, Instant::ZERO);
                assert_eq!(error.is_some(), is_right, "{field:x}");
                (is_right, is_partial)
            });
            assert_eq!([strict.0, partial.0, partial.1], expected, "{field:x}");
            assert_eq!(strict.1, partial.1, "{field:x}");
        }
    }
}

#[test]
fn a_truncated_icmp_header_is_malformed() {
    for (v6, protocol, kind) in [(false, PROTOCOL_ICMP, 8), (true, PROTOCOL_ICMPV6, 128)] {
        let mut bytes = echo_of(v6, &[0; 4]);
        let start = to_us(v6).header_len();
        assert_eq!((bytes.len() - start, bytes[start]), (8, kind));
        bytes = packet(to_us(v6), protocol, &bytes[start..start + 7]);
        let mut host = host();
        let input = host.receive(frame(&bytes), Instant::ZERO);
        assert!(matches!(input, Input::Dropped), "{input:?}");
        assert_eq!(drops(&host.counters), [("malformed IP header", 1)]);
    }
}

#[test]
fn replies_are_counted() {
    let mut host = host();
    for bytes in [
        echo(false),
        echo(true),
        solicitation(),
        arp_request(),
        arp_request(),
    ] {
        let input = host.receive(frame(&bytes), Instant::ZERO);
        assert!(matches!(input, Input::Reply(_)), "{input:?}");
    }
    let expected = Counters {
        echo_replies: 2,
        discovery_replies: 3,
        ..Counters::default()
    };
    assert_eq!(host.counters, expected);
}

/// Returns the host's counters after one packet. Checks that the packet was either dropped or
/// counted as TCP.
fn counters_after(mut host: Host, bytes: &[u8]) -> Counters {
    let input = host.receive(frame(bytes), Instant::ZERO);
    assert_eq!(
        matches!(input, Input::Dropped),
        host.counters.tcp == 0,
        "{input:?}"
    );
    host.counters
}

#[test]
fn sources_that_cannot_be_answered_are_counted_by_reason() {
    type Counter = fn(&Counters) -> u64;
    let passed: Counter = |c| c.tcp;
    let (group, loopback): (Counter, Counter) = (|c| c.source_group, |c| c.source_loopback);
    let (reserved, subnet): (Counter, Counter) = (|c| c.source_reserved, |c| c.source_subnet);
    let own: Counter = |c| c.source_own;
    for (src, counter) in [
        ("192.0.2.9", passed),
        ("192.0.1.255", passed),
        ("192.0.3.0", passed),
        ("198.51.100.0", passed),
        ("198.51.100.255", passed),
        ("1.0.0.1", passed),
        ("126.0.0.1", passed),
        ("128.0.0.1", passed),
        ("223.255.255.254", passed),
        ("192.0.2.0", subnet),
        ("192.0.2.255", subnet),
        ("192.0.2.1", own),
        ("203.0.113.7", own),
        ("0.0.0.0", reserved),
        ("0.1.2.3", reserved),
        ("127.0.0.1", loopback),
        ("127.255.255.255", loopback),
        ("224.0.0.1", group),
        ("239.255.255.255", group),
        ("240.0.0.1", reserved),
        ("255.255.255.254", reserved),
        ("255.255.255.255", group),
        ("2001:db8::9", passed),
        ("2001:db8::", passed),
        ("fe80::9", passed),
        ("64:ff9b::c000:209", passed),
        ("0:0:0:1::9", passed),
        ("2001:db8::1", own),
        ("::", reserved),
        ("::1", loopback),
        ("::192.0.2.9", reserved),
        ("::ffff:192.0.2.9", reserved),
        ("ff02::1", group),
    ] {
        let src: IpAddr = src.parse().unwrap();
        let addresses = match src {
            IpAddr::V4(src) => Addresses::V4 { src, dst: V4.0 },
            IpAddr::V6(src) => Addresses::V6 { src, dst: V6.0 },
        };
        let path = Path {
            addresses,
            ..to_us(src.is_ipv6())
        };
        let bytes = packet(path, PROTOCOL_TCP, b"segment");
        let station = || {
            let other = Ipv4Addr::new(203, 0, 113, 7).into();
            let addresses = [(V4.0.into(), 24), (other, 32), (V6.0.into(), 64)];
            let addresses = addresses.map(|(address, prefix)| AddressPrefix { address, prefix });
            Station::with_prefixes(OURS, &addresses)
        };
        for host in [
            Host::own(station(), [0; 4]),
            Host::shared(station(), [0; 4]),
        ] {
            let counters = counters_after(host, &bytes);
            assert_eq!(counter(&counters), 1, "{src}: {counters:?}");
        }
    }
}

/// Both addresses of a /31 are host addresses (RFC 3021).
#[test]
fn networks_of_one_or_two_addresses_have_no_broadcast_address() {
    for (prefix, passes) in [(30, false), (31, true), (32, true)] {
        // 192.0.2.0 is the network address of the /30.
        let address = V4.0.into();
        let station = Station::with_prefixes(OURS, &[AddressPrefix { address, prefix }]);
        let addresses = Addresses::V4 {
            src: Ipv4Addr::new(192, 0, 2, 0),
            dst: V4.0,
        };
        let path = Path {
            addresses,
            ..to_us(false)
        };
        let counters = counters_after(
            Host::own(station, [0; 4]),
            &packet(path, PROTOCOL_TCP, b"segment"),
        );
        let expected = (u64::from(passes), u64::from(!passes));
        assert_eq!((counters.tcp, counters.source_subnet), expected);
    }
}

/// Builds a neighbour solicitation for our address, sent to the address's solicited-node group.
fn solicitation() -> Vec<u8> {
    solicitation_on(Path {
        link: Link {
            peer: Mac([0x33, 0x33, 0xff, 0, 0, 1]),
            ..to_us(true).link
        },
        addresses: Addresses::V6 {
            src: V6.1,
            dst: Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 1),
        },
    })
}

fn solicitation_on(path: Path) -> Vec<u8> {
    let mut message = vec![NEIGHBOUR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
    message.extend(V6.0.octets());
    let sum = path.addresses.pseudo_sum(PROTOCOL_ICMPV6, message.len());
    let field = sum.add(Sum::of(&message)).finish();
    message[2..4].copy_from_slice(&field.to_be_bytes());
    let mut bytes = packet(path, PROTOCOL_ICMPV6, &message);
    bytes[14 + 7] = 255;
    bytes
}

/// A neighbour that checks whether we are still reachable sends the solicitation to our own address
/// (RFC 4861, section 7.3).
#[test]
fn a_solicitation_to_our_own_address_is_answered() {
    let bytes = solicitation_on(to_us(true));
    let Input::Reply(reply) = host().receive(frame(&bytes), Instant::ZERO) else {
        panic!("no reply")
    };
    assert_eq!(reply[..6], PEER.0);
    assert_eq!(reply[54], 136, "an advertisement");
    // A TCP segment with the same first byte is not a solicitation.
    let bytes = packet(to_us(true), PROTOCOL_TCP, &[NEIGHBOUR_SOLICITATION; 20]);
    let input = host().receive(frame(&bytes), Instant::ZERO);
    assert!(matches!(input, Input::Tcp(_)), "{input:?}");
}

fn arp_request() -> Vec<u8> {
    let mut bytes = vec![0; 14];
    let link = Link {
        peer: Mac::BROADCAST,
        ..to_us(false).link
    };
    link.write(&mut bytes, ETHERTYPE_ARP);
    bytes.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    bytes.extend([&PEER.0[..], &V4.1.octets(), &[0; 6], &V4.0.octets()].concat());
    bytes
}

/// Frames are accepted only if they are for our own MAC address. The exceptions are broadcast ARP
/// requests and solicitations to our solicited-node group.
#[test]
fn frames_to_other_stations_are_dropped() {
    let segment = |v6| packet(to_us(v6), PROTOCOL_TCP, b"segment");
    let packets = [
        ("IPv4", segment(false), [1, 0, 0, 0]),
        ("IPv6", segment(true), [1, 0, 0, 0]),
        ("echo", echo(false), [1, 0, 0, 0]),
        ("IPv6 echo", echo(true), [1, 0, 0, 0]),
        ("ARP", arp_request(), [1, 1, 0, 0]),
        ("solicitation", solicitation(), [1, 0, 1, 0]),
    ];
    let stations = [
        OURS,
        Mac::BROADCAST,
        Mac([0x33, 0x33, 0xff, 0, 0, 1]),
        Mac([0x33, 0x33, 0, 0, 0, 1]),
    ];
    for (name, mut bytes, accepted) in packets {
        for (dst, accepted) in stations.into_iter().zip(accepted) {
            bytes[..6].copy_from_slice(&dst.0);
            let mut host = host();
            let input = host.receive(frame(&bytes), Instant::ZERO);
            assert_eq!(
                !matches!(input, Input::Dropped),
                accepted == 1,
                "{name} {dst}"
            );
            assert_eq!(host.counters.not_for_us, 1 - accepted, "{name} {dst}");
        }
        for dst in [Mac([2, 0, 0, 0, 0, 2]), Mac([0; 6]), PEER] {
            bytes[..6].copy_from_slice(&dst.0);
            for mut host in [host(), Host::shared(host().station.clone(), [0; 4])] {
                let input = host.receive(frame(&bytes), Instant::ZERO);
                assert!(matches!(input, Input::Dropped), "{name} {dst}");
                assert_eq!(host.counters.other_station, 1, "{name} {dst}");
            }
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = host().receive(frame(&bytes), Instant::ZERO);
    }

    #[test]
    fn no_nearly_valid_packet_causes_a_panic(
        v6: bool,
        protocol: u8,
        payload in prop::collection::vec(any::<u8>(), 0..120),
        at: prop::sample::Index,
        value: u8,
        truncated_len: prop::sample::Index,
    ) {
        let mut bytes = packet(to_us(v6), protocol, &payload);
        let at = at.index(bytes.len());
        bytes[at] = value;
        bytes.truncate(truncated_len.index(bytes.len() + 1));
        let _ = host().receive(frame(&bytes), Instant::ZERO);
    }
}
