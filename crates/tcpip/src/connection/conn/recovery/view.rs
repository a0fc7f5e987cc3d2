//! Access to loss recovery state for tests and invariant checks.

use super::Recovery;
use crate::congestion::CongestionControl;
use crate::connection::conn::Conn;
use crate::wire::Seq;

impl<C: CongestionControl> Conn<'_, C> {
    /// Returns the number of bytes in the network, and the congestion window. Returns `None` if a
    /// tail loss probe was sent last.
    pub(crate) fn pipe_and_window(&self) -> Option<(u32, u32)> {
        let flight = self.tcb.flight();
        match self.recovery() {
            None => Some((flight, self.congestion.window())),
            // A tail loss probe may exceed the congestion window (RFC 8985, section 7.3).
            Some(recovery) if recovery.probes_tail(self.tcb.snd_nxt) => None,
            Some(recovery) => {
                let pipe = recovery.pipe(flight, self.tcb.mss);
                Some((pipe, recovery.window(self.congestion)))
            }
        }
    }

    /// Panics when an invariant of loss recovery is violated.
    pub(in crate::connection::conn) fn check_recovery(&self) {
        let (una, flight) = (self.tcb.snd_una, self.tcb.flight());
        let Some(recovery) = self.recovery() else {
            return;
        };
        assert!(!recovery.is_in_order() || recovery.board.size() == 0);
        assert!(recovery.left_network(flight, self.tcb.mss) <= flight);
        for range in &recovery.board.ranges {
            let (start, end) = (range.start.since(una), range.end.since(una));
            assert!(end <= flight, "ranges lie within the flight");
            assert!(start < end);
        }
    }

    /// Returns the size of the scoreboard, as an index in [`SIZES`](super::SIZES), or `None` if the
    /// connection has no loss recovery state.
    #[cfg(test)]
    pub(crate) fn board_size(&self) -> Option<usize> {
        self.recovery().map(|recovery| recovery.board.size())
    }
}

impl<C> Recovery<C> {
    /// Returns true if a tail loss probe that ends at `nxt` is in flight.
    fn probes_tail(&self, nxt: Seq) -> bool {
        self.tail_probe.is_some_and(|probe| probe.end == nxt)
    }
}
