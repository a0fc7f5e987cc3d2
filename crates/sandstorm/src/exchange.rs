//! What a callback receives with a request, and the ticket that identifies the request later.

use std::fmt::{Arguments, Debug, Display};
use std::net::SocketAddr;

use nmio::Instant;
use tcpip::{ConnectionId, Contents};

use crate::fields::{FieldError, Fields};
use crate::prepared::Replies;
use crate::response::Response;
use crate::status::StatusCode;
use crate::verdict::Verdict;

/// Identifies a request whose answer is deferred or streamed. A ticket is never reused, and any
/// thread may hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    pub(crate) connection: ConnectionId,
    pub(crate) serial: u64,
}

/// What a callback receives with a request, for example the client's address, the connection's
/// state, and a response. The response is empty at the start of each callback.
pub struct Exchange<'a, S> {
    pub(crate) ticket: Ticket,
    pub(crate) peer: SocketAddr,
    pub(crate) now: Instant,
    pub(crate) state: &'a mut S,
    pub(crate) response: &'a mut Response,
    pub(crate) contents: &'a mut Contents,
    pub(crate) common: &'a Fields,
}

impl<S> Exchange<'_, S> {
    /// Appends `text` to the response's body, and returns [`Verdict::Made`]. The response is plain
    /// text with status 200, unless the application has set another content type or status.
    pub fn text(&mut self, text: Arguments<'_>) -> Verdict {
        if !self.response.fields().has("content-type") {
            // The field is valid. If there is no room for it, the response is sent without it.
            let _ = self
                .response
                .add_field("Content-Type", "text/plain; charset=utf-8");
        }
        self.response.write_text(text);
        Verdict::Made
    }

    /// Returns the response, for the application to fill in. [`Verdict::Made`] sends it, and
    /// [`Verdict::Stream`] sends it as the first piece. [`App::on_more`](crate::App::on_more) uses
    /// only its body. Other verdicts use only its fields, or discard it.
    pub fn response(&mut self) -> &mut Response {
        self.response
    }

    /// Sets the response's status.
    pub fn set_status(&mut self, status: StatusCode) {
        self.response.set_status(status);
    }

    /// Adds a field to the response. The field is sent with every verdict except
    /// [`Verdict::Later`].
    ///
    /// # Errors
    /// [`FieldError`] if the field is refused. Nothing is added in that case.
    pub fn add_field(&mut self, name: &str, value: impl Display) -> Result<(), FieldError> {
        self.response.add_field(name, value)
    }

    /// Gives access to the prepared replies, to add and remove them.
    pub fn replies(&mut self) -> Replies<'_> {
        Replies::new(self.contents, self.common)
    }

    /// The request's ticket. [`Clients::answer`](crate::Clients::answer) needs it after
    /// [`Verdict::Later`], and [`Clients::resume`](crate::Clients::resume) for a streamed response.
    /// Earlier callbacks for the same request may have had other tickets.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// The client's address and port.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The time of the event that caused the callback.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The application's state for this connection.
    pub fn state(&mut self) -> &mut S {
        self.state
    }
}

impl<S> Debug for Exchange<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange")
            .field("peer", &self.peer)
            .field("ticket", &self.ticket)
            .field("response", &self.response)
            .finish_non_exhaustive()
    }
}
