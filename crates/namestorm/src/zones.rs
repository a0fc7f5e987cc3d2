//! All zones together: where a name belongs, for whoever follows aliases and
//! looks for addresses while answers are prepared.

use std::collections::HashMap;

use crate::hooked::HookedNames;
use crate::name::{self, Name, NameError};
use crate::rtype;
use crate::zone::{NameRef, NameStatus, RrsetRef, Zone};

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
    /// It lies in a zone of ours that could not be loaded.
    Broken,
}

/// What we have of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// Its data: an index into the list of zones.
    Whole(usize),
    /// Its name alone.
    Broken,
}

/// Why a hook cannot answer for a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HookNameError {
    /// It is no name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// It lies in none of the zones.
    #[error(
        "{0} lies in none of the zones: give a zone for it, which may hold its SOA and NS alone"
    )]
    Outside(Name),
    /// It lies at or below a cut.
    #[error("{0} lies in a delegated zone: take the delegation out, or hook the zone's own server")]
    Delegated(Name),
    /// It lies below a DNAME.
    #[error("{0} lies below a DNAME, which stands for it: hook the name that it leads to")]
    Substituted(Name),
}

/// A set of zones, no two of the same name.
#[derive(Debug)]
pub struct Zones {
    list: Vec<Zone>,
    /// Apexes of zones that could not be loaded, in lower case.
    broken: Vec<Vec<u8>>,
    /// By apex in lower case.
    by_apex: HashMap<Vec<u8>, Held>,
    /// For each zone, the apexes of the zones right below it, broken ones
    /// too.
    children: Vec<Vec<Vec<u8>>>,
    hooked: HookedNames,
}

impl Zones {
    /// Joins `zones`.
    ///
    /// # Errors
    /// The index of a zone that has the name of an earlier one.
    pub fn new(zones: Vec<Zone>) -> Result<Self, usize> {
        Self::with_broken(zones, Vec::new())
    }

    /// Joins `zones`. Of the zones with the names in `broken` no data is
    /// there, but their names are known: queries get SERVFAIL. A name that is
    /// among `zones` too counts as theirs.
    ///
    /// # Errors
    /// The index of a zone that has the name of an earlier one.
    pub fn with_broken(zones: Vec<Zone>, broken: Vec<Vec<u8>>) -> Result<Self, usize> {
        let mut by_apex = HashMap::new();
        for (index, zone) in zones.iter().enumerate() {
            let apex = zone.apex().to_ascii_lowercase();
            if by_apex.insert(apex, Held::Whole(index)).is_some() {
                return Err(index);
            }
        }
        let mut this = Self {
            children: vec![Vec::new(); zones.len()],
            list: zones,
            broken: Vec::new(),
            by_apex,
            hooked: HookedNames::default(),
        };
        for mut apex in broken {
            apex.make_ascii_lowercase();
            if !this.by_apex.contains_key(&apex) {
                this.by_apex.insert(apex.clone(), Held::Broken);
                this.broken.push(apex);
            }
        }
        let apexes = this.list.iter().map(|zone| zone.apex().to_vec());
        let apexes: Vec<_> = apexes.chain(this.broken.iter().cloned()).collect();
        for apex in apexes {
            let above = name::parent(&apex).and_then(|parent| this.held_for(parent));
            if let Some(Held::Whole(above)) = above {
                this.children[above].push(apex);
            }
        }
        Ok(this)
    }

    /// Registers a name that a [`Hook`](crate::Hook) answers for: `time.example.org`, or
    /// all names below one with `*.dyn.example.org`.
    ///
    /// The name exists from now on, whether the zone has records of it or not, so that
    /// no wildcard stands for it. Aliases that lead to it are not followed: the client
    /// asks for it itself. Of a zone that could not be loaded no hook is asked.
    ///
    /// # Errors
    /// See [`HookNameError`].
    pub fn hook(&mut self, name: &str) -> Result<(), HookNameError> {
        let name: Name = name.parse()?;
        let wire = name.as_wire();
        let is_wildcard = name::is_wildcard(wire);
        let base = if is_wildcard {
            &wire[name::WILDCARD.len()..]
        } else {
            wire
        };
        match self.locate(base) {
            Found::Outside => return Err(HookNameError::Outside(name)),
            Found::Cut(_) => return Err(HookNameError::Delegated(name)),
            Found::Dname(_) => return Err(HookNameError::Substituted(name)),
            _ if is_wildcard => self.hooked.add_below(base),
            _ => self.hooked.add(base),
        }
        Ok(())
    }

    /// The names that a hook answers for.
    pub(crate) fn hooked(&self) -> &HookedNames {
        &self.hooked
    }

    /// Each zone, with the apexes of our zones that lie right below it.
    pub(crate) fn with_children(&self) -> impl Iterator<Item = (&Zone, &[Vec<u8>])> {
        let children = self.children.iter().map(Vec::as_slice);
        self.list.iter().zip(children)
    }

    /// The apexes of the zones that could not be loaded, in lower case.
    pub(crate) fn broken(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.broken.iter().map(Vec::as_slice)
    }

    /// Whether the zone of ours right above `apex` could not be loaded.
    pub(crate) fn is_below_broken(&self, apex: &[u8]) -> bool {
        let above = name::parent(apex).and_then(|parent| self.held_for(parent));
        above == Some(Held::Broken)
    }

    /// The zones.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Zone> {
        self.list.iter()
    }

    /// The zone of ours that `name` lies in: the one with the longest name.
    /// None when that one could not be loaded.
    pub fn zone_of(&self, name: &[u8]) -> Option<&Zone> {
        match self.held_for(name)? {
            Held::Whole(index) => Some(&self.list[index]),
            Held::Broken => None,
        }
    }

    /// What we have of the zone that `name` lies in.
    fn held_for(&self, name: &[u8]) -> Option<Held> {
        let lower = name.to_ascii_lowercase();
        let mut starts = name::label_starts(name).chain([name.len() - 1]);
        starts.find_map(|start| self.by_apex.get(&lower[start..]).copied())
    }

    /// What is known of `name`.
    pub fn locate(&self, name: &[u8]) -> Found<'_> {
        let zone = match self.held_for(name) {
            None => return Found::Outside,
            Some(Held::Broken) => return Found::Broken,
            Some(Held::Whole(index)) => &self.list[index],
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
            if found.standing() == NameStatus::Cut {
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
    pub(crate) fn cut_at(&self, name: &[u8]) -> Option<NameRef<'_>> {
        let zone = self.zone_of(name::parent(name)?)?;
        let mut key = Vec::new();
        name::append_sort_key(&mut key, name, zone.apex());
        let found = zone.find(&key).ok()?;
        (found.standing() == NameStatus::Cut).then_some(found)
    }

    /// The addresses of `name`, from our own data or from glue; none of a name that a
    /// hook answers for.
    pub fn addresses(&self, name: &[u8]) -> impl Iterator<Item = RrsetRef<'_>> {
        let is_hooked = self.hooked.of(name).itself();
        let zone = self.zone_of(name).filter(|_| !is_hooked);
        let found = zone.and_then(|zone| addresses_in(zone, name));
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
    (found.standing() != NameStatus::BelowDname).then_some(found)
}
