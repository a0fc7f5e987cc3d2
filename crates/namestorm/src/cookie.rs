//! Server cookies (RFC 7873) in the form that all servers share (RFC 9018). A client that returns a
//! valid cookie has received a reply of ours at its address, so the address is not forged.

mod secret_file;

use std::fmt;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use siphasher::sip::SipHasher24;

pub(crate) use secret_file::read as read_secrets;
pub use secret_file::{CookieFileError, MAX_SECRETS};

/// Length of a client cookie, in bytes (RFC 7873, section 4.1).
const CLIENT: usize = 8;
/// Length of our server cookies, in bytes: version, reserved bytes, time and hash (RFC 9018, section
/// 4).
const SERVER: usize = 16;
/// Length of the data of the COOKIE option in a reply, in bytes.
pub(crate) const COOKIE_LEN: usize = CLIENT + SERVER;
/// Length of a secret, in bytes (RFC 9018, section 4.4).
pub const SECRET_LEN: usize = 16;
/// The version of our cookies, with hashes by SipHash-2-4.
const VERSION: u8 = 1;
/// Position of the time in the data of the COOKIE option.
const TIME_AT: usize = CLIENT + 4;
/// Position of the hash in the data of the COOKIE option.
const HASH_AT: usize = CLIENT + 8;
/// Greatest age of a valid cookie, in seconds (RFC 9018, section 4.3).
const MAX_AGE: i32 = 3_600;
/// How far the time of a valid cookie may be in the future, in seconds, because the clocks of servers
/// differ (RFC 9018, section 4.3).
const MAX_AHEAD: i32 = 300;
/// Age from which a reply has a new cookie, in seconds (RFC 9018, section 4.3).
const RENEWED_AFTER: i32 = MAX_AGE / 2;

/// Returns the time of day.
pub type WallClock = fn() -> SystemTime;

/// A server secret.
pub type Secret = [u8; SECRET_LEN];

/// What the cookie of a query proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presented {
    /// The query has only a client cookie.
    ClientOnly,
    /// The server cookie is not ours, is for another client, or is too old.
    Invalid,
    /// The client has received a cookie of ours at its address.
    Valid,
}

/// A verified cookie of a query, and the cookie of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    presented: Presented,
    reply: [u8; COOKIE_LEN],
}

impl Checked {
    /// Returns what the cookie of the query proves.
    pub(crate) fn presented(self) -> Presented {
        self.presented
    }

    /// Returns true if the query has a valid server cookie.
    pub(crate) fn is_valid(self) -> bool {
        self.presented == Presented::Valid
    }

    /// Returns the data of the COOKIE option in the reply.
    pub(crate) fn reply(self) -> [u8; COOKIE_LEN] {
        self.reply
    }
}

/// Makes and verifies server cookies. All workers of a server share this value, and all servers that
/// share an address should share the secrets.
#[derive(Clone)]
pub struct Cookies {
    /// A hash with each secret. The first makes cookies, and all of them verify cookies.
    hashes: Vec<SipHasher24>,
    clock: WallClock,
}

impl Cookies {
    /// Creates cookies with these secrets. The first makes cookies, and all of them verify cookies, so
    /// that secrets can be exchanged (RFC 9018, section 5). Without secrets, no cookie is valid.
    /// `clock` returns the time of day.
    pub fn new(secrets: &[Secret], clock: WallClock) -> Self {
        Self {
            hashes: secrets.iter().map(SipHasher24::new_with_key).collect(),
            clock,
        }
    }

    /// Returns the number of secrets.
    pub(crate) fn secrets(&self) -> usize {
        self.hashes.len()
    }

    /// Returns true if the data of a COOKIE option can have this length (RFC 7873, section 5.2.2).
    pub(crate) const fn is_valid_len(len: usize) -> bool {
        len == CLIENT || (len >= CLIENT + 8 && len <= CLIENT + 32)
    }

    /// Verifies the data of a COOKIE option from this client, and makes the data for the reply.
    /// Returns `None` if the data is too short, or if there is no secret.
    #[cold]
    #[inline(never)]
    pub(crate) fn check(&self, option: &[u8], client: IpAddr) -> Option<Checked> {
        let since_1970 = (self.clock)().duration_since(UNIX_EPOCH);
        // The 32 bits wrap around, and times are compared as serial numbers.
        let now = since_1970.map_or(0, |time| time.as_secs()) as u32;
        let (presented, is_kept) = self.verify(option, client, now);
        let mut cookie = [0; COOKIE_LEN];
        if is_kept {
            cookie.copy_from_slice(option.get(..COOKIE_LEN)?);
        } else {
            cookie[..CLIENT].copy_from_slice(option.get(..CLIENT)?);
            cookie[CLIENT] = VERSION;
            cookie[TIME_AT..HASH_AT].copy_from_slice(&now.to_be_bytes());
            let hash = hash(self.hashes.first()?, &cookie, client);
            cookie[HASH_AT..].copy_from_slice(&hash);
        }
        Some(Checked {
            presented,
            reply: cookie,
        })
    }

    /// Verifies the data of a COOKIE option. Also returns whether the reply has the same cookie. It has
    /// a new one if the cookie is old, or if another secret than the first has made it.
    fn verify(&self, option: &[u8], client: IpAddr, now: u32) -> (Presented, bool) {
        if option.len() == CLIENT {
            return (Presented::ClientOnly, false);
        }
        let Ok(cookie) = option.try_into() else {
            return (Presented::Invalid, false);
        };
        let cookie: &[u8; COOKIE_LEN] = cookie;
        let [.., a, b, c, d, _, _, _, _, _, _, _, _] = *cookie;
        let age = now
            .wrapping_sub(u32::from_be_bytes([a, b, c, d]))
            .cast_signed();
        if cookie[CLIENT] != VERSION || !(-MAX_AHEAD..=MAX_AGE).contains(&age) {
            return (Presented::Invalid, false);
        }
        let mut hashes = self.hashes.iter();
        match hashes.position(|keyed| hash(keyed, cookie, client) == cookie[HASH_AT..]) {
            Some(number) => (Presented::Valid, number == 0 && age < RENEWED_AFTER),
            None => (Presented::Invalid, false),
        }
    }
}

/// Does not show the secrets.
impl fmt::Debug for Cookies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cookies").field(&self.hashes.len()).finish()
    }
}

/// Returns the hash over everything before the hash in `cookie`, and the client's address (RFC 9018,
/// section 4.4).
fn hash(keyed: &SipHasher24, cookie: &[u8; COOKIE_LEN], client: IpAddr) -> [u8; 8] {
    let mut input = [0; HASH_AT + 16];
    input[..HASH_AT].copy_from_slice(&cookie[..HASH_AT]);
    let len = match client {
        IpAddr::V4(address) => {
            input[HASH_AT..][..4].copy_from_slice(&address.octets());
            HASH_AT + 4
        }
        IpAddr::V6(address) => {
            input[HASH_AT..].copy_from_slice(&address.octets());
            HASH_AT + 16
        }
    };
    keyed.hash(&input[..len]).to_le_bytes()
}

#[cfg(test)]
#[path = "cookie_tests.rs"]
mod tests;
