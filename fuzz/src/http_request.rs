//! Sends requests and arbitrary bytes to sites for two hosts, with rules and codings. The responses must
//! be valid and must not depend on how the bytes are split.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::http::{Piece, bytes, response};
use crate::offsets;
use arbitrary::Arbitrary;
use sandstorm::date::{SlotWriter, Stamp};
use sandstorm::{Builder, HEAD_LIMIT, HostedSite, Session, Settings, Site, Step};

/// Sat, 21 Nov 2026 08:29:37 GMT.
const NOW: u64 = 1_795_249_777;

/// Parts of requests, separated by `|`.
const WORDS: &str = "\
    GET / HTTP/1.1\r\nHost: a\r\n\r\n|HEAD /docs HTTP/1.1\r\nHost: a\r\n\r\n|GET /|GET |HEAD |\
    POST |BREW |/|index.html|docs|a%20b&c.txt|empty.txt|..|%|%2f|http://a|?x|#|\
    \x20HTTP/1.1\r\n| HTTP/1.1\r\nHost: a\r\n| HTTP/1.0\r\n| HTTP/2.0\r\n|\
    Host: a\r\n|Connection: close\r\n|Connection: keep-alive\r\n|Content-Length: 3\r\n|\
    Transfer-Encoding: chunked\r\n|If-None-Match: *\r\n|If-None-Match: W/\"x\", |\
    If-Match: \"x\"\r\n|If-Modified-Since: Sat, 21 Nov 2026 08:29:37 GMT\r\n|\
    If-Unmodified-Since: Sat, 21 Nov 2026 08:29:36 GMT\r\n|\r\n|\r\n\r\n|\n|\r|\
    \x20|\t|:|,| HTTP/1.2\r\n|\
    Host: [::1]:80\r\n|Host: [v1.x]\r\n|Host: a%2|Transfer-Encoding: gzip\r\n|\
    Transfer-Encoding: chunked, |Expect: 100-continue\r\n|Expect: x\r\n|GET /docs?|\
    GET /docs?a&b HTTP/1.1\r\nHost: a\r\n\r\n|A: b\r\n|Content-Length: 0\r\n|\
    GET /long.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=|Range: bytes=|0|7|99|-|0-0, 999-, -5|\
    If-Range: \"x\"\r\n|OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n|\
    Host: b\r\n|Host: www.b:80\r\n|Host: c\r\n|http://b|http://c/|/old/|/y/|/app/|/gone/x|/page|\
    GET /old/%0d%0a/a?b HTTP/1.1\r\nHost: b\r\n\r\n|//c/|%5c|GET /coded.js HTTP/1.1\r\nHost: a\r\n|\
    Accept-Encoding: gzip\r\n|Accept-Encoding: br;q=0.5, *;q=0\r\n|Accept-Encoding: |identity;q=|\
    , gzip;q=0.|zstd";

/// What libFuzzer makes.
#[derive(Arbitrary, Debug)]
pub struct Input<'a> {
    cuts: [u16; 6],
    pieces: Vec<Piece<'a>>,
}

thread_local! {
    static SITE: Site = {
        let hosted = |hosts: &[&str], site: Builder| HostedSite {
            hosts: hosts.iter().map(|host| host.parse().expect("a host")).collect(),
            site: site.build().into(),
        };
        Site::by_hosts(&[hosted(&["a"], first()), hosted(&["b", "*.b"], second())])
    };
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW)
}

/// A site with codings.
fn first() -> Builder {
    Builder::new(now())
        .file(b"/index.html", now(), b"<p>Sand\n")
        .file(b"/docs/index.html", now(), b"<p>Docs\n")
        .file(b"/a b&c.txt", now(), b"odd\n")
        .file(b"/empty.txt", now(), b"")
        .file(b"/long.txt", now(), &[b'x'; 1_000])
        .file(b"/coded.js", now(), &[b'x'; 1_000])
        .file(b"/coded.js.gz", now(), b"\x1f\x8bgzip")
        .file(b"/coded.js.br", now(), &[b'y'; 900])
}

/// A site with rules.
fn second() -> Builder {
    let mut settings = Settings::default();
    for rule in [
        "/old/* /new/:splat",
        "/y/:year/:name https://c/:name/:year?x=:year 302",
        "/app/* /index.html 200",
        "/docs/* /:splat 200",
        "/gone/* /404.html 410",
        "/page /index.html 301!",
    ] {
        settings.add_redirect(rule).expect("a rule");
    }
    settings.add_header("/* X-A: b").expect("a rule");
    Builder::with_settings(now(), &settings)
        .file(b"/index.html", now(), b"<p>Storm\n")
        .file(b"/404.html", now(), b"<p>Lost\n")
        .file(b"/page", now(), b"page\n")
}

/// Returns the responses to `pieces`, and whether the connection closes.
fn talk<'a>(site: &Site, pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, bool) {
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
                    assert!(unconsumed.len() < HEAD_LIMIT, "an endless request head");
                    break;
                }
                Step::Answer(answer) => {
                    let stamp = Stamp::new(NOW, answer.close);
                    let at = sent.len();
                    answer.write(site, &unconsumed, stamp, &mut slots, &mut sent);
                    check(&sent[at..], answer.close);
                    if answer.close {
                        return (sent, true);
                    }
                    assert!(answer.consumed() > 0, "an empty request");
                    unconsumed.drain(..answer.consumed());
                }
            }
        }
    }
    (sent, false)
}

/// Checks that these bytes are one complete response, and that it says whether the server closes.
fn check(bytes: &[u8], closes: bool) {
    let response = response(bytes);
    assert_eq!(response.closes, closes);
    // A response to HEAD and a 304 have no body, even with a Content-Length.
    let body_len = response.rest.len();
    assert!(body_len == 0 || response.content_length == Some(body_len));
}

/// Runs the target.
pub fn run(input: &Input<'_>) {
    let bytes = bytes(&input.pieces, WORDS);
    let mut cuts = offsets(&input.cuts, bytes.len());
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    SITE.with(|site| {
        let whole = talk(site, std::iter::once(&*bytes));
        let pieces = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]);
        assert_eq!(talk(site, pieces), whole, "the split changes the responses");
    });
}
