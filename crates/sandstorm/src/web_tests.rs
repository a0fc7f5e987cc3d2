//! Tests a worker's caches of answers and of request fields.

use std::time::UNIX_EPOCH;

use super::*;
use crate::known_sites::HostedId;
use crate::site::Builder;
use crate::status::Status;

/// Makes a [`Web`] for a site whose only file is `/a`.
fn web() -> Web {
    let site = Builder::new(UNIX_EPOCH).file(b"/a", UNIX_EPOCH, &[b'x'; 7]);
    let mut stack = None;
    let config = tcpip::Config::on_ports(&[80]);
    let capabilities = nmio::Port::capabilities(&nmio::sim::Sink::new(1500, 16, 0));
    let make = |contents: &mut Contents| {
        stack = Some(Web::load(Arc::new(site.build()), contents, |_| {
            Ok::<_, ContentError>(SiteOnly)
        })?);
        Err::<Web, _>(ContentError::TooMany)
    };
    let _ = tcpip::Stack::<_, tcpip::Cubic>::load(
        &config,
        make,
        &capabilities,
        [1; 4],
        nmio::Instant::ZERO,
    );
    stack.unwrap()
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}

/// Returns the status of the answer to `data`, which must be one request. Returns `None` if the
/// request is incomplete.
fn status(web: &mut Web, session: &mut Session, data: &[u8]) -> Option<Status> {
    match web.next(session, data) {
        Step::Answer(answer) => {
            assert_eq!(answer.consumed(), data.len());
            Some(answer.of(&web.core.site).status())
        }
        Step::More { consumed } => {
            assert_eq!(consumed, 0);
            None
        }
    }
}

#[test]
fn after_a_request_in_two_pieces_the_next_is_parsed_from_its_first_byte() {
    let mut web = web();
    let long = get("/not-a-file");
    // The second session's answer may come from the cache. Even then, the next request must be
    // parsed from its first byte.
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
fn a_cached_request_is_not_parsed_again() {
    let mut web = web();
    let request = get("/a");
    // The cached answer is deliberately wrong, to show that the cache is used.
    let step = web.next(&mut Session::default(), &get("/none"));
    let Step::Answer(mut missing) = step else {
        panic!("the request is whole")
    };
    missing.consumed = request.len() as u32;
    let before = web.next(&mut Session::default(), &request);
    assert!(matches!(before, Step::Answer(answer) if answer.reply != missing.reply));
    web.core.recent.replace(&request, missing).unwrap();
    let found = status(&mut web, &mut Session::default(), &request);
    assert_eq!(found, Some(Status::NotFound));
}

#[test]
fn cached_fields_do_not_change_the_answers() {
    let mut web = web();
    let fields = "Host: x\r\nConnection: close\r\n\r\n";
    let closing =
        |path: &str, fields: &str| format!("GET {path} HTTP/1.1\r\n{fields}").into_bytes();
    let mut next = |request: &[u8]| match web.next(&mut Session::default(), request) {
        Step::Answer(answer) => (
            web.core.site.reply(answer.reply).status(),
            answer.close,
            answer.consumed(),
        ),
        Step::More { .. } => panic!("the request is whole"),
    };
    let first = closing("/none", fields);
    assert_eq!(next(&first), (Status::NotFound, true, first.len()));
    let second = closing("/a", fields);
    assert_eq!(next(&second), (Status::Ok, true, second.len()));
    // The cache must not ignore preconditions, whose result depends on the file.
    let conditional = "Host: x\r\nIf-None-Match: *\r\n\r\n";
    for (path, status) in [("/none", Status::NotFound), ("/a", Status::NotModified)] {
        let request = closing(path, conditional);
        assert_eq!(next(&request), (status, false, request.len()), "{path}");
    }
    // The same fields mean something else in HTTP/1.0, where the connection closes by default.
    let old = b"GET /a HTTP/1.0\r\nHost: a\r\n\r\n";
    for _ in 0..2 {
        assert_eq!(next(old), (Status::Ok, true, old.len()));
        assert!(!next(&get("/a")).1);
    }
    let bad = closing("/a", "Host: x\r\nHost: y\r\n\r\n");
    for _ in 0..2 {
        assert_eq!(next(&bad).0, Status::BadRequest);
    }
}

#[test]
fn the_answer_to_a_long_request_with_preconditions_is_known_for_its_line_and_fields() {
    let mut web = web();
    let fields = format!(
        "Host: a\r\nCookie: {}\r\nIf-None-Match: *\r\n\r\n",
        "c".repeat(600)
    );
    let request = |path: &str| format!("GET {path} HTTP/1.1\r\n{fields}").into_bytes();
    let (there, missing) = (request("/a"), request("/b"));
    let next = |web: &mut Web, data: &[u8]| status(web, &mut Session::default(), data);
    for _ in 0..2 {
        assert_eq!(next(&mut web, &there), Some(Status::NotModified));
    }
    for _ in 0..2 {
        assert_eq!(next(&mut web, &missing), Some(Status::NotFound));
    }
    assert_eq!(next(&mut web, &there), Some(Status::NotModified));
    // The cached answer is deliberately wrong, to show that the cache is used.
    let Step::Answer(mut wrong) = web.next(&mut Session::default(), &get("/none")) else {
        panic!("the request is whole")
    };
    wrong.consumed = there.len() as u32;
    assert_eq!(web.core.recent.replace(&missing, wrong), None);
    web.core.recent.replace(&there, wrong).unwrap();
    assert_eq!(next(&mut web, &there), Some(Status::NotFound));
    web.core.recent.clear();
    assert_eq!(next(&mut web, &there), Some(Status::NotModified));
    // Credentials are checked each time.
    let login = String::from_utf8(there).unwrap();
    let login = login.replace("Cookie: ", "Authorization: ").into_bytes();
    assert_eq!(next(&mut web, &login), Some(Status::NotModified));
    assert_eq!(web.core.recent.replace(&login, wrong), None);
}

#[test]
fn while_the_memory_for_parts_is_used_up_a_client_gets_the_whole_file() {
    let site = Builder::new(UNIX_EPOCH).file(b"/a", UNIX_EPOCH, &vec![b'x'; 100_000]);
    let make = |contents: &mut Contents| {
        Web::load(Arc::new(site.build()), contents, |_| {
            Ok::<_, ContentError>(SiteOnly)
        })
    };
    let config = tcpip::Config::on_ports(&[80]);
    let capabilities = nmio::Port::capabilities(&nmio::sim::Sink::new(1500, 16, 0));
    let now = nmio::Instant::ZERO;
    let stack = tcpip::Stack::<_, tcpip::Cubic>::load(&config, make, &capabilities, [1; 4], now);
    let mut stack = stack.unwrap();
    let (web, contents) = stack.parts_mut();
    let request = b"GET /a HTTP/1.1\r\nHost: a\r\nRange: bytes=0-9999,20000-29999\r\n\r\n";
    let Step::Answer(answer) = web.next(&mut Session::default(), request) else {
        panic!("the request is whole")
    };
    let mut lens = |contents: &Contents, max_pieces| {
        let (stamp, core) = (Stamp::new(0, false), &mut web.core);
        let (status, body_len, _) = core.assemble(&answer, request, stamp, contents, max_pieces);
        (status, body_len, web.core.out.len())
    };
    // Two parts are five pieces: what precedes, separates and follows them belongs to it.
    let (status, body_len, out_len) = lens(contents, 5);
    assert_eq!(status, Status::PartialContent);
    assert!(body_len < 21_000 && out_len < 1_000);
    let others = contents.add_temporary(vec![0; 16 << 20].into()).unwrap();
    let whole = (Status::Ok, 100_000, 0);
    assert_eq!(lens(contents, 5), whole);
    contents.remove(others);
    assert_eq!(lens(contents, 5), (status, body_len, out_len));
    assert_eq!(lens(contents, 4), whole);
}

#[test]
fn the_page_about_a_status_has_no_body_for_head() {
    let core = &mut web().core;
    let mut page = |head_only| {
        let (site, status) = (HostedId::default(), Status::ServiceUnavailable);
        let len = core.assemble_page(site, status, head_only, Stamp::new(0, false));
        (len, core.out.len())
    };
    let ((len, whole), (of_head, head)) = (page(false), page(true));
    assert!(len > 0);
    assert_eq!((of_head, head), (0, whole - len));
}
