//! Signatures of DNS messages with a shared secret (TSIG, RFC 8945), made and taken off independently of the
//! server.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// The secret of the key.
pub const SECRET: &[u8] = b"secret";
/// The key in the form of a file of keys. Its name is `known.`
pub const KEY_FILE: &str = "key known { algorithm hmac-sha256; secret \"c2VjcmV0\"; };\n";
/// The name of the key in wire format.
pub const NAME: &[u8] = b"\x05known\0";
/// The name of the algorithm in wire format.
const ALGORITHM: &[u8] = b"\x0bhmac-sha256\0";
/// Class and TTL of each TSIG record.
const CLASS_AND_TTL: &[u8] = &[0, 255, 0, 0, 0, 0];
/// Error and length of the other data at the end of a query's record.
pub const NO_ERROR: &[u8] = &[0; 4];

/// What a message is signed with. By default, it signs right.
#[derive(Clone, Debug)]
pub struct Signature {
    /// The name of the key in wire format.
    pub key: Vec<u8>,
    /// Seconds since 1970.
    pub time: u64,
    /// Length of the code, in bytes. A code has 32.
    pub mac_len: usize,
    /// The error in the record.
    pub error: u16,
}

impl Signature {
    /// Creates a signature of this time, in seconds since 1970.
    pub fn at(time: u64) -> Self {
        Self {
            key: b"\x05KNOWN\0".to_vec(),
            time,
            mac_len: 32,
            error: 0,
        }
    }

    /// Returns time and fudge, as they are in the record.
    pub fn timers(&self) -> Vec<u8> {
        [&self.time.to_be_bytes()[2..], &[1, 44]].concat()
    }

    /// Returns the signed query, and the code.
    ///
    /// # Panics
    /// Panics if the message is shorter than a header.
    pub fn sign(&self, message: &[u8]) -> (Vec<u8>, Vec<u8>) {
        self.sign_after(&[], message)
    }

    /// Returns the signed reply to a query with this code.
    ///
    /// # Panics
    /// Panics if the message is shorter than a header.
    pub fn sign_reply(&self, query_mac: &[u8], message: &[u8]) -> Vec<u8> {
        self.sign_after(query_mac, message).0
    }

    fn sign_after(&self, before: &[u8], message: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (timers, key) = (self.timers(), self.key.to_ascii_lowercase());
        let end = [&self.error.to_be_bytes()[..], &[0; 2]].concat();
        let mut mac = code_of(before, message, &key, &timers, &end);
        mac.resize(self.mac_len, 0);
        let mut signed = message.to_vec();
        signed[11] = signed[11].wrapping_add(1);
        signed.extend(&self.key);
        signed.extend([0, 250]);
        signed.extend(CLASS_AND_TTL);
        let len = ALGORITHM.len() + timers.len() + 2 + mac.len() + 2 + end.len();
        signed.extend((len as u16).to_be_bytes());
        signed.extend(ALGORITHM);
        signed.extend(&timers);
        signed.extend((mac.len() as u16).to_be_bytes());
        signed.extend(&mac);
        signed.extend(&message[..2]);
        signed.extend(&end);
        (signed, mac)
    }
}

/// Takes the TSIG record of the key `known.` off a message. Returns the rest, and time with fudge, code, and
/// error with the other data.
///
/// # Panics
/// Panics if there is no such record, or if its ID is not that of the message.
pub fn take_off(message: &[u8]) -> (Vec<u8>, [Vec<u8>; 3]) {
    let start = [NAME, &[0, 250], CLASS_AND_TTL].concat();
    let at = message
        .windows(start.len())
        .rposition(|window| window == start);
    let at = at.expect("the message is signed");
    let data = &message[at + start.len() + 2 + ALGORITHM.len()..];
    let mac_len = usize::from(u16::from_be_bytes([data[8], data[9]]));
    let (timers, mac, end) = (&data[..8], &data[10..][..mac_len], &data[10 + mac_len..]);
    assert_eq!(end[..2], message[..2], "the original ID");
    let mut rest = message[..at].to_vec();
    rest[11] -= 1;
    (rest, [timers.to_vec(), mac.to_vec(), end[2..].to_vec()])
}

/// Returns the code of the key's signature of a message, with what follows in the record. `before` is the
/// code of the query if the message is a reply, and empty if it is a query.
pub fn code_of(before: &[u8], message: &[u8], key: &[u8], timers: &[u8], end: &[u8]) -> Vec<u8> {
    let len = (before.len() as u16).to_be_bytes();
    let len = if before.is_empty() { &[][..] } else { &len };
    code(&[
        len,
        before,
        message,
        key,
        CLASS_AND_TTL,
        ALGORITHM,
        timers,
        end,
    ])
}

/// Returns the code of the concatenation of `parts`.
///
/// # Panics
/// Never, because a secret may have any length.
fn code(parts: &[&[u8]]) -> Vec<u8> {
    let mut code = Hmac::<Sha256>::new_from_slice(SECRET).expect("a secret of any length");
    for part in parts {
        code.update(part);
    }
    code.finalize().into_bytes().to_vec()
}
