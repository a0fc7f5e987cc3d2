//! What is remembered between two arrivals of bytes.

use tcpip::Connection;

use crate::pending::Place;
use crate::session::Session;

/// A connection, in the hands of a callback.
pub(super) type Conn<'a, S> = Connection<'a, Conversation<S>>;

/// What is remembered of a connection.
#[derive(Debug, Default)]
pub struct Conversation<S> {
    pub(super) session: Session,
    /// The request that is under way, if there is one.
    pub(super) place: Place,
    /// The client sends no more.
    pub(super) has_ended: bool,
    /// Bytes of a body that are discarded as they come: nobody reads it, and its request
    /// is answered or will be.
    pub(super) unread: u32,
    /// A request is left unconsumed until there is room for its answer.
    pub(super) wants_room: bool,
    /// The application's own.
    pub(super) state: S,
}
