//! Prepares the answers for aliases. Chains of CNAME and DNAME records are followed through all our
//! zones (RFC 1034, section 4.3.2, step 3a).

use super::{Compiler, NOERROR};
use crate::answers::{Kind, Node};
use crate::index::{ArenaFull, At};
use crate::name;
use crate::rtype::{CNAME, DNAME, DS};
use crate::tail::MAX_CHAIN;
use crate::zone::{NameRef, RrsetRef, Zone};
use crate::zones::Location;

const NXDOMAIN: u8 = 3;
const YXDOMAIN: u8 = 6;

/// A chain of aliases, from its first name to its end.
struct Chain<'z> {
    /// The chain's CNAME and DNAME records, in the order of the answer.
    links: Vec<Link>,
    /// Number of CNAME records among the links.
    steps: usize,
    /// The name at the end of the chain.
    name: Vec<u8>,
    end: End<'z>,
}

/// A CNAME or DNAME record of the chain.
struct Link {
    owner: Vec<u8>,
    rtype: u16,
    ttl: u32,
    data: Vec<u8>,
}

/// How the chain ends.
enum End<'z> {
    /// The name has records, but no CNAME.
    Name(NameRef<'z>),
    /// The name is an empty non-terminal in this zone.
    NoData(&'z Zone),
    /// The name does not exist in this zone.
    NxDomain(&'z Zone),
    /// The name is at or below this zone cut.
    Referral(NameRef<'z>),
    /// A DNAME substitution makes the name too long.
    TooLong,
    /// The chain loops or may loop, has more than [`MAX_CHAIN`] steps, or leads to a name that is
    /// hooked or that we cannot answer for. The client must query the last name separately. Another
    /// server may answer for that name, even if it is in a zone that we could not load.
    Open,
}

impl<'z> Compiler<'z> {
    /// Adds the answers for an alias. There is one for each RRset of the alias or of its target, one
    /// to ANY, and one for all other types. DS has its own answer if the target is at a zone cut.
    pub(super) fn alias(&mut self, name: NameRef<'z>, mut node: Node) -> Result<Node, ArenaFull> {
        node.kind = Kind::Alias;
        node.any = self.own_answers(name)?;
        let owner = name.owner();
        let chain = self.follow(name);
        // The DS RRset at a zone cut is in the parent zone (RFC 4035, section 3.1.4.1).
        let cut = self.zones.cut_at(&chain.name);
        if let Some(cut) = cut {
            self.signer_of_target(owner, &chain, cut)?;
        } else if self.zones.is_below_broken(&chain.name) {
            // The DS records are in the parent zone, which we could not load. The client must query
            // the target separately.
            let links = self.links(owner, &chain);
            self.add(owner, DS, NOERROR, [links, 0, 0], None)?;
        }
        if let End::Name(target) = chain.end {
            let types = target
                .rrsets()
                .filter(|set| name.rrset(set.rtype()).is_none())
                .filter(|set| set.rtype() != DS || cut.is_none());
            for rrset in types {
                self.answer_of_target(owner, &chain, rrset)?;
            }
        }
        node.default = self.other_types(owner, &chain)?;
        Ok(node)
    }

    /// Adds the answer that holds the chain and one RRset of its last name.
    fn answer_of_target(
        &mut self,
        owner: &[u8],
        chain: &Chain<'z>,
        rrset: RrsetRef<'z>,
    ) -> Result<At, ArenaFull> {
        let links = self.links(owner, chain);
        // If the chain already holds this DNAME record, the record is not repeated.
        if rrset.rtype() == DNAME && chain.has_dname(&chain.name) {
            return self.add(owner, DNAME, NOERROR, [links, 0, 0], None);
        }
        self.answer_behind(links, owner, &chain.name, rrset)
    }

    /// Adds the answer to a question for DS if the chain ends at a zone cut: the parent's DS
    /// records, or NODATA.
    fn signer_of_target(
        &mut self,
        owner: &[u8],
        chain: &Chain<'z>,
        cut: NameRef<'z>,
    ) -> Result<At, ArenaFull> {
        if let Some(signers) = cut.rrset(DS) {
            return self.answer_of_target(owner, chain, signers);
        }
        let links = self.links(owner, chain);
        let authority = self.authority(cut.zone());
        self.add(owner, DS, NOERROR, [links, authority, 0], None)
    }

    /// Adds the answer of an alias for all types that have no prepared answer.
    fn other_types(&mut self, owner: &[u8], chain: &Chain<'z>) -> Result<At, ArenaFull> {
        let links = self.links(owner, chain);
        let (rcode, authority, additional, required) = match chain.end {
            End::Name(target) => (NOERROR, self.authority(target.zone()), 0, None),
            End::NoData(zone) => (NOERROR, self.authority(zone), 0, None),
            // The response code describes the end of the chain (RFC 6604, section 3).
            End::NxDomain(zone) => (NXDOMAIN, self.authority(zone), 0, None),
            End::Referral(cut) => {
                let ([_, authority, additional], required) = self.delegation(cut);
                (NOERROR, authority, additional, required)
            }
            End::TooLong => (YXDOMAIN, 0, 0, None),
            End::Open => (NOERROR, 0, 0, None),
        };
        self.add(owner, 0, rcode, [links, authority, additional], required)
    }

    /// Writes the SOA of a zone if there is room. Returns the number of records written.
    fn authority(&mut self, zone: &'z Zone) -> u16 {
        let mark = self.writer.mark();
        if self.start_of_authority(zone).is_ok() {
            return 1;
        }
        self.writer.rewind(mark);
        0
    }

    /// Starts an answer for `owner` and writes the records of its chain, as far as they fit.
    /// Returns the number of records written.
    fn links(&mut self, owner: &[u8], chain: &Chain<'z>) -> u16 {
        self.start(owner);
        let mut count = 0;
        for link in &chain.links {
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
    fn follow(&self, alias: NameRef<'z>) -> Chain<'z> {
        let mut chain = Chain {
            links: Vec::new(),
            steps: 0,
            name: alias.owner().to_vec(),
            end: End::Open,
        };
        let mut found = Location::Name(alias);
        loop {
            match chain.step(found, alias) {
                // A hook answers for this name, so the client must query the name separately.
                Ok(()) if self.zones.hooked().of(&chain.name).itself() => return chain,
                Ok(()) => found = self.zones.locate(&chain.name),
                Err(end) => {
                    chain.end = end;
                    return chain;
                }
            }
        }
    }
}

impl<'z> Chain<'z> {
    /// Follows the chain by one step. `found` is the result of looking up the chain's current name;
    /// `alias` is the chain's first name.
    ///
    /// # Errors
    ///
    /// Returns how the chain ends if it cannot be followed further.
    fn step(&mut self, found: Location<'z>, alias: NameRef<'z>) -> Result<(), End<'z>> {
        let (ttl, target) = match found {
            Location::Name(name) | Location::Wildcard(name) if name.rrset(CNAME).is_none() => {
                return Err(End::Name(name));
            }
            Location::EmptyNonTerminal(zone) => return Err(End::NoData(zone)),
            Location::NxDomain(zone) => return Err(End::NxDomain(zone)),
            Location::Cut(cut) => return Err(End::Referral(cut)),
            Location::Outside | Location::Broken => return Err(End::Open),
            _ if self.steps == MAX_CHAIN => return Err(End::Open),
            // The chain has returned to the wildcard at which it began. The qname may be the
            // current name, so the chain may be a loop.
            Location::Wildcard(name) if name.is(alias) => return Err(End::Open),
            Location::Name(name) | Location::Wildcard(name) => {
                let (ttl, target) = only_record(name, CNAME);
                (ttl, target.to_vec())
            }
            Location::Dname(dname) => {
                let (ttl, to) = self.dname(dname);
                let prefix_len = self.name.len() - dname.owner().len();
                (ttl, [&self.name[..prefix_len], to].concat())
            }
        };
        if target.len() > name::MAX_NAME {
            return Err(End::TooLong);
        }
        self.steps += 1;
        self.links.push(Link {
            owner: std::mem::replace(&mut self.name, target.clone()),
            rtype: CNAME,
            ttl,
            data: target,
        });
        let mut aliases = self.links.iter().filter(|link| link.rtype == CNAME);
        if aliases.any(|link| name::eq(&link.owner, &self.name)) {
            return Err(End::Open);
        }
        Ok(())
    }

    /// Adds a DNAME record, unless the chain already holds it. An answer must not repeat a record
    /// (RFC 2181, section 5). Returns the record's TTL and target. The synthesized CNAME takes over
    /// the TTL (RFC 6672, section 3.1).
    fn dname(&mut self, dname: NameRef<'z>) -> (u32, &'z [u8]) {
        let (ttl, to) = only_record(dname, DNAME);
        if !self.has_dname(dname.owner()) {
            self.links.push(Link {
                owner: dname.owner().to_vec(),
                rtype: DNAME,
                ttl,
                data: to.to_vec(),
            });
        }
        (ttl, to)
    }

    fn has_dname(&self, owner: &[u8]) -> bool {
        let mut dnames = self.links.iter().filter(|link| link.rtype == DNAME);
        dnames.any(|link| name::eq(&link.owner, owner))
    }
}

/// Returns the TTL and data of a name's only record of type `rtype`, which is CNAME or DNAME.
fn only_record(name: NameRef<'_>, rtype: u16) -> (u32, &[u8]) {
    let rrset = name.rrset(rtype);
    let record = rrset.and_then(|rrset| Some((rrset.ttl(), rrset.data().next()?)));
    record.unwrap_or((0, name::ROOT))
}
