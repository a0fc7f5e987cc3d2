//! The event loop: the paper's Figure 3.
//!
//! Receive a batch; handle each packet to completion; flush the TX ring when
//! δt has passed or the batch ends; run timers; wait when there was nothing.
//! A batch ends when the RX ring is empty: under load the ring is not, so
//! that sends gather until δt, and system calls become rarer the busier the
//! server is. It rests only when a whole pass has found nothing to receive.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::frame::Frame;
use crate::idle::{Idle, Outlook, Rest};
use crate::mailbox::Bell;
use crate::port::{Batch, MAX_BATCH, Port, Wait};
use crate::time::{Clock, Instant};

/// What a server does with frames and time. The paper's callbacks of
/// `netmap_input_set_cb()`, joined in one trait so that they inline.
pub trait Handler<P: Port> {
    /// Handles one received frame to completion: what it causes to be sent
    /// is in the TX ring when this returns.
    fn handle_frame(&mut self, port: &mut P, frame: Frame, now: Instant);

    /// Handles a batch, oldest first, and empties it: frame by frame, unless
    /// the handler knows better. One whose look-ups go to memory can begin
    /// them all before it waits for the first.
    #[inline(always)]
    fn handle_batch(&mut self, port: &mut P, batch: &mut Batch, now: Instant) {
        for frame in batch.drain(..) {
            self.handle_frame(port, frame, now);
        }
    }

    /// Runs what is due at `now`, and goes on with sends that an earlier full
    /// ring has stopped. Called once a batch.
    fn handle_timers(&mut self, port: &mut P, now: Instant);

    /// Empties the handler's [mailboxes](crate::Mailbox). Called between two batches,
    /// when the [bell](Self::bell) was rung. Nothing, by default.
    #[inline(always)]
    fn handle_messages(&mut self, _port: &mut P, _now: Instant) {}

    /// What tells of messages, and wakes the loop for them. There is none by default.
    #[inline(always)]
    fn bell(&self) -> Option<&Bell> {
        None
    }

    /// When [`handle_timers`](Handler::handle_timers) must be called next,
    /// at the latest; `None` when only a packet can cause work.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Whether packets come so fast at `now`, and matter so little, that waking
    /// up for each would cost more than to look for it. Never, by default.
    #[inline(always)]
    fn is_flooded(&self, _now: Instant) -> bool {
        false
    }

    /// The loop has been told to stop: tells those who would wait for more that
    /// nothing more comes. Whether that was all; if not, it is called again
    /// after a flush, for a second at most.
    fn handle_stop(&mut self, _port: &mut P, _now: Instant) -> bool {
        true
    }
}

/// The loop's constants.
#[derive(Clone, Copy, Debug)]
pub struct LoopConfig {
    /// Most time between two flushes while packets keep coming (δt).
    /// The paper's value, and the default, is 80 µs.
    pub flush_interval: Duration,
    /// Frames handled before the clock is read again: 1 to [`MAX_BATCH`],
    /// 64 by default.
    pub batch: usize,
    /// What to do when there is nothing to do.
    pub wait: Wait,
    /// Packets still queued are flushed again after this time at the latest.
    /// The paper's value, and the default, is 5 ms.
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

/// A farewell takes no longer than this.
const FAREWELL: Duration = Duration::from_secs(1);

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
    let mut turn = Turn::new(config, clock.now());
    while !stop.load(Ordering::Relaxed) {
        let now = clock.now();
        if !turn.pass(port, handler, now)? {
            turn.rest(port, handler, Instant::FAR, now)?;
        }
    }
    let last = clock.now() + FAREWELL;
    loop {
        let now = clock.now();
        let is_said = handler.handle_stop(port, now);
        let is_sent = port.flush()?;
        if (is_said && is_sent) || now >= last {
            return Ok(());
        }
        if !is_sent {
            thread::sleep(FAREWELL / 1_000);
        }
    }
}

/// The loop's state between two passes; [`run`] without the clock, for
/// callers that own time themselves (simulations, tests).
#[derive(Debug)]
pub struct Turn {
    config: LoopConfig,
    idle: Idle,
    batch: Batch,
    last_flush: Instant,
    flushed: bool,
}

impl Turn {
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

    /// One pass: steps 1 to 10 of Figure 3. `true` when it has received
    /// anything: more may have come meanwhile, and to look is cheaper than to
    /// wait in vain.
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

    /// Spins, yields or sleeps after a pass at `now` that has received nothing,
    /// until `latest` at most.
    ///
    /// What it does follows from [`LoopConfig::wait`], from [`Port::hints`] and
    /// from what the handler tells. Nothing else decides when a loop sleeps.
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

    /// How long a loop may sleep after a pass at `now`.
    pub fn timeout(&self, due: Option<Instant>, now: Instant) -> Duration {
        self.idle.timeout(due, self.flushed, now)
    }
}

#[cfg(test)]
#[path = "event_loop_tests.rs"]
mod tests;
