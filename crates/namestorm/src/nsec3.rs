//! Hashed names (RFC 5155, section 5).

use sha1::{Digest as _, Sha1};

use crate::key::{self, Form, Keyed};
use crate::name::MAX_NAME;

/// Length of a hash, in bytes.
pub(crate) const HASH_LEN: usize = 20;

/// The hash of a name.
pub(crate) type NameHash = [u8; HASH_LEN];

/// The only hash algorithm: SHA-1.
pub(crate) const SHA1: u8 = 1;

/// How a zone hashes its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Params {
    /// Number of additional rounds.
    pub(crate) iterations: u16,
    pub(crate) salt: Box<[u8]>,
}

impl Params {
    /// Returns the hash of `name`, an uncompressed name of at most 255 bytes. Upper and lower case
    /// make no difference.
    #[inline(never)]
    pub(crate) fn hash(&self, name: &[u8]) -> NameHash {
        let mut lower = [0; MAX_NAME];
        let lower = &mut lower[..name.len()];
        key::lower(name, lower);
        self.hash_lower(lower)
    }

    /// Returns the hash of the ancestor at offset `start` of the name with this key.
    pub(crate) fn hash_ancestor(
        &self,
        form: Form,
        (name, key): Keyed<'_>,
        start: usize,
    ) -> NameHash {
        match form {
            Form::Wire => self.hash_lower(key.suffix(start)),
            Form::Fqdn => self.hash(&name[start..]),
        }
    }

    /// Returns the hash of a name in lower case.
    fn hash_lower(&self, name: &[u8]) -> NameHash {
        let mut hash = self.round(name);
        for _ in 0..self.iterations {
            hash = self.round(&hash);
        }
        hash
    }

    fn round(&self, input: &[u8]) -> NameHash {
        let mut hasher = Sha1::new();
        hasher.update(input);
        hasher.update(&self.salt);
        hasher.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::{BASE32HEX_NOPAD, HEXLOWER};

    use super::*;
    use crate::name;

    /// Checks the hashes of RFC 5155, appendix A.
    #[test]
    fn names_are_hashed_as_in_the_rfc() {
        let params = Params {
            iterations: 12,
            salt: HEXLOWER.decode(b"aabbccdd").unwrap().into(),
        };
        for (text, hash) in [
            ("example", "0P9MHAVEQVM6T7VBL5LOP2U3T2RP3TOM"),
            ("A.example", "35MTHGPGCU1QG68FAB165KLNSNK3DPVL"),
            ("*.w.example", "R53BQ7CC2UVMUBFU5OCMM6PERS9TK9EN"),
        ] {
            let found = params.hash(&name::parse(text).unwrap());
            assert_eq!(BASE32HEX_NOPAD.encode(&found), hash, "{text}");
        }
    }
}
