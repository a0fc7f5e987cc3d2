//! A worker's caches of requests that clients repeat.

use crate::answer::Answer;
use crate::recent_cache::CachePlace;
use crate::session::{RecentAnswers, RecentFields, Session, Step};
use crate::site::Site;

/// The answers to recent requests, and the recent fields of requests. The answers to long requests with
/// preconditions or ranges, such as those of browsers, are with their fields.
#[derive(Debug)]
pub(super) struct Recent {
    answers: RecentAnswers,
    fields: RecentFields,
}

impl Recent {
    pub(super) fn new() -> Self {
        Self {
            answers: RecentAnswers::new(),
            fields: RecentFields::new(),
        }
    }

    /// Forgets all answers, because the site changes.
    pub(super) fn clear(&mut self) {
        self.answers.clear();
        self.fields.clear();
    }

    /// Same as [`Session::next`], but uses the caches.
    #[inline(always)]
    pub(super) fn next(&mut self, site: &Site, session: &mut Session, data: &[u8]) -> Step {
        if !session.is_fresh() {
            return session.next(site, data);
        }
        match self.answers.find(data) {
            Ok(answer) => Step::Answer(answer),
            Err(place) => self.next_unknown(site, session, data, place),
        }
    }

    /// Answers a request that is not in the cache of answers. It is not inlined, because it needs
    /// much space on the stack.
    #[inline(never)]
    fn next_unknown(
        &mut self,
        site: &Site,
        session: &mut Session,
        data: &[u8],
        place: Option<CachePlace>,
    ) -> Step {
        let is_long = place.is_none();
        let step = session.next_by(site, data, &mut self.fields, is_long);
        if let Step::Answer(answer) = step {
            self.answers.remember(place, data, answer.for_repeats());
        }
        step
    }

    /// Changes the answer to a request that has come again. Returns the place of the answer, or `None` if
    /// there is none.
    pub(super) fn replace(&mut self, data: &[u8], answer: Answer) -> Option<CachePlace> {
        let place = self.answers.replace(data, &[], answer);
        place.or_else(|| Session::replace_answer(&mut self.fields, data, answer))
    }

    /// Returns the remembered answer to a short request.
    #[cfg(test)]
    pub(super) fn answer(&self, data: &[u8]) -> Option<Answer> {
        self.answers.find(data).ok()
    }

    /// Forgets the answer at a place. It may forget other ones, which does no harm.
    pub(super) fn forget(&mut self, place: CachePlace) {
        self.answers.forget(place);
        self.fields.forget(place);
    }
}
