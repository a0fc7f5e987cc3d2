use ip::{Many, Member, PROTOCOL_ICMP, PROTOCOL_UDP};
use nmio::Handler;
use nmio::sim::Sink;
use testkit::{ACK, IcmpError, Layout, RST, Route, SERVER, SYN, Segment, read_segment};

use super::*;
use crate::Config;
use crate::congestion::NewReno;
use crate::stack::testing::{App, Rig};

fn server() -> (Server<App, NewReno>, Rig) {
    let (rig, other) = (Rig::new(&Config::default()), Rig::new(&Config::default()));
    (Server::new(other.host, other.stack), rig)
}

/// Returns the server's answer to a packet from the peer.
fn answer<T: Transports<Sink>>(server: &mut ip::Server<T>, packet: &[u8]) -> Option<Vec<u8>> {
    let mut sink = Sink::new(1500, 8, 0);
    let frame = sink.frame_from(packet);
    server.handle_frame(&mut sink, frame, Instant::ZERO);
    (sink.counters().tx_frames > 0).then(|| sink.last().to_vec())
}

/// Addresses and ports of packets from the peer to us.
const ROUTE: Route = Route::to_server(false, 12_345, 53);

/// Builds an ICMP "port unreachable" error about a packet that we sent with this protocol number.
fn unreachable(protocol: u8) -> Vec<u8> {
    let ours = ROUTE.back().packet(protocol, &[0; 8]);
    ROUTE.icmp_error(IcmpError::Unreachable(3), &ours)
}

#[test]
fn tcp_is_served() {
    let (mut server, rig) = server();
    let syn = rig.packet(rig.irs, 0, "S", b"", None);
    let syn_ack = answer(&mut server, &syn).unwrap();
    assert_eq!(syn_ack[14 + 9], PROTOCOL_TCP);
    assert_eq!(server.transports.counters().segments_received, 1);
    assert_eq!(server.host.counters().tcp_not_served, 0);
}

/// The only stack serves port 80 of one address.
#[test]
fn a_segment_that_no_stack_serves_is_reset() {
    let [v4, v6] = [false, true];
    for (served, to_v6, port) in [(v4, v4, 81), (v6, v6, 81), (v4, v6, 80), (v6, v4, 80)] {
        let (server, _) = server();
        let own = SERVER[usize::from(served)];
        let stacks = Many::new(vec![Member::new(server.transports, vec![own])]);
        let mut server = ip::Server::new(server.host, stacks);
        let route = Route::to_server(to_v6, 40_000, port);
        let mut reply = |bits, seq, ack, data: &[u8]| {
            let segment = Segment::of_client(bits, seq, ack, data);
            let reply = answer(&mut server, &route.segment(&segment, Layout::Usual))?;
            let reply = read_segment(&reply).unwrap();
            assert_eq!(reply.route, route.back());
            Some((reply.segment.bits, reply.segment.seq, reply.segment.ack))
        };
        assert_eq!(reply(SYN, 7, 0, b""), Some((RST | ACK, 0, 8)));
        assert_eq!(reply(ACK, 7, 9, b"data"), Some((RST, 9, 0)));
        assert_eq!(reply(RST, 7, 0, b""), None);
        assert_eq!(reply(SYN | RST, 7, 0, b""), None);
        let stack = server.transports.iter().next().unwrap();
        assert_eq!(stack.counters().resets_sent, 2);
        assert_eq!(server.host.counters().tcp_not_served, 0);
    }
}

#[test]
fn udp_is_refused_and_counted() {
    let (mut server, _) = server();
    let error = answer(&mut server, &ROUTE.datagram(b"")).unwrap();
    assert_eq!(
        (error[14 + 9], &error[34..36]),
        (PROTOCOL_ICMP, &[3, 3][..])
    );
    assert_eq!(server.host.counters().udp_not_served, 1);
    assert_eq!(server.transports.counters().segments_received, 0);
}

#[test]
fn an_icmp_error_about_udp_is_not_for_tcp() {
    let (mut server, _) = server();
    for (protocol, ignored, not_served) in [(PROTOCOL_UDP, 0, 1), (PROTOCOL_TCP, 1, 1)] {
        assert_eq!(answer(&mut server, &unreachable(protocol)), None);
        assert_eq!(server.transports.counters().icmp_ignored, ignored);
        let counters = server.host.counters();
        assert_eq!(counters.icmp_errors_not_served, not_served);
    }
}

#[test]
fn messages_are_passed_to_the_application() {
    let (server, mut rig) = server();
    rig.open(None);
    let (sender, mailbox) = nmio::mailbox(2).unwrap();
    let mut server = server.with_bell(mailbox.bell().clone());
    server.transports.set_mailbox(mailbox);
    assert!(!Handler::<Sink>::bell(&server).unwrap().is_rung());
    let id = rig.id();
    for _ in 0..2 {
        sender.send((id, b"nobody is there")).unwrap();
    }
    assert!(Handler::<Sink>::bell(&server).unwrap().silence());
    let mut sink = Sink::new(1500, 8, 0);
    server.handle_messages(&mut sink, Instant::ZERO);
    assert_eq!(server.transports.app().log, "message message");
    assert_eq!(sink.counters().tx_frames, 0);
}
