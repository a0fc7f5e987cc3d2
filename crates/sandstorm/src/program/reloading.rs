//! Loads the folders of a program again.

use std::sync::Arc;

use control::{Reloaded, StartError, report};

use super::Sandstorm;
use crate::parts::{Served, members};
use crate::site::{NextSite, Site};

impl<A, F, C> Sandstorm<A, F, C> {
    /// Loads all folders again, or only the one with this name. Then other sites may be served, and other hosts
    /// may lead to them, but only if all of them can be loaded.
    pub(super) fn reload_all(&self, only: Option<&str>) -> Result<Reloaded, StartError> {
        match self.parts.next().filter(|_| only.is_none()) {
            Some(next) => self.reload_together(&next),
            None => self.reload_parts(only),
        }
    }

    fn reload_parts(&self, only: Option<&str>) -> Result<Reloaded, StartError> {
        let parts = self.parts.now();
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

    /// Loads all folders, and serves other parts or lets other hosts lead to them in one step. Nothing changes
    /// if one of them cannot be loaded. Otherwise a host could have rules that no version of the file gives
    /// to it, such as those without a password.
    fn reload_together(&self, next: &[Served]) -> Result<Reloaded, StartError> {
        let (mut loaded, mut failed) = (Vec::new(), Vec::new());
        for one in next {
            match one.part.load_next(self.taken_from(one.id), true) {
                Ok(site) => loaded.push((one.part.site(), site)),
                Err(error) => failed.push((one.part.name(), Err(error))),
            }
        }
        if !failed.is_empty() {
            return Reloaded::of_all(failed);
        }
        for (one, (_, site)) in next.iter().zip(&loaded) {
            one.part.has_loaded_next();
            one.part.set_site(&site.site);
        }
        let before = self.parts.now();
        let changes = self.parts.go_on();
        self.parts.renew_redirecting();
        let old = self.site();
        let members = members(&self.parts.now());
        let site = old.next_by_hosts((&members, &self.parts.known()), &loaded);
        self.change_site(&old, site);
        let outcomes = next.iter().zip(&loaded).map(|(one, (_, site))| {
            let is_new = !before.iter().any(|other| other.is(&one.part));
            let done = describe(&site.site, numbers(site, is_new));
            (one.part.name(), Ok(Reloaded::from(done)))
        });
        let Reloaded { done, kept } = Reloaded::of_all(outcomes)?;
        let changes = changes.map(|changes| changes.describe());
        let all: Vec<_> = changes.into_iter().chain([done]).collect();
        Ok(Reloaded {
            done: all.join("; "),
            kept,
        })
    }

    /// Loads the folder of a part again. Other options are used if all folders are loaded. Returns what has
    /// changed, for the operator.
    fn reload_part(&self, one: &Served, only: Option<&str>) -> Result<String, StartError> {
        let taken = self.taken_from(one.id);
        let next = one.part.load_next(taken, only.is_none())?;
        if only.is_none() {
            one.part.has_loaded_next();
        }
        let (site, numbers) = (Arc::clone(&next.site), numbers(&next, false));
        self.change_part(&one.part, next);
        Ok(describe(&site, numbers))
    }
}

/// Returns the numbers of replies that are new and gone.
fn numbers(next: &NextSite, is_new: bool) -> (u64, u64) {
    if is_new {
        (next.site.totals().replies, 0)
    } else {
        (next.added(), next.leaving.len() as u64)
    }
}

/// Describes a site that was loaded again, for the operator.
fn describe(site: &Site, numbers: (u64, u64)) -> String {
    let totals = site.totals();
    let changes = match numbers {
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
    format!("{files}, {size}; {changes}{deviations}")
}
