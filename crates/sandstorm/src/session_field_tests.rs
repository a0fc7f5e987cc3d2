//! Tests which heads, fields and versions make a request invalid. Also tests redirects that keep a
//! query.

use super::*;

/// Returns the outcome of a GET in HTTP/1.`minor` with these fields. Each field includes its line
/// ending.
fn of_fields(minor: u8, fields: &str) -> Option<(u16, bool)> {
    outcome(format!("GET / HTTP/1.{minor}\r\n{fields}\r\n"))
}

#[test]
fn an_invalid_host_is_refused() {
    for (host, expected) in [
        ("", 200),
        ("storm.test", 200),
        ("storm.test:80", 200),
        ("storm.test:", 200),
        ("192.0.2.1:8080", 200),
        ("[::1]", 200),
        ("[2001:db8::1]:80", 200),
        ("[v1.x:y]", 200),
        ("d%C3%BCne.test", 200),
        ("example.com:http", 400),
        ("[::1", 400),
        ("a:b:c", 400),
        (":80", 400),
        ("%zz", 400),
        ("::1", 400),
        ("[fe80::1%25eth0]", 400),
        ("user@storm.test", 400),
        ("d\u{fc}ne.test", 400),
    ] {
        for minor in [0, 1] {
            let (status, closes) = of_fields(minor, &format!("Host: {host}\r\n")).unwrap();
            assert_eq!(status, expected, "{host}");
            assert_eq!(closes, minor == 0 || expected == 400, "{host}");
        }
        if !host.is_empty() {
            let target = format!("http://{host}/");
            assert_eq!(status(&target, ""), expected, "{target}");
        }
    }
    assert_eq!(of_fields(1, "Host:\r\n"), Some((200, false)));
    assert_eq!(of_fields(1, "Host: \t \r\n"), Some((200, false)));
    assert_eq!(of_fields(1, "Host: a, b\r\n"), Some((400, true)));
    assert_eq!(of_fields(1, "Host:\r\nHost:\r\n"), Some((400, true)));
}

/// Each field in this test has a name as long as that of a field that the server evaluates. In the
/// evaluated field, most of these values would change the answer.
#[test]
fn a_field_name_of_the_same_length_is_not_mistaken_for_another() {
    for field in [
        "From: a b",
        "Accept: */*",
        "If-Range: \"x\"",
        "User-Agent: close",
        "Authorization: *",
        "Accept-Charset: utf-8",
        "X-Forwarded-Proto: https",
        "Proxy-Authorization: *",
    ] {
        let found = of_fields(1, &format!("Host: a\r\n{field}\r\n"));
        assert_eq!(found, Some((200, false)), "{field}");
    }
    // A field is not mistaken for `Host` or `Connection` just because its name has the same length.
    assert_eq!(of_fields(1, "Date: a\r\n"), Some((400, true)));
    let old = "User-Agent: keep-alive\r\n";
    assert_eq!(of_fields(0, old), Some((200, true)));
}

#[test]
fn transfer_encoding_fields_form_one_list() {
    for (codings, expected) in [
        (&["chunked"][..], 200),
        (&["CHUNKED"], 200),
        // Empty elements are ignored (RFC 9110, section 5.6.1.2).
        (&[" , chunked,"], 200),
        (&["", "chunked"], 200),
        // `chunked` occurs more than once.
        (&["chunked, chunked"], 400),
        (&["chunked", "chunked"], 400),
        (&["chunked, gzip, chunked"], 400),
        (&["chunked", "gzip", "chunked"], 400),
        // `chunked` is not last, so the end of the body is unknown.
        (&["gzip"], 400),
        (&["identity"], 400),
        (&["chunked, gzip"], 400),
        (&["chunked", "gzip"], 400),
        (&["xchunked"], 400),
        (&["\"chunked\""], 400),
        (&["chunked;a=b"], 400),
        (&["chun ked"], 400),
        (&["\u{b}chunked"], 400),
        (&[""], 400),
        (&[","], 400),
        // One of the codings is unknown.
        (&["gzip, chunked"], 501),
        (&["gzip", "chunked"], 501),
        (&["identity, chunked"], 501),
        (&["gzip;q=1, chunked"], 501),
    ] {
        let line = |coding: &&str| format!("Transfer-Encoding: {coding}\r\n");
        let lines: String = codings.iter().map(line).collect();
        let host = "Host: a\r\n";
        let shown = format!("{codings:?}");
        let found = of_fields(1, &format!("{host}{lines}"));
        assert_eq!(found, Some((expected, true)), "{shown}");
        // `Transfer-Encoding` is forbidden in HTTP/1.0 and together with `Content-Length` (RFC
        // 9112, section 6.1).
        let found = of_fields(0, &format!("{host}{lines}"));
        assert_eq!(found, Some((400, true)), "{shown}");
        let found = of_fields(1, &format!("{host}Content-Length: 3\r\n{lines}"));
        assert_eq!(found, Some((400, true)), "{shown}");
    }
    let post = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n";
    assert_eq!(outcome(post), Some((501, true)));
}

#[test]
fn expectations_other_than_100_continue_are_refused() {
    for (fields, expected) in [
        ("Expect: 100-continue\r\n", (200, false)),
        ("Expect: 100-Continue\r\n", (200, false)),
        ("Expect:\r\n", (200, false)),
        (
            "Expect: 100-continue\r\nExpect: 100-continue\r\n",
            (200, false),
        ),
        ("Expect: 200-ok\r\n", (417, true)),
        ("Expect: 100-continue, x\r\n", (417, true)),
        ("Expect: x\r\nExpect: 100-continue\r\n", (417, true)),
        ("Expect: 100-continue=1\r\n", (417, true)),
        ("Expect: 100\r\n", (417, true)),
        // An invalid request gets 400, even if its expectation would cause 417.
        ("Expect: x\r\nTransfer-Encoding: gzip\r\n", (400, true)),
        ("Expect: x\r\nHost: b\r\n", (400, true)),
    ] {
        let found = of_fields(1, &format!("Host: a\r\n{fields}"));
        assert_eq!(found, Some(expected), "{fields}");
    }
    let head = "HEAD / HTTP/1.1\r\nHost: a\r\nExpect: x\r\n\r\n";
    let response = respond(head);
    assert!(response.starts_with("HTTP/1.1 417 Expectation Failed\r\n"));
    assert!(response.ends_with("\r\n\r\n"));
}

#[test]
fn a_request_may_have_a_hundred_fields() {
    let fields = |n: usize| "Host: a\r\n".to_owned() + &"A: b\r\n".repeat(n - 1);
    const { assert!(MAX_FIELDS >= 100) };
    assert_eq!(of_fields(1, &fields(100)), Some((200, false)));
    assert_eq!(of_fields(1, &fields(MAX_FIELDS)), Some((200, false)));
    assert_eq!(of_fields(1, &fields(MAX_FIELDS + 1)), Some((431, true)));
}

#[test]
fn a_head_may_be_as_long_as_the_limit() {
    let request = |len: usize| {
        let start = get("/", "A: \r\n");
        let value = "x".repeat(len - start.len());
        get("/", &format!("A: {value}\r\n"))
    };
    assert_eq!(request(HEAD_LIMIT).len(), HEAD_LIMIT);
    assert_eq!(outcome(request(HEAD_LIMIT)), Some((200, false)));
    assert_eq!(outcome(request(HEAD_LIMIT + 1)), Some((431, true)));
    // The next request in the same buffer does not count towards the limit.
    let twice = request(HEAD_LIMIT).repeat(2);
    let (sent, closes) = talk(&site(), [twice.as_bytes()]);
    assert!(!closes);
    assert_eq!(parse_responses(&sent, "GG").len(), 2);
}

#[test]
fn an_incomplete_head_that_reaches_the_limit_is_refused_at_once() {
    let long = format!("GET /{}", "x".repeat(HEAD_LIMIT));
    let (head_start, rest) = long.as_bytes().split_at(HEAD_LIMIT - 1);
    for more in [1, 2] {
        let (sent, closes) = talk(&site(), [head_start, &rest[..more]]);
        assert!(sent.starts_with(b"HTTP/1.1 414 URI Too Long\r\n"), "{more}");
        assert!(closes);
    }
    assert_eq!(talk(&site(), [head_start]), (Vec::new(), false));
}

#[test]
fn a_head_is_parsed_again_only_when_a_line_has_ended() {
    // Parsing after each byte would be expensive, so the invalid byte is detected only when the
    // line feed arrives.
    let pieces = [&b"GET /"[..], b"\0", b"x", b"\n"];
    assert_eq!(talk(&site(), pieces[..3].to_vec()), (Vec::new(), false));
    let (sent, closes) = talk(&site(), pieces);
    assert!(sent.starts_with(b"HTTP/1.1 400 Bad Request\r\n"));
    assert!(closes);
}

#[test]
fn later_versions_of_http_1_are_answered_as_1_1() {
    for (version, expected) in [
        ("HTTP/1.2", (200, false)),
        ("HTTP/1.9", (200, false)),
        ("HTTP/1.10", (400, true)),
        ("HTTP/1.2x", (400, true)),
        ("HTTP/1.x", (400, true)),
        ("HTTP/1.", (400, true)),
        ("HTTP/2.0", (505, true)),
        ("HTTP/2.1", (505, true)),
        ("HTTP/0.9", (505, true)),
        ("HTTP/9.9", (505, true)),
        ("http/1.2", (400, true)),
    ] {
        let request = format!("GET / {version}\r\nHost: a\r\n\r\n");
        assert_eq!(outcome(&request), Some(expected), "{version}");
    }
    let later = |request: String| request.replace("HTTP/1.1", "HTTP/1.2");
    assert_eq!(
        respond(&later(get("/docs", ""))),
        respond(&get("/docs", ""))
    );
    assert_eq!(outcome("GET / HTTP/1.2\r\n\r\n"), Some((400, true)));
    assert_eq!(
        outcome("\nGET / HTTP/1.2\r\nHost: a\r\n\r\n"),
        Some((400, true))
    );
    // Empty lines precede the request, and another request follows it. Sending all bytes one by one
    // must give the same result.
    let both_requests = format!("\r\n\r\n{}{}", later(get("/docs?a", "")), get("/", ""));
    let whole = talk(&site(), [both_requests.as_bytes()]);
    assert!(!whole.1);
    let codes: Vec<u16> = parse_responses(&whole.0, "").iter().map(|r| r.0).collect();
    assert_eq!(codes, [301, 200]);
    assert_eq!(talk(&site(), both_requests.as_bytes().chunks(1)), whole);
    let long = format!("GET / HTTP/1.2\r\nHost: a\r\nA: {}", "x".repeat(HEAD_LIMIT));
    assert_eq!(outcome(long), Some((431, true)));
}

#[test]
fn a_redirect_keeps_the_query_byte_for_byte() {
    assert_eq!(
        respond(&get("/docs?a=1&b=%20'\"<\u{fc}>#", "")),
        "HTTP/1.1 301 Moved Permanently\r\n\
         Date: Sat, 21 Nov 2026 08:29:37 GMT\r\n\
         Connection: keep-alive\r\n\
         Location: /docs/?a=1&b=%20'%22%3C%C3%BC%3E%23\r\n\
         Content-Type: text/html; charset=utf-8\r\n\
         Content-Length: 197\r\n\
         \r\n\
         <!DOCTYPE html>\n<html lang=\"en\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>301 Moved Permanently</title>\n\
         <h1>301 Moved Permanently</h1>\n<p>It is <a href=\"/docs/\">here</a>.</p>\n</html>\n"
    );
    for (target, location) in [
        ("/docs", "/docs/"),
        ("/docs?", "/docs/"),
        ("/docs??", "/docs/??"),
        ("/docs?a?b=/c", "/docs/?a?b=/c"),
        ("/%64ocs?%64=%zz", "/docs/?%64=%zz"),
        ("http://storm.test/docs?a", "/docs/?a"),
        ("/docs?a[]={b}|c", "/docs/?a[]={b}|c"),
    ] {
        let whole = respond(&get(target, "Connection: close\r\n"));
        assert_eq!(field(&whole, "Location"), location);
        assert!(whole.contains("\r\nConnection: close     \r\n"));
        let head = respond(&get(target, "Connection: close\r\n").replace("GET", "HEAD"));
        assert!(whole.starts_with(&head) && head.ends_with("\r\n\r\n"));
    }
    // Redirects with queries are sent in order with other responses.
    let requests: String = ["/docs?1", "/", "/docs", "/docs?22"]
        .map(|path| get(path, ""))
        .concat();
    let (sent, _) = talk(&site(), [requests.as_bytes()]);
    let sent = String::from_utf8(sent).unwrap();
    let locations: Vec<&str> = sent
        .lines()
        .filter_map(|line| line.strip_prefix("Location: "))
        .collect();
    assert_eq!(locations, ["/docs/?1", "/docs/", "/docs/?22"]);
}

#[test]
fn known_fields_lead_to_the_same_host_as_those_that_are_read() {
    let site = |text: &str| {
        let file = Builder::new(at(NOW)).file(b"/index.html", at(NOW), text.as_bytes());
        std::sync::Arc::new(file.build())
    };
    let hosted = |host: &str| crate::HostedSite {
        hosts: vec![host.parse().unwrap()],
        site: site(host),
    };
    let site = Site::by_hosts(&[hosted("a.test"), hosted("b.test")]);
    let mut cache = crate::session::RecentFields::new();
    for _ in 0..3 {
        for (host, status) in [
            ("a.test", 200),
            ("b.test:80", 200),
            ("c.test", 421),
            ("", 421),
        ] {
            for fields in [
                "Accept: a",
                "Accept: b",
                "Connection: close",
                "If-None-Match: *",
            ] {
                let is_unchanged = status == 200 && fields.starts_with("If");
                let status = if is_unchanged { 304 } else { status };
                let request = format!("GET / HTTP/1.1\r\n{fields}\r\nHost:  {host} \r\n\r\n");
                let data = request.as_bytes();
                let step = Session::default().next_by(&site, data, &mut cache, true);
                assert_eq!(step, Session::default().next(&site, data), "{request}");
                let Step::Answer(answer) = step else {
                    panic!("no answer");
                };
                let reply = answer.of(&site);
                assert_eq!(reply.status().code(), status, "{request}");
                if status == 200 {
                    assert!(host.as_bytes().starts_with(reply.body()), "{request}");
                }
            }
        }
    }
}
