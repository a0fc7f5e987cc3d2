//! Decides whether a frame that the driver has dropped is sent again.
//!
//! A device whose queue was full accepts the frame after a short time. But some drops are
//! permanent: the device has no carrier, or the peer's MTU is too small for the frame. A frame that
//! is retried delays all frames behind it, so it must not be retried forever.

use std::time::{Duration, Instant};

/// The state that decides about retries.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Time of the first drop of the frame at the head of the TX ring, and the frame's number of
    /// drops. `None`: the frame was not dropped yet.
    head: Option<(Instant, u32)>,
    /// End of the current pause. `None`: there is no pause.
    retry_at: Option<Instant>,
    /// Frames of at least the given length, in bytes, are not retried before the given time.
    not_retried: Option<(u32, Instant)>,
}

impl Refusals {
    /// Time between the first drop of a frame and the next try. A receiving kernel takes about 50
    /// packets in this time. The time doubles with each further drop, at most `DOUBLINGS` times.
    const FIRST_PAUSE: Duration = Duration::from_micros(50);
    /// Maximum number of times that the pause doubles.
    const DOUBLINGS: u32 = 4;
    /// Maximum time for which a frame is retried. On a busy machine, a receiving thread may wait
    /// for a CPU for tens of milliseconds.
    const MAX_RETRY_TIME: Duration = Duration::from_millis(100);
    /// Time for which no frame is retried that is at least as long as a lost frame. It ends early
    /// if the device accepts such a frame. If a peer's MTU is too small, retries therefore delay
    /// shorter frames for only about 1 % of the time.
    const NO_RETRY_TIME: Duration = Duration::from_secs(10);
    /// Upper bound on the number of tries for one frame.
    pub(super) const MAX_TRIES: u32 = Self::DOUBLINGS
        + 2
        + (Self::MAX_RETRY_TIME.as_micros() / (Self::FIRST_PAUSE.as_micros() << Self::DOUBLINGS))
            as u32;

    /// Returns true during a pause, which [`hold_back`](Self::hold_back) ends.
    pub(super) fn is_paused(&self) -> bool {
        self.retry_at.is_some()
    }

    /// Returns true if the kernel must not be woken yet. Ends a pause whose time is over. The clock
    /// `now` is read only during a pause.
    #[inline(always)]
    pub(super) fn hold_back(&mut self, now: impl FnOnce() -> Instant) -> bool {
        let Some(at) = self.retry_at else {
            return false;
        };
        if now() < at {
            return true;
        }
        self.retry_at = None;
        false
    }

    /// Records that the driver has dropped a frame of `len` bytes at `now`. `longest_accepted` is
    /// the length of the longest frame that the driver has accepted since the last drop.
    ///
    /// Returns true if the frame will be sent again after a pause. A frame that is too long to be
    /// retried also causes a pause if the device has accepted no frame since the last drop. So few
    /// frames are lost before the device recovers.
    pub(super) fn retry(&mut self, len: u32, longest_accepted: Option<u32>, now: Instant) -> bool {
        if let Some(longest) = longest_accepted {
            self.head = None;
            self.not_retried = self.not_retried.filter(|(min_len, _)| longest < *min_len);
        }
        let is_excluded = |(min_len, until)| len >= min_len && now < until;
        if self.not_retried.is_some_and(is_excluded) {
            if longest_accepted.is_none() {
                self.pause(Self::DOUBLINGS, now);
            }
            return false;
        }
        let (first_drop, drops) = *self.head.get_or_insert((now, 0));
        if now.duration_since(first_drop) >= Self::MAX_RETRY_TIME {
            self.head = None;
            self.not_retried = Some((len, now + Self::NO_RETRY_TIME));
            return false;
        }
        self.head = Some((first_drop, drops + 1));
        self.pause(drops, now);
        true
    }

    fn pause(&mut self, drops: u32, now: Instant) {
        self.retry_at = Some(now + Self::FIRST_PAUSE * (1 << drops.min(Self::DOUBLINGS)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_frame_is_retried_with_growing_pauses_until_it_counts_as_lost() {
        let start = Instant::now();
        let mut refusals = Refusals::default();
        assert!(!refusals.hold_back(|| start));
        let (mut now, mut pauses) = (start, Vec::new());
        while refusals.retry(1_000, None, now) {
            let dropped_at = now;
            while refusals.hold_back(|| now) {
                now += Duration::from_micros(10);
            }
            pauses.push((now - dropped_at).as_micros());
        }
        assert_eq!(pauses[..7], [50, 100, 200, 400, 800, 800, 800]);
        assert!(now - start >= Refusals::MAX_RETRY_TIME);
        assert!(now - start < Refusals::MAX_RETRY_TIME + Duration::from_millis(1));
        assert!(pauses.len() < Refusals::MAX_TRIES as usize);
        assert!(!refusals.hold_back(|| now), "the next frame is not delayed");
    }

    #[test]
    fn frames_are_retried_without_limit_while_the_device_accepts_others() {
        let mut now = Instant::now();
        let mut refusals = Refusals::default();
        for _ in 0..100 {
            assert!(refusals.retry(1_000, Some(60), now));
            assert!(!refusals.hold_back(|| now + Refusals::FIRST_PAUSE));
            now += Refusals::MAX_RETRY_TIME;
        }
    }

    #[test]
    fn after_a_loss_longer_frames_are_not_retried_until_one_is_accepted() {
        let start = Instant::now();
        let mut refusals = Refusals::default();
        let lose = |refusals: &mut Refusals, now| {
            assert!(refusals.retry(1_000, Some(60), now));
            assert!(!refusals.hold_back(|| now + Refusals::MAX_RETRY_TIME));
            assert!(!refusals.retry(1_000, None, now + Refusals::MAX_RETRY_TIME));
            now + Refusals::MAX_RETRY_TIME
        };
        let now = lose(&mut refusals, start);
        assert!(!refusals.retry(1_001, Some(999), now));
        assert!(!refusals.is_paused(), "the device is alive");
        assert!(!refusals.retry(1_001, None, now));
        assert!(refusals.is_paused(), "the device may be dead");
        assert!(refusals.retry(999, Some(999), now));
        assert!(refusals.retry(1_000, Some(1_000), now), "one was accepted");
        let now = lose(&mut refusals, now + Refusals::MAX_RETRY_TIME);
        assert!(!refusals.retry(1_000, Some(999), now));
        assert!(refusals.retry(1_000, Some(999), now + Refusals::NO_RETRY_TIME));
    }
}
