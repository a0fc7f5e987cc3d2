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

use std::collections::HashSet;

use crate::answers::{Answers, AnswersBuilder, Kind, Meta, NONE, Node, Required};
use crate::edns::{MAX_UDP_MESSAGE, OPT_LEN};
use crate::index::{ArenaFull, At};
use crate::key::Form;
use crate::name;
use crate::rtype::{self, CNAME, DNAME, DS, NS, SOA};
use crate::tail::{Base, TailWriter, TooLong};
use crate::zone::{NameRef, RrsetRef, Standing, Zone};
use crate::zones::{Found, Zones, glue};

/// Aliases followed in one answer; a resolver follows the rest.
pub(crate) const MAX_CHAIN: usize = 16;
/// Names between two calls of a progress function.
pub(crate) const PROGRESS_STEP: usize = 250_000;

const NOERROR: u8 = 0;
const NXDOMAIN: u8 = 3;
const YXDOMAIN: u8 = 6;

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
        out: AnswersBuilder::new(form, seed),
        writer: TailWriter::new(),
        fillers: HashSet::new(),
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
    for zone in zones.iter() {
        compiler.fill_above(zone)?;
    }
    let records = zones.iter().map(Zone::record_count).sum();
    Ok(compiler.out.finish(zones.iter().len(), records))
}

struct Compiler<'z> {
    zones: &'z Zones,
    out: AnswersBuilder,
    writer: TailWriter,
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
        children: impl Iterator<Item = &'z Zone>,
    ) -> Result<Self, ArenaFull> {
        let negative = compiler.negative(zone)?;
        let wildcard_parents = zone
            .names()
            .flat_map(|name| wildcard_parents(name.key()))
            .collect();
        let mut children: Vec<_> = children
            .map(|child| {
                let mut key = Vec::new();
                name::append_sort_key(&mut key, child.apex(), zone.apex());
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
        if matches!(name.standing(), Standing::BelowCut | Standing::BelowDname) {
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
            if limit == key.len() && name.standing() == Standing::Cut {
                self.compiler.delegation_signer(name)?;
            }
            return Ok(());
        }
        let node = Node {
            kind: Kind::Plain,
            has_wildcard: self.wildcard_parents.contains(key),
            negative: self.negative,
            any: NONE,
            default: NONE,
        };
        let node = match name.standing() {
            Standing::Cut => self.compiler.cut(name, node)?,
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
                kind: Kind::Plain,
                has_wildcard: self.wildcard_parents.contains(ancestor),
                negative: self.negative,
                any: NONE,
                default: NONE,
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

/// Where a chain of aliases ends.
enum End<'z> {
    /// At a name with records, which is written like this.
    Name(NameRef<'z>, Vec<u8>),
    NoData(&'z Zone),
    NxDomain(&'z Zone),
    Referral(NameRef<'z>),
    /// At a substitution that makes a name too long.
    TooLong,
    /// Where we know no more.
    Open,
}

/// A record of a chain.
struct Link {
    owner: Vec<u8>,
    rtype: u16,
    ttl: u32,
    data: Vec<u8>,
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
        for rrset in name.rrsets() {
            let at = self.answer(name, rrset)?;
            if name.rrsets().len() == 1 {
                node.any = at;
            }
        }
        if name.rrsets().len() > 1 {
            node.any = self.any(name)?;
        }
        if let Some(dname) = name.rrset(DNAME) {
            node.kind = Kind::Dname;
            self.writer.start(name.owner(), Base::Above);
            let count = self.rrset(name.owner(), dname).unwrap_or(0);
            node.default = self.add(name.owner(), 0, NOERROR, [count, 0, 0], None)?;
        }
        Ok(node)
    }

    /// The answer with one RRset, found by its type.
    fn answer(&mut self, name: NameRef<'z>, rrset: RrsetRef<'z>) -> Result<At, ArenaFull> {
        let owner = name.owner();
        self.start(owner);
        // That an RRset fits a message has been checked.
        let count = self.rrset(owner, rrset).unwrap_or(0);
        let len = self.writer.bytes().len();
        let additional = self.additional(rrset, &mut Vec::new());
        self.add(
            owner,
            rrset.rtype(),
            NOERROR,
            [count, 0, additional],
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

    /// The answers of an alias: for each type of its target, and for all
    /// others.
    fn alias(&mut self, name: NameRef<'z>, mut node: Node) -> Result<Node, ArenaFull> {
        node.kind = Kind::Alias;
        for rrset in name.rrsets() {
            let at = self.answer(name, rrset)?;
            if name.rrsets().len() == 1 {
                node.any = at;
            }
        }
        if name.rrsets().len() > 1 {
            node.any = self.any(name)?;
        }
        let (links, end) = self.follow(name);
        let owner = name.owner();
        if let End::Name(target, written) = &end {
            let types = target
                .rrsets()
                .filter(|set| name.rrset(set.rtype()).is_none());
            for rrset in types {
                let links = self.chain(owner, &links);
                let count = self.rrset(written, rrset).unwrap_or(0);
                let len = self.writer.bytes().len();
                let additional = self.additional(rrset, &mut Vec::new());
                self.add(
                    owner,
                    rrset.rtype(),
                    NOERROR,
                    [links + count, 0, additional],
                    Self::required(len, additional),
                )?;
            }
        }
        let answer = self.chain(owner, &links);
        let (rcode, authority, additional, required) = match end {
            End::Name(target, _) => (NOERROR, self.authority(target.zone()), 0, None),
            End::NoData(zone) => (NOERROR, self.authority(zone), 0, None),
            // The code tells of the end of the chain (RFC 6604).
            End::NxDomain(zone) => (NXDOMAIN, self.authority(zone), 0, None),
            End::Referral(cut) => {
                let ([_, authority, additional], required) = self.delegation(cut);
                (NOERROR, authority, additional, required)
            }
            End::TooLong => (YXDOMAIN, 0, 0, None),
            End::Open => (NOERROR, 0, 0, None),
        };
        node.default = self.add(owner, 0, rcode, [answer, authority, additional], required)?;
        Ok(node)
    }

    fn authority(&mut self, zone: &'z Zone) -> u16 {
        let mark = self.writer.mark();
        if self.start_of_authority(zone).is_ok() {
            return 1;
        }
        self.writer.rewind(mark);
        0
    }

    /// Starts an answer for `owner` with the links of a chain.
    fn chain(&mut self, owner: &[u8], links: &[Link]) -> u16 {
        self.start(owner);
        let mut count = 0;
        for link in links {
            let mark = self.writer.mark();
            let written = self
                .writer
                .record(&link.owner, link.rtype, link.ttl, &link.data);
            if written.is_err() {
                self.writer.rewind(mark);
                break;
            }
            count += 1;
        }
        count
    }

    /// Follows an alias through all our zones.
    fn follow(&self, alias: NameRef<'z>) -> (Vec<Link>, End<'z>) {
        let mut links: Vec<Link> = Vec::new();
        let mut owner = alias.owner().to_vec();
        let mut at = alias;
        while let Some(cname) = at.rrset(CNAME) {
            let target = cname.data().next().unwrap_or(name::ROOT).to_vec();
            links.push(Link {
                owner,
                rtype: CNAME,
                ttl: cname.ttl(),
                data: target.clone(),
            });
            owner = target;
            let found = loop {
                let seen = links
                    .iter()
                    .any(|link| link.rtype == CNAME && name::eq(&link.owner, &owner));
                if seen || links.len() >= MAX_CHAIN {
                    return (links, End::Open);
                }
                match self.zones.locate(&owner) {
                    Found::Dname(dname) => {
                        let Some(target) = substitute(&mut links, &owner, dname) else {
                            return (links, End::TooLong);
                        };
                        owner = target;
                    }
                    found => break found,
                }
            };
            at = match found {
                Found::Name(name) | Found::Wildcard(name) => name,
                Found::EmptyNonTerminal(zone) => return (links, End::NoData(zone)),
                Found::Nothing(zone) => return (links, End::NxDomain(zone)),
                Found::Cut(cut) => return (links, End::Referral(cut)),
                Found::Outside | Found::Dname(_) => return (links, End::Open),
            };
        }
        (links, End::Name(at, owner))
    }

    /// Makes the names above a zone known, so that the ancestors of every
    /// known name are known: the look-up of what a name lies below depends on
    /// it.
    fn fill_above(&mut self, zone: &'z Zone) -> Result<(), ArenaFull> {
        let mut above = zone.apex();
        while let Some(parent) = name::parent(above) {
            above = parent;
            let mut node = Node {
                kind: Kind::Outside,
                has_wildcard: false,
                negative: NONE,
                any: NONE,
                default: NONE,
            };
            match self.zones.locate(above) {
                Found::Name(_) | Found::EmptyNonTerminal(_) => continue,
                Found::Cut(cut) if name::eq(cut.owner(), above) => continue,
                _ if !self.fillers.insert(above.to_ascii_lowercase()) => continue,
                Found::Outside => {}
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

/// Adds the substitution of `name`, below `dname`, to a chain: the DNAME, once
/// (RFC 2181, section 5), and the CNAME made from it (RFC 6672, section 3.1).
/// Gives the new name; `None` when that would be too long.
fn substitute(links: &mut Vec<Link>, name: &[u8], dname: NameRef<'_>) -> Option<Vec<u8>> {
    let rrset = dname.rrset(DNAME)?;
    let to = rrset.data().next()?;
    let prefix = &name[..name.len() - dname.owner().len()];
    let target = [prefix, to].concat();
    let mut dnames = links.iter().filter(|link| link.rtype == DNAME);
    if !dnames.any(|link| name::eq(&link.owner, dname.owner())) {
        links.push(Link {
            owner: dname.owner().to_vec(),
            rtype: DNAME,
            ttl: rrset.ttl(),
            data: to.to_vec(),
        });
    }
    if target.len() > name::MAX_NAME {
        return None;
    }
    links.push(Link {
        owner: name.to_vec(),
        rtype: CNAME,
        ttl: rrset.ttl(),
        data: target.clone(),
    });
    Some(target)
}
