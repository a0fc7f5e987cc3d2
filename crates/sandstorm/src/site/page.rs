//! What a path leads to.

use arrayvec::ArrayVec;

use crate::accept::Accepted;
use crate::coding::Coding;
use crate::etag::ETag;

/// Identifies a [`Reply`](crate::reply::Reply) of one [`Site`](crate::Site).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplyId(pub(crate) u32);

impl ReplyId {
    /// The index of the reply in [`Site::replies`](crate::Site::replies).
    #[inline(always)]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the reply for HEAD, which follows this one, if `head_only` is set.
    #[inline(always)]
    pub(crate) fn or_head(self, head_only: bool) -> Self {
        Self(self.0 + u32::from(head_only))
    }
}

/// What a path leads to. All replies of a file, of a redirect, or of an error are adjacent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Page {
    File(FilePage),
    /// A file with several codings. The number is the index of its [`Variants`].
    Negotiated(u32),
    Redirect {
        /// The id of the redirect for GET. The next reply is the redirect for HEAD.
        first: ReplyId,
        /// Whether the location gets the request's query.
        keeps_query: bool,
    },
    /// A redirect whose location depends on the path: the index of its rule, and the id of the reply
    /// for GET, which lacks the location.
    Rule {
        rule: u16,
        first: ReplyId,
    },
    /// An error: the id of the reply for GET. The next reply is the one for HEAD.
    Error(ReplyId),
}

/// The prepared replies for a file, and the tag and time for evaluating preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilePage {
    /// The reply with the whole file. The reply with status 304 follows.
    pub(crate) first: ReplyId,
    /// The tag, or `None` if the content is not known yet.
    pub(crate) tag: Option<ETag>,
    /// The time of `Last-Modified`, in seconds since 1970.
    pub(crate) modified: i64,
}

impl FilePage {
    /// Number of replies.
    pub(crate) const REPLIES: usize = 2;

    /// The reply with the whole file. Its head is also the response to HEAD.
    #[inline(always)]
    pub(crate) fn whole(&self) -> ReplyId {
        self.first
    }

    /// The ids of all replies.
    pub(crate) fn replies(&self) -> [ReplyId; Self::REPLIES] {
        [self.whole(), self.not_modified()]
    }

    pub(crate) fn not_modified(&self) -> ReplyId {
        ReplyId(self.first.0 + 1)
    }
}

/// A file without a coding and with codings. Each form has replies of its own.
#[derive(Clone, Debug)]
pub(crate) struct Variants {
    pub(crate) plain: FilePage,
    /// The coded forms, shortest first. All are shorter than the plain form.
    pub(crate) coded: ArrayVec<CodedPage, { Coding::ALL.len() }>,
}

/// A coded form of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodedPage {
    pub(crate) coding: Coding,
    pub(crate) page: FilePage,
    /// Whether the server has made this form, and not found it in a file.
    pub(crate) is_made: bool,
}

impl Variants {
    /// Returns the form that the client wants most. Of several, returns the shortest one. A client
    /// that accepts no form gets the plain one (RFC 9110, section 12.5.3).
    #[inline]
    pub(crate) fn choose(&self, accepted: Accepted) -> &FilePage {
        let mut best = (&self.plain, accepted.identity().max(1));
        // Longer forms come first, so that shorter ones win.
        for one in self.coded.iter().rev() {
            let quality = accepted.quality(one.coding);
            if quality >= best.1 {
                best = (&one.page, quality);
            }
        }
        best.0
    }

    /// Returns the form with this coding, if there is one.
    pub(crate) fn coded(&self, coding: Coding) -> Option<&CodedPage> {
        self.coded.iter().find(|one| one.coding == coding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accept::AcceptEncoding;

    #[test]
    fn the_form_that_the_client_wants_most_is_chosen_and_of_several_the_shortest() {
        let page = |first| FilePage {
            first: ReplyId(first),
            tag: None,
            modified: 0,
        };
        let variants = Variants {
            plain: page(0),
            coded: [(Coding::Zstd, page(1)), (Coding::Gzip, page(2))]
                .into_iter()
                .map(|(coding, page)| CodedPage {
                    coding,
                    page,
                    is_made: false,
                })
                .collect(),
        };
        for (value, chosen) in [
            ("", 0),
            ("gzip", 2),
            ("gzip, zstd", 1),
            ("zstd;q=0.1, gzip;q=0.2", 2),
            ("zstd;q=0.001", 1),
            ("br", 0),
            ("identity, gzip;q=0.9", 0),
            ("identity, gzip", 2),
            ("*", 1),
            ("*;q=0", 0),
            ("identity;q=0", 0),
            ("identity;q=0, gzip;q=0.5", 2),
        ] {
            let mut field = AcceptEncoding::default();
            field.add(value.as_bytes());
            let page = variants.choose(field.accepted());
            assert_eq!(page.first.0, chosen, "{value}");
        }
        assert_eq!(variants.choose(Accepted::PLAIN).first.0, 0);
    }
}
