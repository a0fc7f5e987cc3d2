//! A client and a server on a simulated link with a virtual clock.

use std::time::Duration;

use nmio::sim::{self, LinkConfig, SimClock, SimPort};
use nmio::{Batch, Clock, Handler, LoopConfig, MAX_BATCH, Port};

/// The two ports of a simulated link, and the link's clock. Either port may be wrapped in another
/// port.
pub struct Link<C = SimPort, S = SimPort> {
    /// Side `a` of the link.
    pub client: C,
    /// Side `b` of the link.
    pub server: S,
    /// The clock of both sides.
    pub clock: SimClock,
    /// Number of free frames in the server's pool before the first run.
    frames: u32,
}

impl Link {
    /// Makes a link. `seed` determines the link's random faults: losses, reordering and duplicates.
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

    /// Runs both sides until `done` returns `true`, or until `longest` has passed in virtual time.
    /// Returns the last result of `done`.
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

    /// Advances the clock by a minute, and drops all frames that arrive at the server by then.
    ///
    /// Panics if the server's pool does not then have as many free frames as before the first run.
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
