//! Parsing of request bodies, piece by piece as they arrive (RFC 9112, sections 6 and 7.1).

/// Maximum total length of the chunk extensions in one body, in bytes. Real clients hardly ever
/// send any extensions.
pub(crate) const MAX_EXTENSIONS: u32 = 1_024;
/// Maximum total length of the trailer fields after one body, in bytes.
pub(crate) const MAX_TRAILERS: u32 = 8_192;
/// Maximum number of hexadecimal digits in a chunk size. Fifteen digits are at most 60 bits, so the
/// size cannot overflow a `u64`.
const MAX_SIZE_DIGITS: u8 = 15;

/// The length of a request's body, according to its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyLength {
    /// A known length in bytes; 0 if there is no body.
    Known(u64),
    /// The body is chunked, and the last chunk marks its end.
    Chunked,
}

impl BodyLength {
    #[inline(always)]
    pub(crate) fn is_none(self) -> bool {
        self == Self::Known(0)
    }
}

/// The next part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyPart<'d> {
    /// Bytes of the body, at least one.
    Piece(&'d [u8]),
    /// The body is incomplete: more bytes are needed.
    More,
    /// The body is complete. The remaining bytes belong to the next request.
    End,
    /// The chunks or the trailer fields are invalid or exceed a limit. The start of the next
    /// request is therefore unknown.
    Malformed,
}

/// Incremental parser of one body. It examines each byte only once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyReader {
    state: State,
    /// Total length of the chunk extensions so far, in bytes.
    extensions: u32,
    /// Total length of the trailer fields so far, in bytes.
    trailers: u32,
}

/// The parser's position in the body. `size` is the current chunk's size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Inside a body of known length. The value is the number of bytes still to come.
    Known(u64),
    /// Inside a chunk's size, of which `digits` digits have been read.
    Size {
        digits: u8,
        size: u64,
    },
    Extension {
        size: u64,
    },
    /// Before the LF that ends the line with a chunk's size.
    SizeEnd {
        size: u64,
    },
    /// Inside a chunk's data. `remaining` is the number of bytes still to come.
    Data {
        remaining: u64,
    },
    /// Before the CR after a chunk's data.
    DataCr,
    DataLf,
    /// Before the first byte of a line after the last chunk.
    TrailerLine,
    TrailerName,
    TrailerValue,
    /// Before the LF of a trailer field.
    TrailerEnd,
    /// Before the LF that ends the body.
    LastLf,
    End,
}

impl BodyReader {
    pub(crate) const fn new(length: BodyLength) -> Self {
        let state = match length {
            BodyLength::Known(len) => State::Known(len),
            BodyLength::Chunked => State::Size { digits: 0, size: 0 },
        };
        Self {
            state,
            extensions: 0,
            trailers: 0,
        }
    }

    /// Number of bytes still to come of a body of known length, or `None` for a chunked body.
    pub(crate) const fn known_left(&self) -> Option<u64> {
        match self.state {
            State::Known(remaining) => Some(remaining),
            _ => None,
        }
    }

    /// Removes the next part of the body from the front of `data`, and returns it.
    pub(crate) fn next<'d>(&mut self, data: &mut &'d [u8]) -> BodyPart<'d> {
        loop {
            match &mut self.state {
                State::Known(0) | State::End => return BodyPart::End,
                State::Known(remaining) | State::Data { remaining } if !data.is_empty() => {
                    let len = data
                        .len()
                        .min(usize::try_from(*remaining).unwrap_or(usize::MAX));
                    *remaining -= len as u64;
                    if self.state == (State::Data { remaining: 0 }) {
                        self.state = State::DataCr;
                    }
                    let (piece, rest) = data.split_at(len);
                    *data = rest;
                    return BodyPart::Piece(piece);
                }
                _ => {}
            }
            let Some((byte, rest)) = data.split_first() else {
                return BodyPart::More;
            };
            let Some(next) = self.after(*byte) else {
                return BodyPart::Malformed;
            };
            self.state = next;
            *data = rest;
        }
    }

    /// Returns the state after a byte of the chunked coding, or `None` if the byte is invalid in
    /// this state.
    fn after(&mut self, byte: u8) -> Option<State> {
        match (self.state, byte) {
            (State::Size { digits: 1.., size } | State::Extension { size }, b'\r') => {
                Some(State::SizeEnd { size })
            }
            (State::Size { digits: 1.., size }, b';') => Some(State::Extension { size }),
            (State::Size { digits, size }, _) if digits < MAX_SIZE_DIGITS => {
                let digit = char::from(byte).to_digit(16)?;
                Some(State::Size {
                    digits: digits + 1,
                    size: size << 4 | u64::from(digit),
                })
            }
            (State::Extension { .. }, _) if is_text(byte) => {
                self.extensions += 1;
                (self.extensions <= MAX_EXTENSIONS).then_some(self.state)
            }
            (State::SizeEnd { size: 0 } | State::TrailerEnd, b'\n') => Some(State::TrailerLine),
            (State::SizeEnd { size }, b'\n') => Some(State::Data { remaining: size }),
            (State::DataCr, b'\r') => Some(State::DataLf),
            (State::DataLf, b'\n') => Some(State::Size { digits: 0, size: 0 }),
            (State::TrailerLine, b'\r') => Some(State::LastLf),
            (State::LastLf, b'\n') => Some(State::End),
            (State::TrailerLine | State::TrailerName | State::TrailerValue, _) => {
                self.trailers += 1;
                let next = self.in_trailer(byte);
                next.filter(|_| self.trailers <= MAX_TRAILERS)
            }
            _ => None,
        }
    }

    /// Returns the state after a byte of the trailer, or `None` if the byte is invalid. Trailer
    /// fields are checked, but not stored.
    fn in_trailer(&self, byte: u8) -> Option<State> {
        match self.state {
            State::TrailerName if byte == b':' => Some(State::TrailerValue),
            State::TrailerValue if byte == b'\r' => Some(State::TrailerEnd),
            State::TrailerValue if is_text(byte) => Some(State::TrailerValue),
            State::TrailerLine | State::TrailerName if crate::fields::is_token(byte) => {
                Some(State::TrailerName)
            }
            _ => None,
        }
    }
}

/// Returns true if a chunk extension or a trailer value may contain this byte. The tab is the only
/// valid control character.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || !byte.is_ascii_control()
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
