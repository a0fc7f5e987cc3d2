//! Signatures of DNS queries with a shared secret (TSIG, RFC 8945), as a client makes them.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// The secret of the key.
pub const SECRET: &[u8] = b"secret";
/// The key in the form of a file of keys. Its name is `known.`
pub const KEY_FILE: &str = "key known { algorithm hmac-sha256; secret \"c2VjcmV0\"; };\n";
/// The name of the algorithm in wire format.
pub const ALGORITHM: &[u8] = b"\x0bhmac-sha256\0";
/// Class and TTL of each TSIG record.
pub const CLASS_AND_TTL: &[u8] = &[0, 255, 0, 0, 0, 0];
/// Error and length of the other data at the end of a query's record.
pub const NO_ERROR: &[u8] = &[0; 4];

/// What a client signs with. By default, it signs right.
#[derive(Clone, Debug)]
pub struct Signature {
    /// The name of the key in wire format.
    pub key: Vec<u8>,
    /// Seconds since 1970.
    pub time: u64,
    /// Length of the code, in bytes. A code has 32.
    pub mac_len: usize,
}

impl Signature {
    /// Creates a signature of this time, in seconds since 1970.
    pub fn at(time: u64) -> Self {
        Self {
            key: b"\x05KNOWN\0".to_vec(),
            time,
            mac_len: 32,
        }
    }

    /// Returns time and fudge, as they are in the record.
    pub fn timers(&self) -> Vec<u8> {
        [&self.time.to_be_bytes()[2..], &[1, 44]].concat()
    }

    /// Returns the signed message, and the code.
    ///
    /// # Panics
    /// Panics if the message is shorter than a header.
    pub fn sign(&self, message: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (timers, key) = (self.timers(), self.key.to_ascii_lowercase());
        let mut mac = code(&[message, &key, CLASS_AND_TTL, ALGORITHM, &timers, NO_ERROR]);
        mac.resize(self.mac_len, 0);
        let mut signed = message.to_vec();
        signed[11] = signed[11].wrapping_add(1);
        signed.extend(&self.key);
        signed.extend([0, 250]);
        signed.extend(CLASS_AND_TTL);
        let len = ALGORITHM.len() + timers.len() + 2 + mac.len() + 2 + NO_ERROR.len();
        signed.extend((len as u16).to_be_bytes());
        signed.extend(ALGORITHM);
        signed.extend(&timers);
        signed.extend((mac.len() as u16).to_be_bytes());
        signed.extend(&mac);
        signed.extend(&message[..2]);
        signed.extend(NO_ERROR);
        (signed, mac)
    }
}

/// Returns the code of the concatenation of `parts`.
///
/// # Panics
/// Never, because a secret may have any length.
pub fn code(parts: &[&[u8]]) -> Vec<u8> {
    let mut code = Hmac::<Sha256>::new_from_slice(SECRET).expect("a secret of any length");
    for part in parts {
        code.update(part);
    }
    code.finalize().into_bytes().to_vec()
}
