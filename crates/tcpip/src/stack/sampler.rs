//! Where the search for who gives way goes on.

use arrayvec::ArrayVec;

use crate::clock::Moment;
use crate::peers::Owner;

/// Parts of a pool whose holders lacked most when they were looked at: they are
/// looked at again.
pub(super) const CANDIDATES: usize = 16;

/// Where a pool was looked at last.
#[derive(Clone, Debug, Default)]
pub(super) struct Sampler {
    pub(super) hand: usize,
    pub(super) candidates: ArrayVec<u32, CANDIDATES>,
    pub(super) refused: Option<Refused>,
}

/// Who found nobody to give way. In the same millisecond others of that address
/// who lack as much are not looked for again: thousands may ask at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub(super) at: u32,
    pub(super) peer: u32,
    pub(super) lack: u32,
}

/// Who asks for a part of a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) owner: Owner,
    pub(super) lack: u32,
}

impl Sampler {
    /// Whether `asker` would be refused as one just before.
    pub(super) fn has_refused(&self, asker: Asker, now: Moment) -> bool {
        self.refused.is_some_and(|refused| {
            refused.at == now.millis
                && refused.peer == asker.owner.peer
                && refused.lack <= asker.lack
        })
    }
}

#[cfg(test)]
mod tests {
    use nmio::Instant;

    use super::*;

    #[test]
    fn who_was_refused_is_refused_for_the_rest_of_the_millisecond() {
        let sampler = Sampler {
            refused: Some(Refused {
                at: 7,
                peer: 3,
                lack: 1_500,
            }),
            ..Sampler::default()
        };
        let refused = |millis, peer, lack| {
            let owner = Owner { id: 0, peer };
            let now = Moment::new(Instant::from_millis(millis));
            sampler.has_refused(Asker { owner, lack }, now)
        };
        assert!(refused(7, 3, 1_500) && refused(7, 3, 9_000));
        assert!(!refused(7, 3, 1_499), "it lacks less");
        assert!(!refused(7, 4, 1_500), "another address");
        assert!(!refused(8, 3, 1_500), "a millisecond later");
    }
}
