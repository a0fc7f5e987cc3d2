//! The server without a client: its memory of requests, its clock, its count
//! of packets.

use eth::{Mac, Station};
use nmio::sim::{self, LinkConfig, PathConfig};

use super::*;
use crate::site::Builder;

/// The application, with a site whose only file is `/a`.
fn web() -> Web {
    Web::new(site(7))
}

/// A site whose only file, `/a`, has `len` bytes.
fn site(len: usize) -> Arc<Site> {
    let site = Builder::new(UNIX_EPOCH).file(b"/a", UNIX_EPOCH, &vec![b'x'; len]);
    Arc::new(site.build())
}

fn addresses() -> [IpAddr; 2] {
    ["10.0.0.1", "fd00::1"].map(|address| address.parse().unwrap())
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}

/// Status of the answer to `data`, which is all of one request.
fn status(web: &mut Web, session: &mut Session, data: &[u8]) -> Option<Status> {
    match web.next(session, data) {
        Step::Answer(answer) => {
            assert_eq!(answer.consumed, data.len());
            Some(answer.of(&web.site).status())
        }
        Step::More { consumed } => {
            assert_eq!(consumed, 0);
            None
        }
    }
}

#[test]
fn a_request_in_two_pieces_leaves_nothing_behind() {
    let mut web = web();
    let long = get("/not-a-file");
    // The second session's answer may come from memory. What follows it never
    // does: it has to be read, from its first byte on.
    for next in ["/a?1", "/a?2"] {
        let mut session = Session::default();
        let half = &long[..long.len() - 1];
        assert_eq!(status(&mut web, &mut session, half), None);
        let found = status(&mut web, &mut session, &long);
        assert_eq!(found, Some(Status::NotFound));
        let found = status(&mut web, &mut session, &get(next));
        assert_eq!(found, Some(Status::Ok));
    }
}

#[test]
fn a_remembered_request_is_not_read_again() {
    let mut web = web();
    let request = get("/a");
    // What is remembered is wrong here, so that it shows where it is used.
    let step = web.next(&mut Session::default(), &get("/none"));
    let Step::Answer(mut missing) = step else {
        panic!("the request is whole")
    };
    missing.consumed = request.len();
    let place = web.answers.find(&request).unwrap_err();
    web.answers.remember(place, &request, missing);
    let found = status(&mut web, &mut Session::default(), &request);
    assert_eq!(found, Some(Status::NotFound));
}

#[test]
fn fields_of_one_request_are_not_read_with_the_next() {
    let mut web = web();
    let fields = "Host: x\r\nConnection: close\r\n\r\n";
    let closing =
        |path: &str, fields: &str| format!("GET {path} HTTP/1.1\r\n{fields}").into_bytes();
    let mut next = |request: &[u8]| match web.next(&mut Session::default(), request) {
        Step::Answer(answer) => (
            web.site.reply(answer.reply).status(),
            answer.close,
            answer.consumed,
        ),
        Step::More { .. } => panic!("the request is whole"),
    };
    let first = closing("/none", fields);
    assert_eq!(next(&first), (Status::NotFound, true, first.len()));
    let second = closing("/a", fields);
    assert_eq!(next(&second), (Status::Ok, true, second.len()));
    // A condition depends on the file, and a body on what follows.
    let conditional = "Host: x\r\nIf-None-Match: *\r\n\r\n";
    for (path, status) in [("/none", Status::NotFound), ("/a", Status::NotModified)] {
        let request = closing(path, conditional);
        assert_eq!(next(&request), (status, false, request.len()), "{path}");
    }
    // The same bytes behind another version say something else.
    let old = b"GET /a HTTP/1.0\r\nHost: x\r\n\r\n";
    assert_eq!(next(old), (Status::Ok, true, old.len()));
    assert!(!next(&get("/a")).1);
    let bad = closing("/a", "Host: x\r\nHost: y\r\n\r\n");
    for _ in 0..2 {
        assert_eq!(next(&bad).0, Status::BadRequest);
    }
}

/// Half a second into the second 1,795,249,777.
fn half_past() -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_795_249_777_500)
}

#[test]
fn the_time_of_day_is_read_again_when_its_second_ends() {
    let config = LinkConfig::symmetric(PathConfig::default());
    let (port, _, _) = sim::link(&config, 1);
    let config = tcpip::Config::on_ports(&[80]);
    let now = Instant::ZERO;
    let server = Http::<Cubic>::new(site(7), &addresses(), &config, &port, [1, 2, 3, 4], now);
    let mut server = server.unwrap().with_wall_clock(half_past);
    assert_eq!(server.packets(), packets(&site(7), &addresses(), 1500));

    let now = now + Duration::from_secs(3);
    server.read_wall_clock(now);
    assert_eq!(server.stack().app().second, 1_795_249_777);
    assert_eq!(server.second_ends, now + Duration::from_millis(500));
}

#[test]
fn packets_are_counted_for_each_family_with_their_headers() {
    // Nine shared replies and a file, each with its HEAD, and "not modified".
    let replies = 2 * 10 + 1;
    let [v4, v6] = addresses();
    for (len, segments_v4, segments_v6) in [(7, 1, 1), (2_800, 3, 3), (4_075, 3, 4)] {
        let site = site(len);
        let bytes: usize = site.replies().iter().map(|r| r.bytes().len()).sum();
        let expected = |segments: u64, headers: u64| {
            let count = replies - 1 + segments;
            let bytes = bytes as u64 + count * (14 + headers);
            Packets { count, bytes }
        };
        let of_v4 = expected(segments_v4, 20 + 32);
        let of_v6 = expected(segments_v6, 40 + 32);
        assert_eq!(packets(&site, &[v4], 1500), of_v4, "{len}");
        assert_eq!(packets(&site, &[v6], 1500), of_v6, "{len}");
        let both = Packets {
            count: of_v4.count + of_v6.count,
            bytes: of_v4.bytes + of_v6.bytes,
        };
        assert_eq!(packets(&site, &[v6, v4, v4], 1500), both, "{len}");
    }
    assert_eq!(packets(&site(7), &[], 1500), Packets::default());
}
