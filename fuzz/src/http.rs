//! What a client of HTTP may send, made of words, and what an independent reader takes for
//! a response.

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use sandstorm::HEAD_LIMIT;

/// Bytes of one connection.
const MAX_LEN: usize = 4 * HEAD_LIMIT;

/// A part of what a client sends.
#[derive(Arbitrary, Debug)]
pub enum Piece<'a> {
    Word(u8),
    Bytes(&'a [u8]),
    /// The same byte, many times.
    Run(u8, u16),
}

/// The pieces behind each other, cut off where it is too much.
pub fn bytes(pieces: &[Piece<'_>], words: &[&str]) -> Vec<u8> {
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
    bytes
}

/// A response, as an independent reader takes it apart.
#[derive(Debug)]
pub struct Response<'a> {
    pub status: u16,
    pub closes: bool,
    /// What the head says about the body.
    pub told_len: Option<usize>,
    pub is_chunked: bool,
    /// What follows the head.
    pub rest: &'a [u8],
}

/// Reads the head of a response, which must be one.
pub fn response(bytes: &[u8]) -> Response<'_> {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut fields);
    let head_len = head.parse(bytes).expect("a response").unwrap();
    let field = |name: &str| {
        let mut values = head.headers.iter().filter(|field| field.name == name);
        let value = values
            .next()
            .map(|field| std::str::from_utf8(field.value).unwrap());
        assert!(values.next().is_none(), "two fields {name}");
        value
    };
    Response {
        status: head.code.expect("a status"),
        closes: field("Connection") == Some("close"),
        told_len: field("Content-Length").map(|len| len.parse().unwrap()),
        is_chunked: field("Transfer-Encoding") == Some("chunked"),
        rest: &bytes[head_len..],
    }
}
