//! HTTP requests made of words, and an independent reader of responses.

use arbitrary::Arbitrary;
use sandstorm::HEAD_LIMIT;

/// Maximum number of bytes of all pieces together.
const MAX_LEN: usize = 4 * HEAD_LIMIT;

/// A part of what a client sends.
#[derive(Arbitrary, Debug)]
pub enum Piece<'a> {
    /// The index of a word.
    Word(u8),
    Bytes(&'a [u8]),
    /// A byte, and the number of its repetitions.
    Run(u8, u16),
}

/// Concatenates the pieces and adds a line end, so that the server reports an error in the last
/// line. `words` are separated by `|`.
pub fn bytes(pieces: &[Piece<'_>], words: &str) -> Vec<u8> {
    let words: Vec<&str> = words.split('|').collect();
    let mut bytes = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Word(i) => bytes.extend(words[usize::from(*i) % words.len()].bytes()),
            Piece::Bytes(piece) => bytes.extend_from_slice(piece),
            Piece::Run(byte, len) => {
                let len = usize::from(*len) % (HEAD_LIMIT + 100);
                bytes.extend(std::iter::repeat_n(*byte, len));
            }
        }
    }
    bytes.truncate(MAX_LEN);
    bytes.push(b'\n');
    bytes
}

/// The head of a response, read without the code under test.
#[derive(Debug)]
pub struct Response<'a> {
    pub status: u16,
    pub closes: bool,
    pub content_length: Option<usize>,
    pub is_chunked: bool,
    /// The bytes after the head.
    pub rest: &'a [u8],
}

/// Reads the head of a response. Panics if the head is invalid.
pub fn response(bytes: &[u8]) -> Response<'_> {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut fields);
    let head_len = head.parse(bytes).expect("a response").unwrap();
    let field = |name: &str| {
        let mut values = head.headers.iter().filter(|field| field.name == name);
        let value = values.next().map(|field| field.value);
        assert!(values.next().is_none(), "two fields {name}");
        value.map(|value| std::str::from_utf8(value).unwrap())
    };
    Response {
        status: head.code.expect("a status"),
        closes: field("Connection") == Some("close"),
        content_length: field("Content-Length").map(|len| len.parse().unwrap()),
        is_chunked: field("Transfer-Encoding") == Some("chunked"),
        rest: &bytes[head_len..],
    }
}
