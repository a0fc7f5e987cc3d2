//! When a loop sleeps, and how: the one place where that is decided.
//!
//! Port and handler give hints, [`Idle`] decides, and the loop does it. The
//! policy knows no device and reads no clock. The first line that holds counts:
//!
//! | hints | rest |
//! |---|---|
//! | [`Wait::Spin`], frames at hand, or a message | spin |
//! | a flood, with [`Wait::Block`] | yield: a wake-up costs more than a look |
//! | a timer is due | spin |
//! | [`Wait::BusyPoll`], and the port can poll its device | poll |
//! | anything else | block |

use std::mem;
use std::time::Duration;

use crate::port::{PortHints, Wait};
use crate::time::Instant;

/// A blocked loop looks at its stop flag at least this often.
pub(crate) const STOP_CHECK: Duration = Duration::from_millis(100);
/// After so many wake-ups in a row for nothing packets gather before the next.
/// A connection alone comes to two or three between one request and the next.
const IN_VAIN: u32 = 4;
/// They gather for this long; the kernel may take as long again.
const GATHERING: Duration = Duration::from_micros(50);

/// What a handler tells, and what the last flush has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlook {
    /// When its timers must run next, at the latest; `None` when only a packet
    /// can cause work.
    pub(crate) due: Option<Instant>,
    /// Packets come faster than the loop can be woken.
    pub(crate) flooded: bool,
    /// Everything queued is on its way.
    pub(crate) flushed: bool,
    /// The handler's bell is rung.
    pub(crate) has_messages: bool,
}

/// What a loop does before it looks for packets again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Nothing.
    Spin,
    /// Other threads go first.
    Yield,
    /// The kernel polls the device once.
    Poll,
    /// Sleep until a packet comes.
    Block {
        /// Before that, sleep for so long whatever comes; at most `timeout`.
        gather: Duration,
        /// Sleep no longer than this; never zero.
        timeout: Duration,
    },
}

/// Decides how a loop rests that has found nothing to receive.
///
/// # Wake-ups in vain
/// A client that reads many long responses acknowledges each piece that it
/// has read, and asks again only when it has read them all. Each such ACK wakes
/// a server that has nothing left to send, which costs it as much as a response.
/// So after four wake-ups in a row that led to nothing being sent, packets gather
/// for some 50 to 100 µs before the next.
#[derive(Debug)]
pub(crate) struct Idle {
    wait: Wait,
    straggler: Duration,
    /// Whether packets came since the last sleep.
    received: bool,
    /// [`PortHints::sent`] before it.
    sent: u64,
    /// Wake-ups in a row that led to nothing being sent.
    in_vain: u32,
}

impl Idle {
    /// A policy for loops that wait as `wait` says, and that flush again after
    /// `straggler` what a full ring has left behind.
    pub(crate) fn new(wait: Wait, straggler: Duration) -> Self {
        Self {
            wait,
            straggler,
            received: false,
            sent: 0,
            in_vain: 0,
        }
    }

    /// A pass has looked for packets: whether it has `received` any.
    #[inline(always)]
    pub(crate) fn note_pass(&mut self, received: bool) {
        self.received |= received;
    }

    /// What to do at `now`, after a pass that has received nothing.
    pub(crate) fn rest(&mut self, port: PortHints, outlook: Outlook, now: Instant) -> Rest {
        if self.wait == Wait::Spin || port.ready || outlook.has_messages {
            return Rest::Spin;
        }
        if self.wait == Wait::Block && outlook.flooded {
            return Rest::Yield;
        }
        let timeout = self.timeout(outlook.due, outlook.flushed, now);
        if timeout.is_zero() {
            return Rest::Spin;
        }
        if self.wait == Wait::BusyPoll && port.can_poll {
            return Rest::Poll;
        }
        let in_vain = self.count_in_vain(port.sent);
        let gather = if in_vain && port.gathers && outlook.flushed {
            GATHERING.min(timeout)
        } else {
            Duration::ZERO
        };
        Rest::Block { gather, timeout }
    }

    /// How long a loop may sleep at `now` whose timers are `due` next.
    pub(crate) fn timeout(&self, due: Option<Instant>, flushed: bool, now: Instant) -> Duration {
        let most = if flushed { STOP_CHECK } else { self.straggler };
        due.map_or(most, |due| due.since(now).min(most))
    }

    /// Whether waking up was in vain often enough, when `sent` frames were sent
    /// so far.
    fn count_in_vain(&mut self, sent: u64) -> bool {
        let in_vain = mem::take(&mut self.received) && sent == self.sent;
        // No need to count on.
        let count = (self.in_vain + 1).min(IN_VAIN);
        self.in_vain = if in_vain { count } else { 0 };
        self.sent = sent;
        self.in_vain == IN_VAIN
    }
}

#[cfg(test)]
#[path = "idle_tests.rs"]
mod tests;
