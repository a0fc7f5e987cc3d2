//! The state of a connection between two arrivals of bytes.

use tcpip::Connection;

use crate::pending::Place;
use crate::session::Session;

/// A connection as a callback gets it.
pub(super) type Conn<'a, S> = Connection<'a, Conversation<S>>;

/// The server's state for one connection.
#[derive(Debug, Default)]
pub struct Conversation<S> {
    pub(super) session: Session,
    /// The place of the pending request, if there is one.
    pub(super) place: Place,
    /// The client has closed its sending side.
    pub(super) has_ended: bool,
    /// Number of body bytes that will be discarded as they arrive. Nobody reads this body, and its
    /// request is answered regardless of it.
    pub(super) unread: u32,
    /// A request stays unconsumed until the send stream has room for its answer.
    pub(super) wants_room: bool,
    /// The application's own state.
    pub(super) state: S,
}
