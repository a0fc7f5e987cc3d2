//! Loads the folders of a program again.

use std::sync::Arc;

use control::{Reloaded, StartError, report};

use super::Sandstorm;
use crate::parts::{Served, members};

impl<A, F, C> Sandstorm<A, F, C> {
    /// Loads all folders again, or only the one with this name. Then other sites may be served, and other hosts
    /// may lead to them, but only if all of them have their newest rules and passwords.
    pub(super) fn reload_all(&self, only: Option<&str>) -> Result<Reloaded, StartError> {
        let outcome = self.reload_parts(only);
        let changes = if only.is_none() {
            self.change_parts()
        } else {
            None
        };
        match changes {
            Some(changes) => Ok(with_changes(changes, outcome)),
            None => outcome,
        }
    }

    fn reload_parts(&self, only: Option<&str>) -> Result<Reloaded, StartError> {
        // What is about to go need not be loaded, and what is about to come has no name yet.
        let parts = match only {
            None => self.parts.newest(),
            Some(_) => self.parts.now(),
        };
        if let [one] = &*parts {
            return self.reload_part(one, only).map(Reloaded::from);
        }
        let parts = parts.iter();
        let meant = parts.filter(|one| only.is_none_or(|name| one.part.is_named(name)));
        Reloaded::of_all(meant.map(|one| {
            let outcome = self.reload_part(one, only);
            (one.part.name(), outcome.map(Reloaded::from))
        }))
    }

    /// Serves other parts, or lets other hosts lead to them. Returns what has changed, for the operator.
    fn change_parts(&self) -> Option<String> {
        let changes = self.parts.go_on()?;
        let old = self.site();
        let members = members(&self.parts.now());
        let next = old.next_by_hosts((&members, &self.parts.known()), None);
        self.change_site(&old, next);
        Some(changes.describe())
    }

    /// Loads the folder of a part again. Other options are used if all folders are loaded. Returns what has
    /// changed, for the operator.
    fn reload_part(&self, one: &Served, only: Option<&str>) -> Result<String, StartError> {
        let taken = self.taken_from(one.id);
        let next = one.part.load_next(taken, only.is_none())?;
        let site = Arc::clone(&next.site);
        let totals = site.totals();
        let (new, gone) = (next.added(), next.leaving.len() as u64);
        let is_served = self.change_part(&one.part, next);
        let (new, gone) = if is_served {
            (new, gone)
        } else {
            (totals.replies, 0)
        };
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

/// Adds to what a reload has done that other sites are served.
fn with_changes(what: String, outcome: Result<Reloaded, StartError>) -> Reloaded {
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
