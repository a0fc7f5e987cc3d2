//! The set of all zones. The targets of aliases, and the addresses for the additional section, are
//! looked up across all zones.

use std::collections::HashMap;

use crate::answers::Answers;
use crate::groups::GroupLabels;
use crate::hooked::HookedNames;
use crate::name::{self, Name, NameError};
use crate::rtype;
use crate::zone::{NameRef, NameStatus, RrsetRef, Zone};

/// The result of looking up a name in all our zones (RFC 1034, section 4.3.2).
#[derive(Clone, Copy, Debug)]
pub enum Location<'z> {
    /// The name is outside our zones.
    Outside,
    /// The name has records.
    Name(NameRef<'z>),
    /// The name, or the wildcard that it matches, has no records, but names below it have.
    EmptyNonTerminal(&'z Zone),
    /// The name is at or below this zone cut.
    Cut(NameRef<'z>),
    /// The name is below this owner of a DNAME record.
    Dname(NameRef<'z>),
    /// The name does not exist, but matches this wildcard.
    Wildcard(NameRef<'z>),
    /// The name belongs to this zone, but does not exist and matches no wildcard.
    NxDomain(&'z Zone),
    /// The name is in one of our zones that could not be loaded.
    Broken,
}

/// What the server stores for a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ZoneState {
    /// The zone was loaded. The payload is the zone's index in [`Zones::list`].
    Loaded(usize),
    /// The zone could not be loaded; only its name is known.
    Broken,
}

/// Why a hook cannot answer for a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HookNameError {
    /// The text is not a domain name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The name is outside all zones.
    #[error(
        "{0} lies in none of the zones: give a zone for it, which needs only SOA and NS records"
    )]
    Outside(Name),
    /// The name is at or below a zone cut.
    #[error(
        "{0} lies in a delegated zone: remove the delegation, or use a hook in the zone's own server"
    )]
    Delegated(Name),
    /// The name is below a DNAME.
    #[error("{0} lies below a DNAME: hook the name that the DNAME leads to")]
    Substituted(Name),
}

/// A set of zones with distinct names.
#[derive(Debug)]
pub struct Zones {
    list: Vec<Zone>,
    /// Apexes of zones that could not be loaded, in lower case.
    broken: Vec<Vec<u8>>,
    /// Maps the apex of each zone, in lower case, to what the server stores for the zone.
    by_apex: HashMap<Vec<u8>, ZoneState>,
    /// For each zone, the apexes of our zones directly below it, including zones that could not be
    /// loaded.
    children: Vec<Vec<Vec<u8>>>,
    hooked: HookedNames,
    /// The labels of the groups of earlier zones.
    group_labels: GroupLabels,
}

impl Zones {
    /// Combines `zones` into a set.
    ///
    /// # Errors
    ///
    /// Returns the index of a zone that has the same name as an earlier zone.
    pub fn new(zones: Vec<Zone>) -> Result<Self, usize> {
        Self::with_broken(zones, Vec::new())
    }

    /// Combines `zones` into a set. Queries for names in the zones named in `broken` get SERVFAIL.
    /// A name in `broken` is ignored if `zones` has that zone.
    ///
    /// # Errors
    ///
    /// Returns the index of a zone that has the same name as an earlier zone.
    pub fn with_broken(zones: Vec<Zone>, broken: Vec<Vec<u8>>) -> Result<Self, usize> {
        let mut by_apex = HashMap::new();
        for (index, zone) in zones.iter().enumerate() {
            let apex = zone.apex().to_ascii_lowercase();
            if by_apex.insert(apex, ZoneState::Loaded(index)).is_some() {
                return Err(index);
            }
        }
        let mut this = Self {
            children: vec![Vec::new(); zones.len()],
            list: zones,
            broken: Vec::new(),
            by_apex,
            hooked: HookedNames::default(),
            group_labels: GroupLabels::default(),
        };
        for mut apex in broken {
            apex.make_ascii_lowercase();
            if !this.by_apex.contains_key(&apex) {
                this.by_apex.insert(apex.clone(), ZoneState::Broken);
                this.broken.push(apex);
            }
        }
        let apexes = this.list.iter().map(|zone| zone.apex().to_vec());
        let apexes: Vec<_> = apexes.chain(this.broken.iter().cloned()).collect();
        for apex in apexes {
            let above = name::parent(&apex).and_then(|parent| this.enclosing_zone(parent));
            if let Some(ZoneState::Loaded(above)) = above {
                this.children[above].push(apex);
            }
        }
        Ok(this)
    }

    /// Registers names for a [`Hook`](crate::Hook) to answer for. `time.example.org` registers one
    /// name; `*.dyn.example.org` registers all names below `dyn.example.org`.
    ///
    /// A registered name exists even if the zone has no records for the name. Wildcards therefore
    /// do not match the name. Aliases are not followed to a registered name: the client must query
    /// that name separately. Queries for names in a zone that could not be loaded never reach the
    /// hook.
    ///
    /// # Errors
    ///
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
            Location::Outside => return Err(HookNameError::Outside(name)),
            Location::Cut(_) => return Err(HookNameError::Delegated(name)),
            Location::Dname(_) => return Err(HookNameError::Substituted(name)),
            _ if is_wildcard => self.hooked.add_below(base),
            _ => self.hooked.add(base),
        }
        Ok(())
    }

    /// Lets groups keep the numbers that they have in `earlier`.
    pub(crate) fn keep_groups_of(&mut self, earlier: &Answers) {
        self.group_labels = earlier.groups().labels().clone();
    }

    /// Returns the labels of the groups of earlier zones.
    pub(crate) fn group_labels(&self) -> &GroupLabels {
        &self.group_labels
    }

    /// Returns the names that a hook answers for.
    pub(crate) fn hooked(&self) -> &HookedNames {
        &self.hooked
    }

    /// Returns each zone with the apexes of our zones directly below it.
    pub(crate) fn with_children(&self) -> impl Iterator<Item = (&Zone, &[Vec<u8>])> {
        let children = self.children.iter().map(Vec::as_slice);
        self.list.iter().zip(children)
    }

    /// Returns the apexes of the zones that could not be loaded, in lower case.
    pub(crate) fn broken(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.broken.iter().map(Vec::as_slice)
    }

    /// Returns true if the closest of our zones above `apex` could not be loaded.
    pub(crate) fn is_below_broken(&self, apex: &[u8]) -> bool {
        let above = name::parent(apex).and_then(|parent| self.enclosing_zone(parent));
        above == Some(ZoneState::Broken)
    }

    /// Returns the zones.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Zone> {
        self.list.iter()
    }

    /// Returns our zone that contains `name`, which is the zone with the longest matching apex.
    /// Returns `None` if there is no such zone or if it could not be loaded.
    pub fn zone_of(&self, name: &[u8]) -> Option<&Zone> {
        match self.enclosing_zone(name)? {
            ZoneState::Loaded(index) => Some(&self.list[index]),
            ZoneState::Broken => None,
        }
    }

    /// Returns what the server stores for our zone that contains `name`, or `None` if there is no
    /// such zone.
    fn enclosing_zone(&self, name: &[u8]) -> Option<ZoneState> {
        let lower = name.to_ascii_lowercase();
        let mut starts = name::label_starts(name).chain([name.len() - 1]);
        starts.find_map(|start| self.by_apex.get(&lower[start..]).copied())
    }

    /// Looks up `name` in all our zones.
    pub fn locate(&self, name: &[u8]) -> Location<'_> {
        let zone = match self.enclosing_zone(name) {
            None => return Location::Outside,
            Some(ZoneState::Broken) => return Location::Broken,
            Some(ZoneState::Loaded(index)) => &self.list[index],
        };
        let mut key = Vec::new();
        name::append_sort_key(&mut key, name, zone.apex());
        // Walk down from the apex, label by label, until a cut or DNAME. An ancestor's sort key is
        // the part of `key` up to the end of one of its labels.
        let mut encloser = 0;
        let ends = key.iter().enumerate().filter(|(_, byte)| **byte == 0);
        for end in std::iter::once(0).chain(ends.map(|(at, _)| at + 1)) {
            if !zone.exists(&key[..end]) {
                let mut wildcard = key[..encloser].to_vec();
                wildcard.extend(b"*\0");
                return match zone.find(&wildcard) {
                    Ok(found) => Location::Wildcard(found),
                    // The wildcard itself is an empty non-terminal, so the answer is NODATA (RFC
                    // 4592, section 4.9).
                    Err(_) if zone.exists(&wildcard) => Location::EmptyNonTerminal(zone),
                    Err(_) => Location::NxDomain(zone),
                };
            }
            encloser = end;
            let Ok(found) = zone.find(&key[..end]) else {
                continue;
            };
            if found.status() == NameStatus::Cut {
                return Location::Cut(found);
            }
            if end == key.len() {
                return Location::Name(found);
            }
            if found.rrset(rtype::DNAME).is_some() {
                return Location::Dname(found);
            }
        }
        Location::EmptyNonTerminal(zone)
    }

    /// Returns the zone cut at `name` in the parent zone, which holds the DS records (RFC 4035,
    /// section 3.1.4.1). The delegated zone may also be ours.
    pub(crate) fn cut_at(&self, name: &[u8]) -> Option<NameRef<'_>> {
        let zone = self.zone_of(name::parent(name)?)?;
        let mut key = Vec::new();
        name::append_sort_key(&mut key, name, zone.apex());
        let found = zone.find(&key).ok()?;
        (found.status() == NameStatus::Cut).then_some(found)
    }

    /// Returns the address RRsets of `name`, which may be authoritative data or glue. Returns no
    /// RRsets if a hook answers for the name.
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

/// Returns the address RRsets of `name` in `zone`, including glue.
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
    (found.status() != NameStatus::BelowDname).then_some(found)
}
