//! A whole server for those who serve TCP only.

use ip::{Host, Input};
use nmio::{Frame, Handler, Instant, Port};

use crate::app::Application;
use crate::congestion::{CongestionControl, Cubic};
use crate::stack::Stack;

/// A [`Host`] with a [`Stack`] on it: give it to [`nmio::run`].
pub struct Server<A: Application, C = Cubic> {
    /// What is below TCP.
    pub host: Host,
    /// The connections.
    pub stack: Stack<A, C>,
}

impl<A: Application, C> Server<A, C> {
    /// A server of `stack` at the addresses of `host`.
    pub fn new(host: Host, stack: Stack<A, C>) -> Self {
        Self { host, stack }
    }
}

impl<A: Application, C: CongestionControl, P: Port> Handler<P> for Server<A, C> {
    #[inline(always)]
    fn handle_frame(&mut self, port: &mut P, frame: Frame, now: Instant) {
        match self.host.receive(frame, now) {
            Input::Tcp(packet) => self.stack.handle_segment(port, packet, now),
            // A reply that finds the ring full is lost, as on the wire.
            Input::Reply(reply) => drop(port.send(reply)),
            Input::Error(error) => self.stack.handle_icmp_error(&error, now),
            Input::Udp(packet) => {
                if let Some(error) = self.host.refuse_udp(packet, now) {
                    let _ = port.send(error);
                }
            }
            Input::Dropped => {}
        }
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
    fn stays_awake(&self, now: Instant) -> bool {
        self.stack.is_flooded(now)
    }

    fn handle_stop(&mut self, port: &mut P, now: Instant) -> bool {
        self.stack.hang_up(port, now)
    }
}
