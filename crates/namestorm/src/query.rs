//! Parses a query: its header and its question (RFC 1035, section 4.1).

use crate::key::{Hashing, Key};
use crate::name::{MAX_LABEL, MAX_NAME};
use crate::tail::{QUESTION_AT, QUESTION_REST};

/// Length of a message header, in bytes.
pub(crate) const HEADER_LEN: usize = QUESTION_AT;
/// Maximum length of a head (header and question), in bytes.
pub(crate) const MAX_HEAD: usize = HEADER_LEN + MAX_NAME + QUESTION_REST;
/// The two high bits of a byte. Both are set in the first byte of a compression pointer.
const POINTER: u8 = 0xc0;
const OPCODE: u16 = 0x7800;
/// Offset of the length of a record's data behind the record's owner.
const DATA_LEN_AT: usize = 8;

/// The QR flag: the message is a response.
pub(crate) const QR: u16 = 0x8000;
/// The AA flag: the answer is authoritative.
pub(crate) const AA: u16 = 0x0400;
/// The TC flag: the message was truncated.
pub(crate) const TC: u16 = 0x0200;
/// The RD flag: the client asks for recursion.
pub(crate) const RD: u16 = 0x0100;

/// The message violates the format of RFC 1035, or its OPT record that of RFC 6891.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The 16-bit word with flags, opcode and response code.
    pub flags: u16,
    /// Number of entries in each of the four sections, as in the message.
    counts: [u8; 8],
}

impl Header {
    /// Parses the header. Returns `None` if the message is shorter than a header.
    #[inline(always)]
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_LEN] = message.first_chunk()?;
        let [_, _, a, b, counts @ ..] = *bytes;
        Some(Self {
            flags: u16::from_be_bytes([a, b]),
            counts,
        })
    }

    /// Returns the number of entries in each of the four sections.
    #[inline(always)]
    pub(crate) fn counts(&self) -> [u16; 4] {
        let [a, b, c, d, e, f, g, h] = self.counts;
        [[a, b], [c, d], [e, f], [g, h]].map(u16::from_be_bytes)
    }

    /// Returns true if the first three sections have these numbers of entries, encoded as in a message.
    #[inline(always)]
    pub(crate) fn has_counts(&self, counts: [u8; 6]) -> bool {
        self.counts[..6] == counts
    }

    /// Returns true if the message is a response.
    #[inline(always)]
    pub(crate) fn is_response(&self) -> bool {
        self.flags & QR != 0
    }

    /// Returns the opcode at its position in the flags, not shifted. A standard query has opcode 0.
    #[inline(always)]
    pub(crate) fn opcode_bits(&self) -> u16 {
        self.flags & OPCODE
    }
}

/// A buffer for an uncompressed name. It keeps the upper and lower case of the source.
#[derive(Clone, Debug)]
pub(crate) struct NameBuf {
    bytes: [u8; MAX_NAME],
    len: usize,
}

impl NameBuf {
    /// Creates an empty buffer.
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; MAX_NAME],
            len: 0,
        }
    }

    /// Returns the name.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Sets the name to the concatenation of `parts`.
    ///
    /// # Panics
    ///
    /// Panics if the parts are longer than a name may be.
    pub(crate) fn set(&mut self, parts: &[&[u8]]) {
        self.len = 0;
        for part in parts {
            self.bytes[self.len..][..part.len()].copy_from_slice(part);
            self.len += part.len();
        }
    }

    /// Keeps the last `kept` bytes of the name, and puts `start` before them.
    ///
    /// # Panics
    ///
    /// Panics if the name is shorter than `kept`, or if the result is longer than a name may be.
    pub(crate) fn replace_start(&mut self, start: &[u8], kept: usize) {
        self.bytes
            .copy_within(self.len - kept..self.len, start.len());
        self.bytes[..start.len()].copy_from_slice(start);
        self.len = start.len() + kept;
    }

    /// Converts the name to lower case.
    pub(crate) fn make_lower(&mut self) {
        self.bytes[..self.len].make_ascii_lowercase();
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

/// A parsed question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawQuestion {
    /// Length of the decompressed name, in bytes.
    pub name_len: usize,
    /// The QTYPE.
    pub qtype: u16,
    /// The QCLASS.
    pub qclass: u16,
    /// Offset of the end of the question in the message.
    pub end: usize,
    /// Whether the name is compressed in the message. If so, a separate [`NameBuf`] holds the
    /// decompressed name.
    pub is_compressed: bool,
}

impl RawQuestion {
    /// Returns the name in the question of `message`. `expanded` has the decompressed name.
    #[inline(always)]
    pub(crate) fn name<'a>(&self, message: &'a [u8], expanded: &'a NameBuf) -> &'a [u8] {
        if self.is_compressed {
            expanded.bytes()
        } else {
            &message[QUESTION_AT..][..self.name_len]
        }
    }

    /// Returns true if the question is longer without compression.
    pub(crate) fn grows(&self) -> bool {
        QUESTION_AT + self.name_len + QUESTION_REST > self.end
    }
}

/// Parses the question of `message`, and sets `key` to the key of the qname. If the qname is
/// compressed, decompresses it into `expanded`.
///
/// # Errors
///
/// Returns an error if the question is truncated, or if the qname violates RFC 1035.
#[inline(always)]
pub(crate) fn parse_question(
    message: &[u8],
    hashing: &Hashing,
    key: &mut Key,
    expanded: &mut NameBuf,
) -> Result<RawQuestion, Malformed> {
    let plain = plain_len(message, QUESTION_AT)?;
    let (name_len, name_end) = if let Some(len) = plain {
        let end = QUESTION_AT + len;
        key.set(hashing, &message[QUESTION_AT..end]);
        (len, end)
    } else {
        let end = expand(message, QUESTION_AT, expanded)?;
        key.set(hashing, expanded.bytes());
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

/// Returns the length in bytes of the name at `start`, or `None` if the name is compressed.
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

/// Decompresses the name at `start` into `out`, and returns the offset of its end in the message.
///
/// Each pointer must lead to "a prior occurrence" (RFC 1035, section 4.1.4): to an offset before
/// the run of labels that the pointer ends. This rule makes loops impossible.
#[cold]
pub(crate) fn expand(message: &[u8], start: usize, out: &mut NameBuf) -> Result<usize, Malformed> {
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

/// Returns the offset of the end of the name at `at`. Does not follow a pointer.
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

/// Returns the offset of the end of the record at `at`.
pub(crate) fn skip_record(message: &[u8], at: usize) -> Result<usize, Malformed> {
    let at = skip_name(message, at)?;
    let len = message.get(at + DATA_LEN_AT..).ok_or(Malformed)?;
    let len = u16::from_be_bytes(*len.first_chunk().ok_or(Malformed)?);
    Ok(at + DATA_LEN_AT + 2 + usize::from(len))
}

/// Returns the offset of the additional section in a message, or `None` if a section before it is
/// malformed.
pub(crate) fn additional_at(message: &[u8], header: &Header) -> Option<usize> {
    let [questions, answers, authority, _] = header.counts();
    let mut at = HEADER_LEN;
    // Each question and each record takes some bytes, so forged counts cannot make the loops long.
    for _ in 0..questions {
        at = skip_name(message, at).ok()? + QUESTION_REST;
    }
    for _ in 0..u32::from(answers) + u32::from(authority) {
        at = skip_record(message, at).ok()?;
    }
    (at <= message.len()).then_some(at)
}

#[cfg(test)]
#[path = "query_tests.rs"]
mod tests;
