//! The state of a connection.

use nmio::Instant;
use tcpip::Connection;

use super::downloads::DownloadPlace;
use crate::login::Login;
use crate::pending::PendingPlace;
use crate::session::Session;

/// A connection, as passed to a callback of the stack.
pub(super) type Conn<'a, S> = Connection<'a, Conversation<S>>;

/// The server's state for one connection.
#[derive(Debug, Default)]
pub struct Conversation<S> {
    pub(super) session: Session,
    /// The place of the pending request, if there is one.
    pub(super) place: PendingPlace,
    /// The place of the last response with a file on the disk, if the client has not acknowledged all of
    /// it.
    pub(super) download: DownloadPlace,
    /// Whether the credentials of its request are checked, or were.
    pub(super) login: Login,
    /// Whether the client closed its sending side while its request waited for the application or
    /// was evicted.
    pub(super) has_ended: bool,
    /// Number of body bytes to discard as they arrive. They belong to a request that is answered
    /// without reading the rest of its body.
    pub(super) unread: u32,
    /// Whether a request was left unconsumed because the send stream has no room for its answer.
    pub(super) wants_room: bool,
    /// When the oldest request arrived whose response the client has not acknowledged completely.
    pub(super) asked_at: Option<Instant>,
    /// The application's own state.
    pub(super) state: S,
}
