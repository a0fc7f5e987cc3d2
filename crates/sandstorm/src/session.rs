//! One connection's HTTP, without the connection: bytes in, replies out.

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

/// What is to be done with the bytes that a client has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is no whole request yet. The first `consumed` bytes are done
    /// with; offer the rest again when there is more behind it.
    More {
        /// Bytes that are no longer needed.
        consumed: usize,
    },
    /// A request, and its answer.
    Answer(Answer),
}

/// The answer to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What to send.
    pub reply: ReplyId,
    /// Nothing comes after it: close, and read no more.
    pub close: bool,
    /// Bytes of the request, and of empty lines in front of it.
    pub consumed: usize,
    /// Where a query begins that the answer, a redirect, keeps: so many bytes
    /// before the end of what is consumed. 0 when there is none.
    query_from_end: u16,
}

/// What is remembered of a connection between two arrivals of bytes.
///
/// # Calling contract
/// [`next`](Self::next) gets all bytes that were received and not consumed,
/// again and again until it asks for [`Step::More`]. Bytes of an answered
/// request count as consumed only when the answer was taken: if it could not
/// be sent yet, call with the same bytes later. After an answer that closes,
/// there is no next one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Session {
    /// Bytes at the start of what is not consumed that hold no whole request.
    searched: u16,
}

const _: () = assert!(HEAD_LIMIT <= u16::MAX as usize);

impl Session {
    /// Nothing was offered that is not consumed: the next step depends on
    /// the site and the bytes alone.
    #[inline(always)]
    pub(crate) fn is_fresh(self) -> bool {
        self.searched == 0
    }

    /// Answers the first request in `data`, if it is whole.
    #[inline]
    pub fn next(&mut self, site: &Site, data: &[u8]) -> Step {
        self.read(site, data, |_| ())
    }

    /// As [`next`](Self::next) of a [fresh](Self::is_fresh) session, by memory of
    /// what fields say. They are the same for most of a client's requests.
    #[inline]
    pub(crate) fn next_by(
        &mut self,
        site: &Site,
        data: &[u8],
        known: &mut RecentCache<Fields>,
    ) -> Step {
        let Some(line_len) = line_len(data) else {
            return self.next(site, data);
        };
        let (line, fields) = data.split_at(line_len);
        match known.find(fields) {
            Ok(fields) => match parse_line(line, fields) {
                Some(request) => Step::Answer(answer(site, &request, data)),
                None => self.next(site, data),
            },
            Err(place) => self.read(site, data, |request| {
                if let Some(value) = request.known_fields(line_len) {
                    known.remember(place, fields, value);
                }
            }),
        }
    }

    /// Answers the first request in `data`, and shows it to `learn`, if it is
    /// whole.
    #[inline]
    fn read(&mut self, site: &Site, data: &[u8], learn: impl FnOnce(&Head<'_>)) -> Step {
        let mut fields = field_buffer();
        match self.find(data, &mut fields) {
            Found::Head { head, skipped } => {
                // What stands behind an empty line are no fields.
                if skipped == 0 {
                    learn(&head);
                }
                Step::Answer(answer(site, &head, &data[skipped..])).after(skipped)
            }
            Found::More { consumed } => Step::More { consumed },
            Found::Refused(refusal) => Step::Answer(refuse(refusal, data)),
            Found::LaterMinor { skipped, digit_at } => {
                let head = as_1_1(&data[skipped..], digit_at);
                self.next(site, &head).after(skipped)
            }
        }
    }

    /// Looks for the head of the first request in `data`.
    #[inline(always)]
    pub(crate) fn find<'f, 'd>(
        &mut self,
        data: &'d [u8],
        fields: &'f mut FieldBuffer<'d>,
    ) -> Found<'f> {
        // RFC 9112, section 2.2: empty lines before a request mean nothing.
        let mut skipped = 0;
        while data[skipped..].starts_with(b"\r\n") {
            skipped += 2;
        }
        let data = &data[skipped..];
        let searched = usize::from(self.searched).saturating_sub(skipped);
        let news = data.get(searched..).unwrap_or_default();
        let more = Found::More { consumed: skipped };
        // Only a line's end can make a request whole: a client that sends
        // byte by byte must not have its head parsed as often.
        if searched > 0 && data.len() < HEAD_LIMIT && !news.contains(&b'\n') {
            self.searched = data.len() as u16;
            return more;
        }
        match parse(data, fields) {
            Ok(Some(head)) => {
                self.searched = 0;
                Found::Head { head, skipped }
            }
            Ok(None) => {
                self.searched = data.len() as u16;
                more
            }
            Err(not_read) => {
                self.searched = 0;
                match not_read {
                    NotRead::Refused(refusal) => Found::Refused(refusal),
                    NotRead::LaterMinor { digit_at } => Found::LaterMinor { skipped, digit_at },
                }
            }
        }
    }
}

/// What stands at the start of some bytes.
pub(crate) enum Found<'f> {
    /// No whole head yet. The first `consumed` bytes are done with.
    More { consumed: usize },
    /// A head, behind so many bytes that mean nothing.
    Head { head: Head<'f>, skipped: usize },
    /// What is to be answered with an error.
    Refused(Refusal),
    /// A head to be read [`as_1_1`].
    LaterMinor { skipped: usize, digit_at: usize },
}

/// The start of `data`, with a version whose last digit, at `digit_at`, is a 1.
#[cold]
pub(crate) fn as_1_1(data: &[u8], digit_at: usize) -> ArrayVec<u8, HEAD_LIMIT> {
    let head = data.iter().copied().take(HEAD_LIMIT);
    let mut head = head.collect::<ArrayVec<u8, HEAD_LIMIT>>();
    head[digit_at] = b'1';
    head
}

/// The answer to what is no request. All of `data` is done with.
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
    /// The same, with `skipped` bytes in front.
    #[inline(always)]
    fn after(mut self, skipped: usize) -> Self {
        match &mut self {
            Self::More { consumed } | Self::Answer(Answer { consumed, .. }) => *consumed += skipped,
        }
        self
    }
}

/// The answer to a request at the start of `data`.
#[inline]
pub(crate) fn answer(site: &Site, request: &Head<'_>, data: &[u8]) -> Answer {
    let with = |reply| Answer {
        reply,
        close: !request.keep_alive,
        consumed: request.len,
        query_from_end: 0,
    };
    let head_only = match request.method {
        Method::Get => false,
        Method::Head => true,
        Method::OfNoFile => return with(Site::shared(Status::MethodNotAllowed, false)),
        Method::Unknown => return with(Site::shared(Status::NotImplemented, false)),
    };
    let shared = |status| with(Site::shared(status, head_only));
    let refused = Answer {
        close: true,
        ..shared(Status::BadRequest)
    };
    let Some(target) = request.page() else {
        return refused;
    };
    match site.find(target.path.as_bytes()) {
        Ok(Page::File(file)) => match request.precondition(file.tag, Some(file.modified)) {
            None => with(file.whole(head_only)),
            Some(Status::NotModified) => with(file.not_modified()),
            Some(status) => shared(status),
        },
        Ok(Page::Redirect(first)) => Answer {
            query_from_end: query_from_end(request.len, target.query.unwrap_or_default(), data),
            ..with(redirect_reply(*first, head_only))
        },
        Err(NoPage::Unknown) => shared(Status::NotFound),
        Err(NoPage::BadEncoding) => refused,
    }
}

/// Bytes from the start of a target's query to the end of the request, which
/// has `len` bytes and stands at the start of `data`; 0 without a query.
#[cold]
fn query_from_end(len: usize, query: &str, data: &[u8]) -> u16 {
    if query.is_empty() {
        return 0;
    }
    // The query is the target's end, and the target the second word.
    let mut spaces = data.iter().enumerate().filter(|(_, b)| **b == b' ');
    let target_end = spaces.nth(1).map_or(len, |(at, _)| at);
    (len - target_end + query.len()) as u16
}

impl Answer {
    /// The reply itself. A redirect is sent with the request's query.
    pub fn of<'s>(&self, site: &'s Site) -> &'s Reply {
        site.reply(self.reply)
    }

    /// Whether the reply is a redirect that must keep the request's query, so
    /// that it is not sent as it was prepared.
    #[inline(always)]
    pub(crate) fn keeps_query(&self) -> bool {
        self.query_from_end != 0
    }

    /// Adds to `out` what is sent with `stamp`: the whole response to the
    /// request in `data`, the bytes that [`Session::next`] was called with.
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
