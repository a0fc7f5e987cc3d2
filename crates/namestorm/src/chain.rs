//! Answers with chains of aliases.
//!
//! The server follows a chain for each query (RFC 1034, section 4.3.2, as updated by RFC 6672,
//! section 3.2). The answers of a zone hold no data of other zones, and a DNAME covers every name
//! below its owner. A step at a CNAME writes the prepared record with the chain's
//! current name as its owner. A step at a DNAME copies the prepared DNAME record and writes the CNAME
//! that is synthesized from it. The prepared answer for the chain's last name is copied, with its
//! compression pointers adjusted to the new places of its names.
//!
//! The names of a chain are compressed against the qname and the name before. The records of the last
//! name keep their own compression.
//!
//! The whole answer is written to the responder's scratch buffer, so no memory is allocated.

use udpip::Tail;

use crate::answers::{Answer, Answers, Resolution, ZoneAnswers};
use crate::body::Body;
use crate::edns::OPT_LEN;
use crate::key::Key;
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

/// Answers a query for `qtype` at `qname`, whose `resolution` in `zone` is an alias or a
/// substitution. `key` and `wildcard` are scratch space.
#[inline(never)]
pub(crate) fn follow<'a, 'z>(
    answers: &'z Answers,
    mut zone: &'z ZoneAnswers,
    (qname, qtype): (&[u8], u16),
    mut resolution: Resolution<'z>,
    [key, wildcard]: [&mut Key; 2],
    scratch: &'a mut [u8],
) -> Body<'a> {
    let mut chain = Chain::new(qname, scratch);
    loop {
        let step = match resolution {
            Resolution::Alias(alias) => chain.follow_alias(&alias),
            Resolution::Substitution(dname) => chain.substitute(dname),
            Resolution::Answer(_) if qtype == DNAME && chain.has_dname_of(zone, key) => {
                return chain.body(rcode::NOERROR);
            }
            Resolution::Answer(answer) => return chain.finish(&answer, answer.rcode().into()),
            Resolution::NoData(answer) => return chain.finish(&answer, rcode::NOERROR),
            // The response code is that of the last name in the chain (RFC 6604, section 3).
            Resolution::NxDomain(answer) => return chain.finish(&answer, rcode::NXDOMAIN),
            // The target is in a zone that could not be loaded, or a hook answers for the target. The
            // client must query the target separately, perhaps at another server.
            Resolution::Broken | Resolution::Hooked(_) => return chain.body(rcode::NOERROR),
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
        let name = chain.name.bytes();
        key.set(answers.form(), name);
        // The client must also query a target outside our zones separately.
        let number = answers.zone_of(qtype, key.bytes());
        let Some(found) = answers.zone(number) else {
            return chain.body(rcode::NOERROR);
        };
        zone = found;
        let hash = answers.hash(qtype, key.bytes());
        resolution = match zone.find(hash, qtype, key.bytes()) {
            Some(answer) => Resolution::Answer(answer),
            None => zone.resolve(qtype, name, key, wildcard),
        };
    }
}

/// Where a name of the chain lies in the message.
#[derive(Clone, Copy)]
struct Place {
    /// Offset of the first labels.
    at: usize,
    /// Length of the first labels, in bytes.
    len: usize,
    /// Where the other labels lie: the step of an earlier name, and their offset in it. Unused if
    /// there are none.
    rest: (usize, usize),
}

/// The places of the chain's names: the qname, and the name after each step.
struct Names([Place; MAX_CHAIN + 1]);

impl Names {
    /// Finds the byte at `offset` in the name after `step` steps. Returns the step that wrote it, and
    /// its offset in the name of that step.
    fn written_at(&self, mut step: usize, mut offset: usize) -> (usize, usize) {
        while let Some(beyond) = offset.checked_sub(self.0[step].len) {
            let (earlier, from) = self.0[step].rest;
            (step, offset) = (earlier, from + beyond);
        }
        (step, offset)
    }

    /// Returns the offset in the message of the byte at `offset` in the name after `step` steps.
    fn message_offset(&self, step: usize, offset: usize) -> usize {
        let (step, offset) = self.written_at(step, offset);
        self.0[step].at + offset
    }
}

/// The answer built so far, and the state of the chain.
struct Chain<'a, 'q, 'z> {
    qname: &'q [u8],
    /// The last name that the chain has reached.
    name: NameBuf,
    /// The first `steps + 1` places are valid.
    names: Names,
    steps: usize,
    /// The prepared DNAME records that the answer holds. Each is at the index of the step that wrote
    /// the record.
    dnames: [Option<Answer<'z>>; MAX_CHAIN],
    /// Number of records in the answer, authority and additional sections.
    counts: [u16; 3],
    /// The part of the message after the question. Its first `len` bytes are written.
    tail: &'a mut [u8],
    len: usize,
    /// Length in bytes and number of additional records of the tail without its optional records.
    /// It is `None` if the tail has no optional records.
    required: Option<(usize, u16)>,
}

impl<'a, 'q, 'z> Chain<'a, 'q, 'z> {
    fn new(qname: &'q [u8], scratch: &'a mut [u8]) -> Self {
        let whole = Place {
            at: QUESTION_AT,
            len: qname.len(),
            rest: (0, 0),
        };
        let mut name = NameBuf::new();
        name.set(&[qname]);
        // The whole message, including an OPT record, must not exceed the maximum length over TCP.
        let room = scratch.len() - (QUESTION_AT + qname.len() + QUESTION_REST + OPT_LEN);
        Self {
            qname,
            name,
            names: Names([whole; MAX_CHAIN + 1]),
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
    fn substitute(&mut self, dname: Answer<'z>) -> Result<(), Stop> {
        if self.steps == MAX_CHAIN {
            return Err(Stop::Open);
        }
        if !self.has(&dname) {
            self.append(&dname);
            self.dnames[self.steps] = Some(dname);
        }
        let record = dname.tail().bytes;
        // The record's owner is a pointer, unless the owner is the root, which is never compressed.
        let fields_at = if record[0] == 0 { 1 } else { POINTER };
        let (fields, to) = record[fields_at..].split_at(FIELDS);
        let prefix_len = self.name.bytes().len() - dname.name_len();
        if prefix_len + to.len() > name::MAX_NAME {
            return Err(Stop::NameTooLong);
        }
        let from = self.name.clone();
        self.name.set(&[&from.bytes()[..prefix_len], to]);
        self.step(from.bytes(), fields)
    }

    /// Returns true if the answer already holds this DNAME record.
    fn has(&self, dname: &Answer<'_>) -> bool {
        self.dnames.iter().flatten().any(|known| known.is(dname))
    }

    /// Returns true if the answer already holds the DNAME record whose owner in `zone` has this key.
    fn has_dname_of(&self, zone: &ZoneAnswers, key: &Key) -> bool {
        let node = zone.node(key.bytes());
        node.is_some_and(|node| self.has(&zone.answer(node.default)))
    }

    /// Writes the CNAME record of an alias, and makes the record's target the chain's last name.
    fn follow_alias(&mut self, alias: &Answer<'_>) -> Result<(), Stop> {
        if self.steps == MAX_CHAIN {
            return Err(Stop::Open);
        }
        let shift = self.name.bytes().len() - alias.name_len();
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
        self.step(from.bytes(), fields)
    }

    /// Writes a CNAME from the name `from` to `self.name`, the new last name of the chain. `fields`
    /// supplies the class and TTL.
    fn step(&mut self, from: &[u8], fields: &[u8]) -> Result<(), Stop> {
        let owner = self.names.message_offset(self.steps, 0) as u16;
        let to = self.name.bytes();
        let is_loop = (0..=self.steps).any(|step| self.is_name_after(step, to));
        let earlier = [(0, self.qname), (self.steps, from)];
        let (common, rest) = earlier
            .map(|(step, name)| {
                let common = common_suffix(to, name);
                (common, (step, name.len() - common))
            })
            .into_iter()
            .max()
            .unwrap_or_default();
        let place = Place {
            at: self.tail_at() + self.len + POINTER + FIELDS,
            len: to.len() - common,
            rest,
        };
        let data_len = place.len + if common == 0 { 0 } else { POINTER };
        let record = &mut self.tail[self.len..][..POINTER + FIELDS + data_len];
        record[..2].copy_from_slice(&(0xc000 | owner).to_be_bytes());
        record[2..4].copy_from_slice(&CNAME.to_be_bytes());
        record[4..10].copy_from_slice(&fields[2..8]);
        record[10..12].copy_from_slice(&(data_len as u16).to_be_bytes());
        let (literal, pointer) = record[12..].split_at_mut(place.len);
        literal.copy_from_slice(&to[..place.len]);
        if let Some(pointer) = pointer.first_chunk_mut() {
            let rest_at = self.names.message_offset(rest.0, rest.1) as u16;
            *pointer = (0xc000 | rest_at).to_be_bytes();
        }
        self.len += POINTER + FIELDS + data_len;
        self.steps += 1;
        self.names.0[self.steps] = place;
        self.counts[0] += 1;
        if is_loop { Err(Stop::Open) } else { Ok(()) }
    }

    /// Returns true if `name` is the name that the chain had reached after `step` steps.
    fn is_name_after(&self, step: usize, name: &[u8]) -> bool {
        let mut compared = 0;
        while compared < name.len() {
            let (step, offset) = self.names.written_at(step, compared);
            let Place { at, len, .. } = self.names.0[step];
            let written = match at.checked_sub(self.tail_at()) {
                Some(at) => &self.tail[at..][..len],
                None => self.qname,
            };
            let (written, rest) = (&written[offset..], &name[compared..]);
            let Some(part) = rest.get(..written.len()) else {
                return false;
            };
            if !name::eq(part, written) {
                return false;
            }
            compared += written.len();
        }
        true
    }

    /// Copies the records of a prepared answer and adjusts their compression pointers. The answer
    /// was prepared for the chain's last name, for one of its ancestors, or for a wildcard that
    /// matches it. Returns `false` if the message has no room for the records.
    fn append(&mut self, answer: &Answer<'_>) -> bool {
        let bytes = answer.tail().bytes;
        let tail_at = self.tail_at() + self.len;
        let Some(copy) = self.tail[self.len..].get_mut(..bytes.len()) else {
            return false;
        };
        copy.copy_from_slice(bytes);
        let name_len = answer.name_len();
        let shift = self.name.bytes().len() - name_len;
        let old_tail_at = QUESTION_AT + name_len + QUESTION_REST;
        let name_offset = |offset| self.names.message_offset(self.steps, offset);
        let mut fixups = answer.fixups().peekable();
        let counts = answer.counts();
        let counts = [0, 2, 4].map(|at| u16::from_be_bytes([counts[at], counts[at + 1]]));
        map_pointers(copy, counts.iter().sum(), |at, to| {
            let to = usize::from(to);
            let is_fixup = fixups.next_if_eq(&at).is_some();
            let new = match to.checked_sub(old_tail_at) {
                Some(offset) => tail_at + offset,
                None if is_fixup => name_offset(to - QUESTION_AT + shift),
                None => name_offset(to - QUESTION_AT),
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
    fn finish(mut self, answer: &Answer<'_>, rcode: u16) -> Body<'a> {
        let fits = self.append(answer);
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
            error: None,
        }
    }
}

/// Returns the length in bytes of the longest common suffix of two names that consists of whole
/// labels and is not the root.
fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let (mut from_a, mut from_b) = (0, 0);
    loop {
        let (rest_a, rest_b) = (&a[from_a..], &b[from_b..]);
        if rest_a == name::ROOT || rest_b == name::ROOT {
            return 0;
        }
        if rest_a.len() == rest_b.len() && name::eq(rest_a, rest_b) {
            return rest_a.len();
        }
        // The longer rest cannot be the common suffix. Of two equally long rests, neither can.
        if rest_a.len() >= rest_b.len() {
            from_a += 1 + usize::from(rest_a[0]);
        }
        if rest_b.len() >= rest_a.len() {
            from_b += 1 + usize::from(rest_b[0]);
        }
    }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
