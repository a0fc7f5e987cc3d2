//! Evaluates the fields that control how a request is processed: host, body length, expectation,
//! and persistence of the connection. Also finds out which codings the client accepts, and whether
//! there are preconditions, ranges and credentials.

use httparse::Header;

use crate::accept::{AcceptEncoding, Accepted};
use crate::body::BodyLength;
use crate::host::is_host;
use crate::list::list;
use crate::reply::Status;

/// The result of evaluating a request's framing fields.
pub(crate) struct Framing<'d> {
    /// Whether the client allows the connection to stay open after the response.
    pub(crate) persistent: bool,
    /// The length of the body, or the fact that the body is chunked.
    pub(crate) body: BodyLength,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub(crate) expects_continue: bool,
    /// Whether the request contains a precondition, such as `If-Match`.
    pub(crate) conditional: bool,
    /// Whether the request contains `Range`.
    pub(crate) has_range: bool,
    /// Whether the request contains `Authorization`.
    pub(crate) has_credentials: bool,
    /// The codings that the client accepts.
    pub(crate) accepted: Accepted,
    /// The value of `Host`. It is empty if there is no such field.
    pub(crate) host: &'d [u8],
}

impl<'d> Framing<'d> {
    /// Placeholder for a request whose framing fields were refused.
    pub(crate) const NOTHING: Self = Self {
        persistent: false,
        body: BodyLength::Known(0),
        expects_continue: false,
        conditional: false,
        has_range: false,
        has_credentials: false,
        accepted: Accepted::PLAIN,
        host: &[],
    };

    /// Evaluates all fields in one pass. `minor` is the minor version of the request's HTTP
    /// version.
    #[inline(always)]
    pub(crate) fn of(fields: &[Header<'d>], minor: u8) -> Result<Self, Status> {
        let (mut hosts, mut host) = (0, &[][..]);
        let mut length = None;
        let mut codings = TransferCodings::default();
        let mut options = ConnectionOptions::default();
        let mut conditional = false;
        let mut has_range = false;
        let mut has_credentials = false;
        let mut accept_encoding = AcceptEncoding::default();
        let mut expected = true;
        let mut expects_continue = false;
        for Header { name, value } in fields {
            // Comparing lengths first rules out most other fields cheaply.
            match name.len() {
                4 if name.eq_ignore_ascii_case("host") => {
                    (hosts, host) = (hosts + 1, *value);
                    if !is_host(value) {
                        return Err(Status::BadRequest);
                    }
                }
                5 if name.eq_ignore_ascii_case("range") => has_range = true,
                6 if name.eq_ignore_ascii_case("expect") => {
                    expected &= list(value).all(|e| e.eq_ignore_ascii_case(b"100-continue"));
                    // `100-continue` from an HTTP/1.0 client is ignored (RFC 9110, section 10.1.1).
                    expects_continue = minor > 0;
                }
                8 if name.eq_ignore_ascii_case("if-match") => conditional = true,
                10 if name.eq_ignore_ascii_case("connection") => options.add(value),
                13 if name.eq_ignore_ascii_case("if-none-match") => conditional = true,
                13 if name.eq_ignore_ascii_case("authorization") => has_credentials = true,
                14 if name.eq_ignore_ascii_case("content-length") => {
                    let another = length.replace(content_length(value)?);
                    if another.is_some() {
                        return Err(Status::BadRequest);
                    }
                }
                15 if name.eq_ignore_ascii_case("accept-encoding") => accept_encoding.add(value),
                17 if name.eq_ignore_ascii_case("if-modified-since") => conditional = true,
                17 if name.eq_ignore_ascii_case("transfer-encoding") => codings.add(value),
                19 if name.eq_ignore_ascii_case("if-unmodified-since") => conditional = true,
                _ => {}
            }
        }
        // Exactly one `Host` field is required (RFC 9112, section 3.2), but an HTTP/1.0 request may
        // omit it.
        if hosts != 1 && (hosts > 1 || minor > 0) {
            return Err(Status::BadRequest);
        }
        let chunked = codings.are_chunked(minor, length.is_some())?;
        // Expectations other than `100-continue` are answered with 417 (RFC 9110, section 10.1.1).
        if !expected {
            return Err(Status::ExpectationFailed);
        }
        let body = if chunked {
            BodyLength::Chunked
        } else {
            BodyLength::Known(length.unwrap_or(0))
        };
        Ok(Self {
            persistent: (minor > 0 || options.keep_alive) && !options.close,
            body,
            expects_continue,
            conditional,
            has_range,
            has_credentials,
            accepted: accept_encoding.accepted(),
            host,
        })
    }
}

/// The options in the fields `Connection` of a request (RFC 9110, section 7.6.1).
#[derive(Default)]
struct ConnectionOptions {
    close: bool,
    keep_alive: bool,
}

impl ConnectionOptions {
    #[inline(always)]
    fn add(&mut self, value: &[u8]) {
        // All browsers send this value.
        if value == b"keep-alive" {
            self.keep_alive = true;
            return;
        }
        for option in list(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }
}

/// The transfer codings of a request. If `Transfer-Encoding` occurs more than once, the values form
/// one list (RFC 9110, section 5.3).
#[derive(Default)]
struct TransferCodings {
    /// Whether the request has the field `Transfer-Encoding`, even if its value is empty.
    present: bool,
    /// Number of times that `chunked` occurs in the list, capped at 2.
    chunked: u8,
    /// Whether the list contains codings other than `chunked`.
    has_other_codings: bool,
    /// Whether the last coding in the list is `chunked`.
    chunked_last: bool,
}

impl TransferCodings {
    #[cold]
    fn add(&mut self, value: &[u8]) {
        self.present = true;
        for coding in list(value) {
            self.chunked_last = coding.eq_ignore_ascii_case(b"chunked");
            if self.chunked_last {
                self.chunked = (self.chunked + 1).min(2);
            } else {
                self.has_other_codings = true;
            }
        }
    }

    /// Returns true if the body is chunked. Returns an error if the end of the body is ambiguous,
    /// or if a coding is not supported.
    #[inline(always)]
    fn are_chunked(&self, minor: u8, has_length: bool) -> Result<bool, Status> {
        if !self.present {
            return Ok(false);
        }
        // `Transfer-Encoding` requires HTTP/1.1, excludes `Content-Length`, and may list `chunked`
        // only once (RFC 9112, section 6.1). `chunked` must be the last coding (section 6.3, item
        // 4).
        let is_valid = minor > 0 && !has_length && self.chunked_last && self.chunked == 1;
        if !is_valid {
            return Err(Status::BadRequest);
        }
        if self.has_other_codings {
            return Err(Status::NotImplemented);
        }
        Ok(true)
    }
}

/// Parses the value of `Content-Length`, which must consist of digits only (RFC 9110, section 8.6).
fn content_length(value: &[u8]) -> Result<u64, Status> {
    let digits = std::str::from_utf8(value).map_err(|_| Status::BadRequest)?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Status::BadRequest);
    }
    digits.parse().map_err(|_| Status::BadRequest)
}
