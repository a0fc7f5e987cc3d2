//! Several transports of one type on one host.

use std::net::IpAddr;
use std::ops::Range;

use eth::Mac;
use nmio::{Drain, Frame, Instant, Port};

use crate::host::Input;
use crate::icmp::IcmpError;
use crate::packet::Packet;
use crate::transports::Transports;
use crate::{PROTOCOL_TCP, PROTOCOL_UDP};

/// Transports of one type on one host, such as several web sites. Each has its own ports, or shares
/// its ports with others and has its own addresses. A packet goes to the first one that serves its
/// port and its address. If none does, the first one may refuse a TCP segment, such as with a reset.
///
/// [`Both`](crate::Both) combines transports of different types.
#[derive(Debug)]
pub struct Many<T>(Vec<Member<T>>);

/// One of several transports, and where it serves.
#[derive(Debug)]
pub struct Member<T> {
    transports: T,
    /// The own addresses on which the transports serve. Empty for all of them.
    addresses: Vec<IpAddr>,
}

impl<T> Member<T> {
    /// Creates a member that serves on these addresses, or on all addresses of the host if there are
    /// none.
    pub fn new(transports: T, addresses: Vec<IpAddr>) -> Self {
        Self {
            transports,
            addresses,
        }
    }

    /// Returns true if the member serves on an address that `address` returns.
    #[inline(always)]
    fn is_on(&self, address: impl FnOnce() -> IpAddr) -> bool {
        self.addresses.is_empty() || self.addresses.contains(&address())
    }
}

impl<T> Many<T> {
    /// Combines transports.
    pub fn new(members: Vec<Member<T>>) -> Self {
        Self(members)
    }

    /// Returns the transports, in the order in which they were given.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|one| &one.transports)
    }

    /// Same as [`iter`](Self::iter), for changes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|one| &mut one.transports)
    }

    /// Returns the transports that serve a packet.
    #[inline(always)]
    fn of_packet<P: Port>(&mut self, protocol: u8, packet: &Packet) -> Option<&mut T>
    where
        T: Transports<P>,
    {
        let (port, own) = (packet.dst_port(), || packet.addresses().dst());
        let mut members = self.0.iter_mut();
        let found = members.find(|one| one.transports.serves(protocol, port) && one.is_on(own))?;
        Some(&mut found.transports)
    }
}

impl<P: Port, T: Transports<P>> Transports<P> for Many<T> {
    const INTERCEPTS: bool = T::INTERCEPTS;

    #[inline(always)]
    fn intercept(&mut self, port: &mut P, frame: Frame, now: Instant) -> Option<Frame> {
        self.iter_mut()
            .try_fold(frame, |frame, one| one.intercept(port, frame, now))
    }

    #[inline(always)]
    fn serves(&self, protocol: u8, port: u16) -> bool {
        self.iter().any(|one| one.serves(protocol, port))
    }

    #[inline(always)]
    fn handle_tcp(&mut self, port: &mut P, segment: Packet, now: Instant) -> Option<Packet> {
        match self.of_packet(PROTOCOL_TCP, &segment) {
            Some(transports) => transports.handle_tcp(port, segment, now),
            None => self.refuse_tcp(port, segment),
        }
    }

    #[cold]
    fn refuse_tcp(&mut self, port: &mut P, segment: Packet) -> Option<Packet> {
        self.iter_mut()
            .try_fold(segment, |segment, one| one.refuse_tcp(port, segment))
    }

    #[inline(always)]
    fn handle_udp(&mut self, port: &mut P, datagram: Packet, now: Instant) -> Option<Packet> {
        match self.of_packet(PROTOCOL_UDP, &datagram) {
            Some(transports) => transports.handle_udp(port, datagram, now),
            None => Some(datagram),
        }
    }

    fn handle_icmp_error(&mut self, error: &IcmpError, now: Instant) -> bool {
        let own = || error.addresses.src();
        let mut members = self.0.iter_mut();
        let found = members
            .find(|one| one.transports.serves(error.protocol, error.src_port) && one.is_on(own));
        found.is_some_and(|one| one.transports.handle_icmp_error(error, now))
    }

    #[inline(always)]
    fn wants_prefetch(&self, len: usize) -> bool {
        self.iter().any(|one| one.wants_prefetch(len))
    }

    #[inline(always)]
    fn prefetch_batch(&mut self, batch: &[Input]) {
        self.iter_mut().for_each(|one| one.prefetch_batch(batch));
    }

    #[inline(always)]
    fn handle_prefetched_udp(
        &mut self,
        port: &mut P,
        datagram: Packet,
        index: usize,
        now: Instant,
    ) -> Option<Packet> {
        match self.of_packet(PROTOCOL_UDP, &datagram) {
            Some(transports) => transports.handle_prefetched_udp(port, datagram, index, now),
            None => Some(datagram),
        }
    }

    #[inline(always)]
    fn handle_timers(&mut self, port: &mut P, now: Instant) {
        self.iter_mut().for_each(|one| one.handle_timers(port, now));
    }

    #[inline(always)]
    fn poll_timeout(&self) -> Option<Instant> {
        self.iter().filter_map(T::poll_timeout).min()
    }

    fn handle_messages(&mut self, port: &mut P, now: Instant) {
        self.iter_mut()
            .for_each(|one| one.handle_messages(port, now));
    }

    #[inline(always)]
    fn is_flooded(&self, now: Instant) -> bool {
        self.iter().any(|one| one.is_flooded(now))
    }

    fn reset_strangers(
        &mut self,
        port: &mut P,
        slots: Range<u32>,
        is_ours: &dyn Fn(&IpAddr) -> bool,
        now: Instant,
    ) -> bool {
        // `|` asks every transport, where `any` stops at the first.
        self.iter_mut().fold(false, |more, one| {
            more | one.reset_strangers(port, slots.clone(), is_ours, now)
        })
    }

    fn set_own_mac(&mut self, slots: Range<u32>, own: Mac) -> bool {
        self.iter_mut().fold(false, |more, one| {
            more | one.set_own_mac(slots.clone(), own)
        })
    }

    fn handle_drain(&mut self, port: &mut P, now: Instant) -> Drain {
        self.iter_mut().fold(Drain::Done, |drain, one| {
            drain.and(one.handle_drain(port, now))
        })
    }

    fn handle_stop(&mut self, port: &mut P, now: Instant) -> bool {
        // `&` asks every transport, where `all` stops at the first.
        self.iter_mut()
            .fold(true, |closed, one| closed & one.handle_stop(port, now))
    }
}

#[cfg(test)]
mod tests {
    use nmio::sim::Sink;

    use super::*;
    use crate::testing::{RecordingTransport, V4, V6, host, packet, to_port, to_us, too_big};

    /// Sites on port 80 of one address each, and one on port 81 of all addresses.
    fn sites() -> Many<RecordingTransport> {
        let site = |port, addresses| {
            let transports = RecordingTransport::on(PROTOCOL_TCP, port);
            Member::new(transports, addresses)
        };
        Many::new(vec![
            site(80, vec![V4.0.into()]),
            site(80, vec![V6.0.into()]),
            site(81, Vec::new()),
        ])
    }

    fn received(sites: &mut Many<RecordingTransport>, bytes: &[u8]) -> Vec<String> {
        let (mut host, mut sink) = (host(), Sink::new(1500, 4, 0));
        let frame = sink.frame_from(bytes);
        host.handle_frame(&mut sink, frame, sites, Instant::ZERO);
        logs(sites)
    }

    fn logs(sites: &mut Many<RecordingTransport>) -> Vec<String> {
        let logs = sites.iter_mut().map(|one| std::mem::take(&mut one.log));
        logs.collect()
    }

    /// Fixes the port type to [`Sink`], so that trait methods can be called without annotations.
    fn as_one(sites: &mut Many<RecordingTransport>) -> &mut impl Transports<Sink> {
        sites
    }

    #[test]
    fn a_packet_goes_to_the_site_of_its_address_and_port() {
        let mut sites = sites();
        let mut of = |v6, port| received(&mut sites, &to_port(v6, PROTOCOL_TCP, port));
        assert_eq!(of(false, 80), ["t", "", ""]);
        assert_eq!(of(true, 80), ["", "t", ""]);
        assert_eq!(of(false, 81), ["", "", "t"]);
        assert_eq!(of(true, 81), ["", "", "t"]);
        // No site serves it, so the first one refuses it.
        assert_eq!(of(true, 82), ["r", "", ""]);
    }

    #[test]
    fn no_site_serves_an_address_of_another_one() {
        let site = RecordingTransport::on(PROTOCOL_TCP, 80);
        let mut one = Many::new(vec![Member::new(site, vec![V4.0.into()])]);
        assert_eq!(received(&mut one, &to_port(true, PROTOCOL_TCP, 80)), ["r"]);
        // The host refuses a datagram.
        assert_eq!(received(&mut one, &to_port(true, PROTOCOL_UDP, 80)), [""]);
    }

    #[test]
    fn an_icmp_error_goes_to_the_site_whose_packet_it_quotes() {
        let mut ours = to_us(false);
        ours.addresses = ours.addresses.reversed();
        let mut header = [0; 20];
        header[..2].copy_from_slice(&80_u16.to_be_bytes());
        let error = too_big(&packet(ours, PROTOCOL_TCP, &header));
        assert_eq!(received(&mut sites(), &error), ["e", "", ""]);
    }

    #[test]
    fn all_sites_act_as_one() {
        let mut sites = sites();
        let (mut sink, at) = (Sink::new(1500, 4, 0), Instant::from_nanos);
        let seen = as_one(&mut sites);
        seen.handle_timers(&mut sink, at(1));
        seen.handle_messages(&mut sink, at(1));
        assert_eq!(seen.handle_drain(&mut sink, at(1)), Drain::Done);
        assert!(seen.handle_stop(&mut sink, at(1)));
        assert_eq!(seen.poll_timeout(), None);
        assert!(!seen.is_flooded(at(1)) && !seen.wants_prefetch(2));
        assert_eq!(logs(&mut sites), ["TMDS"; 3]);
        let each: Vec<_> = sites.iter_mut().collect();
        for (one, due) in each.into_iter().zip([None, Some(7), Some(6)]) {
            one.due = due.map(at);
            one.floods = due.is_some();
            one.is_closed = due.is_some();
        }
        let seen = as_one(&mut sites);
        assert_eq!(seen.poll_timeout(), Some(at(6)));
        assert_eq!(seen.handle_drain(&mut sink, at(1)), Drain::Busy(at(6)));
        assert!(seen.is_flooded(at(1)));
        // All sites are stopped, although the first still has open connections.
        assert!(!seen.handle_stop(&mut sink, at(1)));
        assert_eq!(logs(&mut sites), ["DS"; 3]);
    }
}
