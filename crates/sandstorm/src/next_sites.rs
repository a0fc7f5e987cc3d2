//! Options of sites from a configuration file that was read again.

use crate::hosts::HostName;
use crate::loading::Loading;
use crate::part::Part;

/// Other options of sites, which were checked.
#[derive(Debug, Default)]
pub struct NextSites<'p> {
    pub(crate) sites: Vec<NextPart<'p>>,
    /// The parts that keep their options, because the file no longer has their sites.
    pub(crate) kept: Vec<&'p Part>,
    /// What needs a restart, for the operator.
    pub(crate) restart: Vec<String>,
}

/// Other options of a site.
#[derive(Debug)]
pub(crate) struct NextPart<'p> {
    pub(crate) part: &'p Part,
    pub(crate) loading: Loading,
    pub(crate) hosts: Vec<HostName>,
}

impl NextSites<'_> {
    /// Lets the next reload of all sites use their options. If a site cannot be loaded, further reloads try
    /// them again. Returns what needs a restart, for the operator.
    #[must_use]
    pub fn take(self) -> Vec<String> {
        for next in self.sites {
            next.part.set_next(next.loading, next.hosts);
        }
        // Options that could not be used before are no longer wanted.
        for part in self.kept {
            part.forget_next();
        }
        self.restart
    }

    /// Adds the options of further sites.
    pub(crate) fn extend(&mut self, others: Self) {
        self.sites.extend(others.sites);
        self.kept.extend(others.kept);
        self.restart.extend(others.restart);
    }
}
