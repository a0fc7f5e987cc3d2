//! A set of zones, with the names that a hook answers for.

use std::collections::HashMap;

use crate::hooked::HookedNames;
use crate::name::{self, Name, NameError};
use crate::zone::{NameStatus, Zone};

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
    hooked: HookedNames,
    keeps_records: bool,
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
            list: zones,
            broken: Vec::new(),
            by_apex,
            hooked: HookedNames::default(),
            keeps_records: false,
        };
        for mut apex in broken {
            apex.make_ascii_lowercase();
            if !this.by_apex.contains_key(&apex) {
                this.by_apex.insert(apex.clone(), ZoneState::Broken);
                this.broken.push(apex);
            }
        }
        Ok(this)
    }

    /// Keeps the records of the zones beside the prepared answers, so that the zones can be transferred
    /// to [clients](crate::TransferClients). A record takes its data, 9 bytes, and the new labels of its
    /// owner.
    pub fn keep_records(&mut self) {
        self.keeps_records = true;
    }

    /// Returns true if the records of the zones are kept.
    pub(crate) fn keeps_records(&self) -> bool {
        self.keeps_records
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
        match self.enclosing_zone(base) {
            None => return Err(HookNameError::Outside(name)),
            Some(ZoneState::Broken) => {}
            Some(ZoneState::Loaded(index)) => match self.list[index].hidden_by(base) {
                Some(NameStatus::Cut) => return Err(HookNameError::Delegated(name)),
                Some(_) => return Err(HookNameError::Substituted(name)),
                None => {}
            },
        }
        if is_wildcard {
            self.hooked.add_below(base);
        } else {
            self.hooked.add(base);
        }
        Ok(())
    }

    /// Returns the names that a hook answers for.
    pub(crate) fn hooked(&self) -> &HookedNames {
        &self.hooked
    }

    /// Returns the apexes of the zones that could not be loaded, in lower case.
    pub(crate) fn broken(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.broken.iter().map(Vec::as_slice)
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
}
