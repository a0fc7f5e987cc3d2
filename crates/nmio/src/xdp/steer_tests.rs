//! Tests of the steering program, and of the rules as netmap ports follow them.
//!
//! The kernel runs the program on test packets (`BPF_PROG_TEST_RUN`). The tests check which packets
//! the program redirects to the ring and which it passes to the kernel. The classifier in user space
//! must decide the same. The tests need root.

use std::os::fd::OwnedFd;

use libbpf_rs::ProgramInput;
use proptest::prelude::*;

use super::*;
use crate::steering::Classifier;

const OURS: [u8; 4] = [192, 0, 2, 1];
const PEER: [u8; 4] = [192, 0, 2, 9];
const OTHER: [u8; 4] = [192, 0, 2, 7];
const OURS_V6: [u8; 16] = [
    0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xab, 0xcd, 0xef,
];
const PEER_V6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
/// The solicited-node multicast address of `OURS_V6`.
const GROUP: [u8; 16] = [
    0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xab, 0xcd, 0xef,
];

const MAC: [u8; 6] = [2; 6];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// The loaded program with its rules, the socket of queue 0, and the classifier with the same rules.
/// All test packets arrive on that queue.
struct Program {
    object: Object,
    classifier: Classifier,
    #[allow(dead_code)] // the socket only has to stay open
    socket: OwnedFd,
}

impl Program {
    fn load(own: bool) -> Self {
        let rules = Rules {
            own,
            mac: MAC,
            vlans: &[5, 4094],
            addresses: &[OURS.into(), OURS_V6.into()],
            services: &[(Transport::Tcp, 80), (Transport::Udp, 53)],
        };
        Self::with(&rules)
    }

    fn with(rules: &Rules<'_>) -> Self {
        let object = load(rules, Buffers::One)
            .unwrap_or_else(|error| panic!("this test needs root: {error}"));
        let socket = sys::xdp_socket().unwrap();
        join(map(&object, "xsks").as_fd(), 0, socket.as_fd()).unwrap();
        Self {
            object,
            classifier: Classifier::new(rules),
            socket,
        }
    }

    /// Returns true if the program redirects the packet to the ring. The classifier must decide the
    /// same.
    fn steers(&self, packet: &[u8]) -> bool {
        let redirected = self.redirects(packet);
        assert_eq!(
            self.classifier.takes(packet),
            redirected,
            "in user space: {packet:02x?}"
        );
        redirected
    }

    /// Returns true if the program redirects the packet to the ring.
    fn redirects(&self, packet: &[u8]) -> bool {
        const XDP_PASS: u32 = 2;
        const XDP_REDIRECT: u32 = 4;
        let program = self.object.progs_mut().next().unwrap();
        let input = ProgramInput {
            data_in: Some(packet),
            ..ProgramInput::default()
        };
        match program.test_run(input).unwrap().return_value {
            XDP_PASS => false,
            XDP_REDIRECT => true,
            other => panic!("verdict {other} on {packet:02x?}"),
        }
    }
}

#[test]
fn addresses_change_while_the_program_is_loaded() {
    let rules = Rules {
        own: false,
        mac: MAC,
        vlans: &[],
        addresses: &[OURS.into(), OURS_V6.into()],
        services: &[(Transport::Udp, 53)],
    };
    let mut program = Program::with(&rules);
    let mut tables = Tables::of(&program.object, &rules).unwrap();
    let query = |to: [u8; 4]| ethernet(0x0800, &v4(to, UDP, &ports(9, 53)));
    for (addresses, ours, other) in [
        (vec![OURS.into(), OURS_V6.into()], true, false),
        (vec![OTHER.into(), OURS.into()], true, true),
        (vec![OTHER.into()], false, true),
        (vec![], false, false),
        (vec![OURS.into()], true, false),
    ] {
        tables.set_addresses(None, &addresses).unwrap();
        program.classifier = Classifier::new(&Rules {
            addresses: &addresses,
            ..rules
        });
        assert_eq!(program.steers(&query(OURS)), ours, "{addresses:?}");
        assert_eq!(program.steers(&query(OTHER)), other, "{addresses:?}");
    }
}

#[test]
fn the_mac_address_changes_while_the_program_is_loaded() {
    const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x77];
    for own in [false, true] {
        let rules = Rules {
            own,
            mac: MAC,
            vlans: &[],
            addresses: &[OURS.into()],
            services: &[(Transport::Udp, 53)],
        };
        let mut program = Program::with(&rules);
        let mut tables = Tables::of(&program.object, &rules).unwrap();
        let query = ethernet(0x0800, &v4(OURS, UDP, &ports(9, 53)));
        for mac in [OTHER_MAC, MAC] {
            tables.set_addresses(Some(mac), rules.addresses).unwrap();
            program.classifier = Classifier::new(&Rules { mac, ..rules });
            for dst in [MAC, OTHER_MAC] {
                assert_eq!(program.steers(&to(dst, query.clone())), dst == mac);
            }
        }
    }
}

fn ethernet(protocol: u16, payload: &[u8]) -> Vec<u8> {
    [&MAC[..], &PEER_MAC, &protocol.to_be_bytes(), payload].concat()
}

/// Returns the frame with its destination address replaced by `mac`.
fn to(mac: [u8; 6], mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&mac);
    frame
}

/// Returns the frame with its VLAN tag replaced by `tag`.
fn with_tag(tag: u16, mut frame: Vec<u8>) -> Vec<u8> {
    frame[14..16].copy_from_slice(&tag.to_be_bytes());
    frame
}

fn v4_with(dst: [u8; 4], protocol: u8, fragment: u16, options: usize, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 20 + options];
    header[0] = 0x40 | (5 + options / 4) as u8;
    header[6..8].copy_from_slice(&fragment.to_be_bytes());
    header[8] = 64;
    header[9] = protocol;
    header[12..16].copy_from_slice(&PEER);
    header[16..20].copy_from_slice(&dst);
    header.extend_from_slice(payload);
    header
}

fn v4(dst: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    v4_with(dst, protocol, 0, 0, payload)
}

fn v6(dst: [u8; 16], next: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 40];
    header[0] = 0x60;
    header[6] = next;
    header[7] = 255;
    header[8..24].copy_from_slice(&PEER_V6);
    header[24..40].copy_from_slice(&dst);
    header.extend_from_slice(payload);
    header
}

/// Builds the start of a TCP or UDP header.
fn ports(source: u16, destination: u16) -> Vec<u8> {
    [
        source.to_be_bytes(),
        destination.to_be_bytes(),
        [0; 2],
        [0; 2],
    ]
    .concat()
}

/// Builds a packet from `src` to the peer, to be quoted in an ICMP error.
fn quoted_v4(src: [u8; 4], protocol: u8, source: u16) -> Vec<u8> {
    let mut packet = v4_with(PEER, protocol, 0, 4, &ports(source, 40_000));
    packet[12..16].copy_from_slice(&src);
    packet
}

fn quoted_v6(src: [u8; 16], protocol: u8, source: u16) -> Vec<u8> {
    let mut packet = v6(PEER_V6, protocol, &ports(source, 40_000));
    packet[8..24].copy_from_slice(&src);
    packet
}

fn icmp(kind: u8, rest: &[u8]) -> Vec<u8> {
    [&[kind, 0, 0, 0, 0, 0, 0, 0][..], rest].concat()
}

fn arp(target: [u8; 4]) -> Vec<u8> {
    let header = [0, 1, 8, 0, 6, 4, 0, 1];
    ethernet(
        0x806,
        &[&header[..], &[2; 6], &PEER, &[0; 6], &target].concat(),
    )
}

fn ip4(packet: &[u8]) -> Vec<u8> {
    ethernet(0x800, packet)
}

fn ip6(packet: &[u8]) -> Vec<u8> {
    ethernet(0x86dd, packet)
}

fn tagged(protocol: u16, tag_protocol: u16, packet: &[u8]) -> Vec<u8> {
    let tag = [&[0, 5][..], &protocol.to_be_bytes()].concat();
    ethernet(tag_protocol, &[&tag[..], packet].concat())
}

/// Builds an IPv6 extension header with a length of `units` times 8 bytes.
fn extension(next: u8, units: u8) -> Vec<u8> {
    let mut header = vec![0; usize::from(units) * 8];
    header[0] = next;
    header[1] = units - 1;
    header
}

fn check(own: bool, table: &[(&str, bool, Vec<u8>)]) {
    let program = Program::load(own);
    for (what, steered, packet) in table {
        assert_eq!(program.steers(packet), *steered, "own: {own}, {what}");
    }
}

#[test]
fn shared_mode_takes_the_served_ports_and_their_errors() {
    let served = v4(OURS, TCP, &ports(40_000, 80));
    check(
        false,
        &[
            ("TCP 80", true, ip4(&served)),
            ("UDP 53", true, ip4(&v4(OURS, UDP, &ports(1, 53)))),
            ("UDP 80", false, ip4(&v4(OURS, UDP, &ports(1, 80)))),
            (
                "TCP from port 80",
                false,
                ip4(&v4(OURS, TCP, &ports(80, 1))),
            ),
            ("another address", false, ip4(&v4(PEER, TCP, &ports(1, 80)))),
            (
                "IP options",
                true,
                ip4(&v4_with(OURS, TCP, 0, 40, &ports(1, 80))),
            ),
            (
                "an IP header length below the minimum",
                false,
                ip4(&[&[0x44], &served[1..]].concat()),
            ),
            (
                "version 6 in an IPv4 frame",
                false,
                ip4(&[&[0x65], &served[1..]].concat()),
            ),
            (
                "the don't-fragment flag",
                true,
                ip4(&v4_with(OURS, TCP, 0x4000, 0, &ports(1, 80))),
            ),
            (
                "a first fragment",
                false,
                ip4(&v4_with(OURS, TCP, 0x2000, 0, &ports(1, 80))),
            ),
            (
                "a later fragment",
                false,
                ip4(&v4_with(OURS, TCP, 0x0010, 0, &ports(1, 80))),
            ),
            ("echo", false, ip4(&v4(OURS, ICMP, &icmp(8, &[0; 40])))),
            (
                "an error about our packet",
                true,
                ip4(&v4(OURS, ICMP, &icmp(3, &quoted_v4(OURS, TCP, 80)))),
            ),
            (
                "a time-exceeded error about our packet",
                true,
                ip4(&v4(OURS, ICMP, &icmp(11, &quoted_v4(OURS, UDP, 53)))),
            ),
            (
                "a redirect",
                false,
                ip4(&v4(OURS, ICMP, &icmp(5, &quoted_v4(OURS, TCP, 80)))),
            ),
            (
                "an error about a packet from an unserved port",
                false,
                ip4(&v4(OURS, ICMP, &icmp(3, &quoted_v4(OURS, TCP, 22)))),
            ),
            (
                "an error about a peer's packet",
                false,
                ip4(&v4(OURS, ICMP, &icmp(3, &quoted_v4(PEER, TCP, 80)))),
            ),
            ("VLAN", true, tagged(0x800, 0x8100, &served)),
            (
                "VLAN of another protocol",
                false,
                tagged(0x806, 0x8100, &served),
            ),
            ("service VLAN", false, tagged(0x800, 0x88a8, &served)),
            ("two tags", false, tagged(0x8100, 0x8100, &served)),
            ("ARP", false, arp(OURS)),
            (
                "solicitation",
                false,
                ip6(&v6(GROUP, ICMPV6, &icmp(135, &OURS_V6))),
            ),
            ("no IP", false, ethernet(0x88cc, &[0; 100])),
            ("an empty frame", false, ethernet(0x800, &[])),
        ],
    );
}

#[test]
fn shared_mode_takes_the_served_ports_over_ipv6() {
    let served_v6 = v6(OURS_V6, UDP, &ports(40_000, 53));
    let deep = extension(60, 1).repeat(5);
    let too_deep = extension(60, 1).repeat(6);
    let fragment = |bits: u16| {
        let mut header = extension(UDP, 1);
        header[2..4].copy_from_slice(&bits.to_be_bytes());
        [header, ports(1, 53)].concat()
    };
    check(
        false,
        &[
            ("IPv6", true, ip6(&served_v6)),
            ("IPv6 VLAN", true, tagged(0x86dd, 0x8100, &served_v6)),
            (
                "IPv6, another port",
                false,
                ip6(&v6(OURS_V6, UDP, &ports(1, 54))),
            ),
            (
                "IPv6, another address",
                false,
                ip6(&v6(PEER_V6, UDP, &ports(1, 53))),
            ),
            (
                "IPv6 extensions",
                true,
                ip6(&v6(
                    OURS_V6,
                    0,
                    &[extension(60, 1), extension(UDP, 3), ports(1, 53)].concat(),
                )),
            ),
            (
                "more IPv6 extension headers than the program follows",
                false,
                ip6(&v6(OURS_V6, 60, &[too_deep, ports(1, 53)].concat())),
            ),
            (
                "as many IPv6 extension headers as the program follows",
                true,
                ip6(&v6(
                    OURS_V6,
                    60,
                    &[deep, extension(UDP, 1), ports(1, 53)].concat(),
                )),
            ),
            (
                "a first IPv6 fragment",
                false,
                ip6(&v6(OURS_V6, 44, &fragment(1))),
            ),
            (
                "a later IPv6 fragment",
                false,
                ip6(&v6(OURS_V6, 44, &fragment(8))),
            ),
            (
                "an atomic IPv6 fragment",
                true,
                ip6(&v6(OURS_V6, 44, &fragment(0))),
            ),
            (
                "IPv6 echo",
                false,
                ip6(&v6(OURS_V6, ICMPV6, &icmp(128, &[0; 60]))),
            ),
            (
                "IPv6 too big",
                true,
                ip6(&v6(OURS_V6, ICMPV6, &icmp(2, &quoted_v6(OURS_V6, TCP, 80)))),
            ),
            (
                "IPv6 too big, not ours",
                false,
                ip6(&v6(OURS_V6, ICMPV6, &icmp(2, &quoted_v6(OURS_V6, TCP, 81)))),
            ),
            (
                "IPv6 echo that quotes",
                false,
                ip6(&v6(
                    OURS_V6,
                    ICMPV6,
                    &icmp(128, &quoted_v6(OURS_V6, TCP, 80)),
                )),
            ),
        ],
    );
}

#[test]
fn own_mode_takes_all_packets_to_its_addresses() {
    let other = [
        0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xaa, 0xcd, 0xef,
    ];
    let mut wrong_group = GROUP;
    wrong_group[12] = 0xfe;
    check(
        true,
        &[
            ("any port", true, ip4(&v4(OURS, TCP, &ports(1, 9999)))),
            ("another address", false, ip4(&v4(PEER, TCP, &ports(1, 80)))),
            ("echo", true, ip4(&v4(OURS, ICMP, &icmp(8, &[0; 4])))),
            ("a fragment", true, ip4(&v4_with(OURS, TCP, 0x0010, 0, &[]))),
            ("VLAN", true, tagged(0x800, 0x8100, &v4(OURS, TCP, &[]))),
            ("IPv6", true, ip6(&v6(OURS_V6, TCP, &ports(1, 9999)))),
            (
                "IPv6 fragment",
                true,
                ip6(&v6(OURS_V6, 44, &extension(UDP, 1))),
            ),
            (
                "IPv6, another address",
                false,
                ip6(&v6(PEER_V6, TCP, &ports(1, 80))),
            ),
            ("ARP", true, arp(OURS)),
            (
                "ARP on a VLAN",
                true,
                tagged(0x806, 0x8100, &arp(OURS)[14..]),
            ),
            ("ARP for another", false, arp(PEER)),
            (
                "solicitation",
                true,
                ip6(&v6(GROUP, ICMPV6, &icmp(135, &OURS_V6))),
            ),
            (
                "unicast solicitation",
                true,
                ip6(&v6(OURS_V6, ICMPV6, &icmp(135, &OURS_V6))),
            ),
            (
                "solicitation for another",
                false,
                ip6(&v6(GROUP, ICMPV6, &icmp(135, &other))),
            ),
            (
                "another kind of message",
                false,
                ip6(&v6(GROUP, ICMPV6, &icmp(136, &OURS_V6))),
            ),
            (
                "another group",
                false,
                ip6(&v6(wrong_group, ICMPV6, &icmp(135, &OURS_V6))),
            ),
            ("broadcast", false, ip4(&v4([255; 4], UDP, &ports(68, 67)))),
        ],
    );
}

#[test]
fn only_configured_vlans_are_taken() {
    let v4 = tagged(0x800, 0x8100, &v4(OURS, TCP, &ports(1, 80)));
    let v6 = tagged(0x86dd, 0x8100, &v6(OURS_V6, TCP, &ports(1, 80)));
    for own in [false, true] {
        for frame in [&v4, &v6] {
            let with = |tag| with_tag(tag, frame.clone());
            check(
                own,
                &[
                    ("named", true, with(5)),
                    ("the highest number", true, with(4094)),
                    ("named, with a priority", true, with(0xe005)),
                    ("the VLAN number below", false, with(4)),
                    ("the VLAN number above", false, with(6)),
                    ("a priority tag", false, with(0xe000)),
                    ("the reserved number", false, with(4095)),
                ],
            );
        }
    }
    let arp = tagged(0x806, 0x8100, &arp(OURS)[14..]);
    check(
        true,
        &[("ARP", true, arp.clone()), ("ARP", false, with_tag(6, arp))],
    );
}

#[test]
fn only_frames_to_the_interfaces_mac_are_taken() {
    let broadcast = [0xff; 6];
    let group = [0x33, 0x33, 0xff, 0xab, 0xcd, 0xef];
    let (mut near_start, mut near_end) = (MAC, MAC);
    near_start[0] ^= 4;
    near_end[5] ^= 1;
    let served = ip4(&v4(OURS, TCP, &ports(1, 80)));
    let served_v6 = ip6(&v6(OURS_V6, TCP, &ports(1, 80)));
    for own in [false, true] {
        for frame in [&served, &served_v6] {
            for mac in [PEER_MAC, near_start, near_end, broadcast, group] {
                check(own, &[("to another", false, to(mac, frame.clone()))]);
            }
        }
    }
    let solicitation = ip6(&v6(GROUP, ICMPV6, &icmp(135, &OURS_V6)));
    check(
        true,
        &[
            ("ARP for all", true, to(broadcast, arp(OURS))),
            ("ARP for another", false, to(PEER_MAC, arp(OURS))),
            ("solicitation", true, to(group, solicitation.clone())),
            ("another's", false, to(PEER_MAC, solicitation)),
            ("IPv4 in IPv6", false, to(group, ip6(&served[14..]))),
        ],
    );
}

#[test]
fn without_a_socket_on_the_queue_packets_pass() {
    let mut program = Program::load(true);
    let packet = ip4(&v4(OURS, TCP, &ports(1, 80)));
    assert!(program.steers(&packet));
    // The kernel removes a closed socket from the map.
    program.socket = sys::xdp_socket().unwrap();
    assert!(!program.redirects(&packet));
}

#[test]
fn a_truncated_packet_passes() {
    let program = Program::load(false);
    // Each packet is paired with the minimum length at which the program can still recognise it.
    for (packet, needed) in [
        (ip4(&v4(OURS, TCP, &ports(1, 80))), 14 + 20 + 4),
        (
            ip6(&v6(OURS_V6, 0, &[extension(TCP, 2), ports(1, 80)].concat())),
            14 + 40 + 16 + 4,
        ),
        (
            ip4(&v4(OURS, ICMP, &icmp(3, &quoted_v4(OURS, TCP, 80)))),
            14 + 20 + 8 + 24 + 4,
        ),
    ] {
        for len in 14..=packet.len() {
            assert_eq!(
                program.steers(&packet[..len]),
                len >= needed,
                "{len} of {packet:02x?}"
            );
        }
    }
}

/// Generates damaged packets: up to three random bytes are replaced, and the packet is truncated at
/// a random length.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let real = prop::sample::select(vec![
        ip4(&v4(OURS, TCP, &ports(1, 80))),
        ip4(&v4(OURS, ICMP, &icmp(3, &quoted_v4(OURS, TCP, 80)))),
        ip6(&v6(
            OURS_V6,
            0,
            &[extension(60, 2), extension(TCP, 1), ports(1, 80)].concat(),
        )),
        ip6(&v6(OURS_V6, ICMPV6, &icmp(2, &quoted_v6(OURS_V6, TCP, 80)))),
        arp(OURS),
        tagged(0x800, 0x8100, &v4(OURS, UDP, &ports(1, 53))),
    ]);
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (real, damage, any::<prop::sample::Index>()).prop_map(|(mut packet, damage, end)| {
        for (place, byte) in damage {
            let place = place.index(packet.len());
            packet[place] = byte;
        }
        // The kernel refuses to run a program on a packet shorter than an Ethernet header.
        packet.truncate(14 + end.index(packet.len() - 13));
        packet
    })
}

proptest! {
    #[test]
    fn the_xdp_program_and_the_classifier_agree_on_damaged_packets(
        packets in prop::collection::vec(damaged(), 64),
    ) {
        for own in [false, true] {
            let program = Program::load(own);
            for packet in &packets {
                program.steers(packet);
            }
        }
    }
}

#[test]
fn a_refusal_by_the_verifier_is_not_blamed_on_privileges() {
    let error = |errno| {
        let source = io::Error::from_raw_os_error(errno);
        let source = io::Error::other(source.to_string());
        load_error(ErrorKind::PermissionDenied, source).to_string()
    };
    assert!(error(libc::EACCES).contains("verifier"));
    assert!(error(libc::EPERM).starts_with("no permission to load"));
}
