//! Counts and logs answers.

use std::net::SocketAddr;

use super::conversation::Conn;
use super::core::Core;
use crate::access_log::LogEntry;
use crate::known_sites::HostedId;
use crate::request::Request;
use crate::status::{Status, StatusCode};

impl Core {
    /// Counts an answer of a hosted site.
    #[inline(always)]
    pub(super) fn count_own(&mut self, site: HostedId, status: Status) {
        self.counters.count(status);
        if site != HostedId::default()
            && let Some(hosted) = self.hosted.get_mut(usize::from(site.0) - 1)
        {
            hosted.count(status);
        }
    }

    fn count(&mut self, status: StatusCode) {
        self.counters.requests += 1;
        let class = usize::from(status.code() / 100).wrapping_sub(2);
        if let Some(count) = self.counters.of_app.get_mut(class) {
            *count += 1;
        }
    }

    /// Counts and logs an answer of the application.
    pub(super) fn count_and_log(
        &mut self,
        peer: SocketAddr,
        request: &Request<'_>,
        status: StatusCode,
        body_len: usize,
    ) {
        self.count(status);
        self.log_request(peer, request, status, body_len);
    }

    /// Logs an answer to `request`, whose body has `body_len` bytes if it is sent.
    pub(super) fn log_request(
        &mut self,
        peer: SocketAddr,
        request: &Request<'_>,
        status: StatusCode,
        body_len: usize,
    ) {
        let body_len = if request.is_head() { 0 } else { body_len };
        let site = HostedId::default();
        self.log(peer, site, status, body_len, request.received());
    }

    /// Logs an answer of a hosted site to a connection's client, if there is a log.
    #[inline(never)]
    pub(super) fn log_sent<S>(
        &mut self,
        conn: &Conn<'_, S>,
        (site, status): (HostedId, Status),
        body_len: usize,
        head: &[u8],
    ) {
        self.log(conn.peer(), site, status.into(), body_len, head);
    }

    /// Logs an answer of a hosted site, if there is a log.
    #[inline(always)]
    fn log(
        &mut self,
        peer: SocketAddr,
        site: HostedId,
        status: StatusCode,
        body_len: usize,
        head: &[u8],
    ) {
        if let Some(senders) = &mut self.access_log {
            let entry = LogEntry {
                second: self.now.seconds(),
                peer,
                status: status.code(),
                site,
                body_len: body_len as u64,
            };
            senders.send(entry, head);
        }
    }
}
