//! How an application decides about a request.

use crate::prepared::PreparedId;
use crate::status::StatusCode;

/// How a request is answered.
#[derive(Clone, Copy, Debug)]
pub enum Verdict {
    /// The site answers: with the file, or with an error if there is none. The exchange's fields
    /// are added, replacing fields of the same name. Its status and body are ignored.
    Site,
    /// A prepared reply is sent, with the exchange's fields added.
    Prepared(PreparedId),
    /// The exchange's response is sent, as the callback has filled it in.
    Made,
    /// The exchange's response is streamed. Its current body is the first piece, and
    /// [`App::on_more`](crate::App::on_more) makes the next pieces. They are sent as chunks (RFC
    /// 9112, section 7.1). For an HTTP/1.0 client the end of the connection ends the response.
    Stream,
    /// The answer is given later by calling [`Clients::answer`](crate::Clients::answer) with the
    /// exchange's [ticket](crate::Exchange::ticket). Later requests on the connection wait until
    /// then. The client receives 504 after the server's [answer
    /// timeout](crate::Http::with_answer_timeout). Fields that were added to this exchange are
    /// lost.
    Later,
    /// A page about this status is sent, with the exchange's fields. A [`Status`](crate::Status)
    /// converts to a code: `Status::MethodNotAllowed.into()`. With this status you must add the
    /// field `Allow` (RFC 9110, section 15.5.6).
    Refuse(StatusCode),
}

/// What happens to a request's body.
#[derive(Clone, Copy, Debug)]
pub enum Intake {
    /// The body is collected up to this many bytes, and a longer body is refused. The application
    /// receives the request when the body is complete.
    Whole(usize),
    /// The pieces of the body are passed to [`on_body`](crate::App::on_body) as they arrive, up to
    /// this many bytes in total; a longer body is refused. Finally the application receives the
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
    /// The next piece follows as soon as this piece and a few earlier ones have been acknowledged.
    /// After an empty piece this is the same as [`Wait`](Self::Wait).
    Next,
    /// The next piece follows after a call of [`Clients::resume`](crate::Clients::resume). If the
    /// client sends nothing for [`tcpip::Config::idle_timeout`], its connection is closed.
    Wait,
    /// This was the last piece.
    Last,
}

/// Which requests reach an application.
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
