//! Answers the queries for which no answer was prepared under their type and name. Assembles the
//! reply from prepared pieces, or asks the hook.

use std::net::SocketAddr;

use crate::answers::{Answer, Answers, Resolution, ZoneAnswers};
use crate::body::Body;
use crate::chain::{self, Buffers, Wanted};
use crate::counters::Counters;
use crate::edns::ExtendedError;
use crate::hashed_question::HashedQuestion;
use crate::hook::{Hook, HookContext, Verdict};
use crate::key::Key;
use crate::rcode;
use crate::records::Composer;
use crate::rtype;

/// The buffers for assembling replies. Each responder has its own.
#[derive(Debug)]
pub(crate) struct Assembler {
    buffers: Buffers,
    composer: Composer,
}

impl Assembler {
    /// Creates the buffers. If `has_hooked` is set, allocates the memory for the hook's records
    /// now, so that queries need no allocation.
    pub(crate) fn new(has_hooked: bool) -> Self {
        let mut composer = Composer::new();
        if has_hooked {
            composer.reserve();
        }
        Self {
            buffers: Buffers::new(),
            composer,
        }
    }

    /// Assembles the answer to a query for `qtype` at `name`, which is in `zone`, if it is in any. The
    /// parsed question has the key of the name. Adds signatures and proofs if `dnssec` is set. If the
    /// hook chooses not to reply, counts the query and returns `None`.
    #[cold]
    #[inline(never)]
    pub(crate) fn assemble<'a, H: Hook>(
        &'a mut self,
        (answers, zone): (&'a Answers, Option<&'a ZoneAnswers>),
        (name, qtype, dnssec): (&[u8], u16, bool),
        HashedQuestion { key, foreseen, .. }: &mut HashedQuestion,
        context: HookContext<'_, H, impl Fn() -> SocketAddr>,
        counters: &mut Counters,
    ) -> Option<Body<'a>> {
        self.buffers.search.foreseen = *foreseen;
        let Some(zone) = zone else {
            counters.assembled += 1;
            let error = ExtendedError::NotAuthoritative;
            return Some(Body::error(rcode::REFUSED, error));
        };
        let resolution = zone.resolve(qtype, name, key, &mut self.buffers.search);
        if let Resolution::Hooked(soa) = resolution {
            let zone = (answers, zone, soa);
            return self.ask(zone, (name, qtype, dnssec), key, context, counters);
        }
        counters.assembled += 1;
        let question = (name, qtype);
        let wanted = wanted(qtype, dnssec, context.over_tcp);
        Some(self.compose((answers, zone), question, key, resolution, wanted, counters))
    }

    /// Asks the hook and returns the answer, or `None` if the hook chooses not to reply. `soa` is
    /// the zone's negative answer, for the verdicts that need it.
    #[inline(never)]
    fn ask<'a, H: Hook>(
        &'a mut self,
        (answers, zone, soa): (&'a Answers, &'a ZoneAnswers, Answer<'a>),
        (name, qtype, dnssec): (&[u8], u16, bool),
        key: &mut Key,
        mut context: HookContext<'_, H, impl Fn() -> SocketAddr>,
        counters: &mut Counters,
    ) -> Option<Body<'a>> {
        let mut is_from_zone = false;
        let mut records = self.composer.start(name);
        let resolution = match context.ask(name, qtype, &mut records) {
            Ok(Verdict::Drop) => {
                counters.unanswered += 1;
                return None;
            }
            Ok(Verdict::Records) if !self.composer.is_empty() => {
                counters.hooked += 1;
                return Some(self.composer.body());
            }
            Ok(Verdict::Records | Verdict::NoData) => Resolution::NoData(soa),
            Ok(Verdict::NxDomain) => Resolution::NxDomain(soa),
            Ok(Verdict::Refused) => {
                counters.hooked += 1;
                return Some(Body::empty(rcode::REFUSED));
            }
            Ok(Verdict::Zone) => {
                is_from_zone = true;
                zone.resolve_behind_hook(qtype, name, key, &mut self.buffers.search)
            }
            // SERVFAIL tells the client to try another server.
            Err(_) => {
                counters.hook_errors += 1;
                counters.hooked += 1;
                return Some(Body::empty(rcode::SERVFAIL));
            }
        };
        counters.hooked += 1;
        // The zone cannot prove what the hook decides.
        let dnssec = dnssec && is_from_zone;
        let question = (name, qtype);
        let wanted = wanted(qtype, dnssec, context.over_tcp);
        Some(self.compose((answers, zone), question, key, resolution, wanted, counters))
    }

    /// Assembles the answer from `resolution`, the result of the lookup or the hook's decision.
    #[inline(always)]
    fn compose<'a>(
        &'a mut self,
        zones: (&'a Answers, &'a ZoneAnswers),
        question: (&[u8], u16),
        key: &mut Key,
        resolution: Resolution<'a>,
        wanted: Wanted,
        counters: &mut Counters,
    ) -> Body<'a> {
        let buffers = &mut self.buffers;
        // An answer prepared for an ancestor or a wildcard can be sent for this name after its
        // pointers have been adjusted.
        let shift = |answer: &Answer<'_>| question.0.len().saturating_sub(answer.name_len());
        let is_signed = wanted.signatures && zones.1.denial().is_some();
        match resolution {
            Resolution::Broken => Body::error(rcode::SERVFAIL, ExtendedError::InvalidData),
            Resolution::Alias(_) | Resolution::Substitution(_) => {
                chain::follow(zones, question, resolution, wanted, key, buffers, counters)
            }
            _ if is_signed => {
                chain::follow(zones, question, resolution, wanted, key, buffers, counters)
            }
            Resolution::Answer(answer) if wanted.one_rrset => {
                Body::shifted(&answer, shift(&answer), &mut buffers.message).first_rrset()
            }
            Resolution::Answer(answer)
            | Resolution::NoData(answer)
            | Resolution::Hooked(answer) => {
                Body::shifted(&answer, shift(&answer), &mut buffers.message)
            }
            Resolution::NxDomain(answer) => Body {
                rcode: rcode::NXDOMAIN,
                prepared: None,
                ..Body::shifted(&answer, shift(&answer), &mut buffers.message)
            },
        }
    }
}

/// Returns true if a reply without room for all that it needs is truncated even over TCP. The RRsets of a name
/// exist, although none of them can be the reply to ANY. Queries for other types get SERVFAIL.
#[inline(always)]
pub(crate) fn truncates_over_tcp(qtype: u16) -> bool {
    qtype == rtype::ANY
}

/// Returns what the reply to a query for `qtype` has. `dnssec` is the query's DO bit.
fn wanted(qtype: u16, dnssec: bool, over_tcp: bool) -> Wanted {
    Wanted {
        signatures: dnssec,
        // A single RRset is of little use for attacks with forged client addresses. Over TCP,
        // addresses are not forged (RFC 8482, sections 4.1 and 4.4).
        one_rrset: qtype == rtype::ANY && !over_tcp,
        may_be_truncated: !over_tcp || truncates_over_tcp(qtype),
    }
}
