//! Prefetches the memory that the queries of many packets will need.
//!
//! With many names, a lookup causes two cache misses: one for the slot of the index, one for the
//! answer. With many zones, there are three more before them: the slot of the zone, the zone, and its
//! name. These misses cost more than all other work on a query. In a batch, the misses of different
//! queries overlap: first all slots are prefetched, then all answers. When the queries are handled,
//! the slots and answers are already in the cache.
//!
//! Prefetching never affects the replies. For a datagram that is not a query, the lookup is merely
//! wasted. The parsed questions are kept, so that they need not be parsed again when their queries
//! are handled.

mod parsed_question;
mod searches;

use arrayvec::ArrayVec;
use ip::{Input, MAX_INPUTS};

use self::parsed_question::ParsedQuestion;
use self::searches::{Missing, Scratch};
use crate::answers::Answers;
use crate::edns;
use crate::hashed_question::HashedQuestion;
use crate::query::NameBuf;

/// Minimum total size in bytes of the answers and their index for which prefetching pays off.
/// Smaller data stays in the core's private caches.
const MIN_PREFETCHED: usize = 2 << 20;

/// Offset of the last byte of ARCOUNT in a message.
const ARCOUNT_AT: usize = 11;

/// The prefetcher of one worker, with the questions of the current packets.
#[derive(Debug)]
pub(crate) struct Prefetcher {
    is_worthwhile: bool,
    expanded: NameBuf,
    /// The parsed questions, indexed by the packet's position among them.
    questions: Box<[ParsedQuestion]>,
    scratch: Scratch,
}

impl Prefetcher {
    pub(crate) fn new(answers: &Answers) -> Self {
        let empty = ParsedQuestion {
            is_complete: false,
            apex_hash: 0,
            question: HashedQuestion::new(),
        };
        Self {
            is_worthwhile: answers.size().memory >= MIN_PREFETCHED,
            expanded: NameBuf::new(),
            questions: vec![empty; MAX_INPUTS].into_boxed_slice(),
            scratch: Scratch::new(),
        }
    }

    /// Prefetches from other answers. The questions of the last packets are no longer valid.
    pub(crate) fn set_answers(&mut self, answers: &Answers) {
        self.is_worthwhile = answers.size().memory >= MIN_PREFETCHED;
    }

    /// Returns true if prefetching pays off for a batch of `len` frames.
    #[inline(always)]
    pub(crate) fn pays_off(&self, len: usize) -> bool {
        self.is_worthwhile && len > 1
    }

    /// Parses the questions of packets, and prefetches what the queries will read: their zones, slots
    /// and answers.
    #[inline(always)]
    pub(crate) fn fetch(&mut self, answers: &Answers, inputs: &[Input]) {
        let questions = &mut self.questions[..inputs.len()];
        for (input, parsed) in inputs.iter().zip(&mut *questions) {
            parsed.is_complete = false;
            let Some(message) = message(input) else {
                continue;
            };
            let question = &mut parsed.question;
            let result = question.parse(message, answers, &mut self.expanded);
            parsed.is_complete = result.is_ok() && !question.question.is_compressed;
            question.foreseen.clear();
        }
        if answers.has_many_zones() {
            fetch_zones(answers, questions);
        }
        let complete = |parsed: &&mut ParsedQuestion| parsed.is_complete;
        for ParsedQuestion { question, .. } in questions.iter_mut().filter(complete) {
            question.find_zone(answers);
            if let Some(zone) = answers.zone(question.zone) {
                zone.fetch_slot(question.hash());
            }
        }
        let mut missing: ArrayVec<Missing, MAX_INPUTS> = ArrayVec::new();
        for (packet, parsed) in questions.iter().enumerate() {
            let question = &parsed.question;
            if parsed.is_complete
                && let Some(zone) = answers.zone(question.zone)
            {
                let is_signed = zone.denial().is_some() && may_want_proofs(&inputs[packet]);
                if !zone.fetch_answer(question.hash(), is_signed) {
                    let is_signed = is_signed && wants_proofs(&inputs[packet], question);
                    missing.push(Missing { packet, is_signed });
                }
            }
        }
        if !missing.is_empty() {
            let message = |packet: usize| message(&inputs[packet]);
            self.scratch.fetch(answers, questions, &missing, message);
        }
    }

    /// Returns the parsed question of the packet at this position, if the question is
    /// complete and not compressed.
    #[inline(always)]
    pub(crate) fn question(&mut self, position: usize) -> Option<&mut HashedQuestion> {
        let parsed = &mut self.questions[position];
        parsed.is_complete.then_some(&mut parsed.question)
    }
}

/// Returns true if a query may ask for proofs: if it has additional records.
#[inline(always)]
fn may_want_proofs(input: &Input) -> bool {
    message(input).is_some_and(|message| message[ARCOUNT_AT] != 0)
}

/// Returns true if a query without a prepared answer asks for proofs. The first record after its question
/// is then an OPT record with the DO bit.
#[cold]
fn wants_proofs(input: &Input, question: &HashedQuestion) -> bool {
    message(input)
        .is_some_and(|message| edns::begins_with_dnssec_ok(message, question.question.end))
}

/// Prefetches the zones of questions, and the slots of their answers, one memory access after another
/// for all of them.
#[inline(never)]
fn fetch_zones(answers: &Answers, questions: &mut [ParsedQuestion]) {
    let complete = |parsed: &&mut ParsedQuestion| parsed.is_complete;
    for parsed in questions.iter_mut().filter(complete) {
        parsed.apex_hash = answers.fetch_apex_slot(&parsed.question.key);
    }
    for parsed in questions.iter_mut().filter(complete) {
        answers.fetch_zone(parsed.apex_hash);
    }
    for parsed in questions.iter_mut().filter(complete) {
        answers.fetch_in_zone(parsed.apex_hash, parsed.question.hash());
    }
}

/// Returns the bytes after the UDP header, which may be a DNS message. They may extend beyond the
/// datagram's end, because the UDP length field has not been checked. Returns `None` for other
/// packets.
#[inline(always)]
fn message(input: &Input) -> Option<&[u8]> {
    match input {
        Input::Udp(datagram) => datagram.payload().get(udpip::HEADER_LEN..),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use eth::{Mac, Station};
    use ip::Host;
    use nmio::Instant;
    use nmio::sim::Sink;
    use testkit::dnssec::{Denial, large_zone};
    use testkit::{Route, SERVER, SERVER_MAC};

    use super::*;
    use crate::answers::Foreseen;
    use crate::key::Form;
    use crate::{name, prepare_text};

    /// Returns what is found in advance for a query for this name, which has this additional record.
    fn foreseen(denial: Denial, qname: &str, additional: &[u8]) -> Foreseen {
        let zone = large_zone("example.org.", denial);
        let answers = prepare_text(&format!("$ORIGIN example.org.\n{zone}"), Form::Wire).unwrap();
        let qname = name::parse(qname).unwrap();
        let header = [0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        let query = [&header[..], &qname, &[0, 1, 0, 1], additional].concat();
        let mut host = Host::own(Station::new(Mac(SERVER_MAC), &SERVER), [0; 4]);
        let sink = Sink::new(1500, 0, 4);
        let frame = sink.frame_from(&Route::to_server(false, 4_000, 53).datagram(&query));
        let input = host.receive(frame, Instant::from_millis(1));
        let mut prefetcher = Prefetcher::new(&answers);
        prefetcher.fetch(&answers, &[input]);
        prefetcher.question(0).unwrap().foreseen
    }

    #[test]
    fn a_name_outside_the_only_zone_is_not_searched() {
        for (qname, is_searched) in [("x.example.org", true), ("org", false), ("x.org", false)] {
            let found = foreseen(Denial::Nsec, qname, &[0; 11]);
            assert_eq!(found.encloser.is_some(), is_searched, "{qname}");
        }
    }

    /// The search is before the rate limit, so forged queries must not make it hash without need or often.
    #[test]
    fn a_name_is_hashed_in_advance_only_once_and_for_a_query_that_wants_proofs() {
        let searches = |denial, additional: &[u8]| {
            let found = foreseen(denial, "none.example.org", additional);
            found.covering.is_some()
        };
        let opt = |flags| [0, 0, 41, 4, 208, 0, 0, flags, 0, 0, 0];
        let mut other = opt(0x80);
        other[2] = 250;
        for (denial, is_searched) in [
            (Denial::Nsec, true),
            (Denial::Nsec3, true),
            // These names are hashed twice.
            (Denial::OptOut, false),
        ] {
            assert_eq!(searches(denial, &opt(0x80)), is_searched, "{denial:?}");
            assert!(!searches(denial, &opt(0)) && !searches(denial, &other));
        }
    }
}
