//! What an application can decide about a request: whether to receive it, what to do with its body,
//! and how to answer.

use crate::prepared::PreparedId;
use crate::status::StatusCode;

/// How a request is answered.
#[derive(Clone, Copy, Debug)]
pub enum Verdict {
    /// The site answers, either with a file or with an error. The fields of the exchange's response
    /// are added, and replace fields of the same name. The response's status and body are ignored.
    Site,
    /// A prepared reply is sent, with the fields of the exchange's response added.
    Prepared(PreparedId),
    /// The exchange's response is sent as the callback has filled it in.
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
    /// complete. A body with more than this number of bytes is refused.
    Whole(usize),
    /// The body is passed to [`on_body`](crate::App::on_body) in pieces, as they arrive. A body
    /// with more than this number of bytes is refused. After the last piece, the application
    /// receives the request, with an empty body.
    Pieces(u64),
    /// The body is not needed, and the request is answered by this verdict. If the body is known to
    /// have at most [`UNREAD_LIMIT`](crate::UNREAD_LIMIT) bytes, it is discarded and the connection
    /// stays open. Otherwise, the connection is closed.
    Unread(Verdict),
}

/// What follows after a piece of a [streamed](Verdict::Stream) response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// The server asks for the next piece as soon as the client has acknowledged this piece and a
    /// few earlier ones. After an empty piece, this is the same as [`Wait`](Self::Wait).
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
    /// is unknown (501) or not supported for files (405). All other requests are served without
    /// calling the application, which is faster.
    Missing,
    /// All valid requests.
    Everything,
}
