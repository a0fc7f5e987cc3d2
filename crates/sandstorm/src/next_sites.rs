//! Sites and options from a configuration file that was read again.

use std::sync::Arc;

use control::config::TakenOver;

use crate::loading::Loading;
use crate::part::ProgramPart;
use crate::parts::{ProgramParts, Served};

/// Other sites and other options of sites, which were checked.
#[derive(Debug, Default)]
pub struct NextSites<'p> {
    pub(crate) programs: Vec<NextParts<'p>>,
    /// What needs a restart.
    pub(crate) taken: TakenOver,
}

/// What a program is to serve.
#[derive(Debug)]
pub(crate) struct NextParts<'p> {
    pub(crate) parts: &'p ProgramParts,
    pub(crate) next: Vec<Served>,
    /// How these parts are loaded. The others keep their options.
    pub(crate) loadings: Vec<(Arc<ProgramPart>, Loading)>,
}

impl NextSites<'_> {
    /// Lets the next reload of all sites use their options, and serve the sites of the file. If a site cannot
    /// be loaded, further reloads try that again. Returns what needs a restart.
    #[must_use]
    pub fn take(self) -> TakenOver {
        for program in self.programs {
            // Options that could not be used before are no longer wanted.
            for one in &program.next {
                one.part.forget_next();
            }
            for (part, loading) in program.loadings {
                part.set_next(loading);
            }
            program.parts.set_next(program.next);
        }
        self.taken
    }
}
