//! Loads the folders of a program again.

use std::sync::Arc;

use control::{Reloaded, StartError, report};

use super::Sandstorm;
use crate::part::Part;

impl<A, F, C> Sandstorm<A, F, C> {
    /// Loads all folders again, or only the one with this name. Then other hosts lead to them, but only if
    /// all of them have their newest rules and passwords.
    pub(super) fn reload_all(&self, only: Option<&str>) -> Result<Reloaded, StartError> {
        let outcome = self.reload_parts(only);
        let is_newest = only.is_none() && !self.parts.iter().any(Part::has_next);
        if is_newest && self.change_hosts() {
            Ok(with_hosts(outcome))
        } else {
            outcome
        }
    }

    fn reload_parts(&self, only: Option<&str>) -> Result<Reloaded, StartError> {
        if self.parts.len() == 1 {
            return self.reload_part(0, only).map(Reloaded::from);
        }
        let parts = self.parts.iter().enumerate();
        let meant = parts.filter(|(_, part)| only.is_none_or(|name| part.is_named(name)));
        Reloaded::of_all(meant.map(|(index, part)| {
            let outcome = self.reload_part(index, only);
            (part.name(), outcome.map(Reloaded::from))
        }))
    }

    /// Loads the folder of the part with this number again. Other options are used if all folders are loaded.
    /// Returns what has changed, for the operator.
    fn reload_part(&self, index: usize, only: Option<&str>) -> Result<String, StartError> {
        let taken = self.sending.get().map_or(0, |one| one.taken_from(index));
        let next = self.parts[index].load_next(taken, only.is_none())?;
        let site = Arc::clone(&next.site);
        let (new, gone) = (next.added(), next.leaving.len() as u64);
        self.change_part(index, next);
        let totals = site.totals();
        let changes = match (new, gone) {
            (0, 0) => "nothing has changed".to_owned(),
            (new, gone) => format!(
                "{} of {} responses are new, {} are gone",
                report::count(new),
                report::count(totals.replies),
                report::count(gone),
            ),
        };
        let files = report::counted(totals.files, "file");
        let size = report::bytes(totals.content_bytes);
        let deviations = totals.deviations();
        Ok(format!("{files}, {size}; {changes}{deviations}"))
    }
}

/// Adds to what a reload has done that hosts have changed.
fn with_hosts(outcome: Result<Reloaded, StartError>) -> Reloaded {
    let what = "hosts have changed".to_owned();
    match outcome {
        Ok(Reloaded { done, kept }) => Reloaded {
            done: format!("{what}; {done}"),
            kept,
        },
        Err(error) => Reloaded {
            done: what,
            kept: Some(error.to_string()),
        },
    }
}
