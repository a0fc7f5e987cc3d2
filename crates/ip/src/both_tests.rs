use nmio::Drain;
use nmio::sim::Sink;

use super::*;
use crate::testing::{RecordingTransport, host, packet, to_port, to_us, too_big};

/// Passes a packet to a host with both transports, and returns each transport's log.
fn received(both: &mut Both<RecordingTransport, RecordingTransport>, bytes: &[u8]) -> [String; 2] {
    let (mut host, mut sink) = (host(), Sink::new(1500, 4, 0));
    let frame = sink.frame_from(bytes);
    host.handle_frame(&mut sink, frame, both, Instant::ZERO);
    logs(both)
}

fn logs<const I: bool>(
    both: &mut Both<RecordingTransport<I>, RecordingTransport<I>>,
) -> [String; 2] {
    [&mut both.0, &mut both.1].map(|one| std::mem::take(&mut one.log))
}

#[test]
fn each_transport_gets_packets_to_its_port() {
    for (protocol, noted) in [(PROTOCOL_TCP, "t"), (PROTOCOL_UDP, "u")] {
        let mut both = Both(
            RecordingTransport::on(protocol, 80),
            RecordingTransport::on(protocol, 53),
        );
        assert_eq!(
            received(&mut both, &to_port(false, protocol, 80)),
            [noted, ""]
        );
        assert_eq!(
            received(&mut both, &to_port(false, protocol, 53)),
            ["", noted]
        );
        // The second transport gets packets for ports that neither transport serves.
        assert_eq!(
            received(&mut both, &to_port(false, protocol, 7)),
            ["", noted]
        );
        // If the second transport returns such a packet, the first transport gets it.
        both.1.declines = true;
        assert_eq!(
            received(&mut both, &to_port(false, protocol, 7)),
            [noted, noted]
        );
        both.1.declines = false;
        // The first transport now serves the other protocol on the same port, so the second gets
        // the packet.
        both.0.protocol = PROTOCOL_TCP + PROTOCOL_UDP - protocol;
        assert_eq!(
            received(&mut both, &to_port(false, protocol, 80)),
            ["", noted]
        );
    }
    let mut same = Both(
        RecordingTransport::on(PROTOCOL_UDP, 53),
        RecordingTransport::on(PROTOCOL_UDP, 53),
    );
    assert_eq!(
        received(&mut same, &to_port(false, PROTOCOL_UDP, 53)),
        ["u", ""]
    );
}

#[test]
fn an_icmp_error_goes_to_the_transport_of_its_port() {
    let mut both = Both(
        RecordingTransport::on(PROTOCOL_TCP, 80),
        RecordingTransport::on(PROTOCOL_UDP, 53),
    );
    for (protocol, port, noted) in [
        (PROTOCOL_TCP, 80, ["e", ""]),
        (PROTOCOL_UDP, 53, ["", "e"]),
        (PROTOCOL_TCP, 53, ["", "e"]),
    ] {
        let mut ours = to_us(false);
        ours.addresses = ours.addresses.reversed();
        let mut header = [0; 20];
        header[..2].copy_from_slice(&u16::to_be_bytes(port));
        let error = too_big(&packet(ours, protocol, &header));
        assert_eq!(received(&mut both, &error), noted);
    }
}

#[test]
fn the_host_refuses_packets_that_both_transports_return() {
    let mut both = Both(
        RecordingTransport::on(PROTOCOL_UDP, 80),
        RecordingTransport::on(PROTOCOL_UDP, 53),
    );
    both.0.declines = true;
    both.1.declines = true;
    let (mut host, mut sink) = (host(), Sink::new(1500, 4, 0));
    let frame = sink.frame_from(&to_port(false, PROTOCOL_UDP, 7));
    host.handle_frame(&mut sink, frame, &mut both, Instant::ZERO);
    assert_eq!(host.counters().udp_not_served, 1);
}

/// Fixes the port type to [`Sink`], so that trait methods can be called without type annotations.
fn as_one(both: &mut Both<RecordingTransport, RecordingTransport>) -> &mut impl Transports<Sink> {
    both
}

#[test]
fn both_transports_act_as_one() {
    let mut both = Both(
        RecordingTransport::on(PROTOCOL_TCP, 80),
        RecordingTransport::on(PROTOCOL_UDP, 53),
    );
    let (mut sink, at) = (Sink::new(1500, 4, 0), Instant::from_nanos);
    let seen = as_one(&mut both);
    seen.handle_timers(&mut sink, at(1));
    seen.handle_messages(&mut sink, at(1));
    assert_eq!(seen.handle_drain(&mut sink, at(1)), Drain::Done);
    assert!(seen.handle_stop(&mut sink, at(1)));
    assert!(seen.serves(PROTOCOL_TCP, 80) && seen.serves(PROTOCOL_UDP, 53));
    assert!(!seen.serves(PROTOCOL_UDP, 80));
    assert_eq!(seen.poll_timeout(), None);
    assert!(!seen.is_flooded(at(1)) && !seen.wants_prefetch(2));
    assert_eq!(logs(&mut both), ["TMDS", "TMDS"]);
    for (first, second, due) in [
        (Some(5), None, 5),
        (None, Some(6), 6),
        (Some(7), Some(6), 6),
        (Some(7), Some(8), 7),
    ] {
        (both.0.due, both.1.due) = (first.map(at), second.map(at));
        let seen = as_one(&mut both);
        assert_eq!(seen.poll_timeout(), Some(at(due)));
        assert_eq!(seen.handle_drain(&mut sink, at(1)), Drain::Busy(at(due)));
        assert_eq!(logs(&mut both), ["D", "D"]);
    }
    both.1.floods = true;
    both.0.is_closed = false;
    let seen = as_one(&mut both);
    assert!(seen.is_flooded(at(1)));
    // The second transport is also stopped, although the first still has open connections.
    assert!(!seen.handle_stop(&mut sink, at(1)));
    assert_eq!(logs(&mut both), ["S", "S"]);
}

#[test]
fn a_batch_is_prefetched_before_its_first_packet_is_handled() {
    let both = Both(
        RecordingTransport::on(PROTOCOL_TCP, 80),
        RecordingTransport::on(PROTOCOL_UDP, 53),
    );
    let mut server = crate::Server::new(host(), both);
    let mut sink = Sink::new(1500, 8, 0);
    for (prefetches, of_first, of_second) in [(false, "t", "u"), (true, "l2t", "l2u1")] {
        server.transports.1.prefetches = prefetches;
        let mut batch = nmio::Batch::new();
        batch.push(sink.frame_from(&to_port(false, PROTOCOL_TCP, 80)));
        batch.push(sink.frame_from(&to_port(false, PROTOCOL_UDP, 53)));
        nmio::Handler::handle_batch(&mut server, &mut sink, &mut batch, Instant::ZERO);
        assert!(batch.is_empty());
        assert_eq!(logs(&mut server.transports), [of_first, of_second]);
    }
}

#[test]
fn a_large_batch_is_prefetched_and_handled_in_parts_from_the_oldest_packet_on() {
    handle_large_batch::<true>();
    handle_large_batch::<false>();
}

fn handle_large_batch<const INTERCEPTS: bool>() {
    let both = Both(
        RecordingTransport::<INTERCEPTS>::of(PROTOCOL_TCP, 80),
        RecordingTransport::<INTERCEPTS>::of(PROTOCOL_UDP, 53),
    );
    let mut server = crate::Server::new(host(), both);
    server.transports.0.prefetches = true;
    let mut sink = Sink::new(1500, nmio::MAX_BATCH as u32, 0);
    let mut batch = nmio::Batch::new();
    batch.push(sink.frame_from(&to_port(false, PROTOCOL_TCP, 80)));
    while !batch.is_full() {
        batch.push(sink.frame_from(&to_port(false, PROTOCOL_UDP, 53)));
    }
    nmio::Handler::handle_batch(&mut server, &mut sink, &mut batch, Instant::ZERO);
    assert!(batch.is_empty());
    let [first, second] = logs(&mut server.transports);
    assert_eq!(first, "l256tl256l256l256");
    let part = |from: u32| {
        let handled = (from..256).map(|index| format!("u{index}"));
        format!("l256{}", handled.collect::<Vec<_>>().concat())
    };
    let parts = [part(1), part(0), part(0), part(0)];
    assert_eq!(second, parts.concat());
}

#[test]
fn a_frame_is_intercepted_before_the_host_parses_it() {
    let mut both = Both(
        RecordingTransport::on(PROTOCOL_TCP, 80),
        RecordingTransport::on(PROTOCOL_UDP, 53),
    );
    both.1.intercepts = true;
    let mut server = crate::Server::new(host(), both);
    let mut sink = Sink::new(1500, 8, 0);
    for prefetches in [false, true] {
        server.transports.0.prefetches = prefetches;
        let mut batch = nmio::Batch::new();
        for _ in 0..2 {
            batch.push(sink.frame_from(b"a protocol of its own"));
        }
        nmio::Handler::handle_batch(&mut server, &mut sink, &mut batch, Instant::ZERO);
        let [first, second] = logs(&mut server.transports);
        assert_eq!(second.replace("l0", ""), "ff");
        assert!(!first.contains(['t', 'u']));
        assert_eq!(*server.host.counters(), crate::Counters::default());
    }
}
