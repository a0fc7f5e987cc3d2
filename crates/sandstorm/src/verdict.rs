//! How an application decides about a request.

use crate::prepared::PreparedId;
use crate::status::StatusCode;

/// How a request is answered.
#[derive(Clone, Copy, Debug)]
pub enum Verdict {
    /// The site answers: with the file, or with an error if there is none. The exchange's fields
    /// are added and replace fields of the same name. The exchange's status and body are not used.
    Site,
    /// A prepared reply is sent, with the exchange's fields added.
    Prepared(PreparedId),
    /// The exchange's response is sent. The callback has filled it.
    Made,
    /// The exchange's response is streamed. The first piece is the body it has now, and
    /// [`App::on_more`](crate::App::on_more) makes the next ones. They are sent as chunks (RFC
    /// 9112, section 7.1). For an HTTP/1.0 client the end of the connection ends the response.
    Stream,
    /// The answer follows later, by [`Clients::answer`](crate::Clients::answer) with the exchange's
    /// [ticket](crate::Exchange::ticket). Later requests of the connection wait until then. The
    /// client gets 504 after the server's [answer timeout](crate::Http::with_answer_timeout).
    /// Fields that were added to this exchange are lost.
    Later,
    /// A page about this status is sent, with the exchange's fields. A [`Status`](crate::Status)
    /// converts to a code: `Status::MethodNotAllowed.into()`. With this status you must add the
    /// field `Allow` (RFC 9110, section 15.5.6).
    Refuse(StatusCode),
}

/// What happens to a request's body.
#[derive(Clone, Copy, Debug)]
pub enum Intake {
    /// The body is collected, up to this many bytes; a longer one is refused. The application gets
    /// the request when the body is complete.
    Whole(usize),
    /// The pieces of the body are passed to [`on_body`](crate::App::on_body) as they arrive, up to
    /// this many bytes in total; a longer body is refused. At the end the application gets the
    /// request, with an empty body.
    Pieces(u64),
    /// The body is not read, and this verdict answers the request. The connection stays open if the
    /// body is known to have at most [`UNREAD_LIMIT`](crate::UNREAD_LIMIT) bytes; otherwise it
    /// closes.
    Unread(Verdict),
}

/// What follows a piece of a [streamed](Verdict::Stream) response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// More follows as soon as this piece and a few others have been acknowledged. After an empty
    /// piece this means the same as [`Wait`](Self::Wait).
    Next,
    /// More follows after a call of [`Clients::resume`](crate::Clients::resume). If the client is
    /// silent for [`tcpip::Config::idle_timeout`], its connection is closed.
    Wait,
    /// This was the last piece.
    Last,
}

/// Which requests an application sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sees {
    /// No requests: the site answers everything.
    Nothing,
    /// Only requests that the site cannot serve: unknown paths (404), and methods that are unknown
    /// (501) or not supported for files (405). All other requests are served as if there were no
    /// application, which is faster.
    Missing,
    /// All valid requests.
    Everything,
}
