//! Makes coded forms of a site's files while the site is served.

use std::sync::{Arc, Mutex, PoisonError};

use crate::coder::{Coder, Made};
use crate::coding::Coding;
use crate::improving::{Done, Pauses};
use crate::site::{ReplyId, Site};

/// Makes coded forms, one file at a time. Short files come first.
#[derive(Debug)]
pub(crate) struct Background {
    coder: Arc<Coder>,
    work: Mutex<CodingState>,
}

/// The work that is left for a site.
#[derive(Debug)]
struct CodingState {
    /// The site that the files belong to.
    site: Option<Arc<Site>>,
    /// The files that may get further forms, longest first.
    files: Vec<ReplyId>,
    /// Number of forms that are not yet part of the site, and their length in bytes.
    made: usize,
    made_bytes: u64,
    pauses: Pauses,
}

impl Background {
    pub(crate) fn new(coder: Arc<Coder>) -> Self {
        let work = CodingState {
            site: None,
            files: Vec::new(),
            made: 0,
            made_bytes: 0,
            pauses: Pauses::default(),
        };
        Self {
            coder,
            work: Mutex::new(work),
        }
    }

    /// Does the next piece of work for `site`.
    pub(crate) fn step(&self, site: &Arc<Site>) -> Done {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |known: &Arc<Site>| Arc::ptr_eq(known, site);
        if !work.site.as_ref().is_some_and(is_same) {
            work.begin(site);
        }
        let has_room = self
            .coder
            .has_room(site.totals().reply_bytes + work.made_bytes);
        let Some(file) = work.files.pop().filter(|_| has_room) else {
            return if work.made > 0 {
                work.next_site(site, &self.coder)
            } else {
                Done::Nothing
            };
        };
        let content = site.reply(file).body();
        let made = Coding::ALL.map(|coding| self.coder.make(content, coding));
        for one in &made {
            if let Made::Coded(coded) = one {
                work.made += 1;
                work.made_bytes += coded.len() as u64;
            }
        }
        if work.made > 0 && work.pauses.is_over() {
            return work.next_site(site, &self.coder);
        }
        Done::Some
    }
}

impl CodingState {
    fn begin(&mut self, site: &Arc<Site>) {
        self.files = site.uncoded().to_vec();
        let len = |file: &ReplyId| site.reply(*file).body_len();
        self.files.sort_by_key(|file| std::cmp::Reverse(len(file)));
        self.site = Some(Arc::clone(site));
        self.pauses.begin();
    }

    fn next_site(&mut self, site: &Arc<Site>, coder: &Coder) -> Done {
        (self.made, self.made_bytes) = (0, 0);
        Done::Site(Box::new(site.with_codings(coder)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::coder::Effort;
    use crate::settings::Settings;
    use crate::site::Builder;

    #[test]
    fn files_with_the_same_content_get_their_forms_together() {
        const COUNT: u64 = 10;
        let coder = Arc::new(Coder::open(Effort::Fast, None, u64::MAX).unwrap());
        let settings = Settings {
            coder: Some(Arc::clone(&coder)),
            ..Settings::default()
        };
        let text = "sand and storm ".repeat(200);
        let mut builder = Builder::with_settings(UNIX_EPOCH, &settings);
        for number in 0..COUNT {
            let path = format!("/{number}.txt");
            builder = builder.file(path.as_bytes(), UNIX_EPOCH, text.as_bytes());
        }
        let mut site = Arc::new(builder.build());
        let background = Background::new(coder);
        let mut changes = 0;
        loop {
            match background.step(&site) {
                Done::Some => {}
                Done::Site(next) => {
                    changes += 1;
                    site = next.site;
                }
                Done::Nothing => break,
            }
        }
        assert_eq!(site.totals().coded, COUNT * Coding::ALL.len() as u64);
        assert_eq!(changes, 1);
    }
}
