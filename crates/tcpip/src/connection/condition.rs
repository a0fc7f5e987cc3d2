//! How a connection goes.

/// How it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Condition {
    /// All that was sent arrives in order.
    #[default]
    Open,
    /// Something is out of order, and nothing is taken as lost.
    Disorder,
    /// Something was lost, and the window is being reduced.
    Recovery,
    /// All that was in flight is being sent again, in slow start.
    Loss,
}
