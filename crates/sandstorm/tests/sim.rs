//! Tests a complete server with an independent TCP client on a simulated link. Server and client
//! exchange only frames.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use eth::{Mac, Station};
use ip::Host;
use nmio::sim::{EndConfig, LinkConfig, PathConfig};
use nmio::{Instant, Port};
use sandstorm::date::{SlotWriter, Stamp};
use sandstorm::reply::Status;
use sandstorm::{Builder, Http, Server, Site, packets};
use tcpip::{Config, SendMode};
use testkit::smol::{Client, Talk};
use testkit::{Link, SERVER, SERVER_MAC};

const MODES: [SendMode; 2] = [SendMode::PreCopy, SendMode::MemCopy];
const PORT: u16 = 80;
/// Maximum simulated time of one run of the clients and the server.
const LONGEST: Duration = Duration::from_mins(2);
/// Body sizes in bytes: empty, one byte, close to the size of a segment, and several segments.
const SIZES: [usize; 6] = [0, 1, 1459, 1460, 1461, 65_536];

/// Returns the tests' time of day: Sat, 21 Nov 2026 08:29:37.5 GMT.
fn wall_clock() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_795_249_777_500)
}

/// Makes a body of `len` bytes whose segments all differ, so that a misplaced segment is noticed.
fn body(len: usize) -> Vec<u8> {
    (0..len as u32)
        .flat_map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes())
        .take(len)
        .collect()
}

fn path(len: usize) -> String {
    format!("/{len}.bin")
}

/// Builds a site with a file `/SIZE.bin` of each size. For each size that has room for a response
/// head, there is also a file `/exactly-SIZE.bin`. The whole response with that file, head
/// included, is exactly SIZE bytes long.
fn site(sizes: &[usize]) -> Arc<Site> {
    let modified = wall_clock() - Duration::from_secs(1000);
    let add = |site: Builder, path: &str, body: &[u8]| site.file(path.as_bytes(), modified, body);
    let empty = Builder::new(wall_clock());
    let site = sizes.iter().fold(empty, |site, len| {
        let site = add(site, &path(*len), &body(*len));
        match len.checked_sub(head_len(*len)) {
            Some(rest) => add(site, &format!("/exactly-{len}.bin"), &body(rest)),
            None => site,
        }
    });
    Arc::new(site.build())
}

/// Returns the length of the head of a response that is `len` bytes long, head included.
fn head_len(len: usize) -> usize {
    let head = |len: usize| {
        format!(
            "HTTP/1.1 200 OK\r\n\
             Date: Sat, 21 Nov 2026 08:29:37 GMT\r\n\
             Connection: keep-alive\r\n\
             Content-Type: application/octet-stream\r\n\
             Content-Length: {len}\r\n\
             Last-Modified: Sat, 21 Nov 2026 08:12:57 GMT\r\n\
             ETag: \"0123456789abcdef\"\r\n\
             Accept-Ranges: bytes\r\n\
             \r\n"
        )
        .len()
    };
    head(len.saturating_sub(head(len)))
}

fn get(path: &str, fields: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: storm.test\r\n{fields}\r\n").into_bytes()
}

/// A request and the expected response.
struct Exchange {
    request: Vec<u8>,
    status: u16,
    /// The body. If it has several pieces, the boundary of a multipart body stands between them.
    body: Vec<Vec<u8>>,
}

impl Exchange {
    fn of(len: usize) -> Self {
        Self {
            request: get(&path(len), ""),
            status: 200,
            body: vec![body(len)],
        }
    }

    fn exactly(len: usize) -> Self {
        Self {
            request: get(&format!("/exactly-{len}.bin"), ""),
            status: 200,
            body: vec![body(len - head_len(len))],
        }
    }

    fn new(path: &str, fields: &str, status: u16, body: &[u8]) -> Self {
        Self {
            request: get(path, fields),
            status,
            body: vec![body.to_vec()],
        }
    }
}

/// Removes the first response from `bytes`. Returns its status, head and body.
fn take_response<'b>(bytes: &mut &'b [u8]) -> (u16, &'b [u8], &'b [u8]) {
    let mut fields = [httparse::EMPTY_HEADER; 16];
    let mut response = httparse::Response::new(&mut fields);
    let head = response.parse(bytes).unwrap().unwrap();
    let code = response.code.unwrap();
    let length = response
        .headers
        .iter()
        .find(|field| field.name == "Content-Length")
        .map_or(0, |field| {
            std::str::from_utf8(field.value).unwrap().parse().unwrap()
        });
    let (whole, rest) = bytes.split_at(head + length);
    *bytes = rest;
    let (head, body) = whole.split_at(head);
    (code, head, body)
}

/// Checks that `received` consists of exactly the responses to `exchanges`. Compares only the
/// bodies of responses with status 200 or 206.
fn check(mut received: &[u8], exchanges: &[Exchange]) {
    for exchange in exchanges {
        let request = String::from_utf8_lossy(&exchange.request);
        assert!(!received.is_empty(), "no answer to {request}");
        let (status, head, body) = take_response(&mut received);
        assert_eq!(status, exchange.status, "{request}");
        let head = String::from_utf8_lossy(head);
        if status == 200 || status == 206 {
            let boundary = head.split_once("boundary=");
            let boundary = boundary.map_or("", |(_, rest)| &rest[..16]);
            let expected = exchange.body.join(boundary.as_bytes());
            assert!(body == expected, "wrong body: {request}");
        }
        assert!(head.contains("\r\nDate: Sat, 21 Nov 2026 08:29:37 GMT\r\n"));
    }
    assert_eq!(received, b"", "more than the expected responses");
}

/// Returns copies of `talk` for the server's IPv4 and IPv6 addresses.
fn to_both_addresses(talk: &Talk) -> [Talk; 2] {
    SERVER.map(|server| Talk {
        server,
        ..talk.clone()
    })
}

/// Settings for a simulated link with clients on one side and the server on the other.
struct World {
    mode: SendMode,
    client_mtu: usize,
    path: PathConfig,
    seed: u64,
    /// Number of resident frames that the server's port lacks.
    residents_missing: u32,
}

impl World {
    fn new(mode: SendMode) -> Self {
        Self {
            mode,
            client_mtu: 1500,
            path: PathConfig {
                delay: Duration::from_millis(5),
                ..PathConfig::default()
            },
            seed: 1,
            residents_missing: 0,
        }
    }

    /// Runs all talks concurrently.
    fn run(&self, site: &Arc<Site>, talks: &[Talk]) -> (Client, Server) {
        let mut config = LinkConfig::symmetric(self.path);
        let packets = packets(site, &SERVER, 1500).count as u32;
        config.b = EndConfig {
            resident_frames: (packets + 512).saturating_sub(self.residents_missing),
            ..EndConfig::default()
        };
        let mut link = Link::new(&config, self.seed);
        let station = Station::new(Mac(SERVER_MAC), &SERVER);
        let config = Config {
            mode: self.mode,
            ..Config::on_ports(&[PORT])
        };
        let http = Http::new(
            Arc::clone(site),
            &SERVER,
            &config,
            &link.server,
            [1, 2, 3, 4],
            Instant::ZERO,
        )
        .unwrap()
        .with_wall_clock(wall_clock);
        let mut server = Server::new(Host::own(station, [0; 4]), http);
        let mut client = Client::new(self.client_mtu);
        for talk in talks {
            client.connect(PORT, talk.clone());
        }
        let done = link.run(&mut client, &mut server, LONGEST, |client, _| client.done());
        let counters = server.transports.stack().counters();
        assert!(
            done,
            "the clients did not finish in time, seed {}: {counters:?}",
            self.seed
        );
        assert_eq!(link.server.counters().bad_descriptors, 0);
        (client, server)
    }

    /// Runs the same exchanges on one connection to each address of the server.
    fn exchange(&self, site: &Arc<Site>, exchanges: &[Exchange], piece: usize) -> Server {
        let bytes: Vec<u8> = exchanges.iter().flat_map(|e| e.request.clone()).collect();
        let expected = exchanges.iter().map(|e| answer_len(site, e)).sum();
        let talk = Talk {
            bytes,
            piece,
            expected,
            ..Talk::default()
        };
        let (client, server) = self.run(site, &to_both_addresses(&talk));
        for connection in &client.connections {
            assert!(!connection.closed_by_server);
            check(&connection.received, exchanges);
        }
        server
    }
}

/// Returns the length of the answer to a request, computed by calling the library without a
/// network.
fn answer_len(site: &Site, exchange: &Exchange) -> usize {
    match sandstorm::Session::default().next(site, &exchange.request) {
        sandstorm::Step::Answer(answer) => {
            let (stamp, mut response) = (Stamp::new(0, false), Vec::new());
            let slots = &mut SlotWriter::new();
            answer.write(site, &exchange.request, stamp, slots, &mut response);
            response.len()
        }
        sandstorm::Step::More { .. } => panic!("no whole request"),
    }
}

#[test]
fn each_segment_has_one_request() {
    let site = site(&SIZES);
    for mode in MODES {
        for len in SIZES {
            World::new(mode).exchange(&site, &[Exchange::of(len)], usize::MAX);
        }
    }
}

/// A request for parts of the file of `len` bytes, each from a first byte to before a last one.
fn parts(len: usize, ranges: &[(usize, usize)]) -> Exchange {
    let shown = |range: &(usize, usize)| format!("{}-{}", range.0, range.1 - 1);
    let list: Vec<_> = ranges.iter().map(shown).collect();
    let fields = format!("Range: bytes={}\r\n", list.join(","));
    let whole = body(len);
    if let [(start, end)] = ranges {
        return Exchange::new(&path(len), &fields, 206, &whole[*start..*end]);
    }
    let mut pieces = vec![b"\r\n--".to_vec()];
    for range in ranges {
        let head = format!(
            "\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes {}/{len}\r\n\r\n",
            shown(range)
        );
        pieces.push([head.as_bytes(), &whole[range.0..range.1], b"\r\n--"].concat());
    }
    pieces.push(b"--\r\n".to_vec());
    Exchange {
        body: pieces,
        ..Exchange::new(&path(len), &fields, 206, b"")
    }
}

#[test]
fn parts_of_files_arrive_whole_and_in_order() {
    const LEN: usize = 65_536;
    let site = site(&[LEN]);
    let mut many: Vec<_> = (0..32).map(|n| (n * 2_000, n * 2_000 + 1_000)).collect();
    many.reverse();
    let exchanges = [
        parts(LEN, &[(0, 1)]),
        parts(LEN, &[(0, LEN)]),
        parts(LEN, &[(1_000, 40_000)]),
        parts(LEN, &[(LEN - 1, LEN)]),
        parts(LEN, &[(60_000, 65_000), (0, 1), (1_460, 2_920)]),
        parts(LEN, &many),
        Exchange::of(LEN),
        Exchange::new(&path(LEN), "Range: bytes=65536-\r\n", 416, b""),
        parts(LEN, &many[..5]),
    ];
    for mode in MODES {
        let server = World::new(mode).exchange(&site, &exchanges, usize::MAX);
        let totals = server.transports.stack().contents().totals();
        assert_eq!(totals.temporary_bytes, 0);
        let counters = server.transports.stack().app().counters();
        assert_eq!(counters.of(Status::PartialContent), 14);
    }
}

#[test]
fn responses_may_end_exactly_with_a_segment() {
    let sizes = [1459, 1460, 1461, 2920, 1440, 65_536];
    let site = site(&sizes);
    for len in sizes {
        assert_eq!(answer_len(&site, &Exchange::exactly(len)), len);
    }
    for mode in MODES {
        let exchanges: Vec<Exchange> = sizes.into_iter().map(Exchange::exactly).collect();
        World::new(mode).exchange(&site, &exchanges, usize::MAX);
    }
}

#[test]
fn a_connection_is_kept_alive() {
    let site = site(&SIZES);
    for mode in MODES {
        let exchanges: Vec<Exchange> = SIZES
            .iter()
            .cycle()
            .take(60)
            .copied()
            .map(Exchange::of)
            .collect();
        // Each piece is as long as the first request, and is sent after the previous piece has been
        // acknowledged. The requests therefore arrive one after another.
        let piece = exchanges[0].request.len();
        World::new(mode).exchange(&site, &exchanges, piece);
    }
}

#[test]
fn the_time_from_a_request_to_the_last_ack_is_counted() {
    let site = site(&[1, 65_536]);
    let times = |len: usize| {
        let exchanges: Vec<Exchange> = (0..10).map(|_| Exchange::of(len)).collect();
        let piece = exchanges[0].request.len();
        let server = World::new(SendMode::PreCopy).exchange(&site, &exchanges, piece);
        let times = server.transports.stack().app().request_times();
        // No time is shorter than the round trip of 10 ms.
        assert_eq!(times.ranges()[..14], [0; 14], "{len}");
        (times.ranges().iter().sum::<u64>(), times.micros())
    };
    let (short, long) = (times(1), times(65_536));
    // The last ACK of each of the two connections may arrive after the end of the run.
    assert!((18..=20).contains(&short.0), "{short:?}");
    assert!(long.1 > short.1, "{short:?} {long:?}");
}

#[test]
fn more_requests_than_the_send_stream_has_room_for_are_answered() {
    let site = site(&SIZES);
    for mode in MODES {
        let exchanges: Vec<Exchange> = SIZES
            .iter()
            .cycle()
            .take(60)
            .copied()
            .map(Exchange::of)
            .collect();
        let server = World::new(mode).exchange(&site, &exchanges, usize::MAX);
        assert_eq!(server.transports.stack().app().counters().requests, 120);
        assert_eq!(
            server.transports.stack().app().counters().of(Status::Ok),
            120
        );
    }
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let site = site(&[1460]);
    World::new(SendMode::MemCopy).exchange(&site, &[Exchange::of(1460), Exchange::of(1460)], 1);
}

#[test]
fn errors_leave_the_connection_open() {
    let site = site(&[1]);
    let exchanges = [
        Exchange::new("/nothing", "", 404, b""),
        Exchange::new("/1.bin", "If-None-Match: *\r\n", 304, b""),
        Exchange::new("/1.bin", "If-Match: \"x\"\r\n", 412, b""),
        Exchange::new("/../1.bin", "", 404, b""),
        Exchange::of(1),
    ];
    World::new(SendMode::PreCopy).exchange(&site, &exchanges, usize::MAX);
}

#[test]
fn redirects_with_a_query_keep_their_order_among_prepared_answers() {
    let modified = wall_clock() - Duration::from_secs(1000);
    let site = Builder::new(wall_clock())
        .file(b"/docs/index.html", modified, b"docs")
        .build();
    let long = format!("/docs?{}", "\u{fc}".repeat(3_000));
    let exchanges: Vec<Exchange> = (0..40)
        .map(|i| match i % 4 {
            0 => Exchange::new("/docs/", "", 200, b"docs"),
            1 => Exchange::new("/docs", "", 301, b""),
            2 => Exchange::new(&format!("/docs?{i}"), "", 301, b""),
            _ => Exchange::new(&long, "", 301, b""),
        })
        .collect();
    let site = Arc::new(site);
    for mode in MODES {
        let server = World::new(mode).exchange(&site, &exchanges, 20_000);
        let counters = server.transports.stack().app().counters();
        assert_eq!(counters.of(Status::MovedPermanently), 60);
    }
}

/// Runs one talk with the server's first address. Returns the received bytes, and whether the
/// server has closed the connection.
fn talk(bytes: Vec<u8>, half_close: bool) -> (Vec<u8>, bool, Server) {
    let talk = Talk {
        bytes,
        half_close,
        ..Talk::default()
    };
    let world = World::new(SendMode::PreCopy);
    let (mut client, server) = world.run(&site(&SIZES), &[talk]);
    let connection = client.connections.remove(0);
    (connection.received, connection.closed_by_server, server)
}

#[test]
fn the_server_closes_after_the_last_answer() {
    let last = get("/65536.bin", "Connection: close\r\n");
    let (received, closed, _) = talk([get("/1.bin", ""), last, get("/1.bin", "")].concat(), false);
    assert!(closed);
    let mut rest = &*received;
    let (_, first, _) = take_response(&mut rest);
    assert!(String::from_utf8_lossy(first).contains("\r\nConnection: keep-alive\r\n"));
    let (_, second, content) = take_response(&mut rest);
    assert!(String::from_utf8_lossy(second).contains("\r\nConnection: close     \r\n"));
    assert!(content == body(65_536));
    assert_eq!(rest, b"");
}

#[test]
fn a_refused_request_closes_the_connection() {
    let nonsense = b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n";
    let (received, closed, server) = talk([&nonsense[..], &[b'x'; 9_000]].concat(), false);
    assert!(closed);
    let mut rest = &*received;
    assert_eq!(take_response(&mut rest).0, 400);
    assert_eq!(rest, b"");
    assert_eq!(
        server
            .transports
            .stack()
            .app()
            .counters()
            .of(Status::BadRequest),
        1
    );
}

#[test]
fn after_a_half_close_the_client_still_gets_all_answers() {
    let exchanges: Vec<Exchange> = SIZES
        .iter()
        .cycle()
        .take(30)
        .copied()
        .map(Exchange::of)
        .collect();
    let bytes = exchanges.iter().flat_map(|e| e.request.clone()).collect();
    let (received, closed, _) = talk(bytes, true);
    assert!(closed);
    check(&received, &exchanges);
    // The client may also half-close in the middle of a request.
    let (received, closed, _) = talk([get("/1.bin", ""), b"GET /".to_vec()].concat(), true);
    assert!(closed);
    check(&received, &[Exchange::of(1)]);
}

#[test]
fn the_request_timeout_begins_with_the_first_byte() {
    let half = b"GET / HTTP/1.1\r\nHost: a".to_vec();
    let behind_another = [get("/1.bin", ""), half.clone()].concat();
    for bytes in [half, b"\r\n\r\n".to_vec(), behind_another] {
        let (_, closed, server) = talk(bytes, false);
        assert!(closed);
        let counters = server.transports.stack().counters();
        assert_eq!((counters.deadlines_missed, counters.idle_closed), (1, 0));
    }
    // After a complete request, the request timeout ends, and only the idle timeout applies.
    let (_, closed, server) = talk(get("/1.bin", ""), false);
    assert!(closed);
    let counters = server.transports.stack().counters();
    assert_eq!((counters.deadlines_missed, counters.idle_closed), (0, 1));
}

#[test]
fn heads_and_slots_may_be_split_between_segments() {
    let site = site(&[0, 1_000]);
    let exchanges = [
        Exchange::of(1_000),
        Exchange::of(0),
        // With segments of the minimum size, the slot of this response is split between two
        // segments.
        Exchange {
            request: b"GET / HTTP/2.0\r\n\r\n".to_vec(),
            status: 505,
            body: Vec::new(),
        },
    ];
    let talk = Talk {
        bytes: exchanges.iter().flat_map(|e| e.request.clone()).collect(),
        ..Talk::default()
    };
    for mode in MODES {
        for client_mtu in [128, 150, 300, 576] {
            let mut world = World::new(mode);
            world.client_mtu = client_mtu;
            let (client, _) = world.run(&site, std::slice::from_ref(&talk));
            assert!(client.connections[0].closed_by_server);
            check(&client.connections[0].received, &exchanges);
        }
    }
}

#[test]
fn without_room_for_resident_packets_they_are_copied() {
    let site = site(&SIZES);
    let mut world = World::new(SendMode::PreCopy);
    world.residents_missing = u32::MAX;
    let exchanges: Vec<Exchange> = SIZES.into_iter().map(Exchange::of).collect();
    let server = world.exchange(&site, &exchanges, usize::MAX);
    assert_eq!(server.transports.stack().counters().sent_resident, 0);
    world.residents_missing = 0;
    let server = world.exchange(&site, &exchanges, usize::MAX);
    assert_eq!(server.transports.stack().counters().resident_fallbacks, 0);
}

#[test]
fn many_connections_are_served_over_a_lossy_link() {
    let site = site(&SIZES);
    for mode in MODES {
        for seed in 1..=5 {
            let mut world = World::new(mode);
            world.seed = seed;
            world.path = PathConfig {
                loss: 0.02,
                reorder: 0.02,
                reorder_delay: Duration::from_millis(3),
                duplicate: 0.01,
                ..world.path
            };
            let exchanges: Vec<Exchange> = SIZES
                .iter()
                .cycle()
                .take(12)
                .copied()
                .map(Exchange::of)
                .collect();
            let talk = Talk {
                bytes: exchanges.iter().flat_map(|e| e.request.clone()).collect(),
                expected: exchanges.iter().map(|e| answer_len(&site, e)).sum(),
                ..Talk::default()
            };
            let (client, _) = world.run(&site, &vec![to_both_addresses(&talk); 10].concat());
            for connection in &client.connections {
                check(&connection.received, &exchanges);
            }
        }
    }
}
