//! Prepares the answers of zones. For each answer, writes the part of a message after the question.
//!
//! An answer holds data of its own zone only. It has the following sections:
//!
//! - Answer section: the RRset asked for. The answer of an alias is its CNAME record. The server
//!   follows the chain when it answers a query, because the chain may lead through other zones.
//! - Authority section: the SOA in a negative answer (RFC 2308), and the name servers in a
//!   referral. A positive answer omits the zone's name servers, because resolvers do not need them
//!   and the answer stays small.
//! - Additional section: addresses of name servers, mail exchanges and services in the zone, if
//!   they fit a UDP answer. In-domain glue is also written beyond this limit (RFC 9471).
//!
//! An answer to ANY holds all RRsets of the name that fit one message. Only TCP replies have all of
//! them. UDP replies have the first RRset, which is the smallest (RFC 8482, section 4.1).
//!
//! Where records have signatures, an answer has a second variant with them, for clients that set the DO
//! bit. A proof that a name or type does not exist is an answer of its own: an NSEC or NSEC3 record with
//! its signatures. The server adds proofs when it answers a query.

use std::collections::HashSet;
use std::sync::Arc;

use crate::answers::{
    Answers, Denial, Hashes, Kind, NONE, Names, Node, Proofs, Required, Variant, ZoneAnswers,
    ZoneBuilder, ZoneVersion,
};
use crate::dnssec::{self, Chain};
use crate::edns::{MAX_UDP_MESSAGE, OPT_LEN};
use crate::groups::GroupLabels;
use crate::hooked::HookedNames;
use crate::index::{ArenaFull, At};
use crate::key::{Form, Hashing};
use crate::name;
use crate::rtype::{self, CNAME, DNAME, DS, NS, NSEC, NSEC3, RRSIG, SOA};
use crate::tail::{Base, FIELDS, MAX_TCP_MESSAGE, POINTER, TailWriter, TooLong};
use crate::tsig::MAX_SIGNATURE;
use crate::zone::{NameRef, NameStatus, RrsetRef, Zone};
use crate::zone_records::ZoneRecords;
use crate::zones::Zones;

/// Number of names between two calls of a `progress` function.
const PROGRESS_STEP: usize = 10_000;

/// Prepares the answers of `zones`, with index keys in the given form and a hash keyed by `seed`.
/// Calls `progress` with the number of finished names after every 10,000 names.
///
/// # Errors
///
/// Returns an error if the answers or the names of a zone need more than 32 GiB.
pub fn compile(
    zones: &Zones,
    form: Form,
    seed: [u64; 4],
    progress: &mut dyn FnMut(usize),
) -> Result<Answers, ArenaFull> {
    let hashing = Hashing::new(form, seed);
    let hooked = zones.hooked();
    let mut group_labels = GroupLabels::default();
    let mut prepared = 0;
    let mut list = Vec::new();
    for zone in zones.iter() {
        let is_its = |name: &&[u8]| zones.zone_of(name).is_some_and(|it| std::ptr::eq(it, zone));
        let bases = hooked.bases().filter(is_its);
        let mut answers = compile_zone(zone, &hashing, (hooked, bases), &mut |names| {
            progress(prepared + names);
        })?;
        prepared += zone.names().len();
        // A zone with a record that is too long for a transfer is served without transfers.
        if zones.keeps_records()
            && let Ok(records) = ZoneRecords::new(zone)
        {
            answers.set_records(records);
        }
        answers.set_group(group_labels.number(&name::Shown(zone.apex()).to_string()));
        list.push(Arc::new(answers));
    }
    for apex in zones.broken() {
        list.push(Arc::new(ZoneAnswers::broken(hashing.clone(), apex)));
    }
    let has_hooked = !hooked.is_empty();
    Ok(Answers::new(hashing, list, group_labels, has_hooked))
}

/// Prepares the answers of one zone. `hooked` is the set of names that a hook answers for, and those
/// of its bases that are in this zone. Calls `progress` with the number of the zone's finished names
/// after every 10,000 names.
///
/// # Errors
///
/// Returns an error if the answers or the names need more than 32 GiB.
pub(crate) fn compile_zone<'z>(
    zone: &'z Zone,
    hashing: &Hashing,
    (hooked, bases): (&'z HookedNames, impl Iterator<Item = &'z [u8]>),
    progress: &mut dyn FnMut(usize),
) -> Result<ZoneAnswers, ArenaFull> {
    // The loader has refused a zone whose chain has a gap.
    let chain = dnssec::chain_of(zone).ok().flatten();
    let mut compiler = Compiler {
        zone,
        hooked,
        out: ZoneBuilder::new(
            hashing.clone(),
            hooked,
            (zone.names().len(), zone.rrset_count()),
        ),
        writer: TailWriter::new(),
        signed: chain.is_some().then(Saved::default),
        denial: None,
        longest_proof: 0,
        negative: NONE,
        wildcard_parents: zone
            .names()
            .flat_map(|name| wildcard_parents(name.key()))
            .collect(),
    };
    compiler.denial = chain.map(|chain| compiler.proofs(chain)).transpose()?;
    compiler.negative = compiler.negative()?;
    let mut last_key: &[u8] = &[];
    for (number, name) in zone.names().enumerate() {
        if compiler.is_indexed(name) {
            compiler.name(name, last_key)?;
            last_key = name.key();
        }
        if (number + 1) % PROGRESS_STEP == 0 {
            progress(number + 1);
        }
    }
    let mut fillers = HashSet::new();
    for name in bases {
        compiler.hooked(name, &mut fillers)?;
    }
    let records = zone.record_count();
    let (version, denial) = (version(zone), compiler.denial);
    Ok(compiler.out.finish(zone.apex(), version, records, denial))
}

/// Returns the version of a zone, from its SOA record.
fn version(zone: &Zone) -> Option<ZoneVersion> {
    let soa = zone.apex_name()?.rrset(SOA)?.data().next()?;
    // The record ends with serial, refresh, retry, expire and minimum.
    let fields: &[u8; 20] = soa.last_chunk()?;
    let (words, _) = fields.as_chunks();
    Some(ZoneVersion {
        labels: name::label_starts(zone.apex()).count() as u8,
        serial: u32::from_be_bytes(words[0]),
        expire: u32::from_be_bytes(words[3]),
        signed_until: dnssec::signed_until(zone),
    })
}

struct Compiler<'z> {
    zone: &'z Zone,
    hooked: &'z HookedNames,
    out: ZoneBuilder<'z>,
    writer: TailWriter,
    /// Buffer for the signed variant of an answer, if the zone is signed.
    signed: Option<Saved>,
    /// The index of proofs, if the zone is signed.
    denial: Option<Denial>,
    /// Length of the longest proof where no name in it is compressed, in bytes. It is 0 if the zone is not
    /// signed.
    longest_proof: usize,
    /// Position of the zone's negative answer.
    negative: At,
    /// Sort keys of the names with a wildcard directly below them.
    wildcard_parents: HashSet<&'z [u8]>,
}

/// The signed variant of an answer.
#[derive(Default)]
struct Saved {
    counts: [u16; 3],
    tail: Vec<u8>,
    required: Option<Required>,
    fixups: Vec<u16>,
    lists_pointers: bool,
}

impl Saved {
    fn save(&mut self, written: Written, writer: &TailWriter) {
        (self.counts, self.required) = (written.counts, written.required);
        self.tail.clear();
        self.tail.extend_from_slice(writer.bytes());
        self.fixups.clear();
        self.fixups.extend_from_slice(writer.fixups());
        self.lists_pointers = writer.lists_pointers();
    }

    fn variant(&self) -> Variant<'_> {
        Variant {
            counts: self.counts,
            tail: &self.tail,
            required: self.required,
            fixups: &self.fixups,
            lists_pointers: self.lists_pointers,
        }
    }
}

/// What a tail in the writer holds: the number of records in each section, and the required part, if
/// there is another.
#[derive(Clone, Copy, Default)]
struct Written {
    counts: [u16; 3],
    required: Option<Required>,
}

/// Whether signatures are written after the RRsets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Signatures {
    Without,
    With,
}

/// Returns the sort keys of all names directly above a `*` label in the name with this key.
fn wildcard_parents(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut ends = key.iter().enumerate().filter(|(_, byte)| **byte == 0);
    let mut start = 0;
    std::iter::from_fn(move || {
        let (end, _) = ends.next()?;
        let parent = (&key[start..end] == b"*").then_some(&key[..start]);
        start = end + 1;
        Some(parent)
    })
    .flatten()
}

/// Returns the type of a name's smallest RRset. Signatures and proofs come last, because they say
/// little without the data that they are about.
fn smallest(name: NameRef<'_>) -> Option<u16> {
    let len = |data: &[u8]| POINTER + FIELDS + data.len();
    let size = |rrset: &RrsetRef<'_>| {
        let is_proof = matches!(rrset.rtype(), RRSIG | NSEC);
        (is_proof, rrset.data().map(len).sum::<usize>())
    };
    name.rrsets().min_by_key(size).map(RrsetRef::rtype)
}

impl<'z> Compiler<'z> {
    /// Returns true if queries for the name can find it. Names that hold only proofs cannot be found in
    /// a signed zone.
    fn is_indexed(&self, name: NameRef<'_>) -> bool {
        let is_hidden = matches!(name.status(), NameStatus::BelowCut | NameStatus::BelowDname);
        let is_proof = self.denial.is_some() && dnssec::is_hashed(name);
        !is_hidden && !is_proof
    }

    /// Adds the zone's proofs, and returns their index.
    fn proofs(&mut self, chain: Chain<'z>) -> Result<Denial, ArenaFull> {
        Ok(match chain {
            Chain::Nsec(owners) => {
                let places = owners.iter().map(|owner| self.proof(*owner, NSEC));
                let places = places.collect::<Result<Vec<_>, _>>()?;
                let keys = owners.iter().map(|owner| owner.key());
                Denial::Nsec(Names::new(keys.zip(places)))
            }
            Chain::Nsec3(params, owners) => {
                let places = owners.iter().map(|(_, owner)| self.proof(*owner, NSEC3));
                let places = places.collect::<Result<Vec<_>, _>>()?;
                let hashes = owners.iter().map(|(hash, _)| *hash);
                Denial::Nsec3(Hashes::new(params, hashes.zip(places)))
            }
        })
    }

    /// Adds a proof: the record of type `rtype` at `name`, which is NSEC or NSEC3, with its signatures.
    fn proof(&mut self, name: NameRef<'z>, rtype: u16) -> Result<At, ArenaFull> {
        self.writer.start(self.zone.apex(), Base::Above);
        let rrset = name.rrset(rtype);
        let count = rrset.and_then(|rrset| self.rrset(name, rrset, Signatures::With).ok());
        let data = rrset.into_iter().flat_map(RrsetRef::data);
        let data = data.chain(dnssec::signatures(name, rtype));
        let len = data.map(|data| name.owner().len() + FIELDS + data.len());
        self.longest_proof = self.longest_proof.max(len.sum());
        let plain = Variant {
            counts: [0, count.unwrap_or(0), 0],
            tail: self.writer.bytes(),
            required: None,
            fixups: self.writer.fixups(),
            lists_pointers: self.writer.lists_pointers(),
        };
        self.out
            .add_answer((0, self.zone.apex()), true, &plain, None)
    }

    /// Adds the answers of a name and of the empty non-terminals above it. `last_key` is the sort key
    /// of the previous name, whose ancestors are already in the index.
    fn name(&mut self, name: NameRef<'z>, last_key: &[u8]) -> Result<(), ArenaFull> {
        for (owner, key) in name.empty_non_terminals(last_key) {
            self.out.add_node(owner, self.node(owner, key))?;
        }
        let node = self.node(name.owner(), name.key());
        let node = match name.status() {
            NameStatus::Cut => self.cut(name, node)?,
            _ if name.rrset(CNAME).is_some() => self.alias(name, node)?,
            _ => self.plain(name, node)?,
        };
        self.out.add_node(name.owner(), node)
    }

    /// Returns the node of a name with this sort key, as yet without answers of its own.
    fn node(&self, owner: &[u8], key: &[u8]) -> Node {
        let has_wildcard = self.wildcard_parents.contains(key);
        let denial = self.denial.as_ref();
        Node {
            has_wildcard,
            negative: self.negative,
            proofs: denial.map_or(Proofs::NONE, |it| it.proofs(owner, key, has_wildcard)),
            ..Node::bare(Kind::Plain)
        }
    }

    /// Adds the negative answer of the zone. It holds the zone's SOA (RFC 2308).
    fn negative(&mut self) -> Result<At, ArenaFull> {
        self.add((0, self.zone.apex()), true, |this, signatures| {
            this.writer.start(this.zone.apex(), Base::Above);
            let count = this.start_of_authority(signatures).unwrap_or(0);
            Written {
                counts: [0, count, 0],
                required: None,
            }
        })
    }

    /// Writes the SOA with the TTL of negative answers: the lesser of the SOA's TTL and its MINIMUM
    /// field (RFC 2308, section 5).
    fn start_of_authority(&mut self, signatures: Signatures) -> Result<u16, TooLong> {
        let Some(apex) = self.zone.apex_name() else {
            return Ok(0);
        };
        let Some(soa) = apex.rrset(SOA) else {
            return Ok(0);
        };
        let minimum = soa.data().next().and_then(|data| data.last_chunk());
        let minimum = minimum.map_or(0, |last| u32::from_be_bytes(*last));
        self.rrset_for((apex, soa), soa.ttl().min(minimum), signatures)
    }

    /// Adds an authoritative answer or a referral for a type and a name. `write` writes its tail. In a
    /// signed zone, the answer has a second variant, unless it is the same.
    fn add(
        &mut self,
        question: (u16, &[u8]),
        is_authoritative: bool,
        mut write: impl FnMut(&mut Self, Signatures) -> Written,
    ) -> Result<At, ArenaFull> {
        let signed = self.signed.take().map(|mut saved| {
            let written = write(self, Signatures::With);
            saved.save(written, &self.writer);
            saved
        });
        let Written { counts, required } = write(self, Signatures::Without);
        let plain = Variant {
            counts,
            tail: self.writer.bytes(),
            required,
            fixups: self.writer.fixups(),
            lists_pointers: self.writer.lists_pointers(),
        };
        let second = signed.as_ref().map(Saved::variant);
        let second = second.filter(|second| second.tail != plain.tail);
        let added = self
            .out
            .add_answer(question, is_authoritative, &plain, second.as_ref());
        self.signed = signed;
        added
    }

    fn start(&mut self, owner: &[u8]) {
        let base = if name::is_wildcard(owner) {
            Base::Wildcard
        } else {
            Base::Exact
        };
        self.writer.start(owner, base);
    }

    /// Writes all records of an RRset of a name, and then its signatures if they are wanted. Returns
    /// the number of records. If they do not all fit, writes none of them and returns an error.
    fn rrset(
        &mut self,
        name: NameRef<'_>,
        rrset: RrsetRef<'_>,
        signatures: Signatures,
    ) -> Result<u16, TooLong> {
        self.rrset_for((name, rrset), rrset.ttl(), signatures)
    }

    /// Like [`rrset`](Self::rrset), for one of several RRsets. The loader has checked that each of them fits
    /// every message alone. Writes nothing and returns 0 if some message has no room for all so far and
    /// `reserved` more bytes.
    fn rrset_with_room(
        &mut self,
        name: NameRef<'_>,
        rrset: RrsetRef<'_>,
        signatures: Signatures,
        reserved: usize,
    ) -> u16 {
        let mark = self.writer.mark();
        let room = MAX_TCP_MESSAGE - OPT_LEN;
        match self.rrset(name, rrset, signatures) {
            Ok(count) if self.writer.longest_message_len() + reserved <= room => count,
            _ => {
                self.writer.rewind(mark);
                0
            }
        }
    }

    /// Like [`rrset`](Self::rrset), with this TTL.
    fn rrset_for(
        &mut self,
        (name, rrset): (NameRef<'_>, RrsetRef<'_>),
        ttl: u32,
        signatures: Signatures,
    ) -> Result<u16, TooLong> {
        let (mark, owner, rtype) = (self.writer.mark(), name.owner(), rrset.rtype());
        // A signature has the TTL of the RRset that it covers (RFC 4034, section 3).
        let ttl_of = |data| match rtype {
            RRSIG => dnssec::covered(name, data).map_or(ttl, RrsetRef::ttl),
            _ => ttl,
        };
        let records = rrset.data().map(|data| (rtype, ttl_of(data), data));
        let signatures = (signatures == Signatures::With)
            .then(|| dnssec::signatures(name, rtype).map(|data| (RRSIG, ttl, data)));
        let mut count = 0u16;
        for (rtype, ttl, data) in records.chain(signatures.into_iter().flatten()) {
            let written = self.writer.record(owner, rtype, ttl, data);
            count = count.checked_add(1).ok_or(TooLong)?;
            if written.is_err() {
                self.writer.rewind(mark);
                return Err(TooLong);
            }
        }
        Ok(count)
    }

    /// Writes the addresses that the zone holds for `rrset`'s targets, as far as they fit a UDP
    /// message. Returns the number of records written. `present` lists the address RRsets already
    /// in the message, so that they are not repeated.
    fn additional(
        &mut self,
        rrset: RrsetRef<'_>,
        present: &mut Vec<(Vec<u8>, u16)>,
        signatures: Signatures,
    ) -> u16 {
        let mut count = 0;
        let rtype = rrset.rtype();
        for target in rrset.data().filter_map(|data| rtype::target(rtype, data)) {
            // A hook answers for the addresses of a hooked name.
            let zone = Some(self.zone).filter(|_| !self.hooked.of(target).itself());
            for addresses in zone.into_iter().flat_map(|zone| zone.addresses(target)) {
                count += self.addresses(addresses, present, signatures);
            }
        }
        count
    }

    /// Writes an address RRset of a name and returns its number of records. Writes nothing and returns
    /// 0 if the message already holds the RRset or would exceed the UDP limit.
    fn addresses(
        &mut self,
        (name, addresses): (NameRef<'_>, RrsetRef<'_>),
        present: &mut Vec<(Vec<u8>, u16)>,
        signatures: Signatures,
    ) -> u16 {
        let entry = (name.owner().to_ascii_lowercase(), addresses.rtype());
        if present.contains(&entry) {
            return 0;
        }
        let mark = self.writer.mark();
        match self.rrset(name, addresses, signatures) {
            Ok(count) if self.writer.message_len() + OPT_LEN <= MAX_UDP_MESSAGE => {
                present.push(entry);
                count
            }
            _ => {
                self.writer.rewind(mark);
                0
            }
        }
    }

    /// Adds the answers of a name that is neither an alias nor a cut.
    fn plain(&mut self, name: NameRef<'z>, mut node: Node) -> Result<Node, ArenaFull> {
        (node.any, _) = self.own_answers(name, DNAME)?;
        if let Some(dname) = name.rrset(DNAME) {
            node.kind = Kind::Dname;
            node.default = self.add((0, name.owner()), true, |this, signatures| {
                this.writer.start(name.owner(), Base::Above);
                let count = this.rrset(name, dname, signatures).unwrap_or(0);
                Written {
                    counts: [count, 0, 0],
                    required: None,
                }
            })?;
        }
        Ok(node)
    }

    /// Returns true if a reply to ANY has the RRset. In a signed zone, signatures belong to their RRsets,
    /// and proofs are left out.
    fn is_data(&self, rrset: &RrsetRef<'_>) -> bool {
        self.denial.is_none() || !matches!(rrset.rtype(), RRSIG | NSEC)
    }

    /// Adds an answer for each RRset of a name, and an answer to ANY. If the name has only one RRset of
    /// data, the RRset's answer is also the answer to ANY. Returns the positions of the answer to ANY, and
    /// of that for the type `wanted`, if there is one.
    fn own_answers(&mut self, name: NameRef<'z>, wanted: u16) -> Result<(At, At), ArenaFull> {
        let (mut last, mut count, mut found) = (NONE, 0, NONE);
        for rrset in name.rrsets() {
            let at = self.answer(name, rrset)?;
            if rrset.rtype() == wanted {
                found = at;
            }
            if self.is_data(&rrset) {
                (last, count) = (at, count + 1);
            }
        }
        let any = if count > 1 { self.any(name)? } else { last };
        Ok((any, found))
    }

    /// Adds the answer to a question for the name and type of one RRset.
    fn answer(&mut self, name: NameRef<'z>, rrset: RrsetRef<'z>) -> Result<At, ArenaFull> {
        let question = (rrset.rtype(), name.owner());
        self.add(question, true, |this, signatures| {
            this.start(name.owner());
            // The loader has checked that a message can hold this RRset.
            let count = this.rrset(name, rrset, signatures).unwrap_or(0);
            let len = this.writer.bytes().len();
            let additional = this.additional(rrset, &mut Vec::new(), signatures);
            Written {
                counts: [count, 0, additional],
                required: (additional > 0).then_some(Required { len, additional: 0 }),
            }
        })
    }

    /// Adds the answer to ANY. It holds all RRsets of a name that fit the message, and may omit
    /// others (RFC 8482, section 4.1). The smallest RRset comes first. The message also has room for a
    /// signature (TSIG). At a wildcard, it has room for the proof that the qname does not exist (RFC 4035,
    /// section 3.1.3.3). An RRset without all this room is in the answer only if no other one has it.
    fn any(&mut self, name: NameRef<'z>) -> Result<At, ArenaFull> {
        let smallest = smallest(name);
        let is_smallest = move |rrset: &RrsetRef<'_>| Some(rrset.rtype()) == smallest;
        self.add((0, name.owner()), true, |this, signatures| {
            this.start(name.owner());
            let first = || name.rrsets().filter(is_smallest);
            let others = name.rrsets().filter(|rrset| !is_smallest(rrset));
            let is_proven = signatures == Signatures::With && name::is_wildcard(name.owner());
            let proof = if is_proven { this.longest_proof } else { 0 };
            let mut count = 0;
            for rrset in first().chain(others) {
                if this.is_data(&rrset) {
                    count += this.rrset_with_room(name, rrset, signatures, MAX_SIGNATURE + proof);
                }
            }
            if count == 0 {
                let alone = first().map(|rrset| this.rrset_with_room(name, rrset, signatures, 0));
                count = alone.sum();
            }
            Written {
                counts: [count, 0, 0],
                required: None,
            }
        })
    }

    /// Adds the answers of an alias: one for each RRset of the name itself.
    fn alias(&mut self, name: NameRef<'z>, mut node: Node) -> Result<Node, ArenaFull> {
        node.kind = Kind::Alias;
        (node.any, node.default) = self.own_answers(name, CNAME)?;
        Ok(node)
    }

    /// Adds the answers for a zone cut: the answer to DS, if there are DS records, and the referral (RFC
    /// 1034, section 4.3.2, step 3b).
    fn cut(&mut self, cut: NameRef<'z>, mut node: Node) -> Result<Node, ArenaFull> {
        if let Some(signers) = cut.rrset(DS) {
            self.answer(cut, signers)?;
            node.has_signers = true;
        }
        node.kind = Kind::Cut;
        node.default = self.add((0, cut.owner()), false, |this, signatures| {
            this.writer.start(cut.owner(), Base::Above);
            this.delegation(cut, signatures)
        })?;
        Ok(node)
    }

    /// Returns the length that the proofs of a referral without DS records have at most, in bytes. They are
    /// one NSEC record (RFC 4035, section 3.1.4.1) or two NSEC3 records (RFC 5155, section 7.2.7).
    fn referral_proofs_len(&self) -> usize {
        let proofs = match self.denial {
            None => 0,
            Some(Denial::Nsec(_)) => 1,
            Some(Denial::Nsec3(_)) => 2,
        };
        proofs * self.longest_proof
    }

    /// Writes the name servers of a delegation and their addresses. With signatures, also writes the DS
    /// RRset. If there is none, the proof is added when a query is answered (RFC 4035, section 3.1.4).
    fn delegation(&mut self, cut: NameRef<'z>, signatures: Signatures) -> Written {
        let Some(servers) = cut.rrset(NS) else {
            return Written::default();
        };
        let mut authority = self.rrset(cut, servers, Signatures::Without).unwrap_or(0);
        let signers = cut.rrset(DS).filter(|_| signatures == Signatures::With);
        if let Some(signers) = signers {
            authority += self.rrset_with_room(cut, signers, signatures, 0);
        }
        let is_proven = signatures == Signatures::With && signers.is_none();
        let reserved = if is_proven {
            self.referral_proofs_len()
        } else {
            0
        };
        let mut present = Vec::new();
        let mut glue_count = 0;
        // In-domain glue comes first and is required, because the resolver cannot find these
        // addresses elsewhere (RFC 9471, section 3.1). It is left out only if the longest message has no room
        // for it and the proofs. Such a referral is not truncated, because no transport has more room.
        for server in servers
            .data()
            .filter(|server| name::is_within(server, cut.owner()))
        {
            for (name, addresses) in self.zone.addresses(server) {
                let entry = (server.to_ascii_lowercase(), addresses.rtype());
                if !present.contains(&entry) {
                    glue_count += self.rrset_with_room(name, addresses, signatures, reserved);
                    present.push(entry);
                }
            }
        }
        let len = self.writer.bytes().len();
        // Sibling glue follows, and may be left out (RFC 9471, section 3.2).
        let mut further = 0;
        for server in servers.data() {
            for addresses in self.zone.addresses(server) {
                further += self.addresses(addresses, &mut present, signatures);
            }
        }
        let required = (further > 0).then_some(Required {
            len,
            additional: glue_count,
        });
        Written {
            counts: [0, authority, glue_count + further],
            required,
        }
    }

    /// Adds nodes for `name` and its ancestors, up to the first that exists. `fillers` lists the names
    /// that this method has added. A hook answers for `name` or for all names below it.
    fn hooked(&mut self, name: &'z [u8], fillers: &mut HashSet<&'z [u8]>) -> Result<(), ArenaFull> {
        let mut next = Some(name);
        while let Some(name) = next
            && !self.zone.exists_name(name)
            && fillers.insert(name)
        {
            let node = Node {
                negative: self.negative,
                ..Node::bare(Kind::Plain)
            };
            self.out.add_node(name, node)?;
            next = name::parent(name);
        }
        Ok(())
    }
}
