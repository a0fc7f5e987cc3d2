//! The parsed question of a packet.

use crate::hashed_question::HashedQuestion;

/// The parsed question of one packet.
#[derive(Clone, Debug)]
pub(super) struct ParsedQuestion {
    /// Whether `question` holds a complete question. A question with a compressed name does not
    /// count, because there is only one buffer for a decompressed name.
    pub(super) is_complete: bool,
    /// The hash of the zone's probable name, if there are several zones.
    pub(super) apex_hash: u64,
    pub(super) question: HashedQuestion,
}
