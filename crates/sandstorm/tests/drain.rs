//! Tests how the web server drains: which connections it closes, and what its last responses say.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::StartError;
use eth::{Mac, Station};
use ip::Host;
use nmio::{Drain, Handler as _, Instant};
use sandstorm::{
    App, Builder, Clients, Exchange, Http, More, Replies, Request, Sees, Server, SiteOnly, Ticket,
    Verdict,
};
use tcpip::{Config, Timer};
use testkit::{ACK, FIN, Layout, Outbox, Route, SERVER, SERVER_MAC, SYN, Segment, read_segment};

const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: a.test\r\n\r\n";
const KEEP_ALIVE: &str = "Connection: keep-alive\r\n";
const CLOSE: &str = "Connection: close     \r\n";

fn wall_clock() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_795_249_777_500)
}

/// A server with a file `/a` of three bytes, and a client's side of one connection.
struct Rig<A: App = SiteOnly> {
    server: Server<A>,
    port: Outbox,
    now: Instant,
    seq: u32,
    ack: u32,
}

impl Rig {
    fn open() -> Self {
        Self::with(|_| Ok(SiteOnly))
    }
}

impl<A: App> Rig<A> {
    fn with(make: impl FnOnce(&mut Replies<'_>) -> Result<A, StartError>) -> Self {
        let port = Outbox::new(1500, 64, ip::write_segment);
        let site = Builder::new(wall_clock()).file(b"/a", wall_clock(), b"aaa");
        let (config, now) = (Config::on_ports(&[80]), Instant::from_millis(1_000));
        let site = Arc::new(site.build());
        let http = Http::load(site, make, &SERVER, &config, &port, [1, 2, 3, 4], now).unwrap();
        let host = Host::own(Station::new(Mac(SERVER_MAC), &SERVER), [0; 4]);
        let mut rig = Self {
            server: Server::new(host, http.with_wall_clock(wall_clock)),
            port,
            now,
            seq: 0,
            ack: 0,
        };
        rig.pass(SYN, b"");
        rig.acknowledge();
        rig
    }

    /// Passes a segment from the client to the server. Returns what the server sends.
    fn pass(&mut self, bits: u16, data: &[u8]) -> Vec<Segment> {
        let segment = Segment::of_client(bits, self.seq, self.ack, data);
        self.seq += segment.span();
        let route = Route::to_server(false, 40_000, 80);
        let frame = self
            .port
            .frame_from(&route.segment(&segment, Layout::Usual));
        self.server.handle_frame(&mut self.port, frame, self.now);
        self.sent()
    }

    /// Returns the segments that the server has sent.
    fn sent(&mut self) -> Vec<Segment> {
        let sent = self.port.sent.drain(..);
        let sent: Vec<_> = sent
            .map(|bytes| read_segment(&bytes).unwrap().segment)
            .collect();
        for segment in &sent {
            self.ack = segment.seq.wrapping_add(segment.span());
        }
        sent
    }

    fn send(&mut self, data: &[u8]) -> Vec<Segment> {
        self.pass(ACK, data)
    }

    fn acknowledge(&mut self) {
        assert!(self.send(b"").is_empty());
    }

    /// Drains for 50 ms. Returns what the server sends, and whether the drain is done.
    fn drain(&mut self) -> (Vec<Segment>, bool) {
        for _ in 0..50 {
            if self.server.handle_drain(&mut self.port, self.now) == Drain::Done {
                return (self.sent(), true);
            }
            self.now = self.now + Duration::from_millis(1);
            self.server.handle_timers(&mut self.port, self.now);
        }
        (self.sent(), false)
    }
}

/// Returns the responses in `segments`, and whether a FIN follows.
fn text(segments: &[Segment]) -> (String, bool) {
    let data = segments.iter().flat_map(|segment| segment.data.clone());
    let fin = segments.last().is_some_and(|segment| segment.has(FIN));
    (String::from_utf8(data.collect()).unwrap(), fin)
}

#[test]
fn a_connection_between_two_requests_is_closed_at_once() {
    let mut rig = Rig::open();
    let (response, fin) = text(&rig.send(GET));
    assert!(response.contains(KEEP_ALIVE) && !fin, "{response}");
    rig.acknowledge();
    let (sent, done) = rig.drain();
    assert_eq!((text(&sent), done), ((String::new(), true), false));
    rig.acknowledge();
    assert_eq!(rig.drain(), (vec![], true));
}

#[test]
fn the_fin_follows_a_response_that_is_on_the_way() {
    let mut rig = Rig::open();
    let (response, fin) = text(&rig.send(GET));
    assert!(response.contains(KEEP_ALIVE) && !fin, "{response}");
    let (sent, done) = rig.drain();
    assert_eq!((text(&sent), done), ((String::new(), true), false));
    // The client acknowledges the response, and then the FIN.
    rig.ack -= 1;
    rig.acknowledge();
    rig.ack += 1;
    rig.acknowledge();
    assert_eq!(rig.drain(), (vec![], true));
}

#[test]
fn a_request_that_ends_during_the_drain_gets_the_last_response() {
    let mut rig = Rig::open();
    let (begin, rest) = GET.split_at(10);
    rig.send(begin);
    assert_eq!(rig.drain(), (vec![], false));
    let (response, fin) = text(&rig.send(rest));
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert!(response.ends_with("\r\n\r\naaa"), "{response}");
    assert!(response.contains(CLOSE) && fin, "{response}");
    rig.acknowledge();
    assert_eq!(rig.drain(), (vec![], true));
}

#[test]
fn all_requests_that_have_arrived_are_answered() {
    let mut rig = Rig::open();
    rig.send(&GET[..10]);
    assert_eq!(rig.drain(), (vec![], false));
    let requests = [&GET[10..], GET, GET].concat();
    let (responses, fin) = text(&rig.send(&requests));
    assert_eq!(responses.matches("\r\n\r\naaa").count(), 3, "{responses}");
    assert_eq!(responses.matches(KEEP_ALIVE).count(), 2, "{responses}");
    let last = responses.rfind("HTTP/1.1").unwrap();
    assert!(responses[last..].contains(CLOSE) && fin, "{responses}");
}

/// An application that gives its answers later, when a timer expires.
#[derive(Default)]
struct Slow {
    deferred: Vec<Ticket>,
    streams: Vec<Ticket>,
    /// Whether streams go on.
    is_ready: bool,
}

const ANSWER: Timer = Timer::new(0);
/// Longer than one call of [`Rig::drain`].
const LATER: Duration = Duration::from_millis(120);

impl App for Slow {
    type State = ();
    type Message = ();

    const SEES: Sees = Sees::Everything;

    fn on_start(&mut self, clients: &mut impl Clients<()>) {
        clients.set_timer(ANSWER, LATER);
    }

    fn on_request(&mut self, request: &Request<'_>, exchange: &mut Exchange<'_, ()>) -> Verdict {
        if request.path() == "/later" {
            self.deferred.push(exchange.ticket());
            return Verdict::Later;
        }
        exchange.response().write(b"one");
        Verdict::Stream
    }

    fn on_more(&mut self, exchange: &mut Exchange<'_, ()>) -> More {
        if !self.is_ready {
            self.streams.push(exchange.ticket());
            return More::Wait;
        }
        exchange.response().write(b"two");
        More::Last
    }

    fn on_timer(&mut self, _: Timer, clients: &mut impl Clients<()>) {
        self.is_ready = true;
        for ticket in self.deferred.drain(..) {
            clients.answer(ticket, |_, exchange| exchange.text(format_args!("done")));
        }
        for ticket in self.streams.drain(..) {
            clients.resume(ticket);
        }
    }
}

impl Rig<Slow> {
    fn slow() -> Self {
        Self::with(|_| Ok(Slow::default()))
    }
}

#[test]
fn a_drain_waits_for_an_answer_that_the_application_gives_later() {
    let mut rig = Rig::slow();
    let sent = rig.send(b"GET /later HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(text(&sent), (String::new(), false));
    let (sent, done) = rig.drain();
    assert_eq!((text(&sent), done), ((String::new(), false), false));
    let (mut sent, _) = rig.drain();
    sent.extend(rig.drain().0);
    let (response, fin) = text(&sent);
    assert!(response.ends_with("\r\n\r\ndone"), "{response}");
    assert!(response.contains(CLOSE) && fin, "{response}");
    rig.acknowledge();
    assert_eq!(rig.drain(), (vec![], true));
}

#[test]
fn a_drain_waits_for_the_end_of_a_streamed_response() {
    let mut rig = Rig::slow();
    let (begin, fin) = text(&rig.send(b"GET /stream HTTP/1.1\r\nHost: a.test\r\n\r\n"));
    assert!(begin.ends_with("3\r\none\r\n") && !fin, "{begin}");
    rig.acknowledge();
    let (sent, done) = rig.drain();
    assert_eq!((text(&sent), done), ((String::new(), false), false));
    let (mut sent, _) = rig.drain();
    sent.extend(rig.drain().0);
    let (rest, fin) = text(&sent);
    assert_eq!((&*rest, fin), ("3\r\ntwo\r\n0\r\n\r\n", true));
    rig.acknowledge();
    assert_eq!(rig.drain(), (vec![], true));
}
