use nmio::Instant;
use proptest::prelude::*;

use super::*;
use crate::host::Counters;
use crate::testing::{echo, fix_header, frame, host, packet, to_us, with_extensions, with_options};
use crate::{Input, PROTOCOL_TCP, PROTOCOL_UDP};

/// A record route option for one address, followed by the end of options.
const RECORD_ROUTE: [u8; 8] = [7, 7, 4, 0, 0, 0, 0, 0];
const TIMESTAMP: [u8; 8] = [68, 8, 5, 0, 0, 0, 0, 0];
const ROUTER_ALERT: [u8; 4] = [148, 4, 0, 0];

/// An extension header with six bytes of padding.
const PADDING: [u8; 8] = [0, 0, 1, 4, 0, 0, 0, 0];
/// The fragment header of an atomic fragment.
const ATOMIC: [u8; 8] = [0, 0, 0, 0, 1, 2, 3, 4];
/// The fragment header of an atomic fragment, with all reserved bits set (RFC 8200, section 4.5).
/// The second byte is reserved here, but it is the length in other extension headers.
const RESERVED: [u8; 8] = [0, 255, 0, 6, 1, 2, 3, 4];
/// Fragment headers of a first and a last fragment.
const FIRST: [u8; 8] = [0, 0, 0, 1, 1, 2, 3, 4];
const LAST: [u8; 8] = [0, 0, 0, 8, 1, 2, 3, 4];
/// A routing header of type 2 with no segments left, which must be ignored.
const ROUTED: [u8; 24] = [
    0, 2, 2, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// Returns the host's reply to a packet, and the host's counters. If the packet is for a transport,
/// the packet itself is turned into the reply.
fn outcome(bytes: &[u8]) -> (Option<Vec<u8>>, Counters) {
    let mut host = host();
    let reply = match host.receive(frame(bytes), Instant::ZERO) {
        Input::Tcp(packet) => Some(packet.turn_around(PROTOCOL_TCP)),
        Input::Udp(packet) => Some(packet.turn_around(PROTOCOL_UDP)),
        Input::Reply(frame) => Some(frame),
        Input::Error(_) | Input::Dropped => None,
    };
    (reply.map(|frame| frame.to_vec()), *host.counters())
}

/// Builds one packet each for TCP, UDP and ICMP echo. All have valid IP headers without options.
fn plain(v6: bool) -> [Vec<u8>; 3] {
    [
        packet(to_us(v6), PROTOCOL_TCP, b"a segment of some bytes"),
        packet(to_us(v6), PROTOCOL_UDP, b"datagram"),
        echo(v6),
    ]
}

#[test]
fn ipv4_options_are_skipped_and_not_returned() {
    let most = [NO_OPERATION; 40];
    let cases: [&[u8]; 9] = [
        &[NO_OPERATION; 4],
        &[END_OF_OPTIONS, 255, 255, 255],
        &RECORD_ROUTE,
        &TIMESTAMP,
        &ROUTER_ALERT,
        // The security option (RFC 1108), and an unknown option.
        &[130, 3, 0, 0],
        &[222, 4, 1, 2],
        // The shortest option that has a length field.
        &[222, 2, NO_OPERATION, NO_OPERATION],
        &most,
    ];
    for bytes in plain(false) {
        let expected = outcome(&bytes);
        for options in cases {
            let mut padded = with_options(bytes.clone(), options);
            assert_eq!(outcome(&padded), expected, "{options:?}");
            padded.extend([0xee; 9]);
            assert_eq!(outcome(&padded), expected, "{options:?} and padding");
        }
    }
}

#[test]
fn inconsistent_ipv4_options_are_malformed() {
    let bytes = packet(to_us(false), PROTOCOL_TCP, b"segment");
    let cases: [&[u8]; 5] = [
        &[7, 0, 0, 0],
        &[7, 1, 0, 0],
        &[7, 5, 4, 0],
        &[1, 1, 1, 7],
        &[222, 255, 0, 0],
    ];
    for options in cases {
        let (reply, counters) = outcome(&with_options(bytes.clone(), options));
        assert_eq!((reply, counters.malformed), (None, 1), "{options:?}");
    }
    // The header would end after the packet, is too short, or has a wrong version.
    for version_ihl in [0x4f, 0x44, 0x40, 0x55, 0x65] {
        let mut bytes = bytes.clone();
        bytes[14] = version_ihl;
        let (reply, counters) = outcome(&bytes);
        assert_eq!((reply, counters.malformed), (None, 1), "{version_ihl:x}");
    }
    // The header length and the total length are both below the minimum of 20 bytes.
    let mut short = bytes.clone();
    short[14] = 0x44;
    short[17] = 16;
    assert_eq!(outcome(&short).1.malformed, 1);
    // The header ends within the frame, but beyond the packet's total length.
    let mut bytes = with_options(bytes, &[NO_OPERATION; 8]);
    bytes[17] = 24;
    fix_header(&mut bytes);
    assert_eq!(outcome(&bytes).1.malformed, 1);
}

#[test]
fn the_checksum_covers_ipv4_options() {
    let mut bytes = with_options(
        packet(to_us(false), PROTOCOL_TCP, b"segment"),
        &ROUTER_ALERT,
    );
    bytes[36] ^= 1;
    assert_eq!(outcome(&bytes).1.bad_checksum, 1);
}

/// Packets with an IPv4 source route are refused (RFC 7126, sections 4.3 and 4.4).
#[test]
fn ipv4_source_routes_are_refused() {
    for kind in [LOOSE_SOURCE_ROUTE, STRICT_SOURCE_ROUTE] {
        // A source route that is already completed is refused too, because the reply would have to
        // take the same route.
        for pointer in [4, 8] {
            let options = [NO_OPERATION, kind, 7, pointer, 192, 0, 2, 7];
            for bytes in plain(false) {
                let (reply, counters) = outcome(&with_options(bytes, &options));
                assert_eq!((reply, counters.source_routes), (None, 1));
            }
        }
    }
}

#[test]
fn fragments_with_options_count_as_fragments() {
    let mut bytes = with_options(
        packet(to_us(false), PROTOCOL_TCP, b"segment"),
        &ROUTER_ALERT,
    );
    bytes[20] = 0x20;
    fix_header(&mut bytes);
    assert_eq!(outcome(&bytes).1.fragments, 1);
}

#[test]
fn ipv6_extension_headers_are_skipped_and_not_returned() {
    let long = [&[0, 3, 1, 28][..], &[0; 28]].concat();
    let pads = [[0; 2].as_slice(), &[PAD_1; 6]].concat();
    // An unknown option that may be skipped, and a router alert.
    let skipped = [0, 0, 0x1e, 2, 1, 2, 1, 0];
    let alert = [0, 0, 5, 2, 0, 0, 1, 0];
    let cases: [&[(u8, &[u8])]; 9] = [
        &[(HOP_BY_HOP, &PADDING)],
        &[(HOP_BY_HOP, &alert), (DESTINATION, &pads)],
        &[(DESTINATION, &skipped)],
        &[(DESTINATION, &long)],
        &[(ROUTING, &ROUTED)],
        &[(FRAGMENT, &ATOMIC)],
        &[(FRAGMENT, &RESERVED)],
        &[
            (HOP_BY_HOP, &PADDING),
            (DESTINATION, &PADDING),
            (ROUTING, &ROUTED),
            (FRAGMENT, &ATOMIC),
            (DESTINATION, &PADDING),
        ],
        &[(DESTINATION, PADDING.as_slice()); MAX_EXTENSIONS],
    ];
    for bytes in plain(true) {
        let expected = outcome(&bytes);
        for extensions in cases {
            let mut padded = with_extensions(bytes.clone(), extensions);
            assert_eq!(outcome(&padded), expected, "{extensions:?}");
            padded.extend([0xee; 9]);
            assert_eq!(outcome(&padded), expected, "{extensions:?} and padding");
        }
    }
}

type Case<'a> = (&'a [(u8, &'a [u8])], fn(&Counters) -> u64);

#[test]
fn ipv6_extension_headers_are_refused_by_reason() {
    let segments_left = |kind| {
        let mut header = ROUTED;
        (header[2], header[3]) = (kind, 1);
        header
    };
    let option = |kind| [0, 0, kind, 4, 0, 0, 0, 0];
    // Thirty-three options, one more than the limit.
    let many = [&[0, 8][..], &[1, 0].repeat(33), &[0; 4]].concat();
    let cases: [Case<'_>; 13] = [
        (&[(FRAGMENT, &FIRST)], |c| c.fragments),
        (&[(FRAGMENT, &LAST)], |c| c.fragments),
        (&[(DESTINATION, &PADDING), (FRAGMENT, &FIRST)], |c| {
            c.fragments
        }),
        (&[(ROUTING, &segments_left(0))], |c| c.source_routes),
        (&[(ROUTING, &segments_left(4))], |c| c.source_routes),
        (&[(DESTINATION, &option(0x45))], |c| c.options),
        (&[(DESTINATION, &option(0x85))], |c| c.options),
        (&[(HOP_BY_HOP, &option(0xc2))], |c| c.options),
        (&[(DESTINATION, &many)], |c| c.options),
        (
            &[(DESTINATION, PADDING.as_slice()); MAX_EXTENSIONS + 1],
            |c| c.options,
        ),
        (&[(DESTINATION, &[0, 0, 1, 5, 0, 0, 0, 0])], |c| c.malformed),
        (&[(DESTINATION, &[0, 0, 1, 3, 0, 0, 0, 1])], |c| c.malformed),
        (&[(DESTINATION, &PADDING), (HOP_BY_HOP, &PADDING)], |c| {
            c.unknown_protocol
        }),
    ];
    for (extensions, counter) in cases {
        let bytes = packet(to_us(true), PROTOCOL_TCP, b"segment");
        let (_, counters) = outcome(&with_extensions(bytes, extensions));
        assert_eq!(counter(&counters), 1, "{extensions:?}: {counters:?}");
        assert_eq!(counters.tcp, 0);
    }
}

/// Fragmented neighbour discovery messages are ignored (RFC 6980).
#[test]
fn a_solicitation_in_an_atomic_fragment_is_ignored() {
    let bytes = packet(to_us(true), crate::PROTOCOL_ICMPV6, &[0; 24]);
    let mut bytes = with_extensions(bytes, &[(FRAGMENT, &ATOMIC)]);
    bytes[62] = 135;
    let addresses = to_us(true).addresses;
    let sum = addresses.pseudo_sum(crate::PROTOCOL_ICMPV6, 24);
    let field = sum.add(crate::Sum::of(&bytes[62..])).finish();
    bytes[64..66].copy_from_slice(&field.to_be_bytes());
    let (reply, counters) = outcome(&bytes);
    assert_eq!((reply, counters.unknown_protocol), (None, 1));
}

#[test]
fn a_packet_truncated_in_its_extensions_is_malformed() {
    let bytes = with_extensions(
        packet(to_us(true), PROTOCOL_UDP, b""),
        &[(DESTINATION, &PADDING), (DESTINATION, &PADDING)],
    );
    for cut in 54..bytes.len() {
        let mut bytes = bytes[..cut].to_vec();
        bytes[19] = (cut - 54) as u8;
        assert_eq!(outcome(&bytes).1.malformed, 1, "cut at {cut}");
    }
}

proptest! {
    #[test]
    fn no_options_cause_a_panic(
        v6: bool,
        words in prop::collection::vec(any::<u32>(), 0..11),
        kind in prop::sample::select(vec![HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION]),
    ) {
        let bytes = packet(to_us(v6), PROTOCOL_UDP, b"datagram");
        let options: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
        let bytes = if v6 {
            with_extensions(bytes, &[(kind, &[&options[..], &[0; 8]].concat())])
        } else {
            with_options(bytes, &options[..options.len().min(40)])
        };
        let (_, c) = outcome(&bytes);
        let drops: u64 = c.drops().iter().map(|(_, count)| count).sum();
        prop_assert_eq!(c.tcp + c.udp + c.echo_replies + c.icmp_errors + drops, 1);
    }
}
