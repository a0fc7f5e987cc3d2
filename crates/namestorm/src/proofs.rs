//! Finds the proofs that an answer of a signed zone needs (RFC 4035, section 3.1.3; RFC 5155, section
//! 7.2). They show that a name or type does not exist, or that no closer name than a wildcard does.

use crate::answers::{
    Answer, Denial, Foreseen, Hashes, Kind, NONE, Node, Resolution, Search, ZoneAnswers,
};
use crate::index::At;
use crate::key::{Key, Keyed};
use crate::name;

/// Calls `add` with each record that proves `resolution`, which `search` has found for `name` in `zone`.
/// `key` is the key of the name, and `sort_key` is scratch space. Does nothing if the zone is not
/// signed.
pub(crate) fn find<'z>(
    zone: &'z ZoneAnswers,
    (name, key): (&[u8], &Key),
    resolution: &Resolution<'z>,
    search: &Search,
    sort_key: &mut Vec<u8>,
    add: impl FnMut(Answer<'z>),
) {
    let (Some(denial), Some((start, node))) = (zone.denial(), search.found()) else {
        return;
    };
    let mut proofs = Finder {
        zone,
        denial,
        name,
        key,
        foreseen: search.foreseen,
        sort_key,
        add,
    };
    let is_no_data = matches!(resolution, Resolution::NoData(_));
    match (node.kind, resolution) {
        // A referral holds the DS records of its cut.
        (Kind::Cut, _) if !node.has_signers => proofs.types(start, &node),
        _ if start == 0 && is_no_data => proofs.types(start, &node),
        _ if start == 0 => {}
        (Kind::Cut | Kind::Dname, _) => {}
        (Kind::Plain | Kind::Alias, Resolution::NxDomain(_)) => {
            let encloser = proofs.no_closer(start, node, true);
            proofs.push(encloser.proofs.no_wildcard);
        }
        // The answer comes from a wildcard.
        (Kind::Plain | Kind::Alias, _) => {
            proofs.no_closer(start, node, is_no_data);
            let wildcard = search.wildcard();
            if is_no_data && let Some(node) = zone.node(wildcard) {
                proofs.push(node.proofs.name);
            }
        }
    }
}

struct Finder<'s, 'z, F> {
    zone: &'z ZoneAnswers,
    denial: &'z Denial,
    name: &'s [u8],
    key: &'s Key,
    foreseen: Foreseen,
    sort_key: &'s mut Vec<u8>,
    add: F,
}

impl<'z, F: FnMut(Answer<'z>)> Finder<'_, 'z, F> {
    /// Adds the proof at this position, unless it is [`NONE`].
    #[inline(always)]
    fn push(&mut self, at: At) {
        if at != NONE {
            (self.add)(self.zone.answer(at));
        }
    }

    /// Proves that the ancestor of the name at offset `start`, whose node is `node`, does not have the
    /// type asked for.
    fn types(&mut self, start: usize, node: &Node) {
        match self.denial {
            _ if node.proofs.name != NONE => self.push(node.proofs.name),
            Denial::Nsec(_) => self.covered(start),
            // The name was left out of the chain (RFC 5155, section 7.2.4).
            Denial::Nsec3(hashes) => {
                if let Some(encloser) = above(self.zone, (self.name, self.key), start) {
                    self.no_closer_by_hash(hashes, encloser, true);
                }
            }
        }
    }

    /// Adds the NSEC record that covers the ancestor of the name at offset `start`.
    fn covered(&mut self, start: usize) {
        let Denial::Nsec(names) = self.denial else {
            return;
        };
        let at = if let Some(at) = self.foreseen(start) {
            at
        } else {
            self.sort_key.clear();
            self.zone
                .append_sort_key(self.sort_key, &self.name[start..]);
            names.covering(self.sort_key).unwrap_or(NONE)
        };
        self.push(at);
    }

    /// Returns the record that covers the ancestor of the name at offset `start`, if it was found in
    /// advance.
    fn foreseen(&self, start: usize) -> Option<At> {
        let (known, at) = self.foreseen.covering?;
        (known == start).then_some(at)
    }

    /// Proves that no name between the name and its closest encloser exists. The encloser is at offset
    /// `start`. With NSEC3, also proves that the encloser exists, if `is_needed` is set. Returns the
    /// node of the encloser that is proven.
    fn no_closer(&mut self, start: usize, encloser: Node, is_needed: bool) -> Node {
        match self.denial {
            Denial::Nsec(_) => {
                self.covered(0);
                encloser
            }
            Denial::Nsec3(hashes) => self.no_closer_by_hash(hashes, (start, encloser), is_needed),
        }
    }

    /// Like [`no_closer`](Self::no_closer).
    fn no_closer_by_hash(
        &mut self,
        hashes: &Hashes,
        encloser: (usize, Node),
        is_needed: bool,
    ) -> Node {
        let (start, encloser) = proven(self.zone, (self.name, self.key), encloser);
        if is_needed {
            self.push(encloser.proofs.name);
        }
        if let Some(next_closer) = next_closer(self.name, start) {
            let (params, form) = (hashes.params(), self.zone.hashing().form());
            let hash = || params.hash_ancestor(form, (self.name, self.key), next_closer);
            let at = self.foreseen(next_closer);
            self.push(at.or_else(|| hashes.covering(&hash())).unwrap_or(NONE));
        }
        encloser
    }
}

/// Returns the offset and the node of the name directly above the one at offset `start`. Returns `None`
/// above the apex.
fn above(zone: &ZoneAnswers, (name, key): Keyed<'_>, start: usize) -> Option<(usize, Node)> {
    let above = start + 1 + usize::from(*name.get(start)?);
    let is_within = above + zone.apex_len() <= name.len();
    let node = is_within.then(|| zone.ancestor(key.suffix(above)));
    Some((above, node.flatten()?))
}

/// Returns the closest encloser, or else the closest ancestor of it that has an NSEC3 record (RFC 5155,
/// section 7.2.1).
fn proven(zone: &ZoneAnswers, name: Keyed<'_>, encloser: (usize, Node)) -> (usize, Node) {
    let (mut start, mut encloser) = encloser;
    while encloser.proofs.name == NONE
        && let Some(found) = above(zone, name, start)
    {
        (start, encloser) = found;
    }
    (start, encloser)
}

/// Returns the offset of the name that is one label longer than the encloser at offset `start`.
fn next_closer(name: &[u8], start: usize) -> Option<usize> {
    name::label_starts(name)
        .take_while(|label| *label < start)
        .last()
}

/// Returns the offset of the part of a name that a record must cover in the answer, if there is one.
/// `found` is the name's closest encloser in the zone: its offset, and its node.
pub(crate) fn uncovered(
    zone: &ZoneAnswers,
    name: Keyed<'_>,
    found: (usize, Node),
) -> Option<usize> {
    let (start, node) = found;
    let is_listed = node.proofs.name != NONE;
    // Whether the record is about the types of the encloser, or about names below it.
    let about_types = match node.kind {
        Kind::Cut if node.has_signers || is_listed => return None,
        Kind::Cut => true,
        _ if start == 0 && is_listed => return None,
        _ if start == 0 => true,
        Kind::Dname => return None,
        Kind::Plain | Kind::Alias => false,
    };
    match zone.denial()? {
        Denial::Nsec(_) => Some(if about_types { start } else { 0 }),
        Denial::Nsec3(_) => {
            let encloser = if about_types {
                above(zone, name, start)?
            } else {
                found
            };
            next_closer(name.0, proven(zone, name, encloser).0)
        }
    }
}
