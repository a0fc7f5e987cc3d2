//! Tests of streamed responses.

use std::time::Duration;

use nmio::sim::PathConfig;
use tcpip::Config;
use testkit::smol::Talk;

use crate::visit::{config, get, path, post, request, response, talk, text, visits, visits_over};

/// Returns the expected response to a request for `pieces` pieces of `len` bytes each.
pub(crate) fn stream(pieces: usize, len: usize) -> String {
    let chunk = format!("{len:x}\r\n{}\r\n", "p".repeat(len));
    let fields = format!("X-Pieces: {pieces}\r\nTransfer-Encoding: chunked\r\n");
    let chunks = "6\r\nbegins\r\n".to_owned() + &chunk.repeat(pieces) + "0\r\n\r\n";
    response("200 OK", true, &fields, &chunks)
}

#[test]
fn pieces_are_sent_as_chunks_and_the_connection_stays_open() {
    for (pieces, len) in [(0, 1), (1, 1), (3, 10), (20, 1_000), (9, 70_000)] {
        for target in ["/stream", "/stream-slowly"] {
            let target = format!("{target}?{pieces}x{len}");
            let received = talk([get(&target), get("/count"), get(&target)].concat());
            let expected = [stream(pieces, len), text("1\n"), stream(pieces, len)];
            assert!(received == expected.concat(), "{target}");
        }
    }
}

#[test]
fn after_an_empty_piece_the_response_waits_to_be_resumed() {
    // The response is never resumed, so the idle timeout closes the connection.
    let received = talk([get("/stream?1x0"), get("/count")].concat());
    let complete = stream(1, 1);
    assert_eq!(received, complete[..complete.find("1\r\np").unwrap()]);
    let received = talk([get("/stream-slowly?1x0"), get("/count")].concat());
    assert_eq!(received, stream(0, 1).replace(": 0", ": 1") + &text("1\n"));
}

#[test]
fn an_http_1_0_client_gets_the_pieces_without_chunks() {
    let http_1_0 = get("/stream?2x5").replace("HTTP/1.1", "HTTP/1.0");
    let body = "begins".to_owned() + &"p".repeat(10);
    let expected = response("200 OK", false, "X-Pieces: 2\r\n", &body);
    assert_eq!(talk(http_1_0 + &get("/count")), expected);
    let last = request("GET", "/stream?2x5", "Connection: close\r\n", "");
    let expected = stream(2, 5).replacen("keep-alive", "close     ", 1);
    assert_eq!(talk(last + &get("/count")), expected);
}

#[test]
fn the_streamed_response_to_head_has_no_pieces() {
    let whole = stream(2, 5);
    let head = &whole[..whole.find("\r\n\r\n").unwrap() + 4];
    let received = talk(request("HEAD", "/stream?2x5", "", "") + &get("/count"));
    assert_eq!(received, head.to_owned() + &text("1\n"));
}

#[test]
fn a_deferred_answer_may_be_streamed() {
    let received = talk(post("/later?stream", "x") + &get("/count"));
    let chunks = "c\r\nbegins later\r\n3\r\nppp\r\n0\r\n\r\n";
    let expected = response("200 OK", true, "Transfer-Encoding: chunked\r\n", chunks);
    assert_eq!(received, expected + &text("1\n"));
}

#[test]
fn many_clients_get_streams_over_a_lossy_link_or_with_little_memory() {
    let lossy = PathConfig {
        loss: 0.01,
        reorder: 0.02,
        reorder_delay: Duration::from_millis(3),
        ..path()
    };
    let little = Config {
        max_write_buffers: 1,
        max_entry_lists: 0,
        ..config()
    };
    let requests = [get("/stream?30x3000"), get("/stream-slowly?30x300")].concat();
    let visit = Talk {
        bytes: requests.into_bytes(),
        half_close: true,
        ..Talk::default()
    };
    for (path, config) in [(lossy, config()), (path(), little)] {
        let (outcomes, server) = visits_over::<true>(path, &config, &vec![visit.clone(); 40]);
        for outcome in &outcomes {
            assert!(outcome.received == stream(30, 3_000) + &stream(30, 300));
        }
        let web = server.transports.stack().app();
        assert_eq!(
            (web.in_progress(), web.counters().of_app),
            (0, [80, 0, 0, 0])
        );
    }
}

#[test]
fn a_client_may_disconnect_during_a_streamed_response() {
    let visit = Talk {
        bytes: get("/stream-slowly?5x5").into_bytes(),
        aborts: true,
        ..Talk::default()
    };
    let (_, server) = visits::<true>(&config(), &[visit]);
    let web = server.transports.stack().app();
    assert_eq!((web.in_progress(), web.app().closed), (0, 1));
}
