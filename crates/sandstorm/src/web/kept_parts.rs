//! Short parts of files that clients ask for again with the same request. A worker keeps them with
//! their heads as contents of the TCP stack, so that they cost as much as a whole reply.

use arrayvec::ArrayVec;
use tcpip::Contents;

use super::prepared_reply::PreparedReply;
use crate::recent_cache::CachePlace;

/// Maximum number of parts that a worker keeps.
pub(crate) const MAX_KEPT_PARTS: usize = 64;
/// If a worker has all of them, one of so many requests that would keep another one does so.
const REPLACES_ONE_OF: usize = 8;
/// Maximum number of old parts that are looked at for one to replace.
const MAX_SEARCHED: usize = 8;

/// The parts that a worker keeps. Their contents follow the site's replies in `Core::prepared`.
#[derive(Debug, Default)]
pub(super) struct KeptParts {
    /// Where the answer with each part is remembered.
    answers: ArrayVec<CachePlace, MAX_KEPT_PARTS>,
    /// The part to replace next.
    next: usize,
    /// Number of requests since the last search for an old part.
    waited: usize,
}

impl KeptParts {
    /// Returns the place of the next part. It is that of an old part if there are many, but never that of a
    /// part that a connection is still sending. `kept` are the contents of the parts.
    ///
    /// Old parts are replaced seldom. So clients with ever new parts neither cost much nor soon displace the
    /// parts of others.
    pub(super) fn place_of_next(
        &mut self,
        kept: &[PreparedReply],
        contents: &Contents,
    ) -> Option<usize> {
        let count = self.answers.len();
        if count < MAX_KEPT_PARTS {
            return Some(count);
        }
        self.waited += 1;
        if self.waited < REPLACES_ONE_OF {
            return None;
        }
        self.waited = 0;
        for _ in 0..MAX_SEARCHED {
            let place = self.next;
            self.next = (place + 1) % MAX_KEPT_PARTS;
            if !contents.is_in_use(kept[place].content) {
                return Some(place);
            }
        }
        None
    }

    /// Returns where the answer with the part at this place is remembered, if there is one.
    pub(super) fn answer(&self, at: usize) -> Option<CachePlace> {
        self.answers.get(at).copied()
    }

    /// Notes where the answer with the part at this place is remembered.
    pub(super) fn set(&mut self, at: usize, answer: CachePlace) {
        match self.answers.get_mut(at) {
            Some(old) => *old = answer,
            None => self.answers.push(answer),
        }
    }
}
