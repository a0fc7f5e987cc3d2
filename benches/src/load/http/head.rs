//! The head of a response: its status line and fields.

/// An incomplete head of at least this many bytes is malformed.
pub(super) const MAX_HEAD: usize = 4096;
/// Maximum number of fields in a head.
const MAX_FIELDS: usize = 48;

/// What the client needs to know from a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Length of the head in bytes.
    pub(super) len: usize,
    pub(super) status: u16,
    /// Length of the body in bytes.
    pub(super) body_len: u32,
    /// Whether the server closes the connection after this response.
    pub(super) close: bool,
}

/// Result of parsing the first bytes of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Whole(Head),
    /// The head is incomplete.
    Part,
    /// The bytes are not the head of a response, or the head does not give the length of the body.
    Malformed,
}

/// Parses the head at the start of `bytes` (RFC 9112).
pub(super) fn parse(bytes: &[u8]) -> Parsed {
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
            return Parsed::Malformed;
        }
    }
    match (response.code, body_len) {
        (Some(status), Some(body_len)) => Parsed::Whole(Head {
            len,
            status,
            body_len,
            close,
        }),
        _ => Parsed::Malformed,
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
        let whole = |text: &str| match parse(text.as_bytes()) {
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
            assert_eq!(parse(text.as_bytes()), Parsed::Malformed, "{text}");
        }
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\nContent-Le"), Parsed::Part);
        let endless = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &[b'a'; MAX_HEAD]].concat();
        assert_eq!(parse(&endless), Parsed::Malformed);
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(100));
        assert_eq!(parse(many.as_bytes()), Parsed::Malformed);
    }

    #[test]
    fn only_the_remembered_head_matches() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nbody";
        let Parsed::Whole(head) = parse(text) else {
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
