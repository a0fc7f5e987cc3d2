//! Joins packets that arrive in several pieces.

use crate::frame::{Frame, Pool};

/// A piece of a received packet.
pub(crate) trait Piece {
    /// Returns the number of bytes.
    fn len(&self) -> usize;

    /// Copies all bytes to `to`, which has as many.
    fn copy_to(&self, to: &mut [u8]);
}

impl Piece for &[u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn copy_to(&self, to: &mut [u8]) {
        to.copy_from_slice(self);
    }
}

/// The packet whose pieces are arriving. Its bytes are copied to a frame.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    /// The packet whose last piece has not arrived yet.
    frame: Option<Frame>,
    /// Whether the rest of the current packet must be skipped.
    skips: bool,
}

impl Assembly {
    /// Adds a piece. `None` stands for an invalid piece. `more` is true if another piece of the same
    /// packet follows.
    ///
    /// Returns the packet with its last piece. If the packet is invalid or too long, or if the pool
    /// has no frame for it, its last piece returns an error.
    #[inline]
    pub(crate) fn add(
        &mut self,
        piece: Option<impl Piece>,
        more: bool,
        pool: &Pool,
    ) -> Result<Option<Frame>, ()> {
        let frame = match piece {
            Some(piece) if !self.skips => self.append(&piece, pool),
            _ => None,
        };
        match (frame, more) {
            (Some(frame), false) => return Ok(Some(frame)),
            (frame, true) => {
                self.skips = frame.is_none();
                self.frame = frame;
                return Ok(None);
            }
            (None, false) => {}
        }
        *self = Self::default();
        Err(())
    }

    /// Returns the packet so far with `piece` at its end. Returns `None` if there is no room.
    fn append(&mut self, piece: &impl Piece, pool: &Pool) -> Option<Frame> {
        let mut frame = self.frame.take().or_else(|| pool.take())?;
        let len = frame.len();
        let new_len = len + piece.len();
        if new_len > frame.capacity() {
            return None;
        }
        frame.set_len(new_len);
        piece.copy_to(&mut frame[len..]);
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_joined_to_packets() {
        let (pool, mut assembly) = (Pool::for_tests(1, 12), Assembly::default());
        let mut add = |piece: &[u8], more| assembly.add(Some(piece), more, &pool).unwrap();
        assert_eq!(&add(b"single", false).unwrap()[..], b"single");
        assert!(add(b"first", true).is_none());
        assert!(add(b"second", true).is_none());
        assert_eq!(&add(b"3", false).unwrap()[..], b"firstsecond3");
        assert_eq!(&add(b"next", false).unwrap()[..], b"next");
        assert_eq!(pool.available(), 1);
    }

    #[test]
    fn a_packet_with_an_invalid_piece_is_skipped_whole() {
        let (pool, mut assembly) = (Pool::for_tests(2, 12), Assembly::default());
        let mut add = |piece: Option<&[u8]>, more| assembly.add(piece, more, &pool).map(drop);
        // The invalid piece is the first one, a middle one, the last one, and the only one.
        for bad in 0..3 {
            for nth in 0..3 {
                let piece = (nth != bad).then_some(&b"abc"[..]);
                assert_eq!(add(piece, nth < 2), if nth < 2 { Ok(()) } else { Err(()) });
            }
        }
        assert_eq!(add(None, false), Err(()));
        assert_eq!(pool.available(), 2, "no frame is lost");
        let packet = assembly
            .add(Some(&b"good"[..]), false, &pool)
            .unwrap()
            .unwrap();
        assert_eq!(&packet[..], b"good");
    }

    #[test]
    fn a_packet_without_room_is_skipped_whole() {
        let (pool, mut assembly) = (Pool::for_tests(1, 12), Assembly::default());
        assert!(assembly.add(Some(&[0; 12][..]), true, &pool).is_ok());
        assert!(assembly.add(Some(&[0; 1][..]), true, &pool).is_ok());
        assert!(assembly.add(Some(&[0; 1][..]), false, &pool).is_err());
        let held = pool.take().unwrap();
        assert!(assembly.add(Some(&b"x"[..]), true, &pool).is_ok());
        drop(held);
        // The pool has a frame again, but the packet's start is missing.
        assert!(assembly.add(Some(&b"y"[..]), false, &pool).is_err());
        let packet = assembly
            .add(Some(&b"z"[..]), false, &pool)
            .unwrap()
            .unwrap();
        assert_eq!(&packet[..], b"z");
    }
}
