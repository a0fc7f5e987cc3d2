//! A whole server for those who serve TCP only.

use ip::{Host, IcmpError, PROTOCOL_TCP, Packet, Transports};
use nmio::{Bell, Frame, Handler, Instant, Mailbox, Port};

use crate::congestion::{CongestionControl, Cubic};
use crate::stack::{Application, Stack};

/// A [`Host`] with a [`Stack`] on it: give it to [`nmio::run`].
pub struct Server<A: Application, C = Cubic> {
    /// What is below TCP.
    pub host: Host,
    /// The connections.
    pub stack: Stack<A, C>,
    mailbox: Option<Mailbox<A::Message>>,
}

impl<A: Application, C> Server<A, C> {
    /// A server of `stack` at the addresses of `host`.
    pub fn new(host: Host, stack: Stack<A, C>) -> Self {
        Self {
            host,
            stack,
            mailbox: None,
        }
    }

    /// Gives the application the messages that come by `mailbox`:
    /// [`Application::on_message`].
    #[must_use]
    pub fn with_mailbox(mut self, mailbox: Mailbox<A::Message>) -> Self {
        self.mailbox = Some(mailbox);
        self
    }
}

/// A stack takes every segment: it answers those of no connection too.
impl<A: Application, C: CongestionControl, P: Port> Transports<P> for Stack<A, C> {
    #[inline(always)]
    fn handle_tcp(&mut self, port: &mut P, segment: Packet, now: Instant) -> Option<Packet> {
        self.handle_segment(port, segment, now);
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
}

impl<A: Application, C: CongestionControl, P: Port> Handler<P> for Server<A, C> {
    #[inline(always)]
    fn handle_frame(&mut self, port: &mut P, frame: Frame, now: Instant) {
        self.host.handle_frame(port, frame, &mut self.stack, now);
    }

    #[inline(always)]
    fn handle_messages(&mut self, port: &mut P, now: Instant) {
        let Self { stack, mailbox, .. } = self;
        if let Some(mailbox) = mailbox {
            mailbox.take_all(|message| stack.handle_message(port, message, now));
        }
    }

    #[inline(always)]
    fn bell(&self) -> Option<&Bell> {
        self.mailbox.as_ref().map(Mailbox::bell)
    }

    #[inline(always)]
    fn handle_timers(&mut self, port: &mut P, now: Instant) {
        self.stack.handle_timers(port, now);
    }

    #[inline(always)]
    fn poll_timeout(&self) -> Option<Instant> {
        self.stack.poll_timeout()
    }

    #[inline(always)]
    fn is_flooded(&self, now: Instant) -> bool {
        self.stack.is_flooded(now)
    }

    fn handle_stop(&mut self, port: &mut P, now: Instant) -> bool {
        self.stack.hang_up(port, now)
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
