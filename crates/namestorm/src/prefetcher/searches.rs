//! Prefetches what queries without a prepared answer will read.
//!
//! A name without a prepared answer is searched for its closest encloser. An alias or a DNAME there leads
//! to another name. In a signed zone, the reply needs the record that covers the name. Each memory
//! access of such a search depends on the one before. So all searches go one step, then all
//! of them go the next one. What they find is kept for the answers.

use std::ops::Range;

use arrayvec::ArrayVec;
use ip::MAX_INPUTS;

use super::parsed_question::ParsedQuestion;
use crate::answers::{Answers, Denial, Descent, Hashes, Kind, Names, Node, ZoneAnswers};
use crate::hashed_question::HashedQuestion;
use crate::index::At;
use crate::key::{Form, Key};
use crate::name::MAX_SORT_KEY;
use crate::nsec3::NameHash;
use crate::proofs;
use crate::query::NameBuf;
use crate::redirect;
use crate::tail::QUESTION_AT;

/// Maximum number of aliases and DNAMEs that are followed in advance. Longer chains are rare.
const MAX_FOLLOWED: usize = 4;

/// Scratch space of searches.
#[derive(Debug)]
pub(super) struct Scratch {
    /// The sort keys of names that need proofs.
    sort_keys: Vec<u8>,
    /// The names that aliases and DNAMEs lead to, indexed by the packet's position.
    targets: Box<[Target]>,
}

/// A packet whose question has no prepared answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    /// The packet's position among those prefetched.
    pub(super) packet: usize,
    /// Whether the client may want signatures and proofs.
    pub(super) is_signed: bool,
}

/// A name that an alias or a DNAME leads to.
#[derive(Clone, Debug)]
struct Target {
    name: NameBuf,
    key: Key,
}

/// A search for what the reply to a query needs.
struct Search<'z> {
    /// The packet's position among those prefetched.
    packet: usize,
    /// Whether the client may want signatures and proofs.
    is_signed: bool,
    /// The zone of the current name.
    zone: &'z ZoneAnswers,
    /// Number of aliases and DNAMEs that led to the current name.
    followed: usize,
    state: State<'z>,
}

/// How far a search is.
enum State<'z> {
    /// The slots of the current name and of its parent, with these hashes, are on their way to the
    /// cache.
    Slots([u64; 2]),
    /// Their nodes are.
    Nodes,
    /// The CNAME or DNAME record of this node is.
    Redirect(Node),
    /// The slot of the answer for the current name is. The answer has this hash.
    Answer(u64),
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

impl Scratch {
    pub(super) fn new() -> Self {
        let target = Target {
            name: NameBuf::new(),
            key: Key::new(),
        };
        Self {
            sort_keys: Vec::with_capacity(MAX_INPUTS * MAX_SORT_KEY),
            targets: vec![target; MAX_INPUTS].into_boxed_slice(),
        }
    }

    /// Prefetches for the questions of these packets, which probably have no prepared answer. `message`
    /// returns the message of a packet.
    #[inline(never)]
    pub(super) fn fetch<'m>(
        &mut self,
        answers: &Answers,
        questions: &mut [ParsedQuestion],
        packets: &[Missing],
        message: impl Fn(usize) -> Option<&'m [u8]>,
    ) {
        self.sort_keys.clear();
        let mut searches: ArrayVec<Search<'_>, MAX_INPUTS> = ArrayVec::new();
        for &Missing { packet, is_signed } in packets {
            let question = &questions[packet].question;
            let zone = answers.if_within(question.zone, &question.key);
            if let Some(zone) = answers.zone(zone) {
                searches.push(Search {
                    packet,
                    is_signed,
                    zone,
                    followed: 0,
                    state: fetch_slots(zone, answers.form(), &question.key),
                });
            }
        }
        let mut is_over = searches.is_empty();
        while !is_over {
            is_over = true;
            for search in &mut searches {
                let question = &mut questions[search.packet].question;
                let end = QUESTION_AT + question.question.name_len;
                let message = message(search.packet);
                let Some(qname) = message.and_then(|message| message.get(QUESTION_AT..end)) else {
                    continue;
                };
                let target = &mut self.targets[search.packet];
                search.step(answers, qname, question, target, &mut self.sort_keys);
                is_over &= matches!(search.state, State::Over);
            }
        }
    }
}

/// Prefetches the slots of the name with this key and of the name above it.
fn fetch_slots<'z>(zone: &ZoneAnswers, form: Form, key: &Key) -> State<'z> {
    let parent = form.parent(key.bytes(), 0).unwrap_or_default();
    let hashes = [key.hash(), zone.hash_of_name(key.suffix(parent))];
    for hash in hashes {
        zone.fetch_node_slot(hash);
    }
    State::Slots(hashes)
}

impl<'z> Search<'z> {
    /// Takes one step, and prefetches what the next step reads.
    fn step(
        &mut self,
        answers: &'z Answers,
        qname: &[u8],
        question: &mut HashedQuestion,
        target: &mut Target,
        sort_keys: &mut Vec<u8>,
    ) {
        let (name, key) = if self.followed > 0 {
            (target.name.bytes(), &target.key)
        } else {
            (qname, &question.key)
        };
        let zone = self.zone;
        match &mut self.state {
            State::Slots(hashes) => {
                for hash in hashes {
                    zone.fetch_node(*hash);
                }
                self.state = State::Nodes;
            }
            State::Nodes => {
                let found = zone.encloser(name, key);
                self.state = self.begin(name, key, found, sort_keys);
                if self.followed == 0 {
                    question.foreseen.encloser = found;
                }
            }
            State::Redirect(node) => {
                let to = redirect(zone, node, name);
                self.go_on(answers, question.question.qtype, to, target);
            }
            State::Answer(hash) if zone.fetch_answer(*hash, self.is_signed) => {
                self.state = State::Over;
            }
            State::Answer(_) => self.state = fetch_slots(zone, answers.form(), key),
            State::Nsec {
                names,
                start,
                key,
                descent,
            } => {
                if names.step(descent, &sort_keys[key.clone()]) {
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

    /// Returns the state after that of the nodes. `found` is the closest encloser of the name. It may lead
    /// to another name, or the reply may need the record that covers a part of the name.
    fn begin(
        &self,
        name: &[u8],
        key: &Key,
        found: Option<(usize, Node)>,
        sort_keys: &mut Vec<u8>,
    ) -> State<'z> {
        let zone = self.zone;
        let Some((start, node)) = found else {
            return State::Over;
        };
        if is_redirect(start, &node) && self.followed < MAX_FOLLOWED {
            zone.fetch_answer_at(node.default, self.is_signed);
            return State::Redirect(node);
        }
        // The proof of the last name of a chain is not searched in advance.
        let Some(denial) = zone
            .denial()
            .filter(|_| self.is_signed && self.followed == 0)
        else {
            return State::Over;
        };
        match (denial, proofs::uncovered(zone, (name, key), (start, node))) {
            (Denial::Nsec(names), Some(start)) => {
                let from = sort_keys.len();
                zone.append_sort_key(sort_keys, &name[start..]);
                State::Nsec {
                    names,
                    start,
                    key: from..sort_keys.len(),
                    descent: names.descend(),
                }
            }
            // The rate limit has not seen the query yet, so it must not cost more than one round.
            (Denial::Nsec3(hashes), Some(_)) if hashes.params().iterations > 0 => State::Over,
            (Denial::Nsec3(hashes), Some(start)) => {
                let form = zone.hashing().form();
                let hash = hashes.params().hash_ancestor(form, (name, key), start);
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

    /// Continues with the name `to`, if it is in one of our zones.
    fn go_on(
        &mut self,
        answers: &'z Answers,
        qtype: u16,
        to: Option<NameBuf>,
        target: &mut Target,
    ) {
        self.state = State::Over;
        let Some(name) = to else {
            return;
        };
        target.key.set(answers.hashing(), name.bytes());
        target.name = name;
        if let Some(zone) = answers.zone(answers.zone_of(qtype, &target.key)) {
            let hash = target.key.hash_with(qtype);
            zone.fetch_slot(hash);
            self.zone = zone;
            self.followed += 1;
            self.state = State::Answer(hash);
        }
    }

    /// Ends with the record that covers the name from `start` on.
    fn end(&mut self, start: usize, at: Option<At>, question: &mut HashedQuestion) {
        if let Some(at) = at {
            self.zone.fetch_answer_at(at, true);
            question.foreseen.covering = Some((start, at));
        }
        self.state = State::Over;
    }
}

/// Returns true if a CNAME or DNAME record leads from a name to another one. `node` is that of the name's
/// closest encloser, which is at offset `start`.
fn is_redirect(start: usize, node: &Node) -> bool {
    match node.kind {
        Kind::Alias => start == 0,
        Kind::Dname => start > 0,
        Kind::Plain | Kind::Cut => false,
    }
}

/// Returns the name that the record of `node` leads to from `name`. Returns `None` if it is too long.
fn redirect(zone: &ZoneAnswers, node: &Node, name: &[u8]) -> Option<NameBuf> {
    let mut to = NameBuf::new();
    let record = zone.answer(node.default);
    if node.kind == Kind::Dname {
        redirect::substitute(&record, name, &mut to).ok()?;
    } else {
        redirect::target(&record, name, &mut to);
    }
    Some(to)
}
