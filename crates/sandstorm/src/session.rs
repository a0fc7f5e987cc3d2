//! The HTTP protocol of one connection, independent of the network: turns received bytes into
//! replies.

use std::ops::Range;

use arrayvec::ArrayVec;

use crate::accept::Accepted;
use crate::answer::{Answer, AnswerForm};
use crate::head::{
    FieldBuffer, HEAD_LIMIT, Head, Method, NotRead, ParsedFields, Refusal, Target, field_buffer,
    line_len, parse, parse_line,
};
use crate::ranges::Selection;
use crate::recent_cache::{CachePlace, RecentCache};
use crate::site::{ByHost, NoPage, Page, ReplyId, Site};
use crate::status::Status;

/// A cache of the site's answers to complete requests. Longer requests have many fields, as those of
/// browsers have. They seldom recur whole, so a second hash and copy would cost more than they save.
pub(crate) type RecentAnswers = RecentCache<Answer, 472>;

/// A cache of request fields, by all bytes after the request line. The longest key is about the longest
/// request in one packet.
pub(crate) type RecentFields = RecentCache<Known, 1_488>;

const _: () = assert!(RecentAnswers::ENTRY_SIZE == 512 && RecentFields::ENTRY_SIZE == 1_536);

/// What is known of requests with these fields.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Known {
    /// The parsed fields.
    Fields(ParsedFields),
    /// The answer to a long request with preconditions or ranges. It is for the request line that was
    /// remembered with the fields. Some fields come with many lines, such as `Range: bytes=0-`. Only the
    /// latest of these lines is known.
    Answer(Answer),
}

/// The field that lets other sites use a file.
const ALLOW_ORIGIN: &str = "access-control-allow-origin";

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
        self.read(site, data, Visitor::Unknown, ignore)
    }

    /// Answers the first request in `data`, which is complete, as if its credentials were right.
    #[cold]
    pub(crate) fn admit(site: &Site, data: &[u8]) -> Step {
        Self::default().read(site, data, Visitor::Known, ignore)
    }

    /// Same as [`next`](Self::next) for a [fresh](Self::is_fresh) session, but with a cache of
    /// fields. The cache helps because most requests of a client contain the same fields.
    /// `keeps_answers` tells whether it also gets the answers to requests with preconditions or ranges.
    #[inline]
    pub(crate) fn next_by(
        &mut self,
        site: &Site,
        data: &[u8],
        cache: &mut RecentFields,
        keeps_answers: bool,
    ) -> Step {
        let Some(line_len) = line_len(data) else {
            return self.next(site, data);
        };
        let (line, fields) = data.split_at(line_len);
        let place = match cache.find_with_more(fields) {
            Ok((Known::Fields(known), _)) => match parse_line(line, known) {
                Some(request) if site.by_host().is_some() => {
                    let request = request.with_known_host(known, fields);
                    return Step::Answer(answer(site, &request, data));
                }
                Some(request) => {
                    let answer = answer_of(site, &request, data, Visitor::Unknown);
                    return Step::Answer(answer);
                }
                None => return self.next(site, data),
            },
            Ok((Known::Answer(answer), known)) if known == line => return Step::Answer(answer),
            Ok(_) => Some(CachePlace::of(fields)),
            Err(place) => place,
        };
        self.read(site, data, Visitor::Unknown, |request, answer| {
            if let Some(known) = request.known_fields(line_len, fields) {
                cache.remember(place, fields, Known::Fields(known));
            } else if keeps_answers && request.depends_on_version() {
                let known = Known::Answer(answer.for_repeats());
                cache.remember_with_more(place, fields, line, known);
            }
        })
    }

    /// Changes the answer to a long request that has come again. Returns the entry with the answer, or `None`
    /// if there is none.
    pub(crate) fn replace_answer(
        cache: &mut RecentFields,
        data: &[u8],
        answer: Answer,
    ) -> Option<CachePlace> {
        let (line, fields) = data.split_at(line_len(data)?);
        cache.replace(fields, line, Known::Answer(answer))
    }

    /// Answers the first request in `data` if it is complete. Passes the request's head and the answer to
    /// `remember` if they may be remembered.
    #[inline]
    fn read(
        &mut self,
        site: &Site,
        data: &[u8],
        visitor: Visitor,
        remember: impl FnOnce(&Head<'_>, &Answer),
    ) -> Step {
        let mut fields = field_buffer();
        match self.find(data, &mut fields) {
            HeadSearch::Head { head, skipped } => {
                let answer = answer_to(site, &head, &data[skipped..], visitor);
                // The cache treats everything after the first line as fields. After an empty first
                // line, the request line would be treated as a field.
                if skipped == 0 {
                    remember(&head, &answer);
                }
                Step::Answer(answer).skip(skipped)
            }
            HeadSearch::More { consumed } => Step::More { consumed },
            HeadSearch::Refused(refusal) => Step::Answer(refuse(site, refusal, data)),
            HeadSearch::LaterMinor { skipped, digit_at } => {
                let head = as_http_1_1(&data[skipped..], digit_at);
                self.read(site, &head, visitor, ignore).skip(skipped)
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
                    NotRead::Refused(mut refusal) => {
                        refusal.host.0 += skipped as u32;
                        HeadSearch::Refused(refusal)
                    }
                    NotRead::LaterMinor { digit_at } => {
                        HeadSearch::LaterMinor { skipped, digit_at }
                    }
                }
            }
        }
    }
}

/// Takes no notice of a head and its answer.
fn ignore(_: &Head<'_>, _: &Answer) {}

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

/// Returns the answer to an invalid request, by the site for its host if that is known. All of `data` counts
/// as consumed, because the connection closes.
#[cold]
pub(crate) fn refuse(site: &Site, refusal: Refusal, data: &[u8]) -> Answer {
    let Refusal {
        status,
        head_only,
        host: (at, len),
    } = refusal;
    let host = &data[at as usize..][..len as usize];
    let sites = site.by_host().filter(|_| !host.is_empty());
    let (_, first) = sites
        .and_then(|sites| sites.find(host))
        .unwrap_or((site, 0));
    let ReplyId(shared) = Site::shared(status, head_only);
    Answer {
        reply: ReplyId(first + shared),
        close: true,
        consumed: data.len() as u32,
        form: AnswerForm::Whole,
    }
}

impl Step {
    /// Adds `skipped` to the number of consumed bytes.
    #[inline(always)]
    fn skip(mut self, skipped: usize) -> Self {
        match &mut self {
            Self::More { consumed } => *consumed += skipped,
            Self::Answer(answer) => answer.consumed += skipped as u32,
        }
        self
    }
}

/// Whose request it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Visitor {
    /// The client has not proved who it is.
    Unknown,
    /// The client's name and password are right.
    Known,
}

/// Returns the answer to the request at the start of `data`.
#[inline]
pub(crate) fn answer(site: &Site, request: &Head<'_>, data: &[u8]) -> Answer {
    answer_to(site, request, data, Visitor::Unknown)
}

/// Returns the answer to the request of a visitor at the start of `data`.
#[inline]
pub(crate) fn answer_to(site: &Site, request: &Head<'_>, data: &[u8], visitor: Visitor) -> Answer {
    match site.by_host() {
        None => answer_of(site, request, data, visitor),
        Some(sites) => answer_by_host(site, sites, request, data, visitor),
    }
}

/// Returns the answer of the site that is served for the request's host. A request for another host is
/// misdirected (RFC 9110, section 15.5.20), unless it is about no path.
#[inline(never)]
fn answer_by_host(
    site: &Site,
    sites: &ByHost,
    request: &Head<'_>,
    data: &[u8],
    visitor: Visitor,
) -> Answer {
    let found = sites.find(request.host());
    let is_for_all = || request.target == "*" || request.page().is_none();
    let Some((site, first)) = found.or_else(|| is_for_all().then_some((site, 0))) else {
        let head_only = request.method == Method::Head;
        return Answer::with(Site::shared(Status::MisdirectedRequest, head_only), request);
    };
    let answer = answer_of(site, request, data, visitor);
    let reply = ReplyId(first + answer.reply.0);
    Answer { reply, ..answer }
}

/// Returns the answer of `site`.
#[inline]
fn answer_of(site: &Site, request: &Head<'_>, data: &[u8], visitor: Visitor) -> Answer {
    let reply_with = |reply| Answer::with(reply, request);
    let error = |status| site.error_form(Site::shared(status, false), request.accepted());
    let head_only = match request.method {
        Method::Head => true,
        Method::Options if request.target == "*" => {
            return reply_with(Site::shared(Status::NoContent, false));
        }
        Method::Get | Method::Options => false,
        Method::OfNoFile => return reply_with(error(Status::MethodNotAllowed)),
        Method::Unknown => return reply_with(error(Status::NotImplemented)),
    };
    let shared = |status| reply_with(error(status).or_head(head_only));
    let bad_request = || Answer {
        close: true,
        ..shared(Status::BadRequest)
    };
    let Some(target) = request.page() else {
        return bad_request();
    };
    let by_query = site.by_query(target.path.as_bytes(), target.query);
    let page = by_query.map_or_else(|| site.find(target.path.as_bytes()), Ok);
    if !site.realms().is_empty()
        && visitor == Visitor::Unknown
        && let Some(answer) = to_stranger(site, request, target.path.as_bytes(), page.ok(), data)
    {
        return answer;
    }
    let file = match page {
        Ok(Page::File(file)) => file,
        Ok(Page::Negotiated(variants)) => site.form(*variants, request.accepted()),
        Ok(_) if request.method == Method::Options => return shared(Status::NoContent),
        Ok(Page::Redirect { first, keeps_query }) => {
            let query = target.query.filter(|_| *keeps_query);
            return Answer {
                form: redirect_form(request.len, query.unwrap_or_default(), data),
                ..reply_with(first.or_head(head_only))
            };
        }
        Ok(Page::Rule { rule, first }) => {
            return Answer {
                form: rule_form(*rule, request, target, data),
                ..reply_with(first.or_head(head_only))
            };
        }
        Ok(Page::Error(first)) => return about_path(site, request, *first, target.path, data),
        Err(NoPage::Unknown) => return about_missing(site, request, target.path, data),
        Err(NoPage::BadEncoding) => return bad_request(),
    };
    if request.method == Method::Options {
        let whole = reply_with(file.whole());
        return options(site, whole).unwrap_or_else(|| shared(Status::NoContent));
    }
    match request.precondition(file.tag, Some(file.modified)) {
        None => {
            let whole = reply_with(file.whole());
            match request.range(file.tag) {
                None if head_only => Answer {
                    form: AnswerForm::Head,
                    ..whole
                },
                None => whole,
                Some(range) => with_range(site, whole, range, request.accepted(), data),
            }
        }
        Some(Status::NotModified) => reply_with(file.not_modified()),
        Some(status) => shared(status),
    }
}

/// Returns the answer to a visitor whose name is not known, if the path or its page needs a password.
#[inline(never)]
fn to_stranger(
    site: &Site,
    request: &Head<'_>,
    path: &[u8],
    page: Option<&Page>,
    data: &[u8],
) -> Option<Answer> {
    let realm = site.realm(path, page)?;
    let form = login_form(request, data);
    // While a login is checked, the reply tells the part.
    let first = match form {
        AnswerForm::Whole => site.error_form(realm.first, request.accepted()),
        _ => realm.first,
    };
    let challenge = first.or_head(request.method == Method::Head);
    Some(Answer {
        form,
        ..Answer::with(challenge, request)
    })
}

/// Returns the answer to a request for a path that has no page.
#[cold]
fn about_missing(site: &Site, request: &Head<'_>, path: &str, data: &[u8]) -> Answer {
    let first = site.missing(path.as_bytes());
    about_path(site, request, first, path, data)
}

/// Returns the answer with an error about a path, whose plain page begins with the reply `first`.
#[cold]
fn about_path(site: &Site, request: &Head<'_>, first: ReplyId, path: &str, data: &[u8]) -> Answer {
    let first = site.error_form(first, request.accepted());
    let error = first.or_head(request.method == Method::Head);
    let (from_end, len) = path_place(request.len, path, data);
    let form = if site.has_error_fields() {
        AnswerForm::Error { from_end, len }
    } else {
        AnswerForm::Whole
    };
    Answer {
        form,
        ..Answer::with(error, request)
    }
}

/// Returns the answer to OPTIONS for a file that other sites may use. `whole` is the answer with the file.
#[cold]
fn options(site: &Site, whole: Answer) -> Option<Answer> {
    let form = AnswerForm::Options;
    let may_be_used = whole.of(site).has_field(ALLOW_ORIGIN);
    may_be_used.then_some(Answer { form, ..whole })
}

/// Returns the answer to a request for a file whose `Range` field has the value `range`. `whole` is
/// the answer without this field. The value lies in `data`, which begins with the request.
#[cold]
fn with_range(site: &Site, whole: Answer, range: &[u8], accepted: Accepted, data: &[u8]) -> Answer {
    let file = whole.of(site);
    let form = match Selection::of(range, file.body_len()) {
        Selection::Whole => AnswerForm::Whole,
        // The parts would be coded, but the response that contains them would not.
        Selection::Parts(_) if file.has_field("content-encoding") => AnswerForm::Whole,
        Selection::Nothing => {
            let page = Site::shared(Status::RangeNotSatisfiable, false);
            let page = site.error_form(page, accepted);
            AnswerForm::NoPart { page }
        }
        Selection::Part(Range { start, end }) if u32::try_from(end).is_ok() => AnswerForm::Part {
            first: start as u32,
            end: end as u32,
            recurs: false,
        },
        Selection::Part(_) | Selection::Parts(_) => {
            let at = range.as_ptr().addr() - data.as_ptr().addr();
            AnswerForm::Parts {
                from_end: (whole.consumed() - at) as u16,
                len: range.len() as u16,
            }
        }
    };
    Answer { form, ..whole }
}

/// Returns the form of an answer that asks for a name and a password. The request is at the start of
/// `data`.
#[cold]
fn login_form(request: &Head<'_>, data: &[u8]) -> AnswerForm {
    let mut values = request.values("authorization");
    match (values.next(), values.next()) {
        (Some(value), None) => {
            let at = value.as_ptr().addr() - data.as_ptr().addr();
            AnswerForm::Login {
                from_end: (request.len - at) as u16,
                len: value.len() as u16,
            }
        }
        _ => AnswerForm::Whole,
    }
}

/// Returns how a redirect keeps `query`. The request is at the start of `data` and is `len` bytes
/// long.
#[cold]
fn redirect_form(len: usize, query: &str, data: &[u8]) -> AnswerForm {
    if query.is_empty() {
        return AnswerForm::Whole;
    }
    // The query is at the end of the target, and the target is the second word of the request line.
    let mut spaces = data.iter().enumerate().filter(|(_, b)| **b == b' ');
    let target_end = spaces.nth(1).map_or(len, |(at, _)| at);
    let from_end = (len - target_end + query.len()) as u16;
    AnswerForm::WithQuery { from_end }
}

/// Returns the form of a redirect by the rule with this index. The request is at the start of `data`.
#[cold]
fn rule_form(rule: u16, request: &Head<'_>, target: Target<'_>, data: &[u8]) -> AnswerForm {
    let (mut from_end, len) = path_place(request.len, target.path, data);
    if len == 0 {
        // The query follows the place where the path would be.
        let target_at = request.target.as_ptr().addr() - data.as_ptr().addr();
        let query_len = target.query.map_or(0, |query| "?".len() + query.len());
        let path_at = target_at + request.target.len() - query_len;
        from_end = (request.len - path_at) as u16;
    }
    AnswerForm::ByRule {
        rule,
        from_end,
        len,
    }
}

/// Returns where the path of a request begins, as a distance from its end, and the length of the path.
/// The request is at the start of `data` and is `len` bytes long.
fn path_place(len: usize, path: &str, data: &[u8]) -> (u16, u16) {
    let at = path.as_ptr().addr().wrapping_sub(data.as_ptr().addr());
    // The path of an absolute URI without a path is not part of the request.
    if at < len {
        ((len - at) as u16, path.len() as u16)
    } else {
        (0, 0)
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
