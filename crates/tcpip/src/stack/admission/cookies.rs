//! SYN cookies (RFC 4987, section 3.6): what a half-open connection must
//! remember, kept by the peer.
//!
//! The initial sequence number of a SYN-ACK without a TCB is made of
//!
//! | bits | what |
//! |---|---|
//! | 27 to 31 | when: periods of [`PERIOD_MICROS`], modulo 32 |
//! | 24 to 26 | the peer's MSS, rounded down to a class |
//! | 0 to 23 | a keyed hash (SipHash-2-4) of addresses, ports, the peer's initial sequence number, the period, the class and the terms |
//!
//! and a keyed number of the connection is added, so that none of it is seen,
//! and later numbers of a connection lie behind earlier ones. Of the 2^32
//! numbers that a stranger could acknowledge, at most two periods times eight
//! classes are good: one in 2^28.
//!
//! The terms (window scale, selective acknowledgements, congestion
//! notification) are the low bits of our timestamp, which the peer echoes. A
//! peer without timestamps gets a connection without these; without
//! timestamps they matter little.

mod answers;

use ip::Addresses;

use super::{GOOD_PERIODS, PERIOD_MICROS};
use crate::clock::Moment;
use crate::content::Family;
use crate::mss::{MIN_MSS, OwnMss};
use crate::negotiated::Negotiated;
#[cfg(test)]
use crate::stack::{Application, Stack};
use crate::table::Keys;
use crate::wire::{Seq, Timestamps};

const PERIOD_AT: u32 = 27;
const CLASS_AT: u32 = 24;
const CLASSES: u32 = 1 << (PERIOD_AT - CLASS_AT);
const PERIODS: u32 = 1 << (u32::BITS - PERIOD_AT);
const MAC: u32 = (1 << CLASS_AT) - 1;

/// What an MSS is rounded down to, beside our own. The larger ones are those
/// of Ethernet over IPv4 and IPv6, and of common tunnels.
const MSS_CLASSES: [u16; CLASSES as usize - 1] = [MIN_MSS, 536, 1220, 1360, 1400, 1440, 1460];
/// The class of those who can take as much as we can send.
const OWN_CLASS: u32 = CLASSES - 1;

/// Bits of a timestamp that are the terms.
const TERMS_BITS: u32 = 6;
const TERMS: u32 = (1 << TERMS_BITS) - 1;
/// In the terms, instead of a window scale: there is none.
const NO_SCALE: u32 = 0x0f;
const TERM_SACK: u32 = 1 << 4;
const TERM_ECN: u32 = 1 << 5;
/// Hashed with the terms, so that those of a timestamp are never those of
/// none.
const TERM_TIMESTAMPS: u32 = 1 << TERMS_BITS;

/// What both sides of a connection that a cookie opens have agreed on: without
/// timestamps there is no place for anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Terms(Negotiated);

impl Terms {
    /// What of `negotiated` a cookie keeps.
    fn new(negotiated: Negotiated) -> Self {
        if negotiated.timestamps() {
            Self(negotiated)
        } else {
            Self::default()
        }
    }

    /// The terms that an echoed timestamp brings back, if there is one.
    fn of_echo(timestamps: Option<Timestamps>) -> Self {
        let Some(Timestamps { echo, .. }) = timestamps else {
            return Self::default();
        };
        let scale = Some(echo & NO_SCALE).filter(|scale| *scale != NO_SCALE);
        let (sack, ecn) = (echo & TERM_SACK != 0, echo & TERM_ECN != 0);
        Self(Negotiated::new(sack, true, scale.map(|s| s as u8), ecn))
    }

    fn negotiated(self) -> Negotiated {
        self.0
    }

    fn bits(self) -> u32 {
        let Self(negotiated) = self;
        if !negotiated.timestamps() {
            return 0;
        }
        let scale = if negotiated.scaled() {
            u32::from(negotiated.peer_scale())
        } else {
            NO_SCALE
        };
        let bit = |is_on: bool, bit: u32| if is_on { bit } else { 0 };
        TERM_TIMESTAMPS
            | scale
            | bit(negotiated.sack(), TERM_SACK)
            | bit(negotiated.ecn(), TERM_ECN)
    }

    /// Puts the terms into a timestamp of ours. It becomes older, never newer:
    /// those that follow must not be before it (RFC 7323, section 5.3).
    fn stamp(self, value: u32) -> u32 {
        let stamped = value & !TERMS | self.bits() & TERMS;
        if stamped.wrapping_sub(value).cast_signed() > 0 {
            stamped.wrapping_sub(TERMS + 1)
        } else {
            stamped
        }
    }
}

/// Whose cookie it is.
#[derive(Clone, Copy, Debug)]
struct Bearer<'a> {
    /// The peer's first.
    addresses: &'a Addresses,
    /// The peer's, and ours.
    ports: (u16, u16),
    /// The peer's initial sequence number.
    irs: Seq,
}

impl Bearer<'_> {
    fn family(&self) -> Family {
        // Ours first or the peer's: they are of one family.
        Family::of(self.addresses)
    }

    fn mac(&self, keys: &Keys, period: u64, class: u32, terms: Terms) -> u32 {
        let about = u64::from(self.irs.0) << 32 | u64::from(class << 8 | terms.bits());
        keys.mac(self.addresses, self.ports, [period, about]) as u32 & MAC
    }

    /// The cookie as our initial sequence number; `mss` is what the peer has
    /// told, or the default.
    fn bake(&self, keys: &Keys, mss: u16, own_mss: OwnMss, terms: Terms, now: Moment) -> Seq {
        let class = if mss >= own_mss.of(self.family()) {
            OWN_CLASS
        } else {
            let above = MSS_CLASSES.partition_point(|class| *class <= mss) as u32;
            above.saturating_sub(1)
        };
        let period = now.whole_micros / PERIOD_MICROS;
        let mac = self.mac(keys, period, class, terms);
        let cookie = (period as u32 % PERIODS) << PERIOD_AT | class << CLASS_AT | mac;
        self.blind(keys) + cookie
    }

    /// The MSS that a cookie of ours keeps; `None` when it is none, or too
    /// old.
    fn check(
        &self,
        keys: &Keys,
        isn: Seq,
        own_mss: OwnMss,
        terms: Terms,
        now: Moment,
    ) -> Option<u16> {
        let cookie = isn.since(self.blind(keys));
        let current = now.whole_micros / PERIOD_MICROS;
        let age = (current as u32).wrapping_sub(cookie >> PERIOD_AT) % PERIODS;
        if age >= GOOD_PERIODS {
            return None;
        }
        let period = current.checked_sub(age.into())?;
        let class = cookie >> CLASS_AT & OWN_CLASS;
        if self.mac(keys, period, class, terms) != cookie & MAC {
            return None;
        }
        let own = own_mss.of(self.family());
        let mss = MSS_CLASSES.get(class as usize).copied();
        Some(mss.unwrap_or(own).min(own))
    }

    /// What a cookie is hidden by.
    fn blind(&self, keys: &Keys) -> Seq {
        let (src_port, dst_port) = self.ports;
        keys.offsets(self.addresses, src_port, dst_port).0
    }
}

/// The MSS of the cookie that `isn` would be, if it were one of a peer without
/// timestamps.
#[cfg(test)]
pub(in crate::stack) fn mss_of_cookie<A: Application, C>(
    stack: &Stack<A, C>,
    addresses: &Addresses,
    ports: (u16, u16),
    (irs, isn): (Seq, Seq),
    now: Moment,
) -> Option<u16> {
    let bearer = Bearer {
        addresses,
        ports,
        irs,
    };
    bearer.check(&stack.keys, isn, stack.cx.own_mss, Terms::default(), now)
}
