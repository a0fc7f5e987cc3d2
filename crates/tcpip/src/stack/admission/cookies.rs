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
//! | 0 to 23 | a keyed hash (SipHash-2-4) of addresses, ports, the peer's initial sequence number, the period, the class and the kept options |
//!
//! A keyed hash of addresses and ports is added to the cookie. This hash hides the fields, but lets
//! the sequence numbers of the same addresses and ports grow over time. Two periods and eight MSS
//! classes are valid at any time. So for each connection, 16 of the 2^32 cookies are valid, and a
//! blind attacker's guess succeeds once in 2^28 attempts.
//!
//! The negotiated window scale, SACK and ECN are kept in the low bits of our TSval, which the peer
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

/// Number of timestamp bits that hold the negotiated options.
const TS_BITS: u32 = 6;
const TS_MASK: u32 = (1 << TS_BITS) - 1;
/// Value of the low four of these bits, the window scale, if window scaling is not used.
const NO_SCALE: u32 = 0x0f;
const TS_SACK: u32 = 1 << 4;
const TS_ECN: u32 = 1 << 5;
/// Bit that is hashed with the options if timestamps are used. A cookie sent with timestamps is thus
/// invalid in a segment without timestamps.
const TIMESTAMPS_USED: u32 = 1 << TS_BITS;

/// The negotiated features of a connection opened by a cookie. They are kept in our TSval, so there
/// are none if timestamps are not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct TsOptions(Negotiated);

impl TsOptions {
    /// Returns the features that can be kept: all of them if timestamps are used, otherwise none.
    fn new(negotiated: Negotiated) -> Self {
        if negotiated.timestamps() {
            Self(negotiated)
        } else {
            Self::default()
        }
    }

    /// Returns the features kept in the TSecr of the peer's `timestamps`, or none without timestamps.
    fn from_tsecr(timestamps: Option<Timestamps>) -> Self {
        let Some(Timestamps { tsecr, .. }) = timestamps else {
            return Self::default();
        };
        let scale = Some(tsecr & NO_SCALE).filter(|scale| *scale != NO_SCALE);
        let (sack, ecn) = (tsecr & TS_SACK != 0, tsecr & TS_ECN != 0);
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
        TIMESTAMPS_USED | scale | bit(negotiated.sack(), TS_SACK) | bit(negotiated.ecn(), TS_ECN)
    }

    /// Stores the features in the low bits of our TSval `value`. The result is never newer than
    /// `value`, because our later TSvals must not be smaller (RFC 7323, section 5.3).
    fn stamp(self, value: u32) -> u32 {
        let stamped = value & !TS_MASK | self.bits() & TS_MASK;
        if stamped.wrapping_sub(value).cast_signed() > 0 {
            stamped.wrapping_sub(TS_MASK + 1)
        } else {
            stamped
        }
    }
}

/// The SYN that a cookie answers.
#[derive(Clone, Copy, Debug)]
struct Syn<'a> {
    /// Addresses, with the peer as the source.
    addresses: &'a Addresses,
    /// The peer's port and our port.
    ports: (u16, u16),
    /// The peer's initial sequence number.
    irs: Seq,
    /// Keyed number that is added to the cookie to hide its fields: see [`Keys::offsets`].
    blind: Seq,
    /// The offset of our timestamps.
    ts_offset: u32,
}

impl<'a> Syn<'a> {
    fn new(keys: &Keys, addresses: &'a Addresses, ports: (u16, u16), irs: Seq) -> Self {
        let (blind, ts_offset) = keys.offsets(addresses, ports.0, ports.1);
        Self {
            addresses,
            ports,
            irs,
            blind,
            ts_offset,
        }
    }

    fn family(&self) -> Family {
        // `Family::of` looks only at the IP version, so the direction does not matter.
        Family::of(self.addresses)
    }

    fn mac(&self, keys: &Keys, period: u64, class: u32, kept: TsOptions) -> u32 {
        let about = u64::from(self.irs.0) << 32 | u64::from(class << 8 | kept.bits());
        keys.mac(self.addresses, self.ports, [period, about]) as u32 & MAC
    }

    /// Returns the cookie, to be sent as our initial sequence number. `mss` is the MSS that the peer
    /// advertised, or the default.
    fn cookie(&self, keys: &Keys, mss: u16, own_mss: OwnMss, kept: TsOptions, now: Moment) -> Seq {
        let class = if mss >= own_mss.of(self.family()) {
            OWN_CLASS
        } else {
            let larger = MSS_CLASSES.partition_point(|class| *class <= mss) as u32;
            larger.saturating_sub(1)
        };
        let period = now.whole_micros / PERIOD_MICROS;
        let mac = self.mac(keys, period, class, kept);
        let cookie = (period as u32 % PERIODS) << PERIOD_AT | class << CLASS_AT | mac;
        self.blind + cookie
    }

    /// Returns the MSS stored in a cookie, or `None` if the cookie is invalid or has expired.
    fn check(
        &self,
        keys: &Keys,
        isn: Seq,
        own_mss: OwnMss,
        kept: TsOptions,
        now: Moment,
    ) -> Option<u16> {
        let cookie = isn.since(self.blind);
        let current = now.whole_micros / PERIOD_MICROS;
        let age = (current as u32).wrapping_sub(cookie >> PERIOD_AT) % PERIODS;
        if age >= VALID_PERIODS {
            return None;
        }
        let period = current.checked_sub(age.into())?;
        let class = cookie >> CLASS_AT & OWN_CLASS;
        if self.mac(keys, period, class, kept) != cookie & MAC {
            return None;
        }
        let own = own_mss.of(self.family());
        let mss = MSS_CLASSES.get(class as usize).copied();
        Some(mss.unwrap_or(own).min(own))
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
    let syn = Syn::new(&stack.keys, addresses, ports, irs);
    syn.check(
        &stack.keys,
        isn,
        stack.cx.own_mss,
        TsOptions::default(),
        now,
    )
}
