//! How much may be in flight: congestion control behind one small trait.
//!
//! An algorithm is a pure state machine of a few words: no clock, no timer,
//! no allocation. The stack finds out what is lost, leads the flight down
//! during recovery (RFC 6937), and undoes a reduction that proved spurious by
//! putting the copy back that it kept; an algorithm says how much may be in
//! flight, and how it learns from what became of that.

mod bbr;
mod loss_based;

pub use bbr::Bbr;
pub use loss_based::{Cubic, NewReno, Reno};

/// The connection as an algorithm sees it with an event. (What is rarely done
/// with one takes a copy, so that otherwise it need not be in memory.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Now, in microseconds, on a clock that wraps.
    pub now: u32,
    /// Bytes in flight before the event: sent, and neither acknowledged
    /// (cumulatively or selectively) nor taken as lost.
    pub in_flight: u32,
    /// Most bytes of data in a segment, up to 65,535.
    pub mss: u32,
    /// Smoothed round-trip time in microseconds; 0 before it is measured.
    pub srtt: u32,
    /// The round trip that this event has measured, in microseconds; 0: none.
    pub rtt: u32,
    /// SND.UNA after the event.
    pub una: u32,
    /// SND.NXT.
    pub nxt: u32,
}

impl Event {
    /// Bytes sent and not acknowledged cumulatively: `FlightSize` of RFC 5681.
    /// What is lost or selectively acknowledged counts, as it was in flight
    /// when the network had its fill.
    fn flight_size(&self) -> u32 {
        self.nxt.wrapping_sub(self.una).max(self.in_flight)
    }
}

/// What tells of congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// A segment is lost (RFC 5681, section 3.2), and recovery begins.
    Loss,
    /// The peer echoes a mark of congestion (RFC 3168, section 6.1.2).
    Ecn,
}

/// A congestion control algorithm, with its state for one connection.
///
/// Copying it keeps all that it knows: the stack undoes with a copy what a
/// spurious retransmission has done.
pub trait CongestionControl: Copy {
    /// Whether recovery without SACK goes on after an acknowledgement of only
    /// a part of what was in flight when it began (RFC 6582).
    const PARTIAL_ACK_RECOVERY: bool = true;

    /// For a new connection with segments of up to `mss` bytes of data: the
    /// initial window of RFC 6928.
    fn new(mss: u32) -> Self {
        Self::with_window(initial_window(mss))
    }

    /// For a new connection with an initial window of `window` bytes.
    fn with_window(window: u32) -> Self;

    /// Most bytes in flight, at least one segment (cwnd). After
    /// [`on_congestion`](Self::on_congestion) it is at once the reduced
    /// target: proportional rate reduction (RFC 6937), done by the stack,
    /// leads down to it.
    fn window(&self) -> u32;

    /// The slow-start threshold in bytes; `u32::MAX` before the first loss.
    /// For information and for the gain of pacing.
    fn ssthresh(&self) -> u32;

    /// Bytes a second at which the algorithm itself wants to be paced; `None`:
    /// the stack paces, where configured, by window and round trip.
    fn pacing_rate(&self) -> Option<u64> {
        None
    }

    /// `bytes` have been sent in this pass, new or again; `event.in_flight` is
    /// before them.
    fn on_send(&mut self, bytes: u32, event: &Event) {
        let _ = (bytes, event);
    }

    /// `acked` bytes were acknowledged for the first time, outside recovery.
    fn on_ack(&mut self, acked: u32, event: &Event);

    /// A new congestion event: once per window, when recovery begins
    /// ([`Congestion::Loss`]) or on an ECN echo ([`Congestion::Ecn`]).
    fn on_congestion(&mut self, cause: Congestion, event: &Event);

    /// During recovery: `delivered` bytes newly acknowledged, selectively or
    /// not, and `lost` bytes newly taken as lost.
    fn on_recovery_ack(&mut self, delivered: u32, lost: u32, event: &Event) {
        let _ = (delivered, lost, event);
    }

    /// Recovery has ended, with an ACK that tells of `delivered` bytes;
    /// [`on_ack`](Self::on_ack) is not told of these. After a timeout it is,
    /// and they are 0.
    fn on_recovered(&mut self, delivered: u32, event: &Event) {
        let _ = (delivered, event);
    }

    /// The retransmission timer has expired; `again` when for the same data
    /// as the last time.
    fn on_timeout(&mut self, again: bool, event: &Event);

    /// Nothing was in flight for longer than the retransmission timeout, and
    /// now there is something to send.
    fn on_idle(&mut self, event: &Event);
}

/// Segments of the initial window (RFC 6928, section 2).
const INITIAL_SEGMENTS: u32 = 10;
/// Bytes that the initial window never needs to exceed (RFC 6928).
const INITIAL_BYTES: u32 = 14_600;
/// Bytes that a window never exceeds: more cannot be in flight without
/// meeting old sequence numbers (RFC 7323, section 2.3).
const MAX_WINDOW: u32 = 1 << 30;
/// Segments that congestion leaves at least (RFC 5681, equation 4).
const MIN_SEGMENTS: u32 = 2;

/// RFC 6928, section 2: min (10 MSS, max (2 MSS, 14600)).
pub(crate) const fn initial_window(mss: u32) -> u32 {
    let two = mss.saturating_mul(2);
    let floor = if two > INITIAL_BYTES {
        two
    } else {
        INITIAL_BYTES
    };
    let ten = mss.saturating_mul(INITIAL_SEGMENTS);
    let window = if ten < floor { ten } else { floor };
    if window < MAX_WINDOW {
        window
    } else {
        MAX_WINDOW
    }
}

#[cfg(test)]
mod link;
#[cfg(test)]
#[path = "congestion/congestion_tests.rs"]
mod tests;
