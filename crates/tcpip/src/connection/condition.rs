//! Phase of loss recovery.

/// Phase of a connection's loss recovery, as in Linux's `tcp_ca_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Condition {
    /// Nothing is lost or out of order.
    #[default]
    Open,
    /// Something is out of order, and nothing counts as lost.
    Disorder,
    /// Fast recovery: something was lost, and the window is being reduced.
    Recovery,
    /// Recovery after a timeout: the whole flight is retransmitted in slow start.
    Loss,
}
