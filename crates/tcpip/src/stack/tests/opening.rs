//! Opening a connection: RFC 9293, sections 3.5 and 3.10.7.1 to 3.10.7.4.

use ip::Host;

use crate::stack::testing::{Habit, MTU, Rig, noise, v6_path};
use crate::wire::Control;
use crate::{Config, INITIAL_RTO_AFTER_LOSS_MS, SynCookies, WhenFull};

#[test]
fn a_syn_is_answered_with_a_syn_ack_that_tells_our_mss() {
    let mut rig = Rig::new(&Config::default());
    rig.syn(Some(1472));
    let out = rig.sent(0, 1, "SA", b"");
    assert_eq!(out.mss, Some(1472));
    assert_eq!(out.window, 16_384);
    rig.sent_nothing();
    rig.recv(1, 1, "A", b"");
    rig.sent_nothing();
    assert_eq!(rig.take_log(), "accept");
    assert_eq!(rig.stack.counters().turned_round, 1);
}

#[test]
fn ipv6_tells_twenty_bytes_less() {
    let mut rig = Rig::new(&Config::default());
    rig.path = v6_path();
    rig.syn(Some(1452));
    assert_eq!(rig.sent(0, 1, "SA", b"").mss, Some(1452));
}

#[test]
fn our_mss_follows_the_ports_mtu() {
    let mut rig = Rig::with_mtu(&Config::default(), 1280);
    rig.syn(Some(1472));
    assert_eq!(rig.sent(0, 1, "SA", b"").mss, Some(1240));
}

/// Opens with an MSS option or none, and tells how long the segments are.
fn first_segment(rig: &mut Rig, mss: Option<u16>) -> usize {
    rig.load(&noise(4000), None);
    rig.open(mss);
    rig.recv(1, 1, "PA", b"g");
    rig.sent_one().data.len()
}

#[test]
fn without_an_mss_option_segments_leave_536_bytes_for_data_and_timestamps() {
    let mut rig = Rig::new(&Config::default());
    assert_eq!(first_segment(&mut rig, None), 536 - 12);
}

#[test]
fn without_an_mss_option_ipv6_segments_leave_1220_bytes() {
    let mut rig = Rig::new(&Config::default());
    rig.path = v6_path();
    assert_eq!(first_segment(&mut rig, None), 1220 - 12);
}

#[test]
fn an_mss_above_ours_is_cut_to_ours() {
    let mut rig = Rig::new(&Config::default());
    assert_eq!(first_segment(&mut rig, Some(8960)), 1460);
}

#[test]
fn a_tiny_mss_is_taken_as_88() {
    let mut rig = Rig::new(&Config::default());
    assert_eq!(first_segment(&mut rig, Some(1)), 88 - 12);
}

#[test]
fn a_repeated_syn_gets_the_same_answer() {
    let mut rig = Rig::new(&Config::default());
    rig.syn(Some(1472));
    rig.sent(0, 1, "SA", b"");
    let iss = rig.iss;
    rig.iss = 0;
    rig.pass_ms(500);
    rig.syn(Some(1472));
    rig.sent(0, 1, "SA", b"");
    assert_eq!(rig.iss, iss);
    assert_eq!(rig.stack.connections(), 1);
}

#[test]
fn another_syn_while_half_open_is_challenged() {
    let mut rig = Rig::new(&Config::default());
    rig.syn(Some(1472));
    rig.sent(0, 1, "SA", b"");
    rig.recv(100, 0, "S", b"");
    rig.sent(1, 1, "A", b"");
    // A peer that has forgotten the first one resets it, and may begin again.
    rig.recv(1, 0, "R", b"");
    assert_eq!(rig.stack.connections(), 0);
    assert_eq!(rig.take_log(), "");
}

#[test]
fn a_syn_ack_is_sent_again_after_1_3_and_7_seconds_and_given_up_after_15() {
    let mut rig = Rig::new(&Config::default());
    rig.syn(Some(1472));
    rig.sent(0, 1, "SA", b"");
    for (before, after) in [(999, 1), (1999, 1), (3999, 1)] {
        rig.pass_ms(before);
        rig.sent_nothing();
        rig.pass_ms(after);
        rig.iss = 0;
        rig.sent(0, 1, "SA", b"");
    }
    rig.pass_ms(7_999);
    assert_eq!(rig.stack.connections(), 1);
    rig.pass_ms(1);
    assert_eq!(rig.stack.connections(), 0);
    rig.sent_nothing();
    assert_eq!(rig.take_log(), "");
    assert_eq!(rig.stack.counters().handshakes_failed, 1);
}

#[test]
fn the_timeout_is_3_seconds_after_a_syn_ack_was_sent_again() {
    // RFC 6298, section 5.7.
    let mut rig = Rig::new(&Config::default());
    rig.load(b"content", None);
    rig.syn(Some(1472));
    rig.sent_one();
    rig.pass_ms(1000);
    rig.iss = 0;
    rig.sent_one();
    rig.recv(1, 1, "A", b"");
    rig.recv(1, 1, "PA", b"g");
    rig.sent(1, 2, "PA", b"content");
    rig.pass_ms(u64::from(INITIAL_RTO_AFTER_LOSS_MS) - 1);
    rig.sent_nothing();
    rig.pass_ms(1);
    rig.sent(1, 2, "PA", b"content");
}

#[test]
fn an_ack_of_something_else_is_reset_while_half_open() {
    let mut rig = Rig::new(&Config::default());
    rig.syn(Some(1472));
    rig.sent(0, 1, "SA", b"");
    for ack in [0, 2] {
        rig.recv(1, ack, "A", b"");
        assert_eq!(rig.sent_one().seq, ack);
    }
    assert_eq!(rig.take_log(), "", "not accepted");
    rig.recv(1, 1, "A", b"");
    assert_eq!(rig.take_log(), "accept");
}

#[test]
fn a_reset_while_half_open_returns_to_listen_silently() {
    let mut rig = Rig::new(&Config::default());
    rig.syn(Some(1472));
    rig.sent_one();
    rig.recv(1, 0, "R", b"");
    rig.sent_nothing();
    assert_eq!(rig.stack.connections(), 0);
    assert_eq!(rig.take_log(), "");
}

#[test]
fn data_may_come_with_the_third_segment() {
    let mut rig = Rig::new(&Config::default());
    rig.app().habit = Habit::Echo;
    rig.syn(Some(1472));
    rig.sent_one();
    rig.recv(1, 1, "PA", b"early");
    rig.sent(1, 6, "PA", b"early");
    assert_eq!(rig.take_log(), "accept receive(5)");
}

#[test]
fn a_fin_may_come_with_the_third_segment() {
    let mut rig = Rig::new(&Config::default());
    rig.syn(Some(1472));
    rig.sent_one();
    rig.recv(1, 1, "FA", b"");
    rig.sent(1, 2, "FA", b"");
    assert_eq!(rig.take_log(), "accept half-close");
}

#[test]
fn data_in_a_syn_is_left_for_the_peer_to_send_again() {
    let mut rig = Rig::new(&Config::default());
    rig.send_raw(rig.irs, 0, "S", b"too early", Some(1472));
    rig.sent(0, 1, "SA", b"");
}

#[test]
fn a_syn_that_offers_ecn_is_answered_without_where_it_is_off() {
    let mut rig = Rig::new(&Config {
        ecn: false,
        ..Config::default()
    });
    let mut packet = rig.packet(rig.irs, 0, "S", b"", None);
    let at = rig.path.header_len() + 13;
    let old = u16::from_be_bytes([packet[at - 1], packet[at]]);
    packet[at] |= 0xc0; // ECE and CWR
    let new = u16::from_be_bytes([packet[at - 1], packet[at]]);
    let field = u16::from_be_bytes([packet[at + 3], packet[at + 4]]);
    let field = ip::checksum::update(field, old, new).to_be_bytes();
    packet[at + 3..at + 5].copy_from_slice(&field);
    rig.input(&packet);
    let reply = rig.port.sent[0][at];
    assert_eq!(reply, (Control::SYN | Control::ACK).0);
}

#[test]
fn a_refused_connection_is_reset() {
    let mut rig = Rig::new(&Config::default());
    rig.app().refuse = true;
    rig.syn(Some(1472));
    rig.sent_one();
    rig.recv(1, 1, "A", b"");
    let out = rig.sent_one();
    assert_eq!((out.seq, out.control.as_str()), (1, "R"));
    assert_eq!(rig.take_log(), "accept");
    assert_eq!(rig.stack.connections(), 0);
}

#[test]
fn what_is_written_on_accept_is_sent_at_once() {
    let mut rig = Rig::new(&Config::default());
    rig.app().greeting = true;
    rig.syn(Some(1472));
    rig.sent_one();
    rig.recv(1, 1, "A", b"");
    rig.sent(1, 1, "PA", b"hello");
}

#[test]
fn a_syn_to_a_port_that_is_not_served_is_reset() {
    let mut rig = Rig::new(&Config::default());
    rig.own_port = 81;
    rig.syn(Some(1472));
    let out = rig.sent_one();
    assert_eq!((out.ack, out.control.as_str()), (1, "RA"));
    assert_eq!(out.seq, 0);
}

#[test]
fn segments_to_no_connection_may_be_dropped_instead() {
    let mut rig = Rig::new(&Config {
        reset_unknown: false,
        ..Config::default()
    });
    rig.own_port = 81;
    rig.syn(Some(1472));
    rig.recv(1, 1, "A", b"");
    rig.sent_nothing();
    assert_eq!(rig.stack.counters().no_connection, 2);
}

#[test]
fn an_ack_to_no_connection_is_reset_by_its_number() {
    let mut rig = Rig::new(&Config::default());
    rig.recv(1, 77, "A", b"");
    let out = rig.sent_one();
    assert_eq!((out.seq, out.control.as_str()), (77, "R"));
}

#[test]
fn a_segment_without_ack_to_no_connection_is_reset_by_acknowledging_it() {
    let mut rig = Rig::new(&Config::default());
    // Who listens there drops it (section 3.10.7.2).
    rig.recv(1, 0, "F", b"abc");
    rig.sent_nothing();
    rig.own_port += 1;
    rig.recv(1, 0, "F", b"abc");
    let out = rig.sent_one();
    assert_eq!((out.ack, out.control.as_str()), (1 + 3 + 1, "RA"));
}

#[test]
fn a_reset_is_never_answered() {
    let mut rig = Rig::new(&Config::default());
    rig.recv(1, 1, "R", b"");
    rig.recv(1, 1, "RA", b"");
    rig.sent_nothing();
    assert_eq!(rig.stack.counters().no_connection, 2);
}

#[test]
fn contradictory_bits_are_dropped() {
    let mut rig = Rig::new(&Config::default());
    for control in ["SF", "SR", "SFA"] {
        rig.recv(0, 0, control, b"");
    }
    rig.sent_nothing();
    assert_eq!(rig.stack.counters().malformed, 3);
}

#[test]
fn a_wrong_checksum_is_dropped() {
    let mut rig = Rig::new(&Config::default());
    let mut packet = rig.packet(rig.irs, 0, "S", b"", None);
    *packet.last_mut().unwrap() ^= 1;
    rig.input(&packet);
    rig.sent_nothing();
    assert_eq!(rig.stack.counters().bad_checksum, 1);
}

/// A SYN that has only the pseudo-header's sum.
fn unfinished_syn(rig: &Rig) -> Vec<u8> {
    let mut packet = rig.packet(rig.irs, 0, "S", b"", None);
    let segment = 14 + 20;
    let pseudo = rig.path.addresses.pseudo_sum(6, packet.len() - segment);
    packet[segment + 16..segment + 18].copy_from_slice(&pseudo.fold().to_be_bytes());
    packet
}

#[test]
fn a_checksum_left_to_a_device_is_accepted_where_the_host_does() {
    let mut rig = Rig::new(&Config::default());
    rig.host = Host::own(rig.host.station().clone()).with_partial_checksums(true);
    rig.input(&unfinished_syn(&rig));
    rig.sent(0, 1, "SA", b"");
}

#[test]
fn a_checksum_left_to_a_device_is_counted_apart() {
    let mut rig = Rig::new(&Config::default());
    rig.input(&unfinished_syn(&rig));
    rig.sent_nothing();
    let counters = rig.stack.counters();
    assert_eq!(
        (counters.unfinished_checksum, counters.bad_checksum),
        (1, 0)
    );
}

#[test]
fn a_data_offset_outside_the_segment_is_dropped() {
    let mut rig = Rig::new(&Config::default());
    for offset in [0x00, 0x40, 0xf0] {
        let mut packet = rig.packet(rig.irs, 0, "S", b"", None);
        packet[rig.path.header_len() + 12] = offset;
        rig.input(&packet);
    }
    rig.sent_nothing();
    assert_eq!(rig.stack.counters().malformed, 3);
}

#[test]
fn half_open_connections_are_bounded() {
    let mut rig = Rig::new(&Config {
        max_half_open: 2,
        syn_cookies: SynCookies::Never,
        ..Config::default()
    });
    for port in 1000..1003 {
        rig.peer_port = port;
        rig.syn(None);
    }
    assert_eq!(rig.port.sent.len(), 2);
    assert_eq!(rig.stack.counters().half_open_full, 1);
}

#[test]
fn connections_are_bounded_and_their_places_used_again() {
    let mut rig = Rig::new(&Config {
        max_connections: 2,
        when_full: WhenFull::Refuse,
        ..Config::default()
    });
    for port in 1000..1003 {
        rig.peer_port = port;
        rig.iss = 0;
        rig.syn(None);
        if port < 1002 {
            rig.sent_one();
            rig.recv(1, 1, "A", b"");
        }
    }
    rig.sent_nothing();
    assert_eq!(rig.stack.counters().connections_full, 1);
    rig.peer_port = 1001;
    rig.recv(1, 1, "R", b"");
    rig.peer_port = 1002;
    rig.iss = 0;
    rig.syn(None);
    rig.sent(0, 1, "SA", b"");
}

#[test]
fn initial_sequence_numbers_differ_by_connection_and_grow_with_time() {
    // RFC 6528: a clock of 4 µs, and a function of the connection.
    let mut rig = Rig::new(&Config::default());
    let mut iss_of = |port: u16, pass: u64| {
        rig.pass_ms(pass);
        (rig.peer_port, rig.iss) = (port, 0);
        rig.syn(None);
        rig.sent_one();
        rig.recv(1, 0, "R", b"");
        rig.iss
    };
    let first = iss_of(1000, 0);
    let other = iss_of(1001, 0);
    let later = iss_of(1000, 8);
    assert_ne!(first, other);
    assert_eq!(later.wrapping_sub(first), 2000);
}

#[test]
fn initial_sequence_numbers_depend_on_the_secret() {
    let of = |secret| {
        let mut rig = Rig::with_secret(&Config::default(), MTU, secret);
        rig.syn(None);
        rig.sent_one();
        rig.iss
    };
    let first = of([1, 2, 3, 4]);
    assert_eq!(of([1, 2, 3, 4]), first);
    for other in [
        [0; 4],
        [1, 2, 3, 5],
        [1, 2, 5, 4],
        [1, 5, 3, 4],
        [5, 2, 3, 4],
    ] {
        assert_ne!(of(other), first, "{other:?}");
    }
}
