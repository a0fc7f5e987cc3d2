//! Finds the proofs that an answer of a signed zone needs (RFC 4035, section 3.1.3; RFC 5155, section
//! 7.2). They show that a name or type does not exist, or that no closer name than a wildcard does.

use crate::answers::{Answer, Denial, Hashes, Kind, NONE, Node, Resolution, Search, ZoneAnswers};
use crate::index::At;
use crate::key::Key;
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
        // The answer is that of a wildcard.
        (Kind::Plain | Kind::Alias, _) => {
            proofs.no_closer(start, node, is_no_data);
            let wildcard = search.wildcard().bytes();
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
                if let Some(encloser) = self.above(start) {
                    self.no_closer_by_hash(hashes, encloser, true);
                }
            }
        }
    }

    /// Adds the NSEC record that covers the ancestor of the name at offset `start`.
    fn covered(&mut self, start: usize) {
        if let Denial::Nsec(names) = self.denial {
            self.sort_key.clear();
            let apex_len = self.zone.apex_len();
            let apex = &self.name[self.name.len() - apex_len..];
            name::append_sort_key(self.sort_key, &self.name[start..], apex);
            self.push(names.covering(self.sort_key).unwrap_or(NONE));
        }
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

    /// Like [`no_closer`](Self::no_closer). If the encloser has no NSEC3 record, the closest ancestor
    /// that has one takes its place (RFC 5155, section 7.2.1).
    fn no_closer_by_hash(
        &mut self,
        hashes: &Hashes,
        encloser: (usize, Node),
        is_needed: bool,
    ) -> Node {
        let (mut start, mut encloser) = encloser;
        while encloser.proofs.name == NONE
            && let Some(above) = self.above(start)
        {
            (start, encloser) = above;
        }
        if is_needed {
            self.push(encloser.proofs.name);
        }
        let next_closer = name::label_starts(self.name).take_while(|label| *label < start);
        if let Some(next_closer) = next_closer.last() {
            let hash = hashes.params().hash(&self.name[next_closer..]);
            self.push(hashes.covering(&hash).unwrap_or(NONE));
        }
        encloser
    }

    /// Returns the offset and the node of the name directly above the one at offset `start`. Returns
    /// `None` above the apex.
    fn above(&self, start: usize) -> Option<(usize, Node)> {
        let above = start + 1 + usize::from(*self.name.get(start)?);
        let is_within = above + self.zone.apex_len() <= self.name.len();
        let node = is_within.then(|| self.zone.node(self.key.suffix(above)));
        Some((above, node.flatten()?))
    }
}
