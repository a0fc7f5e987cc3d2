//! What follows the question in a reply: as it was prepared, or put together
//! from prepared pieces.

use ip::Sum;
use udpip::Tail;

use crate::answers::{Answer, Answers};
use crate::index::At;
use crate::lookup::Resolution;
use crate::name;
use crate::respond::rcode;
use crate::rtype;
use crate::tail::{QNAME_POINTER, shift_pointers};

/// Bytes of a record's fields between its owner and its data: type, class,
/// TTL, length.
const FIELDS: usize = 10;

/// What follows the question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body<'a> {
    pub(crate) tail: Tail<'a>,
    pub(crate) rcode: u16,
    pub(crate) authoritative: bool,
    /// Records in answer, authority and additional section.
    pub(crate) counts: [u8; 6],
    /// The tail without what may be left out, and its additional records.
    pub(crate) required: Option<(Tail<'a>, u16)>,
    /// What it is, when it is just as it was prepared.
    pub(crate) prepared: Option<At>,
}

impl<'a> Body<'a> {
    /// Nothing but a response code.
    pub(crate) fn empty(rcode: u16) -> Self {
        Self {
            tail: Tail::EMPTY,
            rcode,
            authoritative: false,
            counts: [0; 6],
            required: None,
            prepared: None,
        }
    }

    /// An answer just as it was prepared.
    #[inline(always)]
    pub(crate) fn prepared(answer: &Answer<'a>) -> Self {
        Self {
            tail: answer.tail(),
            rcode: u16::from(answer.rcode()),
            authoritative: answer.is_authoritative(),
            counts: answer.counts(),
            required: answer.required(),
            prepared: Some(answer.at()),
        }
    }

    /// An answer that was prepared for a name `shift` bytes shorter than the
    /// one asked for.
    fn shifted(answer: &Answer<'a>, shift: usize, scratch: &'a mut [u8]) -> Self {
        let body = Self::prepared(answer);
        if shift == 0 {
            return body;
        }
        let copy = &mut scratch[..body.tail.bytes.len()];
        copy.copy_from_slice(body.tail.bytes);
        shift_pointers(copy, answer.fixups(), shift);
        let copy: &'a [u8] = copy;
        // A pointer at an even offset adds `shift` to the sum; at an odd one
        // the bytes of it exchanged.
        let shifted = |tail: Tail<'_>| {
            let len = tail.bytes.len();
            let inside = answer.fixups().filter(|at| *at < len);
            let by = Sum::ZERO.word(shift as u16);
            Tail {
                bytes: &copy[..len],
                sum: inside.fold(tail.sum, |sum, at| sum.add_at(by, at)),
            }
        };
        Self {
            tail: shifted(body.tail),
            required: body.required.map(|(tail, count)| (shifted(tail), count)),
            prepared: None,
            ..body
        }
    }
}

/// Puts together what a query for `name` is answered with when nothing is
/// prepared for it.
#[inline(never)]
pub(crate) fn assemble<'a>(
    answers: &Answers,
    resolution: Resolution<'a>,
    name: &[u8],
    scratch: &'a mut [u8],
) -> Body<'a> {
    // What was prepared for a name above serves this one when its pointers
    // are moved.
    let shift = |answer: &Answer<'_>| name.len().saturating_sub(answers.name_len(answer));
    match resolution {
        Resolution::Answer(answer) | Resolution::NoData(answer) => {
            Body::shifted(&answer, shift(&answer), scratch)
        }
        Resolution::NxDomain(answer) => Body {
            rcode: rcode::NXDOMAIN,
            prepared: None,
            ..Body::shifted(&answer, shift(&answer), scratch)
        },
        Resolution::Substitution(answer) => substitute(answer, name, shift(&answer), scratch),
        Resolution::Refused => Body::empty(rcode::REFUSED),
    }
}

/// Answers a name below a DNAME: the DNAME and the CNAME that it makes
/// (RFC 6672, section 3.1). The resolver asks for the new name itself.
fn substitute<'a>(
    answer: Answer<'a>,
    qname: &[u8],
    shift: usize,
    scratch: &'a mut [u8],
) -> Body<'a> {
    let dname = answer.tail().bytes;
    let len = dname.len();
    let (copy, cname) = scratch.split_at_mut(len);
    copy.copy_from_slice(dname);
    shift_pointers(copy, answer.fixups(), shift);
    // The owner is a pointer to the question, or the root.
    let fields_at = if copy[0] == 0 { 1 } else { 2 };
    let (fields, target) = copy[fields_at..].split_at(FIELDS);
    let prefix = &qname[..shift];
    let target_len = prefix.len() + target.len();
    let mut body = Body {
        rcode: rcode::YXDOMAIN,
        prepared: None,
        ..Body::prepared(&answer)
    };
    let mut end = len;
    if target_len <= name::MAX_NAME {
        let cname = &mut cname[..2 + FIELDS + target_len];
        cname[..2].copy_from_slice(&QNAME_POINTER.to_be_bytes());
        cname[2..4].copy_from_slice(&rtype::CNAME.to_be_bytes());
        // Class and TTL are those of the DNAME.
        cname[4..10].copy_from_slice(&fields[2..8]);
        cname[10..12].copy_from_slice(&(target_len as u16).to_be_bytes());
        let (front, back) = cname[12..].split_at_mut(prefix.len());
        front.copy_from_slice(prefix);
        back.copy_from_slice(target);
        end += cname.len();
        body.rcode = rcode::NOERROR;
        body.counts = [0, 2, 0, 0, 0, 0];
    }
    body.tail = Tail::new(&scratch[..end]);
    body
}
