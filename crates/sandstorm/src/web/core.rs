//! Sends answers. While the send stream has no room, the answer to a request that the application
//! has seen is stored.

use std::sync::Arc;
use std::time::Duration;

use tcpip::{
    Connection, ConnectionId, ContentError, Contents, Deadline, MAX_WRITE_LEN, WriteError,
};

use super::conversation::Conn;
use super::counters::Counters;
use super::downloads::Downloads;
use super::kept_parts::{KeptParts, MAX_KEPT_PARTS};
use super::prepared_reply::PreparedReply;
use super::recent::Recent;
use super::writing::{Continuation, Written, write};
use crate::access_log::AccessLogSenders;
use crate::answer::{Answer, AnswerForm};
use crate::date::{SlotWriter, Stamp};
use crate::exchange::{Exchange, Ticket};
use crate::fields::{Fields, MAX_FIELDS_LEN};
use crate::head::{HEAD_LIMIT, field_buffer, parse};
use crate::known_sites::HostedId;
use crate::login::{Login, Logins};
use crate::pending::{Busy, Exhausted, Outgoing, OutgoingContent, Pending, PendingPlace, Phase};
use crate::prepared::PreparedId;
use crate::request::Request;
use crate::response::{Response, write_head_with};
use crate::session;
use crate::site::{ReplyId, Site};
use crate::status::Status;
use crate::verdict::Verdict;

// Even the longest redirect fits one write. It contains path and query at most twice, and
// percent-encoding can triple each byte.
const _: () = assert!(2 * 3 * HEAD_LIMIT + MAX_FIELDS_LEN + 1_024 <= MAX_WRITE_LEN);

/// The answer to `Expect: 100-continue` (RFC 9110, section 15.2.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Default maximum time for receiving a request and its body, measured from the first byte. To
/// change this time, use [`Http::with_request_timeout`](crate::Http::with_request_timeout).
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum length of an unread body that is received and discarded to keep the connection open, in
/// bytes. If the body is longer, the connection is closed.
pub const UNREAD_LIMIT: u64 = 64 << 10;

/// Default maximum time that the application may take for a deferred answer. To change this time,
/// use [`Http::with_answer_timeout`](crate::Http::with_answer_timeout).
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The parts of [`Web`](super::Web) other than the application.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) site: Arc<Site>,
    /// The site's replies as content items of the TCP stack, in the order of [`Site::replies`]. The parts
    /// in `kept` follow them.
    pub(super) prepared: Vec<PreparedReply>,
    pub(super) kept: KeptParts,
    pub(super) recent: Recent,
    pub(super) slots: SlotWriter,
    /// The buffer in which an answer is assembled.
    pub(super) out: Vec<u8>,
    /// The response that callbacks of the application fill in.
    pub(super) response: Response,
    pub(super) pending: Pending,
    pub(super) downloads: Downloads,
    /// Checks credentials, if a site asks for them.
    pub(super) logins: Option<Logins>,
    /// Number of new exchanges so far. It is also the serial number of the newest exchange.
    exchanges: u64,
    /// Serial number of the exchange that was last passed to the application.
    pub(super) serial: u64,
    /// Connections whose streamed responses were begun or resumed in the current message or timer
    /// callback. When the callback has returned, the application is asked for the next pieces.
    pub(super) resumed: Vec<ConnectionId>,
    pub(super) request_timeout: Duration,
    pub(super) answer_timeout: Duration,
    /// The stamp of a response that is made now. While the server stops, it closes the connection.
    pub(super) now: Stamp,
    pub(super) counters: Counters,
    /// The part of `counters` that belongs to each known site, by its number from 1.
    pub(super) hosted: Vec<Counters>,
    /// Where answered requests are logged, if they are.
    pub(super) access_log: Option<AccessLogSenders>,
}

impl Core {
    pub(super) fn load(site: Arc<Site>, contents: &mut Contents) -> Result<Self, ContentError> {
        let count = site.replies().len() + MAX_KEPT_PARTS;
        let mut prepared = Vec::with_capacity(count);
        // A table that grows step by step leaves holes in the memory.
        contents.reserve(count);
        for (index, reply) in site.replies().iter().enumerate() {
            let hosted = site.hosted(ReplyId(index as u32));
            prepared.push(PreparedReply::add(reply, hosted, contents)?);
        }
        Ok(Self {
            hosted: vec![Counters::default(); site.known().len()],
            site,
            prepared,
            kept: KeptParts::default(),
            recent: Recent::new(),
            slots: SlotWriter::new(),
            out: Vec::new(),
            response: Response::new(),
            pending: Pending::default(),
            downloads: Downloads::default(),
            logins: None,
            exchanges: 0,
            serial: 0,
            resumed: Vec::new(),
            request_timeout: REQUEST_TIMEOUT,
            answer_timeout: ANSWER_TIMEOUT,
            now: Stamp::new(0, false),
            counters: Counters::default(),
            access_log: None,
        })
    }

    /// Starts the request timeout, unless it is already running. The time is measured from the
    /// first byte, even if that byte belongs to an empty line before the request.
    #[inline]
    pub(super) fn expect_more<S>(&self, conn: &mut Connection<'_, S>) {
        if conn.deadline().is_none() {
            conn.set_deadline(Deadline::Request, self.request_timeout);
        }
    }

    /// Sends the site's answer to the request at the start of `data`. Sends nothing on an error.
    #[inline(always)]
    pub(super) fn send<S>(
        &mut self,
        conn: &mut Conn<'_, S>,
        answer: &Answer,
        data: &[u8],
    ) -> Result<Continuation, WriteError> {
        let mut stamp = self.now.or_closing(answer.close);
        if stamp.closes() && answer.consumed() < data.len() {
            stamp = self.stamp_before_others(answer.close);
        }
        let (status, body_len) = match self.write_answer(conn, answer, data, stamp)? {
            Written::Response(status, body_len) => (status, body_len),
            Written::Other(continuation) => return Ok(continuation),
        };
        let site = self.hosted(answer);
        self.count_own(site, status);
        if self.access_log.is_some() {
            let head = &data[..answer.consumed().min(data.len())];
            self.log_sent(conn, (site, status), body_len, head);
        }
        if stamp.closes() {
            conn.close();
            return Ok(Continuation::End);
        }
        Ok(Continuation::ReadNext)
    }

    /// Writes the site's answer to the request at the start of `data`.
    #[inline(always)]
    pub(super) fn write_answer<S>(
        &mut self,
        conn: &mut Conn<'_, S>,
        answer: &Answer,
        data: &[u8],
        stamp: Stamp,
    ) -> Result<Written, WriteError> {
        let reply = self.prepared.get(answer.reply.index()).copied();
        let reply = reply.ok_or(WriteError::NoSuchContent)?;
        if answer.is_whole() && !reply.is_on_disk {
            // What is known of a login is for no other request.
            conn.state().login = Login::Unknown;
            conn.write(reply.content, stamp.as_u64())?;
            return Ok(Written::Response(reply.status, reply.body_len as usize));
        }
        self.write_assembled(conn, answer, data, stamp)
    }

    /// Returns the stamp of an answer after which more requests have arrived already. They are
    /// answered too, even if the server stops.
    #[cold]
    fn stamp_before_others(&self, close: bool) -> Stamp {
        Stamp::new(self.now.seconds(), close)
    }

    /// From now on, each answer is its connection's last one, because the server stops.
    pub(super) fn begin_drain(&mut self) {
        self.now = self.now.or_closing(true);
    }

    /// Returns true if no request of the connection is in progress.
    pub(super) fn is_between_requests<S>(&mut self, conn: &mut Conn<'_, S>) -> bool {
        conn.is_between_messages() && self.has_no_pending(conn)
    }

    /// Returns true if the connection has no pending request.
    pub(super) fn has_no_pending<S>(&mut self, conn: &mut Conn<'_, S>) -> bool {
        let place = conn.state().place;
        self.pending.phase(place).is_none()
    }

    /// Returns true if the answer's status is 404, 405 or 501: the site cannot serve the request,
    /// so the application may answer it. Invalid requests can cause the same statuses, so the
    /// caller must exclude them.
    #[inline]
    pub(super) fn may_be_for_application(&self, answer: &Answer) -> bool {
        let reply = self.prepared.get(answer.reply.index());
        reply.is_some_and(|reply| {
            matches!(
                reply.status,
                Status::NotFound | Status::MethodNotAllowed | Status::NotImplemented
            )
        })
    }

    /// Calls `callback` with a new exchange for a request of `conn`. The exchange gets the next
    /// serial number.
    pub(super) fn exchange<S: Default, R>(
        &mut self,
        conn: &mut Conn<'_, S>,
        callback: impl FnOnce(&mut Exchange<'_, S>) -> R,
    ) -> R {
        self.exchanges += 1;
        self.exchange_of(conn, self.exchanges, callback)
    }

    /// Same as [`exchange`](Self::exchange), but for a request that already has a serial number:
    /// `serial`.
    pub(super) fn exchange_of<S: Default, R>(
        &mut self,
        conn: &mut Conn<'_, S>,
        serial: u64,
        callback: impl FnOnce(&mut Exchange<'_, S>) -> R,
    ) -> R {
        self.serial = serial;
        self.response.clear();
        // The state is moved out temporarily, because the exchange also borrows the stack's content
        // items, and both borrows go through the connection.
        let mut state = std::mem::take(&mut conn.state().state);
        let connection = conn.id();
        let result = callback(&mut Exchange {
            ticket: Ticket { connection, serial },
            peer: conn.peer(),
            now: conn.now(),
            state: &mut state,
            response: &mut self.response,
            contents: conn.contents_mut(),
            common: self.site.fields(),
        });
        conn.state().state = state;
        result
    }

    /// Answers `request`, which is at the start of `bytes`, according to the application's verdict.
    /// Uses the response of the last exchange.
    pub(super) fn answer<S>(
        &mut self,
        conn: &mut Conn<'_, S>,
        request: &Request<'_>,
        bytes: &[u8],
        verdict: Verdict,
    ) -> Continuation {
        self.out.clear();
        match verdict {
            Verdict::Later => return self.wait(conn, request, bytes, Fields::new()),
            Verdict::Stream => {
                self.count_and_log(conn.peer(), request, self.response.status(), 0);
                return self.begin_stream(conn, request);
            }
            Verdict::Site => {
                let answer = session::answer(&self.site, request.head(), bytes);
                return self.answer_by_site(conn, request, &answer, bytes);
            }
            Verdict::Prepared(prepared) if conn.contents().bytes(prepared.content).is_some() => {
                return self.answer_prepared(conn, request, &prepared);
            }
            Verdict::Made if self.response.body().len() <= MAX_BODY => {}
            Verdict::Refuse(status) => self.response.set_page(status),
            // The prepared reply has been removed, or the response's body is too long, so the
            // answer is 500.
            Verdict::Made | Verdict::Prepared(_) => {
                return self.answer_page(conn, Status::InternalServerError, request);
            }
        }
        let (status, body_len) = (self.response.status(), self.response.body().len());
        self.count_and_log(conn.peer(), request, status, body_len);
        let (head_only, close) = (request.is_head(), !request.keep_alive());
        self.answer_from_response(conn, HostedId::default(), head_only, close)
    }

    /// Answers `request` with the server's own page about a status.
    pub(super) fn answer_page<S>(
        &mut self,
        conn: &mut Conn<'_, S>,
        status: Status,
        request: &Request<'_>,
    ) -> Continuation {
        self.answer_page_of(conn, HostedId::default(), status, request)
    }

    /// Same as [`answer_page`](Self::answer_page), for a hosted site.
    pub(super) fn answer_page_of<S>(
        &mut self,
        conn: &mut Conn<'_, S>,
        site: HostedId,
        status: Status,
        request: &Request<'_>,
    ) -> Continuation {
        self.fill_page(status);
        self.count_own(site, status);
        let body_len = self.response.body().len();
        self.log_request(conn.peer(), request, status.into(), body_len);
        self.answer_from_response(conn, site, request.is_head(), !request.keep_alive())
    }

    fn fill_page(&mut self, status: Status) {
        self.out.clear();
        self.response.clear();
        self.response.set_page(status.into());
    }

    /// Assembles the server's own page about a status in `out`, for a hosted site. Returns the length of
    /// the body that is sent.
    pub(super) fn assemble_page(
        &mut self,
        site: HostedId,
        status: Status,
        head_only: bool,
        stamp: Stamp,
    ) -> usize {
        self.fill_page(status);
        self.write_response(site, head_only, stamp);
        if head_only {
            0
        } else {
            self.response.body().len()
        }
    }

    /// Sends the response in `self.response`, with the fields of a hosted site.
    fn answer_from_response<S>(
        &mut self,
        conn: &mut Conn<'_, S>,
        site: HostedId,
        head_only: bool,
        close: bool,
    ) -> Continuation {
        let stamp = self.now.or_closing(close);
        self.write_response(site, head_only, stamp);
        self.deliver(conn, Outgoing::new(OutgoingContent::None, stamp))
    }

    /// Assembles the response in `self.response` in `out`, with the fields of a hosted site.
    fn write_response(&mut self, site: HostedId, head_only: bool, stamp: Stamp) {
        let (fields, out) = (self.site.with_id(site).fields(), &mut self.out);
        self.response
            .write_to(fields, head_only, stamp, &mut self.slots, out);
    }

    /// The hosted site that answers.
    #[inline(always)]
    pub(super) fn hosted(&self, answer: &Answer) -> HostedId {
        let reply = self.prepared.get(answer.reply.index());
        reply.map_or_else(HostedId::default, |reply| reply.site)
    }

    pub(super) fn answer_by_site<S>(
        &mut self,
        conn: &mut Conn<'_, S>,
        request: &Request<'_>,
        answer: &Answer,
        bytes: &[u8],
    ) -> Continuation {
        if let AnswerForm::Login { .. } = answer.form {
            return self.answer_after_login(conn, request, answer, bytes);
        }
        conn.state().login = Login::Unknown;
        let stamp = self.now.or_closing(answer.close);
        if answer.reply.index() >= self.prepared.len() {
            conn.abort();
            return Continuation::End;
        }
        let (contents, max_pieces) = (conn.contents(), conn.room());
        let (status, body_len, outgoing) =
            self.assemble(answer, bytes, stamp, contents, max_pieces);
        if let OutgoingContent::Disk(..) = outgoing.content {
            let site = self.hosted(answer);
            let (response, head) = ((site, status, body_len), request.received());
            return self.begin_download(conn, response, head, outgoing);
        }
        self.count_own(self.hosted(answer), status);
        self.log_request(conn.peer(), request, status.into(), body_len);
        self.deliver(conn, outgoing)
    }

    fn answer_prepared<S>(
        &mut self,
        conn: &mut Conn<'_, S>,
        request: &Request<'_>,
        prepared: &PreparedId,
    ) -> Continuation {
        let close = !request.keep_alive();
        let stamp = self.now.or_closing(close);
        let unchanged = prepared.unchanged.filter(|_| request.is_get_or_head());
        let condition = unchanged.and_then(|one| request.head().precondition(Some(one.tag), None));
        let (status, content, head_len, slot_at) = match (condition, unchanged) {
            (Some(Status::NotModified), Some(unchanged)) => {
                let status = Status::NotModified.into();
                (status, unchanged.content, u32::MAX, unchanged.slot_at)
            }
            (Some(status), _) => return self.answer_page(conn, status, request),
            (None, _) => (
                prepared.status,
                prepared.content,
                prepared.head_len,
                prepared.slot_at,
            ),
        };
        let Some(whole) = conn.contents().bytes(content) else {
            conn.abort();
            return Continuation::End;
        };
        let len = whole.len() as u32;
        let head_len = head_len.min(len);
        let body_len = (len - head_len) as usize;
        self.count_and_log(conn.peer(), request, status, body_len);
        let end = if request.is_head() { head_len } else { len };
        let extra = self.response.fields();
        let range = if extra.is_empty() {
            0..end
        } else {
            let head = &whole[..head_len as usize];
            let slots = &mut self.slots;
            write_head_with(head, slot_at as usize, extra, stamp, slots, &mut self.out);
            head_len..end
        };
        let rest = OutgoingContent::Slice(content, range);
        self.deliver(conn, Outgoing::new(rest, stamp))
    }

    /// Stores a request until its deferred answer is given. The site adds `fields` to its answer after the
    /// check of credentials.
    pub(super) fn wait<S>(
        &mut self,
        conn: &mut Conn<'_, S>,
        request: &Request<'_>,
        bytes: &[u8],
        fields: Fields,
    ) -> Continuation {
        let phase = Phase::Answer {
            serial: self.serial,
            close: !request.keep_alive(),
            fields,
        };
        let (place, now) = (conn.state().place, conn.now());
        if self.pending.phase(place).is_some() {
            self.pending.set_phase(place, phase, now);
        } else {
            let head = &bytes[..request.head_len()];
            match self.pending.take(phase, head, conn.peer().ip(), now) {
                Ok(place) => conn.state().place = place,
                Err(_) => return self.answer_page(conn, Status::ServiceUnavailable, request),
            }
        }
        conn.set_deadline(Deadline::Request, self.answer_timeout);
        Continuation::Wait
    }

    /// Sends the bytes in `out`, and then the part of a content item that `outgoing` names, if any.
    /// If the send stream has no room, stores the answer, so that the application need not be
    /// called again.
    pub(super) fn deliver<S>(
        &mut self,
        conn: &mut Conn<'_, S>,
        outgoing: Outgoing,
    ) -> Continuation {
        conn.clear_deadline();
        let place = conn.state().place;
        match write(conn, &self.out, &outgoing) {
            Ok(()) => {
                if let Some(stream) = outgoing.stream {
                    // Cannot fail, because no bytes are stored.
                    let _ = self.store_phase(conn, Phase::Stream(stream), false);
                    return Continuation::Stream;
                }
                self.pending.release(place);
                conn.state().place = PendingPlace::NONE;
                if !outgoing.stamp.closes() {
                    if conn.state().unread > 0 {
                        self.expect_more(conn);
                    }
                    return Continuation::ReadNext;
                }
                conn.close();
                Continuation::End
            }
            Err(WriteError::Full) => {
                if self.store_phase(conn, Phase::Room(outgoing), true).is_ok() {
                    return Continuation::Wait;
                }
                conn.abort();
                Continuation::End
            }
            // The server has already closed the connection, for example after the idle timeout.
            Err(WriteError::Closed) => Continuation::End,
            Err(_) => {
                conn.abort();
                Continuation::End
            }
        }
    }

    /// Makes the connection's request wait in `phase`. Discards the request's stored bytes. If
    /// `has_bytes` is set, stores the bytes of `out` instead.
    fn store_phase<S>(
        &mut self,
        conn: &mut Conn<'_, S>,
        phase: Phase,
        has_bytes: bool,
    ) -> Result<(), Exhausted> {
        let (place, now) = (conn.state().place, conn.now());
        let bytes = if has_bytes { &self.out[..] } else { &[] };
        if self.pending.phase(place).is_some() {
            // Discard the request's bytes. If the request is just being answered, the caller has
            // already taken them, and nothing is left to discard.
            drop(self.pending.take_bytes(place));
            self.pending.set_phase(place, phase, now);
            return self.pending.append(place, bytes, now);
        }
        conn.state().place = self.pending.take(phase, bytes, conn.peer().ip(), now)?;
        Ok(())
    }

    /// Returns true if the connection's request was evicted.
    pub(super) fn was_evicted<S>(&mut self, conn: &mut Conn<'_, S>) -> bool {
        let place = conn.state().place;
        matches!(self.pending.phase(place), Some(Phase::Evicted(_)))
    }

    /// Returns true if the connection waits for the application, either for a deferred answer or
    /// for more of a streamed response.
    pub(super) fn waits_for_application<S>(&mut self, conn: &mut Conn<'_, S>) -> bool {
        let place = conn.state().place;
        let phase = self.pending.phase(place);
        matches!(phase, Some(Phase::Answer { .. } | Phase::Stream(_)))
    }

    /// Answers the pending request at `place` by calling `answer` with the stored request.
    /// `is_read` is true if the entire body was read, or if its rest will be discarded.
    pub(super) fn answer_pending<S>(
        &mut self,
        conn: &mut Conn<'_, S>,
        place: PendingPlace,
        is_read: bool,
        answer: impl FnOnce(&mut Self, &mut Conn<'_, S>, &Request<'_>, &[u8]) -> Continuation,
    ) -> Continuation {
        let bytes = self.pending.take_bytes(place);
        let mut fields = field_buffer();
        let continuation = match parse(&bytes, &mut fields) {
            Ok(Some(head)) => {
                let body = &bytes[head.len..];
                let request = Request::new(head, &bytes).with_body(body, is_read);
                answer(self, conn, &request, &bytes)
            }
            // Cannot happen: this head has already been parsed.
            _ => Continuation::End,
        };
        self.pending.keep(place, bytes);
        continuation
    }

    /// If the connection's request was evicted, answers with 503, or aborts the connection if a
    /// finished response was lost. Returns `None` if the request was not evicted.
    pub(super) fn answer_evicted<S>(&mut self, conn: &mut Conn<'_, S>) -> Option<Continuation> {
        let place = conn.state().place;
        let Some(Phase::Evicted(busy)) = self.pending.phase(place) else {
            return None;
        };
        let busy = *busy;
        self.forget_login(conn);
        let Some(Busy { head_only, close }) = busy else {
            conn.abort();
            return Some(Continuation::End);
        };
        let (site, status) = (HostedId::default(), Status::ServiceUnavailable);
        self.fill_page(status);
        self.count_own(site, status);
        Some(self.answer_from_response(conn, site, head_only, close))
    }

    /// Answers the connection's request with 504 if its answer is deferred. If the request was
    /// evicted, answers with 503 or aborts the connection. Returns `false` in all other cases.
    pub(super) fn fail_pending<S>(&mut self, conn: &mut Conn<'_, S>) -> bool {
        let place = conn.state().place;
        let continuation = if let Some(Phase::Answer { close, .. }) = self.pending.phase(place) {
            let is_read = !*close;
            self.answer_pending(conn, place, is_read, |core, conn, request, _| {
                core.answer_page(conn, Status::GatewayTimeout, request)
            })
        } else if let Some(continuation) = self.answer_evicted(conn) {
            continuation
        } else {
            return false;
        };
        if continuation == Continuation::ReadNext {
            conn.offer_again();
        }
        true
    }

    /// Continues to send what waits for room. Called when the send stream has room again, or when
    /// the client has acknowledged all data.
    pub(super) fn resume_sending<S>(&mut self, conn: &mut Conn<'_, S>) {
        let place = conn.state().place;
        let outgoing = match self.pending.phase(place) {
            None => {
                self.close_if_ended(conn);
                return;
            }
            Some(Phase::Answer { .. } | Phase::Stream(_)) => return,
            Some(Phase::Evicted(_)) => {
                self.fail_pending(conn);
                return;
            }
            Some(Phase::Body(body)) => {
                if body.owes_continue {
                    body.owes_continue = conn.write_bytes(CONTINUE).is_err();
                }
                return;
            }
            Some(Phase::Room(outgoing)) => outgoing.clone(),
        };
        self.out = self.pending.take_bytes(place);
        if self.deliver(conn, outgoing) == Continuation::ReadNext {
            conn.offer_again();
        }
    }

    /// Closes the connection if its client sends no more, and no request of it waits for anything.
    pub(super) fn close_if_ended<S>(&mut self, conn: &mut Conn<'_, S>) {
        if !conn.state().has_ended || !self.has_no_pending(conn) {
            return;
        }
        let state = conn.state();
        let is_checked = matches!(state.login, Login::Waits(_));
        if !state.wants_room && !is_checked && self.downloads.is_done(state.download) {
            conn.close();
        }
    }

    /// Marks the `remaining` bytes of a body for discarding. Returns `false` if there are more
    /// than [`UNREAD_LIMIT`], or if their number is unknown.
    pub(super) fn discard<S>(conn: &mut Conn<'_, S>, remaining: Option<u64>) -> bool {
        let remaining = remaining.filter(|remaining| *remaining <= UNREAD_LIMIT);
        conn.state().unread = remaining.unwrap_or(0) as u32;
        remaining.is_some()
    }

    /// Discards those bytes at the start of `data` that belong to an unread body. Returns their
    /// number.
    pub(super) fn skip_unread<S>(&mut self, conn: &mut Conn<'_, S>, data: &[u8]) -> usize {
        let unread = &mut conn.state().unread;
        let len = data.len().min(*unread as usize);
        *unread -= len as u32;
        // The body has been discarded, so the request timeout ends. The timeout of a pending answer
        // uses the same deadline, and must continue.
        if len > 0 && *unread == 0 && !self.waits_for_application(conn) {
            conn.clear_deadline();
        }
        len
    }

    /// Sends `100 Continue`. If the send stream has no room, notes that `100 Continue` must be sent
    /// later.
    pub(super) fn send_continue<S>(&mut self, conn: &mut Conn<'_, S>) {
        let place = conn.state().place;
        if let Some(Phase::Body(body)) = self.pending.phase(place) {
            body.owes_continue = conn.write_bytes(CONTINUE).is_err();
        }
    }
}

/// Maximum body length of a response made by the application, in bytes. Head and body together must
/// fit one content item of the TCP stack.
const MAX_BODY: usize = tcpip::MAX_CONTENT_LEN - 2 * MAX_FIELDS_LEN;
