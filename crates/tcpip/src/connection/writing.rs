//! The send stream: a short list of what was written, by sequence number.

use super::Tcb;
use crate::stream::{Entry, Place, STREAM_ENTRIES, Source};
use crate::wire::Seq;

impl Tcb {
    /// Entries that the stream has room for.
    #[inline(always)]
    pub(crate) fn room(&self) -> usize {
        STREAM_ENTRIES - usize::from(self.entries)
    }

    /// Whether distances in the stream still fit 32 bits when `len` more
    /// bytes are written.
    #[inline(always)]
    pub(crate) fn spans(&self, len: u32) -> bool {
        let first = if self.entries == 0 {
            self.snd_end
        } else {
            self.stream[0].start
        };
        // One is for the FIN.
        self.snd_end
            .since(first)
            .checked_add(len)
            .is_some_and(|span| span < u32::MAX)
    }

    /// Appends an entry; there is room for it.
    #[inline(always)]
    pub(crate) fn push(&mut self, source: Source, stamp: u32, len: u32) {
        self.stream[usize::from(self.entries)] = Entry {
            start: self.snd_end,
            source,
            stamp,
        };
        self.entries += 1;
        self.snd_end = self.snd_end + len;
    }

    /// The last entry has become longer.
    pub(crate) fn extend(&mut self, len: u32) {
        self.snd_end = self.snd_end + len;
    }

    /// The source of the last entry.
    pub(crate) fn last_source(&self) -> Option<Source> {
        self.entries().last().map(|entry| entry.source)
    }

    /// The stream's entries, oldest first.
    #[inline(always)]
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.stream[..usize::from(self.entries)]
    }

    /// Finds what lies at `seq` of the stream, which must not be before the
    /// first entry; `None` from the stream's end on.
    #[inline(always)]
    pub(crate) fn locate(&self, seq: Seq) -> Option<Place> {
        let entries = self.entries();
        let first = entries.first()?.start;
        let at = seq.since(first);
        let mut start = 0;
        for (index, entry) in entries.iter().enumerate() {
            let next = entries.get(index + 1).map_or(self.snd_end, |e| e.start);
            let end = next.since(first);
            if at < end {
                return Some(Place {
                    source: entry.source,
                    stamp: entry.stamp,
                    offset: at - start,
                    left: end - at,
                });
            }
            start = end;
        }
        None
    }

    /// Takes the first entry out of the stream if all of it is acknowledged.
    #[inline(always)]
    pub(crate) fn retire(&mut self) -> Option<Source> {
        let entries = self.entries();
        let first = entries.first()?;
        let end = entries.get(1).map_or(self.snd_end, |next| next.start);
        if self.snd_una.since(first.start) < end.since(first.start) {
            return None;
        }
        Some(self.drop_first())
    }

    /// Takes the first entry out of the stream, acknowledged or not.
    pub(crate) fn discard(&mut self) -> Option<Source> {
        (self.entries > 0).then(|| self.drop_first())
    }

    #[inline(always)]
    fn drop_first(&mut self) -> Source {
        let source = self.stream[0].source;
        self.stream.copy_within(1.., 0);
        self.entries -= 1;
        source
    }
}
