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
    /// The application has aborted the connection, or the stack was shut down before the connection
    /// was complete. A connection is incomplete until the peer has acknowledged all data, and while
    /// the application waits for room to write more.
    Aborted,
    /// Another connection needed this connection's place, or a buffer or entry list that it held.
    /// This connection was furthest behind [`Config::min_rate`](crate::Config::min_rate), or its
    /// client address held more than its share.
    Evicted,
}
