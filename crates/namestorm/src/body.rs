//! The part of a reply after the question.

use ip::Sum;
use udpip::Tail;

use crate::answers::Answer;
use crate::edns::ExtendedError;
use crate::index::At;
use crate::query::skip_name;
use crate::rcode;
use crate::rtype;
use crate::tail::{FIELDS, MAX_TCP_MESSAGE, map_pointer};

/// The bytes of a tail that fits no message, because each message has a header. No reply has them.
static TOO_LONG: [u8; MAX_TCP_MESSAGE] = [0; MAX_TCP_MESSAGE];

/// The part of a reply after the question, and the header fields that depend on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body<'a> {
    pub(crate) tail: Tail<'a>,
    pub(crate) rcode: u16,
    pub(crate) authoritative: bool,
    /// Number of records in the answer, authority and additional sections, as in a message header.
    pub(crate) counts: [u8; 6],
    /// The tail without its optional records, and the number of additional records that this
    /// shorter tail holds. It is `None` if the tail has no optional records.
    pub(crate) required: Option<(Tail<'a>, u16)>,
    /// The position of the prepared answer in the zone of the query's name, if the body is that
    /// answer unchanged.
    pub(crate) prepared: Option<At>,
    /// The reason of an error, if it is known.
    pub(crate) error: Option<ExtendedError>,
}

impl<'a> Body<'a> {
    /// Creates a body without records.
    pub(crate) fn empty(rcode: u16) -> Self {
        Self {
            tail: Tail::EMPTY,
            rcode,
            authoritative: false,
            counts: [0; 6],
            required: None,
            prepared: None,
            error: None,
        }
    }

    /// Creates a body without records, for an error with a known reason.
    pub(crate) fn error(rcode: u16, error: ExtendedError) -> Self {
        Self {
            error: Some(error),
            ..Self::empty(rcode)
        }
    }

    /// Creates a body that fits no message, so its reply is truncated.
    pub(crate) fn truncated(authoritative: bool) -> Self {
        let tail = Tail {
            bytes: &TOO_LONG,
            sum: Sum::ZERO,
        };
        Self {
            tail,
            authoritative,
            ..Self::empty(rcode::NOERROR)
        }
    }

    /// Creates a body that sends a prepared answer unchanged.
    #[inline(always)]
    pub(crate) fn prepared(answer: &Answer<'a>) -> Self {
        Self {
            tail: answer.tail(),
            rcode: rcode::NOERROR,
            authoritative: answer.is_authoritative(),
            counts: answer.counts(),
            required: answer.required(),
            prepared: Some(answer.at()),
            error: None,
        }
    }

    /// Creates a body that sends a prepared answer unchanged, with its signatures if they are wanted.
    #[inline(always)]
    pub(crate) fn of(answer: &Answer<'a>, signatures: bool) -> Self {
        // Two calls, so that the offsets in the plain variant are constants.
        if signatures && let Some(signed) = answer.signed() {
            Self::prepared(&signed)
        } else {
            Self::prepared(answer)
        }
    }

    /// Returns the body with only the first RRset of its answer section. A body without answer records
    /// remains as it is.
    pub(crate) fn first_rrset(self) -> Self {
        let [high, low, ..] = self.counts;
        let bytes = self.tail.bytes;
        let (records, len) = first_rrset(bytes, u16::from_be_bytes([high, low]), false);
        if records == 0 || len == bytes.len() {
            return self;
        }
        let [high, low] = records.to_be_bytes();
        Self {
            tail: Tail::new(&bytes[..len]),
            counts: [high, low, 0, 0, 0, 0],
            required: None,
            prepared: None,
            ..self
        }
    }

    /// Creates a body from an answer that was prepared for a name that is `shift` bytes shorter
    /// than the qname. Unless `shift` is 0, copies the answer to `scratch` and adjusts the
    /// compression pointers in the copy.
    pub(crate) fn shifted(answer: &Answer<'a>, shift: usize, scratch: &'a mut [u8]) -> Self {
        let body = Self::prepared(answer);
        if shift == 0 {
            return body;
        }
        let copy = &mut scratch[..body.tail.bytes.len()];
        copy.copy_from_slice(body.tail.bytes);
        let (mut tail, mut required) = (body.tail.sum, body.required);
        // Each adjusted pointer changes the sum by `shift`. For a pointer at an odd offset, the two
        // bytes of `shift` are swapped in the sum.
        let by = Sum::ZERO.word(shift as u16);
        for at in answer.fixups() {
            map_pointer(copy, at, |to| to + shift as u16);
            tail = tail.add_at(by, at);
            if let Some((required, _)) = &mut required
                && at < required.bytes.len()
            {
                required.sum = required.sum.add_at(by, at);
            }
        }
        let copy: &'a [u8] = copy;
        let part = |len, sum| Tail {
            bytes: &copy[..len],
            sum,
        };
        Self {
            tail: part(copy.len(), tail),
            required: required.map(|(tail, count)| (part(tail.bytes.len(), tail.sum), count)),
            prepared: None,
            ..body
        }
    }
}

/// Returns the number and the length in bytes of the records at the start of `tail` that have the
/// type of the first one. With `signatures`, the signatures behind them count too. `count` is the
/// number of records in the tail's answer section.
pub(crate) fn first_rrset(tail: &[u8], count: u16, signatures: bool) -> (u16, usize) {
    let mut first = None;
    let mut len = 0;
    for records in 0..count {
        let Some((rtype, end)) = record_at(tail, len) else {
            return (records, len);
        };
        let is_signature = signatures && rtype == rtype::RRSIG.to_be_bytes();
        if *first.get_or_insert(rtype) != rtype && !is_signature {
            return (records, len);
        }
        len = end;
    }
    (count, len)
}

/// Returns the length in bytes of the first `count` records of a tail.
pub(crate) fn records_len(tail: &[u8], count: u16) -> usize {
    (0..count).fold(0, |len, _| record_at(tail, len).map_or(len, |(_, end)| end))
}

/// Returns the type of the record at offset `at` of a tail, and the offset of its end.
fn record_at(tail: &[u8], at: usize) -> Option<([u8; 2], usize)> {
    let fields_at = skip_name(tail, at).ok()?;
    let fields: &[u8; FIELDS] = tail.get(fields_at..)?.first_chunk()?;
    let data_len = usize::from(u16::from_be_bytes([fields[8], fields[9]]));
    Some(([fields[0], fields[1]], fields_at + FIELDS + data_len))
}
