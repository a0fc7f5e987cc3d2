//! Results of a connection's methods, which tell the stack what to do.

use crate::connection::Plan;
use crate::wire::Segment;

/// What to do with an unexpected segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Process the segment, trimmed to the window.
    Process(Segment),
    /// Process the segment, trimmed to the window; it completes the handshake.
    Establish(Segment),
    Drop,
    /// Answer with an ACK.
    Acknowledge,
    /// Retransmit the SYN-ACK.
    SynAck,
    /// Answer with a reset, as if there were no connection.
    Reset,
    /// Open a new connection in place of this one.
    Reopen,
    /// Forget the connection. The application does not know it, or knows that it has ended.
    Forget,
    /// The peer has reset the connection.
    Close,
}

/// Effect of an acknowledgement of our FIN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AfterFin {
    /// The connection continues.
    Open,
    /// Both sides have closed; TIME-WAIT begins.
    TimeWait,
    /// Both sides have closed, and TIME-WAIT is not needed.
    Finished,
}

/// What happens to a segment's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    /// Drop the data: nobody reads it.
    Dropped,
    /// Offer the data to the application: it is next in order.
    Offered,
    /// Store the data in the receive buffer: it is out of order, or earlier data is not consumed.
    Buffered,
}

/// What to do when a connection's deadline has passed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expiry {
    /// Transmit what the windows allow.
    Transmit,
    /// Do nothing yet.
    Wait,
    /// Retransmit the SYN-ACK.
    SynAck,
    /// Send a tail loss probe.
    Send(Plan),
    /// Send a zero window probe.
    ProbeWindow(Plan),
    /// Send a keep-alive.
    KeepAlive,
    /// Offer data again to an application that found no room before.
    OfferAgain,
    /// Close our side: the connection was idle for too long.
    CloseIdle,
    /// Give the connection up: the peer does not answer.
    TimeOut,
    /// Reset the connection and give it up.
    Reset,
    /// Forget the connection. The application does not know it, or knows that it has ended.
    Forget,
}

/// A kind of segment without data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ControlSegment {
    /// Acknowledges the received data.
    Ack,
    /// Starts one before the sequence number that the peer expects, so that the peer must answer
    /// (RFC 1122, section 4.2.3.6).
    KeepAlive,
    SynAck,
    /// Closes our side after the written data.
    Fin,
    /// Resets the connection, with a sequence number that the peer accepts.
    Reset,
}
