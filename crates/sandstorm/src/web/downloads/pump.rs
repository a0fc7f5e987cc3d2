//! Writes downloads to their connections.

use tcpip::{ContentId, WriteError};

use super::{COPIED, Downloads, Progress, Pumped, RETRY, Waits, owed};
use crate::assembled::Piece;
use crate::disk::{CHUNK_LEN, Chunks, Found};
use crate::web::conversation::Conn;

/// Maximum length of data that is written ahead of the client, in bytes. It is less if the congestion
/// window is small.
const MAX_AHEAD: usize = 1 << 20;

impl Downloads {
    /// Takes back what is written for a client that does not take it, usually because its window is closed.
    /// It gets the rest when it has acknowledged the bytes that its connection keeps. Returns true if the
    /// client has no chunk any more.
    pub(in crate::web) fn take_back<S>(&mut self, conn: &mut Conn<'_, S>) -> bool {
        let place = conn.state().download;
        let Some(Some(progress)) = self.list.get_mut(place.0 as usize) else {
            return false;
        };
        let owed = owed(&conn.info());
        progress.examine(owed, conn.now());
        // What is written before the response, or behind it, is not to be taken back.
        if progress.is_done() || owed as usize > COPIED + progress.all_written() {
            return false;
        }
        let Some(len) = conn.take_back(COPIED) else {
            return false;
        };
        conn.notify_of_room();
        progress.unwrite(len as usize);
        progress.owed = 0;
        progress.waits = Waits::No;
        true
    }

    /// Writes what is in memory and fits into the flights ahead, and has the next chunks read.
    pub(in crate::web) fn pump<S>(&mut self, conn: &mut Conn<'_, S>) -> Pumped {
        let place = conn.state().download;
        let Some(Some(progress)) = self.list.get_mut(place.0 as usize) else {
            return Pumped::Ended;
        };
        let Some(chunks) = &mut self.chunks else {
            return Pumped::Ended;
        };
        let info = conn.info();
        let is_short = self.retry_at.is_some();
        let ahead = if is_short {
            CHUNK_LEN
        } else {
            // A client that receives nothing has no window.
            let window = info.cwnd.min(info.snd_wnd) as usize;
            (2 * window).clamp(CHUNK_LEN, MAX_AHEAD)
        };
        let read_ahead = if is_short { 0 } else { ahead };
        let mut queued = owed(&info) as usize;
        progress.examine(owed(&info), conn.now());
        if progress.waits == Waits::ForChunk {
            // The connection is told when the chunk arrives.
            return Pumped::Waits;
        }
        if is_short && !progress.is_done() && self.shares.is_beyond(progress.client) {
            progress.wait_for_memory(conn.now());
            return Pumped::Waits;
        }
        let waited_to_read = progress.waits == Waits::ToRead;
        while !progress.is_done() {
            if queued >= ahead || conn.room() == 0 {
                // It waits only for the client.
                progress.waits = Waits::No;
                conn.notify_of_room();
                break;
            }
            match progress.write_next(conn, chunks, read_ahead) {
                Ok(Some(len)) => {
                    queued += len;
                    progress.note_written(queued as u32, conn.now());
                }
                Ok(None) | Err(WriteError::Full) => break,
                Err(_) => return Pumped::Ended,
            }
        }
        if !is_short && let Some((chunk, _)) = progress.next_in_file() {
            let soon = progress.soon(chunk, read_ahead);
            let client = progress.client;
            chunks.read(conn.contents_mut(), &progress.download.file, soon, client);
        }
        if progress.is_starved() {
            self.retry_at.get_or_insert(conn.now() + RETRY);
        }
        let (is_done, waits) = (progress.is_done(), progress.waits);
        if waits == Waits::ToRead && !waited_to_read {
            self.wait_to_read(place);
        }
        if is_done { Pumped::Done } else { Pumped::Waits }
    }
}

impl Progress {
    /// Returns the content item with a chunk of the file, and where the chunk starts in it. If the chunk is
    /// not in memory, notes what the download waits for, and has `read_ahead` bytes behind it read too.
    fn find(
        &mut self,
        conn: &mut Conn<'_, impl Sized>,
        chunks: &mut Chunks,
        chunk: u32,
        read_ahead: usize,
    ) -> Option<(ContentId, usize)> {
        let asker = (conn.id(), self.client);
        let soon = self.soon(chunk, read_ahead);
        match chunks.find(conn.contents_mut(), &self.download.file, soon, asker) {
            Found::Here(content, start) => {
                self.waits = Waits::No;
                return Some((content, start));
            }
            Found::Later => self.waits = Waits::ForChunk,
            Found::NoRoom => self.wait_for_memory(conn.now()),
            Found::Busy => self.waits = Waits::ToRead,
        }
        None
    }

    /// Writes the next piece, or a chunk of it. Returns the number of bytes, or `None` if a chunk is
    /// missing. The head waits for the first chunk, because the file may turn out to be unreadable.
    fn write_next<S>(
        &mut self,
        conn: &mut Conn<'_, S>,
        chunks: &mut Chunks,
        read_ahead: usize,
    ) -> Result<Option<usize>, WriteError> {
        let piece = self.download.pieces[self.next].clone();
        let len = match piece {
            Piece::Assembled(range) => {
                if let Some((chunk, _)) = self.next_in_file().filter(|_| !self.has_begun)
                    && self.find(conn, chunks, chunk, read_ahead).is_none()
                {
                    return Ok(None);
                }
                let rest = range.start + self.written..range.end;
                conn.write_bytes(&self.download.own[rest.clone()])?;
                self.next += 1;
                self.written = 0;
                rest.len()
            }
            Piece::Prepared(range) => {
                let Some((chunk, part)) = self.next_in_file() else {
                    self.next += 1;
                    return Ok(Some(0));
                };
                let len = part.len();
                let Some((content, start)) = self.find(conn, chunks, chunk, read_ahead) else {
                    return Ok(None);
                };
                let slice = (start + part.start) as u32..(start + part.end) as u32;
                conn.write_slice(content, slice, 0)?;
                self.written += len;
                if self.written == range.len() {
                    self.next += 1;
                    self.written = 0;
                }
                len
            }
        };
        self.has_begun = true;
        Ok(Some(len))
    }
}
