//! The operations that an application can perform on one connection.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use nmio::Instant;

use super::{Alarm, BEYOND_MS, Connection, ConnectionId, Deadline, Housekeeping, Timer};
use crate::config::millis;
use crate::connection::{Flags, Info};
use crate::content::{ContentError, ContentId, Contents};
use crate::pools::{Owner, Pool};
use crate::stream::{STREAM_ENTRIES, Slice, Source, Stream};
use crate::wire::Seq;
use crate::writes::MAX_WRITE_LEN;

/// A part of what [`Connection::write_parts`] writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A range of the caller's bytes.
    Own(Range<u32>),
    /// A range of the bytes of a content item.
    Of(ContentId, Range<u32>),
}

impl Part {
    fn range(&self) -> &Range<u32> {
        match self {
            Self::Own(range) | Self::Of(_, range) => range,
        }
    }
}

/// Why a write failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The stream has too few free entries ([`room`](Connection::room)), or would hold 4 GiB.
    /// [`write_bytes`](Connection::write_bytes) also fails if no write buffer is free
    /// ([`Config::max_write_buffers`](crate::Config::max_write_buffers)), regardless of `room`.
    /// Leave the request unconsumed: the stack offers it again when there is room.
    #[error("the connection's stream is full; write again after on_sent")]
    Full,
    /// The application has already closed or aborted the connection.
    #[error("the connection's sending side was closed before")]
    Closed,
    /// The content item has been removed.
    #[error("the content has been removed; look it up again")]
    NoSuchContent,
    /// The range is not within the content item, or ends before it begins.
    #[error("bytes {from} to {end} are not within the content's {len} bytes")]
    OutsideContent {
        /// Start of the requested range, in bytes.
        from: u32,
        /// End of the requested range in bytes, exclusive.
        end: u32,
        /// Length of the content item in bytes.
        len: u32,
    },
    /// The requested number of entries is larger than [`STREAM_ENTRIES`].
    #[error(
        "{entries} entries are more than the {STREAM_ENTRIES} of a stream; write fewer at once"
    )]
    TooManyEntries {
        /// Number of entries requested.
        entries: usize,
    },
    /// The bytes could not be added as a content item.
    #[error(transparent)]
    NoContent(#[from] ContentError),
    /// The bytes are more than one write accepts: the limit is [`MAX_WRITE_LEN`].
    #[error(
        "{len} bytes are more than the {} of one write; write less, or add them as a content",
        MAX_WRITE_LEN
    )]
    TooLong {
        /// Length of the rejected write in bytes.
        len: usize,
    },
}

impl<S> Connection<'_, S> {
    /// Returns the client's address and port.
    pub fn peer(&self) -> SocketAddr {
        SocketAddr::new(self.tcb.path.addresses.dst(), self.tcb.ports().1)
    }

    /// Returns our own address and port, to which the client has connected.
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(self.tcb.path.addresses.src(), self.tcb.ports().0)
    }

    /// Returns the connection's id, by which [`Connections::get`](crate::Connections::get) finds it
    /// later.
    pub fn id(&self) -> ConnectionId {
        ConnectionId {
            index: self.id,
            serial: self.housekeeping.serial,
        }
    }

    /// Returns the time of the current callback.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the application's state for this connection.
    #[inline(always)]
    pub fn state(&mut self) -> &mut S {
        self.state
    }

    /// Returns the stack's content items, which all its connections share.
    #[inline(always)]
    pub fn contents(&self) -> &Contents {
        &self.sources.contents
    }

    /// Returns the contents mutably, so that the application can add or remove content items. Data
    /// already written to a stream stays unchanged.
    #[inline(always)]
    pub fn contents_mut(&mut self) -> &mut Contents {
        &mut self.sources.contents
    }

    /// Requests another call of [`on_receive`](crate::Application::on_receive) with the unconsumed
    /// data when the current callback has returned. An application that cannot answer yet leaves
    /// the client's request unconsumed, and calls this method when it can answer.
    ///
    /// If `on_receive` itself calls this method, it must also consume some bytes. Otherwise the
    /// call has no effect, so that `on_receive` is not called forever.
    pub fn offer_again(&mut self) {
        self.housekeeping.offers_again = true;
    }

    /// Makes the connection wait until an answer is available. Until [`resume`](Self::resume) is
    /// called, the application is not offered data from this connection, nor told of the peer's
    /// FIN. Everything else continues, and the application may still write.
    ///
    /// A connection that is never resumed ends like any other: by a reset from the client, by
    /// [`Config::idle_timeout`](crate::Config::idle_timeout), by a deadline, or by eviction.
    pub fn park(&mut self) {
        self.housekeeping.is_parked = true;
    }

    /// Ends the effect of [`park`](Self::park). Unconsumed data is offered when the current
    /// callback has returned.
    pub fn resume(&mut self) {
        self.housekeeping.is_parked = false;
        self.offer_again();
    }

    /// Returns true if no message is in progress: the application has consumed everything that has
    /// arrived, and waits for no room. The connection is not [parked](Self::park), and has no
    /// [deadline](Self::set_deadline). Written data may still be unacknowledged.
    pub fn is_between_messages(&self) -> bool {
        let waits = self.tcb.flags.intersects(Flags::WANTS_ROOM) || self.housekeeping.is_parked;
        !waits && self.housekeeping.alarm == Alarm::Off && !self.tcb.has_unread()
    }

    /// Returns true if [no message is in progress](Self::is_between_messages), and the peer has
    /// acknowledged all written data.
    pub fn is_idle(&self) -> bool {
        self.is_between_messages() && !self.has_unacknowledged()
    }

    /// Returns true if the peer has not acknowledged all written data.
    pub fn has_unacknowledged(&self) -> bool {
        !self.tcb.stream.is_empty()
    }

    /// Returns statistics of the connection: round-trip times, windows and losses.
    pub fn info(&self) -> Info {
        self.send_info.info(self.tcb)
    }

    /// Returns the number of free stream entries, 0 to [`STREAM_ENTRIES`]. Each write occupies an
    /// entry until the peer has acknowledged the data, unless the write can extend the last entry.
    /// An empty write occupies no entry. More than two entries need a list from a bounded pool
    /// ([`Config::max_entry_lists`](crate::Config::max_entry_lists)). Returns 0 after
    /// [`close`](Self::close) or [`abort`](Self::abort).
    pub fn room(&self) -> usize {
        if self.ensure_open().is_err() {
            return 0;
        }
        self.tcb.stream.room(0, self.lists, false)
    }

    /// Requests a call of [`on_sent`](crate::Application::on_sent) as soon as the peer has acknowledged
    /// the oldest write, and not only when it has acknowledged all of them. There must be unacknowledged
    /// data.
    pub fn notify_of_room(&mut self) {
        self.tcb.flags |= Flags::WANTS_ROOM;
    }

    /// Checks that the stream has room for `entries` more entries, so that a response is written
    /// either completely or not at all. Until the callback returns, only writes use up this room.
    /// [`write_bytes`](Self::write_bytes) also needs a write buffer, which this method does not
    /// reserve. So call `write_bytes` before any other write of the response.
    ///
    /// # Errors
    ///
    /// Returns [`WriteError::Full`] if there is no room now, [`WriteError::TooManyEntries`] if
    /// there will never be enough room, and [`WriteError::Closed`] if our side is closed.
    pub fn ensure_room(&mut self, entries: usize) -> Result<(), WriteError> {
        self.ensure_room_for(entries, 0)
    }

    /// Same as [`ensure_room`](Self::ensure_room) for entries with `len` bytes in all.
    fn ensure_room_for(&mut self, entries: usize, len: u32) -> Result<(), WriteError> {
        self.ensure_open()?;
        if entries > STREAM_ENTRIES {
            return Err(WriteError::TooManyEntries { entries });
        }
        let stream = &self.tcb.stream;
        if stream.room(len, self.lists, false) >= entries {
            return Ok(());
        }
        let no_list = stream.room(len, self.lists, true) >= entries;
        Err(self.is_full(no_list.then_some(Pool::EntryLists)))
    }

    /// Writes a content item to the stream: the paper's `tcp_write()`. If the content item has a
    /// slot, `params` are passed to [`Application::render`](crate::Application::render). Without a
    /// slot, `params` are ignored.
    ///
    /// # Errors
    ///
    /// Returns [`WriteError::Full`], [`WriteError::Closed`] or [`WriteError::NoSuchContent`]. After
    /// an error, nothing is written.
    #[inline(always)]
    pub fn write(&mut self, content: ContentId, params: u64) -> Result<(), WriteError> {
        let (index, len) = self.find(content)?;
        if len == 0 {
            return Ok(());
        }
        self.push_content(slice_of((index, len), 0..len, params))
    }

    /// Writes only the bytes of a content item that lie in `range`. Otherwise works like
    /// [`write`](Self::write).
    ///
    /// The slice is sent in prepared segments, but its first and last segment may have to be
    /// assembled. If the slice continues the slice that was written last, with the same content
    /// item and parameters, the two slices share one stream entry.
    ///
    /// # Errors
    ///
    /// Returns [`WriteError::OutsideContent`], or an error of [`write`](Self::write). A call that
    /// fails writes nothing.
    pub fn write_slice(
        &mut self,
        content: ContentId,
        range: Range<u32>,
        params: u64,
    ) -> Result<(), WriteError> {
        let (index, len) = self.find(content)?;
        ensure_within(&range, len)?;
        if range.is_empty() {
            return Ok(());
        }
        let slice = slice_of((index, len), range, params);
        if self.tcb.stream.merge(slice, self.lists) {
            return Ok(());
        }
        self.push_content(slice)
    }

    /// Writes up to [`MAX_WRITE_LEN`] bytes that do not belong to a content item. The bytes are
    /// copied to a buffer from a bounded pool, and their checksum is computed when they are sent.
    ///
    /// # Errors
    ///
    /// Returns [`WriteError::Full`], [`WriteError::Closed`] or [`WriteError::TooLong`]. A call
    /// that fails writes nothing.
    pub fn write_bytes(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.ensure_open()?;
        if bytes.len() > MAX_WRITE_LEN {
            return Err(WriteError::TooLong { len: bytes.len() });
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let len = bytes.len() as u32;
        let writes = &self.sources.writes;
        let fits = |buffer| writes[buffer].len() + bytes.len() <= MAX_WRITE_LEN;
        if let Some(buffer) = self.tcb.stream.extend(len, self.lists, fits) {
            self.sources.writes[buffer].extend_from_slice(bytes);
            return Ok(());
        }
        self.write_with(|buffer| buffer.extend_from_slice(bytes))
    }

    /// Writes the bytes that `fill` appends to an empty buffer, up to [`MAX_WRITE_LEN`]. The bytes are
    /// made where they are sent from, so this is cheaper than [`write_bytes`](Self::write_bytes). It
    /// needs an entry of the stream.
    ///
    /// # Errors
    ///
    /// Returns [`WriteError::Full`], [`WriteError::Closed`] or [`WriteError::TooLong`]. A call
    /// that fails writes nothing. `fill` is called only if there is room.
    #[inline]
    pub fn write_with(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), WriteError> {
        self.ensure_room(1)?;
        let owner = self.owner();
        let Some(buffer) = self.sources.writes.take(owner, self.peers) else {
            return Err(self.is_full(Some(Pool::WriteBuffers)));
        };
        fill(&mut self.sources.writes[buffer]);
        let written = match self.sources.writes[buffer].len() {
            0 => Ok(()),
            len if len > MAX_WRITE_LEN => Err(WriteError::TooLong { len }),
            len => {
                let pushed = self.push(slice_of_buffer(buffer, len as u32));
                return pushed.inspect_err(|_| {
                    self.sources.writes.release(buffer, self.peers);
                });
            }
        };
        self.sources.writes.release(buffer, self.peers);
        written
    }

    /// Takes back what is written and not acknowledged, except its first `len` bytes, of which the
    /// connection keeps a copy. So it uses no content item any more, while the peer's window is closed.
    /// Returns the number of bytes that were taken back, which are the last ones that were written.
    ///
    /// Returns `None`, and changes nothing, if more than `len` bytes are in flight, our side is closed, or
    /// no write buffer is free. The same holds if the copy would contain a slot.
    pub fn take_back(&mut self, len: usize) -> Option<u32> {
        let (info, end) = (self.info(), self.tcb.stream.end());
        let written = info.unacked + info.unsent;
        // As long as our side is open, this is SND.UNA.
        let start = end - written;
        let kept = written.min(len.min(MAX_WRITE_LEN) as u32);
        if self.ensure_open().is_err() || kept == 0 || info.unacked > kept {
            return None;
        }
        let owner = self.owner();
        let buffer = self.sources.writes.take(owner, self.peers)?;
        let mut copy = std::mem::take(&mut self.sources.writes[buffer]);
        let is_copied = self.copy_stream(start, kept, &mut copy);
        self.sources.writes[buffer] = copy;
        if is_copied.is_none() {
            self.sources.writes.release(buffer, self.peers);
            return None;
        }
        while let Some(source) = self.tcb.stream.retire(end, self.lists, self.peers) {
            self.sources.release(source, self.peers);
        }
        self.tcb.stream = Stream::new(start);
        // Cannot fail: the stream is empty.
        self.push(slice_of_buffer(buffer, kept)).ok()?;
        Some(written - kept)
    }

    /// Appends the `len` bytes of the stream from `seq` on to `copy`. Returns `None` if they are in an
    /// entry with a slot.
    fn copy_stream(&self, mut seq: Seq, len: u32, copy: &mut Vec<u8>) -> Option<()> {
        let mut left = len;
        while left > 0 {
            let slice = self.tcb.stream.locate(seq, self.lists)?;
            let part = slice.len.min(left);
            let range = slice.from as usize..(slice.from + part) as usize;
            match slice.source.buffer() {
                Some(buffer) => copy.extend_from_slice(&self.sources.writes[buffer][range]),
                None => match self.sources.contents.get(slice.source.content_index()) {
                    (bytes, None) => copy.extend_from_slice(&bytes[range]),
                    (_, Some(_)) => return None,
                },
            }
            (seq, left) = (seq + part, left - part);
        }
        Some(())
    }

    /// Writes `bytes` as a temporary content item, whose memory is freed when the peer has
    /// acknowledged all of `bytes`. Use this method for bytes in an [`Arc`], and for more bytes
    /// than [`write_bytes`](Self::write_bytes) accepts.
    ///
    /// # Errors
    ///
    /// Returns [`WriteError::NoContent`], or an error of [`write`](Self::write). A call that
    /// fails writes nothing.
    pub fn write_once(&mut self, bytes: Arc<[u8]>) -> Result<(), WriteError> {
        let all = Part::Own(0..u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.write_parts(bytes, &[all], 0)
    }

    /// Writes several parts, either all of them or none. Each part is a slice of `own`, which becomes
    /// a temporary content item, or of another content item, to which `params` apply as in
    /// [`write`](Self::write). So a response can consist of prepared slices with text between them.
    /// Each part needs an entry of the stream, even if it is empty.
    ///
    /// # Errors
    ///
    /// Returns [`WriteError::OutsideContent`], [`WriteError::NoContent`],
    /// [`WriteError::TooManyEntries`], or an error of [`write`](Self::write). A call that fails
    /// writes nothing.
    pub fn write_parts(
        &mut self,
        own: Arc<[u8]>,
        parts: &[Part],
        params: u64,
    ) -> Result<(), WriteError> {
        self.ensure_open()?;
        let mut total = 0_u32;
        for part in parts {
            let len = match part {
                Part::Own(_) => u32::try_from(own.len()).unwrap_or(u32::MAX),
                Part::Of(content, _) => self.find(*content)?.1,
            };
            ensure_within(part.range(), len)?;
            total = total.saturating_add(part.range().end - part.range().start);
        }
        self.ensure_room_for(parts.len(), total)?;
        let own = self.sources.contents.add_temporary(own)?;
        let written = parts
            .iter()
            .filter(|part| !part.range().is_empty())
            .try_for_each(|part| self.write_part(own, part, params));
        self.sources.contents.remove(own);
        written
    }

    fn write_part(&mut self, own: ContentId, part: &Part, params: u64) -> Result<(), WriteError> {
        let content = self.find(match part {
            Part::Own(_) => own,
            Part::Of(content, _) => *content,
        })?;
        self.push_content(slice_of(content, part.range().clone(), params))
    }

    /// Fails if our side is closed.
    #[inline(always)]
    fn ensure_open(&self) -> Result<(), WriteError> {
        if self.tcb.flags.intersects(Flags::CLOSE | Flags::ABORT) {
            return Err(WriteError::Closed);
        }
        Ok(())
    }

    /// Returns the index and length of a content item. Fails if the item was removed or our side is
    /// closed.
    #[inline(always)]
    fn find(&self, content: ContentId) -> Result<(u32, u32), WriteError> {
        self.ensure_open()?;
        let found = self.sources.contents.lookup(content);
        found.ok_or(WriteError::NoSuchContent)
    }

    /// Appends an entry to the stream.
    #[inline(always)]
    fn push(&mut self, slice: Slice) -> Result<(), WriteError> {
        let owner = self.owner();
        let stream = &mut self.tcb.stream;
        let pushed = stream.push(slice, self.lists, owner, self.peers);
        pushed.map_err(|pool| self.is_full(pool))
    }

    /// Appends an entry with bytes of a content item.
    #[inline(always)]
    fn push_content(&mut self, slice: Slice) -> Result<(), WriteError> {
        self.push(slice)?;
        self.sources.contents.acquire(slice.source.content_index());
        Ok(())
    }

    #[inline(always)]
    fn owner(&self) -> Owner {
        let peer = self.housekeeping.peer;
        Owner { id: self.id, peer }
    }

    /// Records that a write found no room, and the `pool` that had no free slot, if any. Returns
    /// the error.
    #[cold]
    fn is_full(&mut self, pool: Option<Pool>) -> WriteError {
        self.tcb.flags |= Flags::WANTS_ROOM;
        self.requests.exhausted_pool = pool;
        WriteError::Full
    }

    /// Sets the connection's only deadline, which replaces an earlier one. When the time `after`
    /// has passed (at most [`Config::MAX_TIME`](crate::Config::MAX_TIME)), the stack calls
    /// [`Application::on_deadline`](crate::Application::on_deadline). The stack does not call it if
    /// the deadline is cleared, or our side is closed, before that time.
    pub fn set_deadline(&mut self, deadline: Deadline, after: Duration) {
        if self.tcb.flags.intersects(Flags::CLOSE | Flags::ABORT) {
            return;
        }
        let until = self.tcb.deadline;
        self.housekeeping.set_alarm(millis(after), deadline, until);
    }

    /// Returns the purpose of the current deadline, or `None` if there is no deadline.
    pub fn deadline(&self) -> Option<Deadline> {
        (self.housekeeping.alarm != Alarm::Off).then_some(self.housekeeping.alarm_purpose)
    }

    /// Clears the deadline.
    #[inline(always)]
    pub fn clear_deadline(&mut self) {
        self.housekeeping.alarm = Alarm::Off;
    }

    /// Starts one of the application's timers: see
    /// [`Connections::set_timer`](crate::Connections::set_timer). The timer belongs to the
    /// application, so it continues to run when this connection ends.
    pub fn set_timer(&mut self, timer: Timer, after: Duration) {
        self.requests.timers.set(timer.number(), self.now + after);
    }

    /// Closes our side after all written data: the paper's `tcp_close()`. The peer may continue to
    /// send until it closes its side too. The stack acknowledges and discards such data.
    #[inline(always)]
    pub fn close(&mut self) {
        self.tcb.flags |= Flags::CLOSE;
        self.tcb.flags -= Flags::WANTS_ROOM;
        self.housekeeping.alarm = Alarm::Off;
    }

    /// Ends the connection with a reset when the current callback returns. Unacknowledged data may
    /// be lost.
    #[cold]
    pub fn abort(&mut self) {
        self.tcb.flags |= Flags::ABORT;
    }
}

impl Housekeeping {
    /// Sets the application's deadline, `after` milliseconds from now. Moves `scheduled` beyond the
    /// TCB's `deadline`, so that the stack reschedules the timer wheel's entry after the callback.
    fn set_alarm(&mut self, after: u32, alarm_purpose: Deadline, deadline: u32) {
        self.alarm = Alarm::New(after);
        self.alarm_purpose = alarm_purpose;
        self.scheduled = deadline.wrapping_add(BEYOND_MS);
    }
}

impl<S> fmt::Debug for Connection<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer())
            .field("local", &self.local())
            .field("room", &self.room())
            .finish_non_exhaustive()
    }
}

/// Fails if a range is not within the `len` bytes of a content item, or ends before it begins.
#[inline(always)]
fn ensure_within(range: &Range<u32>, len: u32) -> Result<(), WriteError> {
    let Range { start: from, end } = *range;
    if from > end || end > len {
        return Err(WriteError::OutsideContent { from, end, len });
    }
    Ok(())
}

/// Returns a range of the content item with this index and length.
#[inline(always)]
fn slice_of((index, len): (u32, u32), range: Range<u32>, params: u64) -> Slice {
    Slice {
        source: Source::content(index, range.end < len),
        from: range.start,
        len: range.end - range.start,
        params: [(params >> 32) as u32, params as u32],
    }
}

/// Returns the `len` bytes of a write buffer.
#[inline(always)]
fn slice_of_buffer(buffer: u32, len: u32) -> Slice {
    Slice {
        source: Source::write_buffer(buffer),
        from: 0,
        len,
        params: [0; 2],
    }
}
