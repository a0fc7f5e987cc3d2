//! Congestion control: algorithms that limit the data in flight, behind one small trait.
//!
//! An algorithm is a small, pure state machine, which needs no clock, timer or allocation. It
//! computes from ACKs, losses and ECN marks how much data may be in flight. The stack detects
//! losses, reduces the data in flight during recovery (RFC 6937), and undoes a spurious reduction
//! by restoring a copy of the algorithm.

mod bbr;
mod loss_based;

pub use bbr::Bbr;
pub use loss_based::{Cubic, NewReno, Reno};

/// State of the connection at the time of an event, as passed to an algorithm.
///
/// Some functions off the fast path take an event by value, so that the fast path can keep the
/// original in registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Current time in microseconds. The clock wraps around.
    pub now: u32,
    /// Number of bytes in flight before the event: sent, but neither acknowledged (cumulatively or
    /// selectively) nor lost.
    pub in_flight: u32,
    /// Maximum payload of a segment in bytes, at most 65,535.
    pub mss: u32,
    /// Smoothed round-trip time in microseconds, or 0 before the first sample.
    pub srtt: u32,
    /// RTT sample of this event in microseconds, or 0 if there is none.
    pub rtt: u32,
    /// SND.UNA after the event.
    pub una: u32,
    /// SND.NXT before the event.
    pub nxt: u32,
    /// Whether the stack paces all new data ([`Config::pacing`](crate::Config::pacing)). ACKs of
    /// paced data arrive spread over the round trip, whatever the path's rate is.
    pub is_paced: bool,
}

impl Event {
    /// Returns the number of bytes sent but not acknowledged cumulatively: `FlightSize` of RFC
    /// 5681. Lost and selectively acknowledged bytes count, because they were in flight when the
    /// queue overflowed.
    fn flight_size(&self) -> u32 {
        self.nxt.wrapping_sub(self.una).max(self.in_flight)
    }
}

/// Signal of congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// A segment was lost (RFC 5681, section 3.2). Fast recovery begins, unless a tail loss probe
    /// has already repaired the loss.
    Loss,
    /// The peer has sent ECE (RFC 3168, section 6.1.2).
    Ecn,
}

/// A congestion control algorithm, with its state for one connection.
///
/// A copy holds the complete state. The stack restores an earlier copy to undo a spurious
/// reduction.
pub trait CongestionControl: Copy {
    /// Name of the algorithm, for example `cubic`.
    const NAME: &'static str;

    /// Whether recovery without SACK continues after a partial ACK (RFC 6582).
    const PARTIAL_ACK_RECOVERY: bool = true;

    /// Creates the state of a new connection with segments of up to `mss` bytes of data, and with
    /// the initial window of RFC 6928.
    fn new(mss: u32) -> Self {
        Self::with_window(initial_window(mss))
    }

    /// Creates the state of a new connection with an initial window of `window` bytes.
    fn with_window(window: u32) -> Self;

    /// Returns the congestion window (cwnd) in bytes, at least one segment.
    ///
    /// If [`on_congestion`](Self::on_congestion) reduces the window, it does so in one step. The
    /// stack then reduces the data in flight to the new window by proportional rate reduction (RFC
    /// 6937).
    fn window(&self) -> u32;

    /// Returns the slow-start threshold in bytes, or `u32::MAX` while none is set. Statistics
    /// report the threshold, and the pacing rate that the stack derives depends on it.
    fn ssthresh(&self) -> u32;

    /// Returns the pacing rate that the algorithm requires, in bytes per second. If the rate is
    /// `None` and the stack paces nevertheless, it derives a rate from the window and the RTT.
    fn pacing_rate(&self) -> Option<u64> {
        None
    }

    /// Called when the stack has sent `bytes` of new data or retransmissions, which
    /// `event.in_flight` does not yet include. Not called for probes.
    fn on_send(&mut self, bytes: u32, event: &Event) {
        let _ = (bytes, event);
    }

    /// Called when `acked` bytes were newly acknowledged outside fast recovery. On a path that
    /// reorders segments, SACKed bytes count as acknowledged.
    fn on_ack(&mut self, acked: u32, event: &Event);

    /// Called when fast recovery begins or a tail loss probe has repaired a loss
    /// ([`Congestion::Loss`]). Also called on ECE, at most once per window of data
    /// ([`Congestion::Ecn`]).
    fn on_congestion(&mut self, cause: Congestion, event: &Event);

    /// Called for an ACK during fast recovery: `delivered` bytes were newly acknowledged,
    /// cumulatively or selectively, and `lost` bytes newly count as lost.
    fn on_recovery_ack(&mut self, delivered: u32, lost: u32, event: &Event) {
        let _ = (delivered, lost, event);
    }

    /// Called when fast recovery has ended with an ACK of `delivered` bytes, for which
    /// [`on_ack`](Self::on_ack) is not called.
    ///
    /// Also called when the recovery after a timeout ends. In this case `on_ack` is called too, and
    /// `delivered` is 0.
    fn on_recovered(&mut self, delivered: u32, event: &Event) {
        let _ = (delivered, event);
    }

    /// Called when the retransmission timer has expired. `is_repeated` tells whether the timer has
    /// already expired for the same data.
    fn on_timeout(&mut self, is_repeated: bool, event: &Event);

    /// Called when the peer sends data after an idle period longer than the retransmission timeout,
    /// because we are likely to send a response.
    fn on_idle(&mut self, event: &Event);
}

/// Maximum size of the initial window in segments (RFC 6928, section 2).
const INITIAL_SEGMENTS: u32 = 10;
/// Maximum initial window in bytes, unless two segments are larger (RFC 6928, section 2).
const INITIAL_BYTES: u32 = 14_600;
/// Largest window in bytes. With more data in flight, an old segment could be taken for a new one
/// (RFC 7323, section 2.3).
const MAX_WINDOW: u32 = 1 << 30;
/// Lower bound of the window after congestion, in segments (RFC 5681, equation 4).
const MIN_SEGMENTS: u32 = 2;

/// Returns the initial window of RFC 6928, section 2: min (10 MSS, max (2 MSS, 14600)).
fn initial_window(mss: u32) -> u32 {
    let max = INITIAL_BYTES.max(mss.saturating_mul(2));
    let ten = mss.saturating_mul(INITIAL_SEGMENTS);
    ten.min(max).min(MAX_WINDOW)
}

#[cfg(test)]
mod link;
#[cfg(test)]
#[path = "congestion/congestion_tests.rs"]
mod tests;
