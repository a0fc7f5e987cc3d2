//! A worker's caches of requests that clients repeat.

use crate::answer::Answer;
use crate::recent_cache::CachePlace;
use crate::session::{RecentAnswers, RecentFields, Session, Step};
use crate::site::Site;

/// The answers to recent requests, and the recent fields of requests.
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
        let step = session.next_by(site, data, &mut self.fields);
        if let Step::Answer(answer) = step {
            self.answers.remember(place, data, answer.for_repeats());
        }
        step
    }

    /// Changes the answer to a request that has come again. Returns the place of the answer, or `None` if
    /// it was forgotten meanwhile.
    pub(super) fn replace(&mut self, data: &[u8], answer: Answer) -> Option<CachePlace> {
        self.answers.replace(data, answer)
    }

    /// Forgets the answer at a place.
    pub(super) fn forget(&mut self, place: CachePlace) {
        self.answers.forget(place);
    }
}
