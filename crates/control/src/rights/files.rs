//! Landlock: which files a thread may still open.

use std::io;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

/// The newest version that this was written for. An older kernel keeps files
/// shut too, but has no rules for sockets and signals; seccomp refuses those
/// anyway.
const VERSION: ABI = ABI::V6;

/// Rules for the files of one kind of thread.
#[derive(Debug)]
pub(super) struct Files(RulesetCreated);

impl Files {
    /// Reading below `readable`, and nothing else.
    pub(super) fn reading_below(readable: &[PathBuf]) -> Result<Self, RulesetError> {
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(VERSION))?
            .handle_access(AccessNet::from_all(VERSION))?
            .scope(Scope::from_all(VERSION))?
            .create()?;
        for path in readable {
            // What cannot be opened now, before rights are given up, cannot be
            // read later either.
            if let Ok(opened) = PathFd::new(path) {
                let reading = AccessFs::ReadFile | AccessFs::ReadDir;
                rules = rules.add_rule(PathBeneath::new(opened, reading))?;
            }
        }
        Ok(Self(rules))
    }

    /// Confines the calling thread, for good. `false` where the kernel has no
    /// Landlock.
    pub(super) fn apply(&self) -> io::Result<bool> {
        let status = self.0.try_clone()?.restrict_self();
        Ok(status.map_err(io::Error::other)?.ruleset != RulesetStatus::NotEnforced)
    }
}
