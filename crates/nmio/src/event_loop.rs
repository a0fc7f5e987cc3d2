//! The event loop, after Figure 3 of the paper that the [crate's documentation](crate) cites.
//!
//! Each pass receives a batch, handles each packet to completion, handles messages, and runs
//! timers. It then flushes the TX ring if the batch was not full or the flush interval δt has
//! passed. If the pass received no packets, the loop waits before the next pass.
//!
//! Under load most batches are full, so packets accumulate in the TX ring until δt has passed. A
//! busier server therefore makes fewer system calls per packet.
//!
//! While the device does not take all queued packets, a pass receives no more packets than the TX
//! ring has room for. The others wait in the RX ring, so that their replies are not dropped.

use std::io;
use std::thread;
use std::time::Duration;

use crate::frame::Frame;
use crate::idle::{Idle, IdleAction, LoopStatus};
use crate::mailbox::Bell;
use crate::port::{Batch, MAX_BATCH, Port, Wait};
use crate::stop::{Drain, Stop};
use crate::time::{Clock, Instant};

/// A server's callbacks for frames, timers and messages. They correspond to the paper's
/// `netmap_input_set_cb()`, but a trait lets the compiler inline them.
pub trait Handler<P: Port> {
    /// Handles one received frame to completion, and queues the packets sent in response.
    fn handle_frame(&mut self, port: &mut P, frame: Frame, now: Instant);

    /// Handles and empties a batch, oldest frame first.
    ///
    /// The default calls [`handle_frame`](Self::handle_frame) for each frame. A handler whose
    /// lookups miss the cache can prefetch for the whole batch first.
    #[inline(always)]
    fn handle_batch(&mut self, port: &mut P, batch: &mut Batch, now: Instant) {
        for frame in batch.drain(..) {
            self.handle_frame(port, frame, now);
        }
    }

    /// Runs timers that have expired by `now`, and resumes sending that a full TX ring interrupted.
    /// The loop calls this once per pass.
    fn handle_timers(&mut self, port: &mut P, now: Instant);

    /// Handles all messages in the [mailboxes](crate::Mailbox). The default does nothing.
    ///
    /// The loop calls this between two batches if the [bell](Self::bell) was rung.
    #[inline(always)]
    fn handle_messages(&mut self, _port: &mut P, _now: Instant) {}

    /// Returns the bell that wakes the loop when a mailbox of the handler receives a message. The
    /// default is `None`.
    #[inline(always)]
    fn bell(&self) -> Option<&Bell> {
        None
    }

    /// Returns the latest time for the next call of [`handle_timers`](Handler::handle_timers).
    /// `None` means that there is no work until a packet arrives.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Returns true if polling is cheaper now than waking up for each packet, for example in a
    /// flood of packets that need no reply. The default is false.
    #[inline(always)]
    fn is_flooded(&self, _now: Instant) -> bool {
        false
    }

    /// Notes that the packets sent in answer to a batch have been flushed. The default does nothing.
    ///
    /// The batch was received at `received`, and flushed by `now`. If several batches were flushed
    /// together, the loop calls this once, for the oldest one.
    #[inline(always)]
    fn note_flushed(&mut self, _received: Instant, _now: Instant) {}

    /// Lets open connections finish, while new ones are refused. By default there are none.
    ///
    /// After a request to stop, the loop calls this method before each batch, until the drain is
    /// done or its time is over. Everything else continues as before. A call should handle only a
    /// few connections, so that packets need not wait long.
    fn handle_drain(&mut self, _port: &mut P, _now: Instant) -> Drain {
        Drain::Done
    }

    /// Closes open connections when the loop stops. Returns true if all connections are closed.
    ///
    /// The loop flushes and calls this method again until all connections are closed and all
    /// packets are flushed, for at most a second. During this time it receives no packets.
    fn handle_stop(&mut self, _port: &mut P, _now: Instant) -> bool {
        true
    }
}

/// Settings of the event loop.
#[derive(Clone, Copy, Debug)]
pub struct LoopConfig {
    /// Time since the last flush after which a pass flushes even if its batch was full (δt). The
    /// default is the paper's 80 µs.
    pub flush_interval: Duration,
    /// Maximum number of frames handled between two readings of the clock: 1 to [`MAX_BATCH`], by
    /// default 64. Above 256, the port needs more frames: see
    /// [`MemoryPlan::with_batch`](crate::device::MemoryPlan::with_batch).
    pub batch: usize,
    /// How an idle loop waits, by default [`Wait::Adaptive`].
    pub wait: Wait,
    /// Maximum time until the next flush if packets remain queued. The default is the paper's 5 ms.
    pub straggler: Duration,
    /// Maximum time for which open connections may finish after a request to stop. The default is 0:
    /// they are closed immediately.
    pub drain: Duration,
}

impl Default for LoopConfig {
    fn default() -> Self {
        Self {
            flush_interval: Duration::from_micros(80),
            batch: 64,
            wait: Wait::default(),
            straggler: Duration::from_millis(5),
            drain: Duration::ZERO,
        }
    }
}

/// Maximum time to wait for connections to close when the loop stops.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// Runs the event loop until `stop` is requested. Then lets connections finish
/// ([`Handler::handle_drain`]), and closes the rest ([`Handler::handle_stop`]). This is the paper's
/// `netmap_input()`.
///
/// A loop that sleeps notices the request within 100 ms.
///
/// # Errors
/// If the port is gone.
pub fn run<P: Port, H: Handler<P>>(
    port: &mut P,
    handler: &mut H,
    clock: &impl Clock,
    config: &LoopConfig,
    stop: &Stop,
) -> io::Result<()> {
    let mut state = LoopState::new(config, clock.now());
    let mut drain_ends = None;
    loop {
        let mut latest = Instant::FAR;
        if stop.is_requested() {
            let now = clock.now();
            let end = *drain_ends.get_or_insert(now + config.drain);
            match drain(port, handler, end, stop, now) {
                Drain::Done => break,
                Drain::Busy(due) => latest = due.min(end),
            }
        }
        let now = clock.now();
        // The drain and the normal service share this call, because the compiler copies the whole
        // server into it.
        if !state.pass(port, handler, now)? {
            state.rest(port, handler, latest, now)?;
        }
    }
    let deadline = clock.now() + SHUTDOWN;
    loop {
        let now = clock.now();
        let all_closed = handler.handle_stop(port, now);
        let flushed = port.flush()?;
        if (all_closed && flushed) || now >= deadline {
            return Ok(());
        }
        if !flushed {
            thread::sleep(SHUTDOWN / 1_000);
        }
    }
}

/// Continues the drain, unless its time is over.
#[cold]
fn drain<P: Port, H: Handler<P>>(
    port: &mut P,
    handler: &mut H,
    end: Instant,
    stop: &Stop,
    now: Instant,
) -> Drain {
    if now >= end || stop.is_at_once() {
        return Drain::Done;
    }
    handler.handle_drain(port, now)
}

/// The loop's state between two passes. Simulations and tests with their own clock use it instead
/// of [`run`].
#[derive(Debug)]
pub struct LoopState {
    config: LoopConfig,
    idle: Idle,
    batch: Batch,
    last_flush: Instant,
    flushed: bool,
    /// Time at which the oldest batch was received that the handler does not know as flushed.
    oldest: Option<Instant>,
    /// Whether the last pass received this batch or a later one, and flushed it.
    is_answered: bool,
}

impl LoopState {
    /// Creates the state of a loop that starts at `now`.
    pub fn new(config: &LoopConfig, now: Instant) -> Self {
        Self {
            config: *config,
            idle: Idle::new(config.wait, config.straggler),
            batch: Batch::new(),
            last_flush: now,
            flushed: true,
            oldest: None,
            is_answered: false,
        }
    }

    /// Performs one pass of the loop: steps 1 to 10 of the paper's Figure 3.
    ///
    /// Returns `true` if the caller should make another pass before it waits. Then the pass received
    /// packets, so more may have arrived, or it had no room for them until its flush.
    ///
    /// # Errors
    /// If the port is gone.
    #[inline]
    pub fn pass<P: Port, H: Handler<P>>(
        &mut self,
        port: &mut P,
        handler: &mut H,
        now: Instant,
    ) -> io::Result<bool> {
        if self.is_answered {
            // No rest follows a pass that has received packets, so the flush has just ended.
            self.report_flush(handler, now);
        }
        let full_batch = self.config.batch.clamp(1, MAX_BATCH);
        let limit = if self.flushed {
            full_batch
        } else {
            self.limit_to_room(port, full_batch)
        };
        port.receive(&mut self.batch, limit)?;
        let received = self.batch.len();
        self.idle.note_pass(received > 0);
        if received > 0 {
            self.oldest.get_or_insert(now);
        }
        handler.handle_batch(port, &mut self.batch, now);
        if handler.bell().is_some_and(Bell::silence) {
            handler.handle_messages(port, now);
        }
        handler.handle_timers(port, now);
        if received < full_batch || now.since(self.last_flush) >= self.config.flush_interval {
            self.flushed = port.flush()?;
            self.last_flush = now;
            self.is_answered = received > 0;
            if received == 0 {
                // A rest may follow, so the time of the next pass tells nothing.
                self.report_flush(handler, now);
            }
        }
        Ok(received > 0 || (limit == 0 && self.flushed))
    }

    /// Returns the number of packets to receive while packets remain queued: not more than can be
    /// answered. The others wait in the RX ring.
    #[cold]
    fn limit_to_room<P: Port>(&mut self, port: &mut P, full_batch: usize) -> usize {
        let limit = full_batch.min(port.room());
        if limit == 0 {
            self.idle.note_full_ring();
        }
        limit
    }

    /// Tells the handler that the oldest batch was flushed, if there is one.
    #[inline(always)]
    fn report_flush<P: Port, H: Handler<P>>(&mut self, handler: &mut H, now: Instant) {
        self.is_answered = false;
        if let Some(received) = self.oldest.take() {
            handler.note_flushed(received, now);
        }
    }

    /// Waits until `latest` at the latest, after a pass at `now` that returned `false`.
    ///
    /// Depending on [`LoopConfig::wait`], [`Port::hints`] and the handler, this method sleeps,
    /// polls the device, yields the CPU, or returns immediately. Except during shutdown, the loop
    /// sleeps nowhere else.
    ///
    /// # Errors
    /// If the port is gone.
    pub fn rest<P: Port, H: Handler<P>>(
        &mut self,
        port: &mut P,
        handler: &H,
        latest: Instant,
        now: Instant,
    ) -> io::Result<()> {
        let status = LoopStatus {
            due: Some(handler.poll_timeout().map_or(latest, |due| due.min(latest))),
            flooded: handler.is_flooded(now),
            flushed: self.flushed,
            has_messages: handler.bell().is_some_and(Bell::is_rung),
        };
        match self.idle.action(port.hints(), status, now) {
            IdleAction::Spin => Ok(()),
            IdleAction::Yield => {
                thread::yield_now();
                Ok(())
            }
            IdleAction::Poll { timeout } => port.poll_device(timeout, handler.bell()),
            IdleAction::Block { gather, timeout } => {
                if !gather.is_zero() {
                    thread::sleep(gather);
                }
                port.wait(timeout.saturating_sub(gather), handler.bell())
            }
        }
    }

    /// Returns the maximum time to sleep after a pass at `now`, if the next timer expires at `due`.
    pub fn timeout(&self, due: Option<Instant>, now: Instant) -> Duration {
        self.idle.timeout(due, self.flushed, now)
    }
}

#[cfg(test)]
#[path = "event_loop_tests.rs"]
mod tests;
