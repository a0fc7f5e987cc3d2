//! The event loop: the paper's Figure 3.
//!
//! It receives a batch, handles each packet to completion, flushes the TX ring when δt has
//! passed or the RX ring is empty, runs timers, and waits if there was nothing to do. Under
//! load the RX ring is not empty, so sends gather until δt. System calls therefore become
//! rarer when the server is busier. The loop waits only after a pass without packets.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::frame::Frame;
use crate::idle::{Idle, Outlook, Rest};
use crate::mailbox::Bell;
use crate::port::{Batch, MAX_BATCH, Port, Wait};
use crate::time::{Clock, Instant};

/// A server's callbacks for frames, timers and messages. They are the paper's callbacks of
/// `netmap_input_set_cb()`, in one trait so that they inline.
pub trait Handler<P: Port> {
    /// Handles one received frame to completion: all packets that it causes are in the TX
    /// ring when this returns.
    fn handle_frame(&mut self, port: &mut P, frame: Frame, now: Instant);

    /// Handles and empties a batch, oldest first. The default handles frame by frame. A
    /// handler whose look-ups miss the cache can prefetch for the whole batch first.
    #[inline(always)]
    fn handle_batch(&mut self, port: &mut P, batch: &mut Batch, now: Instant) {
        for frame in batch.drain(..) {
            self.handle_frame(port, frame, now);
        }
    }

    /// Runs timers that expire by `now`, and continues sends that a full ring stopped. The
    /// loop calls it once per batch.
    fn handle_timers(&mut self, port: &mut P, now: Instant);

    /// Handles all messages in the [mailboxes](crate::Mailbox). The loop calls it between
    /// two batches when the [bell](Self::bell) was rung. The default does nothing.
    #[inline(always)]
    fn handle_messages(&mut self, _port: &mut P, _now: Instant) {}

    /// The bell of the handler's mailboxes, which wakes the loop. The default has none.
    #[inline(always)]
    fn bell(&self) -> Option<&Bell> {
        None
    }

    /// Latest time for the next call of [`handle_timers`](Handler::handle_timers). `None`
    /// means that only a packet can cause work.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Whether polling is cheaper now than waking up for each packet, as in a flood of
    /// worthless packets. The default is never.
    #[inline(always)]
    fn is_flooded(&self, _now: Instant) -> bool {
        false
    }

    /// Closes open connections when the loop stops. Returns whether all are closed. If not,
    /// the loop calls it again after a flush, for at most a second.
    fn handle_stop(&mut self, _port: &mut P, _now: Instant) -> bool {
        true
    }
}

/// Settings of the loop.
#[derive(Clone, Copy, Debug)]
pub struct LoopConfig {
    /// Maximum time between two flushes while packets keep coming (δt). The default is the
    /// paper's 80 µs.
    pub flush_interval: Duration,
    /// Frames handled between two readings of the clock: 1 to [`MAX_BATCH`], 64 by default.
    pub batch: usize,
    /// How an idle loop waits.
    pub wait: Wait,
    /// Maximum time until the next flush of packets that are still queued. The default is
    /// the paper's 5 ms.
    pub straggler: Duration,
}

impl Default for LoopConfig {
    fn default() -> Self {
        Self {
            flush_interval: Duration::from_micros(80),
            batch: 64,
            wait: Wait::Block,
            straggler: Duration::from_millis(5),
        }
    }
}

/// Maximum time to close connections when the loop stops.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// Serves until `stop` is set: the paper's `netmap_input()`.
///
/// # Errors
/// When the port is gone.
pub fn run<P: Port, H: Handler<P>>(
    port: &mut P,
    handler: &mut H,
    clock: &impl Clock,
    config: &LoopConfig,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut turn = LoopState::new(config, clock.now());
    while !stop.load(Ordering::Relaxed) {
        let now = clock.now();
        if !turn.pass(port, handler, now)? {
            turn.rest(port, handler, Instant::FAR, now)?;
        }
    }
    let last = clock.now() + SHUTDOWN;
    loop {
        let now = clock.now();
        let is_said = handler.handle_stop(port, now);
        let is_sent = port.flush()?;
        if (is_said && is_sent) || now >= last {
            return Ok(());
        }
        if !is_sent {
            thread::sleep(SHUTDOWN / 1_000);
        }
    }
}

/// The loop's state between two passes. Simulations and tests, which have their own
/// clock, use it instead of [`run`].
#[derive(Debug)]
pub struct LoopState {
    config: LoopConfig,
    idle: Idle,
    batch: Batch,
    last_flush: Instant,
    flushed: bool,
}

impl LoopState {
    /// Starts at `now`.
    pub fn new(config: &LoopConfig, now: Instant) -> Self {
        Self {
            config: *config,
            idle: Idle::new(config.wait, config.straggler),
            batch: Batch::new(),
            last_flush: now,
            flushed: true,
        }
    }

    /// Makes one pass: steps 1 to 10 of Figure 3. Returns `true` when it received packets.
    /// The loop then polls again before it waits, because more may have come.
    ///
    /// # Errors
    /// When the port is gone.
    #[inline]
    pub fn pass<P: Port, H: Handler<P>>(
        &mut self,
        port: &mut P,
        handler: &mut H,
        now: Instant,
    ) -> io::Result<bool> {
        let limit = self.config.batch.clamp(1, MAX_BATCH);
        port.receive(&mut self.batch, limit)?;
        let received = self.batch.len();
        self.idle.note_pass(received > 0);
        handler.handle_batch(port, &mut self.batch, now);
        if handler.bell().is_some_and(Bell::silence) {
            handler.handle_messages(port, now);
        }
        handler.handle_timers(port, now);
        if received < limit || now.since(self.last_flush) >= self.config.flush_interval {
            self.flushed = port.flush()?;
            self.last_flush = now;
        }
        Ok(received > 0)
    }

    /// Spins, yields or sleeps after a pass at `now` that received nothing, until `latest` at
    /// most.
    ///
    /// [`LoopConfig::wait`], [`Port::hints`] and the handler decide which. Nothing else
    /// decides when a loop sleeps.
    ///
    /// # Errors
    /// When the port is gone.
    pub fn rest<P: Port, H: Handler<P>>(
        &mut self,
        port: &mut P,
        handler: &H,
        latest: Instant,
        now: Instant,
    ) -> io::Result<()> {
        let outlook = Outlook {
            due: Some(handler.poll_timeout().map_or(latest, |due| due.min(latest))),
            flooded: handler.is_flooded(now),
            flushed: self.flushed,
            has_messages: handler.bell().is_some_and(Bell::is_rung),
        };
        match self.idle.rest(port.hints(), outlook, now) {
            Rest::Spin => Ok(()),
            Rest::Yield => {
                thread::yield_now();
                Ok(())
            }
            Rest::Poll => port.poll_device(),
            Rest::Block { gather, timeout } => {
                if !gather.is_zero() {
                    thread::sleep(gather);
                }
                port.wait(timeout, handler.bell())
            }
        }
    }

    /// Maximum time to sleep after a pass at `now`.
    pub fn timeout(&self, due: Option<Instant>, now: Instant) -> Duration {
        self.idle.timeout(due, self.flushed, now)
    }
}

#[cfg(test)]
#[path = "event_loop_tests.rs"]
mod tests;
