//! Strict parsing of request heads (RFC 9112).
//!
//! A request that an intermediary might parse differently is refused, and its connection is closed.
//! This prevents request smuggling. Such requests contain, for example, bare line feeds, folded
//! fields, `Transfer-Encoding` together with `Content-Length`, or more than one length or host.

use std::mem::MaybeUninit;

use httparse::{Error, Header, Status as Parsed};

use crate::accept::Accepted;
use crate::date::read_http_date;
use crate::etag::ETag;
use crate::framing::Framing;
use crate::host::is_host;
use crate::list::list;
use crate::status::Status;

/// Maximum length of a request head in bytes, including the empty line.
pub const HEAD_LIMIT: usize = 8_192;
/// Maximum number of fields in a request.
pub const MAX_FIELDS: usize = 128;

/// The buffer into which [`parse`] writes the fields.
pub(crate) type FieldBuffer<'d> = [MaybeUninit<Header<'d>>; MAX_FIELDS];

/// Makes a buffer for the fields of one request. The buffer is not initialized, because that would
/// cost time for each request.
pub(crate) const fn field_buffer<'d>() -> FieldBuffer<'d> {
    [const { MaybeUninit::uninit() }; MAX_FIELDS]
}

/// Why [`parse`] returned an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotRead {
    /// The request is answered with an error.
    Refused(Refusal),
    /// The version begins with HTTP/1.2 to HTTP/1.9. Such a request is read and answered as
    /// HTTP/1.1 (RFC 9110, section 2.5). The caller must replace the version's last digit, at
    /// `digit_at`, with a 1 and parse the request again.
    LaterMinor {
        /// Offset of the digit from the start of the head. It is less than [`HEAD_LIMIT`].
        digit_at: usize,
    },
}

/// How a refused request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: Status,
    /// Whether the method was HEAD. If so, the answer has no body.
    pub(crate) head_only: bool,
    /// Where the host begins, from the start of the data, and its length. The length is 0 if the host is
    /// not known.
    pub(crate) host: (u32, u32),
}

/// The methods that the server distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    Options,
    /// A standard method (RFC 9110, section 9.1; RFC 5789) that files do not support.
    OfNoFile,
    Unknown,
}

impl Method {
    fn of(name: &str) -> Self {
        match name {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "OPTIONS" => Self::Options,
            "POST" | "PUT" | "DELETE" | "CONNECT" | "TRACE" | "PATCH" => Self::OfNoFile,
            _ => Self::Unknown,
        }
    }
}

/// A complete and valid request head.
#[derive(Debug)]
pub(crate) struct Head<'a> {
    pub(crate) method: Method,
    pub(crate) target: &'a str,
    /// All fields, or none if the head was made by [`parse_line`].
    pub(crate) fields: &'a [Header<'a>],
    /// Whether the connection stays open after the response. The client must allow it, and no
    /// unread body may remain.
    pub(crate) keep_alive: bool,
    /// Whether the request contains a precondition, such as `If-Match`.
    conditional: bool,
    /// Whether the request contains `Range`.
    has_range: bool,
    /// Whether the request contains `Authorization`.
    has_credentials: bool,
    /// The codings that the client accepts.
    accepted: Accepted,
    /// The value of `Host`. It is empty if there is no such field.
    host: &'a [u8],
    /// The minor version of HTTP.
    pub(crate) minor: u8,
    /// Length of the head in bytes, including the empty line.
    pub(crate) len: usize,
}

/// Parses the request head at the start of `data`. Returns `None` if the head is incomplete and may
/// still become valid. An incomplete head of [`HEAD_LIMIT`] bytes is refused.
#[inline]
pub(crate) fn parse<'f, 'd>(
    data: &'d [u8],
    fields: &'f mut FieldBuffer<'d>,
) -> Result<Option<Head<'f>>, NotRead> {
    let head = &data[..data.len().min(HEAD_LIMIT)];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(head, fields) {
        Ok(Parsed::Complete(len)) => {
            let fields: &'f [Header<'d>] = request.headers;
            let line = (request.method, request.path);
            let refuse = |status| refused(status, line, fields, head);
            if has_bare_line_feed(&head[..len], fields) {
                return Err(refuse(Status::BadRequest));
            }
            let ((Some(method), Some(target)), Some(minor)) = (line, request.version) else {
                return Err(refuse(Status::BadRequest));
            };
            let framing = Framing::of(fields, minor).map_err(refuse)?;
            Ok(Some(Head {
                method: Method::of(method),
                target,
                fields,
                keep_alive: framing.persistent && framing.body.is_none(),
                conditional: framing.conditional,
                has_range: framing.has_range,
                has_credentials: framing.has_credentials,
                accepted: framing.accepted,
                host: framing.host,
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
                host: (0, 0),
            }))
        }
    }
}

/// Refuses a request whose lines could be read. `line` is its method and target. The data begin with `head`.
#[cold]
fn refused(
    status: Status,
    (method, target): (Option<&str>, Option<&str>),
    fields: &[Header<'_>],
    head: &[u8],
) -> NotRead {
    let is_host_field = |field: &&Header<'_>| field.name.eq_ignore_ascii_case("host");
    let mut hosts = fields.iter().filter(is_host_field);
    // If there are several hosts, or a wrong one, nobody knows which one is meant.
    let host = match (hosts.next(), hosts.next()) {
        (Some(only), None) if is_host(only.value) => host_of(target.unwrap_or("/"), only.value),
        _ => &[],
    };
    let at = host.as_ptr().addr().saturating_sub(head.as_ptr().addr());
    NotRead::Refused(Refusal {
        status,
        head_only: method == Some("HEAD"),
        host: if host.is_empty() {
            (0, 0)
        } else {
            (at as u32, host.len() as u32)
        },
    })
}

/// Cached result of parsing the fields of an HTTP/1.1 request without preconditions, ranges and
/// credentials.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParsedFields {
    keep_alive: bool,
    accepted: Accepted,
    /// Where the value of `Host` begins in the fields, and its length.
    host_at: u16,
    host_len: u16,
    /// Length of the fields in bytes, including the empty line that follows them.
    len: u16,
}

const _: () = assert!(HEAD_LIMIT <= u16::MAX as usize);

/// Length of the first line of `data` including its line ending, or `None` if the line is
/// incomplete.
#[inline]
pub(crate) fn line_len(data: &[u8]) -> Option<usize> {
    memchr::memchr(b'\n', data).map(|at| at + 1)
}

/// Parses only the request line. `fields` is the cached result for the fields that follow it.
/// Returns `None` if the line is unusual or the head is too long. The caller must then call
/// [`parse`]. The head lacks its host; see [`Head::with_known_host`].
#[inline]
pub(crate) fn parse_line(line: &[u8], fields: ParsedFields) -> Option<Head<'_>> {
    const VERSION: &[u8] = b" HTTP/1.1\r\n";
    let mut request = httparse::Request::new(&mut []);
    let parsed = request.parse(line);
    let (Ok(Parsed::Partial), Some(method), Some(target)) = (parsed, request.method, request.path)
    else {
        return None;
    };
    let len = line.len() + usize::from(fields.len);
    // A usual line has nothing before the method, single spaces between its parts, and version 1.1.
    let is_usual = line.len() == method.len() + 1 + target.len() + VERSION.len()
        && line.ends_with(VERSION)
        && len <= HEAD_LIMIT;
    is_usual.then(|| Head {
        method: Method::of(method),
        target,
        fields: &[],
        keep_alive: fields.keep_alive,
        conditional: false,
        has_range: false,
        has_credentials: false,
        accepted: fields.accepted,
        host: &[],
        minor: 1,
        len,
    })
}

/// Returns true if any line of a parsed head ends with a bare LF. RFC 9112, section 2.2, allows
/// servers to accept a bare LF, but an intermediary might see other requests than this server does.
/// Each field must follow a CRLF, and the head must end with two CRLFs.
fn has_bare_line_feed(head: &[u8], fields: &[Header<'_>]) -> bool {
    let follows_crlf = |field: &Header<'_>| {
        let at = field.name.as_ptr().addr() - head.as_ptr().addr();
        head[..at].ends_with(b"\r\n")
    };
    head.starts_with(b"\n") || !head.ends_with(b"\r\n\r\n") || !fields.iter().all(follows_crlf)
}

/// Returns the status for a request line whose version is neither HTTP/1.0 nor HTTP/1.1, or
/// [`NotRead::LaterMinor`] for a later minor version.
#[cold]
fn other_version(head: &[u8]) -> Result<Status, NotRead> {
    const MAJOR_1: &[u8] = b"HTTP/1.";
    // The version follows the second space. No space precedes the method, and neither method nor
    // target contains a space.
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

/// The parts of a request target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'d> {
    /// The path, with its leading slash.
    pub(crate) path: &'d str,
    /// The query, without the question mark.
    pub(crate) query: Option<&'d str>,
}

impl<'a> Head<'a> {
    /// Returns a cacheable result for the fields, which are at the start of `bytes`, after a line of
    /// `line_len` bytes. Returns `None` if they contain preconditions, ranges or credentials, or the
    /// version is not 1.1.
    #[inline]
    pub(crate) fn known_fields(&self, line_len: usize, bytes: &[u8]) -> Option<ParsedFields> {
        let len = self.len.checked_sub(line_len)?;
        let host_at = self
            .host
            .as_ptr()
            .addr()
            .wrapping_sub(bytes.as_ptr().addr());
        let is_plain = !self.conditional && !self.has_range && !self.has_credentials;
        (self.minor == 1 && is_plain).then_some(ParsedFields {
            keep_alive: self.keep_alive,
            accepted: self.accepted,
            host_at: if self.host.is_empty() {
                0
            } else {
                host_at as u16
            },
            host_len: self.host.len() as u16,
            len: len as u16,
        })
    }

    /// Returns true if the answer depends on preconditions or ranges, but not on credentials.
    pub(crate) fn depends_on_version(&self) -> bool {
        (self.conditional || self.has_range) && !self.has_credentials
    }

    /// Adds the host from the fields that are at the start of `bytes`. `fields` is the cached result for
    /// them.
    pub(crate) fn with_known_host(self, fields: ParsedFields, bytes: &'a [u8]) -> Self {
        let from = usize::from(fields.host_at);
        let host = &bytes[from..from + usize::from(fields.host_len)];
        Self { host, ..self }
    }

    /// The host that the request is for, perhaps with a port. The authority of an absolute target comes
    /// before the field `Host` (RFC 9112, section 3.2.2).
    pub(crate) fn host(&self) -> &'a [u8] {
        host_of(self.target, self.host)
    }

    /// The path and the query of the target. `None` if this form of target is not valid for GET and
    /// HEAD (RFC 9112, section 3.2).
    #[inline]
    pub(crate) fn page(&self) -> Option<Target<'a>> {
        let rest = match self.target.as_bytes() {
            [b'/', ..] => self.target,
            _ => absolute_form(self.target)?.1,
        };
        let end = rest.bytes().position(|b| matches!(b, b'?' | b'#'));
        let (path, query) = match end {
            None => (rest, None),
            // A target never contains a fragment (RFC 9112, section 3.2).
            Some(at) if rest.as_bytes()[at] == b'#' => return None,
            Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        };
        let path = if path.is_empty() { "/" } else { path };
        Some(Target { path, query })
    }

    /// The codings that the client accepts. OPTIONS is about the file without a coding.
    #[inline]
    pub(crate) fn accepted(&self) -> Accepted {
        match self.method {
            Method::Options => Accepted::PLAIN,
            _ => self.accepted,
        }
    }

    /// Evaluates the request's preconditions (RFC 9110, section 13.2.2). `tag` is the entity tag of
    /// the representation. `modified` is its modification time in seconds since 1970, if known.
    /// Returns the status of the response, or `None` to send the representation.
    #[inline]
    pub(crate) fn precondition(&self, tag: Option<ETag>, modified: Option<i64>) -> Option<Status> {
        if self.conditional {
            self.evaluate(tag, modified)
        } else {
            None
        }
    }

    #[inline(never)]
    fn evaluate(&self, tag: Option<ETag>, modified: Option<i64>) -> Option<Status> {
        let is_unmodified = |name| {
            // An invalid date and a repeated field are ignored (RFC 9110, sections 13.1.3 and 13.1.4).
            let mut values = self.values(name);
            let value = values.next()?;
            let is_only = values.next().is_none();
            let since = read_http_date(std::str::from_utf8(value).ok()?)?;
            Some(modified? <= since).filter(|_| is_only)
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

    /// Returns the value of `Range` if it applies to GET of the representation with this entity tag
    /// (RFC 9110, section 14.2). A repeated field, or another version in `If-Range`, makes it
    /// ineffective.
    #[inline]
    pub(crate) fn range(&self, tag: Option<ETag>) -> Option<&'a [u8]> {
        if self.has_range && self.method == Method::Get {
            self.effective_range(tag)
        } else {
            None
        }
    }

    #[inline(never)]
    fn effective_range(&self, tag: Option<ETag>) -> Option<&'a [u8]> {
        let (mut range, mut condition) = (None, None);
        for Header { name, value } in self.fields {
            // Comparing lengths first rules out most other fields cheaply.
            let earlier = match name.len() {
                5 if name.eq_ignore_ascii_case("range") => range.replace(*value),
                8 if name.eq_ignore_ascii_case("if-range") => condition.replace(*value),
                _ => None,
            };
            if earlier.is_some() {
                return None;
            }
        }
        // A date cannot tell two versions of the same second apart, so it never matches (RFC 9110,
        // sections 13.1.5 and 8.8.2.2).
        let is_same = |value| tag.is_some_and(|tag| tag.is(value));
        range.filter(|_| condition.is_none_or(is_same))
    }

    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.fields
            .iter()
            .filter(move |field| field.name.eq_ignore_ascii_case(name))
            .map(|field| field.value)
    }

    /// Returns `Some(true)` if a field `name` lists `tag`, or `None` if there is no such field.
    fn names_tag(&self, name: &str, tag: Option<ETag>, how: Comparison) -> Option<bool> {
        self.values(name)
            .map(|value| names_tag(value, tag, how))
            .reduce(|a, b| a || b)
    }
}

/// How entity tags are compared (RFC 9110, section 8.8.3.2). All of our tags are strong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

fn names_tag(value: &[u8], ours: Option<ETag>, how: Comparison) -> bool {
    if value == b"*" {
        return true;
    }
    let Some(ours) = ours else {
        return false;
    };
    // A tag from another server may contain a comma and be split here. Each piece then lacks a
    // quotation mark, so it cannot equal one of our tags.
    list(value).any(|tag| match tag.strip_prefix(b"W/") {
        Some(tag) => how == Comparison::Weak && ours.is(tag),
        None => ours.is(tag),
    })
}

/// Returns the host of a request with this target and this value of `Host`.
fn host_of<'a>(target: &'a str, field: &'a [u8]) -> &'a [u8] {
    match target.as_bytes() {
        [b'/', ..] => field,
        _ => absolute_form(target).map_or(field, |(authority, _)| authority.as_bytes()),
    }
}

/// Returns the authority of an absolute URI (RFC 9112, section 3.2.2), and what follows it. Returns
/// `None` if `target` is not a valid HTTP URI.
#[cold]
fn absolute_form(target: &str) -> Option<(&str, &str)> {
    let after = |scheme: &str| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    let rest = after("http://").or_else(|| after("https://"))?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // A URI without a host is invalid (RFC 9110, section 4.2.1).
    (!authority.is_empty() && is_host(authority.as_bytes())).then_some((authority, path))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Checks that a request is accepted only if every LF follows a CR.
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

        /// Checks that a head from `parse_line` with known fields equals the head that `parse`
        /// finds in the whole request.
        #[test]
        fn parsing_the_request_line_alone_agrees_with_parsing_the_whole_head(
            line in prop_oneof![
                "(GET|HEAD|POST|X|) {0,2}/[ -~]{0,6} ?HTTP/1.[012]\r?",
                "\r?\n?[ -~]{0,20}\r?",
                Just("GET /a?b HTTP/1.1\r".to_owned()),
            ],
            close: bool,
        ) {
            let fields = if close { "Host: x\r\nConnection: close\r\n\r\n" } else { "Host: x\r\n\r\n" };
            let line = format!("{line}\n");
            let known = ParsedFields { keep_alive: !close, accepted: Accepted::PLAIN, host_at: 0, host_len: 0, len: fields.len() as u16 };
            if let Some(short) = parse_line(line.as_bytes(), known) {
                let whole = format!("{line}{fields}");
                let mut buffer = field_buffer();
                let long = parse(whole.as_bytes(), &mut buffer).unwrap().unwrap();
                prop_assert_eq!(short.method, long.method);
                prop_assert_eq!(short.target, long.target);
                prop_assert_eq!(short.keep_alive, long.keep_alive);
                prop_assert_eq!(short.len, long.len);
                prop_assert!(long.known_fields(line.len(), &whole.as_bytes()[line.len()..]).is_some());
            }
        }
    }

    #[test]
    fn only_plain_http_1_1_request_lines_are_parsed_alone() {
        let known = ParsedFields {
            keep_alive: true,
            accepted: Accepted::PLAIN,
            host_at: 0,
            host_len: 0,
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
