//! Answers with chains of aliases.
//!
//! The server follows a chain for each query (RFC 1034, section 4.3.2, as updated by RFC 6672,
//! section 3.2). The answers of a zone hold no data of other zones, and a DNAME covers every name
//! below its owner. A step at a CNAME writes the prepared record with the chain's
//! current name as its owner. A step at a DNAME copies the prepared DNAME record and writes the CNAME
//! that is synthesized from it. The prepared answer for the chain's last name is copied, with its
//! compression pointers adjusted to the new places of its names.
//!
//! If the client wants signatures, each record of a signed zone is followed by its signatures. The
//! proofs that the answer needs follow in the authority section. An answer without aliases that needs
//! proofs is written in the same way: it is a chain without steps.
//!
//! The names of a chain are compressed against the qname and the name before. The records of the last
//! name keep their own compression. A name that no pointer can reach is written uncompressed.
//!
//! The whole answer is written to the responder's scratch buffer, so no memory is allocated.

mod far;
mod places;

use std::ops::Range;

use arrayvec::ArrayVec;
use ip::Sum;
use udpip::Tail;

use self::places::{Move, NamePlace, Names};
use crate::answers::{Answer, Answers, Resolution, Search, ZoneAnswers};
use crate::body::{Body, first_rrset, records_len};
use crate::counters::Counters;
use crate::edns::{ExtendedError, OPT_LEN};
use crate::key::Key;
use crate::name::{self, MAX_SORT_KEY};
use crate::proofs;
use crate::query::NameBuf;
use crate::rcode;
use crate::redirect;
use crate::rtype::{ANY, CNAME, DNAME};
use crate::tail::{
    FIELDS, MAX_CHAIN, MAX_POINTER, MAX_TCP_MESSAGE, POINTER, QUESTION_AT, QUESTION_REST,
    map_pointer, map_pointers,
};

/// What a reply has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Whether it has signatures and proofs, where there are any.
    pub(crate) signatures: bool,
    /// Whether its answer section ends after the first RRset and its signatures.
    pub(crate) one_rrset: bool,
    /// Whether it is truncated if it has no room for its signatures and proofs. Otherwise, it is SERVFAIL.
    pub(crate) may_be_truncated: bool,
}

/// Scratch space for answers.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// The last search.
    pub(crate) search: Search,
    /// A name as NSEC records sort it.
    sort_key: Vec<u8>,
    /// The name that a chain has reached.
    name: NameBuf,
    /// The message from the end of its question on.
    pub(crate) message: Box<[u8]>,
}

impl Buffers {
    /// Allocates the buffers.
    pub(crate) fn new() -> Self {
        Self {
            search: Search::new(),
            sort_key: Vec::with_capacity(MAX_SORT_KEY),
            name: NameBuf::new(),
            message: vec![0; MAX_TCP_MESSAGE].into_boxed_slice(),
        }
    }
}

/// A prepared answer to be copied. The name that it was prepared for lies at the end of the name after
/// a step of the chain.
#[derive(Clone, Copy)]
struct Piece<'z> {
    answer: Answer<'z>,
    step: usize,
    /// Difference in length between the two names, in bytes.
    shift: usize,
}

impl Piece<'_> {
    /// Returns how pointers move in the part of the answer from offset `start` on. `tail_at` is the
    /// offset of the tail in the message. The part before and this part are at the offsets `before`
    /// and `len` of the tail.
    #[inline(always)]
    fn moves<'n>(
        &self,
        names: &'n Names,
        tail_at: usize,
        start: usize,
        (before, len): (usize, usize),
    ) -> Move<'n> {
        Move {
            names,
            step: self.step,
            shift: self.shift,
            is_above: self.answer.lists_pointers(),
            old_tail_at: QUESTION_AT + self.answer.name_len() + QUESTION_REST,
            tail_at,
            part: (start, tail_at + len),
            before_at: tail_at + before,
        }
    }
}

/// Maximum number of proofs in an answer. Each step of a chain needs at most three.
const MAX_PROOFS: usize = 3 * (MAX_CHAIN + 1);

/// Why the chain ends at a step, without an answer for its last name.
enum Stop {
    /// The message has no room for the signatures of the step.
    NoRoom,
    /// The substituted name is too long (RFC 6672, section 2.2).
    NameTooLong,
    /// The chain has looped back to one of its names. The client detects the loop.
    Loop,
    /// The chain has too many steps. The client continues from the last name.
    TooLong,
}

/// Answers a query for `qtype` at `qname`, whose `resolution` in `zone` is known. `key` is the key
/// of `qname`. The search in `buffers` has found the resolution. Writes what is `wanted`.
#[inline(never)]
pub(crate) fn follow<'a, 'z>(
    (answers, mut zone): (&'z Answers, &'z ZoneAnswers),
    (qname, qtype): (&[u8], u16),
    mut resolution: Resolution<'z>,
    wanted: Wanted,
    key: &mut Key,
    buffers: &'a mut Buffers,
    counters: &mut Counters,
) -> Body<'a> {
    let Buffers {
        search,
        sort_key,
        name,
        message,
    } = buffers;
    let mut chain = Chain::new(qname, wanted, name, message, counters);
    let mut is_found = false;
    loop {
        if wanted.signatures && !is_found {
            chain.prove(zone, key, &resolution, search, sort_key);
        }
        let step = match resolution {
            Resolution::Alias(alias) => chain.follow_alias(&alias),
            Resolution::Substitution(dname) => chain.substitute(dname),
            Resolution::Answer(_) if qtype == DNAME && chain.has_dname_of(zone, key) => {
                return chain.end(rcode::NOERROR);
            }
            Resolution::Answer(answer) | Resolution::NoData(answer) => {
                return chain.finish(&answer, rcode::NOERROR);
            }
            // The last name in the chain determines the response code (RFC 6604, section 3).
            Resolution::NxDomain(answer) => return chain.finish(&answer, rcode::NXDOMAIN),
            // The target is in a zone that could not be loaded, or a hook answers for the target. The
            // client must query the target separately, perhaps at another server.
            Resolution::Broken | Resolution::Hooked(_) => return chain.end(rcode::NOERROR),
        };
        match step {
            Ok(()) => {}
            Err(Stop::Loop) => return chain.end(rcode::NOERROR),
            Err(Stop::TooLong) => return chain.cut(),
            Err(Stop::NameTooLong) => return chain.end(rcode::YXDOMAIN),
            Err(Stop::NoRoom) => return chain.no_room(),
        }
        // The synthesized CNAME record answers a query for CNAME or ANY, so the alias is not
        // followed (RFC 1034, section 3.6.2).
        if qtype == CNAME || qtype == ANY {
            return chain.end(rcode::NOERROR);
        }
        search.foreseen.clear();
        let name = chain.name.bytes();
        key.set(answers.hashing(), name);
        // The client must also query a target outside our zones separately.
        let number = answers.zone_of(qtype, key);
        let Some(found) = answers.zone(number) else {
            return chain.end(rcode::NOERROR);
        };
        zone = found;
        let answer = zone.find(qtype, key);
        is_found = answer.is_some();
        resolution = match answer {
            Some(answer) => Resolution::Answer(answer),
            None => zone.resolve(qtype, name, key, search),
        };
    }
}

/// The answer built so far, and the state of the chain.
struct Chain<'a, 'q, 'z> {
    qname: &'q [u8],
    /// The last name that the chain has reached.
    name: &'a mut NameBuf,
    names: Names,
    /// The prepared DNAME records that the answer holds.
    dnames: ArrayVec<Answer<'z>, MAX_CHAIN>,
    /// Number of records in the answer, authority and additional sections.
    counts: [u16; 3],
    /// The part of the message after the question. Its first `len` bytes are written.
    tail: &'a mut [u8],
    len: usize,
    /// The sum of the written bytes.
    sum: Sum,
    /// Length in bytes and number of additional records of the tail without its optional records.
    /// It is `None` if the tail has no optional records.
    required: Option<(usize, u16)>,
    wanted: Wanted,
    /// Whether the answer is a referral of the qname.
    is_referral: bool,
    /// The proofs that the answer needs. They follow the other records of the authority section.
    proofs: ArrayVec<Piece<'z>, MAX_PROOFS>,
    counters: &'q mut Counters,
}

impl<'a, 'q, 'z> Chain<'a, 'q, 'z> {
    fn new(
        qname: &'q [u8],
        wanted: Wanted,
        name: &'a mut NameBuf,
        scratch: &'a mut [u8],
        counters: &'q mut Counters,
    ) -> Self {
        name.set(&[qname]);
        let whole = NamePlace {
            at: QUESTION_AT,
            len: qname.len(),
            rest: (0, 0),
        };
        // The whole message, including an OPT record, must not exceed the maximum length over TCP.
        let room = scratch.len() - (QUESTION_AT + qname.len() + QUESTION_REST + OPT_LEN);
        Self {
            qname,
            name,
            names: Names(ArrayVec::from_iter([whole])),
            dnames: ArrayVec::new(),
            counts: [0; 3],
            tail: &mut scratch[..room],
            len: 0,
            sum: Sum::ZERO,
            required: None,
            wanted,
            is_referral: false,
            proofs: ArrayVec::new(),
            counters,
        }
    }

    /// Notes the proofs of the last name's `resolution` in `zone`. `key` is the key of that name.
    #[inline(never)]
    fn prove(
        &mut self,
        zone: &'z ZoneAnswers,
        key: &Key,
        resolution: &Resolution<'z>,
        search: &Search,
        sort_key: &mut Vec<u8>,
    ) {
        let Self {
            name,
            proofs,
            names,
            ..
        } = self;
        let step = names.steps();
        let name = name.bytes();
        proofs::find(zone, (name, key), resolution, search, sort_key, |answer| {
            if !proofs.iter().any(|known| known.answer.is(&answer)) {
                let shift = name.len() - answer.name_len();
                // Each step has at most three.
                let _ = proofs.try_push(Piece {
                    answer,
                    step,
                    shift,
                });
            }
        });
    }

    /// Returns the offset of the tail in the message.
    fn tail_at(&self) -> usize {
        QUESTION_AT + self.qname.len() + QUESTION_REST
    }

    /// Replaces the chain's last name, which is below the owner of `dname`, by its substitute.
    /// Writes the DNAME record, unless the answer already holds it. Also writes the synthesized
    /// CNAME with the same TTL (RFC 6672, section 3.1).
    fn substitute(&mut self, dname: Answer<'z>) -> Result<(), Stop> {
        if self.names.steps() == MAX_CHAIN {
            return Err(Stop::TooLong);
        }
        if !self.has(&dname) {
            let signed = dname.variant(self.wanted.signatures);
            if !self.append(&self.piece(&signed)) {
                return Err(Stop::NoRoom);
            }
            // Each step adds at most one.
            let _ = self.dnames.try_push(dname);
        }
        let from = self.name.clone();
        let fields = redirect::substitute(&dname, from.bytes(), self.name);
        self.step(from.bytes(), fields.map_err(|_| Stop::NameTooLong)?, &[])
    }

    /// Returns true if the answer already holds this DNAME record.
    fn has(&self, dname: &Answer<'_>) -> bool {
        self.dnames.iter().any(|known| known.is(dname))
    }

    /// Returns true if the answer already holds the DNAME record whose owner in `zone` has this key.
    fn has_dname_of(&self, zone: &ZoneAnswers, key: &Key) -> bool {
        let node = zone.node(key);
        node.is_some_and(|node| self.has(&zone.answer(node.default)))
    }

    /// Writes the CNAME record of an alias, and makes the record's target the chain's last name.
    fn follow_alias(&mut self, alias: &Answer<'_>) -> Result<(), Stop> {
        if self.names.steps() == MAX_CHAIN {
            return Err(Stop::TooLong);
        }
        let from = self.name.clone();
        let fields = redirect::target(alias, from.bytes(), self.name);
        let signed = alias.variant(self.wanted.signatures);
        let signatures = &signed.tail().bytes[alias.tail().bytes.len()..];
        self.step(from.bytes(), fields, signatures)
    }

    /// Writes a CNAME from the name `from` to `self.name`, the new last name of the chain. `fields`
    /// supplies the class and TTL. Then writes the record's signatures, if there are any.
    fn step(&mut self, from: &[u8], fields: &[u8], signatures: &[u8]) -> Result<(), Stop> {
        let owner = self.names.message_offset(self.names.steps(), 0) as u16;
        let to = self.name.bytes();
        let is_loop = (0..=self.names.steps()).any(|step| self.is_name_after(step, to));
        let earlier = [(0, self.qname), (self.names.steps(), from)];
        let (common, rest) = earlier
            .map(|(step, name)| {
                let common = common_suffix(to, name);
                (common, (step, name.len() - common))
            })
            .into_iter()
            .max()
            .unwrap_or_default();
        let place = NamePlace {
            at: self.tail_at() + self.len + POINTER + FIELDS,
            len: to.len() - common,
            rest,
        };
        let data_len = place.len + if common == 0 { 0 } else { POINTER };
        let end = self.len + POINTER + FIELDS + data_len;
        if self.tail_at() + end > MAX_POINTER {
            self.step_far(from, fields, signatures)?;
            return if is_loop { Err(Stop::Loop) } else { Ok(()) };
        }
        let record = self.tail.get_mut(self.len..end).ok_or(Stop::NoRoom)?;
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
        let (len, sum) = (record.len(), Sum::of(record));
        self.count(len, sum, [1, 0, 0]);
        // The number of steps is bounded.
        let _ = self.names.0.try_push(place);
        self.sign(owner, signatures)?;
        if is_loop { Err(Stop::Loop) } else { Ok(()) }
    }

    /// Writes signatures that were prepared for another name. `owner` is the offset in the message of
    /// their owner.
    fn sign(&mut self, owner: u16, signatures: &[u8]) -> Result<(), Stop> {
        let room = self.tail.get_mut(self.len..self.len + signatures.len());
        let copy = room.ok_or(Stop::NoRoom)?;
        copy.copy_from_slice(signatures);
        let (mut at, mut records) = (0, 0);
        while at < copy.len() {
            copy[at..][..POINTER].copy_from_slice(&(0xc000 | owner).to_be_bytes());
            let data_len = u16::from_be_bytes([copy[at + 10], copy[at + 11]]);
            at += POINTER + FIELDS + usize::from(data_len);
            records += 1;
        }
        let (len, sum) = (copy.len(), Sum::of(copy));
        self.count(len, sum, [records, 0, 0]);
        Ok(())
    }

    /// Returns true if `name` is the name that the chain had reached after `step` steps.
    fn is_name_after(&self, step: usize, name: &[u8]) -> bool {
        let mut compared = 0;
        while compared < name.len() {
            let (step, offset) = self.names.written_at(step, compared);
            let NamePlace { at, len, .. } = self.names.0[step];
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

    /// Returns an answer that was prepared for the chain's last name, for one of its ancestors, or for a
    /// wildcard that matches it.
    fn piece<'p>(&self, answer: &Answer<'p>) -> Piece<'p> {
        Piece {
            answer: *answer,
            step: self.names.steps(),
            shift: self.name.bytes().len() - answer.name_len(),
        }
    }

    /// Copies the records of a prepared answer and adjusts their compression pointers. Returns `false`
    /// if the message has no room for the records.
    fn append(&mut self, piece: &Piece<'_>) -> bool {
        let answer = &piece.answer;
        let Tail { bytes, mut sum } = answer.tail();
        let (at, end) = (self.tail_at() + self.len, self.len + bytes.len());
        let is_reachable = self.tail_at() + end <= MAX_POINTER;
        if piece.step > 0 || !answer.lists_pointers() || !is_reachable {
            return self.append_part(piece, 0..bytes.len(), sections(answer), self.len);
        }
        // The qname is written as it is, so all pointers into it move by the same distance.
        let old_at = QUESTION_AT + answer.name_len() + QUESTION_REST;
        let Some(copy) = self.tail.get_mut(self.len..end) else {
            return false;
        };
        copy.copy_from_slice(bytes);
        for pointer in answer.fixups() {
            map_pointer(copy, pointer, |to| {
                let is_in_tail = usize::from(to) >= old_at;
                let shift = if is_in_tail { at - old_at } else { piece.shift } as u16;
                sum = sum.add_at(Sum::ZERO.word(shift), pointer);
                to + shift
            });
        }
        self.count(bytes.len(), sum, sections(answer));
        true
    }

    /// Counts the records of each section in the next `len` bytes, which are written and have this sum.
    #[inline(always)]
    fn count(&mut self, len: usize, sum: Sum, counts: [u16; 3]) {
        self.sum = self.sum.add_at(sum, self.len);
        self.len += len;
        for (sum, count) in self.counts.iter_mut().zip(counts) {
            *sum += count;
        }
    }

    /// Like [`append`](Self::append), for the part `range` of an answer, which holds `counts` records of
    /// each section. Pointers into the part before lead to its copy, which is at offset `before` of
    /// the tail.
    fn append_part(
        &mut self,
        piece: &Piece<'_>,
        range: Range<usize>,
        counts: [u16; 3],
        before: usize,
    ) -> bool {
        let answer = &piece.answer;
        let bytes = &answer.tail().bytes[range.clone()];
        let tail_at = self.tail_at();
        let moves = piece.moves(&self.names, tail_at, range.start, (before, self.len));
        let Some(copy) = self.tail[self.len..].get_mut(..bytes.len()) else {
            return false;
        };
        copy.copy_from_slice(bytes);
        let mut is_reached = true;
        let mut moved = |to: u16| {
            let new = moves.target(to);
            is_reached &= new < MAX_POINTER;
            new as u16
        };
        if answer.lists_pointers() {
            let fixups = answer.fixups().skip_while(|at| *at < range.start);
            for at in fixups.take_while(|at| *at < range.end) {
                map_pointer(copy, at - range.start, &mut moved);
            }
        } else {
            map_pointers(copy, counts.iter().sum(), moved);
        }
        if !is_reached {
            return self.append_far(piece, range, counts, before);
        }
        let sum = Sum::of(copy);
        self.count(bytes.len(), sum, counts);
        true
    }

    /// Adds the answer for the chain's last name, with the proofs before its additional section.
    fn finish(&mut self, answer: &Answer<'_>, rcode: u16) -> Body<'a> {
        let piece = self.piece(&answer.variant(self.wanted.signatures));
        let answer = &piece.answer;
        self.is_referral = self.names.steps() == 0 && !answer.is_authoritative();
        if !self.proofs.is_empty() && sections(answer)[2] > 0 {
            return self.finish_around_proofs(&piece, rcode);
        }
        let start = self.len;
        let [answers, ..] = sections(answer);
        if self.wanted.one_rrset && answers > 0 {
            let (count, len) = first_rrset(answer.tail().bytes, answers, true);
            let fits = self.append_part(&piece, 0..len, [count, 0, 0], start);
            return if fits {
                self.end(rcode)
            } else {
                self.without_last()
            };
        }
        if !self.append(&piece) {
            return self.without_last();
        }
        let is_longer = self.len - start > answer.tail().bytes.len();
        self.required = answer.required().map(|(tail, count)| {
            let len = if is_longer {
                self.first_records(start, answer, count)
            } else {
                tail.bytes.len()
            };
            (start + len, count)
        });
        self.end(rcode)
    }

    /// Returns the length in bytes of the copy of an answer at offset `start` of the tail, up to this
    /// number of additional records.
    #[cold]
    fn first_records(&self, start: usize, answer: &Answer<'_>, additional: u16) -> usize {
        let [answers, authority, _] = sections(answer);
        records_len(
            &self.tail[start..self.len],
            answers + authority + additional,
        )
    }

    /// Like [`finish`](Self::finish), for an answer with additional records and proofs.
    #[cold]
    fn finish_around_proofs(&mut self, piece: &Piece<'_>, rcode: u16) -> Body<'a> {
        let [answers, authority, additional] = sections(&piece.answer);
        let bytes = piece.answer.tail().bytes;
        let end = records_len(bytes, answers + authority);
        let before = self.len;
        if !self.append_part(piece, 0..end, [answers, authority, 0], before) {
            return self.without_last();
        }
        if !self.append_proofs() {
            return self.no_room();
        }
        let rest_at = self.len;
        let counts = [0, 0, additional];
        if !self.append_part(piece, end..bytes.len(), counts, before) {
            return self.no_room();
        }
        let required = piece.answer.required();
        self.required = required.map(|(_, count)| {
            let len = records_len(&self.tail[rest_at..self.len], count);
            (rest_at + len, count)
        });
        self.end(rcode)
    }

    /// Writes the proofs and forgets them. Returns `false` if the message has no room for them.
    fn append_proofs(&mut self) -> bool {
        let is_whole = (0..self.proofs.len()).all(|index| {
            let proof = self.proofs[index];
            self.append(&proof)
        });
        self.proofs.clear();
        is_whole
    }

    /// Returns the answer built so far, for a chain with too many steps.
    #[cold]
    fn cut(&mut self) -> Body<'a> {
        self.counters.chains_cut += 1;
        self.end(rcode::NOERROR)
    }

    /// Returns the answer built so far if the message has no room for the last name's answer. The client must
    /// query the name separately, unless it is the qname.
    #[cold]
    fn without_last(&mut self) -> Body<'a> {
        if self.names.steps() == 0 {
            return self.no_room();
        }
        self.end(rcode::NOERROR)
    }

    /// Returns the body of a reply that cannot hold its signatures and proofs.
    #[cold]
    fn no_room(&mut self) -> Body<'a> {
        if self.wanted.may_be_truncated {
            return Body::truncated(!self.is_referral);
        }
        self.counters.without_room += 1;
        Body::error(rcode::SERVFAIL, ExtendedError::Other)
    }

    /// Returns the answer built so far, with its proofs. AA is set because this flag refers to the qname
    /// (RFC 1035, section 4.1.1), for which we are authoritative. The exception is a referral of the
    /// qname itself.
    fn end(&mut self, rcode: u16) -> Body<'a> {
        if !self.append_proofs() {
            return self.no_room();
        }
        let bytes: &'a mut [u8] = std::mem::take(&mut self.tail);
        let bytes: &'a [u8] = bytes;
        let [a, b, c] = self.counts.map(u16::to_be_bytes);
        Body {
            tail: Tail {
                bytes: &bytes[..self.len],
                sum: self.sum,
            },
            rcode,
            authoritative: !self.is_referral,
            counts: [a[0], a[1], b[0], b[1], c[0], c[1]],
            required: self
                .required
                .map(|(len, additional)| (Tail::new(&bytes[..len]), additional)),
            prepared: None,
            error: None,
        }
    }
}

/// Returns the number of records in each section of an answer.
fn sections(answer: &Answer<'_>) -> [u16; 3] {
    let [a, b, c, d, e, f] = answer.counts();
    [[a, b], [c, d], [e, f]].map(u16::from_be_bytes)
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
