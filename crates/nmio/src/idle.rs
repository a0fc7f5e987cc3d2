//! Decides when and how a running event loop sleeps. No other code makes this decision.
//!
//! The port and the handler give hints, [`Idle`] decides, and the loop acts. [`Idle`] accesses
//! neither a device nor a clock. The first row whose condition holds applies:
//!
//! | condition | action |
//! |---|---|
//! | [`Wait::Spin`], a [ready](PortHints::ready) port, or a message | spin |
//! | a flood, except with [`Wait::BusyPoll`] | yield: polling is cheaper than a wake-up |
//! | an expired timer | spin |
//! | [`Wait::BusyPoll`], and the port can poll its device | poll |
//! | [`Wait::Adaptive`], and [spinning](Idle#short-spins) pays | spin |
//! | anything else | block |

use std::mem;
use std::time::Duration;

use crate::port::{PortHints, Wait};
use crate::time::Instant;

/// Maximum time until a blocked loop checks its stop flag.
pub(crate) const STOP_CHECK: Duration = Duration::from_millis(100);
/// Number of [useless wake-ups](Idle) in a row after which the loop lets packets accumulate. A
/// single connection causes only two or three between two requests.
const USELESS_WAKEUPS: u32 = 4;
/// Time for which the loop lets packets accumulate. The kernel's timer slack can double this time.
const GATHERING: Duration = Duration::from_micros(50);
/// Maximum time to sleep after a flush that left packets queued, until the loop flushes again. The
/// time doubles with each further try, up to [`LoopConfig::straggler`](crate::LoopConfig).
const FIRST_RETRY: Duration = Duration::from_micros(50);
/// Maximum number of such doublings while the TX ring is full, because received packets may wait for
/// room. The loop then sleeps for at most 400 µs.
const MAX_DOUBLINGS_WHEN_FULL: u32 = 3;
/// Maximum time to spin before a sleep: about the CPU time that a sleep and a wake-up cost.
const MAX_SPIN: Duration = Duration::from_micros(8);
/// Limit on the balance of [`Spins`], so that the policy soon follows a change of the load.
const MAX_BALANCE: i32 = 8;
/// Maximum number of waits without a spin between two trials.
const MAX_PAUSE: u32 = 1_023;

/// The state of the handler and the last flush.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopStatus {
    /// Latest time to run the handler's timers. `None`: there is no work until a packet arrives.
    pub(crate) due: Option<Instant>,
    /// Whether the handler is flooded: polling is now cheaper than waking up for each packet.
    pub(crate) flooded: bool,
    /// Whether the last flush handed all queued packets to the kernel.
    pub(crate) flushed: bool,
    /// Whether the handler's bell is rung.
    pub(crate) has_messages: bool,
}

/// What a loop does before its next pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleAction {
    /// Makes the next pass immediately.
    Spin,
    /// Yields the CPU to other threads first.
    Yield,
    /// Lets the kernel poll the device once.
    Poll {
        /// Maximum time to poll; never zero.
        timeout: Duration,
    },
    /// Sleeps until a packet or a message arrives.
    Block {
        /// Time to sleep first, whether or not packets arrive; at most `timeout`.
        gather: Duration,
        /// Maximum time to sleep; never zero.
        timeout: Duration,
    },
}

/// Decides how a loop waits after a pass without packets.
///
/// # Useless wake-ups
/// A wake-up is useless if a packet causes it but the server then sends nothing.
///
/// A client that reads a long response acknowledges each piece, and sends its next request only
/// after the last piece. Most of these ACKs wake a server that has nothing left to send, and each
/// wake-up costs as much CPU time as a response. So after four useless wake-ups in a row, packets
/// accumulate for 50 to 100 µs before the next wake-up.
///
/// # Short spins
/// Before it sleeps, a loop with [`Wait::Adaptive`] polls the RX ring for at most 8 µs. A sleep and
/// a wake-up cost about as much CPU time. So a spin in vain at most doubles the cost of a wait. A
/// spin that finds a packet makes the wait cheaper and shorter. A loop that sleeps less handles
/// smaller batches, which costs up to a fifth more CPU time.
///
/// [`Spins`] records which spins found a packet. The loop spins while more than three quarters of
/// them do. Otherwise it blocks, and tries a spin only now and then. The rate of arrivals would
/// tell less, because a spin cannot find every packet. With threaded NAPI on the worker's core, for
/// example, the kernel receives only while the worker sleeps.
#[derive(Debug)]
pub(crate) struct Idle {
    wait: Wait,
    straggler: Duration,
    /// Whether packets have arrived since the last sleep.
    received: bool,
    /// Value of [`PortHints::sent`] before the last sleep.
    sent: u64,
    /// Number of useless wake-ups in a row, at most [`USELESS_WAKEUPS`].
    useless_wakeups: u32,
    /// Number of sleeps in a row after a flush that left packets queued. A received packet resets
    /// this number.
    retries: u32,
    spins: Spins,
}

/// Decides which waits begin with a [short spin](Idle#short-spins).
#[derive(Debug, Default)]
struct Spins {
    /// Start of the current wait, or `None` if packets have arrived since the last wait.
    wait_start: Option<Instant>,
    /// Whether the current wait is still a spin.
    spinning: bool,
    /// Balance of recent spins: 1 for each that found a packet, -3 for each in vain. Between
    /// `-MAX_BALANCE` and `MAX_BALANCE`. While it is negative, spins are only tried.
    balance: i32,
    /// Number of waits without a spin before the next trial, at most [`MAX_PAUSE`].
    pause: u32,
    /// Number of waits that remain until the next trial.
    until_trial: u32,
}

impl Spins {
    /// Records the arrival of packets, which ends the current wait.
    #[inline(always)]
    fn note_packets(&mut self) {
        self.wait_start = None;
        if self.spinning {
            self.spinning = false;
            self.balance = (self.balance + 1).min(MAX_BALANCE);
            self.pause /= 2;
        }
    }

    /// Returns true if the loop should spin at `now`, and false if it should sleep.
    fn should_spin(&mut self, now: Instant) -> bool {
        let start = *self.wait_start.get_or_insert_with(|| {
            self.spinning = self.balance >= 0 || self.until_trial == 0;
            self.until_trial = self.until_trial.saturating_sub(1);
            now
        });
        if self.spinning && now.since(start) >= MAX_SPIN {
            self.note_vain_spin();
        }
        self.spinning
    }

    /// Records a spin that has found no packet.
    fn note_vain_spin(&mut self) {
        self.spinning = false;
        self.balance = (self.balance - 3).max(-MAX_BALANCE);
        if self.balance < 0 {
            self.pause = (self.pause * 2 + 1).min(MAX_PAUSE);
            self.until_trial = self.pause;
        }
    }
}

impl Idle {
    /// Creates the policy of a loop that waits as `wait` specifies. If a flush leaves packets
    /// queued, the loop flushes again after `straggler` at the latest.
    pub(crate) fn new(wait: Wait, straggler: Duration) -> Self {
        Self {
            wait,
            straggler,
            received: false,
            sent: 0,
            useless_wakeups: 0,
            retries: 0,
            spins: Spins::default(),
        }
    }

    /// Records a pass. `received` tells whether the pass received packets.
    #[inline(always)]
    pub(crate) fn note_pass(&mut self, received: bool) {
        self.received |= received;
        if received {
            self.spins.note_packets();
        }
    }

    /// Records that the pass receives no packets, because queued ones fill the TX ring.
    pub(crate) fn note_full_ring(&mut self) {
        self.retries = self.retries.min(MAX_DOUBLINGS_WHEN_FULL);
    }

    /// Returns what to do at `now`, after a pass without packets.
    pub(crate) fn action(
        &mut self,
        port: PortHints,
        status: LoopStatus,
        now: Instant,
    ) -> IdleAction {
        if self.wait == Wait::Spin || port.ready || status.has_messages {
            return IdleAction::Spin;
        }
        if self.wait != Wait::BusyPoll && status.flooded {
            return IdleAction::Yield;
        }
        if status.flushed || self.received {
            self.retries = 0;
        }
        let timeout = self.timeout(status.due, status.flushed, now);
        if timeout.is_zero() {
            return IdleAction::Spin;
        }
        if self.wait == Wait::BusyPoll && port.can_poll {
            return IdleAction::Poll { timeout };
        }
        // After useless wake-ups packets accumulate, so the loop then does not spin either.
        let may_spin = port.gathers && status.flushed && self.useless_wakeups < USELESS_WAKEUPS;
        if self.wait == Wait::Adaptive && may_spin && self.spins.should_spin(now) {
            return IdleAction::Spin;
        }
        self.retries += u32::from(!status.flushed);
        let useless_wakeups = self.count_useless_wakeups(port.sent);
        let gather = if useless_wakeups && port.gathers && status.flushed {
            GATHERING.min(timeout)
        } else {
            Duration::ZERO
        };
        IdleAction::Block { gather, timeout }
    }

    /// Returns the maximum time to sleep at `now`, if the next timer expires at `due`.
    pub(crate) fn timeout(&self, due: Option<Instant>, flushed: bool, now: Instant) -> Duration {
        let max = if flushed {
            STOP_CHECK
        } else {
            let factor = 1u32.checked_shl(self.retries).unwrap_or(u32::MAX);
            FIRST_RETRY.saturating_mul(factor).min(self.straggler)
        };
        due.map_or(max, |due| due.since(now).min(max))
    }

    /// Updates the number of useless wake-ups in a row. Returns true if it has reached
    /// [`USELESS_WAKEUPS`]. `sent` is the value of [`PortHints::sent`].
    fn count_useless_wakeups(&mut self, sent: u64) -> bool {
        let useless_wakeups = mem::take(&mut self.received) && sent == self.sent;
        // A higher count would have no effect.
        let count = (self.useless_wakeups + 1).min(USELESS_WAKEUPS);
        self.useless_wakeups = if useless_wakeups { count } else { 0 };
        self.sent = sent;
        self.useless_wakeups == USELESS_WAKEUPS
    }
}

#[cfg(test)]
#[path = "idle_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "idle_load_tests.rs"]
mod load_tests;
