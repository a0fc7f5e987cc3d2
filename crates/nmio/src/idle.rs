//! Decides when and how a running event loop sleeps. No other code makes this decision.
//!
//! The port and the handler give hints, [`Idle`] decides, and the loop acts. [`Idle`] accesses
//! neither a device nor a clock. The first row whose condition holds applies:
//!
//! | condition | action |
//! |---|---|
//! | [`Wait::Spin`], a [ready](PortHints::ready) port, or a message | spin |
//! | a flood, with [`Wait::Block`] | yield: polling is cheaper than a wake-up |
//! | an expired timer | spin |
//! | [`Wait::BusyPoll`], and the port can poll its device | poll |
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
    Poll,
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
        }
    }

    /// Records a pass. `received` tells whether the pass received packets.
    #[inline(always)]
    pub(crate) fn note_pass(&mut self, received: bool) {
        self.received |= received;
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
        if self.wait == Wait::Block && status.flooded {
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
            return IdleAction::Poll;
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
