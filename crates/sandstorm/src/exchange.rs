//! One request and its response, in the hands of a callback.

use std::fmt::{Arguments, Debug, Display};
use std::net::SocketAddr;

use nmio::Instant;
use tcpip::{ConnectionId, Contents};

use crate::fields::{FieldError, Fields};
use crate::prepared::Replies;
use crate::response::Response;
use crate::status::StatusCode;
use crate::verdict::Verdict;

/// Names one request, which is to be answered later. No other request has the same
/// name. Any thread can keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    pub(crate) connection: ConnectionId,
    pub(crate) serial: u64,
}

/// What a callback has in hand of a request beside the request itself: who asks, what
/// is remembered of the connection, and the response, which is a new one for each
/// callback.
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
    /// Makes a response of plain text, unless the status was set: 200.
    pub fn text(&mut self, text: Arguments<'_>) -> Verdict {
        if !self.response.fields().has("content-type") {
            // It is short, and right.
            let _ = self
                .response
                .add_field("Content-Type", "text/plain; charset=utf-8");
        }
        self.response.write_text(text);
        Verdict::Made
    }

    /// The response, for [`Verdict::Made`].
    pub fn response(&mut self) -> &mut Response {
        self.response
    }

    /// Sets the response's status.
    pub fn set_status(&mut self, status: StatusCode) {
        self.response.set_status(status);
    }

    /// Adds a field to the response, whoever makes it.
    ///
    /// # Errors
    /// [`FieldError`]; nothing is added then.
    pub fn add_field(&mut self, name: &str, value: impl Display) -> Result<(), FieldError> {
        self.response.add_field(name, value)
    }

    /// Where replies are made that are sent often.
    pub fn replies(&mut self) -> Replies<'_> {
        Replies::new(self.contents, self.common)
    }

    /// The request's name, for [`Verdict::Later`].
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// The client's address and port.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The time of what the callback is about.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// What the application remembers of the connection.
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
