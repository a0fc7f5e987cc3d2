use std::net::{Ipv4Addr, Ipv6Addr};

use eth::{Mac, Station};
use nmio::sim::Sink;

use super::*;
use crate::testing::{
    OURS, PEER, V4, V6, datagram, frame, host, packet, to_us, with_extensions, with_options,
};
use crate::{Host, Input, PROTOCOL_ICMPV6, PROTOCOL_TCP, Path};

/// Returns the host's answer to a UDP datagram for a port that is not served.
fn refuse(host: &mut Host, bytes: &[u8], now: Instant) -> Option<Vec<u8>> {
    match host.receive(frame(bytes), now) {
        Input::Udp(packet) => Some(host.refuse_udp(packet, now)?.to_vec()),
        other => panic!("not passed on: {other:?}"),
    }
}

/// Returns the host's reply, if any, to a packet that must not reach a transport.
fn answer(host: &mut Host, bytes: &[u8]) -> Option<Vec<u8>> {
    match host.receive(frame(bytes), Instant::ZERO) {
        Input::Reply(frame) => Some(frame.to_vec()),
        Input::Dropped => None,
        other => panic!("passed on: {other:?}"),
    }
}

/// Builds, without the code under test, the expected error that quotes `quoted`. `start` holds the
/// error's type and code.
fn error(v6: bool, start: [u8; 2], pointer: u8, quoted: &[u8]) -> Vec<u8> {
    let back = Path {
        link: eth::Link {
            peer: PEER,
            own: OURS,
            vlan: None,
        },
        addresses: to_us(v6).addresses.reversed(),
    };
    let mut message = vec![start[0], start[1], 0, 0, 0, 0, 0, pointer];
    message.extend_from_slice(quoted);
    let (protocol, pseudo) = if v6 {
        let sum = back.addresses.pseudo_sum(PROTOCOL_ICMPV6, message.len());
        (PROTOCOL_ICMPV6, sum)
    } else {
        (PROTOCOL_ICMP, Sum::ZERO)
    };
    let field = pseudo.add(Sum::of(&message)).finish();
    message[2..4].copy_from_slice(&field.to_be_bytes());
    packet(back, protocol, &message)
}

#[test]
fn a_port_unreachable_error_has_the_expected_bytes() {
    let bytes = datagram(false, b"hello");
    #[rustfmt::skip]
    let expected = [
        2, 0, 0, 0, 0, 9,  2, 0, 0, 0, 0, 1,  8, 0,
        0x45, 0, 0, 61,  0, 0, 0x40, 0,  64, 1, 0xb6, 0xb5,  192, 0, 2, 1,  192, 0, 2, 9,
        3, 3, 0x81, 0x26,  0, 0, 0, 0,
        0x45, 0, 0, 33,  0, 0, 0x40, 0,  64, 17, 0xb6, 0xc1,  192, 0, 2, 9,  192, 0, 2, 1,
        0x30, 0x39, 0, 53,  0, 13, 0x07, 0x89,  b'h', b'e', b'l', b'l', b'o',
    ];
    let reply = refuse(&mut host(), &bytes, Instant::ZERO).unwrap();
    assert_eq!(reply, expected);
    for v6 in [false, true] {
        let bytes = datagram(v6, b"hello");
        let start = if v6 { [1, 4] } else { [3, 3] };
        let reply = refuse(&mut host(), &bytes, Instant::ZERO).unwrap();
        assert_eq!(reply, error(v6, start, 0, &bytes[14..]));
    }
}

#[test]
fn every_error_that_is_sent_is_counted() {
    let mut host = host();
    for sent in 1..4 {
        assert!(refuse(&mut host, &datagram(false, b"hello"), Instant::ZERO).is_some());
        assert_eq!(host.counters().errors_sent, sent);
    }
}

/// The quote must equal the received bytes, including options (RFC 1122, section 3.2.2).
#[test]
fn an_error_quotes_options_and_extension_headers() {
    let options = [148, 4, 0, 0];
    let bytes = with_options(datagram(false, b"hello"), &options);
    let mut padded = bytes.clone();
    padded.resize(60, 0xee);
    let reply = refuse(&mut host(), &padded, Instant::ZERO).unwrap();
    assert_eq!(reply, error(false, [3, 3], 0, &bytes[14..]));
    let extension: &[u8] = &[0, 0, 1, 4, 0, 0, 0, 0];
    let bytes = with_extensions(datagram(true, b"hello"), &[(0, extension), (60, extension)]);
    let reply = refuse(&mut host(), &bytes, Instant::ZERO).unwrap();
    assert_eq!(reply, error(true, [1, 4], 0, &bytes[14..]));
}

#[test]
fn an_icmp_error_quotes_only_the_start_of_a_long_datagram() {
    for (v6, start, longest) in [(false, [3, 3], 576), (true, [1, 4], 1280)] {
        let bytes = datagram(v6, &[7; 1400]);
        let reply = refuse(&mut host(), &bytes, Instant::ZERO).unwrap();
        let header_len = reply.len() - 14 - if v6 { 1232 } else { 548 };
        assert_eq!(reply.len(), 14 + longest);
        let quoted = &bytes[14..][..longest - header_len];
        assert_eq!(reply, error(v6, start, 0, quoted));
    }
}

#[test]
fn an_unknown_protocol_is_reported_with_an_icmp_error() {
    let bytes = packet(to_us(false), 132, b"SCTP, say");
    let reply = answer(&mut host(), &bytes).unwrap();
    assert_eq!(reply, error(false, [3, 2], 0, &bytes[14..]));
    // ICMPv6's pointer is the offset of the field with the unknown protocol (RFC 4443, section
    // 3.4).
    let bytes = packet(to_us(true), 132, b"SCTP, say");
    let reply = answer(&mut host(), &bytes).unwrap();
    assert_eq!(reply, error(true, [4, 1], 6, &bytes[14..]));
    let extension: &[u8] = &[0, 0, 1, 4, 0, 0, 0, 0];
    let bytes = with_extensions(bytes, &[(0, extension), (60, extension)]);
    let reply = answer(&mut host(), &bytes).unwrap();
    assert_eq!(reply, error(true, [4, 1], 48, &bytes[14..]));
    // Next header 59 means that there is no payload, so there is no unknown protocol to report (RFC
    // 8200, section 4.7).
    let bytes = packet(to_us(true), 59, b"");
    assert_eq!(answer(&mut host(), &bytes), None);
}

/// Tap devices and VALE switches deliver such packets.
#[test]
fn an_error_quotes_a_packet_of_the_maximum_length() {
    let sink = Sink::new(65_535, 1, 0);
    let options = [1, 1, 1, 0];
    let of = |v6, len| packet(to_us(v6), 253, &vec![7; len]);
    for (v6, bytes) in [
        (false, of(false, 65_515)),
        (false, with_options(of(false, 65_511), &options)),
        (true, of(true, 65_495)),
    ] {
        let input = host().receive(sink.frame_from(&bytes), Instant::ZERO);
        let Input::Reply(reply) = input else {
            panic!("no error: {input:?}");
        };
        let (start, pointer, quoted) = if v6 {
            ([4, 1], 6, 1_232)
        } else {
            ([3, 2], 0, 548)
        };
        assert_eq!(reply[..], error(v6, start, pointer, &bytes[14..][..quoted]));
    }
}

#[test]
fn a_host_without_tcp_reports_it_as_an_unknown_protocol() {
    for (v6, start, pointer) in [(false, [3, 2], 0), (true, [4, 1], 6)] {
        let bytes = packet(to_us(v6), PROTOCOL_TCP, b"segment");
        let mut host = host();
        let Input::Tcp(packet) = host.receive(frame(&bytes), Instant::ZERO) else {
            panic!("not passed on");
        };
        let reply = host.refuse_tcp(packet, Instant::ZERO).unwrap();
        assert_eq!(reply[..], error(v6, start, pointer, &bytes[14..]));
        assert_eq!(host.counters().tcp_not_served, 1);
    }
}

/// A routing header with segments left causes an error, and so do most unknown options (RFC 8200,
/// sections 4.2 and 4.4). The type of the first option forbids an error.
#[test]
fn routing_headers_and_most_unknown_options_cause_errors() {
    let option = |kind| [0, 0, kind, 4, 0, 0, 0, 0];
    let routing = [0, 0, 4, 1, 0, 0, 0, 0];
    for (kind, extension, code) in [
        (60, option(0x45), None),
        (60, option(0x85), Some(2)),
        (60, option(0xc5), Some(2)),
        (43, routing, Some(0)),
    ] {
        let bytes = with_extensions(datagram(true, b"hello"), &[(kind, &extension)]);
        let expected = code.map(|code| error(true, [4, code], 42, &bytes[14..]));
        assert_eq!(answer(&mut host(), &bytes), expected);
    }
}

/// An ICMPv6 error must not cause another error (RFC 4443, section 2.4 e.1).
#[test]
fn an_icmpv6_error_after_extension_headers_causes_no_error() {
    let option = [0, 0, 0x85, 4, 0, 0, 0, 0];
    let routing = [0, 0, 4, 1, 0, 0, 0, 0];
    for (kind, extension, code) in [(60, option, 2), (43, routing, 0)] {
        for (icmp_type, is_error) in [(1, true), (127, true), (128, false)] {
            let message = [icmp_type, 0, 0, 0];
            let bytes = packet(to_us(true), PROTOCOL_ICMPV6, &message);
            let bytes = with_extensions(bytes, &[(kind, &extension)]);
            let expected = (!is_error).then(|| error(true, [4, code], 42, &bytes[14..]));
            assert_eq!(answer(&mut host(), &bytes), expected, "type {icmp_type}");
        }
        let hidden = [(kind, &extension[..]), (60, &[0, 0, 1, 4, 0, 0, 0, 0])];
        let bytes = with_extensions(datagram(true, b"hello"), &hidden);
        assert_eq!(answer(&mut host(), &bytes), None, "another header follows");
    }
}

/// Checks that packets such as broadcasts and those with an invalid source cause no error (RFC
/// 1122, section 3.2.2; RFC 4443, section 2.4 e).
#[test]
fn packets_that_must_not_cause_icmp_errors_cause_none() {
    let broken: [fn(&mut Vec<u8>); 3] = [
        // A sender that uses source port 0 expects no answer.
        |bytes| bytes[34..36].fill(0),
        |bytes| bytes[40] ^= 1,
        |bytes| bytes.truncate(14 + 20 + 4),
    ];
    for change in broken {
        let mut bytes = datagram(false, b"hello");
        change(&mut bytes);
        let len = (bytes.len() - 14) as u8;
        bytes[17] = len;
        crate::testing::fix_header(&mut bytes);
        let mut host = host();
        assert_eq!(refuse(&mut host, &bytes, Instant::ZERO), None);
        assert_eq!(
            (host.counters().udp_not_served, host.counters().errors_sent),
            (1, 0)
        );
    }
    let mut fragment = packet(to_us(false), 132, b"SCTP, say");
    fragment[20] = 0x20;
    crate::testing::fix_header(&mut fragment);
    let mut broadcast = packet(to_us(false), 132, b"SCTP, say");
    broadcast[..6].copy_from_slice(&Mac::BROADCAST.0);
    let mut unanswerable = packet(to_us(false), 132, b"SCTP, say");
    unanswerable[26] = 0;
    crate::testing::fix_header(&mut unanswerable);
    for bytes in [fragment, broadcast, unanswerable] {
        let mut host = host();
        assert_eq!(answer(&mut host, &bytes), None);
        assert_eq!(host.counters().errors_sent, 0);
    }
}

#[test]
fn ipv4_allows_a_missing_udp_checksum() {
    for (v6, answers) in [(false, true), (true, false)] {
        let mut bytes = datagram(v6, b"hello");
        let at = to_us(v6).header_len() + 6;
        bytes[at..at + 2].fill(0);
        assert_eq!(
            refuse(&mut host(), &bytes, Instant::ZERO).is_some(),
            answers
        );
    }
}

#[test]
fn the_kernel_sends_the_errors_in_shared_mode() {
    let mut host = Host::shared(host().station().clone(), [0; 4]);
    assert_eq!(
        refuse(&mut host, &datagram(false, b"hello"), Instant::ZERO),
        None
    );
    assert_eq!(answer(&mut host, &packet(to_us(true), 132, b"SCTP")), None);
    let counters = host.counters();
    assert_eq!((counters.udp_not_served, counters.unknown_protocol), (1, 1));
}

#[test]
fn errors_are_rate_limited_by_sender() {
    let from = |peer: IpAddr, host: &mut Host, now| {
        let addresses = match peer {
            IpAddr::V4(src) => Addresses::V4 { src, dst: V4.0 },
            IpAddr::V6(src) => Addresses::V6 { src, dst: V6.0 },
        };
        let path = Path {
            addresses,
            ..to_us(peer.is_ipv6())
        };
        let input = host.receive(frame(&packet(path, 132, b"SCTP")), now);
        matches!(input, Input::Reply(_))
    };
    let v4 = |n: u32| IpAddr::V4(Ipv4Addr::from_bits(0xc633_6400 + n));
    let v6 = |net: u16, n: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, net, 0, 0, 0, n));
    let mut host = Host::own(
        Station::new(OURS, &[V4.0.into(), V6.0.into()]),
        [1, 2, 3, 4],
    );
    let start = Instant::from_millis(60_000);
    let sent = |peers: &mut dyn FnMut(u16) -> IpAddr, host: &mut Host, now| {
        (0..100).filter(|n| from(peers(*n), host, now)).count()
    };
    assert_eq!(sent(&mut |_| v4(1), &mut host, start), 6);
    // Each IPv4 sender has its own limit. An IPv6 /64 counts as one sender.
    assert_eq!(sent(&mut |_| v4(2), &mut host, start), 6);
    assert_eq!(sent(&mut |n| v6(1, n + 9), &mut host, start), 6);
    assert_eq!(sent(&mut |n| v6(2, n + 9), &mut host, start), 6);
    // One more error is allowed for each second that passes, up to six.
    let later = |millis: u64| Instant::from_millis(60_000 + millis);
    assert_eq!(sent(&mut |_| v4(1), &mut host, later(999)), 0);
    assert_eq!(sent(&mut |_| v4(1), &mut host, later(1_000)), 1);
    assert_eq!(sent(&mut |_| v4(1), &mut host, later(3_500)), 2);
    assert_eq!(sent(&mut |_| v4(1), &mut host, later(900_000)), 6);
    // The number of buckets limits a worker's errors, no matter how many senders there are.
    let mut flood = 0;
    for n in 0..10_000 {
        flood += u32::from(from(v4(n), &mut host, later(2_000_000)));
    }
    assert!(flood > 1_000 && flood <= 256 * 6, "{flood}");
}
