//! Requests that are under way between two arrivals of bytes: a body that is not
//! whole, an answer that comes later, an answer that finds no room.

use std::ops::Range;

use tcpip::ContentId;

use crate::body::BodyReader;
use crate::date::Stamp;

/// The most requests that are under way in one worker.
pub const MAX_PENDING: usize = 65_535;
/// The most bytes of memory for the requests that are under way in one worker: their
/// heads, and bodies that are collected.
pub const MAX_PENDING_BYTES: usize = 64 << 20;
/// The memory that a place keeps for the next request.
const KEPT_BYTES: usize = 2_048;

/// Names a place in [`Pending`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place(u16);

impl Place {
    /// No place.
    pub(crate) const NONE: Self = Self(u16::MAX);
}

impl Default for Place {
    fn default() -> Self {
        Self::NONE
    }
}

const _: () = assert!(MAX_PENDING <= u16::MAX as usize);

/// What a request under way waits for.
#[derive(Debug)]
pub(crate) enum Phase {
    /// For its body.
    Body(Body),
    /// For the application's answer. The request has this serial number.
    Answer {
        serial: u64,
        /// The body is not read: the connection closes after the answer.
        close: bool,
    },
    /// For room in the connection's stream.
    Room(Outgoing),
}

/// A body that is being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body {
    pub(crate) reader: BodyReader,
    /// How many bytes may still come.
    pub(crate) left: u64,
    /// The application gets it in pieces.
    pub(crate) in_pieces: bool,
    /// The client was not yet told to go on, and may wait for that.
    pub(crate) owes_continue: bool,
}

/// What is to be sent beside the bytes that were made.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) content: Option<(ContentId, Range<u32>)>,
    pub(crate) stamp: Stamp,
}

/// One request under way.
#[derive(Debug)]
struct Entry {
    /// `None` in a place that is free.
    phase: Option<Phase>,
    /// The head and what was collected of the body; or what was made to be sent.
    bytes: Vec<u8>,
}

/// All requests under way.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    entries: Vec<Entry>,
    free: Vec<Place>,
    /// Bytes of memory that the entries have.
    memory: usize,
}

/// There is no place or no memory for another request.
#[derive(Debug)]
pub(crate) struct Exhausted;

impl Pending {
    /// Takes a place for a request that begins with `bytes`.
    pub(crate) fn take(&mut self, phase: Phase, bytes: &[u8]) -> Result<Place, Exhausted> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.entries.len() < MAX_PENDING => {
                let phase = None;
                let bytes = Vec::new();
                self.entries.push(Entry { phase, bytes });
                Place(self.entries.len() as u16 - 1)
            }
            None => return Err(Exhausted),
        };
        if self.append(place, bytes).is_err() {
            self.free.push(place);
            return Err(Exhausted);
        }
        self.entry(place).phase = Some(phase);
        Ok(place)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// What a request waits for; `None` of [`Place::NONE`].
    #[inline]
    pub(crate) fn phase(&mut self, place: Place) -> Option<&mut Phase> {
        let entry = self.entries.get_mut(usize::from(place.0))?;
        entry.phase.as_mut()
    }

    /// Adds to its bytes.
    pub(crate) fn append(&mut self, place: Place, bytes: &[u8]) -> Result<(), Exhausted> {
        let entry = &mut self.entries[usize::from(place.0)];
        let before = entry.bytes.capacity();
        let needed = entry.bytes.len() + bytes.len();
        if needed > before {
            let grown = needed.max(2 * before);
            if self.memory + grown - before > MAX_PENDING_BYTES {
                return Err(Exhausted);
            }
            entry.bytes.reserve_exact(grown - entry.bytes.len());
            self.memory += entry.bytes.capacity() - before;
        }
        entry.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Takes its bytes out, to be given back by [`keep`](Self::keep) or dropped.
    pub(crate) fn take_bytes(&mut self, place: Place) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.entry(place).bytes);
        self.memory -= bytes.capacity();
        bytes
    }

    /// Gives bytes to a place that has none.
    fn put_bytes(&mut self, place: Place, bytes: Vec<u8>) {
        self.memory += bytes.capacity();
        self.entry(place).bytes = bytes;
    }

    /// The request waits for something else now.
    pub(crate) fn set_phase(&mut self, place: Place, phase: Phase) {
        self.entry(place).phase = Some(phase);
    }

    /// The request is over.
    pub(crate) fn release(&mut self, place: Place) {
        let Some(entry) = self.entries.get_mut(usize::from(place.0)) else {
            return;
        };
        if entry.phase.take().is_none() {
            return;
        }
        self.free.push(place);
        self.tidy(place);
    }

    /// Gives the bytes back that were [taken out](Self::take_bytes) for an answer. They
    /// are kept as long as the request waits for another.
    pub(crate) fn keep(&mut self, place: Place, bytes: Vec<u8>) {
        match self.entry(place).phase {
            Some(Phase::Answer { .. }) => self.put_bytes(place, bytes),
            Some(_) => {}
            None => {
                self.put_bytes(place, bytes);
                self.tidy(place);
            }
        }
    }

    /// Sees to the memory of a place that is free.
    fn tidy(&mut self, place: Place) {
        let memory = self.memory;
        let entry = self.entry(place);
        let before = entry.bytes.capacity();
        entry.bytes.clear();
        // What is kept leaves half of the memory to those under way.
        if before > KEPT_BYTES || memory > MAX_PENDING_BYTES / 2 {
            entry.bytes = Vec::new();
        }
        let given = before - entry.bytes.capacity();
        self.memory -= given;
    }

    fn entry(&mut self, place: Place) -> &mut Entry {
        &mut self.entries[usize::from(place.0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Phase {
        Phase::Answer {
            serial: 1,
            close: false,
        }
    }

    #[test]
    fn places_are_used_again() {
        let mut pending = Pending::default();
        let places: Vec<Place> = (0..MAX_PENDING)
            .map(|_| pending.take(answer(), b"").unwrap())
            .collect();
        assert!(pending.take(answer(), b"").is_err());
        assert_eq!(pending.len(), MAX_PENDING);
        assert!(places.iter().all(|place| *place != Place::NONE));
        pending.release(places[3]);
        assert!(pending.phase(places[3]).is_none());
        assert_eq!(pending.take(answer(), b"").unwrap(), places[3]);
        // Twice, or none, is no harm.
        pending.release(places[5]);
        pending.release(places[5]);
        pending.release(Place::NONE);
        assert_eq!(pending.take(answer(), b"").unwrap(), places[5]);
        assert!(pending.take(answer(), b"").is_err());
    }

    #[test]
    fn memory_has_a_bound_and_is_given_back() {
        let mut pending = Pending::default();
        let large = vec![b'x'; MAX_PENDING_BYTES / 4];
        let mut places = Vec::new();
        while let Ok(place) = pending.take(answer(), &large) {
            places.push(place);
        }
        assert_eq!(places.len(), 4);
        assert!(pending.append(places[0], b"x").is_err());
        let small = pending.take(answer(), b"");
        assert!(small.is_ok(), "it takes no memory");
        pending.release(places[0]);
        assert_eq!(pending.memory, 3 * large.len());
        let bytes = pending.take_bytes(places[1]);
        assert_eq!(pending.memory, 2 * large.len());
        pending.keep(places[1], bytes);
        for place in places {
            pending.release(place);
        }
        assert_eq!(pending.memory, 0);
        let place = pending.take(answer(), &[b'x'; KEPT_BYTES]).unwrap();
        pending.release(place);
        assert_eq!(pending.memory, KEPT_BYTES);
    }
}
