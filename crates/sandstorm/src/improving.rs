//! Work that improves a site while it is served: a result of a step, and the times between changes.

use std::time::{Duration, Instant};

use crate::site::NextSite;

/// Time after which the improvements so far become part of the site. Each further time is twice as long,
/// up to [`MAX_PAUSE`], because workers pass through all replies of a site to change it.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const MAX_PAUSE: Duration = Duration::from_mins(1);

/// What a step has done.
#[derive(Debug)]
pub(crate) enum Done {
    /// A part of the work. More is left.
    Some,
    /// The site with the improvements so far.
    Site(Box<NextSite>),
    /// Nothing, because no work is left.
    Nothing,
}

/// The times between changes of a site.
#[derive(Debug)]
pub(crate) struct Pauses {
    pause: Duration,
    since: Instant,
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            pause: FIRST_PAUSE,
            since: Instant::now(),
        }
    }
}

impl Pauses {
    /// Begins a pause, because there is another site.
    pub(crate) fn begin(&mut self) {
        self.since = Instant::now();
    }

    /// Returns true if the pause is over. The next one is longer.
    pub(crate) fn is_over(&mut self) -> bool {
        let is_over = self.since.elapsed() >= self.pause;
        if is_over {
            self.pause = (2 * self.pause).min(MAX_PAUSE);
        }
        is_over
    }
}
