//! A client and a server at the ends of a simulated link, on a virtual clock.

use std::time::Duration;

use nmio::sim::{self, LinkConfig, SimClock, SimPort};
use nmio::{Batch, Clock, Handler, LoopConfig, MAX_BATCH, Port};

/// The ports of a client and a server, which may be wrapped, and their clock.
pub struct Link<C = SimPort, S = SimPort> {
    /// End `a` of the link.
    pub client: C,
    /// End `b` of the link.
    pub server: S,
    /// The time at both ends.
    pub clock: SimClock,
    /// Free frames of the server's pool before the first run.
    frames: u32,
}

impl Link {
    /// A link whose losses and delays are drawn from `seed`.
    pub fn new(config: &LinkConfig, seed: u64) -> Self {
        let (client, server, clock) = sim::link(config, seed);
        Self::of(client, server, clock)
    }
}

impl<C: Port, S: Port> Link<C, S> {
    /// A link of these ports.
    pub fn of(client: C, server: S, clock: SimClock) -> Self {
        Self {
            frames: server.pool().available(),
            client,
            server,
            clock,
        }
    }

    /// Runs both ends until `done`, or for `longest`: `false`.
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
        ended.expect("a simulated port")
    }

    /// Waits until the frames in the server's ring and on the wire are back.
    ///
    /// # Panics
    /// When a frame has leaked.
    pub fn drain(&mut self) {
        self.clock.advance(Duration::from_mins(1));
        let mut batch = Batch::new();
        loop {
            let received = self.server.receive(&mut batch, MAX_BATCH);
            received.expect("a simulated port");
            if batch.is_empty() {
                break;
            }
            batch.clear();
        }
        let free = self.server.pool().available();
        assert_eq!(free, self.frames, "a frame has leaked");
    }
}
