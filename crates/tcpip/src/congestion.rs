//! How much may be in flight: congestion control behind one small trait.

/// What an algorithm is told with an event.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// Bytes in flight before the event.
    pub in_flight: u32,
    /// Most bytes of data in a segment.
    pub mss: u32,
}

/// A congestion control algorithm, with its state for one connection.
///
/// Which segments are lost is found out elsewhere (three duplicate ACKs, a
/// timeout); an algorithm only says how much may be in flight after that.
pub trait CongestionControl {
    /// For a new connection.
    fn new(mss: u32) -> Self;

    /// Most bytes in flight, at least one segment.
    fn window(&self) -> u32;

    /// `acked` new bytes were acknowledged, outside recovery.
    fn on_ack(&mut self, acked: u32, flight: Flight);

    /// A segment is taken as lost: fast retransmit begins recovery.
    fn on_fast_retransmit(&mut self, flight: Flight);

    /// One more segment has left the network during recovery.
    fn on_duplicate_ack(&mut self, flight: Flight);

    /// `acked` bytes were acknowledged during recovery, but not all that were
    /// in flight when it began.
    fn on_partial_ack(&mut self, acked: u32, flight: Flight);

    /// All that was in flight when recovery began is acknowledged.
    fn on_recovered(&mut self, flight: Flight);

    /// The retransmission timer has expired; `again` when for the same data
    /// as the last time.
    fn on_timeout(&mut self, again: bool, flight: Flight);

    /// Nothing was in flight for longer than the retransmission timeout, and
    /// now there is something to send.
    fn on_idle(&mut self, mss: u32);
}

/// Segments of the initial window (RFC 6928).
const INITIAL_SEGMENTS: u32 = 10;
/// Bytes that the initial window never needs to exceed (RFC 6928).
const INITIAL_BYTES: u32 = 14_600;
/// Bytes that a window never exceeds: more cannot be in flight without
/// meeting old sequence numbers (RFC 7323, section 2.3).
const MAX_WINDOW: u32 = 1 << 30;

/// Reno: RFC 5681 with the partial acknowledgements of RFC 6582 (`NewReno`),
/// counting bytes (RFC 3465).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reno {
    cwnd: u32,
    /// Below it slow start, above it congestion avoidance.
    ssthresh: u32,
}

impl Reno {
    /// RFC 6928: min (10 MSS, max (2 MSS, 14600)).
    const fn initial_window(mss: u32) -> u32 {
        let floor = if 2 * mss > INITIAL_BYTES {
            2 * mss
        } else {
            INITIAL_BYTES
        };
        if INITIAL_SEGMENTS * mss < floor {
            INITIAL_SEGMENTS * mss
        } else {
            floor
        }
    }

    /// RFC 5681, equation 4.
    fn half(flight: Flight) -> u32 {
        (flight.in_flight / 2).max(2 * flight.mss)
    }
}

impl CongestionControl for Reno {
    fn new(mss: u32) -> Self {
        Self {
            cwnd: Self::initial_window(mss),
            ssthresh: u32::MAX,
        }
    }

    #[inline(always)]
    fn window(&self) -> u32 {
        self.cwnd
    }

    #[inline(always)]
    fn on_ack(&mut self, acked: u32, flight: Flight) {
        // A window that was not used is not known to be right: it does not
        // grow (RFC 7661, section 4.1, in its plainest form).
        let used = flight.in_flight;
        let grown = if self.cwnd < self.ssthresh {
            if self.cwnd >= 2 * used.min(MAX_WINDOW) {
                return;
            }
            // RFC 3465, 2.2: L of two segments.
            self.cwnd + acked.min(2 * flight.mss)
        } else {
            if self.cwnd >= used.saturating_add(flight.mss) {
                return;
            }
            // RFC 5681, equation 3, for `acked` bytes.
            let step = u64::from(flight.mss) * u64::from(acked) / u64::from(self.cwnd);
            self.cwnd + (step as u32).clamp(1, flight.mss)
        };
        self.cwnd = grown.min(MAX_WINDOW);
    }

    #[cold]
    fn on_fast_retransmit(&mut self, flight: Flight) {
        self.ssthresh = Self::half(flight);
        self.cwnd = self.ssthresh + 3 * flight.mss;
    }

    fn on_duplicate_ack(&mut self, flight: Flight) {
        self.cwnd = self.cwnd.saturating_add(flight.mss).min(MAX_WINDOW);
    }

    /// RFC 6582, section 3.2, step 3.
    fn on_partial_ack(&mut self, acked: u32, flight: Flight) {
        self.cwnd = self.cwnd.saturating_sub(acked).max(flight.mss);
        if acked >= flight.mss {
            self.cwnd += flight.mss;
        }
    }

    /// RFC 6582, section 3.2, step 3, option 1: no burst follows.
    fn on_recovered(&mut self, flight: Flight) {
        let left = flight.in_flight.max(flight.mss) + flight.mss;
        self.cwnd = self.ssthresh.min(left);
    }

    #[cold]
    fn on_timeout(&mut self, again: bool, flight: Flight) {
        // RFC 5681, section 3.1: halved once for the same data.
        if !again {
            self.ssthresh = Self::half(flight);
        }
        self.cwnd = flight.mss;
    }

    /// RFC 5681, section 4.1.
    #[cold]
    fn on_idle(&mut self, mss: u32) {
        self.cwnd = self.cwnd.min(Self::initial_window(mss));
    }
}

#[cfg(test)]
#[path = "congestion_tests.rs"]
mod tests;
