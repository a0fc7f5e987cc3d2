//! Several transports on one host.

use std::net::IpAddr;
use std::ops::Range;

use eth::Mac;
use nmio::{Drain, Frame, Instant, Port};

use crate::host::Input;
use crate::icmp::IcmpError;
use crate::packet::Packet;
use crate::transports::Transports;
use crate::{PROTOCOL_TCP, PROTOCOL_UDP};

/// Two transports on one host, each with its own ports. The first transport gets the packets for
/// every port that it serves. The second transport gets all other packets. To combine more than two
/// transports, use another `Both` as the second.
#[derive(Debug)]
pub struct Both<A, B>(
    /// The first transport, which gets the packets for the ports that it serves.
    pub A,
    /// The second transport, which gets all other packets. The first one gets those that the second
    /// returns, because the first may refuse them in its own way, such as with a TCP reset.
    pub B,
);

impl<P: Port, A: Transports<P>, B: Transports<P>> Transports<P> for Both<A, B> {
    const INTERCEPTS: bool = A::INTERCEPTS || B::INTERCEPTS;

    #[inline(always)]
    fn intercept(&mut self, port: &mut P, frame: Frame, now: Instant) -> Option<Frame> {
        let frame = self.0.intercept(port, frame, now)?;
        self.1.intercept(port, frame, now)
    }

    #[inline(always)]
    fn serves(&self, protocol: u8, port: u16) -> bool {
        self.0.serves(protocol, port) || self.1.serves(protocol, port)
    }

    #[inline(always)]
    fn handle_tcp(&mut self, port: &mut P, segment: Packet, now: Instant) -> Option<Packet> {
        if self.0.serves(PROTOCOL_TCP, segment.dst_port()) {
            self.0.handle_tcp(port, segment, now)
        } else {
            let unserved = self.1.handle_tcp(port, segment, now)?;
            self.0.handle_tcp(port, unserved, now)
        }
    }

    fn refuse_tcp(&mut self, port: &mut P, segment: Packet) -> Option<Packet> {
        let unserved = self.0.refuse_tcp(port, segment)?;
        self.1.refuse_tcp(port, unserved)
    }

    #[inline(always)]
    fn handle_udp(&mut self, port: &mut P, datagram: Packet, now: Instant) -> Option<Packet> {
        if self.0.serves(PROTOCOL_UDP, datagram.dst_port()) {
            self.0.handle_udp(port, datagram, now)
        } else {
            let unserved = self.1.handle_udp(port, datagram, now)?;
            self.0.handle_udp(port, unserved, now)
        }
    }

    fn handle_icmp_error(&mut self, error: &IcmpError, now: Instant) -> bool {
        if self.0.serves(error.protocol, error.src_port) {
            self.0.handle_icmp_error(error, now)
        } else {
            self.1.handle_icmp_error(error, now)
        }
    }

    #[inline(always)]
    fn wants_prefetch(&self, len: usize) -> bool {
        self.0.wants_prefetch(len) || self.1.wants_prefetch(len)
    }

    #[inline(always)]
    fn prefetch_batch(&mut self, batch: &[Input]) {
        self.0.prefetch_batch(batch);
        self.1.prefetch_batch(batch);
    }

    #[inline(always)]
    fn handle_prefetched_udp(
        &mut self,
        port: &mut P,
        datagram: Packet,
        index: usize,
        now: Instant,
    ) -> Option<Packet> {
        if self.0.serves(PROTOCOL_UDP, datagram.dst_port()) {
            self.0.handle_prefetched_udp(port, datagram, index, now)
        } else {
            let unserved = self.1.handle_prefetched_udp(port, datagram, index, now)?;
            self.0.handle_prefetched_udp(port, unserved, index, now)
        }
    }

    #[inline(always)]
    fn handle_timers(&mut self, port: &mut P, now: Instant) {
        self.0.handle_timers(port, now);
        self.1.handle_timers(port, now);
    }

    #[inline(always)]
    fn poll_timeout(&self) -> Option<Instant> {
        Instant::earlier(self.0.poll_timeout(), self.1.poll_timeout())
    }

    fn handle_messages(&mut self, port: &mut P, now: Instant) {
        self.0.handle_messages(port, now);
        self.1.handle_messages(port, now);
    }

    #[inline(always)]
    fn is_flooded(&self, now: Instant) -> bool {
        self.0.is_flooded(now) || self.1.is_flooded(now)
    }

    fn reset_strangers(
        &mut self,
        port: &mut P,
        slots: Range<u32>,
        is_ours: &dyn Fn(&IpAddr) -> bool,
        now: Instant,
    ) -> bool {
        let more = self.0.reset_strangers(port, slots.clone(), is_ours, now);
        self.1.reset_strangers(port, slots, is_ours, now) || more
    }

    fn set_own_mac(&mut self, slots: Range<u32>, own: Mac) -> bool {
        let more = self.0.set_own_mac(slots.clone(), own);
        self.1.set_own_mac(slots, own) || more
    }

    fn handle_drain(&mut self, port: &mut P, now: Instant) -> Drain {
        let first = self.0.handle_drain(port, now);
        first.and(self.1.handle_drain(port, now))
    }

    fn handle_stop(&mut self, port: &mut P, now: Instant) -> bool {
        let first = self.0.handle_stop(port, now);
        self.1.handle_stop(port, now) && first
    }
}

#[cfg(test)]
#[path = "both_tests.rs"]
mod tests;
