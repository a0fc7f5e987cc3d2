//! The send stream: the list of data written but not yet acknowledged, in the order of sequence
//! numbers.

use std::collections::VecDeque;

use crate::pools::NONE;
use crate::pools::{Lendable, LendingPool, Owner, Peers, Pool};
use crate::wire::Seq;

/// Maximum number of entries in a connection's send stream: its unacknowledged writes.
///
/// With 66 entries, a multipart response can have 32 parts: two entries for each part, plus one for
/// the head and one for the end.
pub const STREAM_ENTRIES: usize = OWN_ENTRIES + LIST_ENTRIES;
/// Number of entries stored inside every TCB.
const OWN_ENTRIES: usize = 2;
/// Capacity of the list that a connection borrows when both entries in its TCB are in use.
const LIST_ENTRIES: usize = 64;

/// The source of a stream entry's bytes: the index of a content item or write buffer, with flag
/// bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Source(u32);

impl Source {
    const BUFFER: u32 = 1 << 31;
    /// Flag of an entry that ends before the end of its content item.
    const SHORT: u32 = 1 << 30;

    /// Makes the source of a slice of a content item. `is_short` is set if the slice ends before
    /// the content item does.
    #[inline(always)]
    pub(crate) const fn content(index: u32, is_short: bool) -> Self {
        Self(if is_short { index | Self::SHORT } else { index })
    }

    pub(crate) const fn write_buffer(index: u32) -> Self {
        Self(index | Self::BUFFER)
    }

    /// Returns the index of the write buffer, or `None` if the source is a content item.
    #[inline(always)]
    pub(crate) const fn buffer(self) -> Option<u32> {
        if self.0 & Self::BUFFER == 0 {
            None
        } else {
            Some(self.0 & !Self::BUFFER)
        }
    }

    /// Returns the index of the content item. The source must not be a write buffer.
    #[inline(always)]
    pub(crate) const fn content_index(self) -> u32 {
        self.0 & !Self::SHORT
    }

    /// Returns true if the entry ends at the end of its content item.
    #[inline(always)]
    pub(crate) const fn ends_content(self) -> bool {
        self.0 & (Self::BUFFER | Self::SHORT) == 0
    }
}

const _: () = assert!(crate::content::MAX_CONTENTS <= 1 << 30);

/// A range of bytes in a content item or write buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Slice {
    pub(crate) source: Source,
    /// Offset of the range in the source, in bytes.
    pub(crate) from: u32,
    /// Length of the range in bytes. It is 0 only in the plan of a segment without data.
    pub(crate) len: u32,
    /// Parameters of the response, for [`Application::render`](crate::Application::render).
    pub(crate) params: Params,
}

/// A response's 64-bit parameters, as the upper and the lower half. A `u64` would cause padding in
/// [`Entry`].
type Params = [u32; 2];

/// One entry of the send stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// Sequence number after the entry's last byte.
    end: Seq,
    /// Offset after the entry's last byte in `source`.
    source_end: u32,
    source: Source,
    params: Params,
}

impl Entry {
    /// Placeholder for an unused entry.
    const NONE: Self = Self {
        end: Seq(0),
        source_end: 0,
        source: Source(0),
        params: [0; 2],
    };

    /// Returns the slice from `seq` to the end of the entry. The entry must contain `seq`.
    #[inline(always)]
    fn slice_from(&self, seq: Seq) -> Slice {
        let len = self.end.since(seq);
        Slice {
            source: self.source,
            from: self.source_end - len,
            len,
            params: self.params,
        }
    }
}

/// The pool of entry lists, for connections that need more than [`OWN_ENTRIES`] entries.
pub(crate) type Lists = LendingPool<VecDeque<Entry>>;

impl Lendable for VecDeque<Entry> {
    fn clear(&mut self) {
        self.clear();
    }
}

/// A connection's send stream.
///
/// The first two entries are stored inside the TCB, so that a short response needs no list. All
/// later entries are in a borrowed list.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    own: [Entry; OWN_ENTRIES],
    /// Sequence number of the first entry's first byte.
    start: Seq,
    /// Sequence number after the last entry's last byte.
    end: Seq,
    /// Index of the borrowed list, or [`NONE`].
    list: u32,
}

impl Stream {
    /// Makes an empty stream that starts at `start`.
    pub(crate) const fn new(start: Seq) -> Self {
        Self {
            own: [Entry::NONE; OWN_ENTRIES],
            start,
            end: start,
            list: NONE,
        }
    }

    /// Returns the sequence number after the last written byte, which is also that of our FIN.
    #[inline(always)]
    pub(crate) fn end(&self) -> Seq {
        self.end
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Returns how many more entries the stream can hold if they have `len` bytes in all. If
    /// `has_list` is set, the result assumes that the connection can borrow a list.
    pub(crate) fn room(&self, len: u32, lists: &Lists, has_list: bool) -> usize {
        if !self.has_span(len) {
            return 0;
        }
        let used = self.entries(lists).count();
        if self.list != NONE || has_list || lists.has_free() {
            STREAM_ENTRIES - used
        } else {
            OWN_ENTRIES - used
        }
    }

    /// Returns true if the stream would still span less than 4 GiB after a write of `len` bytes.
    #[inline(always)]
    fn has_span(&self, len: u32) -> bool {
        // One sequence number is reserved for the FIN.
        self.end
            .since(self.start)
            .checked_add(len)
            .is_some_and(|span| span < u32::MAX)
    }

    /// Returns true if another entry fits in the TCB.
    #[inline(always)]
    fn has_own_place(&self) -> bool {
        self.is_empty() || self.own[0].end == self.end
    }

    /// Appends an entry. If both entries in the TCB are used, borrows a list for `owner`, and
    /// appends the entry there.
    ///
    /// # Errors
    ///
    /// Fails if the stream is full or would span 4 GiB, or if the stream needs a list and none is
    /// free. Only in the last case, the error contains a pool, [`Pool::EntryLists`]. After an
    /// error, the stream is unchanged.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        slice: Slice,
        lists: &mut Lists,
        owner: Owner,
        peers: &mut Peers,
    ) -> Result<(), Option<Pool>> {
        if !self.has_span(slice.len) {
            return Err(None);
        }
        let end = self.end + slice.len;
        let entry = Entry {
            end,
            source_end: slice.from + slice.len,
            source: slice.source,
            params: slice.params,
        };
        if self.is_empty() {
            self.own[0] = entry;
        } else if self.has_own_place() {
            self.own[1] = entry;
        } else {
            if self.list == NONE {
                self.list = lists.take(owner, peers).ok_or(Some(Pool::EntryLists))?;
            }
            push_to(&mut lists[self.list], entry)?;
        }
        self.end = end;
        Ok(())
    }

    /// Returns the last entry, or `None` if the stream is empty.
    fn last<'a>(&'a mut self, lists: &'a mut Lists) -> Option<&'a mut Entry> {
        if self.is_empty() {
            None
        } else if self.own[0].end == self.end {
            Some(&mut self.own[0])
        } else if self.list == NONE {
            Some(&mut self.own[1])
        } else {
            lists[self.list].back_mut()
        }
    }

    /// Extends the last entry by `len` bytes if its source is a write buffer that `fits` accepts.
    /// Returns the buffer's index, or `None` if the entry was not extended.
    pub(crate) fn extend(
        &mut self,
        len: u32,
        lists: &mut Lists,
        fits: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let buffer = self.last(lists)?.source.buffer()?;
        let has_room = self.has_span(len) && fits(buffer);
        has_room.then(|| {
            self.lengthen(len, lists);
            buffer
        })
    }

    /// Extends the last entry by `len` bytes.
    fn lengthen(&mut self, len: u32, lists: &mut Lists) {
        let end = self.end + len;
        if let Some(last) = self.last(lists) {
            last.end = end;
            last.source_end += len;
        }
        self.end = end;
    }

    /// Merges a slice into the last entry if the slice has the same content item and parameters,
    /// and continues where that entry ends. Returns true if the slice was merged.
    pub(crate) fn merge(&mut self, slice: Slice, lists: &mut Lists) -> bool {
        let has_span = self.has_span(slice.len);
        let Some(last) = self.last(lists) else {
            return false;
        };
        let extends_last = has_span
            && last.source == Source::content(slice.source.content_index(), true)
            && last.source_end == slice.from
            && last.params == slice.params;
        if extends_last {
            last.source = slice.source;
            self.lengthen(slice.len, lists);
        }
        extends_last
    }

    /// Returns the number of write buffers in the stream.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn write_buffers(&self, lists: &Lists) -> usize {
        let entries = self.entries(lists);
        entries.filter_map(|entry| entry.source.buffer()).count()
    }

    /// Returns the stream's entries, oldest first.
    fn entries<'a>(&'a self, lists: &'a Lists) -> impl Iterator<Item = &'a Entry> {
        let own = if self.is_empty() {
            0
        } else if self.own[0].end == self.end {
            1
        } else {
            OWN_ENTRIES
        };
        let list = (self.list != NONE).then(|| lists[self.list].iter());
        self.own[..own].iter().chain(list.into_iter().flatten())
    }

    /// Returns the slice from `seq` to the end of its entry, or `None` if `seq` is at or after the
    /// stream's end. `seq` must not be before the first entry.
    #[inline(always)]
    pub(crate) fn locate(&self, seq: Seq, lists: &Lists) -> Option<Slice> {
        let at = seq.since(self.start);
        if at >= self.end.since(self.start) {
            return None;
        }
        let is_in = |entry: &Entry| at < entry.end.since(self.start);
        let [first, second] = &self.own;
        Some(if is_in(first) {
            first.slice_from(seq)
        } else if self.list == NONE || is_in(second) {
            second.slice_from(seq)
        } else {
            locate_in(&lists[self.list], self.start, seq)
        })
    }

    /// Returns the sequence number at which the entry that contains `seq` starts. `seq` must not be
    /// before the first entry.
    pub(crate) fn entry_start(&self, seq: Seq, lists: &Lists) -> Seq {
        let at = seq.since(self.start);
        let ends = self.entries(lists).map(|entry| entry.end);
        let before = ends.take_while(|end| end.since(self.start) <= at);
        before.last().unwrap_or(self.start)
    }

    /// Removes the first entry if it ends at or before `una`, that is, if it is acknowledged.
    /// Returns the source of the removed entry, or `None` if no entry was removed.
    #[inline(always)]
    pub(crate) fn retire(
        &mut self,
        una: Seq,
        lists: &mut Lists,
        peers: &mut Peers,
    ) -> Option<Source> {
        let first = self.own[0].end.since(self.start);
        if self.is_empty() || una.since(self.start) < first {
            return None;
        }
        Some(self.drop_first(lists, peers))
    }

    #[inline(always)]
    fn drop_first(&mut self, lists: &mut Lists, peers: &mut Peers) -> Source {
        let [first, second] = self.own;
        self.start = first.end;
        self.own[0] = second;
        if self.list != NONE {
            self.own[1] = self.take_from_list(lists, peers);
        }
        first.source
    }

    /// Removes and returns the oldest entry of the borrowed list. Gives the list back to the pool
    /// when it is empty.
    #[cold]
    fn take_from_list(&mut self, lists: &mut Lists, peers: &mut Peers) -> Entry {
        let list = &mut lists[self.list];
        let entry = list.pop_front().unwrap_or(Entry::NONE);
        if list.is_empty() {
            lists.release(std::mem::replace(&mut self.list, NONE), peers);
        }
        entry
    }
}

/// Appends an entry to a list. The list is allocated at its full capacity with the first entry.
#[cold]
fn push_to(list: &mut VecDeque<Entry>, entry: Entry) -> Result<(), Option<Pool>> {
    if list.len() == LIST_ENTRIES {
        return Err(None);
    }
    list.reserve_exact(LIST_ENTRIES - list.len());
    list.push_back(entry);
    Ok(())
}

/// Returns the slice from `seq` to the end of its entry in a list of consecutive entries. One of
/// them must contain `seq`. `start` is the start of the stream.
#[cold]
fn locate_in(list: &VecDeque<Entry>, start: Seq, seq: Seq) -> Slice {
    let at = seq.since(start);
    let index = list.partition_point(|entry| entry.end.since(start) <= at);
    list[index].slice_from(seq)
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
