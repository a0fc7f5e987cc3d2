//! Sends files on the disk as responses.

use nmio::Instant;
use tcpip::{CongestionControl, Connections, WriteError};

use super::Web;
use super::conversation::{Conn, Conversation};
use super::core::Core;
use super::downloads::{Download, Pumped};
use super::writing::Continuation;
use crate::app::App;
use crate::disk::{Chunks, InUse};
use crate::known_sites::HostedId;
use crate::pending::{Outgoing, OutgoingContent, PendingPlace};
use crate::status::Status;

impl Core {
    /// Begins a response whose assembled bytes are in `out`, and whose body is on the disk. Its hosted
    /// site, status and the length of its body are `response`. `head` is the request's head.
    #[cold]
    pub(super) fn begin_download<S>(
        &mut self,
        conn: &mut Conn<'_, S>,
        response: (HostedId, Status, usize),
        head: &[u8],
        outgoing: Outgoing,
    ) -> Continuation {
        let OutgoingContent::Disk(file, pieces) = outgoing.content else {
            return Continuation::End;
        };
        conn.clear_deadline();
        self.pending.release(conn.state().place);
        conn.state().place = PendingPlace::NONE;
        let (site, status, body_len) = response;
        let mut own = self.downloads.spare_own();
        own.extend_from_slice(&self.out);
        let download = Download {
            file: InUse::new(&file),
            own,
            pieces,
            site,
            status,
            body_len,
            request: self.access_log.is_some().then(|| head.into()),
            closes: outgoing.stamp.closes(),
        };
        let client = (conn.id(), conn.peer().ip());
        let (last, now) = (conn.state().download, conn.now());
        conn.state().download = self.downloads.add(last, download, client, now);
        let continuation = self.continue_download(conn);
        if continuation == Continuation::Wait {
            conn.park();
        }
        continuation
    }

    /// Writes more of a download.
    fn continue_download<S>(&mut self, conn: &mut Conn<'_, S>) -> Continuation {
        let place = conn.state().download;
        let had_begun = self.downloads.has_begun(place);
        let comes_late = !had_begun && conn.room() > 0 && self.downloads.is_outdated(place);
        if self.downloads.chunks().is_none() || comes_late {
            return self.fail_download(conn);
        }
        let pumped = self.downloads.pump(conn);
        if !had_begun && self.downloads.has_begun(place) {
            self.note_download(conn, None);
        }
        match pumped {
            Pumped::Waits => Continuation::Wait,
            Pumped::Ended => {
                conn.abort();
                Continuation::End
            }
            Pumped::Done => {
                let closes = self.downloads.download(place).is_some_and(|one| one.closes);
                // If the server stops, the answer to the next request closes the connection, or else the
                // drain does.
                if closes {
                    conn.close();
                    return Continuation::End;
                }
                if conn.state().unread > 0 {
                    self.expect_more(conn);
                }
                Continuation::ReadNext
            }
        }
    }

    /// Counts and logs a download that begins, or the status that is sent instead.
    fn note_download<S>(&mut self, conn: &mut Conn<'_, S>, instead: Option<(Status, usize)>) {
        let Some(download) = self.downloads.download_mut(conn.state().download) else {
            return;
        };
        let (status, body_len) = instead.unwrap_or((download.status, download.body_len));
        let (site, request) = (download.site, download.request.take());
        self.count_own(site, status);
        if let Some(head) = request {
            self.log_sent(conn, (site, status), body_len, &head);
        }
    }

    /// Continues the connection's download because the client has acknowledged something. Returns false
    /// if all of the response was written before.
    #[cold]
    pub(super) fn has_sent_of_download<S>(&mut self, conn: &mut Conn<'_, S>) -> bool {
        if self.downloads.is_done(conn.state().download) {
            if !conn.has_unacknowledged() {
                self.downloads.release(conn.state().download);
                conn.state().download = <_>::default();
            }
            return false;
        }
        self.resume_download(conn);
        true
    }

    /// Continues a download whose connection is parked.
    fn resume_download<S>(&mut self, conn: &mut Conn<'_, S>) {
        if self.continue_download(conn) == Continuation::ReadNext {
            conn.resume();
        }
    }

    /// Ends a download whose file cannot be read: with 503 if nothing has been sent, and otherwise with
    /// a reset. So a client never gets the rest of another version. Without room for the 503, the download
    /// waits.
    #[cold]
    fn fail_download<S>(&mut self, conn: &mut Conn<'_, S>) -> Continuation {
        let place = conn.state().download;
        if self.downloads.has_begun(place) {
            conn.abort();
            return Continuation::End;
        }
        let download = self.downloads.download(place);
        let (site, closes) = download.map_or_else(<_>::default, |one| (one.site, one.closes));
        let (status, stamp) = (Status::ServiceUnavailable, self.now.or_closing(closes));
        let body_len = self.assemble_page(site, status, false, stamp);
        match conn.write_bytes(&self.out) {
            Ok(()) => {}
            Err(WriteError::Full) => {
                conn.notify_of_room();
                return Continuation::Wait;
            }
            Err(_) => {
                conn.abort();
                return Continuation::End;
            }
        }
        self.note_download(conn, Some((status, body_len)));
        self.downloads.release(place);
        conn.state().download = <_>::default();
        if stamp.closes() {
            conn.close();
            return Continuation::End;
        }
        Continuation::ReadNext
    }

    /// Continues the downloads whose chunks have arrived, and the downloads that have waited for other
    /// reads. Also continues those that wait for memory, if it is time.
    fn continue_downloads<S, C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, Conversation<S>, C>,
    ) {
        for (id, is_here) in self.downloads.take_arrived(connections.contents_mut()) {
            let Some(mut conn) = connections.get(id) else {
                continue;
            };
            // The response may have ended meanwhile.
            if self.downloads.is_done(conn.state().download) {
                continue;
            }
            self.downloads.note_arrival(conn.state().download);
            if is_here {
                self.resume_download(&mut conn);
            } else if self.fail_download(&mut conn) == Continuation::ReadNext {
                conn.resume();
            }
        }
        while let Some(id) = self.downloads.next_to_read() {
            if let Some(mut conn) = connections.get(id) {
                self.resume_download(&mut conn);
            }
        }
        // All downloads are examined then, so not each arrival is worth it.
        let now = connections.now();
        if self.downloads.retry_at().is_some_and(|at| at <= now) {
            self.retry_downloads(connections);
        }
    }

    /// Continues downloads that wait for memory. If there is still none, clients that do not receive
    /// what they have asked for give way.
    fn retry_downloads<S, C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, Conversation<S>, C>,
    ) {
        let now = connections.now();
        let starved = self.downloads.take_starved(now);
        for (_, id) in &starved {
            if let Some(mut conn) = connections.get(*id)
                && !self.downloads.is_done(conn.state().download)
            {
                let place = conn.state().download;
                self.resume_download(&mut conn);
                if self.downloads.is_starved(place) {
                    // There is no memory for those behind it either.
                    break;
                }
            }
        }
        self.downloads.reuse(starved);
        let late = self.downloads.late(now);
        for (_, id) in &late {
            let Some(mut conn) = connections.get(*id) else {
                continue;
            };
            let (place, info) = (conn.state().download, conn.info());
            if !self.downloads.take_back(&mut conn) && self.downloads.is_too_slow(place, &info, now)
            {
                self.downloads.count_gave_way();
                conn.abort();
            }
        }
        self.downloads.reuse(late);
    }
}

impl<A: App> Web<A> {
    /// Sends files on the disk, by chunks that are in memory or read for this worker.
    pub(crate) fn set_chunks(&mut self, chunks: Chunks) {
        self.core.downloads.set_chunks(chunks);
    }

    /// When to retry downloads that wait for memory.
    #[inline(always)]
    pub(crate) fn retry_downloads_at(&self) -> Option<Instant> {
        self.core.downloads.retry_at()
    }

    /// Whether that time has come.
    #[inline(always)]
    pub(crate) fn retries_downloads(&self, now: Instant) -> bool {
        self.retry_downloads_at().is_some_and(|at| at <= now)
    }

    /// What has been read for this worker, and how many connections gave way.
    pub(crate) fn disk_counts(&self) -> Option<(&Chunks, u64)> {
        let downloads = &self.core.downloads;
        Some((downloads.chunks()?, downloads.gave_way()))
    }

    /// Continues the downloads whose chunks have arrived, and the downloads that have waited for
    /// memory.
    pub(crate) fn continue_downloads<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, Conversation<A::State>, C>,
    ) {
        self.core.continue_downloads(connections);
    }
}
