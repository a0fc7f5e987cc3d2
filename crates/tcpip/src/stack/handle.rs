//! What an application can do with a connection.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use nmio::Instant;

use super::{Alarm, BEYOND_MS, Connection, ConnectionId, Deadline, Standing, Timer};
use crate::config::millis;
use crate::connection::{Flags, Info};
use crate::content::{ContentError, ContentId, Contents};
use crate::pools::{Owner, Pool};
use crate::stream::{STREAM_ENTRIES, Slice, Source};
use crate::writes::MAX_WRITE_LEN;

/// Why nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The stream has no room: [`room`](Connection::room) is 0, or there would be
    /// 4 GiB in it. For [`write_bytes`](Connection::write_bytes) also: no
    /// write buffer is free
    /// ([`Config::max_write_buffers`](crate::Config::max_write_buffers)), whatever
    /// `room` says. Leave the data that asks for it unconsumed: it is offered again
    /// when there is room.
    #[error("the connection's stream is full; write again after on_sent")]
    Full,
    /// The connection was closed or aborted before.
    #[error("the connection's sending side was closed before")]
    Closed,
    /// The content was removed.
    #[error("the content has been removed; look it up again")]
    NoSuchContent,
    /// The slice does not lie in its content, or ends before it begins.
    #[error(
        "bytes {from} to {end} are no range within the content's {len} bytes; write what is there"
    )]
    OutsideContent {
        /// Where the slice begins.
        from: u32,
        /// Behind its last byte.
        end: u32,
        /// Bytes of the content.
        len: u32,
    },
    /// More entries than a stream ever has room for.
    #[error(
        "{entries} entries are more than the {STREAM_ENTRIES} of a stream; write fewer at once"
    )]
    TooManyEntries {
        /// Entries asked for.
        entries: usize,
    },
    /// The bytes cannot be a content.
    #[error(transparent)]
    NoContent(#[from] ContentError),
    /// More bytes than one write takes.
    #[error(
        "{len} bytes are more than the {} of one write; write less, or add them as a content",
        MAX_WRITE_LEN
    )]
    TooLong {
        /// Bytes asked for.
        len: usize,
    },
}

impl<S> Connection<'_, S> {
    /// The client's address and port.
    pub fn peer(&self) -> SocketAddr {
        SocketAddr::new(self.tcb.path.addresses.dst(), self.tcb.ports().1)
    }

    /// The address and port of ours that the client has connected to.
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(self.tcb.path.addresses.src(), self.tcb.ports().0)
    }

    /// Its name, by which [`Connections::get`](crate::Connections::get) finds it later.
    pub fn id(&self) -> ConnectionId {
        ConnectionId {
            index: self.id,
            serial: self.standing.serial,
        }
    }

    /// The time of what the callback is about: of the received segment, the timer or
    /// the message.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// What the application remembers of this connection.
    #[inline(always)]
    pub fn state(&mut self) -> &mut S {
        self.state
    }

    /// All contents.
    #[inline(always)]
    pub fn contents(&self) -> &Contents {
        self.contents
    }

    /// The same, to add and to remove some. What was written before keeps its bytes.
    #[inline(always)]
    pub fn contents_mut(&mut self) -> &mut Contents {
        self.contents
    }

    /// Has [`on_receive`](crate::Application::on_receive) offered what it has not
    /// consumed, once the callback in hand has returned. An application that could
    /// not answer yet leaves the request unconsumed, and calls this when it can.
    ///
    /// Within `on_receive` it asks for the rest at once. That is done only where
    /// something was consumed, so that it comes to an end.
    pub fn offer_again(&mut self) {
        self.standing.offers_again = true;
    }

    /// Lets the connection wait for an answer that is given later: until
    /// [`resume`](Self::resume) the application is offered no more data of it, nor told
    /// of the peer's FIN. All else goes on; what it had in hand it may still write.
    ///
    /// A connection that is never resumed ends as others do: when the client resets it
    /// or is silent for [`Config::idle_timeout`](crate::Config::idle_timeout), by a
    /// deadline, or when it gives way to others.
    pub fn park(&mut self) {
        self.standing.is_parked = true;
    }

    /// Ends what [`park`](Self::park) has begun, and has offered what came meanwhile
    /// once the callback in hand has returned.
    pub fn resume(&mut self) {
        self.standing.is_parked = false;
        self.offer_again();
    }

    /// How the connection goes: round trips, windows, what is lost.
    pub fn info(&self) -> Info {
        self.send_info.info(self.tcb)
    }

    /// Entries that the stream still has room for, 0 to
    /// [`STREAM_ENTRIES`]. Each write takes one until it
    /// has been acknowledged, except where it can join the one before. More than
    /// two need a list of which there are only some
    /// ([`Config::max_entry_lists`](crate::Config::max_entry_lists)). A write of no
    /// bytes takes none. 0 after [`close`](Self::close) and [`abort`](Self::abort).
    pub fn room(&self) -> usize {
        if self.ensure_open().is_err() {
            return 0;
        }
        self.tcb.stream.room(self.lists, false)
    }

    /// Whether the stream has room for so many entries at once: for a response
    /// that is written as a whole or not at all. The room stays as long as the
    /// callback lasts. [`write_bytes`](Self::write_bytes) needs a write buffer too,
    /// which this does not keep free: write such parts first.
    ///
    /// # Errors
    /// [`WriteError::Full`] when it has none yet, [`WriteError::Closed`], and
    /// [`WriteError::TooManyEntries`] when it never will.
    pub fn ensure_room(&mut self, entries: usize) -> Result<(), WriteError> {
        self.ensure_open()?;
        if entries > STREAM_ENTRIES {
            return Err(WriteError::TooManyEntries { entries });
        }
        if self.room() >= entries {
            return Ok(());
        }
        let no_list = self.tcb.stream.room(self.lists, true) >= entries;
        Err(self.is_full(no_list.then_some(Pool::EntryLists)))
    }

    /// Writes a content to the stream, the paper's `tcp_write()`. `params`
    /// go to [`Application::render`](crate::Application::render) if the content has a slot, and mean
    /// nothing otherwise.
    ///
    /// # Errors
    /// [`WriteError::Full`], [`WriteError::Closed`],
    /// [`WriteError::NoSuchContent`]; nothing is written then.
    #[inline(always)]
    pub fn write(&mut self, content: ContentId, params: u64) -> Result<(), WriteError> {
        let (index, len) = self.find(content)?;
        if len == 0 {
            return Ok(());
        }
        let source = Source::content(index, false);
        self.push(Slice {
            source,
            from: 0,
            len,
            params: halves(params),
        })?;
        self.contents.acquire(index);
        Ok(())
    }

    /// Writes a part of a content: the bytes of `range`, counted from its start.
    /// Otherwise as [`write`](Self::write).
    ///
    /// What lies between is sent as prepared segments: only the first segment
    /// and the last one of the slice may be put together for it. A slice that
    /// goes on where the last one of the same content and parameters ends
    /// becomes one with it.
    ///
    /// # Errors
    /// [`WriteError::OutsideContent`], and those of [`write`](Self::write);
    /// nothing is written then.
    pub fn write_slice(
        &mut self,
        content: ContentId,
        range: Range<u32>,
        params: u64,
    ) -> Result<(), WriteError> {
        let (index, len) = self.find(content)?;
        let Range { start: from, end } = range;
        if from > end || end > len {
            return Err(WriteError::OutsideContent { from, end, len });
        }
        if from == end {
            return Ok(());
        }
        let source = Source::content(index, end < len);
        let slice = Slice {
            source,
            from,
            len: end - from,
            params: halves(params),
        };
        let stream = &mut self.tcb.stream;
        if stream.merge(slice, self.lists) {
            return Ok(());
        }
        self.push(slice)?;
        self.contents.acquire(index);
        Ok(())
    }

    /// Writes bytes that are no content, at most
    /// [`MAX_WRITE_LEN`] of them. They are copied to a
    /// buffer from a bounded pool, and summed when they are sent.
    ///
    /// # Errors
    /// [`WriteError::Full`], [`WriteError::Closed`],
    /// [`WriteError::TooLong`]; nothing is written then.
    pub fn write_bytes(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.ensure_open()?;
        if bytes.len() > MAX_WRITE_LEN {
            return Err(WriteError::TooLong { len: bytes.len() });
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let len = bytes.len() as u32;
        let writes = &*self.writes;
        let fits = |buffer| writes[buffer].len() + bytes.len() <= MAX_WRITE_LEN;
        if let Some(buffer) = self.tcb.stream.extend(len, self.lists, fits) {
            self.writes[buffer].extend_from_slice(bytes);
            return Ok(());
        }
        self.ensure_room(1)?;
        let owner = self.owner();
        let Some(buffer) = self.writes.take(owner, self.peers) else {
            return Err(self.is_full(Some(Pool::WriteBuffers)));
        };
        self.writes[buffer].extend_from_slice(bytes);
        let source = Source::write_buffer(buffer);
        let pushed = self.push(Slice {
            source,
            from: 0,
            len,
            params: [0; 2],
        });
        if pushed.is_err() {
            self.writes.release(buffer, self.peers);
        }
        pushed
    }

    /// Writes bytes that are shared with others, or too many for
    /// [`write_bytes`](Self::write_bytes), and that are written no second time. They
    /// are a content until they are acknowledged.
    ///
    /// # Errors
    /// Those of [`write`](Self::write), and [`WriteError::NoContent`]; nothing is written
    /// then.
    pub fn write_once(&mut self, bytes: Arc<[u8]>) -> Result<(), WriteError> {
        self.ensure_open()?;
        let content = self.contents.add(bytes, None)?;
        let written = self.write(content, 0);
        self.contents.remove(content);
        written
    }

    /// Our side is not closed.
    #[inline(always)]
    fn ensure_open(&self) -> Result<(), WriteError> {
        if self.tcb.flags.has(Flags::CLOSE | Flags::ABORT) {
            return Err(WriteError::Closed);
        }
        Ok(())
    }

    /// Index and length of a content that can be written now.
    #[inline(always)]
    fn find(&self, content: ContentId) -> Result<(u32, u32), WriteError> {
        self.ensure_open()?;
        let found = self.contents.lookup(content);
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

    #[inline(always)]
    fn owner(&self) -> Owner {
        let peer = self.standing.peer;
        Owner { id: self.id, peer }
    }

    /// A write has failed; nothing of `pool` was free.
    #[cold]
    fn is_full(&mut self, pool: Option<Pool>) -> WriteError {
        self.tcb.flags |= Flags::WANTS_ROOM;
        self.asked.refused = pool;
        WriteError::Full
    }

    /// Calls [`Application::on_deadline`](crate::Application::on_deadline) in `after` from now, at most
    /// [`Config::MAX_TIME`](crate::Config::MAX_TIME), unless the deadline is cleared or the connection is
    /// closed before. There is one deadline for a connection: this one takes the
    /// place of any that was set.
    pub fn set_deadline(&mut self, deadline: Deadline, after: Duration) {
        if self.tcb.flags.has(Flags::CLOSE | Flags::ABORT) {
            return;
        }
        let until = self.tcb.deadline;
        self.standing.set_alarm(millis(after), deadline, until);
    }

    /// What the deadline is for, if there is one.
    pub fn deadline(&self) -> Option<Deadline> {
        (self.standing.alarm != Alarm::Off).then_some(self.standing.due_for)
    }

    /// There is no deadline any more.
    #[inline(always)]
    pub fn clear_deadline(&mut self) {
        self.standing.alarm = Alarm::Off;
    }

    /// As [`Connections::set_timer`](crate::Connections::set_timer). The timer is the
    /// application's, and outlives the connection.
    pub fn set_timer(&mut self, timer: Timer, after: Duration) {
        self.asked.timers.set(timer.number(), self.now + after);
    }

    /// Closes our side after all that is written: the paper's `tcp_close()`.
    /// The peer may go on sending until it closes its side too; that is
    /// acknowledged and discarded.
    #[inline(always)]
    pub fn close(&mut self) {
        self.tcb.flags |= Flags::CLOSE;
        self.tcb.flags -= Flags::WANTS_ROOM;
        self.standing.alarm = Alarm::Off;
    }

    /// Ends the connection at once with a reset. What is not acknowledged is
    /// lost.
    #[cold]
    pub fn abort(&mut self) {
        self.tcb.flags |= Flags::ABORT;
    }
}

impl Standing {
    /// Sets the application's deadline. The wheel's entry is no longer right, as one
    /// that expires after the connection's `deadline` would be.
    fn set_alarm(&mut self, after: u32, due_for: Deadline, deadline: u32) {
        self.alarm = Alarm::New(after);
        self.due_for = due_for;
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

/// The upper half of a response's parameters, and the lower.
#[inline(always)]
const fn halves(params: u64) -> [u32; 2] {
    [(params >> 32) as u32, params as u32]
}
