use nmio::sim::Sink;

use super::*;
use crate::testing::{datagram, echo, host, packet, to_us, too_big};
use crate::{Counters, PROTOCOL_TCP, PROTOCOL_UDP};

/// A transport that accepts the packets of one protocol and the ICMP errors about them.
struct OneProtocol {
    protocol: u8,
    handled_count: u32,
}

impl OneProtocol {
    fn of(protocol: u8) -> Self {
        Self {
            protocol,
            handled_count: 0,
        }
    }

    fn take(&mut self, protocol: u8, packet: Packet) -> Option<Packet> {
        if protocol != self.protocol {
            return Some(packet);
        }
        self.handled_count += 1;
        None
    }
}

impl<P: Port> Transports<P> for OneProtocol {
    fn serves(&self, protocol: u8, _port: u16) -> bool {
        protocol == self.protocol
    }

    fn handle_tcp(&mut self, _port: &mut P, segment: Packet, _now: Instant) -> Option<Packet> {
        self.take(PROTOCOL_TCP, segment)
    }

    fn handle_udp(&mut self, _port: &mut P, datagram: Packet, _now: Instant) -> Option<Packet> {
        self.take(PROTOCOL_UDP, datagram)
    }

    fn handle_icmp_error(&mut self, error: &IcmpError, _now: Instant) -> bool {
        let is_ours = error.protocol == self.protocol;
        self.handled_count += u32::from(is_ours);
        is_ours
    }
}

fn segment(v6: bool) -> Vec<u8> {
    packet(to_us(v6), PROTOCOL_TCP, b"a segment of 20 byte")
}

/// Builds an ICMP error about a packet that we sent with this protocol.
fn error_about(protocol: u8) -> Vec<u8> {
    let mut ours = to_us(false);
    ours.addresses = ours.addresses.reversed();
    too_big(&packet(ours, protocol, b"a header, 20 bytes. "))
}

/// Returns the reply of a host with these transports, and checks the host's counters.
fn answer<T: Transports<Sink>>(
    transports: &mut T,
    bytes: &[u8],
    expected: &Counters,
) -> Option<Vec<u8>> {
    let (mut host, mut sink) = (host(), Sink::new(1500, 2, 0));
    let frame = sink.frame_from(bytes);
    host.handle_frame(&mut sink, frame, transports, Instant::ZERO);
    assert_eq!(host.counters(), expected);
    let is_answered = sink.counters().tx_frames > 0;
    // No frame leaks: only the sent reply is missing from the pool.
    assert_eq!(sink.pool().available(), 3 - u32::from(is_answered));
    is_answered.then(|| sink.last().to_vec())
}

/// Returns the type and code of an ICMP message in an untagged frame.
fn message(v6: bool, frame: &[u8]) -> [u8; 2] {
    let at = to_us(v6).header_len();
    [frame[at], frame[at + 1]]
}

#[test]
fn unserved_packets_are_refused_and_counted() {
    for (v6, port_unreachable, protocol_unreachable) in
        [(false, [3, 3], [3, 2]), (true, [1, 4], [4, 1])]
    {
        let expected = Counters {
            udp: 1,
            udp_not_served: 1,
            errors_sent: 1,
            ..Counters::default()
        };
        let mut tcp = OneProtocol::of(PROTOCOL_TCP);
        let reply = answer(&mut tcp, &datagram(v6, b"hello"), &expected).unwrap();
        assert_eq!(message(v6, &reply), port_unreachable);
        assert!(expected.drops().contains(&("UDP port not served", 1)));

        let expected = Counters {
            tcp: 1,
            tcp_not_served: 1,
            errors_sent: 1,
            ..Counters::default()
        };
        let mut udp = OneProtocol::of(PROTOCOL_UDP);
        let reply = answer(&mut udp, &segment(v6), &expected).unwrap();
        assert_eq!(message(v6, &reply), protocol_unreachable);
        assert!(expected.drops().contains(&("TCP not served", 1)));

        let expected = Counters {
            unknown_protocol: 1,
            errors_sent: 1,
            ..Counters::default()
        };
        let sctp = packet(to_us(v6), 132, b"SCTP, say");
        let reply = answer(&mut tcp, &sctp, &expected).unwrap();
        assert_eq!(message(v6, &reply), protocol_unreachable);
        assert!(expected.drops().contains(&("unknown protocol", 1)));
        assert_eq!((tcp.handled_count, udp.handled_count), (0, 0));
    }
}

#[test]
fn an_error_about_an_unserved_protocol_is_counted() {
    let handled = Counters {
        icmp_errors: 1,
        ..Counters::default()
    };
    let unhandled = Counters {
        icmp_errors_not_served: 1,
        ..handled
    };
    let reason = ("ICMP error that no transport handles", 1);
    assert!(unhandled.drops().contains(&reason));
    for (protocol, other) in [(PROTOCOL_TCP, PROTOCOL_UDP), (PROTOCOL_UDP, PROTOCOL_TCP)] {
        let mut transport = OneProtocol::of(protocol);
        assert_eq!(
            answer(&mut transport, &error_about(other), &unhandled),
            None
        );
        assert_eq!(transport.handled_count, 0);
        assert_eq!(
            answer(&mut transport, &error_about(protocol), &handled),
            None
        );
        assert_eq!(transport.handled_count, 1);
    }
}

#[test]
fn a_host_without_transports_answers_arp_and_echo() {
    let expected = Counters {
        echo_replies: 1,
        ..Counters::default()
    };
    let reply = answer(&mut (), &echo(false), &expected).unwrap();
    assert_eq!(message(false, &reply), [0, 0]);
}
