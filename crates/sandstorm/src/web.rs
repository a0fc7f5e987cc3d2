//! The TCP application that serves a site and an HTTP application.

mod assembling;
mod conversation;
mod core;
mod counters;
mod dialogue;
mod downloading;
mod downloads;
mod keeping;
mod kept_parts;
mod logging;
mod logging_in;
mod outside;
mod prepared_reply;
mod recent;
mod request_times;
mod shares;
mod streaming;
mod turns;
mod writing;

pub use self::conversation::Conversation;
pub use self::core::{ANSWER_TIMEOUT, REQUEST_TIMEOUT, UNREAD_LIMIT};
pub use self::counters::Counters;
pub(crate) use self::kept_parts::MAX_KEPT_PARTS;
pub(crate) use self::prepared_reply::PreparedReply;

use std::sync::Arc;
use std::time::Duration;

use nmio::Times;
use tcpip::{
    Application, CloseReason, CongestionControl, ConnectionId, Connections, ContentError, Contents,
    Deadline, Timer, WriteError,
};

use self::conversation::Conn;
use self::core::Core;
use self::request_times::RequestTimes;
use self::writing::Continuation;
use crate::access_log::AccessLogSenders;
use crate::app::{App, SiteOnly};
use crate::date::Stamp;
use crate::login::Login;
use crate::prepared::Replies;
use crate::session::{Session, Step};
use crate::site::Site;
use crate::verdict::Sees;

/// The TCP application of the web server. It parses HTTP requests, and sends the site's replies and
/// the responses of the HTTP application `A`.
#[derive(Debug)]
pub struct Web<A = SiteOnly> {
    app: A,
    core: Core,
    request_times: RequestTimes,
}

impl<A> Web<A> {
    /// Serves another site from now on, whose replies are `prepared`. They are among `contents`. Returns the
    /// replies of the old site, which responses in flight may still need.
    pub(crate) fn change_site(
        &mut self,
        site: Arc<Site>,
        prepared: Vec<PreparedReply>,
        contents: &mut Contents,
    ) -> Vec<PreparedReply> {
        self.core.recent.clear();
        self.core.remove_parts(contents);
        if let Some(logins) = &mut self.core.logins {
            logins.change_users(self.core.site.users(), site.users());
        }
        self.core.site = site;
        self.know_sites();
        std::mem::replace(&mut self.core.prepared, prepared)
    }

    /// Counts and logs for the sites that the newest site knows.
    fn know_sites(&mut self) {
        let known = self.core.site.known();
        if self.core.hosted.is_empty() && known.len() > 0 {
            // So far there was only one site, without hosts. It is the first one with a number.
            self.core.hosted.push(self.core.counters);
        }
        if self.core.hosted.len() < known.len() {
            self.core.hosted.resize(known.len(), Counters::default());
        }
        if let Some(senders) = &mut self.core.access_log {
            senders.set_known(known);
        }
    }

    /// The site's replies as content items of the TCP stack, in the order of [`Site::replies`]. Parts of
    /// files that recur follow them.
    pub(crate) fn prepared(&self) -> &[PreparedReply] {
        &self.core.prepared
    }
}

impl<A: App> Web<A> {
    /// Builds a `Web` that serves `site` and the HTTP application that `make` creates. Adds the
    /// site's replies to the TCP stack's `contents`.
    ///
    /// # Errors
    /// [`ContentError`] if a reply is longer than the stack accepts, or if there are too many
    /// replies. The errors of `make` are also returned.
    pub fn load<E: From<ContentError>>(
        site: Arc<Site>,
        contents: &mut Contents,
        make: impl FnOnce(&mut Replies<'_>) -> Result<A, E>,
    ) -> Result<Self, E> {
        let core = Core::load(site, contents)?;
        Ok(Self {
            app: make(&mut Replies::new(contents, core.site.fields()))?,
            core,
            request_times: RequestTimes::default(),
        })
    }

    /// Sets the current time in seconds since 1970, for the field `Date`.
    pub fn set_second(&mut self, second: u64) {
        self.core.now = Stamp::new(second, self.core.now.closes());
    }

    /// The time set by [`set_second`](Self::set_second), in seconds since 1970.
    pub fn second(&self) -> u64 {
        self.core.now.seconds()
    }

    pub(crate) fn set_access_log(&mut self, senders: Option<AccessLogSenders>) {
        self.core.access_log = senders;
        self.know_sites();
    }

    /// The worker's ends of the access logs, if there are any.
    pub fn access_log(&self) -> Option<&AccessLogSenders> {
        self.core.access_log.as_ref()
    }

    pub(crate) fn set_request_timeout(&mut self, timeout: Duration) {
        self.core.request_timeout = timeout;
    }

    pub(crate) fn set_answer_timeout(&mut self, timeout: Duration) {
        self.core.answer_timeout = timeout;
    }

    /// Same as [`Session::next`], but uses the caches.
    #[inline(always)]
    fn next(&mut self, session: &mut Session, data: &[u8]) -> Step {
        let Core { recent, site, .. } = &mut self.core;
        recent.next(site, session, data)
    }

    /// Answers the complete requests in `data` from the site, as long as there is room to send.
    /// Returns how many bytes were consumed.
    #[inline]
    fn serve(&mut self, conn: &mut Conn<'_, A::State>, data: &[u8]) -> usize {
        let mut consumed = 0;
        while consumed < data.len() {
            let step = self.next(&mut conn.state().session, &data[consumed..]);
            let answer = match &step {
                Step::Answer(answer) => answer,
                Step::More { consumed: more } => {
                    self.core.expect_more(conn);
                    return consumed + more;
                }
            };
            conn.clear_deadline();
            RequestTimes::begin(conn);
            match self.core.send(conn, answer, &data[consumed..]) {
                Ok(Continuation::ReadNext) => consumed += answer.consumed(),
                Ok(Continuation::End) => return data.len(),
                Ok(Continuation::ReadAgain) => return consumed,
                Ok(_) => return consumed + answer.consumed(),
                // The send stream has no room. The stack offers the unconsumed request again when
                // there is room.
                Err(WriteError::Full) => {
                    RequestTimes::postpone(conn);
                    return consumed;
                }
                Err(_) => {
                    conn.abort();
                    return data.len();
                }
            }
        }
        consumed
    }

    /// The site.
    pub fn site(&self) -> &Site {
        &self.core.site
    }

    /// The application.
    pub fn app(&self) -> &A {
        &self.app
    }

    /// Number of pending requests. They wait for their body, for the application, or for room in
    /// the send stream.
    pub fn in_progress(&self) -> usize {
        self.core.pending.len()
    }

    /// Times from a request until the client has acknowledged the whole response. Requests that a
    /// client sends in the meantime are not counted on their own.
    pub fn request_times(&self) -> &Times {
        self.request_times.times()
    }

    /// Number of answered requests, in total and by status.
    pub fn counters(&self) -> &Counters {
        &self.core.counters
    }

    /// The part of [`counters`](Self::counters) that belongs to each of the sites for different hosts, by
    /// their numbers from 1.
    pub(crate) fn hosted_counters(&self) -> &[Counters] {
        &self.core.hosted
    }
}

impl<A: App> Application for Web<A> {
    type State = Conversation<A::State>;
    type Message = A::Message;

    #[inline]
    fn on_receive(&mut self, conn: &mut Conn<'_, A::State>, data: &[u8]) -> usize {
        match A::SEES {
            Sees::Nothing => self.serve(conn, data),
            Sees::Missing | Sees::Everything => self.process(conn, data),
        }
    }

    #[inline]
    fn on_sent(&mut self, conn: &mut Conn<'_, A::State>) {
        if conn.state().download.is_some() && self.core.has_sent_of_download(conn) {
            return;
        }
        if A::SEES == Sees::Nothing {
            self.request_times.end(conn);
            return;
        }
        if self.core.has_no_pending(conn) {
            self.request_times.end(conn);
        }
        self.core.resume_sending(conn);
        self.stream(conn);
    }

    fn on_half_close(&mut self, conn: &mut Conn<'_, A::State>) {
        if A::SEES == Sees::Nothing {
            conn.close();
        } else if self.core.waits_for_application(conn) {
            conn.state().has_ended = true;
        } else if self.core.was_evicted(conn) {
            conn.state().has_ended = true;
            self.core.fail_pending(conn);
        } else {
            conn.close();
        }
    }

    fn on_deadline(&mut self, conn: &mut Conn<'_, A::State>, _: Deadline) {
        if self.core.give_up_login(conn) {
            return;
        }
        if A::SEES == Sees::Nothing || !self.core.fail_pending(conn) {
            conn.close();
        }
    }

    fn on_start<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, Self::State, C>,
    ) {
        let Self { app, core, .. } = self;
        app.on_start(&mut outside::AllClients::new(core, connections));
    }

    fn on_timer<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, Self::State, C>,
        timer: Timer,
    ) {
        let Self { app, core, .. } = self;
        app.on_timer(timer, &mut outside::AllClients::new(core, connections));
        self.resume(connections);
    }

    fn on_message<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, Self::State, C>,
        message: A::Message,
    ) {
        let Self { app, core, .. } = self;
        app.on_message(message, &mut outside::AllClients::new(core, connections));
        self.resume(connections);
    }

    /// Closes the connection unless a request is in progress. The FIN follows the response, if that
    /// is still being sent.
    fn on_drain(&mut self, conn: &mut Conn<'_, A::State>) {
        self.core.begin_drain();
        if self.core.is_between_requests(conn) {
            conn.close();
        }
    }

    #[inline]
    fn on_close(&mut self, _: ConnectionId, conversation: &mut Self::State, reason: CloseReason) {
        if conversation.download.is_some() {
            self.core.downloads.release(conversation.download);
        }
        if let (Login::Waits(number), Some(logins)) = (conversation.login, &mut self.core.logins) {
            logins.forget(number);
        }
        if A::SEES != Sees::Nothing {
            self.core.pending.release(conversation.place);
            self.app.on_close(&mut conversation.state, reason);
        }
    }

    #[inline]
    fn render(&mut self, params: u64, slot: &mut [u8]) {
        self.core.slots.write(Stamp::from_u64(params), slot);
    }
}

#[cfg(test)]
#[path = "web_tests.rs"]
mod tests;
