//! Requests: RFC 9112's messages, taken apart strictly.
//!
//! Whatever another program on the way might read differently is refused and
//! the connection closed, so that no request can hide in another (request
//! smuggling): bare line feeds, folded fields, a `Transfer-Encoding` beside a
//! `Content-Length`, several lengths, several hosts.

use std::mem::MaybeUninit;

use httparse::{Error, Header, Status as Parsed};
use httpdate::parse_http_date;

use crate::framing::{Framing, list};
use crate::host::is_host;
use crate::reply::Status;
use crate::site::FilePage;

/// The most bytes of a request's head, its empty line included.
pub const HEAD_LIMIT: usize = 8_192;
/// The most fields of a request.
pub const MAX_FIELDS: usize = 128;

/// Where [`parse`] puts the fields.
pub(crate) type FieldBuffer<'d> = [MaybeUninit<Header<'d>>; MAX_FIELDS];

/// Room for the fields of one request; costs nothing.
pub(crate) const fn field_buffer<'d>() -> FieldBuffer<'d> {
    [const { MaybeUninit::uninit() }; MAX_FIELDS]
}

/// Why there is no request at the start of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotRead {
    /// It is to be answered with an error.
    Refused(Refusal),
    /// Its version is HTTP/1.2 or later, which is read and answered as
    /// HTTP/1.1 (RFC 9110, section 2.5). The version's last digit is the byte
    /// at `digit_at`: read it again with a 1 there.
    LaterMinor {
        /// Less than [`HEAD_LIMIT`].
        digit_at: usize,
    },
}

/// A request that is to be answered with an error, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: Status,
    /// The method was HEAD, so the answer has no body.
    pub(crate) head_only: bool,
}

/// The methods that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    /// HTTP knows it (RFC 9110, section 9.1; RFC 5789), but no file does.
    OfNoFile,
    Unknown,
}

impl Method {
    fn of(name: &str) -> Self {
        match name {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" | "PUT" | "DELETE" | "CONNECT" | "OPTIONS" | "TRACE" | "PATCH" => Self::OfNoFile,
            _ => Self::Unknown,
        }
    }
}

/// A whole and valid head.
#[derive(Debug)]
pub(crate) struct Request<'f, 'd> {
    pub(crate) method: Method,
    target: &'d str,
    fields: &'f [Header<'d>],
    /// The connection goes on after the answer.
    pub(crate) keep_alive: bool,
    conditional: bool,
    /// Bytes up to and including the empty line.
    pub(crate) len: usize,
}

/// Looks for a request at the start of `data`. `None` when more is needed;
/// that is never so when `data` has [`HEAD_LIMIT`] bytes or more.
#[inline]
pub(crate) fn parse<'f, 'd>(
    data: &'d [u8],
    fields: &'f mut FieldBuffer<'d>,
) -> Result<Option<Request<'f, 'd>>, NotRead> {
    let head = &data[..data.len().min(HEAD_LIMIT)];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(head, fields) {
        Ok(Parsed::Complete(len)) => {
            let head_only = request.method == Some("HEAD");
            let refuse = |status| NotRead::Refused(Refusal { status, head_only });
            if has_bare_line_feed(&head[..len]) {
                return Err(refuse(Status::BadRequest));
            }
            let (Some(method), Some(target), Some(minor)) =
                (request.method, request.path, request.version)
            else {
                return Err(refuse(Status::BadRequest));
            };
            let fields: &'f [Header<'d>] = request.headers;
            let framing = Framing::of(fields, minor).map_err(refuse)?;
            Ok(Some(Request {
                method: Method::of(method),
                target,
                fields,
                keep_alive: framing.keep_alive,
                conditional: framing.conditional,
                len,
            }))
        }
        Ok(Parsed::Partial) if head.len() < HEAD_LIMIT => Ok(None),
        outcome => {
            let status = match outcome {
                Ok(_) if head.contains(&b'\n') => Status::HeadTooLarge,
                Ok(_) => Status::UriTooLong,
                Err(Error::TooManyHeaders) => Status::HeadTooLarge,
                Err(Error::Version) => other_version(head)?,
                Err(_) => Status::BadRequest,
            };
            Err(NotRead::Refused(Refusal {
                status,
                head_only: request.method == Some("HEAD"),
            }))
        }
    }
}

/// Whether some line ends with LF only. RFC 9112, section 2.2, lets us take
/// that; but then we would see requests where others see none.
fn has_bare_line_feed(head: &[u8]) -> bool {
    let bare = |before: u8, byte: u8| u8::from(byte == b'\n') & u8::from(before != b'\r');
    let pairs = head.iter().zip(head.get(1..).unwrap_or_default());
    // All of it is looked at, in numbers of eight bits: so the compiler takes
    // sixteen at a time.
    let inside = pairs.fold(0, |found, (before, byte)| found | bare(*before, *byte));
    inside != 0 || head.first() == Some(&b'\n')
}

/// What to say to a request line that names neither HTTP/1.0 nor HTTP/1.1
/// (RFC 9112, section 2.3).
#[cold]
fn other_version(head: &[u8]) -> Result<Status, NotRead> {
    const MAJOR_1: &[u8] = b"HTTP/1.";
    // No space stands in front of the method, nor in it or the target.
    let mut spaces = head.iter().enumerate().filter(|(_, b)| **b == b' ');
    let at = spaces.nth(1).map_or(head.len(), |(at, _)| at + 1);
    let version = &head[at..];
    if let Some([b'2'..=b'9', ..]) = version.strip_prefix(MAJOR_1) {
        let digit_at = at + MAJOR_1.len();
        return Err(NotRead::LaterMinor { digit_at });
    }
    match version.strip_prefix(b"HTTP/") {
        Some([b'0' | b'2'..=b'9', ..]) => Ok(Status::VersionNotSupported),
        _ => Ok(Status::BadRequest),
    }
}

/// What a request is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'d> {
    /// Begins with a slash.
    pub(crate) path: &'d [u8],
    /// Without its question mark; empty when there is none.
    pub(crate) query: &'d [u8],
}

impl<'d> Request<'_, 'd> {
    /// The path and the query of the target; `None` when the target is none
    /// of GET or HEAD (RFC 9112, section 3.2).
    #[inline]
    pub(crate) fn target(&self) -> Option<Target<'d>> {
        let target = self.target.as_bytes();
        let rest = match target {
            [b'/', ..] => target,
            _ => absolute_form(target)?,
        };
        let (path, query) = match rest.iter().position(|b| matches!(b, b'?' | b'#')) {
            None => (rest, &[][..]),
            // A fragment is never sent (RFC 9112, section 3.2).
            Some(at) if rest[at] == b'#' => return None,
            Some(at) => (&rest[..at], &rest[at + 1..]),
        };
        let path = if path.is_empty() { b"/" } else { path };
        Some(Target { path, query })
    }

    /// What the conditions say about a file (RFC 9110, section 13.2.2): `None`
    /// to send it.
    #[inline]
    pub(crate) fn precondition(&self, file: &FilePage) -> Option<Status> {
        if self.conditional {
            self.evaluate(file)
        } else {
            None
        }
    }

    #[inline(never)]
    fn evaluate(&self, file: &FilePage) -> Option<Status> {
        let since = |name| {
            // RFC 9110, section 13.1.3: what is no date is ignored. Nobody
            // sends two; were there two, the first would count.
            let value = self.values(name).next()?;
            seconds(value)
        };
        let holds = match self.names_tag("if-match", file, Comparison::Strong) {
            Some(holds) => holds,
            None => since("if-unmodified-since").is_none_or(|date| file.modified <= date),
        };
        if !holds {
            return Some(Status::PreconditionFailed);
        }
        let unchanged = match self.names_tag("if-none-match", file, Comparison::Weak) {
            Some(unchanged) => unchanged,
            None => since("if-modified-since").is_some_and(|date| file.modified <= date),
        };
        unchanged.then_some(Status::NotModified)
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.fields
            .iter()
            .filter(move |field| field.name.eq_ignore_ascii_case(name))
            .map(|field| field.value)
    }

    /// Whether a file's tag is among those of a field; `None` when there is
    /// no such field.
    fn names_tag(&self, name: &str, file: &FilePage, how: Comparison) -> Option<bool> {
        self.values(name)
            .map(|value| names_tag(value, file, how))
            .reduce(|a, b| a || b)
    }
}

/// How tags are compared: RFC 9110, section 8.8.3.2. Ours are all strong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

fn names_tag(value: &[u8], file: &FilePage, how: Comparison) -> bool {
    if value == b"*" {
        return true;
    }
    // A comma may stand inside a tag, but in none of ours: its pieces match
    // nothing.
    list(value).any(|tag| match tag.strip_prefix(b"W/") {
        Some(tag) => how == Comparison::Weak && file.tag.is(tag),
        None => file.tag.is(tag),
    })
}

/// An HTTP date in seconds since 1970.
fn seconds(value: &[u8]) -> Option<u64> {
    let date = parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    let since = date.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(since.as_secs())
}

/// What follows the authority of an absolute URI of ours (RFC 9112, section
/// 3.2.2). Which host it names does not matter: all are served alike.
#[cold]
fn absolute_form(target: &[u8]) -> Option<&[u8]> {
    let after = |scheme: &str| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start
            .eq_ignore_ascii_case(scheme.as_bytes())
            .then_some(rest)
    };
    let rest = after("http://").or_else(|| after("https://"))?;
    let end = rest
        .iter()
        .position(|b| matches!(b, b'/' | b'?' | b'#'))
        .unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // RFC 9110, section 4.2.1: without a host it is invalid.
    (!authority.is_empty() && is_host(authority)).then_some(path)
}
