//! Fields that control the message itself: host, body length, expectation, and persistence of the
//! connection.

use httparse::Header;

use crate::body::BodyLength;
use crate::host::is_host;
use crate::reply::Status;

/// The parsed values of a request's framing fields.
pub(crate) struct Framing {
    /// The client allows the connection to stay open after the response.
    pub(crate) persistent: bool,
    /// The length of the body.
    pub(crate) body: BodyLength,
    /// The client waits for `100 Continue` before sending the body.
    pub(crate) continues: bool,
    /// The request contains a precondition.
    pub(crate) conditional: bool,
}

impl Framing {
    /// Placeholder for a refused head.
    pub(crate) const NOTHING: Self = Self {
        persistent: false,
        body: BodyLength::Known(0),
        continues: false,
        conditional: false,
    };

    /// Evaluates all fields in one pass. `minor` is the request's HTTP minor version.
    #[inline(always)]
    pub(crate) fn of(fields: &[Header<'_>], minor: u8) -> Result<Self, Status> {
        let mut hosts = 0;
        let mut length = None;
        let mut codings = TransferCodings::default();
        let mut close = false;
        let mut keep_alive = minor > 0;
        let mut conditional = false;
        let mut expected = true;
        let mut continues = false;
        for Header { name, value } in fields {
            // The length of the name excludes most other fields cheaply.
            match name.len() {
                4 if name.eq_ignore_ascii_case("host") => {
                    hosts += 1;
                    if !is_host(value) {
                        return Err(Status::BadRequest);
                    }
                }
                6 if name.eq_ignore_ascii_case("expect") => {
                    expected &= list(value).all(|e| e.eq_ignore_ascii_case(b"100-continue"));
                    // RFC 9110, section 10.1.1: `100-continue` from an HTTP/1.0 client is ignored.
                    continues = minor > 0;
                }
                8 if name.eq_ignore_ascii_case("if-match") => conditional = true,
                10 if name.eq_ignore_ascii_case("connection") => {
                    for option in list(value) {
                        close |= option.eq_ignore_ascii_case(b"close");
                        keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                13 if name.eq_ignore_ascii_case("if-none-match") => conditional = true,
                14 if name.eq_ignore_ascii_case("content-length") => {
                    let another = length.replace(content_length(value)?);
                    if another.is_some() {
                        return Err(Status::BadRequest);
                    }
                }
                17 if name.eq_ignore_ascii_case("if-modified-since") => conditional = true,
                17 if name.eq_ignore_ascii_case("transfer-encoding") => codings.add(value),
                19 if name.eq_ignore_ascii_case("if-unmodified-since") => conditional = true,
                _ => {}
            }
        }
        // RFC 9112, section 3.2: exactly one host is required. HTTP/1.0 requests may have none.
        if hosts != 1 && (hosts > 1 || minor > 0) {
            return Err(Status::BadRequest);
        }
        let chunked = codings.are_chunked(minor, length.is_some())?;
        // RFC 9110, section 10.1.1: other expectations are answered with 417.
        if !expected {
            return Err(Status::ExpectationFailed);
        }
        let body = if chunked {
            BodyLength::Chunked
        } else {
            BodyLength::Known(length.unwrap_or(0))
        };
        Ok(Self {
            persistent: keep_alive && !close,
            body,
            continues,
            conditional,
        })
    }
}

/// The transfer codings of a request. All lines of the field form one list (RFC 9110, section 5.3).
#[derive(Default)]
struct TransferCodings {
    /// The field is present, even if it is empty.
    present: bool,
    /// Number of times that `chunked` occurs in the list, capped at 2.
    chunked: u8,
    /// The list contains codings other than `chunked`.
    others: bool,
    /// The last coding is `chunked`.
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
                self.others = true;
            }
        }
    }

    /// Returns whether the body is chunked, or an error if the end of the body is ambiguous or a
    /// coding is unknown.
    #[inline(always)]
    fn are_chunked(&self, minor: u8, has_length: bool) -> Result<bool, Status> {
        if !self.present {
            return Ok(false);
        }
        // RFC 9112, section 6.1: HTTP/1.1, no length, and `chunked` only once. Section 6.3, item 4:
        // `chunked` must be the last coding.
        let framing_right = minor > 0 && !has_length && self.chunked_last && self.chunked == 1;
        if !framing_right {
            return Err(Status::BadRequest);
        }
        if self.others {
            return Err(Status::NotImplemented);
        }
        Ok(true)
    }
}

/// The elements of a comma-separated list (RFC 9110, section 5.6.1). Quoted strings are not
/// supported.
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|b| *b == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}

/// Parses a length, which must consist of digits only (RFC 9110, section 8.6).
fn content_length(value: &[u8]) -> Result<u64, Status> {
    let digits = std::str::from_utf8(value).map_err(|_| Status::BadRequest)?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Status::BadRequest);
    }
    digits.parse().map_err(|_| Status::BadRequest)
}
