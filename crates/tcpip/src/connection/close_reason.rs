//! Why connections end.

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// Both sides have closed, and all that was written has arrived; or that,
    /// when the stack [hung up](crate::Stack::hang_up).
    Finished,
    /// The peer has reset it.
    Reset,
    /// The peer has stopped answering, or has not closed its side within
    /// [`Config::fin_wait`](crate::Config::fin_wait) after it acknowledged our FIN.
    TimedOut,
    /// The application has aborted it, or the stack hung up before all had
    /// arrived.
    Aborted,
    /// Another connection needed its place, or a buffer that it held, and it
    /// had made the least progress ([`Config::min_rate`](crate::Config::min_rate)).
    Evicted,
}
