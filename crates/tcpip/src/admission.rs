//! Who gets a connection when there are few left: SYN cookies, the bound for
//! each address, and which connection gives way.

use std::cmp::Reverse;
use std::net::IpAddr;

use arrayvec::ArrayVec;
use ip::Packet;
use nmio::{Instant, Port};

use crate::app::{Application, CloseReason};
use crate::config::WhenFull;
use crate::congestion::CongestionControl;
use crate::cookies::{Bearer, LIFE_MICROS, SynCookies, Terms};
use crate::opening::Opening;
use crate::options::Options;
use crate::output::turn_round;
use crate::segments::Family;
use crate::stack::Stack;
use crate::table::Peers;
use crate::tcb::{Flags, Moment, NONE, State, Tcb};
use crate::wire::{Segment, Seq, Timestamps};

/// Connections that are looked at for one that gives way; the next time it is
/// the next ones, …
const EVICTION_SAMPLE: usize = 64;
/// … and those of all before that had been silent for longest then.
const CANDIDATES: usize = 16;
/// A connection that was silent for less than this does not give way, in
/// milliseconds: a request may be on its way.
const MIN_SILENCE_MS: u32 = 1_000;

/// Cookies that are no further apart than this are a flood, in microseconds.
const FLOOD_GAP_MICROS: u64 = 1_000;

/// What admission remembers.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Connections of each address, where they are bounded.
    pub(crate) peers: Option<Peers>,
    /// The connection that is looked at next for giving way.
    hand: usize,
    /// Connections that gave way next when one did last, if they are silent
    /// still.
    candidates: ArrayVec<u32, CANDIDATES>,
    /// When a cookie was last sent, in microseconds.
    baked_at: Option<u64>,
    /// Whether the cookie before was sent shortly before.
    floods: bool,
}

impl Admission {
    /// For `connections` connections; `most` of one address.
    pub(crate) fn new(connections: u32, most: Option<u32>) -> Self {
        Self {
            peers: most.map(|most| Peers::new(connections, most)),
            hand: 0,
            candidates: ArrayVec::new(),
            baked_at: None,
            floods: false,
        }
    }
}

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Whether a SYN that there is no place for gets a cookie.
    pub(crate) fn bakes_cookies(&self) -> bool {
        self.settings.syn_cookies != SynCookies::Never
    }

    /// What to do with a SYN, whose sender may be invented: where cookies are
    /// baked it takes no other connection's place. One that `reopens` a
    /// connection has a place.
    pub(crate) fn admit_syn<P: Port>(
        &mut self,
        port: &mut P,
        reopens: bool,
        now: Moment,
    ) -> Admitted {
        let bakes = self.bakes_cookies();
        let full = self.half_open >= self.settings.max_half_open;
        let always = self.settings.syn_cookies == SynCookies::Always && !reopens;
        if bakes && (full || always) {
            return Admitted::Bake;
        }
        if full {
            self.counters.half_open_full += 1;
            return Admitted::Drop;
        }
        let place = if bakes {
            self.take_tcb()
        } else {
            self.take_tcb_or_evict(port, now)
        };
        match place {
            Some(id) => Admitted::Keep(id),
            None if bakes && self.settings.when_full == WhenFull::EvictIdle => Admitted::Bake,
            None => {
                self.counters.connections_full += 1;
                Admitted::Drop
            }
        }
    }

    /// A TCB for somebody who is there. When all are in use, one that idles
    /// gives way, as configured.
    fn take_tcb_or_evict<P: Port>(&mut self, port: &mut P, now: Moment) -> Option<u32> {
        if let Some(id) = self.take_tcb() {
            return Some(id);
        }
        if self.settings.when_full == WhenFull::Refuse || !self.evict(port, now) {
            return None;
        }
        self.take_tcb()
    }

    /// Answers a SYN and keeps nothing of it. It is answered once: there is
    /// nothing to send again, and nothing to be amplified.
    #[inline(never)]
    pub(crate) fn send_cookie<P: Port>(
        &mut self,
        port: &mut P,
        packet: Packet,
        segment: Segment,
        options: &Options,
        mss: u16,
        now: Moment,
    ) {
        let addresses = packet.addresses();
        let told = options.mss_or_default(Family::of(&addresses));
        let terms = self.agree(options, segment).kept();
        let bearer = Bearer {
            addresses: &addresses,
            ports: (segment.src_port, segment.dst_port),
            irs: segment.seq,
        };
        let iss = bearer.bake(&self.keys, told, self.own_mss, terms, now);
        let opening = Opening {
            terms,
            mss,
            iss,
            irs: segment.seq,
            window: segment.window,
            ts_recent: options.timestamps.map_or(0, |timestamps| timestamps.value),
        };
        let tcb = self.half_open_tcb(&packet, segment, &opening);
        let (mut header, more) = self.syn_ack(&tcb, now);
        if let Some(Timestamps { value, .. }) = &mut header.timestamps {
            *value = terms.stamp(*value);
        }
        if packet.payload_capacity() < header.len() + more.bytes().len() {
            return;
        }
        if turn_round(port, packet, &header, &more, tcb.ports()).is_ok() {
            self.admission.floods = self.baked_within(FLOOD_GAP_MICROS, now);
            self.admission.baked_at = Some(now.whole_micros);
            self.counters.cookies_sent += 1;
            self.counters.segments_sent += 1;
            self.counters.turned_round += 1;
        } else {
            self.counters.ring_full += 1;
        }
    }

    /// Whether somebody may still bring a cookie back.
    #[inline]
    pub(crate) fn awaits_cookies(&self, now: Moment) -> bool {
        self.baked_within(LIFE_MICROS, now)
    }

    /// Whether there is a flood of SYNs: more than a thousand cookies a second,
    /// just now.
    pub fn is_flooded(&self, now: Instant) -> bool {
        self.admission.floods && self.baked_within(FLOOD_GAP_MICROS, Moment::new(now))
    }

    #[inline]
    fn baked_within(&self, micros: u64, now: Moment) -> bool {
        let baked_at = self.admission.baked_at;
        baked_at.is_some_and(|baked_at| now.whole_micros - baked_at <= micros)
    }

    /// A segment that may bring a cookie back: then it opens a connection and
    /// is processed as the third one of its handshake. Otherwise the packet is
    /// given back.
    #[inline(never)]
    pub(crate) fn redeem<P: Port>(
        &mut self,
        port: &mut P,
        packet: Packet,
        segment: Segment,
        hash: u32,
        now: Moment,
    ) -> Option<Packet> {
        let addresses = packet.addresses();
        let family = Family::of(&addresses);
        let options = Options::read(&packet.payload()[..usize::from(segment.data_at)]);
        let terms = Terms::of_echo(options.timestamps);
        let irs = Seq(segment.seq.0.wrapping_sub(1));
        let iss = Seq(segment.ack.0.wrapping_sub(1));
        let bearer = Bearer {
            addresses: &addresses,
            ports: (segment.src_port, segment.dst_port),
            irs,
        };
        let told = bearer.check(&self.keys, iss, self.own_mss, terms, now);
        let capacity = port.pool().layout().capacity;
        let mss = told.and_then(|told| self.effective_mss(family, Some(told), capacity));
        let Some(mss) = mss else {
            self.counters.cookies_bad += 1;
            return Some(packet);
        };
        if self.has_too_many(addresses.src()) {
            self.counters.per_address_full += 1;
            return Some(packet);
        }
        let Some(id) = self.take_tcb_or_evict(port, now) else {
            // What the client sends next it sends again: there may be a place
            // then.
            self.counters.connections_full += 1;
            return None;
        };
        let opening = Opening {
            terms,
            mss,
            iss,
            irs,
            window: segment.window,
            ts_recent: options.timestamps.map_or(0, |timestamps| timestamps.value),
        };
        let mut tcb = self.half_open_tcb(&packet, segment, &opening);
        let told = self.buffers.capacity().min(usize::from(u16::MAX));
        tcb.has_told_unscaled(told as u16);
        tcb.paced_until = now.micros;
        self.insert(id, hash, tcb, now);
        self.counters.cookies_accepted += 1;
        self.handle_first(port, id, packet, segment, now);
        None
    }

    /// Whether an address has as many connections as one may have.
    #[inline]
    pub(crate) fn has_too_many(&self, peer: IpAddr) -> bool {
        let peers = self.admission.peers.as_ref();
        peers.is_some_and(|peers| peers.is_full(self.keys.hash_peer(peer)))
    }

    /// A connection has been established: whether its address may have one
    /// more.
    #[inline]
    pub(crate) fn count_in(&mut self, id: u32) {
        if let Some(peers) = &mut self.admission.peers {
            let peer = self.records[id as usize].tcb.path.addresses.dst();
            peers.add(self.keys.hash_peer(peer));
        }
    }

    /// A connection that was counted is over, or only remembered.
    #[inline]
    pub(crate) fn count_out(&mut self, id: u32) {
        if let Some(peers) = &mut self.admission.peers {
            let peer = self.records[id as usize].tcb.path.addresses.dst();
            peers.remove(self.keys.hash_peer(peer));
        }
    }

    /// Makes a place: of the next [`EVICTION_SAMPLE`] connections, and the
    /// [`CANDIDATES`] among all before, one in TIME-WAIT is forgotten, or the
    /// one that has been silent for longest is reset. `false` when all of them
    /// are being served.
    #[cold]
    fn evict<P: Port>(&mut self, port: &mut P, now: Moment) -> bool {
        let len = self.records.len();
        let known = self.admission.candidates.take();
        let mut ids: ArrayVec<u32, { CANDIDATES + EVICTION_SAMPLE }> = ArrayVec::new();
        ids.extend(known.iter().copied());
        for _ in 0..EVICTION_SAMPLE.min(len) {
            let id = self.admission.hand % len;
            self.admission.hand = id + 1;
            if !known.contains(&(id as u32)) {
                ids.push(id as u32);
            }
        }
        let silent = ids.into_iter().filter_map(|id| {
            let silence = self.silence(&self.records[id as usize].tcb, now)?;
            Some((Reverse(silence), id))
        });
        let mut in_order: ArrayVec<_, { CANDIDATES + EVICTION_SAMPLE }> = silent.collect();
        in_order.sort_unstable();
        let mut ids = in_order.into_iter().map(|(_, id)| id);
        let Some(id) = ids.next() else {
            return false;
        };
        self.admission.candidates = ids.take(CANDIDATES).collect();
        if self.records[id as usize].tcb.state == State::TimeWait {
            self.counters.time_waits_evicted += 1;
            self.forget(id);
        } else {
            self.send_reset(port, id, now);
            self.close(id, CloseReason::Evicted);
        }
        true
    }

    /// How long a connection has been of no use, in milliseconds; `None` when
    /// it is being served. What both sides have closed counts for more than
    /// anything else.
    fn silence(&self, tcb: &Tcb, now: Moment) -> Option<u32> {
        const CLOSED: u32 = 1 << 31;
        let since = |all: u32| {
            let left = tcb.deadline.wrapping_sub(now.millis).cast_signed();
            all.saturating_sub(left.max(0).unsigned_abs())
        };
        match tcb.state {
            State::TimeWait => return Some(CLOSED | since(self.settings.time_wait_ms)),
            State::Established | State::FinWait2 => {}
            _ => return None,
        }
        let pending = Flags::ABORT
            | Flags::WANTS_ROOM
            | Flags::HALF_CLOSE
            | Flags::ACK
            | Flags::BLOCKED
            | Flags::PERSIST;
        let idle = tcb.snd_una == tcb.snd_nxt
            && tcb.entries().is_empty()
            && tcb.buffer == NONE
            && !tcb.flags.has(pending);
        let silence = if tcb.state == State::FinWait2 {
            since(self.settings.fin_wait_ms)
        } else if tcb.flags.has(Flags::CLOSE) {
            return None;
        } else {
            since(self.settings.silence_ms)
        };
        (idle && silence >= MIN_SILENCE_MS).then_some(silence)
    }
}

/// What is done with a SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admitted {
    /// This TCB is for it.
    Keep(u32),
    /// It gets a cookie.
    Bake,
    /// It has been counted.
    Drop,
}
