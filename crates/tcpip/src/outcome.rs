//! What the methods of a connection return for the stack to carry out.

use crate::connection::Plan;

/// What to do with a segment that the fast path did not expect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Process the segment.
    Process,
    /// Complete the handshake. Then process the segment.
    Establish,
    Drop,
    /// Answer with an ACK.
    Acknowledge,
    /// Retransmit the SYN-ACK.
    SynAck,
    /// Answer with a reset, as if the connection did not exist.
    Reset,
    /// Replace the connection, which is in TIME-WAIT, by a new one that the segment opens.
    Reopen,
    /// Forget the connection without a callback. The application does not know the connection yet,
    /// or knows that it has ended.
    Forget,
    /// Close the connection, because the peer has reset it.
    Close,
}

/// What the stack does with a segment's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    /// Drop the data, because the application has aborted the connection, or because the peer's FIN
    /// came before the data.
    Dropped,
    /// Offer the data to the application, because the data is next in order and the connection has
    /// no receive buffer.
    Offered,
    /// Store the data in the receive buffer, because the data is out of order, or the connection
    /// already has a buffer.
    Buffered,
}

/// What to do when a connection's deadline has passed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expiry {
    /// Transmit as much data as the windows allow.
    Transmit,
    /// Do nothing, because the deadline has been moved.
    Wait,
    /// Retransmit the SYN-ACK.
    SynAck,
    /// Send a tail loss probe.
    Send(Plan),
    /// Send a zero window probe.
    ProbeWindow(Plan),
    /// Send a keep-alive.
    KeepAlive,
    /// Offer data again to an application whose last write found no room.
    OfferAgain,
    /// Our side is now closed, because the connection was idle for too long. Send the FIN.
    CloseIdle,
    /// Give up the connection without a reset, because the peer does not answer or does not close
    /// its side.
    TimeOut,
    /// Give up the connection and send a reset, because the peer does not answer probes.
    Reset,
    /// Forget the connection without a callback. The application does not know the connection yet,
    /// or knows that it has ended.
    Forget,
}

/// A kind of segment without data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ControlSegment {
    /// Acknowledges the received data.
    Ack,
    /// Uses a sequence number that the peer has already acknowledged, so that the peer must answer
    /// (RFC 1122, section 4.2.3.6).
    KeepAlive,
    SynAck,
    /// Closes our side after all written data.
    Fin,
    /// Resets the connection. The segment has a sequence number that the peer accepts.
    Reset,
}
