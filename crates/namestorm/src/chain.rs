//! Chains of aliases that begin at a DNAME.
//!
//! Any number of names lie below a DNAME, so no answer can be compiled for
//! them. The chain is followed when it is asked for: RFC 1034, section 4.3.2,
//! as RFC 6672, section 3.2, has it. Each step copies records that are
//! prepared, and writes the CNAME that the DNAME makes. What the chain leads
//! to is a prepared answer too, whose pointers are moved to their new place.
//!
//! All of it is written to the responder's scratch; nothing is allocated.

use udpip::Tail;

use crate::answers::{Answer, Answers};
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

/// Why a chain does not go on.
enum Stop {
    /// The substituted name is too long (RFC 6672, section 2.2).
    NameTooLong,
    /// The chain has come back to one of its names, or it takes too many
    /// steps. The client follows the rest, or finds the loop itself.
    Open,
}

/// Answers a query for `qtype` at `qname`, which lies below `dname`.
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
            Resolution::Answer(answer) if is_alias(&answer) => chain.take_alias(answers, &answer),
            Resolution::Answer(_) if qtype == DNAME && chain.has_dname_of(answers, key) => {
                return chain.body(rcode::NOERROR);
            }
            Resolution::Answer(answer) => {
                return chain.finish(answers, &answer, answer.rcode().into());
            }
            Resolution::NoData(answer) => return chain.finish(answers, &answer, rcode::NOERROR),
            // The code is that of the last name (RFC 6604, section 3).
            Resolution::NxDomain(answer) => {
                return chain.finish(answers, &answer, rcode::NXDOMAIN);
            }
            // Out of our zones, or in one that could not be loaded, or a hook's:
            // the client asks for the rest itself, and another server may know.
            Resolution::Refused | Resolution::Broken | Resolution::Hooked(_) => {
                return chain.body(rcode::NOERROR);
            }
        };
        match step {
            Ok(()) => {}
            Err(Stop::Open) => return chain.body(rcode::NOERROR),
            Err(Stop::NameTooLong) => return chain.body(rcode::YXDOMAIN),
        }
        // The CNAME that has been made is what they ask for (RFC 1034,
        // section 3.6.2).
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

/// Whether `answer`, to a query that an alias is followed for, is that of an
/// alias: it begins with the alias's own CNAME then.
fn is_alias(answer: &Answer<'_>) -> bool {
    let tail = answer.tail().bytes;
    tail.get(POINTER..POINTER + 2) == Some(&CNAME.to_be_bytes())
}

/// The answer as far as the chain has been followed.
struct Chain<'a, 'q> {
    qname: &'q [u8],
    /// The name that the chain has come to.
    name: NameBuf,
    /// Where the names of the chain lie in the message, that of the question
    /// first: `steps + 1` of them.
    names: [u16; MAX_CHAIN + 1],
    steps: usize,
    /// The DNAME records that have been written, each once.
    dnames: [Option<At>; MAX_CHAIN],
    /// Records in answer, authority and additional section.
    counts: [u16; 3],
    /// What follows the question, `len` bytes of it.
    tail: &'a mut [u8],
    len: usize,
    /// The tail without what may be left out, and its additional records.
    required: Option<(usize, u16)>,
}

impl<'a, 'q> Chain<'a, 'q> {
    fn new(qname: &'q [u8], scratch: &'a mut [u8]) -> Self {
        let mut names = [0; MAX_CHAIN + 1];
        names[0] = QUESTION_AT as u16;
        let mut name = NameBuf::new();
        name.set(&[qname]);
        // The whole message fits TCP, with an OPT record behind it.
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

    /// Where the tail starts in the message.
    fn tail_at(&self) -> usize {
        QUESTION_AT + self.qname.len() + QUESTION_REST
    }

    /// Goes from a name below `dname` to the one that it stands for: writes
    /// the DNAME, once, and the CNAME with the DNAME's TTL (RFC 6672, section
    /// 3.1).
    fn substitute(&mut self, answers: &Answers, dname: &Answer<'_>) -> Result<(), Stop> {
        if self.steps == MAX_CHAIN {
            return Err(Stop::Open);
        }
        if !self.dnames.contains(&Some(dname.at())) {
            self.append(answers, dname);
            self.dnames[self.steps] = Some(dname.at());
        }
        let record = dname.tail().bytes;
        // The owner is a pointer to the question, or the root.
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

    /// Whether the DNAME of the name with this key has been written.
    fn has_dname_of(&self, answers: &Answers, key: &Key) -> bool {
        let node = answers.node(key.bytes());
        node.is_some_and(|node| self.dnames.contains(&Some(node.default)))
    }

    /// Goes from an alias to its target: writes its CNAME.
    fn take_alias(&mut self, answers: &Answers, alias: &Answer<'_>) -> Result<(), Stop> {
        if self.steps == MAX_CHAIN {
            return Err(Stop::Open);
        }
        let longer = self.name.bytes().len() - answers.name_len(alias);
        let (fields, data) = alias.tail().bytes[POINTER..].split_at(FIELDS);
        let len = usize::from(u16::from_be_bytes([fields[8], fields[9]]));
        let from = self.name.clone();
        match split_name(&data[..len]) {
            // The first record has nothing to point to but the question.
            (literal, Some(to)) => {
                let to = usize::from(to) - QUESTION_AT + longer;
                self.name.set(&[literal, &from.bytes()[to..]]);
            }
            (literal, None) => self.name.set(&[literal, name::ROOT]),
        }
        self.step(fields)
    }

    /// Writes the CNAME to `self.name`, which the chain has come to. Class
    /// and TTL are those of `fields`.
    fn step(&mut self, fields: &[u8]) -> Result<(), Stop> {
        let owner = 0xc000 | self.names[self.steps];
        let to = self.name.bytes();
        let seen = (0..=self.steps).any(|step| name::eq(self.name_at(step, to.len()), to));
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
        if seen { Err(Stop::Open) } else { Ok(()) }
    }

    /// The first `len` bytes, or fewer, of one of the chain's names.
    fn name_at(&self, step: usize, len: usize) -> &[u8] {
        let bytes = match usize::from(self.names[step]).checked_sub(self.tail_at()) {
            Some(at) => &self.tail[at..self.len],
            None => self.qname,
        };
        &bytes[..len.min(bytes.len())]
    }

    /// Copies the records of a prepared answer, which was compiled for the
    /// name that the chain has come to or for one above it; `false` when the
    /// message has no room for them.
    fn append(&mut self, answers: &Answers, answer: &Answer<'_>) -> bool {
        let bytes = answer.tail().bytes;
        let tail_at = self.tail_at() + self.len;
        let Some(copy) = self.tail[self.len..].get_mut(..bytes.len()) else {
            return false;
        };
        copy.copy_from_slice(bytes);
        let name_len = answers.name_len(answer);
        let longer = self.name.bytes().len() - name_len;
        let (name_at, old_tail_at) = (
            usize::from(self.names[self.steps]),
            QUESTION_AT + name_len + QUESTION_REST,
        );
        let mut moving = answer.fixups().peekable();
        let counts = answer.counts();
        let counts = [0, 2, 4].map(|at| u16::from_be_bytes([counts[at], counts[at + 1]]));
        map_pointers(copy, counts.iter().sum(), |at, to| {
            let to = usize::from(to);
            let moves = moving.next_if_eq(&at).is_some();
            let new = match to.checked_sub(old_tail_at) {
                Some(behind) => tail_at + behind,
                None if moves => name_at + to - QUESTION_AT + longer,
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

    /// Adds what the last name is answered with. Without room for that the
    /// client has to ask for it.
    fn finish(mut self, answers: &Answers, answer: &Answer<'_>, rcode: u16) -> Body<'a> {
        let fits = self.append(answers, answer);
        self.body(if fits { rcode } else { rcode::NOERROR })
    }

    /// The answer as it is now. Its authority is that for the question's own
    /// name, which is ours (RFC 1035, section 4.1.1).
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
        }
    }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
