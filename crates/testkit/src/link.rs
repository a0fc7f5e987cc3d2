//! A client and a server on a simulated link with a virtual clock.

use std::time::Duration;

use nmio::sim::{self, LinkConfig, SimClock, SimPort};
use nmio::{Batch, Clock, Handler, LoopConfig, MAX_BATCH, Port};

/// A link's two ports, which may be wrapped in other ports, and its clock.
pub struct Link<C = SimPort, S = SimPort> {
    /// End `a` of the link.
    pub client: C,
    /// End `b` of the link.
    pub server: S,
    /// Clock of both ends.
    pub clock: SimClock,
    /// Number of free frames in the server's pool before the first run.
    frames: u32,
}

impl Link {
    /// Makes a link that draws its losses and delays from `seed`.
    pub fn new(config: &LinkConfig, seed: u64) -> Self {
        let (client, server, clock) = sim::link(config, seed);
        Self::of(client, server, clock)
    }
}

impl<C: Port, S: Port> Link<C, S> {
    /// Makes a link from connected ports and their clock.
    pub fn of(client: C, server: S, clock: SimClock) -> Self {
        Self {
            frames: server.pool().available(),
            client,
            server,
            clock,
        }
    }

    /// Runs both ends until `done` returns `true`, for `longest` at most.
    /// Returns whether they are done.
    pub fn run<HC: Handler<C>, HS: Handler<S>>(
        &mut self,
        client: &mut HC,
        server: &mut HS,
        longest: Duration,
        done: impl FnMut(&HC, &HS) -> bool,
    ) -> bool {
        let deadline = self.clock.now() + longest;
        let ended = sim::run_until(
            &self.clock,
            (&mut self.client, client),
            (&mut self.server, server),
            &LoopConfig::default(),
            deadline,
            done,
        );
        ended.expect("a simulated port does not fail")
    }

    /// Drops all frames that are on their way to the server.
    ///
    /// # Panics
    /// When the server's pool then lacks a frame.
    pub fn drain(&mut self) {
        self.clock.advance(Duration::from_mins(1));
        let mut batch = Batch::new();
        loop {
            let received = self.server.receive(&mut batch, MAX_BATCH);
            received.expect("a simulated port does not fail");
            if batch.is_empty() {
                break;
            }
            batch.clear();
        }
        let free = self.server.pool().available();
        assert_eq!(free, self.frames, "a frame has leaked");
    }
}
