//! SYN cookies (RFC 4987, section 3.6): the peer, instead of the stack, keeps the state of the
//! half-open connection.
//!
//! Instead of creating a TCB, the stack sends a SYN-ACK whose initial sequence number is a cookie
//! with these fields:
//!
//! | bits | field |
//! |---|---|
//! | 27 to 31 | the time in periods of [`PERIOD_MICROS`], modulo 32 |
//! | 24 to 26 | the class of the peer's MSS, rounded down |
//! | 0 to 23 | a keyed hash (SipHash-2-4) of addresses, ports, the peer's initial sequence number, the period, the class and the terms |
//!
//! A keyed hash of addresses and ports is added to the cookie. This hash hides the fields, but lets
//! the sequence numbers of the same addresses and ports grow over time. Two periods and eight MSS
//! classes are valid at any time. So for each connection, 16 of the 2^32 cookies are valid, and a
//! blind attacker's guess succeeds once in 2^28 attempts.
//!
//! The terms (window scale, SACK and ECN) are stored in the low bits of our TSval, which the peer
//! echoes. A peer without timestamps gets a connection without these features.

mod answers;

use ip::Addresses;

use super::{PERIOD_MICROS, VALID_PERIODS};
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

/// Values to which a peer's MSS is rounded down, in addition to our own MSS. The larger values are
/// common on Ethernet (with IPv4 or IPv6) and in tunnels.
const MSS_CLASSES: [u16; CLASSES as usize - 1] = [MIN_MSS, 536, 1220, 1360, 1400, 1440, 1460];
/// The MSS class of peers that accept segments as large as our own MSS.
const OWN_CLASS: u32 = CLASSES - 1;

/// Number of timestamp bits that hold the terms.
const TERMS_BITS: u32 = 6;
const TERMS: u32 = (1 << TERMS_BITS) - 1;
/// Value of the low four bits of the terms, the window scale, if window scaling is not used.
const NO_SCALE: u32 = 0x0f;
const TERM_SACK: u32 = 1 << 4;
const TERM_ECN: u32 = 1 << 5;
/// Bit that is hashed with the terms if timestamps are used. A cookie sent with timestamps is thus
/// invalid in a segment without timestamps.
const TERM_TIMESTAMPS: u32 = 1 << TERMS_BITS;

/// The terms of a connection opened by a cookie: the negotiated features. The terms are stored in
/// our TSval, so they are empty if timestamps are not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Terms(Negotiated);

impl Terms {
    /// Returns the negotiated features that can be stored with a cookie: all of them if timestamps
    /// are used, otherwise none.
    fn new(negotiated: Negotiated) -> Self {
        if negotiated.timestamps() {
            Self(negotiated)
        } else {
            Self::default()
        }
    }

    /// Returns the terms stored in the TSecr of the peer's `timestamps`. Without timestamps, the
    /// terms are empty.
    fn from_tsecr(timestamps: Option<Timestamps>) -> Self {
        let Some(Timestamps { tsecr, .. }) = timestamps else {
            return Self::default();
        };
        let scale = Some(tsecr & NO_SCALE).filter(|scale| *scale != NO_SCALE);
        let (sack, ecn) = (tsecr & TERM_SACK != 0, tsecr & TERM_ECN != 0);
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

    /// Stores the terms in the low bits of our TSval `value`. The result is never newer than
    /// `value`, because our later TSvals must not be smaller (RFC 7323, section 5.3).
    fn stamp(self, value: u32) -> u32 {
        let stamped = value & !TERMS | self.bits() & TERMS;
        if stamped.wrapping_sub(value).cast_signed() > 0 {
            stamped.wrapping_sub(TERMS + 1)
        } else {
            stamped
        }
    }
}

/// The connection for which a cookie is created or checked.
#[derive(Clone, Copy, Debug)]
struct Bearer<'a> {
    /// Addresses of the connection, with the peer as the source.
    addresses: &'a Addresses,
    /// The peer's port and our port.
    ports: (u16, u16),
    /// The peer's initial sequence number.
    irs: Seq,
}

impl Bearer<'_> {
    fn family(&self) -> Family {
        // `Family::of` looks only at the IP version, so the direction does not matter.
        Family::of(self.addresses)
    }

    fn mac(&self, keys: &Keys, period: u64, class: u32, terms: Terms) -> u32 {
        let about = u64::from(self.irs.0) << 32 | u64::from(class << 8 | terms.bits());
        keys.mac(self.addresses, self.ports, [period, about]) as u32 & MAC
    }

    /// Creates a cookie, to be sent as our initial sequence number. `mss` is the MSS that the peer
    /// advertised, or the default.
    fn bake(&self, keys: &Keys, mss: u16, own_mss: OwnMss, terms: Terms, now: Moment) -> Seq {
        let class = if mss >= own_mss.of(self.family()) {
            OWN_CLASS
        } else {
            let larger = MSS_CLASSES.partition_point(|class| *class <= mss) as u32;
            larger.saturating_sub(1)
        };
        let period = now.whole_micros / PERIOD_MICROS;
        let mac = self.mac(keys, period, class, terms);
        let cookie = (period as u32 % PERIODS) << PERIOD_AT | class << CLASS_AT | mac;
        self.blind(keys) + cookie
    }

    /// Returns the MSS stored in a cookie, or `None` if the cookie is invalid or has expired.
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
        if age >= VALID_PERIODS {
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

    /// Returns the keyed number that is added to a cookie to hide its fields.
    fn blind(&self, keys: &Keys) -> Seq {
        let (src_port, dst_port) = self.ports;
        keys.offsets(self.addresses, src_port, dst_port).0
    }
}

/// Returns the MSS in the cookie `isn` of a peer without timestamps, or `None` if the cookie is
/// invalid.
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
