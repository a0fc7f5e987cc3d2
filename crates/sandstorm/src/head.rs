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
use crate::reply::ETag;
use crate::status::Status;

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

/// A whole and valid head. It has no more than the site needs for an answer;
/// [`Request`](crate::Request) has the rest.
#[derive(Debug)]
pub(crate) struct Head<'a> {
    pub(crate) method: Method,
    pub(crate) target: &'a str,
    pub(crate) fields: &'a [Header<'a>],
    /// The connection goes on after the answer: the client lets it, and there is no
    /// body that is not read.
    pub(crate) keep_alive: bool,
    conditional: bool,
    pub(crate) minor: u8,
    /// Bytes up to and including the empty line.
    pub(crate) len: usize,
}

/// Looks for a request at the start of `data`. `None` when more is needed;
/// that is never so when `data` has [`HEAD_LIMIT`] bytes or more.
#[inline]
pub(crate) fn parse<'f, 'd>(
    data: &'d [u8],
    fields: &'f mut FieldBuffer<'d>,
) -> Result<Option<Head<'f>>, NotRead> {
    let head = &data[..data.len().min(HEAD_LIMIT)];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(head, fields) {
        Ok(Parsed::Complete(len)) => {
            let head_only = request.method == Some("HEAD");
            let refuse = |status| NotRead::Refused(Refusal { status, head_only });
            if has_bare_line_feed(&head[..len], request.headers) {
                return Err(refuse(Status::BadRequest));
            }
            let (Some(method), Some(target), Some(minor)) =
                (request.method, request.path, request.version)
            else {
                return Err(refuse(Status::BadRequest));
            };
            let fields: &'f [Header<'d>] = request.headers;
            let framing = Framing::of(fields, minor).map_err(refuse)?;
            Ok(Some(Head {
                method: Method::of(method),
                target,
                fields,
                keep_alive: framing.persistent && framing.body.is_none(),
                conditional: framing.conditional,
                minor,
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

/// What the fields of an HTTP/1.1 request without conditions say, and the empty
/// line behind them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    keep_alive: bool,
    /// Bytes up to and including the empty line.
    len: u16,
}

const _: () = assert!(HEAD_LIMIT <= u16::MAX as usize);

/// The length of the first line of `data`, with its end, if all of it is there.
#[inline]
pub(crate) fn line_len(data: &[u8]) -> Option<usize> {
    memchr::memchr(b'\n', data).map(|at| at + 1)
}

/// As [`parse`], of a request line whose fields are known. `None` when it is none
/// that is usual, so that all of the request must be read.
#[inline]
pub(crate) fn parse_line(line: &[u8], fields: Fields) -> Option<Head<'_>> {
    const VERSION: &[u8] = b" HTTP/1.1\r\n";
    let mut request = httparse::Request::new(&mut []);
    let parsed = request.parse(line);
    let (Ok(Parsed::Partial), Some(method), Some(target)) = (parsed, request.method, request.path)
    else {
        return None;
    };
    let len = line.len() + usize::from(fields.len);
    // Nothing stands in front of the method, and single spaces behind it.
    let is_usual = line.len() == method.len() + 1 + target.len() + VERSION.len()
        && line.ends_with(VERSION)
        && len <= HEAD_LIMIT;
    is_usual.then(|| Head {
        method: Method::of(method),
        target,
        fields: &[],
        keep_alive: fields.keep_alive,
        conditional: false,
        minor: 1,
        len,
    })
}

/// Whether some line of a head, which has been read, ends with LF only. RFC 9112,
/// section 2.2, lets us take that; but then we would see requests where others see
/// none. A line ends before each field, and two end the head.
fn has_bare_line_feed(head: &[u8], fields: &[Header<'_>]) -> bool {
    let follows_crlf = |field: &Header<'_>| {
        let at = field.name.as_ptr().addr() - head.as_ptr().addr();
        head[..at].ends_with(b"\r\n")
    };
    head.starts_with(b"\n") || !head.ends_with(b"\r\n\r\n") || !fields.iter().all(follows_crlf)
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
    pub(crate) path: &'d str,
    /// Without its question mark.
    pub(crate) query: Option<&'d str>,
}

impl<'a> Head<'a> {
    /// What is to be remembered of the fields, which begin behind `line_len` bytes.
    #[inline]
    pub(crate) fn known_fields(&self, line_len: usize) -> Option<Fields> {
        let len = self.len.checked_sub(line_len)?;
        (self.minor == 1 && !self.conditional).then_some(Fields {
            keep_alive: self.keep_alive,
            len: len as u16,
        })
    }

    /// The path and the query of the target; `None` when the target is none
    /// of GET or HEAD (RFC 9112, section 3.2).
    #[inline]
    pub(crate) fn page(&self) -> Option<Target<'a>> {
        let rest = match self.target.as_bytes() {
            [b'/', ..] => self.target,
            _ => absolute_form(self.target)?,
        };
        let end = rest.bytes().position(|b| matches!(b, b'?' | b'#'));
        let (path, query) = match end {
            None => (rest, None),
            // A fragment is never sent (RFC 9112, section 3.2).
            Some(at) if rest.as_bytes()[at] == b'#' => return None,
            Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        };
        let path = if path.is_empty() { "/" } else { path };
        Some(Target { path, query })
    }

    /// What the conditions say about what has this tag and was modified at this
    /// second, if that is known (RFC 9110, section 13.2.2): `None` to send it.
    #[inline]
    pub(crate) fn precondition(&self, tag: ETag, modified: Option<u64>) -> Option<Status> {
        if self.conditional {
            self.evaluate(tag, modified)
        } else {
            None
        }
    }

    #[inline(never)]
    fn evaluate(&self, tag: ETag, modified: Option<u64>) -> Option<Status> {
        let is_unmodified = |name| {
            // RFC 9110, section 13.1.3: what is no date is ignored. Nobody
            // sends two; were there two, the first would count.
            let value = self.values(name).next()?;
            Some(modified? <= seconds(value)?)
        };
        let holds = match self.names_tag("if-match", tag, Comparison::Strong) {
            Some(holds) => holds,
            None => is_unmodified("if-unmodified-since").unwrap_or(true),
        };
        if !holds {
            return Some(Status::PreconditionFailed);
        }
        let unchanged = match self.names_tag("if-none-match", tag, Comparison::Weak) {
            Some(unchanged) => unchanged,
            None => is_unmodified("if-modified-since").unwrap_or(false),
        };
        unchanged.then_some(Status::NotModified)
    }

    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.fields
            .iter()
            .filter(move |field| field.name.eq_ignore_ascii_case(name))
            .map(|field| field.value)
    }

    /// Whether a tag is among those of a field; `None` when there is
    /// no such field.
    fn names_tag(&self, name: &str, tag: ETag, how: Comparison) -> Option<bool> {
        self.values(name)
            .map(|value| names_tag(value, tag, how))
            .reduce(|a, b| a || b)
    }
}

/// How tags are compared: RFC 9110, section 8.8.3.2. Ours are all strong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

fn names_tag(value: &[u8], ours: ETag, how: Comparison) -> bool {
    if value == b"*" {
        return true;
    }
    // A comma may stand inside a tag, but in none of ours: its pieces match
    // nothing.
    list(value).any(|tag| match tag.strip_prefix(b"W/") {
        Some(tag) => how == Comparison::Weak && ours.is(tag),
        None => ours.is(tag),
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
fn absolute_form(target: &str) -> Option<&str> {
    let after = |scheme: &str| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    let rest = after("http://").or_else(|| after("https://"))?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // RFC 9110, section 4.2.1: without a host it is invalid.
    (!authority.is_empty() && is_host(authority.as_bytes())).then_some(path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A request is read only if CR stands before every LF.
        #[test]
        fn a_bare_line_feed_anywhere_is_refused(
            lines in prop::collection::vec("[ -~]{0,4}(:[ -~]{0,4})?", 0..5),
            bare in prop::collection::vec(any::<bool>(), 7),
        ) {
            let end = |at: usize| if bare[at] { "\n" } else { "\r\n" };
            let mut head = format!("GET / HTTP/1.1{}Host:x{}", end(0), end(1));
            for (at, line) in lines.iter().enumerate() {
                head += line;
                head += end(at + 2);
            }
            head += end(lines.len() + 1);
            let mut buffer = field_buffer();
            let parsed = parse(head.as_bytes(), &mut buffer);
            if let Ok(Some(request)) = parsed {
                let read = &head[..request.len];
                prop_assert!(!read.replace("\r\n", "").contains('\n'), "{read:?}");
            }
        }

        /// A request whose fields are known is read as one that is read whole.
        #[test]
        fn a_line_is_read_as_the_whole_request_is(
            line in prop_oneof![
                "(GET|HEAD|POST|X|) {0,2}/[ -~]{0,6} ?HTTP/1.[012]\r?",
                "\r?\n?[ -~]{0,20}\r?",
                Just("GET /a?b HTTP/1.1\r".to_owned()),
            ],
            close: bool,
        ) {
            let fields = if close { "Host: x\r\nConnection: close\r\n\r\n" } else { "Host: x\r\n\r\n" };
            let line = format!("{line}\n");
            let known = Fields { keep_alive: !close, len: fields.len() as u16 };
            if let Some(short) = parse_line(line.as_bytes(), known) {
                let whole = format!("{line}{fields}");
                let mut buffer = field_buffer();
                let long = parse(whole.as_bytes(), &mut buffer).unwrap().unwrap();
                prop_assert_eq!(short.method, long.method);
                prop_assert_eq!(short.target, long.target);
                prop_assert_eq!(short.keep_alive, long.keep_alive);
                prop_assert_eq!(short.len, long.len);
                prop_assert!(long.known_fields(line.len()).is_some());
            }
        }
    }

    #[test]
    fn a_usual_line_is_read_alone() {
        let known = Fields {
            keep_alive: true,
            len: 2,
        };
        let read = |line: &str| parse_line(line.as_bytes(), known).map(|request| request.len);
        assert_eq!(read("GET / HTTP/1.1\r\n"), Some(18));
        for line in [
            "\r\n",
            "\nGET / HTTP/1.1\r\n",
            "GET / HTTP/1.0\r\n",
            "GET / HTTP/1.1\n",
            "GET  / HTTP/1.1\r\n",
        ] {
            assert_eq!(read(line), None, "{line:?}");
        }
        let long = format!("GET /{} HTTP/1.1\r\n", "a".repeat(HEAD_LIMIT));
        assert_eq!(read(&long), None);
    }
}
