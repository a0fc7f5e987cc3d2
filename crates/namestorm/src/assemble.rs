//! Replies to queries that nothing is prepared for: they are put together from
//! prepared pieces, or a hook makes them.

use nmio::Instant;

use crate::answers::{Answer, Answers};
use crate::body::Body;
use crate::chain;
use crate::counters::Counters;
use crate::hook::{Hook, Question, Verdict};
use crate::key::Key;
use crate::lookup::Resolution;
use crate::rcode;
use crate::records::Composer;

/// Where replies are put together.
pub(crate) struct Desk<'a> {
    pub(crate) answers: &'a Answers,
    pub(crate) scratch: &'a mut [u8],
    pub(crate) composer: &'a mut Composer,
}

/// Puts together what a query for `qtype` at `name`, whose key is `key`, is
/// answered with when nothing is prepared for it. `wildcard` is for its use. `None`,
/// counted, when a hook gives no reply.
#[inline(never)]
pub(crate) fn assemble<'a, H: Hook>(
    desk: Desk<'a>,
    question: (&[u8], u16),
    [key, wildcard]: [&mut Key; 2],
    (hook, now): (&mut H, Instant),
    counters: &mut Counters,
) -> Option<Body<'a>> {
    let (name, qtype) = question;
    match desk.answers.resolve(qtype, name, key, wildcard) {
        Resolution::Hooked(soa) => ask(desk, question, [key, wildcard], soa, (hook, now), counters),
        found => {
            counters.assembled += 1;
            let keys = [key, wildcard];
            Some(compose(desk.answers, desk.scratch, question, keys, found))
        }
    }
}

/// What the hook answers. `soa` is for answers that there is nothing.
#[inline(never)]
fn ask<'a, H: Hook>(
    desk: Desk<'a>,
    (name, qtype): (&[u8], u16),
    [key, wildcard]: [&mut Key; 2],
    soa: Answer<'a>,
    (hook, now): (&mut H, Instant),
    counters: &mut Counters,
) -> Option<Body<'a>> {
    let Desk {
        answers,
        scratch,
        composer,
    } = desk;
    let mut records = composer.start(name);
    let verdict = hook.answer(&Question::new(name, qtype), &mut records, now);
    let composer: &'a Composer = composer;
    let found = match verdict {
        Ok(Verdict::Records) => match composer.body() {
            Some(body) => {
                counters.hooked += 1;
                return Some(body);
            }
            None => Resolution::NoData(soa),
        },
        Ok(Verdict::Zone) => answers.resolve_behind_hook(qtype, name, key, wildcard),
        Ok(Verdict::NoData) => Resolution::NoData(soa),
        Ok(Verdict::NxDomain) => Resolution::NxDomain(soa),
        Ok(Verdict::Refused) => Resolution::Refused,
        Ok(Verdict::Drop) => {
            counters.unanswered += 1;
            return None;
        }
        // The client may ask another server.
        Err(_) => Resolution::Broken,
    };
    counters.hooked += 1;
    let keys = [key, wildcard];
    Some(compose(answers, scratch, (name, qtype), keys, found))
}

/// Puts the pieces together that were found.
#[inline(always)]
fn compose<'a>(
    answers: &'a Answers,
    scratch: &'a mut [u8],
    (name, qtype): (&[u8], u16),
    keys: [&mut Key; 2],
    found: Resolution<'a>,
) -> Body<'a> {
    match found {
        Resolution::Answer(answer) | Resolution::NoData(answer) | Resolution::Hooked(answer) => {
            Body::shifted(&answer, shift(answers, name, &answer), scratch)
        }
        Resolution::NxDomain(answer) => Body {
            rcode: rcode::NXDOMAIN,
            prepared: None,
            ..Body::shifted(&answer, shift(answers, name, &answer), scratch)
        },
        Resolution::Substitution(dname) => {
            chain::follow(answers, (name, qtype), dname, keys, scratch)
        }
        Resolution::Refused => Body::empty(rcode::REFUSED),
        Resolution::Broken => Body::empty(rcode::SERVFAIL),
    }
}

/// By how much longer `name` is than the one that `answer` was prepared for. The
/// answer serves it when its pointers are moved by that.
#[inline(always)]
fn shift(answers: &Answers, name: &[u8], answer: &Answer<'_>) -> usize {
    name.len().saturating_sub(answers.name_len(answer))
}
