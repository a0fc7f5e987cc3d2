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

use std::collections::HashSet;
use std::sync::Arc;

use crate::answers::{
    Answers, Kind, Meta, NONE, Node, Required, ZoneAnswers, ZoneBuilder, ZoneVersion,
};
use crate::edns::{MAX_UDP_MESSAGE, OPT_LEN};
use crate::groups::GroupLabels;
use crate::hooked::HookedNames;
use crate::index::{ArenaFull, At};
use crate::key::{Form, Hashing};
use crate::name;
use crate::rtype::{self, CNAME, DNAME, DS, NS, NSEC, RRSIG, SOA};
use crate::tail::{Base, FIELDS, POINTER, TailWriter, TooLong};
use crate::zone::{NameRef, NameStatus, RrsetRef, Zone};
use crate::zones::Zones;

/// Number of names between two calls of a `progress` function.
const PROGRESS_STEP: usize = 10_000;

const NOERROR: u8 = 0;

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
    let mut compiler = Compiler {
        zone,
        hooked,
        out: ZoneBuilder::new(hashing.clone(), hooked),
        writer: TailWriter::new(),
        negative: NONE,
        wildcard_parents: zone
            .names()
            .flat_map(|name| wildcard_parents(name.key()))
            .collect(),
    };
    compiler.negative = compiler.negative()?;
    let mut last_key: &[u8] = &[];
    for (number, name) in zone.names().enumerate() {
        compiler.name(name, last_key)?;
        if !matches!(name.status(), NameStatus::BelowCut | NameStatus::BelowDname) {
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
    Ok(compiler.out.finish(zone.apex(), version(zone), records))
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
    })
}

struct Compiler<'z> {
    zone: &'z Zone,
    hooked: &'z HookedNames,
    out: ZoneBuilder<'z>,
    writer: TailWriter,
    /// Position of the zone's negative answer.
    negative: At,
    /// Sort keys of the names with a wildcard directly below them.
    wildcard_parents: HashSet<&'z [u8]>,
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

/// Returns the ancestor of `name` that has `labels` more labels than `apex`.
fn ancestor_of<'a>(name: &'a [u8], apex: &[u8], labels: usize) -> &'a [u8] {
    let below = name.len() - apex.len();
    let starts: Vec<_> = name::label_starts(name)
        .take_while(|start| *start < below)
        .collect();
    &name[starts[starts.len() - labels]..]
}

impl<'z> Compiler<'z> {
    /// Adds the answers of a name and of the empty non-terminals above it. `last_key` is the sort key
    /// of the previous name, whose ancestors are already in the index.
    fn name(&mut self, name: NameRef<'z>, last_key: &[u8]) -> Result<(), ArenaFull> {
        if matches!(name.status(), NameStatus::BelowCut | NameStatus::BelowDname) {
            return Ok(());
        }
        self.empty_non_terminals(name, last_key)?;
        let node = self.node(name.key());
        let node = match name.status() {
            NameStatus::Cut => self.cut(name, node)?,
            _ if name.rrset(CNAME).is_some() => self.alias(name, node)?,
            _ => self.plain(name, node)?,
        };
        self.out.add_node(name.owner(), node)
    }

    /// Returns the node of the name with this sort key, as yet without answers of its own.
    fn node(&self, key: &[u8]) -> Node {
        Node {
            has_wildcard: self.wildcard_parents.contains(key),
            negative: self.negative,
            ..Node::bare(Kind::Plain)
        }
    }

    /// Adds the empty non-terminals above `name` that are not yet in the index (RFC 4592, section
    /// 2.2.2).
    fn empty_non_terminals(&mut self, name: NameRef<'z>, last_key: &[u8]) -> Result<(), ArenaFull> {
        let key = name.key();
        let ends = key.iter().enumerate().filter(|(_, byte)| **byte == 0);
        // Each end is the length of an ancestor's sort key, except the last, which is the name's.
        for (labels, end) in ends.map(|(at, _)| at + 1).enumerate() {
            let ancestor = &key[..end];
            let is_known = end == key.len()
                || last_key.starts_with(ancestor)
                || self.zone.find(ancestor).is_ok();
            if !is_known {
                let owner = ancestor_of(name.owner(), self.zone.apex(), labels + 1);
                self.out.add_node(owner, self.node(ancestor))?;
            }
        }
        Ok(())
    }

    /// Adds the negative answer of the zone. It holds the zone's SOA (RFC 2308).
    fn negative(&mut self) -> Result<At, ArenaFull> {
        self.writer.start(self.zone.apex(), Base::Above);
        self.start_of_authority().ok();
        self.add(self.zone.apex(), 0, NOERROR, [0, 1, 0], None)
    }

    /// Writes the SOA with the TTL of negative answers: the lesser of the SOA's TTL and its MINIMUM
    /// field (RFC 2308, section 5).
    fn start_of_authority(&mut self) -> Result<(), TooLong> {
        let Some(soa) = self.zone.apex_name().and_then(|apex| apex.rrset(SOA)) else {
            return Ok(());
        };
        let Some(data) = soa.data().next() else {
            return Ok(());
        };
        let minimum = data
            .last_chunk()
            .map_or(0, |last| u32::from_be_bytes(*last));
        let ttl = soa.ttl().min(minimum);
        self.writer.record(self.zone.apex(), SOA, ttl, data)
    }

    /// Adds the tail in the writer as an authoritative answer for `name`.
    fn add(
        &mut self,
        name: &[u8],
        qtype: u16,
        rcode: u8,
        counts: [u16; 3],
        required: Option<Required>,
    ) -> Result<At, ArenaFull> {
        let meta = Meta {
            qtype,
            rcode,
            authoritative: true,
            counts,
        };
        let writer = &self.writer;
        self.out
            .add_answer(name, meta, writer.bytes(), required, writer.fixups())
    }

    fn start(&mut self, owner: &[u8]) {
        let base = if name::is_wildcard(owner) {
            Base::Wildcard
        } else {
            Base::Exact
        };
        self.writer.start(owner, base);
    }

    /// Writes all records of an RRset with the given owner, and returns their number. If they do
    /// not all fit, writes none of them and returns an error.
    fn rrset(&mut self, owner: &[u8], rrset: RrsetRef<'_>) -> Result<u16, TooLong> {
        let mark = self.writer.mark();
        let mut count = 0u16;
        for data in rrset.data() {
            let written = self.writer.record(owner, rrset.rtype(), rrset.ttl(), data);
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
    fn additional(&mut self, rrset: RrsetRef<'_>, present: &mut Vec<(Vec<u8>, u16)>) -> u16 {
        let mut count = 0;
        let rtype = rrset.rtype();
        for target in rrset.data().filter_map(|data| rtype::target(rtype, data)) {
            // A hook answers for the addresses of a hooked name.
            let zone = Some(self.zone).filter(|_| !self.hooked.of(target).itself());
            for addresses in zone.into_iter().flat_map(|zone| zone.addresses(target)) {
                count += self.addresses(target, addresses, present);
            }
        }
        count
    }

    /// Writes an address RRset and returns its number of records. Writes nothing and returns 0 if
    /// the message already holds the RRset or would exceed the UDP limit.
    fn addresses(
        &mut self,
        owner: &[u8],
        addresses: RrsetRef<'_>,
        present: &mut Vec<(Vec<u8>, u16)>,
    ) -> u16 {
        let entry = (owner.to_ascii_lowercase(), addresses.rtype());
        if present.contains(&entry) {
            return 0;
        }
        let mark = self.writer.mark();
        match self.rrset(owner, addresses) {
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
        node.any = self.own_answers(name)?;
        if let Some(dname) = name.rrset(DNAME) {
            node.kind = Kind::Dname;
            self.writer.start(name.owner(), Base::Above);
            let count = self.rrset(name.owner(), dname).unwrap_or(0);
            node.default = self.add(name.owner(), 0, NOERROR, [count, 0, 0], None)?;
        }
        Ok(node)
    }

    /// Adds an answer for each RRset of a name, and an answer to ANY. If the name has only one
    /// RRset, the RRset's answer is also the answer to ANY. Returns the position of the answer to
    /// ANY.
    fn own_answers(&mut self, name: NameRef<'z>) -> Result<At, ArenaFull> {
        let mut last = NONE;
        for rrset in name.rrsets() {
            last = self.answer(name, rrset)?;
        }
        if name.rrsets().len() == 1 {
            return Ok(last);
        }
        self.any(name)
    }

    /// Adds the answer to a question for the name and type of one RRset.
    fn answer(&mut self, name: NameRef<'z>, rrset: RrsetRef<'z>) -> Result<At, ArenaFull> {
        self.start(name.owner());
        // The loader has checked that a message can hold this RRset.
        let count = self.rrset(name.owner(), rrset).unwrap_or(0);
        let len = self.writer.bytes().len();
        let additional = self.additional(rrset, &mut Vec::new());
        self.add(
            name.owner(),
            rrset.rtype(),
            NOERROR,
            [count, 0, additional],
            (additional > 0).then_some(Required { len, additional: 0 }),
        )
    }

    /// Adds the answer to ANY. It holds all RRsets of a name that fit the message, and may omit
    /// others (RFC 8482, section 4.1). The smallest RRset comes first.
    fn any(&mut self, name: NameRef<'z>) -> Result<At, ArenaFull> {
        self.start(name.owner());
        let smallest = smallest(name);
        let is_smallest = |rrset: &RrsetRef<'_>| Some(rrset.rtype()) == smallest;
        let first = name.rrsets().filter(is_smallest);
        let others = name.rrsets().filter(|rrset| !is_smallest(rrset));
        let counts = first.chain(others);
        let counts = counts.map(|rrset| self.rrset(name.owner(), rrset));
        let count = counts.map(|count| count.unwrap_or(0)).sum();
        self.add(name.owner(), 0, NOERROR, [count, 0, 0], None)
    }

    /// Adds the answers of an alias: one for each RRset of the name itself.
    fn alias(&mut self, name: NameRef<'z>, mut node: Node) -> Result<Node, ArenaFull> {
        node.kind = Kind::Alias;
        for rrset in name.rrsets() {
            let at = self.answer(name, rrset)?;
            if rrset.rtype() == CNAME {
                node.default = at;
            }
        }
        node.any = match name.rrsets().len() {
            1 => node.default,
            _ => self.any(name)?,
        };
        Ok(node)
    }

    /// Adds the answers for a zone cut: the answer to DS, and the referral.
    fn cut(&mut self, name: NameRef<'z>, mut node: Node) -> Result<Node, ArenaFull> {
        self.delegation_signer(name)?;
        node.kind = Kind::Cut;
        node.default = self.referral(name)?;
        Ok(node)
    }

    /// Adds the parent zone's answer to a question for DS at a cut: either the DS records or NODATA
    /// (RFC 4035, section 3.1.4.1).
    fn delegation_signer(&mut self, cut: NameRef<'z>) -> Result<At, ArenaFull> {
        if let Some(signers) = cut.rrset(DS) {
            return self.answer(cut, signers);
        }
        self.writer.start(cut.owner(), Base::Exact);
        self.start_of_authority().ok();
        self.add(cut.owner(), DS, NOERROR, [0, 1, 0], None)
    }

    /// Adds the referral to a delegated zone (RFC 1034, section 4.3.2, step 3b).
    fn referral(&mut self, cut: NameRef<'z>) -> Result<At, ArenaFull> {
        self.writer.start(cut.owner(), Base::Above);
        let (counts, required) = self.delegation(cut);
        let meta = Meta {
            authoritative: false,
            counts,
            ..Meta::default()
        };
        let writer = &self.writer;
        self.out
            .add_answer(cut.owner(), meta, writer.bytes(), required, writer.fixups())
    }

    /// Writes the name servers of a delegation and their addresses. Returns the number of records
    /// in each section, and the part of the tail that is required.
    fn delegation(&mut self, cut: NameRef<'z>) -> ([u16; 3], Option<Required>) {
        let Some(servers) = cut.rrset(NS) else {
            return ([0; 3], None);
        };
        let authority = self.rrset(cut.owner(), servers).unwrap_or(0);
        let mut present = Vec::new();
        let mut glue_count = 0;
        // In-domain glue comes first and is required, because the resolver cannot find these
        // addresses elsewhere (RFC 9471, section 3.1).
        for server in servers
            .data()
            .filter(|server| name::is_within(server, cut.owner()))
        {
            for addresses in self.zone.addresses(server) {
                let entry = (server.to_ascii_lowercase(), addresses.rtype());
                if !present.contains(&entry) {
                    glue_count += self.rrset(server, addresses).unwrap_or(0);
                    present.push(entry);
                }
            }
        }
        let len = self.writer.bytes().len();
        // Sibling glue follows, and may be left out (RFC 9471, section 3.2).
        let mut further = 0;
        for server in servers.data() {
            for addresses in self.zone.addresses(server) {
                further += self.addresses(server, addresses, &mut present);
            }
        }
        let required = (further > 0).then_some(Required {
            len,
            additional: glue_count,
        });
        ([0, authority, glue_count + further], required)
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
