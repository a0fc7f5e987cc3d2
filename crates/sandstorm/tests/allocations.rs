//! Counts the allocations of requests on a warm server. There must be none, with two exceptions. One is
//! several ranges of a file: their text and the list of their parts belong to one response. The other one is
//! a short part of a file, when a worker begins to keep it.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use eth::{Mac, Station};
use ip::Host;
use nmio::sim::Sink;
use nmio::{Handler as _, Instant};
use sandstorm::{Builder, HostedSite, Http, Server, Settings, Site};
use tcpip::{Config, SendMode};
use testkit::{Direct, SERVER, SERVER_MAC};

/// The time at first.
const START: Instant = Instant::from_millis(1_000);
/// Number of times that each request is sent before its allocations count.
const WARM_UP: usize = 40;
/// Number of times that its allocations count.
const COUNTED: usize = 20;
/// Maximum number of allocations for several ranges.
const MAX_FOR_RANGES: u64 = 16;

fn wall_clock() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_249_777)
}

/// Sites for two hosts, with a file in several packets, codings, and rules.
fn site() -> Site {
    let mut settings = Settings::default();
    settings.add_redirect("/old/* /new/:splat").unwrap();
    settings.add_redirect("/app/* /index.html 200").unwrap();
    settings
        .add_header("/long.txt Access-Control-Allow-Origin: *")
        .unwrap();
    let site = Builder::with_settings(wall_clock(), &settings)
        .file(b"/index.html", wall_clock(), b"<p>Sand\n")
        .file(b"/docs/index.html", wall_clock(), b"<p>Docs\n")
        .file(b"/long.txt", wall_clock(), &vec![b'x'; 100_000])
        .file(b"/coded.js", wall_clock(), &[b'x'; 1_000])
        .file(b"/coded.js.gz", wall_clock(), b"\x1f\x8bgzip");
    let other = Builder::new(wall_clock()).file(b"/other", wall_clock(), b"other");
    let hosted = |host: &str, site: Builder| HostedSite {
        hosts: vec![host.parse().unwrap()],
        site: site.build().into(),
    };
    Site::by_hosts(&[hosted("a.test", site), hosted("b.test", other)])
}

/// Returns a server, and its port.
fn server(mode: SendMode) -> (Server, Sink) {
    let mut sink = Sink::new(1500, 256, 256);
    let (now, addresses) = (START, SERVER);
    let config = Config {
        mode,
        ..Config::on_ports(&[80])
    };
    let site = Arc::new(site());
    let http = Http::new(site, &addresses, &config, &sink, [1, 2, 3, 4], now).unwrap();
    let host = Host::own(Station::new(Mac(SERVER_MAC), &addresses), [0; 4]);
    sink.copy_residents(true);
    (Server::new(host, http.with_wall_clock(wall_clock)), sink)
}

/// Sends a request many times. Each one has other fields, so each one is read anew. Returns the number
/// of allocations that count.
fn allocations(mode: SendMode, line: &str, fields: &str) -> u64 {
    let fields = |n: usize| format!("X-Request: {n:04}\r\n{fields}");
    allocations_of(mode, line, fields).0
}

/// Same as [`allocations`], with the fields of each request. Also returns the number of new content items.
fn allocations_of(mode: SendMode, line: &str, fields: impl Fn(usize) -> String) -> (u64, u64) {
    let (mut server, sink) = server(mode);
    let contents = |server: &Server| {
        let stack = server.transports.stack();
        stack.contents().totals().contents
    };
    let before = contents(&server);
    let mut client = Direct::new(sink, START);
    client.connect(|sink, frame, now| server.handle_frame(sink, frame, now));
    let mut count = 0;
    for n in 0..WARM_UP + COUNTED {
        let request = format!("{line}\r\nHost: a.test\r\n{}\r\n", fields(n));
        let allocations = client.request(request.as_bytes(), |sink, frame, now| {
            allocation_counter::measure(|| server.handle_frame(sink, frame, now)).count_total
        });
        count += if n < WARM_UP { 0 } else { allocations };
    }
    let served = server.transports.stack().app().counters().requests;
    assert_eq!(served as usize, WARM_UP + COUNTED, "{line}");
    (count, contents(&server) - before)
}

#[test]
fn a_request_allocates_nothing() {
    for mode in [SendMode::MemCopy, SendMode::PreCopy] {
        for (line, fields) in [
            ("GET / HTTP/1.1", ""),
            ("HEAD / HTTP/1.1", ""),
            ("OPTIONS / HTTP/1.1", ""),
            ("OPTIONS /long.txt HTTP/1.1", ""),
            ("POST / HTTP/1.1", ""),
            ("GET /long.txt HTTP/1.1", ""),
            ("GET /none HTTP/1.1", ""),
            ("GET /docs HTTP/1.1", ""),
            ("GET /docs?a=b HTTP/1.1", ""),
            ("GET /old/x%20y?z HTTP/1.1", ""),
            ("GET /app/x HTTP/1.1", ""),
            (
                "GET /coded.js HTTP/1.1",
                "Accept-Encoding: gzip, br;q=0.5\r\n",
            ),
            ("GET / HTTP/1.1", "If-None-Match: *\r\n"),
            ("GET / HTTP/1.1", "If-Match: \"x\"\r\n"),
            ("GET / HTTP/1.1", "Range: bytes=2-3\r\n"),
            ("GET /long.txt HTTP/1.1", "Range: bytes=100-50000\r\n"),
            ("GET / HTTP/1.1", "Range: bytes=99-\r\n"),
        ] {
            let count = allocations(mode, line, fields);
            assert_eq!(count, 0, "{mode:?} {line} {fields}");
        }
    }
}

/// The second request makes a content item of the part, and later ones get it.
#[test]
fn a_range_that_recurs_allocates_nothing_later() {
    for mode in [SendMode::MemCopy, SendMode::PreCopy] {
        let range = |_| "Range: bytes=100-5000\r\n".to_owned();
        assert_eq!(
            allocations_of(mode, "GET /long.txt HTTP/1.1", range),
            (0, 1),
            "{mode:?}"
        );
    }
}

#[test]
fn several_ranges_allocate_little() {
    let (line, fields) = ("GET /long.txt HTTP/1.1", "Range: bytes=0-1,50000-90001\r\n");
    let count = allocations(SendMode::MemCopy, line, fields);
    assert!(
        (1..=MAX_FOR_RANGES * COUNTED as u64).contains(&count),
        "{count}"
    );
}
