//! Alias chains that begin at a DNAME.
//!
//! A DNAME covers every name below its owner, so the answers for these names cannot be prepared.
//! The server therefore follows the chain for each query (RFC 1034, section 4.3.2, as updated by
//! RFC 6672, section 3.2). A step at a DNAME copies the prepared DNAME record and writes the CNAME
//! that is synthesized from it. A step at a CNAME writes the prepared record with the chain's
//! current name as its owner. The prepared answer for the chain's last name is also copied, with
//! its compression pointers adjusted to the new offset.
//!
//! The whole answer is written to the responder's scratch buffer, so no memory is allocated.

use udpip::Tail;

use crate::answers::{Answer, Answers, NONE};
use crate::body::Body;
use crate::edns::OPT_LEN;
use crate::index::At;
use crate::key::Key;
use crate::lookup::Resolution;
use crate::name;
use crate::query::NameBuf;
use crate::rcode;
use crate::rtype::{ANY, CNAME, DNAME};
use crate::tail::{
    FIELDS, MAX_CHAIN, POINTER, QUESTION_AT, QUESTION_REST, map_pointers, split_name,
};

/// Why the chain ends at a step, without an answer for its last name.
enum Stop {
    /// The substituted name is too long (RFC 6672, section 2.2).
    NameTooLong,
    /// The chain has looped back to one of its names, or has too many steps. The client continues
    /// from the last name, or detects the loop.
    Open,
}

/// Answers a query for `qtype` at `qname`. `dname` is the prepared DNAME record, whose owner is
/// above `qname`. `key` and `wildcard` are scratch space.
#[cold]
pub(crate) fn follow<'a>(
    answers: &Answers,
    (qname, qtype): (&[u8], u16),
    dname: Answer<'_>,
    [key, wildcard]: [&mut Key; 2],
    scratch: &'a mut [u8],
) -> Body<'a> {
    let mut chain = Chain::new(qname, scratch);
    let mut resolution = Resolution::Substitution(dname);
    loop {
        let step = match resolution {
            Resolution::Substitution(dname) => chain.substitute(answers, &dname),
            Resolution::Answer(answer) if is_alias(&answer) => chain.follow_alias(answers, &answer),
            Resolution::Answer(_) if qtype == DNAME && chain.has_dname_of(answers, key) => {
                return chain.body(rcode::NOERROR);
            }
            Resolution::Answer(answer) => {
                return chain.finish(answers, &answer, answer.rcode().into());
            }
            Resolution::NoData(answer) => return chain.finish(answers, &answer, rcode::NOERROR),
            // The response code is that of the last name in the chain (RFC 6604, section 3).
            Resolution::NxDomain(answer) => {
                return chain.finish(answers, &answer, rcode::NXDOMAIN);
            }
            // The target is outside our zones or in a zone that could not be loaded, or a hook
            // answers for the target. The client must query the target separately, perhaps at
            // another server.
            Resolution::Refused | Resolution::Broken | Resolution::Hooked(_) => {
                return chain.body(rcode::NOERROR);
            }
        };
        match step {
            Ok(()) => {}
            Err(Stop::Open) => return chain.body(rcode::NOERROR),
            Err(Stop::NameTooLong) => return chain.body(rcode::YXDOMAIN),
        }
        // The synthesized CNAME record answers a query for CNAME or ANY, so the alias is not
        // followed (RFC 1034, section 3.6.2).
        if qtype == CNAME || qtype == ANY {
            return chain.body(rcode::NOERROR);
        }
        key.set(answers.form(), chain.name.bytes());
        resolution = match answers.find(qtype, key.bytes()) {
            Some(answer) => Resolution::Answer(answer),
            None => answers.resolve(qtype, chain.name.bytes(), key, wildcard),
        };
    }
}

/// Returns true if `answer` starts with a CNAME record that must be followed. `answer` must not be
/// the answer to a query for CNAME or ANY, because such a query does not follow aliases.
fn is_alias(answer: &Answer<'_>) -> bool {
    let tail = answer.tail().bytes;
    tail.get(POINTER..POINTER + 2) == Some(&CNAME.to_be_bytes())
}

/// The answer built so far, and the state of the chain.
struct Chain<'a, 'q> {
    qname: &'q [u8],
    /// The last name that the chain has reached.
    name: NameBuf,
    /// Message offsets of the chain's names, starting with the qname. The first `steps + 1` entries
    /// are valid.
    names: [u16; MAX_CHAIN + 1],
    steps: usize,
    /// The prepared DNAME records that the answer holds, as positions in the arena. Each is at the
    /// index of the step that wrote the record.
    dnames: [Option<At>; MAX_CHAIN],
    /// Number of records in the answer, authority and additional sections.
    counts: [u16; 3],
    /// The part of the message after the question. Its first `len` bytes are written.
    tail: &'a mut [u8],
    len: usize,
    /// Length in bytes and number of additional records of the tail without its optional records.
    /// It is `None` if the tail has no optional records.
    required: Option<(usize, u16)>,
}

impl<'a, 'q> Chain<'a, 'q> {
    fn new(qname: &'q [u8], scratch: &'a mut [u8]) -> Self {
        let mut names = [0; MAX_CHAIN + 1];
        names[0] = QUESTION_AT as u16;
        let mut name = NameBuf::new();
        name.set(&[qname]);
        // The whole message, including an OPT record, must not exceed the maximum length over TCP.
        let room = scratch.len() - (QUESTION_AT + qname.len() + QUESTION_REST + OPT_LEN);
        Self {
            qname,
            name,
            names,
            steps: 0,
            dnames: [None; MAX_CHAIN],
            counts: [0; 3],
            tail: &mut scratch[..room],
            len: 0,
            required: None,
        }
    }

    /// Returns the offset of the tail in the message.
    fn tail_at(&self) -> usize {
        QUESTION_AT + self.qname.len() + QUESTION_REST
    }

    /// Replaces the chain's last name, which is below the owner of `dname`, by its substitute.
    /// Writes the DNAME record, unless the answer already holds it. Also writes the synthesized
    /// CNAME with the same TTL (RFC 6672, section 3.1).
    fn substitute(&mut self, answers: &Answers, dname: &Answer<'_>) -> Result<(), Stop> {
        if self.steps == MAX_CHAIN {
            return Err(Stop::Open);
        }
        if !self.dnames.contains(&Some(dname.at())) {
            self.append(answers, dname);
            self.dnames[self.steps] = Some(dname.at());
        }
        let record = dname.tail().bytes;
        // The record's owner is a pointer, unless the owner is the root, which is never compressed.
        let fields_at = if record[0] == 0 { 1 } else { POINTER };
        let (fields, to) = record[fields_at..].split_at(FIELDS);
        let prefix_len = self.name.bytes().len() - answers.name_len(dname);
        if prefix_len + to.len() > name::MAX_NAME {
            return Err(Stop::NameTooLong);
        }
        let from = self.name.clone();
        self.name.set(&[&from.bytes()[..prefix_len], to]);
        self.step(fields)
    }

    /// Returns true if the answer already holds the DNAME record whose owner has this key.
    fn has_dname_of(&self, answers: &Answers, key: &Key) -> bool {
        let node = answers.node(key.bytes());
        node.is_some_and(|node| self.dnames.contains(&Some(node.default)))
    }

    /// Writes the CNAME record of an alias, and makes the record's target the chain's last name.
    fn follow_alias(&mut self, answers: &Answers, alias: &Answer<'_>) -> Result<(), Stop> {
        if self.steps == MAX_CHAIN {
            return Err(Stop::Open);
        }
        let shift = self.name.bytes().len() - answers.name_len(alias);
        let (fields, data) = alias.tail().bytes[POINTER..].split_at(FIELDS);
        let len = usize::from(u16::from_be_bytes([fields[8], fields[9]]));
        let from = self.name.clone();
        match split_name(&data[..len]) {
            // The CNAME is the first record of the prepared answer, so the qname is the only name
            // before it. A pointer in its data thus leads into the qname.
            (literal, Some(to)) => {
                let to = usize::from(to) - QUESTION_AT + shift;
                self.name.set(&[literal, &from.bytes()[to..]]);
            }
            (literal, None) => self.name.set(&[literal, name::ROOT]),
        }
        self.step(fields)
    }

    /// Writes a CNAME whose target is `self.name`, the new last name of the chain. `fields`
    /// supplies the class and TTL.
    fn step(&mut self, fields: &[u8]) -> Result<(), Stop> {
        let owner = 0xc000 | self.names[self.steps];
        let to = self.name.bytes();
        let is_loop = (0..=self.steps).any(|step| name::eq(self.name_at(step, to.len()), to));
        let record = &mut self.tail[self.len..][..POINTER + FIELDS + to.len()];
        record[..2].copy_from_slice(&owner.to_be_bytes());
        record[2..4].copy_from_slice(&CNAME.to_be_bytes());
        record[4..10].copy_from_slice(&fields[2..8]);
        record[10..12].copy_from_slice(&(to.len() as u16).to_be_bytes());
        record[12..].copy_from_slice(to);
        let len = record.len();
        self.steps += 1;
        self.names[self.steps] = (self.tail_at() + self.len + POINTER + FIELDS) as u16;
        self.len += len;
        self.counts[0] += 1;
        if is_loop { Err(Stop::Open) } else { Ok(()) }
    }

    /// Returns `len` bytes from the start of the name that the chain had reached after `step`
    /// steps. Returns fewer bytes if the qname or the written part of the answer ends earlier.
    fn name_at(&self, step: usize, len: usize) -> &[u8] {
        let bytes = match usize::from(self.names[step]).checked_sub(self.tail_at()) {
            Some(at) => &self.tail[at..self.len],
            None => self.qname,
        };
        &bytes[..len.min(bytes.len())]
    }

    /// Copies the records of a prepared answer and adjusts their compression pointers. The answer
    /// was prepared for the chain's last name, for one of its ancestors, or for a wildcard that
    /// matches it. Returns `false` if the message has no room for the records.
    fn append(&mut self, answers: &Answers, answer: &Answer<'_>) -> bool {
        let bytes = answer.tail().bytes;
        let tail_at = self.tail_at() + self.len;
        let Some(copy) = self.tail[self.len..].get_mut(..bytes.len()) else {
            return false;
        };
        copy.copy_from_slice(bytes);
        let name_len = answers.name_len(answer);
        let shift = self.name.bytes().len() - name_len;
        let (name_at, old_tail_at) = (
            usize::from(self.names[self.steps]),
            QUESTION_AT + name_len + QUESTION_REST,
        );
        let mut fixups = answer.fixups().peekable();
        let counts = answer.counts();
        let counts = [0, 2, 4].map(|at| u16::from_be_bytes([counts[at], counts[at + 1]]));
        map_pointers(copy, counts.iter().sum(), |at, to| {
            let to = usize::from(to);
            let is_fixup = fixups.next_if_eq(&at).is_some();
            let new = match to.checked_sub(old_tail_at) {
                Some(offset) => tail_at + offset,
                None if is_fixup => name_at + to - QUESTION_AT + shift,
                None => name_at + to - QUESTION_AT,
            };
            new as u16
        });
        let required = answer.required();
        self.required = required.map(|(tail, count)| (self.len + tail.bytes.len(), count));
        self.len += bytes.len();
        for (sum, count) in self.counts.iter_mut().zip(counts) {
            *sum += count;
        }
        true
    }

    /// Adds the answer for the chain's last name. If the message has no room for that answer, the
    /// client must query the name separately.
    fn finish(mut self, answers: &Answers, answer: &Answer<'_>, rcode: u16) -> Body<'a> {
        let fits = self.append(answers, answer);
        self.body(if fits { rcode } else { rcode::NOERROR })
    }

    /// Returns the answer built so far. AA is set because this flag refers to the qname (RFC 1035,
    /// section 4.1.1), for which we are authoritative.
    fn body(self, rcode: u16) -> Body<'a> {
        let bytes: &'a [u8] = self.tail;
        let [a, b, c] = self.counts.map(u16::to_be_bytes);
        Body {
            tail: Tail::new(&bytes[..self.len]),
            rcode,
            authoritative: true,
            counts: [a[0], a[1], b[0], b[1], c[0], c[1]],
            required: self
                .required
                .map(|(len, additional)| (Tail::new(&bytes[..len]), additional)),
            prepared: None,
            zone_of: NONE,
            error: None,
        }
    }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
