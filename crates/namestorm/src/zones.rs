//! All zones together: where a name belongs, for whoever follows aliases and
//! looks for addresses while answers are prepared.

use std::collections::HashMap;

use crate::name;
use crate::rtype;
use crate::zone::{NameRef, RrsetRef, Standing, Zone};

/// What our zones know of a name (RFC 1034, section 4.3.2).
#[derive(Clone, Copy, Debug)]
pub enum Found<'z> {
    /// It lies in none of our zones.
    Outside,
    /// It has records.
    Name(NameRef<'z>),
    /// It has none, but names below it have.
    EmptyNonTerminal(&'z Zone),
    /// It lies at or below this cut.
    Cut(NameRef<'z>),
    /// It lies below this DNAME.
    Dname(NameRef<'z>),
    /// It does not exist, and this wildcard stands for it.
    Wildcard(NameRef<'z>),
    /// It does not exist.
    Nothing(&'z Zone),
}

/// A set of zones, no two of the same name.
#[derive(Debug)]
pub struct Zones {
    list: Vec<Zone>,
    by_apex: HashMap<Vec<u8>, usize>,
    /// For each zone, the zones right below it.
    children: Vec<Vec<usize>>,
}

impl Zones {
    /// Joins `zones`.
    ///
    /// # Errors
    /// The index of a zone that has the name of an earlier one.
    pub fn new(zones: Vec<Zone>) -> Result<Self, usize> {
        let mut by_apex = HashMap::new();
        for (index, zone) in zones.iter().enumerate() {
            let apex = zone.apex().to_ascii_lowercase();
            if by_apex.insert(apex, index).is_some() {
                return Err(index);
            }
        }
        let mut this = Self {
            children: vec![Vec::new(); zones.len()],
            list: zones,
            by_apex,
        };
        for index in 0..this.list.len() {
            let parent = name::parent(this.list[index].apex());
            if let Some(above) = parent.and_then(|parent| this.index_of(parent)) {
                this.children[above].push(index);
            }
        }
        Ok(this)
    }

    /// Each zone, with those of our zones that lie right below it.
    pub fn with_children(&self) -> impl Iterator<Item = (&Zone, impl Iterator<Item = &Zone>)> {
        let pairs = self.list.iter().zip(&self.children);
        pairs.map(|(zone, children)| (zone, children.iter().map(|index| &self.list[*index])))
    }

    /// The zones.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Zone> {
        self.list.iter()
    }

    /// The zone of ours that `name` lies in: the one with the longest name.
    pub fn zone_of(&self, name: &[u8]) -> Option<&Zone> {
        self.index_of(name).map(|index| &self.list[index])
    }

    fn index_of(&self, name: &[u8]) -> Option<usize> {
        let lower = name.to_ascii_lowercase();
        let mut starts = name::label_starts(name).chain([name.len() - 1]);
        starts.find_map(|start| self.by_apex.get(&lower[start..]).copied())
    }

    /// What is known of `name`.
    pub fn locate(&self, name: &[u8]) -> Found<'_> {
        let Some(zone) = self.zone_of(name) else {
            return Found::Outside;
        };
        let mut key = Vec::new();
        name::append_sort_key(&mut key, name, zone.apex());
        // From the apex down: each key of an ancestor ends behind a label.
        let mut encloser = 0;
        let ends = key.iter().enumerate().filter(|(_, byte)| **byte == 0);
        for end in std::iter::once(0).chain(ends.map(|(at, _)| at + 1)) {
            if !zone.exists(&key[..end]) {
                let mut wildcard = key[..encloser].to_vec();
                wildcard.extend(b"*\0");
                return match zone.find(&wildcard) {
                    Ok(found) => Found::Wildcard(found),
                    // RFC 4592, section 4.9.
                    Err(_) if zone.exists(&wildcard) => Found::EmptyNonTerminal(zone),
                    Err(_) => Found::Nothing(zone),
                };
            }
            encloser = end;
            let Ok(found) = zone.find(&key[..end]) else {
                continue;
            };
            if found.standing() == Standing::Cut {
                return Found::Cut(found);
            }
            if end == key.len() {
                return Found::Name(found);
            }
            if found.rrset(rtype::DNAME).is_some() {
                return Found::Dname(found);
            }
        }
        Found::EmptyNonTerminal(zone)
    }

    /// The cut at `name` in the zone above it, where DS records belong
    /// (RFC 4035, section 3.1.4.1). The delegated zone may be ours too.
    pub fn cut_at(&self, name: &[u8]) -> Option<NameRef<'_>> {
        let zone = self.zone_of(name::parent(name)?)?;
        let mut key = Vec::new();
        name::append_sort_key(&mut key, name, zone.apex());
        let found = zone.find(&key).ok()?;
        (found.standing() == Standing::Cut).then_some(found)
    }

    /// The addresses of `name`, from our own data or from glue.
    pub fn addresses(&self, name: &[u8]) -> impl Iterator<Item = RrsetRef<'_>> {
        let found = self.zone_of(name).and_then(|zone| addresses_in(zone, name));
        found
            .into_iter()
            .flat_map(NameRef::rrsets)
            .filter(is_address)
    }
}

/// The addresses of `name` that `zone` holds, glue included.
pub(crate) fn glue<'z>(zone: &'z Zone, name: &[u8]) -> impl Iterator<Item = RrsetRef<'z>> {
    let found = addresses_in(zone, name);
    found
        .into_iter()
        .flat_map(NameRef::rrsets)
        .filter(is_address)
}

fn is_address(rrset: &RrsetRef<'_>) -> bool {
    matches!(rrset.rtype(), rtype::A | rtype::AAAA)
}

fn addresses_in<'z>(zone: &'z Zone, name: &[u8]) -> Option<NameRef<'z>> {
    if !name::is_within(name, zone.apex()) {
        return None;
    }
    let mut key = Vec::new();
    name::append_sort_key(&mut key, name, zone.apex());
    let found = zone.find(&key).ok()?;
    (found.standing() != Standing::BelowDname).then_some(found)
}
