//! The retransmission timeout (RFC 6298).

/// Retransmission timeout before the first RTT sample (RFC 6298, section 2.1), in milliseconds.
pub const INITIAL_RTO_MS: u32 = 1_000;
/// Retransmission timeout before the first RTT sample if the SYN-ACK was retransmitted (RFC 6298,
/// section 5.7), in milliseconds.
pub const INITIAL_RTO_AFTER_LOSS_MS: u32 = 3_000;
/// Default of the initial minimum timeout in milliseconds, the same as in Linux.
///
/// RFC 6298, section 2.4, recommends one second, because clocks were coarse. Current systems use
/// less.
pub const MIN_RTO_MS: u32 = 200;
/// Default of the lowest minimum timeout in milliseconds, for connections over short paths.
///
/// Data centres use minimums of 5 to 10 ms. This value is ten ticks of our timers, and one tick of
/// a peer's kernel with 100 ticks per second. It is also the minimum delay of a tail loss probe.
pub const QUICK_MIN_RTO_MS: u32 = 10;
/// Maximum timeout (RFC 6298, section 2.5), in milliseconds.
pub const MAX_RTO_MS: u32 = 60_000;

/// Clock granularity (G in RFC 6298) in microseconds: one timer tick.
const GRANULARITY: u32 = 1_000;
/// Maximum RTT sample in microseconds. Longer samples are clamped, because the timeout is at most
/// [`MAX_RTO_MS`] anyway.
const MAX_RTT: u32 = 60_000_000;
/// Maximum number of times that the timeout is doubled. After ten doublings, the initial timeout
/// exceeds [`MAX_RTO_MS`].
const MAX_BACKOFF: u32 = 10;

const _: () = assert!(INITIAL_RTO_MS << MAX_BACKOFF > MAX_RTO_MS);
const _: () = assert!(MAX_RTO_MS <= u16::MAX as u32);

/// Round-trip time statistics of a connection, and the timeout derived from them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rtt {
    /// Smoothed RTT in microseconds, or 0 before the first sample.
    srtt: u32,
    /// RTT variation in microseconds.
    rttvar: u32,
    /// Minimum RTT in microseconds, or 0 before the first sample.
    min: u32,
    /// Timeout computed from `srtt` and `rttvar`, in milliseconds. It is at most [`MAX_RTO_MS`],
    /// and 0 before the first sample.
    timeout: u16,
    /// Minimum of a timeout that is not doubled, in milliseconds, at most [`MAX_RTO_MS`]. It is 0
    /// until the connection sets it.
    floor: u16,
}

impl Rtt {
    /// Sets the minimum of a timeout that is not doubled, in milliseconds.
    #[inline(always)]
    pub(crate) fn set_floor(&mut self, floor: u32) {
        self.floor = floor.min(MAX_RTO_MS) as u16;
    }

    /// Returns the smoothed RTT in microseconds, or 0 before the first sample.
    #[inline(always)]
    pub(crate) const fn smoothed(self) -> u32 {
        self.srtt
    }

    /// Returns the RTT variation in microseconds.
    pub(crate) const fn variation(self) -> u32 {
        self.rttvar
    }

    /// Returns the minimum RTT in microseconds, or 0 before the first sample.
    #[inline(always)]
    pub(crate) const fn min(self) -> u32 {
        self.min
    }

    /// Adds an RTT sample in microseconds (RFC 6298, sections 2.2 and 2.3). Returns the measured
    /// timeout in milliseconds.
    #[inline(always)]
    pub(crate) fn sample(&mut self, rtt: u32) -> u32 {
        let rtt = rtt.clamp(1, MAX_RTT);
        if self.srtt == 0 {
            self.srtt = rtt;
            self.rttvar = rtt / 2;
            self.min = rtt;
        } else {
            self.min = self.min.min(rtt);
            // The new sample has weight 1/4 in RTTVAR and 1/8 in SRTT: beta and alpha in the RFC.
            let deviation = self.srtt.abs_diff(rtt);
            self.rttvar = self.rttvar - self.rttvar / 4 + deviation / 4;
            self.srtt = (self.srtt - self.srtt / 8 + rtt / 8).max(1);
        }
        // RTO = SRTT + max(G, 4 * RTTVAR): RFC 6298, section 2.3.
        let micros = self.srtt + (4 * self.rttvar).max(GRANULARITY);
        self.timeout = micros.div_ceil(1000).min(MAX_RTO_MS) as u16;
        self.timeout.into()
    }

    /// Returns the timeout in milliseconds: the measured timeout or the minimum, whichever is
    /// larger, doubled `backoff` times. The result is at most [`MAX_RTO_MS`].
    ///
    /// The minimum that was [set](Self::set_floor) applies to the first timeout. The second timeout
    /// is at least `min_rto_ms`, the third twice as long, and so on. So a quick first timeout does
    /// not postpone the later ones if the path fails for longer.
    ///
    /// Before the first sample, an initial timeout is used instead, regardless of the minimum:
    /// [`INITIAL_RTO_MS`], or [`INITIAL_RTO_AFTER_LOSS_MS`] if `after_loss` is set. `after_loss`
    /// tells whether the SYN-ACK was retransmitted.
    #[inline(always)]
    pub(crate) fn timeout(self, backoff: u8, after_loss: bool, min_rto_ms: u32) -> u32 {
        let base = match self.timeout {
            0 if after_loss => INITIAL_RTO_AFTER_LOSS_MS,
            0 => INITIAL_RTO_MS,
            measured => u32::from(measured).max(self.floor.into()),
        };
        if backoff == 0 {
            return base;
        }
        let shift = u32::from(backoff).min(MAX_BACKOFF);
        let doubled = u64::from(base) << shift;
        let later = u64::from(min_rto_ms) << (shift - 1);
        doubled.max(later).min(u64::from(MAX_RTO_MS)) as u32
    }
}

#[cfg(test)]
#[path = "rto_tests.rs"]
mod tests;
