//! Passes packets to the transports of a host, and refuses packets that no transport serves.

use std::net::IpAddr;
use std::ops::Range;

use arrayvec::ArrayVec;
use eth::Mac;
use nmio::{Batch, Drain, Frame, Instant, Port, prefetch};

use crate::host::{Class, Host, Input};
use crate::icmp::IcmpError;
use crate::packet::Packet;

/// Serves TCP, UDP or both on a [`Host`]. A [`Server`](crate::Server) is a host with its
/// transports, and [`Both`](crate::Both) combines two transports.
///
/// A method that gets a packet returns the packet if the transports do not serve it. The host then
/// refuses and counts the packet. By default, all packets are returned. Methods with the same name
/// as a method of [`nmio::Handler`] are called at the same times.
pub trait Transports<P: Port> {
    /// Whether [`intercept`](Self::intercept) is implemented. If `false`,
    /// [`Server`](crate::Server) does not call `intercept`.
    const INTERCEPTS: bool = false;

    /// Returns true if the transports serve `port`. `protocol` is
    /// [`PROTOCOL_TCP`](crate::PROTOCOL_TCP) or [`PROTOCOL_UDP`](crate::PROTOCOL_UDP).
    fn serves(&self, protocol: u8, port: u16) -> bool;

    /// Handles a frame before the host parses it, for example a frame of a custom protocol. Returns
    /// the frame if the transports do not handle it.
    #[inline(always)]
    fn intercept(&mut self, _port: &mut P, frame: Frame, _now: Instant) -> Option<Frame> {
        Some(frame)
    }

    /// Handles a TCP segment, or returns it if its port is not served. The segment's checksum has
    /// not been checked, so this method must check it.
    #[inline(always)]
    fn handle_tcp(&mut self, _port: &mut P, segment: Packet, _now: Instant) -> Option<Packet> {
        Some(segment)
    }

    /// Refuses a TCP segment to an address or a port that no transports serve, usually with a reset. Returns
    /// the segment if the host must refuse it. By default, all segments are returned.
    ///
    /// [`Many`](crate::Many) calls this method. The segment's checksum has not been checked.
    fn refuse_tcp(&mut self, _port: &mut P, segment: Packet) -> Option<Packet> {
        Some(segment)
    }

    /// Handles a UDP datagram, or returns it if its port is not served. The datagram's checksum has
    /// not been checked, so this method must check it.
    #[inline(always)]
    fn handle_udp(&mut self, _port: &mut P, datagram: Packet, _now: Instant) -> Option<Packet> {
        Some(datagram)
    }

    /// Handles an ICMP error about a packet that we sent. Returns `false` if no transport handles
    /// errors about the protocol of that packet.
    fn handle_icmp_error(&mut self, _error: &IcmpError, _now: Instant) -> bool {
        false
    }

    /// Returns true if [`prefetch_batch`](Self::prefetch_batch) should be called before the packets of a batch
    /// of `len` frames are handled.
    #[inline(always)]
    fn wants_prefetch(&self, _len: usize) -> bool {
        false
    }

    /// Prefetches into the cache the memory that will be read while these packets are handled. They are a
    /// part of a batch, with at most [`MAX_INPUTS`] packets.
    #[inline(always)]
    fn prefetch_batch(&mut self, _batch: &[Input]) {}

    /// Like [`handle_udp`](Self::handle_udp), for the datagram at `index` of the prefetched
    /// packets.
    #[inline(always)]
    fn handle_prefetched_udp(
        &mut self,
        port: &mut P,
        datagram: Packet,
        _index: usize,
        now: Instant,
    ) -> Option<Packet> {
        self.handle_udp(port, datagram, now)
    }

    /// Runs timers that have expired by `now`.
    #[inline(always)]
    fn handle_timers(&mut self, _port: &mut P, _now: Instant) {}

    /// Returns the time by which [`handle_timers`](Self::handle_timers) must next be called, or
    /// `None` if no timer is running.
    #[inline(always)]
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Handles all messages in the transports' mailboxes.
    #[inline(always)]
    fn handle_messages(&mut self, _port: &mut P, _now: Instant) {}

    /// Returns true if polling is currently cheaper than waking up for each packet.
    #[inline(always)]
    fn is_flooded(&self, _now: Instant) -> bool {
        false
    }

    /// Resets the connections in the table slots `slots` whose own address does not satisfy
    /// `is_ours`. Returns true if slots follow those. By default there are no connections.
    ///
    /// After an address was removed, the server calls this method for a few slots at a time, so that
    /// packets need not wait long.
    fn reset_strangers(
        &mut self,
        _port: &mut P,
        _slots: Range<u32>,
        _is_ours: &dyn Fn(&IpAddr) -> bool,
        _now: Instant,
    ) -> bool {
        false
    }

    /// Makes the connections in the table slots `slots` send from the MAC address `own`. Returns true if
    /// slots follow those. By default there are no connections.
    ///
    /// After the interface got another MAC address, the server calls this method for a few slots at a
    /// time. Segments that arrive later bring the address with them.
    fn set_own_mac(&mut self, _slots: Range<u32>, _own: Mac) -> bool {
        false
    }

    /// Lets open connections finish, and refuses new ones, after a request to stop. By default
    /// there are none.
    fn handle_drain(&mut self, _port: &mut P, _now: Instant) -> Drain {
        Drain::Done
    }

    /// Closes open connections when the server stops. Returns true if all connections are closed.
    /// Until then, the event loop repeats the call for at most a second.
    fn handle_stop(&mut self, _port: &mut P, _now: Instant) -> bool {
        true
    }
}

/// No transports: the host refuses every TCP and UDP packet.
impl<P: Port> Transports<P> for () {
    fn serves(&self, _protocol: u8, _port: u16) -> bool {
        false
    }
}

/// Maximum number of packets for which memory is prefetched at once. The cache would not hold what more
/// of them need.
pub const MAX_INPUTS: usize = 256;

/// Parsed frames, oldest first.
pub type Inputs = ArrayVec<Input, MAX_INPUTS>;

/// Number of frames prefetched ahead of the one being parsed. A device or another core wrote the
/// frames, so they are probably not in this core's cache.
const PREFETCHED_FRAMES: usize = 4;

impl Host {
    /// Handles a received frame completely. Sends the host's own reply, passes packets and ICMP
    /// errors to the transports, and refuses the packets that they return.
    ///
    /// Drops the host's own reply if the TX ring is full. Peers must cope with a missing reply
    /// anyway, because the network can lose it.
    #[inline(always)]
    pub fn handle_frame<P: Port, T: Transports<P>>(
        &mut self,
        port: &mut P,
        frame: Frame,
        transports: &mut T,
        now: Instant,
    ) {
        match self.classify(&frame) {
            Class::Tcp(extent) => {
                self.handle_tcp(port, self.packet_of(frame, extent), transports, now);
            }
            Class::Udp(extent) => {
                self.handle_udp(port, self.packet_of(frame, extent), transports, now);
            }
            Class::Rare => {
                let input = self.receive_rare(frame, now);
                self.dispatch_other(port, input, transports, now);
            }
            Class::Dropped => {}
        }
    }

    /// Takes frames from the end of `batch`, which holds the oldest frame last, and parses them into
    /// `inputs` as long as there is room. Each input must then be [dispatched](Self::dispatch), in the
    /// same order. This method is for transports that prefetch memory for many packets.
    #[inline(always)]
    pub fn receive_some(&mut self, batch: &mut Batch, inputs: &mut Inputs, now: Instant) {
        for frame in batch.iter().rev().take(PREFETCHED_FRAMES) {
            prefetch(&**frame);
        }
        while !inputs.is_full()
            && let Some(frame) = batch.pop()
        {
            if let Some(at) = batch.len().checked_sub(PREFETCHED_FRAMES) {
                prefetch(&*batch[at]);
            }
            inputs.push(self.receive(frame, now));
        }
    }

    /// Handles the result of [`receive`](Self::receive). [`handle_frame`](Self::handle_frame)
    /// does the work of both methods.
    #[inline(always)]
    pub fn dispatch<P: Port, T: Transports<P>>(
        &mut self,
        port: &mut P,
        input: Input,
        transports: &mut T,
        now: Instant,
    ) {
        match input {
            Input::Udp(datagram) => self.handle_udp(port, datagram, transports, now),
            other => self.dispatch_other(port, other, transports, now),
        }
    }

    /// Like [`dispatch`](Self::dispatch), for all inputs. Prefetched batches rarely have others than
    /// datagrams, and [`handle_frame`](Self::handle_frame) passes only rare frames here.
    #[cold]
    #[inline(never)]
    fn dispatch_other<P: Port, T: Transports<P>>(
        &mut self,
        port: &mut P,
        input: Input,
        transports: &mut T,
        now: Instant,
    ) {
        match input {
            Input::Tcp(segment) => self.handle_tcp(port, segment, transports, now),
            Input::Udp(datagram) => self.handle_udp(port, datagram, transports, now),
            Input::Reply(reply) => send(port, Some(reply)),
            Input::Error(error) => {
                if !transports.handle_icmp_error(&error, now) {
                    self.count_error_not_served();
                }
            }
            Input::Dropped => {}
        }
    }

    /// Passes a segment to the transports, and answers with an ICMP error if they refuse it.
    #[inline(always)]
    fn handle_tcp<P: Port, T: Transports<P>>(
        &mut self,
        port: &mut P,
        segment: Packet,
        transports: &mut T,
        now: Instant,
    ) {
        if let Some(refused) = transports.handle_tcp(port, segment, now) {
            send(port, self.refuse_tcp(refused, now));
        }
    }

    /// Like [`handle_tcp`](Self::handle_tcp), for a datagram.
    #[inline(always)]
    fn handle_udp<P: Port, T: Transports<P>>(
        &mut self,
        port: &mut P,
        datagram: Packet,
        transports: &mut T,
        now: Instant,
    ) {
        if let Some(refused) = transports.handle_udp(port, datagram, now) {
            send(port, self.refuse_udp(refused, now));
        }
    }
}

/// Sends the host's own reply, if there is one. Drops the reply if the TX ring is full.
#[cold]
#[inline(never)]
fn send<P: Port>(port: &mut P, answer: Option<Frame>) {
    if let Some(answer) = answer {
        let _ = port.send(answer);
    }
}

#[cfg(test)]
#[path = "transports_tests.rs"]
mod tests;
