//! Admission of new connections: SYN cookies, and the limits on connections.

mod cookies;
mod opening;

#[cfg(test)]
pub(super) use cookies::mss_of_cookie;

use std::net::IpAddr;

use ip::Packet;
use nmio::{Instant, Port};

use super::overview::History;
use super::{Flood, Housekeeping, Record, Stack};
use crate::clock::Moment;
use crate::config::{SynCookies, WhenFull};
use crate::congestion::CongestionControl;
use crate::connection::{Flags, State, Tcb};
use crate::negotiated::Negotiated;
use crate::pools::{NONE, Pool};
use crate::stack::Application;
use crate::wire::{Control, Options, Segment};

/// Length of a cookie period in microseconds. A cookie is valid in the period in which it was sent
/// and in the next one.
const PERIOD_MICROS: u64 = 64_000_000;
/// Number of periods in which a cookie is valid.
const VALID_PERIODS: u32 = 2;
/// Maximum lifetime of a cookie, in microseconds.
const LIFE_MICROS: u64 = VALID_PERIODS as u64 * PERIOD_MICROS;

/// Two cookies that were sent within this time, in microseconds, indicate a SYN flood.
const FLOOD_GAP_MICROS: u64 = 1_000;

/// How to handle a SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Admitted {
    /// Accept the SYN, and use this TCB for the connection.
    Keep(u32),
    /// Answer the SYN with a cookie.
    SendCookie,
    /// Drop the SYN. The drop has already been counted.
    Drop,
}

impl Flood {
    /// Records that a cookie was sent at `now`.
    fn has_sent_cookie(&mut self, now: Moment) {
        self.floods = self.sent_within(FLOOD_GAP_MICROS, now);
        self.sent_at = Some(now.whole_micros);
    }

    /// Returns true if a peer may still return a valid cookie.
    #[inline]
    fn awaits_cookies(&self, now: Moment) -> bool {
        self.sent_within(LIFE_MICROS, now)
    }

    /// Returns true if the last two cookies were sent within a millisecond of each other, and the
    /// last one at most a millisecond ago.
    #[inline]
    fn is_on(&self, now: Moment) -> bool {
        self.floods && self.sent_within(FLOOD_GAP_MICROS, now)
    }

    #[inline]
    fn sent_within(&self, micros: u64, now: Moment) -> bool {
        self.sent_at
            .is_some_and(|sent_at| now.whole_micros - sent_at <= micros)
    }
}

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Takes a free TCB. If none is free, creates a TCB, up to the maximum number of connections.
    /// Returns `None` if this maximum is reached.
    fn take_tcb(&mut self) -> Option<u32> {
        if let Some(id) = self.table.free.pop() {
            return Some(id);
        }
        let id = self.table.len();
        if id >= self.config.max_connections {
            return None;
        }
        self.table.records.push(Record::default());
        self.table.states.push(A::State::default());
        let fresh = Housekeeping::new(Moment::from(self.now));
        self.table.housekeeping.push(fresh);
        self.table.histories.push(History::default());
        Some(id)
    }

    /// Refuses a new connection during a drain.
    #[cold]
    fn refuse<P: Port>(&mut self, port: &mut P, packet: Packet, segment: &Segment) {
        self.cx.counters.refused_in_drain += 1;
        self.reset_unknown(port, packet, segment);
    }

    /// Returns true if SYN cookies are enabled.
    fn may_send_cookies(&self) -> bool {
        self.config.syn_cookies != SynCookies::Never
    }

    /// Decides how to handle a SYN from `peer`. The address may be spoofed, so with cookies enabled
    /// a SYN never evicts a connection. If the SYN `reopens` a connection, [`SynCookies::Always`]
    /// does not apply, because the old TCB can be reused.
    fn admit_syn<P: Port>(
        &mut self,
        port: &mut P,
        peer: IpAddr,
        reopens: bool,
        now: Moment,
    ) -> Admitted {
        let with_cookies = self.may_send_cookies();
        let is_full = self.cx.states.of(State::SynReceived) >= self.config.max_half_open;
        let always = self.config.syn_cookies == SynCookies::Always && !reopens;
        if with_cookies && (is_full || always) {
            return Admitted::SendCookie;
        }
        if is_full {
            self.cx.counters.half_open_full += 1;
            return Admitted::Drop;
        }
        let id = if with_cookies {
            self.take_tcb()
        } else {
            self.take_tcb_or_evict(port, peer, now)
        };
        match id {
            Some(id) => Admitted::Keep(id),
            None if with_cookies && self.config.when_full == WhenFull::Evict => {
                Admitted::SendCookie
            }
            None => {
                self.cx.counters.connections_full += 1;
                Admitted::Drop
            }
        }
    }

    /// Takes a TCB for a connection from `peer`. When all TCBs are in use and [`WhenFull::Evict`]
    /// is configured, tries to evict another connection.
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

    /// Returns true if a SYN flood is in progress: the stack sends SYN cookies at intervals of at
    /// most a millisecond.
    pub fn is_flooded(&self, now: Instant) -> bool {
        self.flood.is_on(Moment::from(now))
    }

    /// Returns the hash that identifies a client by its address.
    fn hash_of(&self, peer: IpAddr) -> u64 {
        self.keys.hash_peer(peer, self.config.ipv6_prefix)
    }

    /// Returns true if the address has reached the limit on connections per address.
    #[inline(always)]
    fn has_too_many(&self, peer: IpAddr) -> bool {
        let limit = self.config.max_per_address;
        limit.is_some_and(|limit| self.has_at_least(limit, peer))
    }

    /// Returns true if `limit` or more connections are counted for the address.
    fn has_at_least(&self, limit: u32, peer: IpAddr) -> bool {
        let peer = self.cx.peers.find(self.hash_of(peer)).unwrap_or(NONE);
        self.cx.peers.held(peer, Pool::Connections) >= limit
    }

    /// Counts an established connection for its client's address.
    #[inline]
    fn count_peer(&mut self, id: u32) {
        let address = self.tcb(id).path.addresses.dst();
        let hash = self.hash_of(address);
        self.housekeeping(id).peer = self.cx.peers.join(hash);
    }

    /// Stores a new connection in the free TCB `id`, in the state SYN-RECEIVED.
    #[inline(always)]
    fn insert(&mut self, id: u32, hash: u32, tcb: Tcb, now: Moment) {
        self.table.histories[id as usize] = History::new(tcb.edges(), now);
        self.conn(id).open(tcb, now);
        // The TCB may still be in the queue for the TX ring and in the timer wheel, because of its
        // previous connection. A busy server reuses a TCB within milliseconds. The entry then expires
        // before all deadlines of a short connection, which therefore needs no timer operation.
        self.table.opened += 1;
        let (serial, fresh) = (self.table.opened, Housekeeping::new(now));
        let inherits_timer = self.wheel.deadline(id).is_some();
        if inherits_timer {
            self.tcb_mut(id).flags |= Flags::INHERITED_TIMER;
        }
        let housekeeping = self.housekeeping(id);
        *housekeeping = Housekeeping {
            is_blocked: housekeeping.is_blocked,
            serial,
            // If the previous connection has just set an alarm, this time is beyond all deadlines.
            scheduled: if inherits_timer {
                housekeeping.scheduled
            } else {
                fresh.scheduled
            },
            ..fresh
        };
        self.table.index.insert(hash, id);
        self.reschedule_if_late(id, now);
    }

    /// Returns the features (options and ECN) that the SYN offers and our configuration enables.
    fn agree(&self, options: &Options, segment: Segment) -> Negotiated {
        let config = &self.config;
        let scale = options.window_scale.filter(|_| config.window_scaling);
        // RFC 3168, section 6.1.1: a SYN requests ECN by setting both ECE and CWR.
        let ecn_bits = Control(segment.control.0 & (Control::ECE | Control::CWR).0);
        Negotiated::new(
            config.sack && options.sack_permitted,
            config.timestamps && options.timestamps.is_some(),
            scale,
            config.ecn && ecn_bits == Control::ECE | Control::CWR,
        )
    }
}
