//! Tests which clients give way when there are too few connections over TCP, on a virtual clock.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use crate::harness::{FORMS, PORT, Query, name, prepare};
use eth::{Mac, Station};
use ip::Host;
use namestorm::{Dns, DnsOverTcp, IDLE_TIMEOUT, NoHook, ReplyMode, Server, TcpSettings, UdpAndTcp};
use nmio::sim::Sink;
use nmio::{Handler as _, Instant, Port as _};
use tcpip::{Config, WhenFull};
use testkit::{ACK, Layout, RST, Route, SERVER, SERVER_MAC, SYN, Segment, read_segment};

/// A server with room for four connections, and the time.
struct Rig {
    server: Server,
    sink: Sink,
    now: Instant,
}

impl Rig {
    fn new(when_full: WhenFull) -> Self {
        let text = format!(" {}", "x".repeat(250)).repeat(12);
        let zone =
            format!("@ 60 SOA ns h 1 2 3 4 60\n@ 60 NS ns\nns 60 A 192.0.2.1\nt 60 TXT{text}\n");
        let answers = prepare(&[("z.", &zone)], FORMS[0]);
        let sink = Sink::new(1500, 64, 256);
        let config = Config {
            max_connections: 4,
            when_full,
            ..TcpSettings::default().stack
        };
        let transports = UdpAndTcp::with_hook(
            PORT,
            Dns::new(Arc::clone(&answers), ReplyMode::Turnaround),
            DnsOverTcp::with_hook(answers, IDLE_TIMEOUT, NoHook),
            &config,
            &sink.capabilities(),
            [5, 6, 7, 8],
        );
        let station = Station::new(Mac(SERVER_MAC), &SERVER);
        Self {
            server: Server::new(Host::own(station, [0; 4]), transports),
            sink,
            now: Instant::ZERO,
        }
    }

    /// Passes a segment to the server. Returns the last segment that the server sends, if any.
    fn exchange(&mut self, route: Route, segment: &Segment) -> Option<Segment> {
        let sent = self.sink.counters().tx_frames;
        let frame = self.sink.frame_from(&route.segment(segment, Layout::Usual));
        self.server.handle_frame(&mut self.sink, frame, self.now);
        let has_reply = self.sink.counters().tx_frames > sent;
        has_reply.then(|| read_segment(self.sink.last()).unwrap().segment)
    }

    fn wait(&mut self, millis: u64) {
        self.now = self.now + Duration::from_millis(millis);
        self.server.handle_timers(&mut self.sink, self.now);
    }

    fn evicted(&self) -> u64 {
        self.server.transports.tcp().counters().evicted
    }
}

/// A client with an address of its own.
struct Client {
    route: Route,
    seq: u32,
    ack: u32,
}

impl Client {
    /// Opens a connection. Returns `None` if the server does not accept it.
    fn open(rig: &mut Rig, number: u8) -> Option<Self> {
        let mut route = Route::to_server(false, 40_000, PORT);
        route.src.ip = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 100 + number));
        let mut client = Self {
            route,
            seq: 7,
            ack: 0,
        };
        let syn = Segment::of_client(SYN, client.seq, 0, b"");
        let reply = rig.exchange(client.route, &syn)?;
        client.seq += 1;
        client.ack = reply.seq.wrapping_add(1);
        client.send(rig, b"");
        Some(client)
    }

    /// Sends the next bytes. Returns the last segment that the server sends in response, if any.
    fn send(&mut self, rig: &mut Rig, data: &[u8]) -> Option<Segment> {
        let segment = Segment::of_client(ACK, self.seq, self.ack, data);
        self.seq += data.len() as u32;
        rig.exchange(self.route, &segment)
    }

    /// Asks for an address, and reads and acknowledges the reply. Returns true if there is one.
    fn ask(&mut self, rig: &mut Rig) -> bool {
        let query = framed("ns.z", 1);
        let Some(reply) = self.send(rig, &query).filter(|reply| !reply.has(RST)) else {
            return false;
        };
        assert_eq!(reply.data.len(), query.len() + 16);
        self.ack = reply.seq.wrapping_add(reply.span());
        self.send(rig, b"");
        true
    }

    /// Returns true if the server does not know the connection any more.
    fn is_gone(&mut self, rig: &mut Rig) -> bool {
        self.send(rig, b"\0").is_some_and(|reply| reply.has(RST))
    }
}

/// Returns a query with its length field.
fn framed(text: &str, qtype: u16) -> Vec<u8> {
    let message = Query::new(&name(text), qtype).bytes();
    [&(message.len() as u16).to_be_bytes()[..], &message].concat()
}

/// Clients that make no progress give way to those who ask and read. One of them sends a query byte by
/// byte, one asks for much and reads nothing, and one is silent.
#[test]
fn clients_without_progress_give_way_to_those_who_ask_and_read() {
    for when_full in [WhenFull::Evict, WhenFull::Refuse] {
        let mut rig = Rig::new(when_full);
        let [mut slow, mut deaf, mut idle, mut good] =
            [0, 1, 2, 3].map(|number| Client::open(&mut rig, number).unwrap());
        let long = framed("t.z", 16);
        let (acked, reply) = (deaf.ack, deaf.send(&mut rig, &long.repeat(40)));
        assert!(reply.is_some_and(|reply| reply.data.len() > 1000));
        assert_eq!(deaf.ack, acked);
        let query = framed("ns.z", 1);
        for byte in &query[..20] {
            slow.send(&mut rig, &[*byte]);
            assert!(good.ask(&mut rig));
            rig.wait(200);
        }
        assert_eq!(rig.evicted(), 0, "nothing runs short yet");
        let mut newcomers = Vec::new();
        for number in 4..7 {
            let newcomer = Client::open(&mut rig, number);
            newcomers.extend(newcomer.filter(|_| when_full == WhenFull::Evict));
            for newcomer in &mut newcomers {
                assert!(newcomer.ask(&mut rig));
            }
            assert!(good.ask(&mut rig), "it makes progress");
        }
        let evicted = if when_full == WhenFull::Evict { 3 } else { 0 };
        assert_eq!(
            (rig.evicted(), newcomers.len()),
            (evicted, evicted as usize)
        );
        for client in [&mut slow, &mut deaf, &mut idle] {
            assert_eq!(client.is_gone(&mut rig), evicted > 0);
        }
        // Nobody is behind now, so nobody gives way.
        rig.wait(500);
        if let Some(mut late) = Client::open(&mut rig, 7) {
            assert!(late.is_gone(&mut rig) || !late.ask(&mut rig));
        }
        for client in newcomers.iter_mut().chain([&mut good]) {
            assert!(client.ask(&mut rig));
        }
    }
}
