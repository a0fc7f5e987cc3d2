//! Limits the replies over UDP to each network, so that forged queries do not make the server attack a
//! third party. Each worker has a limiter of its own.

mod accounts;

use std::net::IpAddr;

use control::Prefix;
use nmio::Instant;

use accounts::Accounts;

/// Default number of replies per second to a network.
pub const DEFAULT_RATE: u32 = 1_000;
/// Default of [`RateLimit::slip`].
pub const DEFAULT_SLIP: u8 = 2;
/// Default length of IPv4 and IPv6 networks, in bits.
pub const DEFAULT_BITS: [u8; 2] = [24, 56];
/// Maximum length of an IPv6 network, in bits. Hosts choose the other bits of an address.
pub const MAX_IPV6_BITS: u8 = 64;
/// Number of replies that a signature (TSIG) exempts from the limit. It is more than one, because a client may
/// repeat a message. It is small, because anybody may repeat the message from a forged address.
const REPLIES_TO_SIGNATURE: u64 = 3;
/// Maximum of [`RateLimit::rate`].
pub const MAX_RATE: u32 = 1_000_000;
/// The upper half of a key of an IPv4 network. No IPv6 address begins with it, because that would be a
/// multicast address, which never is a source.
const V4: u64 = 0xffff_ffff << 32;

/// The limit of replies over UDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Number of replies per second to a network, from 1 to [`MAX_RATE`]. A network that has been
    /// quiet for a second gets so many replies at once.
    pub rate: u32,
    /// One of this many queries over the limit gets a short reply: truncated, or BADCOOKIE. The others
    /// get none. With 1 all of them get it, and with 0 none.
    pub slip: u8,
    /// Length of IPv4 and IPv6 networks, in bits: 1 to 32, and 1 to [`MAX_IPV6_BITS`].
    pub bits: [u8; 2],
    /// Networks without a limit. Loopback addresses have none either.
    pub allowed: Vec<Prefix>,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self {
            rate: DEFAULT_RATE,
            slip: DEFAULT_SLIP,
            bits: DEFAULT_BITS,
            allowed: Vec::new(),
        }
    }
}

/// Why a query has no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exemption {
    /// The client's network is allowed, or is loopback.
    Client,
    /// The query has a valid server cookie.
    Cookie,
    /// The query has a valid signature (TSIG), which is new.
    Signature,
}

/// What proves that a query may have no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// A valid server cookie.
    Cookie,
    /// A valid signature (TSIG) with this [number](crate::tsig::Signer::number).
    Signature(u64),
}

/// What happens to a query over the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    /// It is answered, because it has no limit.
    Answered(Exemption),
    /// It gets a short reply.
    Slipped,
    /// It gets no reply.
    Dropped,
}

/// Limits the replies of one worker.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    v4_mask: u32,
    v6_mask: u64,
    slip: u8,
    allowed: Vec<Prefix>,
    accounts: Accounts,
    /// The signatures that were used lately, if clients sign.
    signatures: Option<Accounts>,
}

impl RateLimiter {
    /// Creates a limiter. `secret` keys its hashes, so that clients cannot choose their places.
    pub(crate) fn new(limit: &RateLimit, secret: [u64; 4]) -> Self {
        let [v4_bits, v6_bits] = limit.bits.map(u32::from);
        Self {
            v4_mask: u32::MAX << (32 - v4_bits.clamp(1, 32)),
            v6_mask: u64::MAX << (64 - v6_bits.clamp(1, 64)),
            slip: limit.slip,
            allowed: limit.allowed.clone(),
            accounts: Accounts::new(limit.rate.clamp(1, MAX_RATE), secret),
            signatures: None,
        }
    }

    /// Lets signatures exempt queries from the limit. It takes 1 MiB.
    pub(crate) fn expect_signatures(&mut self) {
        let new = || self.accounts.of_signatures(REPLIES_TO_SIGNATURE);
        self.signatures.get_or_insert_with(new);
    }

    /// Returns true if the limit of the client's network allows a reply now. Charges the reply.
    #[inline(always)]
    pub(crate) fn admits(&mut self, client: IpAddr, now: Instant) -> bool {
        let key = self.key(client);
        self.accounts.charge(key, now.as_nanos())
    }

    /// Decides about a query that is not [admitted](Self::admits). `proof` returns what may prove that the
    /// query has no limit.
    #[cold]
    #[inline(never)]
    pub(crate) fn excess(
        &mut self,
        client: IpAddr,
        now: Instant,
        proof: impl FnOnce() -> Option<Proof>,
    ) -> Excess {
        let is_allowed = self.allowed.iter().any(|prefix| prefix.contains(client));
        if client.is_loopback() || is_allowed {
            return Excess::Answered(Exemption::Client);
        }
        match proof() {
            Some(Proof::Cookie) => return Excess::Answered(Exemption::Cookie),
            Some(Proof::Signature(number)) if self.exempts(number, now) => {
                return Excess::Answered(Exemption::Signature);
            }
            Some(Proof::Signature(_)) | None => {}
        }
        let key = self.key(client);
        if self.accounts.slips(key, self.slip) {
            Excess::Slipped
        } else {
            Excess::Dropped
        }
    }

    /// Takes back the charge for a reply to a query that turns out to have no limit. Does nothing if its
    /// signature was used before, so that nobody can send the query again and again from a forged address.
    #[cold]
    #[inline(never)]
    pub(crate) fn give_back(&mut self, client: IpAddr, proof: Proof, now: Instant) {
        if let Proof::Signature(number) = proof
            && !self.exempts(number, now)
        {
            return;
        }
        let key = self.key(client);
        self.accounts.give_back(key);
    }

    /// Returns true if the signature with this number has exempted few queries so far. Counts the query. If
    /// too many signatures were used lately to remember another one, a query counts like any other.
    fn exempts(&mut self, signature: u64, now: Instant) -> bool {
        let signatures = self.signatures.as_mut();
        signatures.is_some_and(|all| all.charge_in_free_place(signature, now.as_nanos()))
    }

    /// Returns the key of a client's network.
    #[inline(always)]
    fn key(&self, client: IpAddr) -> u64 {
        match client {
            IpAddr::V4(address) => V4 | u64::from(address.to_bits() & self.v4_mask),
            IpAddr::V6(address) => (address.to_bits() >> 64) as u64 & self.v6_mask,
        }
    }
}

#[cfg(test)]
#[path = "rate_limit_tests.rs"]
mod tests;
