//! Any bytes from a client to a Sandstorm application over TCP, cut anywhere: the same
//! valid responses, however they are cut, and a body as an independent reader has it.
#![no_main]

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuzz::OWN;
use fuzz::http::{Piece, bytes, response};
use fuzz::talk::{Got, cut, talk};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use nmio::Instant;
use sandstorm::{
    App, BODY_LIMIT, Builder, Clients, Exchange, Http, Intake, More, PreparedId, Replies, Request,
    Response, Sees, Site, StatusCode, Ticket, Verdict,
};
use tcpip::{Config, ContentError, Timer};

const PORT: u16 = 80;
const FORBIDDEN: StatusCode = StatusCode::new(403).unwrap();
const TICK: Timer = Timer::new(0);
const PERIOD: Duration = Duration::from_millis(10);
/// Limits of bodies, where they are small.
const FEW: u64 = 5;
/// Lengths of the pieces of a response, from the last on.
const PIECES: [usize; 6] = [1, 20, 300, 7, 2_000, 1];
/// The most digits of a chunk's size, bytes of all extensions, and of all trailer fields.
const MAX_CHUNK: (usize, usize, usize) = (15, 1_024, 8_192);

/// What requests are made of.
const WORDS: [&str; 56] = [
    "GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /e HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /l HTTP/1.1\r\nHost: a\r\n\r\n",
    "HEAD /e HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /e HTTP/1.1\r\nHost: a\r\n",
    "POST /l HTTP/1.1\r\nHost: a\r\n",
    "POST /p HTTP/1.1\r\nHost: a\r\n",
    "POST /q HTTP/1.1\r\nHost: a\r\n",
    "POST /s HTTP/1.1\r\nHost: a\r\n",
    "POST /t HTTP/1.1\r\nHost: a\r\n",
    "POST /u HTTP/1.1\r\nHost: a\r\n",
    "POST /k HTTP/1.1\r\nHost: a\r\n",
    "POST /e HTTP/1.0\r\n",
    "GET /m HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /r?x HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /docs?x HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /f HTTP/1.1\r\nHost: a\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET ",
    "POST ",
    "/e",
    "/a.txt",
    "?x",
    " HTTP/1.1\r\nHost: a\r\n",
    "Content-Length: 3\r\n",
    "Content-Length: 3\r\n\r\nabc",
    "Content-Length: 9\r\n\r\n123456789",
    "Content-Length: 0\r\n\r\n",
    "Content-Length: 3000\r\n\r\n",
    "Content-Length: 70000\r\n\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "Expect: 100-continue\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "If-None-Match: *\r\n",
    "\r\n",
    "\r\n\r\n",
    "0\r\n\r\n",
    "0\r\n",
    "1\r\na\r\n",
    "00A;x=y;z=\"q\"\r\n0123456789\r\n",
    "A: b\r\n",
    "A:",
    "1\r\na\r",
    ";",
    "1\r\n",
    "1000\r\n",
    "fffffffffffffff\r\n",
    "a",
    "0",
    "\n",
    "\r",
    " ",
];

/// How the body of the first request is told.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Framing {
    Known(u16),
    Chunked,
}

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    sees_everything: bool,
    /// The client closes its side.
    ends: bool,
    /// What comes is the body of a first request, whose body is the answer's too, and
    /// whatever is behind it.
    body: Option<Framing>,
    cuts: [u16; 6],
    pieces: Vec<Piece<'a>>,
}

/// What is remembered of a connection.
#[derive(Default)]
struct Coming {
    bytes: usize,
    /// The first piece of a body is enough.
    stops: bool,
}

struct Probe<const FIRST: bool> {
    prepared: PreparedId,
    waiting: Vec<Ticket>,
    /// Responses in pieces, of which the last is to come.
    streaming: Vec<Ticket>,
}

impl<const FIRST: bool> Probe<FIRST> {
    fn new(replies: &mut Replies<'_>) -> Result<Self, ContentError> {
        let mut response = Response::new();
        response.write(b"prepared\n");
        Ok(Self {
            prepared: replies.add(&response)?,
            waiting: Vec::new(),
            streaming: Vec::new(),
        })
    }
}

impl<const FIRST: bool> App for Probe<FIRST> {
    type State = Coming;
    type Message = ();

    const SEES: Sees = if FIRST {
        Sees::Everything
    } else {
        Sees::Missing
    };

    fn on_start(&mut self, clients: &mut impl Clients<Coming>) {
        clients.set_timer(TICK, PERIOD);
    }

    fn on_head(&mut self, head: &Request<'_>, exchange: &mut Exchange<'_, Coming>) -> Intake {
        assert!(head.body().is_empty());
        let stops = head.path() == "/s";
        *exchange.state() = Coming { bytes: 0, stops };
        match head.path() {
            "/p" | "/s" => Intake::Pieces(u64::MAX),
            "/q" => Intake::Pieces(FEW),
            "/t" => Intake::Whole(FEW as usize),
            "/u" => Intake::Unread(Verdict::Refuse(FORBIDDEN)),
            "/k" => {
                self.waiting.push(exchange.ticket());
                Intake::Unread(Verdict::Later)
            }
            _ => Intake::Whole(BODY_LIMIT),
        }
    }

    fn on_body(&mut self, piece: &[u8], exchange: &mut Exchange<'_, Coming>) -> Option<Verdict> {
        assert!(!piece.is_empty());
        exchange.state().bytes += piece.len();
        let stops = exchange.state().stops;
        stops.then_some(Verdict::Refuse(FORBIDDEN))
    }

    fn on_request(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Exchange<'_, Coming>,
    ) -> Verdict {
        if request.query() == Some("x") {
            exchange.add_field("X-Extra", "yes").expect("a valid field");
        }
        match request.path() {
            "/e" => {
                exchange.response().write(request.body());
                Verdict::Made
            }
            "/l" => {
                self.waiting.push(exchange.ticket());
                Verdict::Later
            }
            "/p" | "/q" => {
                let bytes = std::mem::take(&mut exchange.state().bytes);
                exchange.text(format_args!("{bytes} bytes"))
            }
            "/m" => {
                exchange.state().bytes = PIECES.len();
                exchange.response().write(b"begins");
                Verdict::Stream
            }
            "/r" => Verdict::Prepared(self.prepared),
            "/f" => Verdict::Refuse(FORBIDDEN),
            _ => Verdict::Site,
        }
    }

    fn on_more(&mut self, exchange: &mut Exchange<'_, Coming>) -> More {
        let left = &mut exchange.state().bytes;
        let Some(next) = left.checked_sub(1) else {
            return More::Last;
        };
        *left = next;
        exchange.response().write(&b"p".repeat(PIECES[next]));
        if next > 0 {
            return More::Next;
        }
        self.streaming.push(exchange.ticket());
        More::Wait
    }

    fn on_timer(&mut self, _: Timer, clients: &mut impl Clients<Coming>) {
        clients.set_timer(TICK, PERIOD);
        for ticket in std::mem::take(&mut self.streaming) {
            clients.resume(ticket);
        }
        for ticket in std::mem::take(&mut self.waiting) {
            clients.answer(ticket, |request, exchange| {
                exchange.text(format_args!("later {}", request.body().len()))
            });
        }
    }
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_249_777)
}

thread_local! {
    static SITE: Arc<Site> = Arc::new(
        Builder::new(now())
            .file(b"/a.txt", now(), b"a file\n")
            .file(b"/docs/index.html", now(), b"<p>Docs\n")
            .build(),
    );
}

fn visit<const FIRST: bool>(pieces: &[&[u8]], ends: bool) -> Got {
    let config = Config {
        max_connections: 2,
        ..Config::on_ports(&[PORT])
    };
    let address = [IpAddr::V4(OWN.1)];
    let make = |port: &_| {
        let site = SITE.with(Arc::clone);
        let http: Result<Http<Probe<FIRST>>, ContentError> = Http::load(
            site,
            Probe::new,
            &address,
            &config,
            port,
            [1, 2, 3, 4],
            Instant::ZERO,
        );
        http.expect("a small site").with_wall_clock(now)
    };
    talk(PORT, make, pieces, ends)
}

/// A body by an independent reader.
enum Body<'a> {
    /// And what follows it.
    Whole(Vec<u8>, &'a [u8]),
    /// More is needed, or something in the last line is wrong.
    Half,
    Malformed,
}

fn body(framing: Framing, bytes: &[u8]) -> Body<'_> {
    match framing {
        Framing::Known(len) => match bytes.split_at_checked(len.into()) {
            Some((body, rest)) => Body::Whole(body.to_vec(), rest),
            None => Body::Half,
        },
        Framing::Chunked => chunks(bytes),
    }
}

/// The first line of `bytes` without its end, and what follows.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    Some((&bytes[..end], &bytes[end + 2..]))
}

fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| *b == b'\t' || !b.is_ascii_control())
}

/// RFC 9112, section 7.1.
fn chunks(mut rest: &[u8]) -> Body<'_> {
    let (mut body, mut extensions, mut trailers) = (Vec::new(), 0, 0);
    let (max_digits, max_extensions, max_trailers) = MAX_CHUNK;
    loop {
        let Some((head, next)) = line(rest) else {
            return Body::Half;
        };
        let mut parts = head.splitn(2, |b| *b == b';');
        let size = parts.next().unwrap_or_default();
        let extension = parts.next().unwrap_or_default();
        extensions += extension.len();
        let is_right = (1..=max_digits).contains(&size.len())
            && size.iter().all(u8::is_ascii_hexdigit)
            && is_text(extension)
            && extensions <= max_extensions;
        if !is_right {
            return Body::Malformed;
        }
        let size = std::str::from_utf8(size).expect("digits");
        let size = usize::from_str_radix(size, 16).expect("15 digits");
        if size == 0 {
            rest = next;
            break;
        }
        let Some(end) = next.get(..size.saturating_add(2)) else {
            return Body::Half;
        };
        let (data, end) = end.split_at(size);
        if end != b"\r\n" {
            return Body::Malformed;
        }
        body.extend_from_slice(data);
        rest = &next[size + 2..];
    }
    loop {
        let Some((field, next)) = line(rest) else {
            return Body::Half;
        };
        if field.is_empty() {
            return Body::Whole(body, next);
        }
        // The CR counts too.
        trailers += field.len() + 1;
        let colon = field.iter().position(|b| *b == b':').unwrap_or(0);
        let is_token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
        let is_right = colon > 0
            && field[..colon].iter().all(is_token)
            && is_text(&field[colon + 1..])
            && trailers <= max_trailers;
        if !is_right {
            return Body::Malformed;
        }
        rest = next;
    }
}

/// The answer to the first request has its body.
fn has_body(got: &Got, body: &Body<'_>) {
    match body {
        Body::Whole(body, _) => {
            let response = response(&got.bytes);
            assert_eq!(
                (response.status, response.told_len),
                (200, Some(body.len()))
            );
            assert!(response.rest.starts_with(body), "another body");
        }
        Body::Malformed => assert_eq!(response(&got.bytes).status, 400),
        Body::Half => assert!(got.bytes.is_empty() || response(&got.bytes).status == 400),
    }
}

/// Responses, one behind the other, of which only the last one closes.
fn are_valid(got: &Got) {
    let mut rest = &got.bytes[..];
    let mut closes = false;
    while !rest.is_empty() {
        assert!(!closes, "a response behind the last");
        let response = response(rest);
        rest = if response.is_chunked {
            let Body::Whole(body, rest) = chunks(response.rest) else {
                panic!("chunks that are not whole");
            };
            assert_eq!(body.len(), 6 + PIECES.iter().sum::<usize>());
            rest
        } else {
            let len = response.told_len.unwrap_or(0);
            response.rest.get(len..).expect("the whole body")
        };
        closes = response.closes;
    }
    assert!(!closes || got.is_closed, "it does not close");
}

fuzz_target!(|input: Input| {
    let mut sent = bytes(&input.pieces, &WORDS);
    // What is wrong is told at a line's end at the latest.
    sent.push(b'\n');
    let has = |word: &[u8]| sent.windows(word.len()).any(|bytes| bytes == word);
    let head = match input.body {
        None => String::new(),
        Some(Framing::Known(len)) => {
            format!("POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n")
        }
        Some(Framing::Chunked) => {
            "POST /e HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned()
        }
    };
    let all = [head.as_bytes(), &sent].concat();
    let visit = if input.sees_everything {
        visit::<true>
    } else {
        visit::<false>
    };
    let whole = visit(&[&all], input.ends);
    if let Some(framing) = input.body {
        has_body(&whole, &body(framing, &sent));
    }
    // The answer to a HEAD does not tell how long it is.
    if !has(b"HEAD") {
        are_valid(&whole);
    }
    let cut = visit(&cut(&all, &input.cuts), input.ends);
    // Who waits for leave to go on gets it, or is refused, and who does not wait is not.
    if !has(b"100-") {
        assert_eq!(cut, whole, "the cuts make a difference");
    }
});
