//! Any bytes from a client, cut anywhere: the same valid responses, however
//! they are cut.
#![no_main]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use sandstorm::date::{SlotWriter, Stamp};
use sandstorm::{Builder, HEAD_LIMIT, Session, Site, Step};

/// Sat, 21 Nov 2026 08:29:37 GMT.
const NOW: u64 = 1_795_249_777;

/// Bytes of one connection.
const MAX_LEN: usize = 4 * HEAD_LIMIT;

/// What requests are made of.
const WORDS: [&str; 52] = [
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "HEAD /docs HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /",
    "GET ",
    "HEAD ",
    "POST ",
    "BREW ",
    "/",
    "index.html",
    "docs",
    "a%20b&c.txt",
    "empty.txt",
    "..",
    "%",
    "%2f",
    "http://a",
    "?x",
    "#",
    " HTTP/1.1\r\n",
    " HTTP/1.1\r\nHost: a\r\n",
    " HTTP/1.0\r\n",
    " HTTP/2.0\r\n",
    "Host: a\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Content-Length: 3\r\n",
    "Transfer-Encoding: chunked\r\n",
    "If-None-Match: *\r\n",
    "If-None-Match: W/\"x\", ",
    "If-Match: \"x\"\r\n",
    "If-Modified-Since: Sat, 21 Nov 2026 08:29:37 GMT\r\n",
    "If-Unmodified-Since: Sat, 21 Nov 2026 08:29:36 GMT\r\n",
    "\r\n",
    "\r\n\r\n",
    "\n",
    "\r",
    " ",
    "\t",
    ":",
    ",",
    " HTTP/1.2\r\n",
    "Host: [::1]:80\r\n",
    "Host: [v1.x]\r\n",
    "Host: a%2",
    "Transfer-Encoding: gzip\r\n",
    "Transfer-Encoding: chunked, ",
    "Expect: 100-continue\r\n",
    "Expect: x\r\n",
    "GET /docs?",
    "GET /docs?a&b HTTP/1.1\r\nHost: a\r\n\r\n",
    "A: b\r\n",
    "Content-Length: 0\r\n",
];

#[derive(Arbitrary, Debug)]
enum Piece<'a> {
    Word(u8),
    Bytes(&'a [u8]),
    /// The same byte, many times.
    Run(u8, u16),
}

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    cuts: [u16; 6],
    pieces: Vec<Piece<'a>>,
}

impl Input<'_> {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Word(i) => bytes.extend(WORDS[usize::from(*i) % WORDS.len()].bytes()),
                Piece::Bytes(piece) => bytes.extend_from_slice(piece),
                Piece::Run(byte, len) => {
                    let len = usize::from(*len) % (HEAD_LIMIT + 100);
                    bytes.extend(std::iter::repeat_n(*byte, len));
                }
            }
        }
        // What is wrong is told at a line's end at the latest.
        bytes.truncate(MAX_LEN);
        bytes.push(b'\n');
        bytes
    }
}

thread_local! {
    static SITE: Site = {
        let now: SystemTime = UNIX_EPOCH + Duration::from_secs(NOW);
        Builder::new(now)
            .file(b"/index.html", now, b"<p>Sand\n")
            .file(b"/docs/index.html", now, b"<p>Docs\n")
            .file(b"/a b&c.txt", now, b"odd\n")
            .file(b"/empty.txt", now, b"")
            .build()
    };
}

/// All that is sent in answer to `pieces`, and whether the connection closes.
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
                    assert!(unconsumed.len() < HEAD_LIMIT, "more is never needed");
                    break;
                }
                Step::Answer(answer) => {
                    let stamp = Stamp::new(NOW, answer.close);
                    let at = sent.len();
                    answer.write(site, &unconsumed, stamp, &mut slots, &mut sent);
                    is_valid(&sent[at..], answer.close);
                    if answer.close {
                        return (sent, true);
                    }
                    assert!(answer.consumed > 0, "a request has bytes");
                    unconsumed.drain(..answer.consumed);
                }
            }
        }
    }
    (sent, false)
}

/// An independent reader takes the response for a whole one.
fn is_valid(response: &[u8], closes: bool) {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut fields);
    let head_len = head.parse(response).expect("a response").unwrap();
    let field = |name: &str| {
        let mut values = head.headers.iter().filter(|field| field.name == name);
        let value = values
            .next()
            .map(|field| std::str::from_utf8(field.value).unwrap());
        assert!(values.next().is_none(), "two fields {name}");
        value
    };
    assert_eq!(field("Connection") == Some("close"), closes);
    let body_len = response.len() - head_len;
    let told = field("Content-Length").map(|len| len.parse::<usize>().unwrap());
    // The answer to a HEAD, and a 304, have none.
    assert!(body_len == 0 || told == Some(body_len));
}

fuzz_target!(|input: Input| {
    let bytes = input.bytes();
    let mut at = input
        .cuts
        .map(|cut| usize::from(cut) % (bytes.len() + 1))
        .to_vec();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    SITE.with(|site| {
        let whole = talk(site, std::iter::once(&*bytes));
        let pieces = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
        assert_eq!(talk(site, pieces), whole, "the cuts make a difference");
    });
});
