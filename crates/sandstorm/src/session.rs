//! One connection's HTTP, without the connection: bytes in, replies out.

use crate::reply::{Reply, Status};
use crate::request::{HEAD_LIMIT, Method, Refusal, Request, field_buffer, parse};
use crate::site::{NoPage, Page, ReplyId, Site, redirect_reply};

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
}

impl Answer {
    /// In the place of one that is yet to come.
    pub(crate) const NONE: Self = Self {
        reply: ReplyId(u32::MAX),
        close: true,
        consumed: 0,
    };
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
        // RFC 9112, section 2.2: empty lines before a request mean nothing.
        let mut skipped = 0;
        while data[skipped..].starts_with(b"\r\n") {
            skipped += 2;
        }
        let data = &data[skipped..];
        let searched = usize::from(self.searched).saturating_sub(skipped);
        let news = data.get(searched..).unwrap_or_default();
        // Only a line's end can make a request whole: a client that sends
        // byte by byte must not have its head parsed as often.
        if searched > 0 && data.len() < HEAD_LIMIT && !news.contains(&b'\n') {
            self.searched = data.len() as u16;
            return Step::More { consumed: skipped };
        }
        let mut fields = field_buffer();
        let (reply, close, len) = match parse(data, &mut fields) {
            Ok(Some(request)) => {
                let (reply, done) = answer(site, &request);
                (reply, done || !request.keep_alive, request.len)
            }
            Ok(None) => {
                self.searched = data.len() as u16;
                return Step::More { consumed: skipped };
            }
            Err(Refusal { status, head_only }) => {
                (Site::shared(status, head_only), true, data.len())
            }
        };
        self.searched = 0;
        Step::Answer(Answer {
            reply,
            close,
            consumed: skipped + len,
        })
    }
}

/// The reply to a request, and whether the connection must end with it.
#[inline]
fn answer(site: &Site, request: &Request<'_, '_>) -> (ReplyId, bool) {
    let head_only = match request.method {
        Method::Get => false,
        Method::Head => true,
        Method::OfNoFile => return (Site::shared(Status::MethodNotAllowed, false), false),
        Method::Unknown => return (Site::shared(Status::NotImplemented, false), false),
    };
    let shared = |status| Site::shared(status, head_only);
    let Some(path) = request.path() else {
        return (shared(Status::BadRequest), true);
    };
    let reply = match site.find(path) {
        Ok(Page::File(file)) => match request.precondition(file) {
            None => file.whole(head_only),
            Some(Status::NotModified) => file.not_modified(),
            Some(status) => shared(status),
        },
        Ok(Page::Redirect(first)) => redirect_reply(*first, head_only),
        Err(NoPage::Unknown) => shared(Status::NotFound),
        Err(NoPage::BadEncoding) => return (shared(Status::BadRequest), true),
    };
    (reply, false)
}

impl Answer {
    /// The reply itself.
    pub fn of<'s>(&self, site: &'s Site) -> &'s Reply {
        site.reply(self.reply)
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
