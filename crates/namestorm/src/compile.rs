//! Preparing the answers: every name and type of every zone becomes the part
//! of a message behind its question, once.
//!
//! What goes into an answer:
//!
//! - The RRset that is asked for, or the chain of aliases to it through all
//!   our zones (RFC 1034, section 4.3.2, step 3a).
//! - Authority: the SOA where there is no answer (RFC 2308), the name servers
//!   of a delegation. A positive answer does not repeat the zone's name
//!   servers: no resolver needs them there, and the answer stays small.
//! - Additional: addresses of name servers, mail exchanges and services that
//!   are in our zones, as long as they fit a UDP answer. The glue that a
//!   delegation needs is never left out (RFC 9471).
//! - ANY: all RRsets of the name (RFC 8482 allows less; we have them ready,
//!   and what is long goes over TCP).

mod alias;

use std::collections::HashSet;

use crate::answers::{Answers, AnswersBuilder, Kind, Meta, NONE, Node, Required};
use crate::edns::{MAX_UDP_MESSAGE, OPT_LEN};
use crate::index::{ArenaFull, At};
use crate::key::Form;
use crate::name;
use crate::rtype::{self, CNAME, DNAME, DS, NS, SOA};
use crate::tail::{Base, TailWriter, TooLong};
use crate::zone::{NameRef, NameStatus, RrsetRef, Zone};
use crate::zones::{Found, Zones, glue};

/// Names between two calls of a progress function.
pub(crate) const PROGRESS_STEP: usize = 250_000;

const NOERROR: u8 = 0;
const SERVFAIL: u8 = 2;

/// Prepares the answers of `zones`, with names in the given form and hashes
/// keyed by `seed`. `progress` is told how many names are done, every
/// 250,000 of them.
///
/// # Errors
/// When the answers need more than 32 GiB.
pub fn compile(
    zones: &Zones,
    form: Form,
    seed: [u64; 4],
    progress: &mut dyn FnMut(usize),
) -> Result<Answers, ArenaFull> {
    let mut compiler = Compiler {
        zones,
        out: AnswersBuilder::new(form, seed, zones.hooked().clone()),
        writer: TailWriter::new(),
        fillers: zones.broken().map(<[u8]>::to_vec).collect(),
    };
    let mut done = 0;
    for (zone, children) in zones.with_children() {
        let mut pass = Pass::new(&mut compiler, zone, children)?;
        for name in zone.names() {
            pass.name(name)?;
            done += 1;
            if done % PROGRESS_STEP == 0 {
                progress(done);
            }
        }
    }
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
    /// Names outside our zones' data that are known already, in lower case.
    fillers: HashSet<Vec<u8>>,
}

/// The pass over one zone's names.
struct Pass<'c, 'z> {
    compiler: &'c mut Compiler<'z>,
    zone: &'z Zone,
    negative: At,
    /// Keys of names that have a wildcard right below them.
    wildcard_parents: HashSet<&'z [u8]>,
    /// Keys of our zones right below this one, sorted.
    children: Vec<Vec<u8>>,
    /// The key of the last name that made its ancestors known.
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
        if matches!(
            name.standing(),
            NameStatus::BelowCut | NameStatus::BelowDname
        ) {
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
            // The name is the other zone's, but for what the parent's side of
            // the cut says (RFC 4035, section 3.1.4.1).
            if limit == key.len() && name.standing() == NameStatus::Cut {
                self.compiler.delegation_signer(name)?;
            }
            return Ok(());
        }
        let node = Node {
            has_wildcard: self.wildcard_parents.contains(key),
            negative: self.negative,
            ..Node::bare(Kind::Plain)
        };
        let node = match name.standing() {
            NameStatus::Cut => self.compiler.cut(name, node)?,
            _ if name.rrset(CNAME).is_some() => self.compiler.alias(name, node)?,
            _ => self.compiler.plain(name, node)?,
        };
        self.compiler.out.add_node(name.owner(), &node)
    }

    /// Makes the ancestors of `name` known that hold no records, as far as
    /// no earlier name has: empty non-terminals (RFC 4592, section 2.2.2).
    fn ancestors(&mut self, name: NameRef<'z>, limit: usize) -> Result<(), ArenaFull> {
        let key = name.key();
        let ends = key[..limit].iter().enumerate();
        let ends: Vec<_> = ends
            .filter(|(_, byte)| **byte == 0)
            .map(|(at, _)| at + 1)
            .collect();
        // The name's own key ends at its length; those of its ancestors before.
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

/// The keys of those ancestors of a name that have a wildcard right below
/// them, the name itself or one above it.
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

/// The ancestor of `name` that has `labels` more labels than `apex`.
fn ancestor_of<'a>(name: &'a [u8], apex: &[u8], labels: usize) -> &'a [u8] {
    let below = name.len() - apex.len();
    let starts: Vec<_> = name::label_starts(name)
        .take_while(|start| *start < below)
        .collect();
    &name[starts[starts.len() - labels]..]
}

impl<'z> Compiler<'z> {
    /// The SOA of a zone, for answers that there is nothing (RFC 2308).
    fn negative(&mut self, zone: &'z Zone) -> Result<At, ArenaFull> {
        self.writer.start(zone.apex(), Base::Above);
        self.start_of_authority(zone).ok();
        self.add(zone.apex(), 0, NOERROR, [0, 1, 0], None)
    }

    /// Writes the SOA with the TTL of negative answers: the lesser of its own
    /// and its last field (RFC 2308, section 5).
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

    /// Adds what the writer holds.
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

    /// Writes an RRset whose owner is written `owner`; all of it or nothing.
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

    /// Writes the addresses of the targets of `rrset`, as long as the message
    /// fits UDP; those in `present` are there already.
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

    /// Writes one more RRset of addresses, if it is not there yet and fits.
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

    /// What must be sent, when `additional` records behind it may be left out.
    fn required(len: usize, additional: u16) -> Option<Required> {
        (additional > 0).then_some(Required { len, additional: 0 })
    }

    /// The answers of a name that is neither an alias nor a cut.
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

    /// The answers with one RRset of a name each, and with all of them, whose
    /// place it gives.
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

    /// The answer with one RRset, found by its type.
    fn answer(&mut self, name: NameRef<'z>, rrset: RrsetRef<'z>) -> Result<At, ArenaFull> {
        self.start(name.owner());
        self.answer_behind(0, name.owner(), name.owner(), rrset)
    }

    /// The answer to a question for `qname` with an RRset of `owner` behind
    /// the `links` records that the writer holds.
    fn answer_behind(
        &mut self,
        links: u16,
        qname: &[u8],
        owner: &[u8],
        rrset: RrsetRef<'z>,
    ) -> Result<At, ArenaFull> {
        // That an RRset fits a message by itself has been checked.
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

    /// The answer with all RRsets of a name; those that do not fit one
    /// message together are left out (RFC 8482, section 4.1).
    fn any(&mut self, name: NameRef<'z>) -> Result<At, ArenaFull> {
        self.start(name.owner());
        let counts = name.rrsets().map(|rrset| self.rrset(name.owner(), rrset));
        let count = counts.map(|count| count.unwrap_or(0)).sum();
        self.add(name.owner(), 0, NOERROR, [count, 0, 0], None)
    }

    /// The top of a delegated zone.
    fn cut(&mut self, name: NameRef<'z>, mut node: Node) -> Result<Node, ArenaFull> {
        self.delegation_signer(name)?;
        node.kind = Kind::Cut;
        node.default = self.referral(name)?;
        Ok(node)
    }

    /// The parent's answer for DS at a cut: its records, or that there are
    /// none (RFC 4035, section 3.1.4.1).
    fn delegation_signer(&mut self, cut: NameRef<'z>) -> Result<At, ArenaFull> {
        if let Some(signers) = cut.rrset(DS) {
            return self.answer(cut, signers);
        }
        self.writer.start(cut.owner(), Base::Exact);
        self.start_of_authority(cut.zone()).ok();
        self.add(cut.owner(), DS, NOERROR, [0, 1, 0], None)
    }

    /// The referral to a delegated zone (RFC 1034, section 4.3.2, step 3b).
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

    /// Writes the name servers of a delegation and their addresses.
    fn delegation(&mut self, cut: NameRef<'z>) -> ([u16; 3], Option<Required>) {
        let Some(servers) = cut.rrset(NS) else {
            return ([0; 3], None);
        };
        let authority = self.rrset(cut.owner(), servers).unwrap_or(0);
        let mut present = Vec::new();
        let mut glue_count = 0;
        // What the resolver cannot find out otherwise comes first, and is
        // not left out (RFC 9471, section 3.1).
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
        // Sibling glue and what else we know (RFC 9471, section 3.2).
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

    /// Makes a name known that a hook answers for, or names right below it, and the
    /// names above it.
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

    /// Makes a zone known that could not be loaded: what lies in it gets
    /// SERVFAIL.
    fn broken(&mut self, apex: &[u8]) -> Result<(), ArenaFull> {
        self.out.add_node(apex, &Node::bare(Kind::Broken))
    }

    /// The answer for DS at a zone whose parent is ours and broken: only the
    /// parent knows (RFC 4035, section 3.1.4.1).
    fn missing_signer(&mut self, zone: &Zone) -> Result<At, ArenaFull> {
        let meta = Meta {
            qtype: DS,
            rcode: SERVFAIL,
            authoritative: false,
            counts: [0; 3],
        };
        self.out.add_answer(zone.apex(), meta, &[], None, &[])
    }

    /// Makes the names above a zone known, so that the ancestors of every
    /// known name are known: the look-up of what a name lies below depends on
    /// it.
    fn fill_above(&mut self, apex: &'z [u8]) -> Result<(), ArenaFull> {
        let mut above = apex;
        while let Some(parent) = name::parent(above) {
            above = parent;
            let mut node = Node::bare(Kind::Outside);
            match self.zones.locate(above) {
                Found::Name(_) | Found::EmptyNonTerminal(_) => continue,
                Found::Cut(cut) if name::eq(cut.owner(), above) => continue,
                _ if !self.fillers.insert(above.to_ascii_lowercase()) => continue,
                Found::Outside => {}
                Found::Broken => node.kind = Kind::Broken,
                Found::Cut(cut) => {
                    node.kind = Kind::Cut;
                    node.default = self.referral(cut)?;
                }
                Found::Wildcard(name) | Found::Dname(name) => {
                    node.kind = Kind::Plain;
                    node.negative = self.negative(name.zone())?;
                }
                Found::Nothing(zone) => {
                    node.kind = Kind::Plain;
                    node.negative = self.negative(zone)?;
                }
            }
            self.out.add_node(above, &node)?;
        }
        Ok(())
    }
}
