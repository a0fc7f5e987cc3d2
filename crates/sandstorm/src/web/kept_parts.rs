//! Short parts of files that clients ask for again with the same request. A worker keeps them with
//! their heads as contents of the TCP stack, so that they cost as much as a whole reply.

use std::net::IpAddr;

use arrayvec::ArrayVec;

use crate::recent_cache::CachePlace;

/// Maximum number of parts that a worker keeps.
pub(crate) const MAX_KEPT_PARTS: usize = 64;
/// If a worker has all of them, one of so many requests that would keep another one does so.
const REPLACES_ONE_OF: usize = 8;
/// One client address may hold so many places while other addresses need places.
const SHARE: usize = MAX_KEPT_PARTS / 8;
/// Maximum number of old parts that are looked at for one to replace.
const MAX_SEARCHED: usize = 8;

/// The parts that a worker keeps. Their contents follow the site's replies in `Core::prepared`.
#[derive(Debug, Default)]
pub(super) struct KeptParts {
    parts: ArrayVec<KeptPart, MAX_KEPT_PARTS>,
    /// The part to replace next.
    next: usize,
    /// Number of requests since the last search for an old part.
    waited: usize,
}

#[derive(Clone, Copy, Debug)]
struct KeptPart {
    /// Where the answer with the part is remembered.
    answer: CachePlace,
    /// The address whose request has taken the place.
    client: IpAddr,
}

impl KeptParts {
    /// Returns the place of the next part for a client. It is that of an old part if there are many.
    /// `is_in_use` tells whether a connection is still sending the part at a place.
    ///
    /// Old parts are replaced seldom. So clients with ever new parts neither cost much nor soon displace the
    /// parts of others. Only the part of an address beyond its share is replaced while it is being sent. Its
    /// memory is freed later. An address that has its share replaces only its own parts. So fewer than
    /// [`MAX_KEPT_PARTS`] parts without a place wait to be freed.
    pub(super) fn place_of_next(
        &mut self,
        client: IpAddr,
        is_in_use: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let count = self.parts.len();
        if count < MAX_KEPT_PARTS {
            return Some(count);
        }
        self.waited += 1;
        if self.waited < REPLACES_ONE_OF {
            return None;
        }
        self.waited = 0;
        let has_share = self.held_by(client) >= SHARE;
        for _ in 0..MAX_SEARCHED {
            let place = self.next;
            self.next = (place + 1) % MAX_KEPT_PARTS;
            let holder = self.parts[place].client;
            let may_replace = if has_share {
                holder == client && !is_in_use(place)
            } else {
                !is_in_use(place) || self.held_by(holder) > SHARE
            };
            if may_replace {
                return Some(place);
            }
        }
        None
    }

    /// Number of places that a client holds.
    fn held_by(&self, client: IpAddr) -> usize {
        let own = self.parts.iter().filter(|part| part.client == client);
        own.count()
    }

    /// Returns where the answer with the part at this place is remembered, if there is one.
    pub(super) fn answer(&self, at: usize) -> Option<CachePlace> {
        self.parts.get(at).map(|part| part.answer)
    }

    /// Notes where the answer with the part at this place is remembered, and for whom.
    pub(super) fn set(&mut self, at: usize, answer: CachePlace, client: IpAddr) {
        let part = KeptPart { answer, client };
        match self.parts.get_mut(at) {
            Some(old) => *old = part,
            None => self.parts.push(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    /// Lets a client ask for places so often, while the parts of some clients are in use. Returns how many it
    /// got.
    fn ask(kept: &mut KeptParts, number: u8, times: usize, in_use: &[u8]) -> usize {
        let mut got = 0;
        for n in 0..times {
            let holders: Vec<_> = kept.parts.iter().map(|part| part.client).collect();
            let is_in_use = |at: usize| in_use.iter().any(|one| holders[at] == client(*one));
            if let Some(at) = kept.place_of_next(client(number), is_in_use) {
                kept.set(at, CachePlace::of(&[number, n as u8]), client(number));
                got += 1;
            }
        }
        got
    }

    #[test]
    fn an_address_that_holds_all_places_gives_way_although_its_clients_read_slowly() {
        let mut kept = KeptParts::default();
        assert_eq!(ask(&mut kept, 1, MAX_KEPT_PARTS, &[1]), MAX_KEPT_PARTS);
        // It cannot hold more itself.
        assert_eq!(ask(&mut kept, 1, 1_000, &[1]), 0);
        let all: Vec<u8> = (1..=9).collect();
        for other in 2..=8 {
            ask(&mut kept, other, 1_000, &all);
            assert_eq!(kept.held_by(client(other)), SHARE);
        }
        assert_eq!(kept.held_by(client(1)), SHARE);
        // Now none holds more than its share.
        assert_eq!(ask(&mut kept, 9, 1_000, &all), 0);
        assert_eq!(ask(&mut kept, 9, REPLACES_ONE_OF, &[]), 1);
    }

    #[test]
    fn an_address_with_its_share_leaves_the_places_of_others() {
        let mut kept = KeptParts::default();
        for number in 1..=2 {
            ask(&mut kept, number, MAX_KEPT_PARTS / 2, &[]);
        }
        assert!(ask(&mut kept, 1, 1_000, &[]) > 0);
        assert_eq!(kept.held_by(client(2)), MAX_KEPT_PARTS / 2);
    }
}
