//! What the stack is to do after it has called a connection.

use crate::connection::Plan;
use crate::wire::Segment;

/// What to do with a segment that is not what was expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It is processed, cut to the window.
    Process(Segment),
    /// Likewise, and it has completed the handshake.
    Establish(Segment),
    Drop,
    /// An acknowledgement answers it.
    Acknowledge,
    /// The SYN-ACK goes again.
    SynAck,
    /// A reset answers it, as if there were no connection.
    Reset,
    /// It opens a new connection in the place of this one.
    Reopen,
    /// The application does not know the connection, or no longer: it is
    /// forgotten.
    Forget,
    /// The peer has reset the connection.
    Close,
}

/// What an acknowledgement of our FIN leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AfterFin {
    /// The connection goes on.
    Open,
    /// Both sides have closed.
    TimeWait,
    /// Both sides have closed, and nothing is left to wait for.
    Finished,
}

/// Where a segment's data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    /// Nowhere: nobody waits for it.
    Dropped,
    /// To the application: it is what comes next.
    Offered,
    /// To the receive buffer: it is out of order, or comes behind what is not
    /// consumed yet.
    Buffered,
}

/// What to do when a connection's deadline has passed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expiry {
    /// What may be sent is sent.
    Transmit,
    /// There is nothing to do yet.
    Wait,
    /// The SYN-ACK goes again.
    SynAck,
    /// A probe of the tail goes.
    Send(Plan),
    /// A probe of the peer's window goes.
    ProbeWindow(Plan),
    /// The peer is asked whether it is there.
    KeepAlive,
    /// The application is asked again that had found no room.
    OfferAgain,
    /// Our side closes: the connection has been silent for too long.
    CloseIdle,
    /// The peer does not answer: the connection is given up, …
    TimeOut,
    /// … with a reset.
    Reset,
    /// The application does not know the connection, or no longer: it is
    /// forgotten.
    Forget,
}

/// A segment without data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ControlSegment {
    /// It acknowledges what has come.
    Ack,
    /// One just before what the peer expects, which it must acknowledge (RFC
    /// 1122, section 4.2.3.6).
    KeepAlive,
    SynAck,
    /// Our side ends behind all that was written.
    Fin,
    /// A reset that the peer takes as in order.
    Reset,
}
