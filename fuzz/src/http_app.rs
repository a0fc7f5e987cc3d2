//! Sends requests and arbitrary bytes to an application over TCP. The responses must be valid and
//! must not depend on the segmentation. A second parser reads the body of the first request, and
//! the response must match its result.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::http::{Piece, bytes, response};
use crate::talk::{Received, talk};
use arbitrary::Arbitrary;
use nmio::Instant;
use sandstorm::{
    App, BODY_LIMIT, Builder, Clients, Exchange, Http, Intake, More, PreparedId, Replies, Request,
    Response, Sees, Site, StatusCode, Ticket, Verdict,
};
use tcpip::{Config, ContentError, Timer};
use testkit::SERVER;

const PORT: u16 = 80;
const FORBIDDEN: StatusCode = StatusCode::new(403).unwrap();
const TICK: Timer = Timer::new(0);
const PERIOD: Duration = Duration::from_millis(10);
/// A small limit on the length of a request body, in bytes.
const MAX_BODY: u64 = 5;
/// Lengths in bytes of the pieces that follow `begins` in a streamed response, last piece first.
const PIECES: [usize; 6] = [1, 20, 300, 7, 2_000, 1];
/// The server's limits for a chunked body: number of digits in a chunk size, bytes in all
/// extensions, and bytes in all trailer fields.
const MAX_CHUNK: (usize, usize, usize) = (15, 1_024, 8_192);

/// Parts of requests, separated by `|`.
const WORDS: &str = "\
    GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n|GET /e HTTP/1.1\r\nHost: a\r\n\r\n|\
    GET /l HTTP/1.1\r\nHost: a\r\n\r\n|HEAD /e HTTP/1.1\r\nHost: a\r\n\r\n|\
    POST /e HTTP/1.1\r\nHost: a\r\n|POST /l HTTP/1.1\r\nHost: a\r\n|\
    POST /p HTTP/1.1\r\nHost: a\r\n|POST /q HTTP/1.1\r\nHost: a\r\n|\
    POST /s HTTP/1.1\r\nHost: a\r\n|POST /t HTTP/1.1\r\nHost: a\r\n|\
    POST /u HTTP/1.1\r\nHost: a\r\n|POST /k HTTP/1.1\r\nHost: a\r\n|POST /e HTTP/1.0\r\n|\
    GET /m HTTP/1.1\r\nHost: a\r\n\r\n|GET /r?x HTTP/1.1\r\nHost: a\r\n\r\n|\
    GET /docs?x HTTP/1.1\r\nHost: a\r\n\r\n|GET /f HTTP/1.1\r\nHost: a\r\n\r\n|\
    OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n|CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n|GET |POST |/e|\
    /a.txt|?x| HTTP/1.1\r\nHost: a\r\n|Content-Length: 3\r\n|Content-Length: 3\r\n\r\nabc|\
    Content-Length: 9\r\n\r\n123456789|Content-Length: 0\r\n\r\n|Content-Length: 3000\r\n\r\n|\
    Content-Length: 70000\r\n\r\n|Transfer-Encoding: chunked\r\n|\
    Transfer-Encoding: chunked\r\n\r\n|Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n|\
    Expect: 100-continue\r\n|Connection: close\r\n|Connection: keep-alive\r\n|\
    If-None-Match: *\r\n|\r\n|\r\n\r\n|0\r\n\r\n|0\r\n|1\r\na\r\n|\
    00A;x=y;z=\"q\"\r\n0123456789\r\n|A: b\r\n|A:|1\r\na\r|;|1\r\n|1000\r\n|fffffffffffffff\r\n|\
    a|0|\n|\r| ";

/// How the first request frames its body.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Framing {
    /// The request has this `Content-Length`.
    Known(u16),
    /// The body is sent in chunks.
    Chunked,
}

/// What libFuzzer makes.
#[derive(Arbitrary, Debug)]
pub struct Input<'a> {
    sees_everything: bool,
    /// Whether the client closes its direction after the last byte.
    ends: bool,
    /// Framing of an additional request that comes first. The bytes of `pieces` follow its head, so
    /// its body is taken from them. The application echoes the body.
    body: Option<Framing>,
    cuts: [u16; 6],
    pieces: Vec<Piece<'a>>,
}

/// State of a connection.
#[derive(Default)]
struct Progress {
    /// Number of received bytes of a body, or number of remaining pieces of a response.
    count: usize,
    /// Whether to refuse the request after the first piece of its body.
    stops: bool,
}

struct Probe<const FIRST: bool> {
    prepared: PreparedId,
    /// Tickets of requests to answer on the next tick.
    waiting: Vec<Ticket>,
    /// Tickets of streamed responses that end on the next tick.
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
    type State = Progress;
    type Message = ();

    const SEES: Sees = [Sees::Missing, Sees::Everything][FIRST as usize];

    fn on_start(&mut self, clients: &mut impl Clients<Progress>) {
        clients.set_timer(TICK, PERIOD);
    }

    fn on_head(&mut self, head: &Request<'_>, exchange: &mut Exchange<'_, Progress>) -> Intake {
        assert!(head.body().is_empty());
        let stops = head.path() == "/s";
        *exchange.state() = Progress { count: 0, stops };
        match head.path() {
            "/p" | "/s" => Intake::Pieces(u64::MAX),
            "/q" => Intake::Pieces(MAX_BODY),
            "/t" => Intake::Whole(MAX_BODY as usize),
            "/u" => Intake::Unread(Verdict::Refuse(FORBIDDEN)),
            "/k" => {
                self.waiting.push(exchange.ticket());
                Intake::Unread(Verdict::Later)
            }
            _ => Intake::Whole(BODY_LIMIT),
        }
    }

    fn on_body(&mut self, piece: &[u8], exchange: &mut Exchange<'_, Progress>) -> Option<Verdict> {
        assert!(!piece.is_empty());
        exchange.state().count += piece.len();
        let stops = exchange.state().stops;
        stops.then_some(Verdict::Refuse(FORBIDDEN))
    }

    fn on_request(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Exchange<'_, Progress>,
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
                let bytes = std::mem::take(&mut exchange.state().count);
                exchange.text(format_args!("{bytes} bytes"))
            }
            "/m" => {
                exchange.state().count = PIECES.len();
                exchange.response().write(b"begins");
                Verdict::Stream
            }
            "/r" => Verdict::Prepared(self.prepared),
            "/f" => Verdict::Refuse(FORBIDDEN),
            _ => Verdict::Site,
        }
    }

    fn on_more(&mut self, exchange: &mut Exchange<'_, Progress>) -> More {
        let left = &mut exchange.state().count;
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

    fn on_timer(&mut self, _: Timer, clients: &mut impl Clients<Progress>) {
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

fn visit<const FIRST: bool>(bytes: &[u8], cuts: &[u16], ends: bool) -> Received {
    let config = Config {
        max_connections: 2,
        ..Config::on_ports(&[PORT])
    };
    let make = |port: &_| {
        let site = SITE.with(Arc::clone);
        let http: Result<Http<Probe<FIRST>>, ContentError> = Http::load(
            site,
            Probe::new,
            &SERVER,
            &config,
            port,
            [1, 2, 3, 4],
            Instant::ZERO,
        );
        http.expect("a small site").with_wall_clock(now)
    };
    talk(PORT, make, bytes, cuts, ends)
}

/// Reason why [`body`] finds no body.
enum Error {
    /// More bytes are needed. The incomplete last line may already be malformed.
    Incomplete,
    Malformed,
}

/// A body and the bytes after it, parsed without the code under test.
type Body<'a> = Result<(Vec<u8>, &'a [u8]), Error>;

fn body(framing: Framing, bytes: &[u8]) -> Body<'_> {
    match framing {
        Framing::Known(len) => {
            let (body, rest) = bytes
                .split_at_checked(len.into())
                .ok_or(Error::Incomplete)?;
            Ok((body.to_vec(), rest))
        }
        Framing::Chunked => chunks(bytes),
    }
}

/// Returns the first line of `bytes` without CRLF, and the bytes after it.
fn line(bytes: &[u8]) -> Result<(&[u8], &[u8]), Error> {
    let end = bytes.windows(2).position(|two| two == b"\r\n");
    let end = end.ok_or(Error::Incomplete)?;
    Ok((&bytes[..end], &bytes[end + 2..]))
}

fn ensure(is_right: bool) -> Result<(), Error> {
    is_right.then_some(()).ok_or(Error::Malformed)
}

fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| *b == b'\t' || !b.is_ascii_control())
}

/// Reads a chunked body (RFC 9112, section 7.1).
fn chunks(mut rest: &[u8]) -> Body<'_> {
    let (mut body, mut extensions, mut trailers) = (Vec::new(), 0, 0);
    let (max_digits, max_extensions, max_trailers) = MAX_CHUNK;
    loop {
        let (head, next) = line(rest)?;
        let digits = head.iter().position(|b| *b == b';').unwrap_or(head.len());
        let (size, extension) = head.split_at(digits);
        extensions += extension.len().saturating_sub(1);
        ensure((1..=max_digits).contains(&size.len()) && size.iter().all(u8::is_ascii_hexdigit))?;
        ensure(is_text(extension) && extensions <= max_extensions)?;
        let size = std::str::from_utf8(size).expect("digits");
        let size = usize::from_str_radix(size, 16).expect("15 digits");
        rest = next;
        if size == 0 {
            break;
        }
        let chunk = rest.get(..size.saturating_add(2));
        let (data, end) = chunk.ok_or(Error::Incomplete)?.split_at(size);
        ensure(end == b"\r\n")?;
        body.extend_from_slice(data);
        rest = &rest[size + 2..];
    }
    loop {
        let (field, next) = line(rest)?;
        if field.is_empty() {
            return Ok((body, next));
        }
        // The server also counts the CR at the end of the line.
        trailers += field.len() + 1;
        let colon = field.iter().position(|b| *b == b':').unwrap_or(0);
        let is_token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
        ensure(colon > 0 && field[..colon].iter().all(is_token))?;
        ensure(is_text(&field[colon + 1..]) && trailers <= max_trailers)?;
        rest = next;
    }
}

/// Checks that the first response echoes the body of its request. If the body is malformed, the
/// response must be an error. If the body is incomplete, there may also be no response.
fn check_echo(received: &Received, body: &Body<'_>) {
    match body {
        Ok((body, _)) => {
            let response = response(&received.bytes);
            assert_eq!(response.status, 200);
            assert_eq!(response.content_length, Some(body.len()));
            assert!(response.rest.starts_with(body), "a wrong body");
        }
        Err(Error::Malformed) => assert_eq!(response(&received.bytes).status, 400),
        Err(Error::Incomplete) => {
            assert!(received.bytes.is_empty() || response(&received.bytes).status == 400);
        }
    }
}

/// Checks a sequence of responses. Only the last one may close the connection.
fn check_responses(received: &Received) {
    let mut rest = &received.bytes[..];
    let mut closes = false;
    while !rest.is_empty() {
        assert!(!closes, "a response after the last");
        let response = response(rest);
        rest = if response.is_chunked {
            let Ok((body, rest)) = chunks(response.rest) else {
                panic!("a chunked response is invalid");
            };
            assert_eq!(body.len(), 6 + PIECES.iter().sum::<usize>());
            rest
        } else {
            let len = response.content_length.unwrap_or(0);
            response.rest.get(len..).expect("a complete body")
        };
        closes = response.closes;
    }
    assert!(!closes || received.is_closed, "the server does not close");
}

/// Runs the target.
pub fn run(input: &Input<'_>) {
    let sent = bytes(&input.pieces, WORDS);
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
    let visit = [visit::<false>, visit::<true>][usize::from(input.sees_everything)];
    let unsegmented = visit(&all, &[], input.ends);
    if let Some(framing) = input.body {
        check_echo(&unsegmented, &body(framing, &sent));
    }
    // The end of a response to HEAD is unknown without its request.
    if !has(b"HEAD") {
        check_responses(&unsegmented);
    }
    let segmented = visit(&all, &input.cuts, input.ends);
    // The segmentation decides whether the server sends 100 (Continue), so the responses may
    // differ.
    if !has(b"100-") {
        assert_eq!(
            segmented, unsegmented,
            "the segmentation changes the responses"
        );
    }
}
