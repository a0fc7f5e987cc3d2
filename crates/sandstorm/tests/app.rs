//! Tests a complete server with an application. The client is an independent TCP implementation on
//! a simulated link. Most tests compare complete responses byte by byte.

#[path = "app/exchanges.rs"]
mod exchanges;
#[path = "app/probe.rs"]
mod probe;
#[path = "app/streams.rs"]
mod streams;
#[path = "app/visit.rs"]
mod visit;

use std::time::Duration;

use nmio::sim::PathConfig;
use probe::Probe;
use sandstorm::{BODY_LIMIT, Sees, Status};
use tcpip::Config;
use testkit::SERVER;
use testkit::smol::Talk;
use visit::{
    chunked, config, file, get, page, path, post, request, response, talk, talk_cut, text, visits,
    visits_over, without_tags,
};

#[test]
fn one_segment_may_have_requests_for_application_and_site() {
    let received = talk([get("/count"), get("/a.txt"), get("/count"), get("/none")].concat());
    let expected = [
        text("1\n"),
        file(""),
        text("2\n"),
        page("404 Not Found", true, "There is no file of this name."),
    ];
    assert_eq!(without_tags(&received), expected.concat());
}

#[test]
fn a_get_after_a_post_in_one_segment_is_answered() {
    let received = talk([post("/echo", "one"), get("/count"), post("/echo", "")].concat());
    let expected = [text("POST /echo one"), text("1\n"), text("POST /echo ")];
    assert_eq!(received, expected.concat());
}

#[test]
fn the_response_to_head_has_no_body() {
    for (target, whole) in [
        ("/count", text("1\n")),
        ("/prepared", talk(get("/prepared"))),
        ("/refused", talk(get("/refused"))),
        ("/a.txt?extra", talk(get("/a.txt?extra"))),
    ] {
        let head = &whole[..whole.find("\r\n\r\n").unwrap() + 4];
        assert_eq!(talk(request("HEAD", target, "", "")), head);
    }
}

#[test]
fn fields_are_added_to_every_kind_of_response() {
    let received = talk(get("/a.txt?extra"));
    assert_eq!(without_tags(&received), file("X-Extra: yes\r\n"));
    // A field added by the application replaces the file's field of the same name.
    let received = talk(get("/a.txt?type"));
    let expected = file("Content-Type: text/x-other\r\n").replacen(
        "Content-Type: text/plain; charset=utf-8\r\n",
        "",
        1,
    );
    assert_eq!(without_tags(&received), expected);
    let received = talk(get("/docs?extra"));
    assert!(received.starts_with("HTTP/1.1 301 "), "{received}");
    assert!(
        received.contains("\r\nLocation: /docs/?extra\r\n"),
        "{received}"
    );
    assert!(
        received.contains("\r\nX-Extra: yes\r\n\r\n<!DOCTYPE"),
        "{received}"
    );
    let received = talk(get("/prepared?extra"));
    let prepared = talk(get("/prepared"));
    assert_eq!(
        received,
        prepared.replacen("\r\n\r\n", "\r\nX-Extra: yes\r\n\r\n", 1)
    );
    let received = talk(get("/refused?extra"));
    assert!(received.contains("\r\nX-Extra: yes\r\n"), "{received}");
    // A field that the server adds to all responses can also be replaced.
    let received = talk(get("/server"));
    assert_eq!(
        received,
        text("other\n").replacen("Server: probe\r\n", "Server: mine\r\n", 1)
    );
}

#[test]
fn preconditions_are_evaluated_for_a_prepared_reply() {
    let whole = talk(get("/prepared"));
    let tag = &whole[whole.find("ETag: ").unwrap() + 6..][..18];
    let own = format!("Content-Type: text/x-probe\r\nCache-Control: no-cache\r\nETag: {tag}\r\n");
    let expected = response(
        "200 OK",
        true,
        &format!("{own}Content-Length: 9\r\n"),
        "prepared\n",
    );
    assert_eq!(whole, expected);
    let unchanged = request("GET", "/prepared", &format!("If-None-Match: {tag}\r\n"), "");
    let fields = format!("Cache-Control: no-cache\r\nETag: {tag}\r\n");
    assert_eq!(
        talk(unchanged),
        response("304 Not Modified", true, &fields, "")
    );
    let extra = request(
        "GET",
        "/prepared?extra",
        &format!("If-None-Match: {tag}\r\n"),
        "",
    );
    let fields = format!("{fields}X-Extra: yes\r\n");
    assert_eq!(talk(extra), response("304 Not Modified", true, &fields, ""));
    let other = request("GET", "/prepared", "If-None-Match: \"x\"\r\n", "");
    assert_eq!(talk(other), whole);
    let failed = request("GET", "/prepared", "If-Match: \"x\"\r\n", "");
    assert!(talk(failed).starts_with("HTTP/1.1 412 "));
    // A removed reply cannot be sent, so the answer is 500.
    assert!(talk([get("/remove"), get("/prepared")].concat()).contains("HTTP/1.1 500 "));
}

#[test]
fn a_reply_is_prepared_in_a_callback() {
    let received = talk([get("/prepare"), get("/prepare")].concat());
    assert_eq!(received.matches("\r\n\r\nfor all\n").count(), 2);
}

#[test]
fn statuses_without_a_body_have_none() {
    assert_eq!(
        talk(get("/nothing")),
        response("204 No Content", true, "", "")
    );
    let refused = page("403 Forbidden", true, "");
    assert_eq!(
        talk([get("/refused"), get("/refused")].concat()),
        refused.repeat(2)
    );
}

#[test]
fn a_body_that_is_longer_than_one_write_is_sent() {
    for len in [65_000, 65_537, 70_000, 1_000_000] {
        let received = talk([get(&format!("/long?{len}")), get("/count")].concat());
        let (long, rest) = received.split_at(received.len() - text("1\n").len());
        assert_eq!(rest, text("1\n"));
        assert!(
            long.ends_with(&format!("\r\n\r\n{}", "x".repeat(len))),
            "{len}"
        );
        assert!(long.contains(&format!("\r\nContent-Length: {len}\r\n")));
    }
}

#[test]
fn answers_keep_their_order_when_the_send_stream_is_full() {
    let requests: String = (0..300).map(|_| get("/count") + &get("/a.txt")).collect();
    let expected: String = (1..=300)
        .map(|n| text(&format!("{n}\n")) + &file(""))
        .collect();
    assert!(without_tags(&talk(requests)) == expected);
    // The send stream has room for only two entries. An answer that needs both of them must still
    // arrive completely.
    let config_of_two = Config {
        max_entry_lists: 0,
        ..config()
    };
    let visit = Talk {
        bytes: (get("/a.txt") + &get("/a.txt?extra"))
            .repeat(10)
            .into_bytes(),
        half_close: true,
        ..Talk::default()
    };
    let (outcomes, _) = visits::<true>(&config_of_two, &[visit]);
    let expected = (file("") + &file("X-Extra: yes\r\n")).repeat(10);
    assert_eq!(without_tags(&outcomes[0].received), expected);
    // All connections share one write buffer. The application must still receive each request only
    // once.
    let config = Config {
        max_write_buffers: 1,
        ..config()
    };
    let visit = Talk {
        bytes: (0..20)
            .map(|_| get("/count"))
            .collect::<String>()
            .into_bytes(),
        half_close: true,
        ..Talk::default()
    };
    let (outcomes, server) = visits::<true>(&config, &vec![visit; 10]);
    let mut counts: Vec<u32> = Vec::new();
    for outcome in &outcomes {
        let bodies = outcome.received.split("\r\n\r\n").skip(1);
        let own: Vec<u32> = bodies
            .map(|body| body.lines().next().unwrap().parse().unwrap())
            .collect();
        assert!(own.is_sorted() && own.len() == 20, "{own:?}");
        counts.extend(own);
    }
    counts.sort_unstable();
    assert!(counts.into_iter().eq(1..=200));
    assert_eq!(
        server.transports.stack().app().counters().of_app,
        [200, 0, 0, 0]
    );
}

#[test]
fn a_chunked_body_is_decoded() {
    let chunks = "3\r\none\r\n4;x=y\r\n two\r\n0\r\nTrailer: x\r\n\r\n";
    let received = talk([chunked("/echo", chunks), get("/count")].concat());
    assert_eq!(received, text("POST /echo one two") + &text("1\n"));
}

#[test]
fn a_body_may_be_taken_in_pieces_up_to_its_limit() {
    let long = "x".repeat(200_000);
    let received = talk([post("/pieces", &long), get("/count")].concat());
    assert_eq!(received, text("200000 bytes") + &text("1\n"));
    let chunk = format!("{:x}\r\n{long}\r\n", long.len());
    let received = talk(chunked("/pieces", &format!("{chunk}{chunk}0\r\n\r\n")));
    assert_eq!(received, text("400000 bytes"));
    // The limit of 500,000 bytes applies whether the length is announced (`Content-Length`) or not
    // (chunks).
    let too_large = page(
        "413 Content Too Large",
        false,
        "The request's body is longer than this server takes.",
    );
    assert_eq!(
        talk(chunked(
            "/pieces",
            &format!("{chunk}{chunk}{chunk}0\r\n\r\n")
        )),
        too_large
    );
    let announced = request("POST", "/pieces", "Content-Length: 500001\r\n", "x");
    assert_eq!(talk(announced), too_large);
}

#[test]
fn an_unread_body_is_discarded() {
    let refused = |stays_open| page("403 Forbidden", stays_open, "");
    let deferred = |stays_open: bool| {
        let option = if stays_open {
            "keep-alive"
        } else {
            "close     "
        };
        text("later ").replacen("keep-alive", option, 1)
    };
    for target in ["/unread", "/stop", "/unread-later"] {
        let answer = |stays_open| match target {
            "/unread-later" => deferred(stays_open),
            _ => refused(stays_open),
        };
        for len in [1, 3_000, 65_536, 65_537, 400_000] {
            let body = "x".repeat(len);
            // The application reads the first piece of a body sent to `/stop`, so only the
            // remaining bytes count towards the limit.
            let stays_open = len <= 65_536 + usize::from(target == "/stop");
            let rest = if stays_open {
                text("1\n")
            } else {
                String::new()
            };
            let received = talk(post(target, &body) + &get("/count"));
            assert!(received == answer(stays_open) + &rest, "{target} {len}");
            let chunks = format!("{len:x}\r\n{body}\r\n0\r\n\r\n");
            let received = talk(chunked(target, &chunks) + &get("/count"));
            assert!(received == answer(false), "{target} {len} in chunks");
        }
    }
}

#[test]
fn an_unread_body_must_arrive_within_the_request_timeout() {
    // If the body is incomplete, the request timeout closes the connection. If the body is
    // complete, the idle timeout does.
    for (body, is_late) in [("123", true), ("12345", false)] {
        let head = request("POST", "/unread", "Content-Length: 5\r\n", body);
        let visit = Talk {
            bytes: head.into_bytes(),
            ..Talk::default()
        };
        let (outcomes, server) = visits::<true>(&config(), &[visit]);
        assert_eq!(outcomes[0].received, page("403 Forbidden", true, ""));
        assert!(outcomes[0].closed_by_server);
        let deadlines_missed = server.transports.stack().counters().deadlines_missed;
        assert_eq!(deadlines_missed, u64::from(is_late));
    }
}

#[test]
fn a_body_beyond_the_default_limit_is_refused() {
    let too_large = page(
        "413 Content Too Large",
        false,
        "The request's body is longer than this server takes.",
    );
    for (extra, is_accepted) in [(0, true), (1, false)] {
        let body = "x".repeat(BODY_LIMIT + extra);
        let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        let expected = if is_accepted {
            text(&format!("POST /echo {body}"))
        } else {
            too_large.clone()
        };
        assert!(talk(post("/echo", &body)) == expected);
        assert!(talk(chunked("/echo", &chunk)) == expected);
    }
}

#[test]
fn hostile_bodies_are_refused() {
    let bad_request = page(
        "400 Bad Request",
        false,
        "What was received is no valid HTTP request.",
    );
    for chunks in [
        "x\r\n",
        "-1\r\n",
        "1\nx",
        "1\r\nxy",
        "0\r\n\n",
        "10000000000000000\r\n",
    ] {
        let received = talk([chunked("/echo", chunks), get("/count")].concat());
        assert_eq!(received, bad_request, "{chunks:?}");
    }
    for fields in [
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1, 1\r\n",
        "Content-Length: -1\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
    ] {
        let received = talk([request("POST", "/echo", fields, "1"), get("/count")].concat());
        assert!(received.starts_with("HTTP/1.1 400 "), "{fields:?}");
        assert_eq!(received.matches("HTTP/1.1").count(), 1, "{fields:?}");
    }
}

#[test]
fn a_client_that_expects_100_continue_gets_it() {
    let fields = "Content-Length: 3\r\nExpect: 100-continue\r\n";
    let head = request("POST", "/echo", fields, "");
    let at = head.len();
    let whole = format!("{head}abc");
    let interim = "HTTP/1.1 100 Continue\r\n\r\n".to_owned();
    assert_eq!(
        talk_cut(whole.as_bytes(), vec![at]),
        interim + &text("POST /echo abc")
    );
    // No `100 Continue` is sent if the client does not wait for it, if the request is refused, or
    // if the client uses HTTP/1.0.
    assert_eq!(talk(&whole), text("POST /echo abc"));
    let stopped = page("403 Forbidden", false, "");
    let refused = whole.replace("/echo", "/unread");
    assert_eq!(talk_cut(refused.as_bytes(), vec![at + 2]), stopped);
    let http_1_0 = whole.replace("HTTP/1.1", "HTTP/1.0");
    let received = talk_cut(http_1_0.as_bytes(), vec![at]);
    assert!(received.starts_with("HTTP/1.1 200 "), "{received}");
}

#[test]
fn an_answer_may_be_deferred() {
    let requests = [
        get("/later?1"),
        get("/count"),
        post("/later", "2"),
        get("/count"),
    ]
    .concat();
    let expected = [text("later 1"), text("1\n"), text("later 2"), text("2\n")].concat();
    assert_eq!(talk(&requests), expected);
    // A deferred answer may be left to the site, or be deferred once more.
    let received = talk([get("/a.txt?later"), get("/later?again")].concat());
    assert_eq!(
        without_tags(&received),
        file("X-Extra: yes\r\n") + &text("later again")
    );
    // A client that does not half-close its connection also gets the answer.
    let visit = Talk {
        bytes: requests.into_bytes(),
        expected: expected.len(),
        ..Talk::default()
    };
    let (outcomes, _) = visits::<true>(&config(), &[visit]);
    assert_eq!(outcomes[0].received, expected);
    assert!(!outcomes[0].closed_by_server);
}

#[test]
fn after_a_half_close_all_requests_behind_a_deferred_one_are_answered() {
    let requests = get("/later?1") + &get("/a.txt").repeat(200) + &get("/count");
    let expected = text("later 1") + &file("").repeat(200) + &text("1\n");
    for sees in ["everything", "missing"] {
        let visit = Talk {
            bytes: requests.clone().into_bytes(),
            half_close: true,
            ..Talk::default()
        };
        let received = match sees {
            "missing" => visits::<false>(&config(), &[visit]).0.remove(0).received,
            _ => visits::<true>(&config(), &[visit]).0.remove(0).received,
        };
        assert!(without_tags(&received) == expected, "{sees}");
    }
}

#[test]
fn a_body_that_exceeds_the_memory_gets_503() {
    let long = vec![b'x'; sandstorm::MAX_PENDING_BYTES];
    let head = request(
        "POST",
        "/huge",
        &format!("Content-Length: {}\r\n", long.len()),
        "",
    );
    let received = talk([head.into_bytes(), long].concat());
    let busy = "The server cannot send this now; try again later.";
    assert_eq!(received, page("503 Service Unavailable", false, busy));
}

#[test]
fn a_request_whose_body_stalls_is_evicted_for_another() {
    let announced = |len: usize| format!("Content-Length: {len}\r\n");
    let stalled = request("POST", "/huge", &announced(50_000_000), "");
    let stalled = stalled + &"x".repeat(20_000_000);
    // The second client sends its large body after the first client has stalled.
    let count = get("/count");
    let cuts = (1..=4_000).map(|n| n * count.len()).collect();
    let body = "x".repeat(30_000_000);
    let bytes = count.repeat(4_000) + &request("POST", "/huge", &announced(body.len()), &body);
    let visit = |bytes: String, cuts, half_close| Talk {
        bytes: bytes.into_bytes(),
        cuts,
        half_close,
        ..Talk::default()
    };
    let (outcomes, _) = visits::<true>(
        &config(),
        &[visit(stalled, Vec::new(), false), visit(bytes, cuts, true)],
    );
    let busy = "The server cannot send this now; try again later.";
    let expected = page("503 Service Unavailable", false, busy);
    assert_eq!(outcomes[0].received, expected);
    assert!(outcomes[0].closed_by_server);
    assert!(outcomes[1].received.ends_with(&text("30000000 bytes")));
}

#[test]
fn a_waiting_request_of_an_address_beyond_its_share_is_evicted() {
    let waits = Talk {
        bytes: post("/huge?waits", &"x".repeat(11_500_000)).into_bytes(),
        half_close: true,
        ..Talk::default()
    };
    let count = get("/count");
    let request = post("/huge", &"x".repeat(7_000_000)) + &get("/later?1");
    let other = Talk {
        bytes: (count.repeat(4_000) + &request).into_bytes(),
        cuts: (1..=4_000).map(|n| n * count.len()).collect(),
        half_close: true,
        server: SERVER[1],
        ..Talk::default()
    };
    let mut all = vec![waits; 5];
    all.push(other);
    let (mut outcomes, server) = visits::<true>(&config(), &all);
    let other = outcomes.pop().unwrap().received;
    assert!(other.ends_with(&(text("7000000 bytes") + &text("later 1"))));
    let busy = "The server cannot send this now; try again later.";
    let busy = page("503 Service Unavailable", true, busy);
    let evicted = outcomes.iter().filter(|one| one.received == busy);
    assert_eq!(evicted.count(), 1);
    let answered = outcomes
        .iter()
        .filter(|one| one.received == text("later 11500000 bytes"));
    assert_eq!(answered.count(), 4);
    let app = server.transports.stack().app();
    let is_answered = |expected| {
        app.app()
            .answered
            .iter()
            .filter(|is| **is == expected)
            .count()
    };
    assert_eq!((is_answered(true), is_answered(false)), (5, 1));
    assert_eq!(app.in_progress(), 0);
}

#[test]
fn many_connections_are_served_over_a_lossy_link() {
    let body = "b".repeat(3_000);
    let requests = [
        post("/echo", &body),
        get("/a.txt?extra"),
        get("/later?1"),
        post("/pieces", &body),
        get("/long?70000"),
        get("/prepared"),
        get("/later?2"),
    ];
    let expected = talk(requests.concat());
    let visit = Talk {
        bytes: requests.concat().into_bytes(),
        half_close: true,
        ..Talk::default()
    };
    let lossy = PathConfig {
        loss: 0.01,
        reorder: 0.02,
        reorder_delay: Duration::from_millis(3),
        duplicate: 0.01,
        ..path()
    };
    let (outcomes, server) = visits_over::<true>(lossy, &config(), &vec![visit; 200]);
    for outcome in &outcomes {
        assert!(
            outcome.received == expected,
            "{} bytes",
            outcome.received.len()
        );
    }
    assert_eq!(server.transports.stack().app().counters().requests, 200 * 7);
}

#[test]
fn an_answer_that_never_comes_is_replaced_by_504() {
    let received = talk([get("/never"), get("/count")].concat());
    let late = page(
        "504 Gateway Timeout",
        true,
        "The answer did not come in time.",
    );
    assert_eq!(received, late.clone() + &text("1\n"));
    // A late answer must not be sent as the answer to the next request.
    let received = talk([get("/never"), get("/later?1")].concat());
    assert_eq!(received, late + &text("later 1"));
}

#[test]
fn an_answer_to_a_client_that_has_disconnected_is_dropped() {
    let disconnecting = Talk {
        bytes: get("/later?gone").into_bytes(),
        aborts: true,
        ..Talk::default()
    };
    let connected = Talk {
        bytes: get("/later?stays").into_bytes(),
        half_close: true,
        ..Talk::default()
    };
    let (outcomes, server) = visits::<true>(
        &config(),
        &[disconnecting.clone(), connected, disconnecting],
    );
    assert_eq!(outcomes[1].received, text("later stays"));
    let web = server.transports.stack().app();
    assert_eq!(web.counters().of_app, [1, 0, 0, 0]);
    assert_eq!(web.app().answered, [false, true, false]);
    assert_eq!(web.app().closed, 3);
    assert_eq!(web.in_progress(), 0);
    assert_eq!(server.transports.stack().connections(), 0);
}

#[test]
fn a_body_must_arrive_within_the_request_timeout() {
    let visit = Talk {
        bytes: request("POST", "/echo", "Content-Length: 5\r\n", "1234").into_bytes(),
        ..Talk::default()
    };
    let (outcomes, server) = visits::<true>(&config(), &[visit]);
    assert_eq!(outcomes[0].received, "");
    assert!(outcomes[0].closed_by_server);
    assert_eq!(server.transports.stack().counters().deadlines_missed, 1);
}

#[test]
fn an_application_has_state_per_connection_and_the_client_address() {
    let received = talk([get("/visits"), get("/visits"), get("/peer")].concat());
    assert_eq!(
        received,
        text("visit 1") + &text("visit 2") + &text("192.0.2.9:50000")
    );
}

#[test]
fn with_sees_missing_an_application_sees_only_requests_that_the_site_cannot_answer() {
    let requests = [
        get("/a.txt?extra"),
        get("/count"),
        get("/a.txt?extra"),
        post("/a.txt", "x"),
        get("/none"),
        get("/count"),
    ];
    let visit = Talk {
        bytes: requests.concat().into_bytes(),
        half_close: true,
        ..Talk::default()
    };
    let (outcomes, server) = visits::<false>(&config(), &[visit]);
    let expected = [
        file(""),
        text("1\n"),
        file(""),
        text("POST /a.txt x"),
        page("404 Not Found", true, "There is no file of this name."),
        text("2\n"),
    ];
    assert_eq!(without_tags(&outcomes[0].received), expected.concat());
    let counters = server.transports.stack().app().counters();
    assert_eq!((counters.requests, counters.of(Status::Ok)), (6, 2));
    assert_eq!((counters.of_class(2), counters.of_class(4)), (5, 1));
    assert!(server.transports.stack().app().app().is_started);
    assert_eq!(<Probe<false> as sandstorm::App>::SEES, Sees::Missing);
}

#[test]
fn the_application_does_not_see_invalid_requests() {
    for bytes in [
        get("no-path"),
        get("/count#x"),
        request("CONNECT", "a:80", "", ""),
        "GET /count HTTP/2.0\r\n\r\n".to_owned(),
        request("GET", "/count", "Expect: x\r\n", ""),
    ] {
        let received = talk([bytes.clone(), get("/count")].concat());
        assert!(received.starts_with("HTTP/1.1 4") || received.starts_with("HTTP/1.1 5"));
        assert!(!received.contains("\r\n\r\n2\n"), "{bytes:?}");
    }
    // The application receives requests with unknown methods, absolute URIs or later minor versions
    // of HTTP, and `OPTIONS *`.
    assert_eq!(
        talk(request("BREW", "/echo?x", "", "")),
        text("BREW /echo?x ")
    );
    assert_eq!(talk(get("http://a/echo")), text("GET http://a/echo "));
    let options = talk(request("OPTIONS", "*", "", ""));
    assert_eq!(options, text("OPTIONS * "));
    let http_1_3 = post("/echo", "abc").replace("HTTP/1.1", "HTTP/1.3");
    assert_eq!(
        talk([http_1_3, get("/count")].concat()),
        text("POST /echo abc") + &text("1\n")
    );
}
