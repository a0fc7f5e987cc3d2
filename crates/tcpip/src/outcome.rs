//! Results of connection calls that the stack acts on.

use crate::connection::Plan;
use crate::wire::Segment;

/// Decision about a segment that is not the expected one.
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
    /// Answer with a RST, as for no connection.
    Reset,
    /// Open a new connection in place of this one.
    Reopen,
    /// Forget the connection; the application does not know it, or knows that it has ended.
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

/// Destination of a segment's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    /// Dropped: nobody reads it.
    Dropped,
    /// Offered to the application: it is next in order.
    Offered,
    /// Stored in the receive buffer: it is out of order, or earlier data is not consumed
    /// yet.
    Buffered,
}

/// Action after a connection's deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expiry {
    /// Transmit what the windows allow.
    Transmit,
    /// Nothing to do yet.
    Wait,
    /// Retransmit the SYN-ACK.
    SynAck,
    /// Send a tail loss probe.
    Send(Plan),
    /// Send a zero-window probe.
    ProbeWindow(Plan),
    /// Send a keep-alive.
    KeepAlive,
    /// Offer again to an application that had found no room.
    OfferAgain,
    /// Close our side: the connection was idle for too long.
    CloseIdle,
    /// Give the connection up: the peer does not answer.
    TimeOut,
    /// Give the connection up, and reset it.
    Reset,
    /// Forget the connection; the application does not know it, or knows that it has ended.
    Forget,
}

/// Kind of a segment without data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ControlSegment {
    /// Acknowledges what was received.
    Ack,
    /// Begins one number before the peer's expected one, so that the peer must answer (RFC
    /// 1122, section 4.2.3.6).
    KeepAlive,
    SynAck,
    /// Closes our side after the written data.
    Fin,
    /// Resets the connection, with a sequence number that the peer accepts.
    Reset,
}
