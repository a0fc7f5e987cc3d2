//! Replies to queries that nothing is prepared for: they are put together from
//! prepared pieces.

use crate::answers::{Answer, Answers};
use crate::body::Body;
use crate::chain;
use crate::key::Key;
use crate::lookup::Resolution;
use crate::rcode;

/// Puts together what a query for `qtype` at `name`, whose key is `key`, is
/// answered with when nothing is prepared for it. `wildcard` is for its use.
#[inline(never)]
pub(crate) fn assemble<'a>(
    answers: &'a Answers,
    (name, qtype): (&[u8], u16),
    [key, wildcard]: [&mut Key; 2],
    scratch: &'a mut [u8],
) -> Body<'a> {
    // What was prepared for a name above serves this one when its pointers
    // are moved.
    let shift = |answer: &Answer<'_>| name.len().saturating_sub(answers.name_len(answer));
    match answers.resolve(qtype, name, key, wildcard) {
        Resolution::Answer(answer) | Resolution::NoData(answer) => {
            Body::shifted(&answer, shift(&answer), scratch)
        }
        Resolution::NxDomain(answer) => Body {
            rcode: rcode::NXDOMAIN,
            prepared: None,
            ..Body::shifted(&answer, shift(&answer), scratch)
        },
        Resolution::Substitution(dname) => {
            chain::follow(answers, (name, qtype), dname, [key, wildcard], scratch)
        }
        Resolution::Refused => Body::empty(rcode::REFUSED),
        Resolution::Broken => Body::empty(rcode::SERVFAIL),
    }
}
