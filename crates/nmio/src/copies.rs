//! Several copies of one resident packet: the paper's *pre-copy* way.

use crate::frame::Resident;

/// The copies of one prepared packet. While one is in the TX ring another
/// serves; when all are, one more is made and kept (the high-water mark).
///
/// The TX ring completes in order, so that the copies are used in turn: when
/// the next one is in flight, they all are, and nothing has to be searched.
#[derive(Debug, Default)]
pub struct Copies {
    packets: Vec<Resident>,
    next: usize,
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
    #[inline(always)]
    pub fn free(&mut self, make: impl FnOnce() -> Option<Resident>) -> Option<&mut Resident> {
        let at = self.next;
        if self.packets.get(at).is_none_or(Resident::in_flight) {
            self.packets.insert(at, make()?);
        }
        self.next = if at + 1 < self.packets.len() {
            at + 1
        } else {
            0
        };
        self.packets.get_mut(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Pool, PoolLayout};

    #[test]
    fn copies_grow_to_the_high_water_mark_and_serve_in_turn() {
        let pool = Pool::on_heap(PoolLayout {
            stride: 64,
            capacity: 64,
            io_frames: 0,
            resident_frames: 3,
        });
        let mut copies = Copies::default();
        let send = |copies: &mut Copies| {
            let copy = copies.free(|| pool.make_resident(b"packet"))?;
            copy.lend(&pool).map(|(index, _)| index)
        };
        let first = [send(&mut copies), send(&mut copies), send(&mut copies)];
        assert_eq!(copies.len(), 3);
        assert_eq!(send(&mut copies), None, "no memory for a fourth");
        for index in first.into_iter().flatten() {
            assert!(pool.complete(index));
        }
        let second = [send(&mut copies), send(&mut copies), send(&mut copies)];
        assert_eq!(copies.len(), 3, "kept, and no more made");
        let mut sorted = second;
        sorted.sort_unstable();
        assert_eq!(sorted, [Some(0), Some(1), Some(2)]);
    }
}
