//! `NewReno` (RFC 6582).

use super::reno::Reno;
use crate::congestion::{Congestion, CongestionControl, Event};

/// `NewReno` (RFC 6582): Reno with a recovery that lasts until all data in flight at its start is
/// acknowledged.
///
/// RFC 6582 changes when fast recovery ends and what is sent during it. Proportional rate reduction
/// replaces the RFC's inflation and deflation of the window (section 3.2, steps 3 to 5). The only
/// remaining difference from Reno is
/// [`PARTIAL_ACK_RECOVERY`](CongestionControl::PARTIAL_ACK_RECOVERY), which matters for peers
/// without SACK. For the same events, the congestion window is identical to Reno's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewReno(Reno);

const _: () = assert!(size_of::<NewReno>() <= 48);

impl CongestionControl for NewReno {
    const NAME: &'static str = "newreno";
    const PARTIAL_ACK_RECOVERY: bool = true;

    fn with_window(window: u32) -> Self {
        Self(Reno::with_window(window))
    }

    #[inline(always)]
    fn window(&self) -> u32 {
        self.0.window()
    }

    #[inline(always)]
    fn ssthresh(&self) -> u32 {
        self.0.ssthresh()
    }

    #[inline(always)]
    fn on_ack(&mut self, acked: u32, event: &Event) {
        self.0.on_ack(acked, event);
    }

    fn on_congestion(&mut self, cause: Congestion, event: &Event) {
        self.0.on_congestion(cause, event);
    }

    fn on_recovery_ack(&mut self, delivered: u32, lost: u32, event: &Event) {
        self.0.on_recovery_ack(delivered, lost, event);
    }

    fn on_recovered(&mut self, delivered: u32, event: &Event) {
        self.0.on_recovered(delivered, event);
    }

    fn on_timeout(&mut self, is_repeated: bool, event: &Event) {
        self.0.on_timeout(is_repeated, event);
    }

    fn on_idle(&mut self, event: &Event) {
        self.0.on_idle(event);
    }
}
