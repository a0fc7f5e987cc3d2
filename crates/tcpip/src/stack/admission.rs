//! Who gets a connection when there are few left: SYN cookies and the bound for
//! each address.

mod cookies;
mod opening;

#[cfg(test)]
pub(super) use cookies::mss_of_cookie;

use std::net::IpAddr;

use ip::Packet;
use nmio::{Instant, Port};

use super::Standing;
use super::{Flood, Record, Stack};
use crate::clock::Moment;
use crate::config::{SynCookies, WhenFull};
use crate::congestion::CongestionControl;
use crate::connection::Tcb;
use crate::negotiated::Negotiated;
use crate::pools::{NONE, Pool};
use crate::stack::Application;
use crate::wire::{Control, Options, Segment, Seq};

/// A cookie is good in the period in which it was sent and in the next one:
/// for one to two times this, in microseconds.
const PERIOD_MICROS: u64 = 64_000_000;
/// Periods in which a cookie is good.
const GOOD_PERIODS: u32 = 2;
/// After this no cookie is good any more, in microseconds.
const LIFE_MICROS: u64 = GOOD_PERIODS as u64 * PERIOD_MICROS;

/// Cookies that are no further apart than this are a flood, in microseconds.
const FLOOD_GAP_MICROS: u64 = 1_000;

/// What is done with a SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Admitted {
    /// This TCB is for it.
    Keep(u32),
    /// It gets a cookie.
    Bake,
    /// It has been counted.
    Drop,
}

impl Flood {
    /// A cookie has been sent.
    fn has_baked(&mut self, now: Moment) {
        self.floods = self.baked_within(FLOOD_GAP_MICROS, now);
        self.baked_at = Some(now.whole_micros);
    }

    /// Whether somebody may still bring a cookie back.
    #[inline]
    fn awaits_cookies(&self, now: Moment) -> bool {
        self.baked_within(LIFE_MICROS, now)
    }

    /// More than a thousand cookies a second are sent just now.
    #[inline]
    fn is_on(&self, now: Moment) -> bool {
        self.floods && self.baked_within(FLOOD_GAP_MICROS, now)
    }

    #[inline]
    fn baked_within(&self, micros: u64, now: Moment) -> bool {
        self.baked_at
            .is_some_and(|baked_at| now.whole_micros - baked_at <= micros)
    }
}

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// A free TCB, or `None` when all are in use.
    fn take_tcb(&mut self) -> Option<u32> {
        if let Some(id) = self.free.pop() {
            return Some(id);
        }
        if self.records.len() >= self.config.max_connections as usize {
            return None;
        }
        self.records.push(Record::default());
        self.states.push(A::State::default());
        self.standings.push(Standing::new(Moment::from(self.now)));
        Some(self.records.len() as u32 - 1)
    }

    /// Whether a SYN that there is no place for gets a cookie.
    fn bakes_cookies(&self) -> bool {
        self.config.syn_cookies != SynCookies::Never
    }

    /// What to do with a SYN from `peer`, who may be invented: where cookies are
    /// baked it takes no other connection's place. One that `reopens` a
    /// connection has a place.
    fn admit_syn<P: Port>(
        &mut self,
        port: &mut P,
        peer: IpAddr,
        reopens: bool,
        now: Moment,
    ) -> Admitted {
        let bakes = self.bakes_cookies();
        let full = self.half_open >= self.config.max_half_open;
        let always = self.config.syn_cookies == SynCookies::Always && !reopens;
        if bakes && (full || always) {
            return Admitted::Bake;
        }
        if full {
            self.cx.counters.half_open_full += 1;
            return Admitted::Drop;
        }
        let place = if bakes {
            self.take_tcb()
        } else {
            self.take_tcb_or_evict(port, peer, now)
        };
        match place {
            Some(id) => Admitted::Keep(id),
            None if bakes && self.config.when_full == WhenFull::Evict => Admitted::Bake,
            None => {
                self.cx.counters.connections_full += 1;
                Admitted::Drop
            }
        }
    }

    /// A TCB for `peer`. When all are in use, another connection gives way, as
    /// configured.
    fn take_tcb_or_evict<P: Port>(
        &mut self,
        port: &mut P,
        peer: IpAddr,
        now: Moment,
    ) -> Option<u32> {
        if let Some(id) = self.take_tcb() {
            return Some(id);
        }
        if self.config.when_full == WhenFull::Refuse {
            return None;
        }
        if !self.make_way(port, self.hash_of(peer), now) {
            return None;
        }
        self.take_tcb()
    }

    /// Whether somebody may still bring a cookie back.
    #[inline]
    fn awaits_cookies(&self, now: Moment) -> bool {
        self.flood.awaits_cookies(now)
    }

    /// Whether there is a flood of SYNs: more than a thousand cookies a second,
    /// just now.
    pub fn is_flooded(&self, now: Instant) -> bool {
        self.flood.is_on(Moment::from(now))
    }

    /// The hash of a client's address.
    fn hash_of(&self, peer: IpAddr) -> u64 {
        self.keys.hash_peer(peer, self.config.ipv6_prefix)
    }

    /// Whether an address has as many connections as one may have.
    #[inline]
    fn has_too_many(&self, peer: IpAddr) -> bool {
        let Some(most) = self.config.max_per_address else {
            return false;
        };
        let peer = self.cx.peers.find(self.hash_of(peer)).unwrap_or(NONE);
        self.cx.peers.held(peer, Pool::Connections) >= most
    }

    /// A connection has been established: its address holds one more.
    #[inline]
    fn count_in(&mut self, id: u32) {
        let address = self.records[id as usize].tcb.path.addresses.dst();
        let hash = self.hash_of(address);
        self.standings[id as usize].peer = self.cx.peers.join(hash);
    }

    /// Puts a connection in SYN-RECEIVED in a free TCB's place.
    #[inline(always)]
    fn insert(&mut self, id: u32, hash: u32, tcb: Tcb, now: Moment) {
        self.conn(id).open(tcb, now);
        // A TCB may have been freed while it waited for the ring.
        let is_blocked = self.standings[id as usize].is_blocked;
        self.opened += 1;
        self.standings[id as usize] = Standing {
            is_blocked,
            serial: self.opened,
            ..Standing::new(now)
        };
        self.half_open += 1;
        self.table.insert(hash, id);
        self.keep_time(id, now);
    }

    /// What of a SYN's offers is taken.
    fn agree(&self, options: &Options, segment: Segment) -> Negotiated {
        let config = &self.config;
        let scale = options.window_scale.filter(|_| config.window_scaling);
        // RFC 3168, section 6.1.1.
        let both = Control(segment.control.0 & (Control::ECE | Control::CWR).0);
        Negotiated::new(
            config.sack && options.sack_permitted,
            config.timestamps && options.timestamps.is_some(),
            scale,
            config.ecn && both == Control::ECE | Control::CWR,
        )
    }
}

/// A connection in SYN-RECEIVED, which `segment` opens: see [`Tcb::half_open`].
/// `agreed`: what both sides have agreed on, and the most bytes of data in a segment.
#[inline(always)]
fn half_open(
    packet: &Packet,
    segment: Segment,
    options: &Options,
    agreed: (Negotiated, u16),
    offsets: (Seq, u32),
    now: Moment,
) -> Tcb {
    let (negotiated, mss) = agreed;
    let (path, timestamps) = (packet.path_back(), options.timestamps);
    Tcb::half_open(path, segment, timestamps, negotiated, mss, offsets, now)
}
