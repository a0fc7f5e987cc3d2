//! Reasons for the end of a connection.

/// Reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// Both sides have closed, and the peer has acknowledged all data. Alternatively, the stack was
    /// [shut down](crate::Stack::shut_down) after the peer had acknowledged all data.
    Finished,
    /// The peer has reset the connection.
    Reset,
    /// The peer has stopped answering, or did not close its side within
    /// [`Config::fin_wait`](crate::Config::fin_wait) after it acknowledged our FIN.
    TimedOut,
    /// The application has aborted the connection, or the stack was shut down before the peer had
    /// acknowledged all data.
    Aborted,
    /// Another connection needed this connection's place or one of its buffers, and this connection
    /// had made the least progress ([`Config::min_rate`](crate::Config::min_rate)).
    Evicted,
}
