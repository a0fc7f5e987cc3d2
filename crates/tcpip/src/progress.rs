//! Progress: the use that a connection makes of what it holds.
//!
//! Each connection has a moment in virtual time, its *progress*. It is now when
//! the connection is opened and when the application answers a request while
//! nothing else is owed. Each byte that the peer acknowledges and that the
//! application consumes moves it on by what the byte takes at
//! [`Config::min_rate`](crate::Config::min_rate), at most to [`CREDIT_MS`] ahead
//! of now. What it lies back behind now is the connection's *lack* of progress.
//!
//! A reader at that rate or above does not age. An idle connection, half a
//! request that comes byte by byte, a zero window and a far slower reader all
//! age at nearly real time. The rate is averaged over [`CREDIT_MS`] at least.
//! Where something runs short, the connection that lacks most gives way (see
//! `pressure.rs`).

use crate::clock::Moment;
use crate::pools::NONE;

/// Milliseconds that progress may be ahead of now: what a peer has read fast it
/// may then read slowly.
const CREDIT_MS: u32 = 20_000;

/// Bits behind the point of [`Pace`].
const FRACTION: u32 = 20;

/// Milliseconds that a byte takes at a rate, as a fixed-point number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace(u64);

impl Pace {
    /// Of `rate` bytes a second; 0 is taken as 1.
    pub(crate) const fn of(rate: u32) -> Self {
        let rate = if rate == 0 { 1 } else { rate };
        Self((1_000 << FRACTION) / rate as u64)
    }

    /// Milliseconds that `bytes` take.
    #[inline(always)]
    const fn millis(self, bytes: u32) -> u64 {
        (bytes as u64 * self.0) >> FRACTION
    }
}

/// What an application waits for until a
/// [deadline](crate::Connection::set_deadline).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Deadline {
    /// The whole of a request whose first byte has arrived.
    Request,
}

/// What decides whether a connection may stay, beside its TCB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// In milliseconds, as [`Moment::millis`]. It wraps: a lack of more than 24
    /// days is taken as none.
    progress: u32,
    /// The client's entry in [`Peers`](crate::pools::Peers), or [`NONE`] while
    /// it is not counted.
    pub(crate) peer: u32,
    /// The application's deadline, as [`Moment::millis`], while the TCB has
    /// [`Flags::DUE`](crate::connection::Flags::DUE). While it has
    /// [`Flags::DUE_NEW`](crate::connection::Flags::DUE_NEW), milliseconds from now on.
    pub(crate) due: u32,
    /// What it is for.
    pub(crate) due_for: Deadline,
}

impl Standing {
    /// Of a connection that begins at `now`.
    pub(crate) const fn new(now: Moment) -> Self {
        Self {
            progress: now.millis,
            peer: NONE,
            due: 0,
            due_for: Deadline::Request,
        }
    }

    /// `bytes` were acknowledged or consumed.
    #[inline(always)]
    pub(crate) fn advance(&mut self, bytes: u32, pace: Pace, now: Moment) {
        let most = now
            .millis
            .wrapping_add(CREDIT_MS)
            .wrapping_sub(self.progress);
        let gained = pace.millis(bytes).min(most.into()) as u32;
        self.progress = self.progress.wrapping_add(gained);
    }

    /// A request was answered, and nothing was owed before.
    #[inline(always)]
    pub(crate) fn renew(&mut self, now: Moment) {
        if now.millis.wrapping_sub(self.progress).cast_signed() > 0 {
            self.progress = now.millis;
        }
    }

    /// Milliseconds that progress lies behind `now`.
    #[inline]
    pub(crate) fn lack(self, now: Moment) -> u32 {
        let lack = now.millis.wrapping_sub(self.progress).cast_signed();
        lack.max(0).unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use nmio::Instant;
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from(Instant::from_millis(millis))
    }

    #[test]
    fn who_reads_at_the_rate_does_not_age() {
        let mut standing = Standing::new(at(0));
        for second in 1..100 {
            standing.advance(16_000, Pace::of(16_000), at(second * 1_000));
            assert_eq!(standing.lack(at(second * 1_000)), 0);
        }
    }

    #[test]
    fn five_hundred_bytes_in_nine_seconds_are_next_to_nothing() {
        let mut standing = Standing::new(at(0));
        for n in 1..=10 {
            standing.advance(500, Pace::of(16_000), at(n * 9_000));
        }
        assert_eq!(standing.lack(at(90_000)), 90_000 - 310);
    }

    #[test]
    fn what_was_read_fast_counts_for_twenty_seconds() {
        let mut standing = Standing::new(at(0));
        standing.advance(u32::MAX, Pace::of(16_000), at(0));
        assert_eq!(standing.lack(at(20_000)), 0);
        assert_eq!(standing.lack(at(20_001)), 1);
        // An answer takes nothing away.
        standing.renew(at(5_000));
        assert_eq!(standing.lack(at(20_001)), 1);
        standing.renew(at(30_000));
        assert_eq!(standing.lack(at(30_001)), 1);
    }

    proptest! {
        /// Also where the clock wraps.
        #[test]
        fn lack_never_exceeds_the_age(
            start: u32,
            steps in prop::collection::vec((0u32..100_000, any::<u32>(), 1u32..1_000_000), 1..50),
        ) {
            let mut now = u64::from(start);
            let mut standing = Standing::new(at(now));
            for (wait, bytes, rate) in steps {
                now += u64::from(wait);
                let before = standing.lack(at(now));
                standing.advance(bytes, Pace::of(rate), at(now));
                prop_assert!(standing.lack(at(now)) <= before);
                prop_assert!(u64::from(before) <= now - u64::from(start));
                let credit = u64::from(CREDIT_MS);
                prop_assert_eq!(standing.lack(at(now + credit)) >= standing.lack(at(now)), true);
            }
        }
    }
}
