//! Passes datagrams and messages to a service, and calls its timer.

use ip::{PROTOCOL_UDP, Packet, Transports};
use nmio::{Instant, Mailbox, Port};

use crate::counters::Counters;
use crate::datagram::{Datagram, Malformed, verify};
use crate::reflectors::is_suspect;

/// A service that answers datagrams.
pub trait Service {
    /// The type of messages from other threads ([`Udp::set_mailbox`]). Use `()` if there are none.
    type Message: Send;

    /// Answers one datagram, or drops it. A slow implementation delays all other clients of the
    /// worker.
    fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, now: Instant);

    /// Handles a message from another thread. The worker calls this method between two batches of
    /// datagrams. The default does nothing.
    fn on_message(&mut self, message: Self::Message, now: Instant) {
        let _ = (message, now);
    }

    /// Returns the time at which the worker must call [`on_timer`](Self::on_timer), or `None` (the
    /// default) if no timer is set. The worker calls this method in every pass of its event loop.
    #[inline(always)]
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Called when the time returned by [`poll_timeout`](Self::poll_timeout) has come. Afterwards,
    /// `poll_timeout` must return a later time or `None`, or else the worker never sleeps. The
    /// default does nothing.
    fn on_timer(&mut self, now: Instant) {
        let _ = now;
    }
}

impl<S: Service> Service for &mut S {
    type Message = S::Message;

    #[inline(always)]
    fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, now: Instant) {
        S::on_datagram(self, datagram, now);
    }

    fn on_message(&mut self, message: S::Message, now: Instant) {
        S::on_message(self, message, now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        S::poll_timeout(self)
    }

    fn on_timer(&mut self, now: Instant) {
        S::on_timer(self, now);
    }
}

/// The UDP layer, which serves one port with one service.
#[derive(Debug)]
pub struct Udp<S: Service> {
    port: u16,
    counters: Counters,
    service: S,
    mailbox: Option<Mailbox<S::Message>>,
}

impl<S: Service> Udp<S> {
    /// Creates a UDP layer that serves `port` with `service`.
    pub fn new(port: u16, service: S) -> Self {
        Self {
            port,
            counters: Counters::default(),
            service,
            mailbox: None,
        }
    }

    /// Sets the mailbox whose messages go to [`Service::on_message`]. Pass the mailbox's bell to
    /// [`ip::Server::with_bell`], so that a message wakes the worker.
    pub fn set_mailbox(&mut self, mailbox: Mailbox<S::Message>) {
        self.mailbox = Some(mailbox);
    }

    /// Returns the counters of datagrams and answers.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the service.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// Returns the service, to change it between two batches.
    pub fn service_mut(&mut self) -> &mut S {
        &mut self.service
    }

    /// Passes one datagram to the service that `with` returns. Drops and counts the datagram if it
    /// is invalid. Returns the packet if the datagram is for another port.
    #[inline(always)]
    pub fn handle_with<'s, P: Port, T: Service>(
        &'s mut self,
        port: &mut P,
        mut packet: Packet,
        now: Instant,
        with: impl FnOnce(&'s mut S) -> T,
    ) -> Option<Packet> {
        match verify(&mut packet) {
            Err(Malformed::Length) => self.counters.malformed += 1,
            Err(Malformed::Checksum) => self.counters.bad_checksum += 1,
            Err(Malformed::PartialChecksum) => self.counters.partial_checksum += 1,
            Ok(()) => {
                let header = packet.payload();
                let src_port = u16::from_be_bytes([header[0], header[1]]);
                let dst_port = u16::from_be_bytes([header[2], header[3]]);
                if is_suspect(src_port) && self.counters.refuse(src_port) {
                    return None;
                }
                if dst_port != self.port {
                    return Some(packet);
                }
                self.counters.received += 1;
                let ports = (src_port, dst_port);
                let datagram = Datagram::new(port, packet, ports, &mut self.counters);
                with(&mut self.service).on_datagram(datagram, now);
            }
        }
        None
    }
}

impl<P: Port, S: Service> Transports<P> for Udp<S> {
    #[inline(always)]
    fn serves(&self, protocol: u8, port: u16) -> bool {
        protocol == PROTOCOL_UDP && port == self.port
    }

    #[inline(always)]
    fn handle_udp(&mut self, port: &mut P, packet: Packet, now: Instant) -> Option<Packet> {
        self.handle_with(port, packet, now, |service| service)
    }

    fn handle_messages(&mut self, _port: &mut P, now: Instant) {
        let Self {
            service, mailbox, ..
        } = self;
        if let Some(mailbox) = mailbox {
            mailbox.take_all(|message| service.on_message(message, now));
        }
    }

    #[inline(always)]
    fn handle_timers(&mut self, _port: &mut P, now: Instant) {
        if self.service.poll_timeout().is_some_and(|due| due <= now) {
            self.service.on_timer(now);
        }
    }

    #[inline(always)]
    fn poll_timeout(&self) -> Option<Instant> {
        self.service.poll_timeout()
    }
}

/// A server that serves UDP only.
pub type Server<S> = ip::Server<Udp<S>>;

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
