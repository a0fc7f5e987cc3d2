//! Combines a host and its transports into a handler for the event loop.

use nmio::{Batch, Bell, Drain, Frame, Handler, Instant, Port};

use crate::host::Host;
use crate::icmp::IcmpError;
use crate::packet::Packet;
use crate::transports::{Inputs, Transports};

/// A [`Host`] with its [`Transports`]. Pass it to [`nmio::run`].
#[derive(Debug)]
pub struct Server<T> {
    /// The network layer.
    pub host: Host,
    /// The transports on the host.
    pub transports: T,
    bell: Option<Bell>,
}

impl<T> Server<T> {
    /// Creates a server that serves `transports` at the addresses of `host`.
    pub fn new(host: Host, transports: T) -> Self {
        Self {
            host,
            transports,
            bell: None,
        }
    }

    /// Sets the bell of the transports' mailboxes. New messages ring it to wake the event loop.
    #[must_use]
    pub fn with_bell(self, bell: Bell) -> Self {
        Self {
            bell: Some(bell),
            ..self
        }
    }

    /// Handles a batch in parts, each of which is prefetched.
    fn handle_prefetched<P: Port>(&mut self, port: &mut P, batch: &mut Batch, now: Instant)
    where
        T: Transports<P>,
    {
        batch.reverse();
        while !batch.is_empty() {
            self.handle_part(port, batch, now);
        }
    }

    /// Takes the oldest packets from the end of a batch. Lets the transports prefetch the memory that
    /// these packets need, and then handles them.
    ///
    /// This is a separate function, so that the loop over the parts takes no register.
    #[inline(never)]
    fn handle_part<P: Port>(&mut self, port: &mut P, batch: &mut Batch, now: Instant)
    where
        T: Transports<P>,
    {
        let mut inputs = Inputs::new();
        self.host.receive_some(batch, &mut inputs, now);
        self.transports.prefetch_batch(&inputs);
        for (index, input) in inputs.drain(..).enumerate() {
            let mut prefetched = Prefetched(&mut self.transports, index);
            self.host.dispatch(port, input, &mut prefetched, now);
        }
    }
}

/// Wraps transports to handle one packet of a prefetched batch. The number is the index of the
/// packet in the batch.
struct Prefetched<'t, T>(&'t mut T, usize);

impl<P: Port, T: Transports<P>> Transports<P> for Prefetched<'_, T> {
    fn serves(&self, protocol: u8, port: u16) -> bool {
        self.0.serves(protocol, port)
    }

    #[inline(always)]
    fn handle_tcp(&mut self, port: &mut P, segment: Packet, now: Instant) -> Option<Packet> {
        self.0.handle_tcp(port, segment, now)
    }

    #[inline(always)]
    fn handle_udp(&mut self, port: &mut P, datagram: Packet, now: Instant) -> Option<Packet> {
        self.0.handle_prefetched_udp(port, datagram, self.1, now)
    }

    fn handle_icmp_error(&mut self, error: &IcmpError, now: Instant) -> bool {
        self.0.handle_icmp_error(error, now)
    }
}

impl<P: Port, T: Transports<P>> Handler<P> for Server<T> {
    #[inline(always)]
    fn handle_frame(&mut self, port: &mut P, frame: Frame, now: Instant) {
        let Self {
            host, transports, ..
        } = self;
        let unhandled = if T::INTERCEPTS {
            transports.intercept(port, frame, now)
        } else {
            Some(frame)
        };
        if let Some(frame) = unhandled {
            host.handle_frame(port, frame, transports, now);
        }
    }

    #[inline(always)]
    fn handle_batch(&mut self, port: &mut P, batch: &mut Batch, now: Instant) {
        if self.transports.wants_prefetch(batch.len()) {
            if !T::INTERCEPTS {
                return self.handle_prefetched(port, batch, now);
            }
            let transports = &mut self.transports;
            let unhandled = |frame| transports.intercept(port, frame, now);
            let mut batch = batch.drain(..).filter_map(unhandled).collect();
            return self.handle_prefetched(port, &mut batch, now);
        }
        for frame in batch.drain(..) {
            self.handle_frame(port, frame, now);
        }
    }

    #[inline(always)]
    fn handle_messages(&mut self, port: &mut P, now: Instant) {
        self.transports.handle_messages(port, now);
    }

    #[inline(always)]
    fn bell(&self) -> Option<&Bell> {
        self.bell.as_ref()
    }

    #[inline(always)]
    fn handle_timers(&mut self, port: &mut P, now: Instant) {
        self.transports.handle_timers(port, now);
    }

    #[inline(always)]
    fn poll_timeout(&self) -> Option<Instant> {
        self.transports.poll_timeout()
    }

    #[inline(always)]
    fn is_flooded(&self, now: Instant) -> bool {
        self.transports.is_flooded(now)
    }

    fn handle_drain(&mut self, port: &mut P, now: Instant) -> Drain {
        self.transports.handle_drain(port, now)
    }

    fn handle_stop(&mut self, port: &mut P, now: Instant) -> bool {
        self.transports.handle_stop(port, now)
    }
}
