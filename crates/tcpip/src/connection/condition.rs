//! Phases of loss recovery.

/// Phase of a connection's loss recovery. The phases are the states of Linux's `tcp_ca_state`,
/// except for CWR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Condition {
    /// Nothing is lost or out of order.
    #[default]
    Open,
    /// No segment counts as lost. Segments may be out of order, a probe may be in flight, or the
    /// last window reduction may still be undone.
    Disorder,
    /// Fast recovery: a segment was lost, and the congestion window is being reduced.
    Recovery,
    /// All data that is not SACKed is being retransmitted, for example after a timeout or a
    /// reduction of the path MTU.
    Loss,
}
