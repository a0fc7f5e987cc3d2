//! Handing packets to the transports on a host, and refusing the rest.

use arrayvec::ArrayVec;
use nmio::{Batch, Frame, Instant, MAX_BATCH, Port, prefetch};

use crate::host::{Host, Input};
use crate::icmp::IcmpError;
use crate::packet::Packet;

/// What serves TCP, UDP or both on a [`Host`]: put both into a
/// [`Server`](crate::Server), and several into one by [`Both`](crate::Both).
///
/// A method gives back what it does not serve, and so does one that is not
/// implemented. The host refuses and counts whatever nobody takes. Most have a
/// counterpart in [`nmio::Handler`], which says when they are called.
pub trait Transports<P: Port> {
    /// Whether [`intercept`](Self::intercept) does anything. It is not called otherwise.
    const INTERCEPTS: bool = false;

    /// Whether it serves `port` over `protocol`, [`PROTOCOL_TCP`](crate::PROTOCOL_TCP)
    /// or [`PROTOCOL_UDP`](crate::PROTOCOL_UDP).
    fn serves(&self, protocol: u8, port: u16) -> bool;

    /// Handles a frame before the host looks at it, or gives it back: for protocols of
    /// your own.
    #[inline(always)]
    fn intercept(&mut self, _port: &mut P, frame: Frame, _now: Instant) -> Option<Frame> {
        Some(frame)
    }

    /// Handles a TCP segment, or gives it back. Its checksum is not checked yet.
    #[inline(always)]
    fn handle_tcp(&mut self, _port: &mut P, segment: Packet, _now: Instant) -> Option<Packet> {
        Some(segment)
    }

    /// Handles a UDP datagram, or gives it back. Its checksum is not checked
    /// yet. One whose checksum is wrong is dropped here, and not given back.
    #[inline(always)]
    fn handle_udp(&mut self, _port: &mut P, datagram: Packet, _now: Instant) -> Option<Packet> {
        Some(datagram)
    }

    /// Handles an ICMP error about a packet of ours. `false` when it is about
    /// another protocol.
    fn handle_icmp_error(&mut self, _error: &IcmpError, _now: Instant) -> bool {
        false
    }

    /// Whether it wants to [look at](Self::look_ahead) a batch of `len` packets before
    /// it handles the first.
    #[inline(always)]
    fn looks_ahead(&self, _len: usize) -> bool {
        false
    }

    /// Looks at a batch, to begin what handling it will wait for.
    #[inline(always)]
    fn look_ahead(&mut self, _batch: &[Input]) {}

    /// As [`handle_udp`](Self::handle_udp), for the datagram at this place of the batch
    /// that it has looked at.
    #[inline(always)]
    fn handle_seen_udp(
        &mut self,
        port: &mut P,
        datagram: Packet,
        _place: usize,
        now: Instant,
    ) -> Option<Packet> {
        self.handle_udp(port, datagram, now)
    }

    /// Runs what is due at `now`.
    #[inline(always)]
    fn handle_timers(&mut self, _port: &mut P, _now: Instant) {}

    /// When [`handle_timers`](Self::handle_timers) must be called next, at the latest.
    #[inline(always)]
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Empties its mailboxes.
    #[inline(always)]
    fn handle_messages(&mut self, _port: &mut P, _now: Instant) {}

    /// Whether waking up for each packet would cost more than to look for it.
    #[inline(always)]
    fn is_flooded(&self, _now: Instant) -> bool {
        false
    }

    /// Tells those who would wait for more that nothing more comes. Whether that was
    /// all.
    fn handle_stop(&mut self, _port: &mut P, _now: Instant) -> bool {
        true
    }
}

/// No transport at all: everything is refused.
impl<P: Port> Transports<P> for () {
    fn serves(&self, _protocol: u8, _port: u16) -> bool {
        false
    }
}

/// A batch that has been taken apart, oldest first.
pub type Inputs = ArrayVec<Input, MAX_BATCH>;

/// Frames asked for ahead of the one that is read: they were written by
/// somebody else, a device or another core.
const FRAMES_AHEAD: usize = 4;

impl Host {
    /// Handles a received frame to completion: answers what is below the
    /// transports, gives them what is theirs, and refuses what they give back.
    ///
    /// An answer that finds the TX ring full is lost, as on the wire.
    #[inline(always)]
    pub fn handle_frame<P: Port, T: Transports<P>>(
        &mut self,
        port: &mut P,
        frame: Frame,
        transports: &mut T,
        now: Instant,
    ) {
        let input = self.receive(frame, now);
        self.hand_over(port, input, transports, now);
    }

    /// Takes a batch apart, oldest first, and empties it. What it was goes to
    /// `inputs`, to be [handed over](Self::hand_over) in this order. For servers
    /// that look at a whole batch before they handle the first of it.
    ///
    /// # Panics
    /// When `inputs` is not empty and has no room.
    #[inline(always)]
    pub fn receive_batch(&mut self, batch: &mut Batch, inputs: &mut Inputs, now: Instant) {
        batch.reverse();
        for frame in batch.iter().rev().take(FRAMES_AHEAD) {
            prefetch(&**frame);
        }
        while let Some(frame) = batch.pop() {
            if let Some(at) = batch.len().checked_sub(FRAMES_AHEAD) {
                prefetch(&*batch[at]);
            }
            inputs.push(self.receive(frame, now));
        }
    }

    /// Handles what [`receive`](Self::receive) has given: the second half of
    /// [`handle_frame`](Self::handle_frame).
    #[inline(always)]
    pub fn hand_over<P: Port, T: Transports<P>>(
        &mut self,
        port: &mut P,
        input: Input,
        transports: &mut T,
        now: Instant,
    ) {
        match input {
            Input::Tcp(segment) => {
                if let Some(refused) = transports.handle_tcp(port, segment, now) {
                    send(port, self.refuse_tcp(refused, now));
                }
            }
            Input::Udp(datagram) => {
                if let Some(refused) = transports.handle_udp(port, datagram, now) {
                    send(port, self.refuse_udp(refused, now));
                }
            }
            Input::Reply(reply) => send(port, Some(reply)),
            Input::Error(error) => {
                if !transports.handle_icmp_error(&error, now) {
                    self.count_error_not_served();
                }
            }
            Input::Dropped => {}
        }
    }
}

/// An answer that finds the TX ring full is lost, as on the wire.
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
