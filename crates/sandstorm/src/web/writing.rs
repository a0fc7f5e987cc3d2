//! Writes a response to the send stream of its connection.

use tcpip::{Connection, MAX_WRITE_LEN, WriteError};

use crate::pending::{Outgoing, OutgoingContent};
use crate::status::Status;

/// What happens to a connection after an answer was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Continuation {
    /// The answer is complete, so the next request may be processed.
    ReadNext,
    /// The next request must wait, because the answer to this one is not yet complete.
    Wait,
    /// The next request must wait, because the application will send more of this response.
    Stream,
    /// The request is not answered, and must be read again when its credentials are checked.
    ReadAgain,
    /// The connection ends, so there is no next request.
    End,
}

/// What was written.
pub(super) enum Written {
    /// A response with this status and a body of so many bytes.
    Response(Status, usize),
    /// Nothing yet, or a response with a file on the disk. It is counted and logged when it begins.
    Other(Continuation),
}

/// Writes `bytes`, and then the part of a content item that `outgoing` names, if any. If there is
/// no room for both, writes neither.
pub(super) fn write<S>(
    conn: &mut Connection<'_, S>,
    bytes: &[u8],
    outgoing: &Outgoing,
) -> Result<(), WriteError> {
    let params = outgoing.stamp.as_u64();
    let slice = match &outgoing.content {
        OutgoingContent::Parts(parts) => return conn.write_parts(bytes.into(), parts, params),
        OutgoingContent::Slice(content, range) if !range.is_empty() => Some((content, range)),
        OutgoingContent::Slice(..) | OutgoingContent::None => None,
        // Downloads are not written in one piece.
        OutgoingContent::Disk(..) => return Err(WriteError::NoSuchContent),
    };
    let entries = usize::from(!bytes.is_empty()) + usize::from(slice.is_some());
    conn.ensure_room(entries)?;
    if bytes.len() <= MAX_WRITE_LEN {
        conn.write_bytes(bytes)?;
    } else {
        conn.write_once(bytes.into())?;
    }
    slice.map_or(Ok(()), |(content, range)| {
        conn.write_slice(*content, range.clone(), params)
    })
}
