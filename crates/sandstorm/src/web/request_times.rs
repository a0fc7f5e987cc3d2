//! Times from requests to the last ACKs of their responses.

use nmio::Times;

use super::conversation::Conn;

/// Histogram of the times from a request until the client has acknowledged all of its response.
///
/// If a client sends further requests before it has acknowledged the response, they all count as
/// one, from the first request to the last ACK.
#[derive(Debug, Default)]
pub(super) struct RequestTimes(Times);

impl RequestTimes {
    /// Notes that the head of a request is complete.
    #[inline(always)]
    pub(super) fn begin<S>(conn: &mut Conn<'_, S>) {
        let now = conn.now();
        conn.state().asked_at.get_or_insert(now);
    }

    /// Notes that a request waits for memory, and is offered again. Unless the client is to
    /// acknowledge an earlier response, the time begins when the request is answered.
    #[cold]
    pub(super) fn postpone<S>(conn: &mut Conn<'_, S>) {
        if !conn.has_unacknowledged() {
            conn.state().asked_at = None;
        }
    }

    /// Counts a time if the client has acknowledged everything.
    #[inline(always)]
    pub(super) fn end<S>(&mut self, conn: &mut Conn<'_, S>) {
        if conn.has_unacknowledged() {
            return;
        }
        let now = conn.now();
        if let Some(asked_at) = conn.state().asked_at.take() {
            let nanos = now.as_nanos().saturating_sub(asked_at.as_nanos());
            self.0.count((nanos / 1_000).min(u32::MAX.into()) as u32);
        }
    }

    pub(super) fn times(&self) -> &Times {
        &self.0
    }
}
