//! Bodies of requests, in pieces as they arrive (RFC 9112, sections 6 and 7.1).

/// The most bytes of all chunk extensions of one body: nobody uses any.
pub(crate) const MAX_EXTENSIONS: u32 = 1_024;
/// The most bytes of a body's trailer fields.
pub(crate) const MAX_TRAILERS: u32 = 8_192;
/// The most digits of a chunk's size: 60 bits.
const MAX_SIZE_DIGITS: u8 = 15;

/// How long a request's body is, as its head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyLength {
    /// So many bytes; 0 where there is no body.
    Known(u64),
    /// It comes in chunks, the last of which says so.
    Chunked,
}

impl BodyLength {
    #[inline(always)]
    pub(crate) fn is_none(self) -> bool {
        self == Self::Known(0)
    }
}

/// What comes next of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'d> {
    /// Bytes of the body, at least one.
    Piece(&'d [u8]),
    /// All that has arrived is read, and there is more to come.
    More,
    /// The body is whole. What is left belongs to the next request.
    End,
    /// The chunks are not valid: nobody knows where the next request begins.
    Malformed,
}

/// Reads one body. A byte that was read is never needed again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyReader {
    state: State,
    extensions: u32,
    trailers: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// So many bytes are left of a body of known length.
    Known(u64),
    Size {
        digits: u8,
        size: u64,
    },
    Extension {
        size: u64,
    },
    /// The LF behind a chunk's size.
    SizeEnd {
        size: u64,
    },
    Data {
        left: u64,
    },
    /// The CR behind a chunk's data, and the LF.
    DataCr,
    DataLf,
    /// The first byte of a line behind the last chunk.
    TrailerLine,
    TrailerName,
    TrailerValue,
    /// The LF of a trailer field.
    TrailerEnd,
    /// The last LF.
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

    /// Bytes that are still to come of a body of known length.
    pub(crate) const fn known_left(&self) -> Option<u64> {
        match self.state {
            State::Known(left) => Some(left),
            _ => None,
        }
    }

    /// What `data` begins with; it is taken off.
    pub(crate) fn next<'d>(&mut self, data: &mut &'d [u8]) -> Part<'d> {
        loop {
            match &mut self.state {
                State::Known(0) | State::End => return Part::End,
                State::Known(left) | State::Data { left } if !data.is_empty() => {
                    let len = data.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= len as u64;
                    if self.state == (State::Data { left: 0 }) {
                        self.state = State::DataCr;
                    }
                    let (piece, rest) = data.split_at(len);
                    *data = rest;
                    return Part::Piece(piece);
                }
                _ => {}
            }
            let Some((byte, rest)) = data.split_first() else {
                return Part::More;
            };
            let Some(next) = self.after(*byte) else {
                return Part::Malformed;
            };
            self.state = next;
            *data = rest;
        }
    }

    /// The state behind a byte that is none of the body's own; `None` when it
    /// cannot stand there.
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
            (State::SizeEnd { size }, b'\n') => Some(State::Data { left: size }),
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

    /// Trailer fields are read so far that their end is known, and not kept.
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

/// What a line may have: no control character but the tab.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || !byte.is_ascii_control()
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
