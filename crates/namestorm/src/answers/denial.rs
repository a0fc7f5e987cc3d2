//! Finds the proofs of a signed zone that a name or type does not exist.

mod hashes;
mod names;

pub(crate) use hashes::Hashes;
pub(crate) use names::{Descent, Names};

use super::node::{NONE, Proofs};
use crate::name::{MAX_NAME, WILDCARD};

/// The index of a zone's proofs: of the answers that hold its NSEC records, or its NSEC3 records.
#[derive(Debug)]
pub(crate) enum Denial {
    /// NSEC records (RFC 4034, section 4).
    Nsec(Names),
    /// NSEC3 records (RFC 5155).
    Nsec3(Hashes),
}

impl Denial {
    /// Returns the proofs of a name that exists and has this sort key.
    pub(crate) fn proofs(&self, name: &[u8], key: &[u8], has_wildcard: bool) -> Proofs {
        let has_no_room = name.len() + WILDCARD.len() > MAX_NAME;
        let lacks_wildcard = !has_wildcard && !has_no_room;
        match self {
            Self::Nsec(names) => {
                let wildcard = || names.covering(&[key, b"*\0"].concat());
                Proofs {
                    name: names.covering(key).unwrap_or(NONE),
                    no_wildcard: lacks_wildcard.then(wildcard).flatten().unwrap_or(NONE),
                }
            }
            Self::Nsec3(hashes) => {
                let hash = |name: &[u8]| hashes.params().hash(name);
                let wildcard = || hashes.covering(&hash(&[WILDCARD, name].concat()));
                Proofs {
                    name: hashes.matching(&hash(name)).unwrap_or(NONE),
                    no_wildcard: lacks_wildcard.then(wildcard).flatten().unwrap_or(NONE),
                }
            }
        }
    }

    /// Returns the size in memory, in bytes.
    pub(super) fn memory(&self) -> usize {
        match self {
            Self::Nsec(names) => names.memory(),
            Self::Nsec3(hashes) => hashes.memory(),
        }
    }
}
