//! The HTTP protocol of one connection, independent of the network: turns received bytes into
//! replies.

use arrayvec::ArrayVec;

use crate::date::{SlotWriter, Stamp};
use crate::head::{
    FieldBuffer, Fields, HEAD_LIMIT, Head, Method, NotRead, Refusal, field_buffer, line_len, parse,
    parse_line,
};
use crate::recent_cache::RecentCache;
use crate::reply::Reply;
use crate::site::{NoPage, Page, ReplyId, Site, redirect_reply};
use crate::status::Status;

/// The result of processing the bytes that a client has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// No complete request has arrived yet. The caller must discard the first `consumed` bytes, and
    /// pass the remaining bytes again together with new ones.
    More {
        /// Number of bytes to discard.
        consumed: usize,
    },
    /// A complete request has arrived. The value is its answer.
    Answer(Answer),
}

/// The answer to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The reply to send.
    pub reply: ReplyId,
    /// Whether the connection must be closed after this reply. If so, no later request is read.
    pub close: bool,
    /// Number of bytes to consume: empty lines before the request, and its head. After an invalid
    /// head, the bytes that follow it are also included.
    pub consumed: usize,
    /// Distance in bytes from the start of the query component to the end of the consumed bytes,
    /// for a redirect that must keep the query. Otherwise 0.
    query_from_end: u16,
}

/// The HTTP state of one connection.
///
/// # Calling contract
/// Call [`next`](Self::next) with all received bytes that were not consumed, until it returns
/// [`Step::More`]. Consume the bytes of a request only after its answer was accepted for sending.
/// If there was no room for the answer, call `next` again later with the same bytes. Do not call
/// `next` again after an answer that closes the connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Session {
    /// Number of unconsumed bytes that were already searched for a complete request, without
    /// success.
    searched: u16,
}

const _: () = assert!(HEAD_LIMIT <= u16::MAX as usize);

impl Session {
    /// Returns true if no unconsumed bytes were searched before without success. In this case, the
    /// next step depends only on the site and the bytes passed, so a cache can be used.
    #[inline(always)]
    pub(crate) fn is_fresh(self) -> bool {
        self.searched == 0
    }

    /// Answers the first request in `data` if it is complete.
    #[inline]
    pub fn next(&mut self, site: &Site, data: &[u8]) -> Step {
        self.read(site, data, |_| ())
    }

    /// Same as [`next`](Self::next) for a [fresh](Self::is_fresh) session, but with a cache of
    /// parsed fields. The cache helps because most requests of a client contain the same fields.
    #[inline]
    pub(crate) fn next_by(
        &mut self,
        site: &Site,
        data: &[u8],
        cache: &mut RecentCache<Fields>,
    ) -> Step {
        let Some(line_len) = line_len(data) else {
            return self.next(site, data);
        };
        let (line, fields) = data.split_at(line_len);
        match cache.find(fields) {
            Ok(fields) => match parse_line(line, fields) {
                Some(request) => Step::Answer(answer(site, &request, data)),
                None => self.next(site, data),
            },
            Err(place) => self.read(site, data, |request| {
                if let Some(value) = request.known_fields(line_len) {
                    cache.remember(place, fields, value);
                }
            }),
        }
    }

    /// Answers the first request in `data` if it is complete. Passes the request's head to
    /// `cache_fields` if its fields may be cached.
    #[inline]
    fn read(&mut self, site: &Site, data: &[u8], cache_fields: impl FnOnce(&Head<'_>)) -> Step {
        let mut fields = field_buffer();
        match self.find(data, &mut fields) {
            HeadSearch::Head { head, skipped } => {
                // The cache treats everything after the first line as fields. After an empty first
                // line, the request line would be treated as a field.
                if skipped == 0 {
                    cache_fields(&head);
                }
                Step::Answer(answer(site, &head, &data[skipped..])).skip(skipped)
            }
            HeadSearch::More { consumed } => Step::More { consumed },
            HeadSearch::Refused(refusal) => Step::Answer(refuse(refusal, data)),
            HeadSearch::LaterMinor { skipped, digit_at } => {
                let head = as_http_1_1(&data[skipped..], digit_at);
                self.next(site, &head).skip(skipped)
            }
        }
    }

    /// Finds the head of the first request in `data`.
    #[inline(always)]
    pub(crate) fn find<'f, 'd>(
        &mut self,
        data: &'d [u8],
        fields: &'f mut FieldBuffer<'d>,
    ) -> HeadSearch<'f> {
        // Empty lines before a request are ignored (RFC 9112, section 2.2).
        let mut skipped = 0;
        while data[skipped..].starts_with(b"\r\n") {
            skipped += 2;
        }
        let data = &data[skipped..];
        let searched = usize::from(self.searched).saturating_sub(skipped);
        let unsearched = data.get(searched..).unwrap_or_default();
        let more = HeadSearch::More { consumed: skipped };
        // Only a line feed can complete a head, so parse again only if one has arrived. Otherwise a
        // head that arrives byte by byte would be parsed for each byte.
        if searched > 0 && data.len() < HEAD_LIMIT && !unsearched.contains(&b'\n') {
            self.searched = data.len() as u16;
            return more;
        }
        match parse(data, fields) {
            Ok(Some(head)) => {
                self.searched = 0;
                HeadSearch::Head { head, skipped }
            }
            Ok(None) => {
                self.searched = data.len() as u16;
                more
            }
            Err(not_read) => {
                self.searched = 0;
                match not_read {
                    NotRead::Refused(refusal) => HeadSearch::Refused(refusal),
                    NotRead::LaterMinor { digit_at } => {
                        HeadSearch::LaterMinor { skipped, digit_at }
                    }
                }
            }
        }
    }
}

/// The result of looking for a head.
pub(crate) enum HeadSearch<'f> {
    /// No complete head has arrived yet. The first `consumed` bytes can be discarded.
    More { consumed: usize },
    /// A head, after `skipped` bytes of empty lines.
    Head { head: Head<'f>, skipped: usize },
    /// An invalid request, to be answered with an error.
    Refused(Refusal),
    /// The head of a request with a later minor version. The caller must change it with
    /// [`as_http_1_1`] and parse it again. `digit_at` is the offset of the version digit from the
    /// start of the head.
    LaterMinor { skipped: usize, digit_at: usize },
}

/// Copies the head at the start of `data`, and replaces the version digit at `digit_at` with a 1.
#[cold]
pub(crate) fn as_http_1_1(data: &[u8], digit_at: usize) -> ArrayVec<u8, HEAD_LIMIT> {
    let head = data.iter().copied().take(HEAD_LIMIT);
    let mut head = head.collect::<ArrayVec<u8, HEAD_LIMIT>>();
    head[digit_at] = b'1';
    head
}

/// Returns the answer to an invalid request. All of `data` counts as consumed, because the
/// connection closes.
pub(crate) fn refuse(refusal: Refusal, data: &[u8]) -> Answer {
    let Refusal { status, head_only } = refusal;
    Answer {
        reply: Site::shared(status, head_only),
        close: true,
        consumed: data.len(),
        query_from_end: 0,
    }
}

impl Step {
    /// Adds `skipped` to the number of consumed bytes.
    #[inline(always)]
    fn skip(mut self, skipped: usize) -> Self {
        match &mut self {
            Self::More { consumed } | Self::Answer(Answer { consumed, .. }) => *consumed += skipped,
        }
        self
    }
}

/// Returns the site's answer to the request at the start of `data`.
#[inline]
pub(crate) fn answer(site: &Site, request: &Head<'_>, data: &[u8]) -> Answer {
    let reply_with = |reply| Answer {
        reply,
        close: !request.keep_alive,
        consumed: request.len,
        query_from_end: 0,
    };
    let head_only = match request.method {
        Method::Get => false,
        Method::Head => true,
        Method::OfNoFile => return reply_with(Site::shared(Status::MethodNotAllowed, false)),
        Method::Unknown => return reply_with(Site::shared(Status::NotImplemented, false)),
    };
    let shared = |status| reply_with(Site::shared(status, head_only));
    let bad_request = Answer {
        close: true,
        ..shared(Status::BadRequest)
    };
    let Some(target) = request.page() else {
        return bad_request;
    };
    match site.find(target.path.as_bytes()) {
        Ok(Page::File(file)) => match request.precondition(file.tag, Some(file.modified)) {
            None => reply_with(file.content_reply(head_only)),
            Some(Status::NotModified) => reply_with(file.not_modified()),
            Some(status) => shared(status),
        },
        Ok(Page::Redirect(first)) => Answer {
            query_from_end: query_from_end(request.len, target.query.unwrap_or_default(), data),
            ..reply_with(redirect_reply(*first, head_only))
        },
        Err(NoPage::Unknown) => shared(Status::NotFound),
        Err(NoPage::BadEncoding) => bad_request,
    }
}

/// Returns the distance in bytes from the start of the query to the end of the request, or 0 if
/// there is no query. The request is at the start of `data` and is `len` bytes long.
#[cold]
fn query_from_end(len: usize, query: &str, data: &[u8]) -> u16 {
    if query.is_empty() {
        return 0;
    }
    // The query is at the end of the target, and the target is the second word of the request line.
    let mut spaces = data.iter().enumerate().filter(|(_, b)| **b == b' ');
    let target_end = spaces.nth(1).map_or(len, |(at, _)| at);
    (len - target_end + query.len()) as u16
}

impl Answer {
    /// Returns the prepared reply. In a redirect, it lacks the request's query, which
    /// [`write`](Self::write) adds.
    pub fn of<'s>(&self, site: &'s Site) -> &'s Reply {
        site.reply(self.reply)
    }

    /// Returns true if the reply is a redirect that must keep the request's query. If so, the
    /// prepared reply cannot be sent unchanged.
    #[inline(always)]
    pub(crate) fn keeps_query(&self) -> bool {
        self.query_from_end != 0
    }

    /// Appends the complete response to `out`, with `stamp` in its slot. `data` must be the bytes
    /// that were passed to [`Session::next`].
    pub fn write(
        &self,
        site: &Site,
        data: &[u8],
        stamp: Stamp,
        slots: &mut SlotWriter,
        out: &mut Vec<u8>,
    ) {
        let mut query: &[u8] = &[];
        if self.keeps_query() {
            let from = self.consumed - usize::from(self.query_from_end);
            let rest = &data[from..];
            let end = rest.iter().position(|b| *b == b' ');
            query = &rest[..end.unwrap_or(rest.len())];
        }
        self.of(site).write(query, stamp, slots, out);
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
