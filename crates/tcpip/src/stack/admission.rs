//! Who gets a connection when there are few left: SYN cookies and the bound for
//! each address.

use std::net::IpAddr;

use ip::Packet;
use nmio::{Instant, Port};

use super::Stack;
use super::flood::Admitted;
use crate::app::Application;
use crate::clock::Moment;
use crate::config::{SynCookies, WhenFull};
use crate::congestion::CongestionControl;
use crate::connection::{Opening, Tcb};
use crate::cookies::{Bearer, Terms};
use crate::emit::turn_round;
use crate::mss::OwnMss;
use crate::pools::{NONE, Pool};
use crate::segments::Family;
use crate::wire::{Options, Segment, Seq, Timestamps};

impl<A: Application, C: CongestionControl> Stack<A, C> {
    /// Whether a SYN that there is no place for gets a cookie.
    pub(super) fn bakes_cookies(&self) -> bool {
        self.config.syn_cookies != SynCookies::Never
    }

    /// What to do with a SYN from `peer`, who may be invented: where cookies are
    /// baked it takes no other connection's place. One that `reopens` a
    /// connection has a place.
    pub(super) fn admit_syn<P: Port>(
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
        let asker = self.newcomer(self.hash_of(peer));
        if !self.make_way(port, asker, now) {
            return None;
        }
        self.take_tcb()
    }

    /// Answers a SYN and keeps nothing of it. It is answered once: there is
    /// nothing to send again, and nothing to be amplified.
    #[inline(never)]
    pub(super) fn send_cookie<P: Port>(
        &mut self,
        port: &mut P,
        packet: Packet,
        segment: Segment,
        options: &Options,
        mss: u16,
        now: Moment,
    ) {
        let addresses = packet.addresses();
        let told = OwnMss::told_or_default(Family::of(&addresses), options.mss);
        let terms = Terms::new(self.agree(options, segment));
        let bearer = Bearer {
            addresses: &addresses,
            ports: (segment.src_port, segment.dst_port),
            irs: segment.seq,
        };
        let iss = bearer.bake(&self.keys, told, self.cx.own_mss, terms, now);
        let (src_port, dst_port) = (segment.src_port, segment.dst_port);
        let (_, ts_offset) = self.keys.offsets(&addresses, src_port, dst_port);
        let opening = Opening::new(terms.negotiated(), mss, iss, ts_offset);
        let path = packet.path_back();
        let tcb = Tcb::half_open(path, segment, options.timestamps, opening, now);
        let (mut header, more) = tcb.syn_ack(&self.cx, now);
        if let Some(Timestamps { value, .. }) = &mut header.timestamps {
            *value = terms.stamp(*value);
        }
        if packet.payload_capacity() < header.len() + more.bytes().len() {
            return;
        }
        if turn_round(port, packet, &header, &more, tcb.ports()).is_ok() {
            self.flood.has_baked(now);
            self.cx.counters.cookies_sent += 1;
            self.cx.counters.segments_sent += 1;
            self.cx.counters.turned_round += 1;
        } else {
            self.cx.counters.ring_full += 1;
        }
    }

    /// Whether somebody may still bring a cookie back.
    #[inline]
    pub(super) fn awaits_cookies(&self, now: Moment) -> bool {
        self.flood.awaits_cookies(now)
    }

    /// Whether there is a flood of SYNs: more than a thousand cookies a second,
    /// just now.
    pub fn is_flooded(&self, now: Instant) -> bool {
        self.flood.is_on(Moment::new(now))
    }

    /// A segment that may bring a cookie back: then it opens a connection and
    /// is processed as the third one of its handshake. Otherwise the packet is
    /// given back.
    #[inline(never)]
    pub(super) fn redeem<P: Port>(
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
        let told = bearer.check(&self.keys, iss, self.cx.own_mss, terms, now);
        let capacity = port.pool().layout().capacity;
        let mss = told.and_then(|told| self.cx.own_mss.effective(family, Some(told), capacity));
        let Some(mss) = mss else {
            self.cx.counters.cookies_bad += 1;
            return Some(packet);
        };
        if self.has_too_many(addresses.src()) {
            self.cx.counters.per_address_full += 1;
            return Some(packet);
        }
        let Some(id) = self.take_tcb_or_evict(port, addresses.src(), now) else {
            // What the client sends next it sends again: there may be a place
            // then.
            self.cx.counters.connections_full += 1;
            return None;
        };
        let (src_port, dst_port) = (segment.src_port, segment.dst_port);
        let (_, ts_offset) = self.keys.offsets(&addresses, src_port, dst_port);
        let opening = Opening::new(terms.negotiated(), mss, iss, ts_offset);
        let path = packet.path_back();
        let mut tcb = Tcb::half_open(path, segment, options.timestamps, opening, now);
        let (syn_ack, _) = tcb.syn_ack(&self.cx, now);
        tcb.has_told_unscaled(syn_ack.window);
        self.insert(id, hash, tcb, now);
        self.cx.counters.cookies_accepted += 1;
        self.handle_first(port, id, packet, segment, now);
        None
    }

    /// The hash of a client's address.
    fn hash_of(&self, peer: IpAddr) -> u64 {
        self.keys.hash_peer(peer, self.config.ipv6_prefix)
    }

    /// Whether an address has as many connections as one may have.
    #[inline]
    pub(super) fn has_too_many(&self, peer: IpAddr) -> bool {
        let Some(most) = self.config.max_per_address else {
            return false;
        };
        let peer = self.cx.peers.find(self.hash_of(peer)).unwrap_or(NONE);
        self.cx.peers.held(peer, Pool::Connections) >= most
    }

    /// A connection has been established: its address holds one more.
    #[inline]
    pub(super) fn count_in(&mut self, id: u32) {
        let address = self.records[id as usize].tcb.path.addresses.dst();
        let hash = self.hash_of(address);
        self.standings[id as usize].peer = self.cx.peers.join(hash);
    }

    /// A connection that was counted is over, or only remembered.
    #[inline]
    pub(super) fn count_out(&mut self, id: u32) {
        let peer = std::mem::replace(&mut self.standings[id as usize].peer, NONE);
        self.cx.peers.leave(peer);
    }
}
