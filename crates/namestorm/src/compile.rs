//! Prepares the answers of all zones. For each answer, writes the part of a message after the
//! question.
//!
//! An answer has the following sections:
//!
//! - Answer section: the RRset asked for, preceded by the aliases that lead to it through any of
//!   our zones (RFC 1034, section 4.3.2, step 3a).
//! - Authority section: the SOA in a negative answer (RFC 2308), and the name servers in a
//!   referral. A positive answer omits the zone's name servers, because resolvers do not need them
//!   and the answer stays small.
//! - Additional section: addresses of name servers, mail exchanges and services in our zones, if
//!   they fit a UDP answer. In-domain glue is also written beyond this limit (RFC 9471).
//!
//! An answer to ANY holds all RRsets of the name that fit one message. Only TCP replies have all of
//! them. UDP replies have the first RRset, which is the smallest (RFC 8482, section 4.1).

mod alias;

use std::collections::HashSet;

use crate::answers::{Answers, AnswersBuilder, Kind, Meta, NONE, Node, Required};
use crate::edns::{MAX_UDP_MESSAGE, OPT_LEN};
use crate::index::{ArenaFull, At};
use crate::key::Form;
use crate::name;
use crate::rtype::{self, CNAME, DNAME, DS, NS, NSEC, RRSIG, SOA};
use crate::tail::{Base, FIELDS, POINTER, TailWriter, TooLong};
use crate::zone::{NameRef, NameStatus, RrsetRef, Zone};
use crate::zones::{Location, Zones, glue};

/// Number of names between two calls of [`compile`]'s `progress` function.
pub(crate) const PROGRESS_STEP: usize = 10_000;

const NOERROR: u8 = 0;
const SERVFAIL: u8 = 2;

/// Prepares the answers of `zones`, with index keys in the given form and a hash keyed by `seed`.
/// Calls `progress` with the number of finished names after every 10,000 names.
///
/// # Errors
///
/// Returns an error if the answers or the names need more than 32 GiB.
pub fn compile(
    zones: &Zones,
    form: Form,
    seed: [u64; 4],
    progress: &mut dyn FnMut(usize),
) -> Result<Answers, ArenaFull> {
    let mut compiler = Compiler {
        zones,
        out: AnswersBuilder::new(form, seed, zones.hooked().clone())
            .with_group_labels(zones.group_labels().clone()),
        writer: TailWriter::new(),
        fillers: zones.broken().map(<[u8]>::to_vec).collect(),
    };
    let mut prepared = 0;
    for (zone, children) in zones.with_children() {
        compiler.out.begin_group(&zone.group());
        let mut pass = Pass::new(&mut compiler, zone, children)?;
        for name in zone.names() {
            pass.name(name)?;
            prepared += 1;
            if prepared % PROGRESS_STEP == 0 {
                progress(prepared);
            }
        }
    }
    compiler.out.end_groups();
    for name in zones.hooked().bases() {
        compiler.hooked(name)?;
    }
    for apex in zones.broken() {
        compiler.broken(apex)?;
    }
    for apex in zones.iter().map(Zone::apex).chain(zones.broken()) {
        compiler.fill_above(apex)?;
    }
    let records = zones.iter().map(Zone::record_count).sum();
    Ok(compiler.out.finish(zones.iter().len(), records))
}

struct Compiler<'z> {
    zones: &'z Zones,
    out: AnswersBuilder,
    writer: TailWriter,
    /// Names without records in our zones, in lower case, that need no further node. Their nodes
    /// have already been added, except those of broken zones' apexes, which are added separately.
    fillers: HashSet<Vec<u8>>,
}

/// The pass over the names of one zone.
struct Pass<'c, 'z> {
    compiler: &'c mut Compiler<'z>,
    zone: &'z Zone,
    negative: At,
    /// Sort keys of the names with a wildcard directly below them.
    wildcard_parents: HashSet<&'z [u8]>,
    /// Sort keys of the apexes of our zones directly below this zone, in ascending order.
    children: Vec<Vec<u8>>,
    /// Sort key of the previous name. Its ancestors in this zone are already in the index.
    last_key: &'z [u8],
}

impl<'c, 'z> Pass<'c, 'z> {
    fn new(
        compiler: &'c mut Compiler<'z>,
        zone: &'z Zone,
        children: &[Vec<u8>],
    ) -> Result<Self, ArenaFull> {
        let negative = compiler.negative(zone)?;
        let wildcard_parents = zone
            .names()
            .flat_map(|name| wildcard_parents(name.key()))
            .collect();
        if compiler.zones.is_below_broken(zone.apex()) {
            compiler.missing_signer(zone)?;
        }
        let mut children: Vec<_> = children
            .iter()
            .map(|child| {
                let mut key = Vec::new();
                name::append_sort_key(&mut key, child, zone.apex());
                key
            })
            .collect();
        children.sort_unstable();
        Ok(Self {
            compiler,
            zone,
            negative,
            wildcard_parents,
            children,
            last_key: &[],
        })
    }

    fn name(&mut self, name: NameRef<'z>) -> Result<(), ArenaFull> {
        if matches!(name.status(), NameStatus::BelowCut | NameStatus::BelowDname) {
            return Ok(());
        }
        let key = name.key();
        let before = self
            .children
            .partition_point(|child| child.as_slice() <= key);
        let child = self.children[..before]
            .last()
            .filter(|child| key.starts_with(child));
        let (limit, is_child) = child.map_or((key.len(), false), |child| (child.len(), true));
        self.ancestors(name, limit)?;
        if is_child {
            // The child zone, which is also ours, answers for the name. Only the DS RRset comes
            // from the parent side of the cut (RFC 4035, section 3.1.4.1).
            if limit == key.len() && name.status() == NameStatus::Cut {
                self.compiler.delegation_signer(name)?;
            }
            return Ok(());
        }
        let node = Node {
            has_wildcard: self.wildcard_parents.contains(key),
            negative: self.negative,
            ..Node::bare(Kind::Plain)
        };
        let node = match name.status() {
            NameStatus::Cut => self.compiler.cut(name, node)?,
            _ if name.rrset(CNAME).is_some() => self.compiler.alias(name, node)?,
            _ => self.compiler.plain(name, node)?,
        };
        self.compiler.out.add_node(name.owner(), &node)
    }

    /// Adds the empty non-terminals above `name` that are not yet in the index (RFC 4592, section
    /// 2.2.2). Considers only ancestors whose sort keys are shorter than `limit`.
    fn ancestors(&mut self, name: NameRef<'z>, limit: usize) -> Result<(), ArenaFull> {
        let key = name.key();
        let ends = key[..limit].iter().enumerate();
        let ends: Vec<_> = ends
            .filter(|(_, byte)| **byte == 0)
            .map(|(at, _)| at + 1)
            .collect();
        // Each end is the length of a sort key. The end at `limit` belongs to the name itself or to
        // a child zone's apex, the earlier ends to ancestors.
        for end in ends.into_iter().filter(|end| *end < limit) {
            let ancestor = &key[..end];
            if self.last_key.starts_with(ancestor) || self.zone.find(ancestor).is_ok() {
                continue;
            }
            let labels = ancestor.split(|byte| *byte == 0).count() - 1;
            let node = Node {
                has_wildcard: self.wildcard_parents.contains(ancestor),
                negative: self.negative,
                ..Node::bare(Kind::Plain)
            };
            let owner = ancestor_of(name.owner(), self.zone.apex(), labels);
            self.compiler.out.add_node(owner, &node)?;
        }
        self.last_key = key;
        Ok(())
    }
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
    /// Adds the negative answer of a zone. It holds the zone's SOA (RFC 2308).
    fn negative(&mut self, zone: &'z Zone) -> Result<At, ArenaFull> {
        self.writer.start(zone.apex(), Base::Above);
        self.start_of_authority(zone).ok();
        self.add(zone.apex(), 0, NOERROR, [0, 1, 0], None)
    }

    /// Writes the SOA with the TTL of negative answers: the lesser of the SOA's TTL and its MINIMUM
    /// field (RFC 2308, section 5).
    fn start_of_authority(&mut self, zone: &'z Zone) -> Result<(), TooLong> {
        let Some(soa) = zone.apex_name().and_then(|apex| apex.rrset(SOA)) else {
            return Ok(());
        };
        let Some(data) = soa.data().next() else {
            return Ok(());
        };
        let minimum = data
            .last_chunk()
            .map_or(0, |last| u32::from_be_bytes(*last));
        let ttl = soa.ttl().min(minimum);
        self.writer.record(zone.apex(), SOA, ttl, data)
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

    /// Writes the addresses that our zones hold for `rrset`'s targets, as far as they fit a UDP
    /// message. Returns the number of records written. `present` lists the address RRsets already
    /// in the message, so that they are not repeated.
    fn additional(&mut self, rrset: RrsetRef<'_>, present: &mut Vec<(Vec<u8>, u16)>) -> u16 {
        let mut count = 0;
        let rtype = rrset.rtype();
        for target in rrset.data().filter_map(|data| rtype::target(rtype, data)) {
            for addresses in self.zones.addresses(target) {
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

    /// Describes the required part of a tail: the first `len` bytes. `additional` is the number of
    /// optional records after this part. Returns `None` if there are no optional records.
    fn required(len: usize, additional: u16) -> Option<Required> {
        (additional > 0).then_some(Required { len, additional: 0 })
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
        self.answer_behind(0, name.owner(), name.owner(), rrset)
    }

    /// Adds the answer to a question for `qname`. The answer section ends with `rrset`, which
    /// belongs to `owner`. `links` is the number of alias records that the writer already holds.
    fn answer_behind(
        &mut self,
        links: u16,
        qname: &[u8],
        owner: &[u8],
        rrset: RrsetRef<'z>,
    ) -> Result<At, ArenaFull> {
        // The loader has checked that a message can hold this RRset alone. The RRset is left out if
        // the aliases before it leave too little room.
        let count = self.rrset(owner, rrset).unwrap_or(0);
        let len = self.writer.bytes().len();
        let additional = self.additional(rrset, &mut Vec::new());
        self.add(
            qname,
            rrset.rtype(),
            NOERROR,
            [links + count, 0, additional],
            Self::required(len, additional),
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
        self.start_of_authority(cut.zone()).ok();
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
            for addresses in glue(cut.zone(), server) {
                let entry = (server.to_ascii_lowercase(), addresses.rtype());
                if !present.contains(&entry) {
                    glue_count += self.rrset(server, addresses).unwrap_or(0);
                    present.push(entry);
                }
            }
        }
        let len = self.writer.bytes().len();
        // Sibling glue and addresses from our own zones follow, and may be left out (RFC 9471,
        // section 3.2).
        let mut further = 0;
        for server in servers.data() {
            for addresses in glue(cut.zone(), server) {
                further += self.addresses(server, addresses, &mut present);
            }
            for addresses in self.zones.addresses(server) {
                further += self.addresses(server, addresses, &mut present);
            }
        }
        let required = (further > 0).then_some(Required {
            len,
            additional: glue_count,
        });
        ([0, authority, glue_count + further], required)
    }

    /// Adds nodes for `name` and its ancestors, up to the first that exists in the zone or already
    /// has a node. A hook answers for `name` or for all names below it.
    fn hooked(&mut self, name: &'z [u8]) -> Result<(), ArenaFull> {
        let Some(zone) = self.zones.zone_of(name) else {
            return Ok(());
        };
        let mut next = Some(name);
        while let Some(name) = next
            && !zone.exists_name(name)
            && self.fillers.insert(name.to_vec())
        {
            let node = Node {
                negative: self.negative(zone)?,
                ..Node::bare(Kind::Plain)
            };
            self.out.add_node(name, &node)?;
            next = name::parent(name);
        }
        Ok(())
    }

    /// Adds the apex of a zone that could not be loaded. Queries for names in that zone get
    /// SERVFAIL.
    fn broken(&mut self, apex: &[u8]) -> Result<(), ArenaFull> {
        self.out.add_node(apex, &Node::bare(Kind::Broken))
    }

    /// Adds the answer to a question for DS at the apex of a zone whose parent zone could not be
    /// loaded. The answer is SERVFAIL, because only the parent zone has the DS records (RFC 4035,
    /// section 3.1.4.1).
    fn missing_signer(&mut self, zone: &Zone) -> Result<At, ArenaFull> {
        let meta = Meta {
            qtype: DS,
            rcode: SERVFAIL,
            authoritative: false,
            counts: [0; 3],
        };
        self.out.add_answer(zone.apex(), meta, &[], None, &[])
    }

    /// Adds the missing nodes for the ancestors of a zone's apex. The search for the closest
    /// encloser requires all ancestors of an indexed name to be in the index.
    fn fill_above(&mut self, apex: &'z [u8]) -> Result<(), ArenaFull> {
        let mut ancestor = apex;
        while let Some(parent) = name::parent(ancestor) {
            ancestor = parent;
            let mut node = Node::bare(Kind::Outside);
            match self.zones.locate(ancestor) {
                Location::Name(_) | Location::EmptyNonTerminal(_) => continue,
                Location::Cut(cut) if name::eq(cut.owner(), ancestor) => continue,
                _ if !self.fillers.insert(ancestor.to_ascii_lowercase()) => continue,
                Location::Outside => {}
                Location::Broken => node.kind = Kind::Broken,
                Location::Cut(cut) => {
                    node.kind = Kind::Cut;
                    node.default = self.referral(cut)?;
                }
                Location::Wildcard(name) | Location::Dname(name) => {
                    node.kind = Kind::Plain;
                    node.negative = self.negative(name.zone())?;
                }
                Location::NxDomain(zone) => {
                    node.kind = Kind::Plain;
                    node.negative = self.negative(zone)?;
                }
            }
            self.out.add_node(ancestor, &node)?;
        }
        Ok(())
    }
}
