//! The head of a response: its status line and fields.

use super::form::Field;
use crate::load::tcp::continued;

/// An incomplete head of at least this many bytes is malformed.
pub(super) const MAX_HEAD: usize = 4096;
/// An incomplete chunked body of at least this many bytes is malformed.
const MAX_CHUNKED: usize = 64 << 10;
/// Maximum number of fields in a head.
const MAX_FIELDS: usize = 48;
/// Status of a response that has no body, even if it has a length (RFC 9112, section 6.3).
const NOT_MODIFIED: u16 = 304;

/// What the client needs to know from a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Length of the head in bytes, including a chunked body.
    pub(super) len: usize,
    pub(super) status: u16,
    /// Length of the body in bytes.
    pub(super) body_len: u32,
    /// Whether the server closes the connection after this response.
    pub(super) close: bool,
    /// Whether the head has the expected field.
    pub(super) has_field: bool,
    /// CRC-32 of a chunked body. `None` if the body follows the head as it is.
    pub(super) chunked: Option<u32>,
}

/// Result of parsing the first bytes of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Whole(Head),
    /// The head or the chunked body is incomplete.
    Part,
    /// The bytes are not the head of a response, or the head does not give the length of the body.
    Malformed,
}

/// Parses the head at the start of `bytes` (RFC 9112). `expected` is a field that a correct head
/// has.
pub(super) fn parse(bytes: &[u8], expected: Option<&Field>) -> Parsed {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let len = match response.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => return Parsed::Part,
        _ => return Parsed::Malformed,
    };
    // An HTTP/1.0 server closes unless its response says otherwise (RFC 9112, section 9.3).
    let mut close = response.version != Some(1);
    let mut body_len = None;
    let mut is_chunked = false;
    let mut has_field = expected.is_none();
    for field in response.headers.iter() {
        if field.name.eq_ignore_ascii_case("Content-Length") {
            let value = number(field.value);
            if value.is_none() || (body_len.is_some() && body_len != value) {
                return Parsed::Malformed;
            }
            body_len = value;
        } else if field.name.eq_ignore_ascii_case("Connection") {
            close = match field.value {
                value if value.eq_ignore_ascii_case(b"close") => true,
                value if value.eq_ignore_ascii_case(b"keep-alive") => false,
                _ => close,
            };
        } else if field.name.eq_ignore_ascii_case("Transfer-Encoding") {
            if field.value != b"chunked" {
                return Parsed::Malformed;
            }
            is_chunked = true;
        } else if let Some((name, value)) = expected {
            has_field |= field.name.eq_ignore_ascii_case(name) && field.value == value.as_bytes();
        }
    }
    if response.code == Some(NOT_MODIFIED) {
        body_len = Some(0);
    }
    let mut chunked = None;
    let mut chunks_len = 0;
    if is_chunked {
        match chunks(&bytes[len..]) {
            _ if body_len.is_some() => return Parsed::Malformed,
            Some(Ok(body)) => {
                (chunks_len, body_len, chunked) = (body.len, Some(body.body_len), Some(body.crc));
            }
            None if bytes.len() < MAX_CHUNKED => return Parsed::Part,
            _ => return Parsed::Malformed,
        }
    }
    match (response.code, body_len) {
        (Some(status), Some(body_len)) => Parsed::Whole(Head {
            len: len + chunks_len,
            status,
            body_len,
            close,
            has_field,
            chunked,
        }),
        _ => Parsed::Malformed,
    }
}

/// A decoded chunked body.
struct Chunks {
    /// Length of the body as it is sent, in bytes.
    len: usize,
    /// Length and CRC-32 of the decoded body.
    body_len: u32,
    crc: u32,
}

/// Decodes a chunked body without trailers (RFC 9112, section 7.1). Returns `None` if it is
/// incomplete.
fn chunks(bytes: &[u8]) -> Option<Result<Chunks, httparse::InvalidChunkSize>> {
    const END: &[u8] = b"\r\n";
    let mut all = Chunks {
        len: 0,
        body_len: 0,
        crc: 0,
    };
    loop {
        let (start, size) = match httparse::parse_chunk_size(&bytes[all.len..]) {
            Ok(httparse::Status::Complete(chunk)) => chunk,
            Ok(httparse::Status::Partial) => return None,
            Err(error) => return Some(Err(error)),
        };
        let rest = &bytes[all.len + start..];
        let size = usize::try_from(size)
            .ok()
            .filter(|size| *size < rest.len())?;
        let (data, rest) = rest.split_at(size);
        if rest.len() < END.len() {
            return None;
        }
        if !rest.starts_with(END) {
            return Some(Err(httparse::InvalidChunkSize));
        }
        all.len += start + size + END.len();
        if size == 0 {
            return Some(Ok(all));
        }
        all.body_len += size as u32;
        all.crc = continued(all.crc, data);
    }
}

fn number(value: &[u8]) -> Option<u32> {
    let digits = value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| digits)?;
    text.parse().ok()
}

/// The last correct head of a page. A server sends the same head until its `Date` changes, and a
/// comparison is cheaper than parsing.
#[derive(Clone, Debug, Default)]
pub(super) struct Remembered {
    bytes: Vec<u8>,
    head: Option<Head>,
}

impl Remembered {
    /// Creates a memory without a head. Allocates enough bytes for most heads in advance.
    pub(super) fn new() -> Self {
        Self {
            bytes: Vec::with_capacity(512),
            head: None,
        }
    }

    /// Returns the remembered head if `bytes` begin with it.
    #[inline(always)]
    pub(super) fn find(&self, bytes: &[u8]) -> Option<Head> {
        self.head.filter(|_| bytes.starts_with(&self.bytes))
    }

    /// Remembers a correct head. `bytes` begin with the head.
    pub(super) fn remember(&mut self, head: Head, bytes: &[u8]) {
        self.head = None;
        if let Some(bytes) = bytes.get(..head.len) {
            self.bytes.clear();
            self.bytes.extend_from_slice(bytes);
            self.head = Some(head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_response_heads_are_parsed() {
        let whole = |text: &str| match parse(text.as_bytes(), None) {
            Parsed::Whole(head) => (head.status, head.body_len, head.close),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(
            whole("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nbody"),
            (200, 12, false)
        );
        assert_eq!(
            whole("HTTP/1.1 404 No\r\nconnection: Close\r\ncontent-length: 0\r\n\r\n"),
            (404, 0, true)
        );
        assert_eq!(
            whole("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n"),
            (200, 1, true)
        );
        assert_eq!(
            whole("HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\n"),
            (200, 1, false)
        );
        assert_eq!(
            whole("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"),
            (304, 0, false)
        );
    }

    #[test]
    fn the_expected_field_is_compared() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nETag: \"a\"\r\n\r\n";
        for (name, value, has_field) in [
            ("etag", "\"a\"", true),
            ("ETag", "\"A\"", false),
            ("Content-Encoding", "gzip", false),
        ] {
            let parsed = parse(text, Some(&(name, value.into())));
            assert!(matches!(parsed, Parsed::Whole(head) if head.has_field == has_field));
        }
    }

    #[test]
    fn chunked_bodies_are_parsed_with_the_head() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let text = format!("{head}4\r\n1234\r\n5\r\n56789\r\n0\r\n\r\n");
        for len in head.len()..text.len() {
            assert_eq!(parse(&text.as_bytes()[..len], None), Parsed::Part, "{len}");
        }
        let Parsed::Whole(whole) = parse((text.clone() + "HTTP").as_bytes(), None) else {
            panic!("a whole response");
        };
        assert_eq!((whole.len, whole.body_len), (text.len(), 9));
        assert_eq!(whole.chunked, Some(0xcbf4_3926));
        for wrong in ["x", "4\r\n12345\r\n"] {
            assert_eq!(
                parse((head.to_owned() + wrong).as_bytes(), None),
                Parsed::Malformed
            );
        }
    }

    #[test]
    fn malformed_response_heads_are_refused() {
        for text in [
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 4294967296\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/2 200 OK\r\n\r\n",
            "220 mail.test ESMTP\r\n",
            "\0\0\0\0",
        ] {
            assert_eq!(parse(text.as_bytes(), None), Parsed::Malformed, "{text}");
        }
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\nContent-Le", None), Parsed::Part);
        let endless = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &[b'a'; MAX_HEAD]].concat();
        assert_eq!(parse(&endless, None), Parsed::Malformed);
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(100));
        assert_eq!(parse(many.as_bytes(), None), Parsed::Malformed);
    }

    #[test]
    fn only_the_remembered_head_matches() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nbody";
        let Parsed::Whole(head) = parse(text, None) else {
            panic!("a whole head");
        };
        let mut remembered = Remembered::new();
        assert_eq!(remembered.find(text), None);
        remembered.remember(head, text);
        assert_eq!(remembered.find(text), Some(head));
        assert_eq!(remembered.find(&text[..head.len - 1]), None);
        assert_eq!(
            remembered.find(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n"),
            None
        );
    }
}
