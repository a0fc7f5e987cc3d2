//! Handing packets to the transports on a host, and refusing the rest.

use arrayvec::ArrayVec;
use nmio::{Batch, Frame, Instant, MAX_BATCH, Port, prefetch};

use crate::host::{Host, Input};
use crate::icmp::IcmpError;
use crate::packet::Packet;

/// What serves TCP, UDP or both on a [`Host`].
///
/// A method gives back what it does not serve, and so does one that is not
/// implemented. The host refuses and counts whatever nobody takes.
pub trait Transports<P: Port> {
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
}

/// No transport at all: everything is refused.
impl<P: Port> Transports<P> for () {}

/// Two transports on one host. The second gets what the first gives back.
#[derive(Debug)]
pub struct Both<'t, A, B>(
    /// The first.
    pub &'t mut A,
    /// The second.
    pub &'t mut B,
);

impl<P: Port, A: Transports<P>, B: Transports<P>> Transports<P> for Both<'_, A, B> {
    #[inline(always)]
    fn handle_tcp(&mut self, port: &mut P, segment: Packet, now: Instant) -> Option<Packet> {
        let segment = self.0.handle_tcp(port, segment, now)?;
        self.1.handle_tcp(port, segment, now)
    }

    #[inline(always)]
    fn handle_udp(&mut self, port: &mut P, datagram: Packet, now: Instant) -> Option<Packet> {
        let datagram = self.0.handle_udp(port, datagram, now)?;
        self.1.handle_udp(port, datagram, now)
    }

    #[inline(always)]
    fn handle_icmp_error(&mut self, error: &IcmpError, now: Instant) -> bool {
        self.0.handle_icmp_error(error, now) || self.1.handle_icmp_error(error, now)
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
