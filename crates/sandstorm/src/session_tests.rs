use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;

use super::*;
use crate::date::{SlotWriter, Stamp};
use crate::head::MAX_FIELDS;
use crate::site::Builder;

#[path = "session_field_tests.rs"]
mod fields;
#[path = "session_range_tests.rs"]
mod ranges;

/// The time of the tests: Sat, 21 Nov 2026 08:29:37 GMT.
const NOW: u64 = 1_795_249_777;

/// The modification time of all files: Wed, 18 Nov 2026 20:00:00 GMT.
const MODIFIED: u64 = 1_795_032_000;

fn at(second: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(second)
}

fn site() -> Site {
    let modified = at(MODIFIED);
    Builder::new(at(NOW))
        .file(b"/index.html", modified, b"<p>Sand\n")
        .file(b"/docs/index.html", modified, b"<p>Docs\n")
        .file(b"/style.css", modified, b"p { color: tan }\n")
        .file(b"/empty.txt", modified, b"")
        .file(b"/a b&c.txt", modified, b"odd\n")
        .file("/d\u{fc}ne.txt".as_bytes(), modified, b"dune\n")
        .file(b"/a%20b", modified, b"percent\n")
        .build()
}

/// Returns all bytes sent in answer to `pieces`, and whether the server closes the connection.
fn talk<'a>(site: &Site, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, bool) {
    let mut session = Session::default();
    let mut slots = SlotWriter::new();
    let mut unconsumed = Vec::new();
    let mut sent = Vec::new();
    for piece in pieces {
        unconsumed.extend_from_slice(piece);
        loop {
            match session.next(site, &unconsumed) {
                Step::More { consumed } => {
                    unconsumed.drain(..consumed);
                    break;
                }
                Step::Answer(answer) => {
                    let stamp = Stamp::new(NOW, answer.close);
                    answer.write(site, &unconsumed, stamp, &mut slots, &mut sent);
                    if answer.close {
                        return (sent, true);
                    }
                    assert!(answer.consumed() > 0, "a request has bytes");
                    unconsumed.drain(..answer.consumed());
                }
            }
        }
    }
    (sent, false)
}

/// Returns the answer to one request.
fn respond(request: &str) -> String {
    String::from_utf8(talk(&site(), [request.as_bytes()]).0).unwrap()
}

/// Returns the status code of the answer to one request, and whether the server closes the
/// connection. Returns `None` if there is no answer yet.
fn outcome(request: impl AsRef<[u8]>) -> Option<(u16, bool)> {
    let (sent, closes) = talk(&site(), [request.as_ref()]);
    let text = String::from_utf8(sent).unwrap();
    if text.is_empty() {
        return None;
    }
    assert_eq!(
        text.contains("\r\nConnection: close     \r\n"),
        closes,
        "{text}"
    );
    Some((text[9..12].parse().unwrap(), closes))
}

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: storm.test\r\n{fields}\r\n")
}

/// Returns the status code of the answer to a GET.
fn status(path: &str, fields: &str) -> u16 {
    outcome(get(path, fields)).unwrap().0
}

/// Returns the value of the field `name` in a response.
fn field<'a>(response: &'a str, name: &str) -> &'a str {
    response
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        .unwrap_or_else(|| panic!("no {name} in {response}"))
}

#[test]
fn a_response_with_a_file_has_the_expected_bytes() {
    assert_eq!(
        respond(&get("/style.css", "")),
        "HTTP/1.1 200 OK\r\n\
         Date: Sat, 21 Nov 2026 08:29:37 GMT\r\n\
         Connection: keep-alive\r\n\
         Content-Type: text/css; charset=utf-8\r\n\
         Content-Length: 17\r\n\
         Last-Modified: Wed, 18 Nov 2026 20:00:00 GMT\r\n\
         ETag: \"8a59fb4fec8a43ae\"\r\n\
         Accept-Ranges: bytes\r\n\
         \r\n\
         p { color: tan }\n"
    );
}

#[test]
fn a_not_modified_response_has_the_expected_bytes() {
    let request = "GET /style.css HTTP/1.0\r\nIf-None-Match: \"8a59fb4fec8a43ae\"\r\n\r\n";
    assert_eq!(
        respond(request),
        "HTTP/1.1 304 Not Modified\r\n\
         Date: Sat, 21 Nov 2026 08:29:37 GMT\r\n\
         Connection: close     \r\n\
         ETag: \"8a59fb4fec8a43ae\"\r\n\
         \r\n"
    );
}

#[test]
fn an_error_page_has_the_expected_bytes() {
    let page = "HTTP/1.1 405 Method Not Allowed\r\n\
        Date: Sat, 21 Nov 2026 08:29:37 GMT\r\n\
        Connection: keep-alive\r\n\
        Allow: GET, HEAD, OPTIONS\r\n\
        Content-Type: text/html; charset=utf-8\r\n\
        Content-Length: 199\r\n\
        \r\n\
        <!DOCTYPE html>\n<html lang=\"en\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
        <title>405 Method Not Allowed</title>\n\
        <h1>405 Method Not Allowed</h1>\n\
        <p>This method is not allowed here.</p>\n</html>\n";
    assert_eq!(respond(&get("/", "").replace("GET", "POST")), page);
}

#[test]
fn the_response_to_head_equals_that_to_get_without_the_body() {
    for path in ["/style.css", "/empty.txt", "/", "/docs", "/nothing"] {
        let whole = respond(&get(path, ""));
        let head = respond(&get(path, "").replace("GET", "HEAD"));
        let (start, body) = whole.split_at(whole.find("\r\n\r\n").unwrap() + 4);
        assert_eq!(start, head);
        assert_eq!(field(&whole, "Content-Length"), body.len().to_string());
    }
}

#[test]
fn a_folder_is_answered_with_its_index() {
    let body = |path| {
        let response = respond(&get(path, ""));
        assert_eq!(field(&response, "Content-Type"), "text/html; charset=utf-8");
        response[response.find("\r\n\r\n").unwrap() + 4..].to_owned()
    };
    assert_eq!(body("/"), "<p>Sand\n");
    assert_eq!(body("/index.html"), "<p>Sand\n");
    assert_eq!(body("/docs/"), "<p>Docs\n");
    assert_eq!(body("/docs/index.html"), "<p>Docs\n");
    assert_eq!(body("/docs/?a=/docs"), "<p>Docs\n");
    let redirect = respond(&get("/docs", ""));
    assert!(redirect.starts_with("HTTP/1.1 301 Moved Permanently\r\n"));
    assert_eq!(field(&redirect, "Location"), "/docs/");
}

#[test]
fn decoded_paths_must_match_byte_for_byte() {
    for (path, expected) in [
        ("/a%20b&c.txt", 200),
        ("/%61%20b%26c%2Etxt", 200),
        ("/d%C3%BCne.txt", 200),
        ("/d%c3%bcne.txt", 200),
        ("/d\u{fc}ne.txt", 200),
        ("/a%2520b", 200),
        ("/style.css?v=2", 200),
        ("/style.css?v=%zz", 200),
        ("/style.css?", 200),
        ("/%64ocs/", 200),
        // No file has one of these paths: case, slashes and dots matter.
        ("/Style.css", 404),
        ("/style.css/", 404),
        ("/style.css.", 404),
        ("//style.css", 404),
        ("/docs//", 404),
        ("/docs%2F", 404),
        ("/docs%2findex.html", 404),
        ("/.", 404),
        ("/..", 404),
        ("/../style.css", 404),
        ("/docs/../style.css", 404),
        ("/docs/%2e%2e/style.css", 404),
        ("/..%2f..%2fetc/passwd", 404),
        ("/%2e%2e/%2e%2e/etc/passwd", 404),
        ("/\\style.css", 404),
        ("/..\\..\\etc\\passwd", 404),
        ("/style.css%00", 404),
        ("/%00", 404),
        ("/a%20b", 404),
        ("//etc/passwd", 404),
        // The percent-encoding or the target is invalid.
        ("/%", 400),
        ("/%2", 400),
        ("/%zz", 400),
        ("/%+1", 400),
        ("/style.css%", 400),
        ("/style.css#top", 400),
        ("*", 400),
        ("style.css", 400),
        ("storm.test:80", 400),
    ] {
        let found = outcome(get(path, ""));
        assert_eq!(found, Some((expected, expected == 400)), "{path}");
    }
}

#[test]
fn the_target_may_be_an_absolute_uri() {
    for (target, expected) in [
        ("http://storm.test/style.css", 200),
        ("HTTP://storm.test:8080/style.css?x", 200),
        ("https://storm.test/style.css", 200),
        ("http://[2001:db8::1]/style.css", 200),
        ("http://storm.test", 200),
        ("http://storm.test?x", 200),
        ("http://storm.test/../style.css", 404),
        ("http://storm.test//style.css", 404),
        ("http://", 400),
        ("http:///style.css", 400),
        ("http://user@storm.test/style.css", 400),
        ("http:/style.css", 400),
        ("ftp://storm.test/style.css", 400),
    ] {
        let found = outcome(get(target, ""));
        assert_eq!(found, Some((expected, expected == 400)), "{target}");
    }
}

#[test]
fn unsupported_and_unknown_methods_are_refused() {
    for (method, expected) in [
        ("GET", 200),
        ("HEAD", 200),
        ("POST", 405),
        ("PUT", 405),
        ("DELETE", 405),
        ("OPTIONS", 204),
        ("TRACE", 405),
        ("PATCH", 405),
        ("CONNECT", 405),
        ("get", 501),
        ("BREW", 501),
    ] {
        let request = get("/", "").replace("GET", method);
        assert_eq!(outcome(&request), Some((expected, false)), "{method}");
    }
}

#[test]
fn options_list_the_methods_of_the_server_and_of_each_path() {
    let options = |path| respond(&get(path, "").replace("GET", "OPTIONS"));
    for path in ["*", "/style.css", "/docs", "/docs/"] {
        assert_eq!(
            options(path),
            "HTTP/1.1 204 No Content\r\n\
             Date: Sat, 21 Nov 2026 08:29:37 GMT\r\n\
             Connection: keep-alive\r\n\
             Allow: GET, HEAD, OPTIONS\r\n\
             \r\n",
            "{path}"
        );
    }
    assert!(options("/nothing").starts_with("HTTP/1.1 404 "));
    assert!(options("style.css").starts_with("HTTP/1.1 400 "));
}

#[test]
fn preconditions_are_evaluated() {
    const SAME: &str = "Wed, 18 Nov 2026 20:00:00 GMT";
    const BEFORE: &str = "Wed, 18 Nov 2026 19:59:59 GMT";
    const AFTER: &str = "Wed, 18 Nov 2026 20:00:01 GMT";
    for (fields, expected) in [
        ("If-None-Match: \"8a59fb4fec8a43ae\"", 304),
        ("if-none-match:\"8a59fb4fec8a43ae\"", 304),
        ("If-None-Match: W/\"8a59fb4fec8a43ae\"", 304),
        ("If-None-Match: *", 304),
        ("If-None-Match: \"x\", W/\"y,z\" ,\"8a59fb4fec8a43ae\"", 304),
        (
            "If-None-Match: \"x\"\r\nIf-None-Match: \"8a59fb4fec8a43ae\"",
            304,
        ),
        ("If-None-Match: \"x\"", 200),
        ("If-None-Match: 8a59fb4fec8a43ae", 200),
        ("If-None-Match: \"UPPER\"", 200),
        ("If-None-Match: w/\"8a59fb4fec8a43ae\"", 200),
        ("If-None-Match: \"\"", 200),
        ("If-None-Match:", 200),
        ("If-Modified-Since: SAME", 304),
        ("If-Modified-Since: AFTER", 304),
        ("If-Modified-Since: BEFORE", 200),
        // Obsolete date formats are accepted, and invalid dates are ignored (RFC 9110, sections
        // 5.6.7 and 13.1.3).
        ("If-Modified-Since: Wednesday, 18-Nov-26 20:00:00 GMT", 304),
        ("If-Modified-Since: Wed Nov 18 20:00:00 2026", 304),
        ("If-Modified-Since: Wed, 31 Feb 2027 20:00:00 GMT", 200),
        ("If-Modified-Since: tomorrow", 200),
        ("If-Modified-Since: \u{fc}", 200),
        // So are repeated fields.
        ("If-Modified-Since: SAME\r\nIf-Modified-Since: SAME", 200),
        // If `If-None-Match` is present too, `If-Modified-Since` is ignored (RFC 9110, section
        // 13.1.3).
        ("If-None-Match: \"x\"\r\nIf-Modified-Since: SAME", 200),
        (
            "If-Modified-Since: BEFORE\r\nIf-None-Match: \"8a59fb4fec8a43ae\"",
            304,
        ),
        ("If-Match: \"8a59fb4fec8a43ae\"", 200),
        ("If-Match: *", 200),
        ("If-Match: \"x\"", 412),
        ("If-Match: W/\"8a59fb4fec8a43ae\"", 412),
        (
            "If-Match: \"8a59fb4fec8a43ae\"\r\nIf-None-Match: \"8a59fb4fec8a43ae\"",
            304,
        ),
        (
            "If-Match: \"x\"\r\nIf-None-Match: \"8a59fb4fec8a43ae\"",
            412,
        ),
        ("If-Unmodified-Since: SAME", 200),
        ("If-Unmodified-Since: BEFORE", 412),
        ("If-Unmodified-Since: soon", 200),
        (
            "If-Unmodified-Since: BEFORE\r\nIf-Unmodified-Since: SAME",
            200,
        ),
        (
            "If-Match: \"8a59fb4fec8a43ae\"\r\nIf-Unmodified-Since: BEFORE",
            200,
        ),
    ] {
        let fields = fields
            .replace("UPPER", "8A59FB4FEC8A43AE")
            .replace("SAME", SAME)
            .replace("BEFORE", BEFORE)
            .replace("AFTER", AFTER);
        let found = status("/style.css", &format!("{fields}\r\n"));
        assert_eq!(found, expected, "{fields}");
    }
    // Preconditions are evaluated only for files.
    assert_eq!(status("/nothing", "If-None-Match: *\r\n"), 404);
    assert_eq!(status("/docs", "If-None-Match: *\r\n"), 301);
}

#[test]
fn version_fields_and_body_decide_whether_the_connection_stays_open() {
    for (version, fields, keeps) in [
        ("1.1", "", true),
        ("1.1", "Connection: keep-alive\r\n", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "connection: Upgrade , CLOSE\r\n", false),
        ("1.1", "Connection: upgrade\r\nConnection: close\r\n", false),
        ("1.1", "Connection: keep-alive, close\r\n", false),
        ("1.1", "Connection: closed\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: keep-alive\r\n", true),
        ("1.0", "Connection: Keep-Alive, TE\r\n", true),
        ("1.0", "Connection: close, keep-alive\r\n", false),
        // A body is not read, so the connection must close after the answer.
        ("1.1", "Content-Length: 0\r\n", true),
        ("1.1", "Content-Length: 1\r\n", false),
        ("1.1", "Transfer-Encoding: chunked\r\n", false),
        ("1.1", "Transfer-Encoding: Chunked\r\n", false),
        (
            "1.1",
            "Content-Length: 9\r\nExpect: 100-continue\r\n",
            false,
        ),
    ] {
        let request = format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
        assert_eq!(outcome(&request), Some((200, !keeps)), "{request}");
    }
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    assert_eq!(outcome(post), Some((405, true)));
}

#[test]
fn invalid_requests_are_refused() {
    let long = "x".repeat(HEAD_LIMIT);
    let many = "A: b\r\n".repeat(MAX_FIELDS + 1);
    for (request, expected) in [
        ("nonsense\r\n\r\n", 400),
        ("GET /\r\n\r\n", 400),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /  HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
        ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n: a\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nA: b\x00c\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nA: b\rc\r\n\r\n", 400),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}", 400),
        // An intermediary may parse these lines differently, which would allow request smuggling.
        ("GET / HTTP/1.1\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\n\n", 400),
        ("GET / HTTP/1.1\nHost: a\n\n", 400),
        ("GET / HTTP/1.1\nHost: a\n\r\n", 400),
        ("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n\tc\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400),
        // The host is missing, repeated or invalid.
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400),
        // The body length is invalid, repeated or conflicting.
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", 400),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n",
            400,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
            400,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n",
            400,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\n",
            400,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
            400,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            400,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
            400,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
            400,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n",
            400,
        ),
        // The version is unsupported or invalid.
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ("GET / HTTP/3\r\n\r\n", 505),
        ("GET / HTTQ/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / http/1.1\r\nHost: a\r\n\r\n", 400),
        // The request is too long, or has too many fields.
        (&*format!("GET /{long}"), 414),
        (&*format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"), 414),
        (&*format!("GET / HTTP/1.1\r\nHost: a\r\nA: {long}"), 431),
        (
            &*format!("GET / HTTP/1.1\r\nHost: a\r\nA: {long}\r\n\r\n"),
            431,
        ),
        (&*format!("GET / HTTP/1.1\r\n{many}"), 431),
    ] {
        assert_eq!(outcome(request), Some((expected, true)), "{request}");
    }
}

#[test]
fn the_error_response_to_head_has_no_body() {
    for request in [
        "HEAD / HTTP/1.1\r\n\r\n",
        "HEAD /%zz HTTP/1.1\r\nHost: a\r\n\r\n",
        "HEAD / HTTP/2.0\r\n\r\n",
        "HEAD / HTTP/1.1\r\nHost a\r\n\r\n",
    ] {
        let response = respond(request);
        assert!(response.ends_with("\r\n\r\n"), "{response}");
        assert!(response.contains("\r\nContent-Length: "));
    }
}

#[test]
fn empty_lines_before_a_request_are_ignored() {
    let request = format!("\r\n\r\n{}\r\n\r\n{}", get("/", ""), get("/docs", ""));
    let (sent, closes) = talk(&site(), [request.as_bytes()]);
    assert!(!closes);
    let codes: Vec<u16> = parse_responses(&sent, "GG").iter().map(|r| r.0).collect();
    assert_eq!(codes, [200, 301]);
    let mut session = Session::default();
    let lines = "\r\n".repeat(10_000);
    let step = session.next(&site(), lines.as_bytes());
    assert_eq!(step, Step::More { consumed: 20_000 });
}

#[test]
fn no_request_is_answered_before_it_is_complete() {
    let request = get("/style.css", "Accept: */*\r\n");
    for len in 0..request.len() {
        assert_eq!(outcome(&request[..len]), None, "{len} bytes");
    }
}

#[test]
fn the_same_bytes_get_the_same_answer_until_they_are_consumed() {
    let (site, request) = (site(), get("/", ""));
    let mut session = Session::default();
    let first = session.next(&site, request.as_bytes());
    assert_eq!(session.next(&site, request.as_bytes()), first);
    assert!(matches!(first, Step::Answer(answer) if answer.consumed() == request.len()));
}

/// Parses responses and checks each as a client would. `methods` contains one letter per request: H
/// for HEAD, and any other letter for another method. Returns each response's status and body.
fn parse_responses(mut bytes: &[u8], methods: &str) -> Vec<(u16, Vec<u8>)> {
    let mut methods = methods.chars();
    let mut responses = Vec::new();
    while !bytes.is_empty() {
        let mut fields = [httparse::EMPTY_HEADER; 16];
        let mut response = httparse::Response::new(&mut fields);
        let head = response.parse(bytes).unwrap().unwrap();
        let code = response.code.unwrap();
        let value = |name: &str| {
            let mut values = response.headers.iter().filter(|field| field.name == name);
            let value = values.next().map(|f| std::str::from_utf8(f.value).unwrap());
            assert!(values.next().is_none(), "two {name}");
            value
        };
        let date = httpdate::parse_http_date(value("Date").unwrap()).unwrap();
        assert_eq!(date, at(NOW));
        assert!(["close", "keep-alive"].contains(&value("Connection").unwrap()));
        let length = value("Content-Length").map(|n| n.parse::<usize>().unwrap());
        assert_eq!(length.is_none(), code == 304);
        // A response for which `methods` has no letter is treated as an answer to GET.
        let is_head = methods.next() == Some('H');
        let len = if is_head { 0 } else { length.unwrap_or(0) };
        responses.push((code, bytes[head..head + len].to_vec()));
        bytes = &bytes[head + len..];
    }
    responses
}

/// Generates fragments of requests, so that random input resembles valid requests.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "GET ",
        "HEAD ",
        "POST ",
        "/",
        "/style.css",
        "/docs",
        "/%73tyle.css",
        "/%",
        "http://a",
        "?x",
        " HTTP/1.1\r\n",
        " HTTP/1.0\r\n",
        " HTTP/2.0\r\n",
        "Host: a\r\n",
        "Connection: close\r\n",
        "Connection: keep-alive\r\n",
        "Content-Length: 3\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Expect: 100-continue\r\n",
        "Expect: x\r\n",
        "Host: [::1]:80\r\n",
        "Host: a:b\r\n",
        "?a=%zz&b",
        " HTTP/1.2\r\n",
        "If-None-Match: *\r\n",
        "If-Match: \"x\"\r\n",
        "If-Modified-Since: Wed, 18 Nov 2026 20:00:00 GMT\r\n",
        "\r\n",
        "\r\n\r\n",
        "\n",
        "\r",
        " ",
        ":",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "HEAD /style.css HTTP/1.1\r\nHost: a\r\n\r\n",
    ];
    prop_oneof![
        8 => prop::sample::select(words.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
        1 => (0..9_000_usize).prop_map(|n| vec![b'x'; n]),
    ]
}

proptest! {
    #[test]
    fn any_input_in_any_pieces_gives_valid_responses(
        fragments in prop::collection::vec(fragment(), 0..40),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let site = site();
        // The final line feed makes the server parse the last line, so that an error in it is
        // reported.
        let bytes = [fragments.concat(), b"\n".to_vec()].concat();
        let (sent, closes) = talk(&site, [&*bytes]);
        // The test does not know which responses are answers to HEAD. Each response therefore ends
        // where the next one begins.
        let mut rest = &*sent;
        while !rest.is_empty() {
            prop_assert!(rest.starts_with(b"HTTP/1.1 "));
            let next = (1..rest.len())
                .find(|at| rest[*at..].starts_with(b"HTTP/1.1 "))
                .unwrap_or(rest.len());
            let head_only = rest[..next].ends_with(b"\r\n\r\n");
            parse_responses(&rest[..next], if head_only { "H" } else { "G" });
            rest = &rest[next..];
        }
        prop_assert!(!closes || !sent.is_empty());

        // The result must not depend on how the bytes are split into pieces.
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        let pieces = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
        prop_assert_eq!(talk(&site, pieces), (sent, closes));
    }

    #[test]
    fn sending_byte_by_byte_gives_the_same_responses(fragments in prop::collection::vec(fragment(), 0..12)) {
        let site = site();
        let bytes = [fragments.concat(), b"\n".to_vec()].concat();
        prop_assert_eq!(talk(&site, bytes.chunks(1)), talk(&site, [&*bytes]));
    }

    #[test]
    fn random_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = talk(&site(), [&*bytes]);
    }

    #[test]
    fn pipelined_requests_are_answered_in_order(
        paths in prop::collection::vec(
            prop::sample::select(vec![("/", 200), ("/docs", 301), ("/x", 404), ("/a%20b&c.txt", 200)]),
            1..30,
        ),
    ) {
        let requests: String = paths.iter().map(|(path, _)| get(path, "")).collect();
        let (sent, closes) = talk(&site(), [requests.as_bytes()]);
        prop_assert!(!closes);
        let codes: Vec<u16> = parse_responses(&sent, "").iter().map(|r| r.0).collect();
        let expected: Vec<u16> = paths.iter().map(|path| path.1).collect();
        prop_assert_eq!(codes, expected);
    }

    #[test]
    fn any_file_name_is_found_by_its_percent_encoded_path(
        name in prop::collection::vec(1..=255_u8, 1..60),
    ) {
        prop_assume!(!name.contains(&b'/'));
        let path = [b"/", &*name].concat();
        let site = Builder::new(at(NOW)).file(&path, at(MODIFIED), b"found").build();
        let request = get(&site.some_path(), "");
        let (sent, _) = talk(&site, [request.as_bytes()]);
        prop_assert_eq!(parse_responses(&sent, "G"), vec![(200, b"found".to_vec())]);
    }
}
