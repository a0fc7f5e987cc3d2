//! Several copies of one resident packet, for *pre-copy* mode.

use super::{IdleResident, Resident};

/// The copies of one prepared resident packet.
///
/// While a copy is in the TX ring, another copy is used. If all copies are in the ring, a new copy
/// is created and kept. So the number of copies grows to the maximum that is needed at the same
/// time.
///
/// Finding a free copy needs no search, because copies are used round-robin and the TX ring
/// completes packets in order. If the most recently used copy is not in flight, no copy is in
/// flight. Otherwise, the next copy is the one that was used longest ago. If that copy is in flight
/// too, all copies are in flight.
///
/// Each copy has a note of type `N`, in which the caller remembers what it has patched.
#[derive(Debug)]
pub struct Copies<N = ()> {
    packets: Vec<(Resident, N)>,
    /// Index of the most recently used copy.
    last: usize,
}

impl<N> Default for Copies<N> {
    fn default() -> Self {
        Self {
            packets: Vec::new(),
            last: 0,
        }
    }
}

impl<N: Default> Copies<N> {
    /// Returns the number of copies created so far.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns true if no copy has been created yet.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Removes up to `max` copies, and returns how many. A copy in flight is freed when it was sent.
    ///
    /// The order of use is then lost. So later calls may create more copies than necessary.
    pub fn remove_some(&mut self, max: usize) -> usize {
        let len = self.packets.len();
        self.packets.truncate(len.saturating_sub(max));
        self.last = 0;
        len - self.packets.len()
    }

    /// Returns a copy that is not in flight, for patching and sending, with its note.
    ///
    /// If all copies are in flight, `make` creates another one, whose note has its default value.
    /// Returns `None` if `make` returns `None`, which means that the port has no memory left.
    ///
    /// If the caller does not send the copy, the next call returns it again.
    #[inline(always)]
    pub fn free(
        &mut self,
        make: impl FnOnce() -> Option<Resident>,
    ) -> Option<(IdleResident<'_>, &mut N)> {
        if !self.is_idle(self.last) {
            self.advance(make)?;
        }
        let (packet, note) = self.packets.get_mut(self.last)?;
        // Both ways to this line have checked that the copy is not in flight.
        Some((IdleResident { packet }, note))
    }

    /// Returns true if there is a copy `index`, and it is not in flight.
    #[inline(always)]
    fn is_idle(&self, index: usize) -> bool {
        let copy = self.packets.get(index);
        copy.is_some_and(|(packet, _)| !packet.in_flight())
    }

    /// Selects the next copy, or creates one if all copies are in flight. Returns `None` if the
    /// selected copy is in flight.
    #[inline(always)]
    fn advance(&mut self, make: impl FnOnce() -> Option<Resident>) -> Option<()> {
        let after_last = self.last + 1;
        let is_behind_all = after_last >= self.packets.len();
        let next = if is_behind_all { 0 } else { after_last };
        if self.is_idle(next) {
            self.last = next;
            return Some(());
        }
        self.add(make)
    }

    /// Creates another copy, and selects it. Returns `None` if there is none, or if it is in flight.
    #[cold]
    #[inline(never)]
    fn add(&mut self, make: impl FnOnce() -> Option<Resident>) -> Option<()> {
        let place = (self.last + 1).min(self.packets.len());
        self.packets.insert(place, (make()?, N::default()));
        self.last = place;
        self.is_idle(place).then_some(())
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

    /// Sends a free copy or a new one. Returns `None` if the pool has no memory for a new copy.
    /// Dropping the returned value completes the packet.
    fn send(copies: &mut Copies, pool: &Pool) -> Option<Sending> {
        let (packet, ()) = copies.free(|| pool.make_resident(b"packet"))?;
        Some(packet.send(pool))
    }

    #[test]
    fn one_copy_suffices_unless_it_is_in_flight() {
        let (pool, mut copies) = (pool(), Copies::default());
        for _ in 0..3 {
            assert!(send(&mut copies, &pool).is_some());
        }
        assert_eq!(copies.len(), 1);
    }

    #[test]
    fn a_copy_that_is_not_sent_is_reused() {
        let (pool, mut copies) = (pool(), Copies::default());
        let sending = send(&mut copies, &pool);
        assert!(sending.is_some());
        for _ in 0..10 {
            // The second copy is never sent and stays free, so no third copy is created.
            assert!(copies.free(|| pool.make_resident(b"packet")).is_some());
        }
        assert_eq!(copies.len(), 2);
    }

    #[test]
    fn a_new_copy_that_is_in_flight_is_not_returned() {
        let (pool, mut copies) = (pool(), Copies::<()>::default());
        let mut made = pool.make_resident(b"packet").unwrap();
        let sending = made.idle().unwrap().send(&pool);
        assert!(copies.free(|| Some(made)).is_none());
        drop(sending);
        assert!(copies.free(|| None).is_some());
    }

    #[test]
    fn each_copy_keeps_its_note() {
        let (pool, mut copies) = (pool(), Copies::<Option<usize>>::default());
        let mut in_flight = Vec::new();
        for nth in 0..RESIDENTS as usize {
            let (packet, note) = copies.free(|| pool.make_resident(b"packet")).unwrap();
            assert_eq!(note.replace(nth), None, "a new copy has no note");
            in_flight.push(packet.send(&pool));
        }
        for nth in 0..RESIDENTS as usize {
            drop(in_flight.remove(0));
            let (packet, note) = copies.free(|| None).unwrap();
            assert_eq!(*note, Some(nth));
            in_flight.push(packet.send(&pool));
        }
    }

    #[test]
    fn copies_are_removed_bit_by_bit_even_in_flight() {
        let (pool, mut copies) = (pool(), Copies::default());
        let mut in_flight: Vec<_> = (0..3).map(|_| send(&mut copies, &pool)).collect();
        assert_eq!(copies.remove_some(2), 2);
        assert_eq!((copies.len(), pool.residents_left()), (1, RESIDENTS - 1));
        in_flight.clear();
        assert!(send(&mut copies, &pool).is_some());
        assert_eq!(copies.remove_some(2), 1);
        assert!(copies.is_empty());
        assert!(send(&mut copies, &pool).is_some());
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Send,
        /// A copy is returned but not sent, because the TX ring is full.
        Give,
        /// The oldest copy in flight completes.
        Complete,
    }

    proptest! {
        /// The number of copies equals the maximum number in use at the same time. A copy is in use
        /// if it is in flight, or was returned but not sent.
        #[test]
        fn copies_grow_to_the_high_water_mark(
            steps in prop::collection::vec(
                prop_oneof![3 => Just(Step::Send), 1 => Just(Step::Give), 2 => Just(Step::Complete)],
                0..200,
            ),
        ) {
            let (pool, mut copies) = (pool(), Copies::default());
            let mut in_flight = VecDeque::new();
            let mut high_water = 0;
            for step in steps {
                let is_full = in_flight.len() == RESIDENTS as usize;
                match step {
                    Step::Send => {
                        let sending = send(&mut copies, &pool);
                        prop_assert_eq!(sending.is_none(), is_full, "memory for {} copies", RESIDENTS);
                        in_flight.extend(sending);
                        high_water = high_water.max(in_flight.len());
                    }
                    Step::Give => {
                        let copy = copies.free(|| pool.make_resident(b"packet"));
                        prop_assert_eq!(copy.is_none(), is_full);
                        high_water = high_water.max((in_flight.len() + 1).min(RESIDENTS as usize));
                    }
                    Step::Complete => drop(in_flight.pop_front()),
                }
                prop_assert_eq!(copies.len(), high_water);
            }
        }
    }
}
