//! What an application can decide about a request: whether to receive it, what to do with its body,
//! and how to answer.

use crate::prepared::PreparedId;
use crate::status::StatusCode;

/// How a request is answered.
#[derive(Clone, Copy, Debug)]
pub enum Verdict {
    /// The site answers, for example with a file or with 404. The fields of the exchange's response
    /// are added, and replace the site's fields of the same name. The status and the body of the
    /// exchange's response are ignored.
    Site,
    /// A prepared reply is sent, with the fields of the exchange's response added. If the reply has
    /// been removed, the client receives 500.
    Prepared(PreparedId),
    /// The exchange's response is sent as the callback has filled it in. If its body is too long
    /// for the TCP stack, the client receives 500.
    Made,
    /// The exchange's response is streamed. Its current body is the first piece, and
    /// [`App::on_more`](crate::App::on_more) supplies the next pieces. Each piece is sent as a
    /// chunk (RFC 9112, section 7.1). For HTTP/1.0 clients, which do not support chunks, closing
    /// the connection ends the response.
    Stream,
    /// The answer is deferred: call [`Clients::answer`](crate::Clients::answer) later with the
    /// exchange's [ticket](crate::Exchange::ticket). Until then, later requests on the connection
    /// wait. If no answer is given within the server's [answer
    /// timeout](crate::Http::with_answer_timeout), the client receives 504. Fields added to this
    /// exchange's response are discarded.
    Later,
    /// The server's page about this status is sent, with the fields of the exchange's response
    /// added. A [`Status`](crate::Status) converts to a code: `Status::MethodNotAllowed.into()`. If
    /// you send this status (405), you must add the field `Allow` (RFC 9110, section 15.5.6).
    Refuse(StatusCode),
}

/// What the server does with a request's body.
#[derive(Clone, Copy, Debug)]
pub enum Intake {
    /// The server collects the body, and the application receives the request when the body is
    /// complete. The value is the maximum length in bytes. A longer body is refused with 413.
    Whole(usize),
    /// The body is passed to [`on_body`](crate::App::on_body) in pieces, as they arrive. The value
    /// is the maximum length in bytes. A longer body is refused with 413. After the last piece, the
    /// application receives the request, with an empty body.
    Pieces(u64),
    /// The body is not needed, and the request is answered according to this verdict. If the body
    /// is known to be at most [`UNREAD_LIMIT`](crate::UNREAD_LIMIT) bytes long, it is discarded and
    /// the connection stays open. Otherwise, the connection is closed.
    Unread(Verdict),
}

/// What follows after a piece of a [streamed](Verdict::Stream) response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// The server asks for the next piece without waiting for [`Clients::resume`]. After a few
    /// pieces in a row, it first waits until the client has acknowledged them. After an empty
    /// piece, `Next` is the same as [`Wait`](Self::Wait).
    ///
    /// [`Clients::resume`]: crate::Clients::resume
    Next,
    /// The server asks for the next piece after a call of
    /// [`Clients::resume`](crate::Clients::resume). If the client sends nothing for
    /// [`tcpip::Config::idle_timeout`] while the response waits, the connection is closed.
    Wait,
    /// This piece is the last one.
    Last,
}

/// Which requests reach an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sees {
    /// No requests: the site answers all of them.
    Nothing,
    /// Only requests that the site cannot serve, because the path is unknown (404), or the method
    /// is unknown (501) or not supported for files (405). The site answers OPTIONS for its own paths
    /// and for `*`. All other requests are served without
    /// calling the application, which is faster.
    Missing,
    /// All valid requests except CONNECT.
    Everything,
}
