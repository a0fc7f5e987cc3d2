//! Keys, and the message authentication codes made with them.

use std::fmt;

use arrayvec::ArrayVec;
use hmac::{Hmac, KeyInit};
use sha1::Sha1;
use sha2::{Sha224, Sha256, Sha384, Sha512};

use crate::name::Name;
use crate::tail::FIELDS;

/// Length of the data of a TSIG record without its names, its code and other data, in bytes.
pub(super) const FIXED_DATA: usize = 6 + 2 + 2 + 2 + 2 + 2;
/// Length of the longest code, in bytes.
pub(super) const MAX_MAC: usize = 64;

/// A message authentication code.
pub(super) type Mac = ArrayVec<u8, MAX_MAC>;

/// How codes are made (RFC 8945, section 6). Names have the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

/// All algorithms, with their names.
const ALGORITHMS: [(Algorithm, &str, &[u8]); 5] = [
    (Algorithm::Sha1, "hmac-sha1", b"\x09hmac-sha1\0"),
    (Algorithm::Sha224, "hmac-sha224", b"\x0bhmac-sha224\0"),
    (Algorithm::Sha256, "hmac-sha256", b"\x0bhmac-sha256\0"),
    (Algorithm::Sha384, "hmac-sha384", b"\x0bhmac-sha384\0"),
    (Algorithm::Sha512, "hmac-sha512", b"\x0bhmac-sha512\0"),
];

/// A secret that the server shares with some clients.
#[derive(Clone)]
pub(crate) struct Key {
    /// In lower case.
    name: Box<[u8]>,
    algorithm: Algorithm,
    secret: Box<[u8]>,
}

impl Key {
    /// Creates a key. Returns `None` if there is no algorithm of this name.
    pub(super) fn new(name: &Name, algorithm: &str, secret: &[u8]) -> Option<Self> {
        let known = |(_, text, _): &&(_, &str, _)| algorithm.eq_ignore_ascii_case(text);
        let (algorithm, ..) = ALGORITHMS.iter().find(known)?;
        Some(Self {
            name: name.as_wire().to_ascii_lowercase().into(),
            algorithm: *algorithm,
            secret: secret.into(),
        })
    }

    /// Returns true if there is an algorithm of this name.
    pub(super) fn has_algorithm(name: &str) -> bool {
        let mut all = ALGORITHMS.iter();
        all.any(|(_, text, _)| text.eq_ignore_ascii_case(name))
    }

    /// Returns the names of all algorithms, for messages.
    pub(super) fn algorithms() -> String {
        ALGORITHMS.map(|(_, text, _)| text).join(", ")
    }

    /// Returns the name in wire format and lower case.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the name of the algorithm in wire format and lower case.
    pub(super) fn algorithm(&self) -> &'static [u8] {
        let of_this = ALGORITHMS.iter().find(|(it, ..)| *it == self.algorithm);
        of_this.map_or(&[0], |(.., wire)| wire)
    }

    /// Returns the length of a whole code, in bytes.
    pub(super) fn mac_len(&self) -> usize {
        match self.algorithm {
            Algorithm::Sha1 => 20,
            Algorithm::Sha224 => 28,
            Algorithm::Sha256 => 32,
            Algorithm::Sha384 => 48,
            Algorithm::Sha512 => 64,
        }
    }

    /// Returns the length of a TSIG record with this key and without other data, in bytes.
    pub(crate) fn signature_len(&self) -> usize {
        self.name.len() + FIELDS + self.algorithm().len() + FIXED_DATA + self.mac_len()
    }

    /// Returns the code of the concatenation of `parts`.
    pub(super) fn mac(&self, parts: &[&[u8]]) -> Mac {
        match self.algorithm {
            Algorithm::Sha1 => code::<Hmac<Sha1>>(&self.secret, parts),
            Algorithm::Sha224 => code::<Hmac<Sha224>>(&self.secret, parts),
            Algorithm::Sha256 => code::<Hmac<Sha256>>(&self.secret, parts),
            Algorithm::Sha384 => code::<Hmac<Sha384>>(&self.secret, parts),
            Algorithm::Sha512 => code::<Hmac<Sha512>>(&self.secret, parts),
        }
    }

    /// Returns true if the code of the concatenation of `parts` begins with `mac`. The time that it takes
    /// says nothing about the right code.
    pub(super) fn verifies(&self, parts: &[&[u8]], mac: &[u8]) -> bool {
        match self.algorithm {
            Algorithm::Sha1 => is_code::<Hmac<Sha1>>(&self.secret, parts, mac),
            Algorithm::Sha224 => is_code::<Hmac<Sha224>>(&self.secret, parts, mac),
            Algorithm::Sha256 => is_code::<Hmac<Sha256>>(&self.secret, parts, mac),
            Algorithm::Sha384 => is_code::<Hmac<Sha384>>(&self.secret, parts, mac),
            Algorithm::Sha512 => is_code::<Hmac<Sha512>>(&self.secret, parts, mac),
        }
    }
}

/// Does not show the secret.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = crate::name::Shown(&self.name);
        f.debug_tuple("Key")
            .field(&name)
            .field(&self.algorithm)
            .finish()
    }
}

/// Starts a code with this secret, and adds all parts.
fn start<M: hmac::Mac + KeyInit>(secret: &[u8], parts: &[&[u8]]) -> M {
    let mut code = <M as KeyInit>::new_from_slice(secret).expect("a secret may have any length");
    for part in parts {
        code.update(part);
    }
    code
}

fn code<M: hmac::Mac + KeyInit>(secret: &[u8], parts: &[&[u8]]) -> Mac {
    let code = start::<M>(secret, parts).finalize().into_bytes();
    code.iter().copied().collect()
}

fn is_code<M: hmac::Mac + KeyInit>(secret: &[u8], parts: &[&[u8]], mac: &[u8]) -> bool {
    start::<M>(secret, parts).verify_truncated_left(mac).is_ok()
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;

    use super::*;

    /// Checks test case 2 of RFC 2202 and RFC 4231.
    #[test]
    fn codes_are_those_of_the_rfcs() {
        let of = |algorithm: &str| {
            let key = Key::new(&"k".parse().unwrap(), algorithm, b"Jefe").unwrap();
            let parts: [&[u8]; 2] = [b"what do ya want ", b"for nothing?"];
            let mac = key.mac(&parts);
            assert!(key.verifies(&parts, &mac));
            assert!(!key.verifies(&parts[..1], &mac));
            assert!(key.verifies(&parts, &mac[..10]));
            assert!(!key.verifies(&parts, &mac[1..]));
            assert_eq!(mac.len(), key.mac_len());
            assert!(!key.verifies(&parts, b""));
            let text = key.algorithm();
            assert!(
                algorithm
                    .as_bytes()
                    .eq_ignore_ascii_case(&text[1..text.len() - 1])
            );
            HEXLOWER.encode(&mac)
        };
        assert_eq!(of("HMAC-SHA1"), "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
        assert!(of("hmac-sha224").starts_with("a30e01098bc6dbbf45690f3a7e9e6d0f"));
        assert!(of("hmac-sha256").starts_with("5bdcc146bf60754e6a042426089575c7"));
        assert!(of("hmac-sha384").starts_with("af45d2e376484031617f78d2b58a6b1b"));
        assert!(of("hmac-sha512").starts_with("164b7a7bfcf819e2e395fbe73b56e0a3"));
        assert!(Key::new(&"k".parse().unwrap(), "hmac-md5", b"x").is_none());
    }

    #[test]
    fn the_secret_is_not_shown() {
        let key = Key::new(&"K.Example".parse().unwrap(), "hmac-sha256", b"Jefe").unwrap();
        assert_eq!(format!("{key:?}"), "Key(k.example., Sha256)");
    }
}
