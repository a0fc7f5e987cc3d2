//! Connects a TCP stack to the IP layer of a host.

use std::net::IpAddr;
use std::ops::Range;

use eth::Mac;
use ip::{IcmpError, PROTOCOL_TCP, Packet, Transports};
use nmio::{Drain, Instant, Port};

use crate::congestion::{CongestionControl, Cubic};
use crate::stack::{Application, Stack};

/// An IP host with TCP as its only transport, ready for an event loop.
pub type Server<A, C = Cubic> = ip::Server<Stack<A, C>>;

/// The stack handles every TCP segment, including those that belong to no connection.
impl<A: Application, C: CongestionControl, P: Port> Transports<P> for Stack<A, C> {
    #[inline(always)]
    fn serves(&self, protocol: u8, port: u16) -> bool {
        protocol == PROTOCOL_TCP && Stack::serves(self, port)
    }

    #[inline(always)]
    fn handle_tcp(&mut self, port: &mut P, segment: Packet, now: Instant) -> Option<Packet> {
        self.handle_segment(port, segment, now);
        None
    }

    fn refuse_tcp(&mut self, port: &mut P, segment: Packet) -> Option<Packet> {
        self.refuse_segment(port, segment);
        None
    }

    #[inline(always)]
    fn handle_icmp_error(&mut self, error: &IcmpError, now: Instant) -> bool {
        let is_about_tcp = error.protocol == PROTOCOL_TCP;
        if is_about_tcp {
            Stack::handle_icmp_error(self, error, now);
        }
        is_about_tcp
    }

    fn handle_messages(&mut self, port: &mut P, now: Instant) {
        Stack::handle_messages(self, port, now);
    }

    #[inline(always)]
    fn handle_timers(&mut self, port: &mut P, now: Instant) {
        Stack::handle_timers(self, port, now);
    }

    #[inline(always)]
    fn poll_timeout(&self) -> Option<Instant> {
        Stack::poll_timeout(self)
    }

    #[inline(always)]
    fn is_flooded(&self, now: Instant) -> bool {
        Stack::is_flooded(self, now)
    }

    fn handle_drain(&mut self, port: &mut P, now: Instant) -> Drain {
        self.drain(port, now)
    }

    fn reset_strangers(
        &mut self,
        port: &mut P,
        slots: Range<u32>,
        is_ours: &dyn Fn(&IpAddr) -> bool,
        now: Instant,
    ) -> bool {
        Stack::reset_strangers(self, port, slots, is_ours, now)
    }

    fn set_own_mac(&mut self, slots: Range<u32>, own: Mac) -> bool {
        Stack::set_own_mac(self, slots, own)
    }

    fn handle_stop(&mut self, port: &mut P, now: Instant) -> bool {
        self.shut_down(port, now)
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
