//! What an application says about a request.

use crate::prepared::PreparedId;
use crate::status::StatusCode;

/// How a request is answered.
#[derive(Clone, Copy, Debug)]
pub enum Verdict {
    /// By the site: with the file, or with what is said where there is none. The
    /// exchange's fields are added, each in the place of one of the same name; its
    /// status and body are not used.
    Site,
    /// With a reply that was made before. The exchange's fields are added.
    Prepared(PreparedId),
    /// With the exchange's response, which the callback has made.
    Made,
    /// With the exchange's response, whose body is made in pieces: the first is what it has
    /// now, and [`App::on_more`](crate::App::on_more) adds the others. It is sent in chunks
    /// (RFC 9112, section 7.1), and to a client of HTTP/1.0 until the connection closes.
    Stream,
    /// Later: by [`Clients::answer`](crate::Clients::answer), with the exchange's
    /// [ticket](crate::Exchange::ticket). Until then no later request of the
    /// connection is looked at. Who waits for longer than the server's
    /// [answer timeout](crate::Http::with_answer_timeout) gets 504. Fields that were
    /// added to this exchange are not kept for that answer.
    Later,
    /// With a page about this status, and the exchange's fields. A
    /// [`Status`](crate::Status) turns into a code: `Status::MethodNotAllowed.into()`.
    /// With that one add the field `Allow` (RFC 9110, section 15.5.6).
    Refuse(StatusCode),
}

/// What becomes of a request's body.
#[derive(Clone, Copy, Debug)]
pub enum Intake {
    /// It is collected, if it is at most so many bytes. The application gets the
    /// request when it is whole.
    Whole(usize),
    /// It is given in pieces to [`on_body`](crate::App::on_body) as they come, if it
    /// is at most so many bytes. The application gets the request at the end, with
    /// an empty body.
    Pieces(u64),
    /// It is not read. This is the answer. The connection goes on where the body is known
    /// to have at most [`UNREAD_LIMIT`](crate::UNREAD_LIMIT) bytes, and closes otherwise.
    Unread(Verdict),
}

/// What follows a piece of a response that is made in [pieces](Verdict::Stream).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// Another one, when this one and a few more have arrived. After a piece of no bytes
    /// as [`Wait`](Self::Wait).
    Next,
    /// Another one, after [`Clients::resume`](crate::Clients::resume). A client that is
    /// silent for [`tcpip::Config::idle_timeout`] meanwhile is closed.
    Wait,
    /// Nothing: it is the last.
    Last,
}

/// Which requests an application sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sees {
    /// None: the site answers everything.
    Nothing,
    /// Those that the site has nothing for: no file (404), a method that is none of a
    /// file (405) or not known (501). The others are served as without an application,
    /// which is faster.
    Missing,
    /// All that are valid.
    Everything,
}
