//! Several copies of one resident packet: the paper's *pre-copy* way.

use crate::frame::Resident;

/// The copies of one prepared packet. While one is in the TX ring another
/// serves; when all are, one more is made and kept (the high-water mark).
///
/// The TX ring completes in order, and the copies are used in turn. So the
/// oldest in flight is the one behind the last that was given: when both of
/// these are in flight all are, and when the last one is not, none is.
/// Nothing has to be searched.
#[derive(Debug, Default)]
pub struct Copies {
    packets: Vec<Resident>,
    /// The one given last.
    last: usize,
}

impl Copies {
    /// Copies made so far.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether none has been made yet.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// A copy that is not in flight, to be patched and sent; `make` builds
    /// another when there is none. `None` when that fails: the port has no
    /// memory for more.
    ///
    /// A copy that could not be sent after all is given again.
    #[inline(always)]
    pub fn free(&mut self, make: impl FnOnce() -> Option<Resident>) -> Option<&mut Resident> {
        if self.packets.get(self.last).is_none_or(Resident::in_flight) {
            self.turn(make)?;
        }
        self.packets.get_mut(self.last)
    }

    /// Makes the next copy the last one.
    #[inline(always)]
    fn turn(&mut self, make: impl FnOnce() -> Option<Resident>) -> Option<()> {
        let behind = (self.last + 1).min(self.packets.len());
        let next = if behind < self.packets.len() {
            behind
        } else {
            0
        };
        if self.packets.get(next).is_none_or(Resident::in_flight) {
            self.packets.insert(behind, make()?);
            self.last = behind;
        } else {
            self.last = next;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::frame::{Pool, PoolLayout, Sending};

    const RESIDENTS: u32 = 5;

    fn pool() -> Pool {
        Pool::on_heap(PoolLayout {
            stride: 64,
            capacity: 64,
            io_frames: 0,
            resident_frames: RESIDENTS,
        })
    }

    /// Sends a free copy, when there is one. Dropping it completes it.
    fn send(copies: &mut Copies, pool: &Pool) -> Option<Sending> {
        copies.free(|| pool.make_resident(b"packet"))?.send(pool)
    }

    #[test]
    fn a_copy_serves_alone_until_it_is_in_flight() {
        let (pool, mut copies) = (pool(), Copies::default());
        for _ in 0..3 {
            assert!(send(&mut copies, &pool).is_some());
        }
        assert_eq!(copies.len(), 1);
    }

    #[test]
    fn a_full_ring_makes_no_copies() {
        let (pool, mut copies) = (pool(), Copies::default());
        let sending = send(&mut copies, &pool);
        assert!(sending.is_some());
        for _ in 0..10 {
            // Given, and not sent.
            assert!(copies.free(|| pool.make_resident(b"packet")).is_some());
        }
        assert_eq!(copies.len(), 2);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Send,
        /// The ring was full.
        Give,
        /// The oldest in flight has left.
        Complete,
    }

    proptest! {
        /// As many copies are made as were in flight at once, and one more
        /// where one was given and not sent; what is given is not in flight.
        #[test]
        fn copies_grow_to_the_high_water_mark(
            steps in prop::collection::vec(
                prop_oneof![3 => Just(Step::Send), 1 => Just(Step::Give), 2 => Just(Step::Complete)],
                0..200,
            ),
        ) {
            let (pool, mut copies) = (pool(), Copies::default());
            let mut in_flight = VecDeque::new();
            let mut most = 0;
            for step in steps {
                let full = in_flight.len() == RESIDENTS as usize;
                match step {
                    Step::Send => {
                        let sending = send(&mut copies, &pool);
                        prop_assert_eq!(sending.is_none(), full, "memory for {} copies", RESIDENTS);
                        in_flight.extend(sending);
                        most = most.max(in_flight.len());
                    }
                    Step::Give => {
                        let given = copies.free(|| pool.make_resident(b"packet"));
                        prop_assert_eq!(given.is_none(), full);
                        prop_assert!(given.is_none_or(|copy| !copy.in_flight()));
                        most = most.max((in_flight.len() + 1).min(RESIDENTS as usize));
                    }
                    Step::Complete => drop(in_flight.pop_front()),
                }
                prop_assert_eq!(copies.len(), most);
            }
        }
    }
}
