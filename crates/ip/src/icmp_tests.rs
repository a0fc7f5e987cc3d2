use super::*;
use crate::Path;
use crate::testing::{packet, to_us};

const TRANSPORT: [u8; 8] = [0, 80, 0x30, 0x39, 1, 2, 3, 4];

/// Builds an ICMP error that consists of `header` and a quoted packet from us, and parses the
/// error. `change` first modifies the quoted packet, which starts with its IP header.
fn read(v6: bool, header: [u8; 8], change: fn(&mut Vec<u8>)) -> Option<IcmpError> {
    let about = Path {
        addresses: to_us(v6).addresses.reversed(),
        ..to_us(v6)
    };
    let mut quoted = packet(about, PROTOCOL_TCP, &TRANSPORT).split_off(eth::HEADER_LEN);
    change(&mut quoted);
    let protocol = if v6 { PROTOCOL_ICMPV6 } else { PROTOCOL_ICMP };
    parse_error(&[&header[..], &quoted].concat(), protocol)
}

#[test]
fn every_kind_of_icmp_error_is_parsed() {
    let too_big = |mtu| Some(ErrorKind::TooBig { mtu });
    let unreachable = |code| Some(ErrorKind::Unreachable(code));
    for (v6, header, kind) in [
        (false, [3, 4, 0, 0, 9, 9, 0x05, 0x14], too_big(1300)),
        (false, [3, 0, 0, 0, 0, 0, 5, 5], unreachable(0)),
        (false, [3, 13, 0, 0, 0, 0, 5, 5], unreachable(13)),
        (
            false,
            [11, 1, 0, 0, 0, 0, 0, 0],
            Some(ErrorKind::TimeExceeded),
        ),
        (
            false,
            [12, 2, 0, 0, 0, 0, 0, 0],
            Some(ErrorKind::ParameterProblem),
        ),
        (false, [5, 1, 0, 0, 192, 0, 2, 7], None),
        (false, [8, 0, 0, 0, 0, 0, 0, 0], None),
        (true, [2, 0, 0, 0, 0, 1, 5, 0], too_big(0x1_0500)),
        (true, [1, 4, 0, 0, 0, 0, 5, 5], unreachable(4)),
        (
            true,
            [3, 0, 0, 0, 0, 0, 0, 0],
            Some(ErrorKind::TimeExceeded),
        ),
        (
            true,
            [4, 1, 0, 0, 0, 0, 0, 6],
            Some(ErrorKind::ParameterProblem),
        ),
        (true, [128, 0, 0, 0, 0, 0, 0, 0], None),
    ] {
        let expected = kind.map(|kind| IcmpError {
            kind,
            addresses: to_us(v6).addresses.reversed(),
            protocol: PROTOCOL_TCP,
            src_port: 80,
            dst_port: 0x3039,
            sequence: 0x0102_0304,
        });
        assert_eq!(read(v6, header, |_| ()), expected, "{header:?}");
    }
}

/// We never send packets of other protocols, fragments, or packets with options or a wrong version.
/// An error whose quote is truncated is ignored too.
#[test]
fn an_error_about_a_packet_that_we_cannot_have_sent_is_ignored() {
    const V4: [u8; 8] = [3, 1, 0, 0, 0, 0, 0, 0];
    const V6: [u8; 8] = [1, 4, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        read(false, V4, |b| b[9] = 17).unwrap().protocol,
        PROTOCOL_UDP
    );
    assert_eq!(
        read(true, V6, |b| b[6] = 17).unwrap().protocol,
        PROTOCOL_UDP
    );
    assert_eq!(read(false, V4, |b| b[9] = 1), None, "ICMP");
    assert_eq!(read(true, V6, |b| b[6] = 58), None, "ICMPv6");
    assert_eq!(read(false, V4, |b| b[0] = 0x46), None, "options");
    assert_eq!(read(false, V4, |b| b[6] = 0x20), None, "first fragment");
    assert_eq!(read(false, V4, |b| b[7] = 1), None, "later fragment");
    assert_eq!(read(true, V6, |b| b[0] = 0x40), None, "version");
    for (v6, header) in [(false, V4), (true, V6)] {
        assert_eq!(
            read(v6, header, |b| b.truncate(b.len() - 1)),
            None,
            "truncated"
        );
    }
}

#[test]
fn a_truncated_error_is_ignored() {
    for (v6, protocol, kind) in [(false, PROTOCOL_ICMP, 3), (true, PROTOCOL_ICMPV6, 2)] {
        let about = packet(to_us(v6), PROTOCOL_TCP, &TRANSPORT);
        let message = [&[kind, 4, 0, 0, 0, 0, 5, 0], &about[eth::HEADER_LEN..]].concat();
        assert!(parse_error(&message, protocol).is_some());
        for len in 0..message.len() {
            assert_eq!(parse_error(&message[..len], protocol), None, "{len} bytes");
        }
    }
}
