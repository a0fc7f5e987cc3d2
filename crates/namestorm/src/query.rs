//! Reading a query: its header and its question (RFC 1035, section 4.1).

use crate::key::{Form, Key};
use crate::name::{MAX_LABEL, MAX_NAME};
use crate::tail::{QUESTION_AT, QUESTION_REST};

/// Bytes of a message's header.
pub(crate) const HEADER_LEN: usize = QUESTION_AT;
/// The two bits of a length that make it a pointer.
const POINTER: u8 = 0xc0;
const OPCODE: u16 = 0x7800;

/// It is a response.
pub(crate) const QR: u16 = 0x8000;
/// We are the authority.
pub(crate) const AA: u16 = 0x0400;
/// The message was cut.
pub(crate) const TC: u16 = 0x0200;
/// The client wants recursion.
pub(crate) const RD: u16 = 0x0100;

/// The bytes do not form what they should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The flags, opcode and response code.
    pub flags: u16,
    /// Entries in the four sections.
    pub counts: [u16; 4],
}

impl Header {
    /// Reads a header; `None` when the message is shorter.
    #[inline(always)]
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_LEN] = message.first_chunk()?;
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        Some(Self {
            flags: word(2),
            counts: [word(4), word(6), word(8), word(10)],
        })
    }

    /// Whether it is a response.
    #[inline(always)]
    pub(crate) fn is_response(&self) -> bool {
        self.flags & QR != 0
    }

    /// What kind of query it is, as the bits stand in the flags; 0 for a
    /// standard query.
    #[inline(always)]
    pub(crate) fn opcode_bits(&self) -> u16 {
        self.flags & OPCODE
    }
}

/// A name as a query has it, decompressed, its case kept.
#[derive(Clone, Debug)]
pub(crate) struct NameBuf {
    bytes: [u8; MAX_NAME],
    len: usize,
}

impl NameBuf {
    /// An empty buffer.
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; MAX_NAME],
            len: 0,
        }
    }

    /// The name.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Holds the name that `parts` make, one behind the other.
    ///
    /// # Panics
    /// When they are longer than a name.
    pub(crate) fn set(&mut self, parts: &[&[u8]]) {
        self.len = 0;
        for part in parts {
            self.bytes[self.len..][..part.len()].copy_from_slice(part);
            self.len += part.len();
        }
    }

    fn push(&mut self, label: &[u8]) -> Result<(), Malformed> {
        let end = self.len + label.len();
        self.bytes
            .get_mut(self.len..end)
            .ok_or(Malformed)?
            .copy_from_slice(label);
        self.len = end;
        Ok(())
    }
}

impl Default for NameBuf {
    fn default() -> Self {
        Self::new()
    }
}

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawQuestion {
    /// Bytes of the name, decompressed.
    pub name_len: usize,
    /// The type that is asked for.
    pub qtype: u16,
    /// The class that is asked for.
    pub qclass: u16,
    /// Where the question ends in the message.
    pub end: usize,
    /// The name is compressed: it stands in the buffer, not in the message.
    pub is_compressed: bool,
}

/// Reads the question of `message`, makes its name's `key`, and decompresses
/// the name into `expanded` where it is compressed.
///
/// # Errors
/// When the question is cut off, or its name breaks a rule of RFC 1035.
#[inline(always)]
pub(crate) fn parse_question(
    message: &[u8],
    form: Form,
    key: &mut Key,
    expanded: &mut NameBuf,
) -> Result<RawQuestion, Malformed> {
    let plain = plain_len(message, QUESTION_AT)?;
    let (name_len, name_end) = if let Some(len) = plain {
        let end = QUESTION_AT + len;
        key.set(form, &message[QUESTION_AT..end]);
        (len, end)
    } else {
        let end = expand(message, QUESTION_AT, expanded)?;
        key.set(form, expanded.bytes());
        (expanded.bytes().len(), end)
    };
    let rest: &[u8; QUESTION_REST] = message
        .get(name_end..)
        .and_then(|rest| rest.first_chunk())
        .ok_or(Malformed)?;
    Ok(RawQuestion {
        name_len,
        qtype: u16::from_be_bytes([rest[0], rest[1]]),
        qclass: u16::from_be_bytes([rest[2], rest[3]]),
        end: name_end + QUESTION_REST,
        is_compressed: plain.is_none(),
    })
}

/// Bytes of the uncompressed name at `start`; `None` when it is compressed.
#[inline(always)]
fn plain_len(message: &[u8], start: usize) -> Result<Option<usize>, Malformed> {
    let mut at = start;
    loop {
        let len = *message.get(at).ok_or(Malformed)?;
        if usize::from(len) > MAX_LABEL {
            return if len & POINTER == POINTER {
                Ok(None)
            } else {
                Err(Malformed)
            };
        }
        at += 1 + usize::from(len);
        if at - start > MAX_NAME {
            return Err(Malformed);
        }
        if len == 0 {
            return Ok(Some(at - start));
        }
    }
}

/// Decompresses the name at `start` into `out`, and says where it ends in the
/// message. Each pointer must lead to what stands before the labels it ends
/// (RFC 1035, section 4.1.4: "a prior occurrence"), so that no chain of them
/// can have an end only in the length of the name.
#[cold]
fn expand(message: &[u8], start: usize, out: &mut NameBuf) -> Result<usize, Malformed> {
    out.len = 0;
    let (mut at, mut run) = (start, start);
    let mut end = None;
    loop {
        let len = *message.get(at).ok_or(Malformed)?;
        if len & POINTER == POINTER {
            let low = *message.get(at + 1).ok_or(Malformed)?;
            let to = usize::from(u16::from_be_bytes([len & !POINTER, low]));
            end.get_or_insert(at + 2);
            if to >= run {
                return Err(Malformed);
            }
            (at, run) = (to, to);
            continue;
        }
        if usize::from(len) > MAX_LABEL {
            return Err(Malformed);
        }
        let next = at + 1 + usize::from(len);
        out.push(message.get(at..next).ok_or(Malformed)?)?;
        at = next;
        if len == 0 {
            return Ok(end.unwrap_or(at));
        }
    }
}

/// Where the name at `at` ends in the message; where a pointer leads does not
/// matter.
pub(crate) fn skip_name(message: &[u8], mut at: usize) -> Result<usize, Malformed> {
    loop {
        let len = *message.get(at).ok_or(Malformed)?;
        match len & POINTER {
            0 if len == 0 => return Ok(at + 1),
            0 => at += 1 + usize::from(len),
            POINTER => return Ok(at + 2),
            _ => return Err(Malformed),
        }
    }
}

#[cfg(test)]
#[path = "query_tests.rs"]
mod tests;
