//! The answer to a request: a prepared reply, and how the response differs from it.

use crate::head::Head;
use crate::reply::Reply;
use crate::site::{ReplyId, Site};

/// The answer to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The reply to send.
    pub reply: ReplyId,
    /// Whether the connection must be closed after this reply. If so, no later request is read.
    pub close: bool,
    /// See [`consumed`](Self::consumed). It has 32 bits, because caches hold many answers.
    pub(crate) consumed: u32,
    /// How the response differs from the reply.
    pub(crate) form: AnswerForm,
}

/// How a response differs from its prepared reply. Positions in the request are distances in bytes
/// from the end of the consumed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerForm {
    /// Not at all.
    Whole,
    /// It is only the head of a file's reply.
    Head,
    /// It lists the methods for a file, with the fields of its head. Browsers ask for them before some
    /// requests from other sites.
    Options,
    /// It is a redirect that keeps the request's query, which begins at `from_end`.
    WithQuery { from_end: u16 },
    /// It is a redirect whose location follows from the request's path, by the rule with this index.
    /// The path begins at `from_end` and is `len` bytes long. It is `/` if `len` is 0.
    ByRule { rule: u16, from_end: u16, len: u16 },
    /// It has only the bytes of the file from `first` to `end`. `recurs` tells that the same request was
    /// read before. It may be the same one if there was no room for its response.
    Part { first: u32, end: u32, recurs: bool },
    /// It has several parts of the file, or one that ends beyond 4 GiB. The value of `Range`, which begins at `from_end` and is `len`
    /// bytes long, names them.
    Parts { from_end: u16, len: u16 },
    /// The file has none of the bytes that the client asks for. This is its site's page with status 416.
    NoPart { page: ReplyId },
    /// It is an error with the fields that rules have for the request's path. The path begins at
    /// `from_end` and is `len` bytes long. It is `/` if `len` is 0.
    Error { from_end: u16, len: u16 },
    /// The reply asks for a name and a password, and the request may have the right ones. They are the
    /// value of `Authorization`, which begins at `from_end` and is `len` bytes long.
    Login { from_end: u16, len: u16 },
}

impl Answer {
    /// The answer to `request` with this reply.
    #[inline(always)]
    pub(crate) fn with(reply: ReplyId, request: &Head<'_>) -> Self {
        Self {
            reply,
            close: !request.keep_alive,
            consumed: request.len as u32,
            form: AnswerForm::Whole,
        }
    }

    /// Returns the answer whose prepared reply is sent unchanged.
    pub(crate) fn whole(&self) -> Self {
        Self {
            form: AnswerForm::Whole,
            ..*self
        }
    }

    /// Returns the answer to the same request when it comes again.
    pub(crate) fn for_repeats(mut self) -> Self {
        if let AnswerForm::Part { recurs, .. } = &mut self.form {
            *recurs = true;
        }
        self
    }

    /// Number of bytes to consume: empty lines before the request, and its head. After an invalid
    /// head, the bytes that follow it are also included.
    #[inline(always)]
    pub fn consumed(&self) -> usize {
        self.consumed as usize
    }

    /// Returns the prepared reply. In a redirect, it lacks the request's query. If the client asks for
    /// the head or for a part of a file, it has the whole file. [`write`](Self::write) writes the actual response.
    pub fn of<'s>(&self, site: &'s Site) -> &'s Reply {
        site.reply(self.reply)
    }

    /// Returns true if the prepared reply is sent unchanged.
    #[inline(always)]
    pub(crate) fn is_whole(&self) -> bool {
        // The derived comparison costs more.
        matches!(self.form, AnswerForm::Whole)
    }
}
