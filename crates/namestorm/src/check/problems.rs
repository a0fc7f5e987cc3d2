//! Problems of one kind, which a report has in one warning.

use crate::report::Report;
use crate::zone::Place;

/// The first problem of a kind and the number of all, because a zone often has many.
#[derive(Default)]
pub(super) struct Problems {
    first: Option<(Place, String)>,
    count: usize,
}

impl Problems {
    pub(super) fn add(&mut self, place: Place, message: impl FnOnce() -> String) {
        self.count += 1;
        self.first.get_or_insert_with(|| (place, message()));
    }

    /// Warns of the first problem, with the number of the others. `remedy` says what follows from such a
    /// problem, and what to do.
    pub(super) fn warn(self, remedy: &str, report: &mut Report) {
        let Some((place, message)) = self.first else {
            return;
        };
        let others = match self.count - 1 {
            0 => String::new(),
            1 => "; another one is wrong too".to_owned(),
            others => format!("; {others} others are wrong too"),
        };
        report.warning(place, format!("{message}{others}; {remedy}"));
    }
}
