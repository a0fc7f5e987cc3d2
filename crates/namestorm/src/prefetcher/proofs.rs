//! Prefetches the proofs that the queries of a batch will need.
//!
//! For a name without a prepared answer, a signed zone is searched for the closest encloser, and for the
//! record that covers the name. Each memory access of this search depends on the one before. So all
//! searches of a batch go one step, then all of them go the next one. What they find is kept for the
//! answers.

use std::ops::Range;

use arrayvec::ArrayVec;
use nmio::MAX_BATCH;

use super::parsed_question::ParsedQuestion;
use crate::answers::{Answers, Denial, Descent, Foreseen, Hashes, Names, ZoneAnswers};
use crate::hashed_question::HashedQuestion;
use crate::index::At;
use crate::nsec3::NameHash;
use crate::proofs;
use crate::tail::QUESTION_AT;

/// Offset of the last byte of ARCOUNT in a message. Without additional records, a query does not ask
/// for proofs.
const ARCOUNT_AT: usize = 11;

/// A search for the record that covers a name.
struct Search<'z> {
    /// The packet's position in the batch.
    packet: usize,
    zone: &'z ZoneAnswers,
    denial: &'z Denial,
    state: State<'z>,
}

/// How far a search is.
enum State<'z> {
    /// The slots of the name and of its parent are on their way to the cache.
    Slots,
    /// Their nodes are.
    Nodes,
    /// Searches by the sort key in this range of the scratch space, for the name from `start` on.
    Nsec {
        names: &'z Names,
        start: usize,
        key: Range<usize>,
        descent: Descent,
    },
    /// Searches by the hash of the name from `start` on. `is_near` is set as soon as the hashes next to
    /// it are on their way.
    Nsec3 {
        hashes: &'z Hashes,
        start: usize,
        hash: NameHash,
        is_near: bool,
    },
    /// Nothing is left to do.
    Over,
}

/// Prefetches the proofs of the questions of a batch that probably have no prepared answer. `message`
/// returns the message of a packet. `keys` is scratch space.
#[inline(never)]
pub(super) fn fetch<'m>(
    answers: &Answers,
    questions: &mut [ParsedQuestion],
    message: impl Fn(usize) -> Option<&'m [u8]>,
    keys: &mut Vec<u8>,
) {
    keys.clear();
    let mut searches: ArrayVec<Search<'_>, MAX_BATCH> = ArrayVec::new();
    for (packet, parsed) in questions.iter().enumerate() {
        let question = &parsed.question;
        if parsed.is_complete
            && let Some(zone) = answers.zone(question.zone)
            && let Some(denial) = zone.denial()
            && message(packet).is_some_and(|message| message[ARCOUNT_AT] != 0)
            && !zone.has_probably(question.hash)
        {
            zone.fetch_node_slot(question.key.bytes());
            for_parent(answers, question, |key| zone.fetch_node_slot(key));
            searches.push(Search {
                packet,
                zone,
                denial,
                state: State::Slots,
            });
        }
    }
    let mut is_over = searches.is_empty();
    while !is_over {
        is_over = true;
        for search in &mut searches {
            let question = &mut questions[search.packet].question;
            let message = message(search.packet).unwrap_or_default();
            search.step(answers, message, question, keys);
            is_over &= matches!(search.state, State::Over);
        }
    }
}

/// Calls `act` with the key of the name above the question's name, if there is one.
fn for_parent(answers: &Answers, question: &HashedQuestion, act: impl FnOnce(&[u8])) {
    if let Some(start) = answers.form().parent(question.key.bytes(), 0) {
        act(question.key.suffix(start));
    }
}

impl<'z> Search<'z> {
    /// Goes one step, and prefetches what the next one reads.
    fn step(
        &mut self,
        answers: &Answers,
        message: &[u8],
        question: &mut HashedQuestion,
        keys: &mut Vec<u8>,
    ) {
        let zone = self.zone;
        match &mut self.state {
            State::Slots => {
                zone.fetch_node(question.key.bytes());
                for_parent(answers, question, |key| zone.fetch_node(key));
                self.state = State::Nodes;
            }
            State::Nodes => {
                self.state =
                    match message.get(QUESTION_AT..QUESTION_AT + question.question.name_len) {
                        Some(name) => self.begin(name, question, keys),
                        None => State::Over,
                    }
            }
            State::Nsec {
                names,
                start,
                key,
                descent,
            } => {
                if names.step(descent, &keys[key.clone()]) {
                    let (start, at) = (*start, names.place(descent));
                    self.end(start, at, question);
                }
            }
            State::Nsec3 {
                hashes,
                hash,
                is_near: is_near @ false,
                ..
            } => {
                hashes.fetch_candidates(hash);
                *is_near = true;
            }
            State::Nsec3 {
                hashes,
                start,
                hash,
                ..
            } => {
                let (start, at) = (*start, hashes.covering(hash));
                self.end(start, at, question);
            }
            State::Over => {}
        }
    }

    /// Returns the state of the search for the record that covers a part of the name, if the reply
    /// needs one.
    fn begin(&self, name: &[u8], question: &HashedQuestion, keys: &mut Vec<u8>) -> State<'z> {
        let key = &question.key;
        let found = self.zone.encloser(name, key);
        let start = found.and_then(|found| proofs::uncovered(self.zone, (name, key), found));
        match (self.denial, start) {
            (Denial::Nsec(names), Some(start)) => {
                let from = keys.len();
                self.zone.append_sort_key(keys, &name[start..]);
                State::Nsec {
                    names,
                    start,
                    key: from..keys.len(),
                    descent: names.descend(),
                }
            }
            (Denial::Nsec3(hashes), Some(start)) => {
                let hash = hashes.params().hash(&name[start..]);
                hashes.fetch_start(&hash);
                State::Nsec3 {
                    hashes,
                    start,
                    hash,
                    is_near: false,
                }
            }
            (_, None) => State::Over,
        }
    }

    /// Ends with the record that covers the name from `start` on.
    fn end(&mut self, start: usize, at: Option<At>, question: &mut HashedQuestion) {
        if let Some(at) = at {
            self.zone.fetch_proof(at);
            question.foreseen = Foreseen { start, at };
        }
        self.state = State::Over;
    }
}
