//! Landlock: limits the files that a thread may open, and the TCP ports that it may bind.

use std::io;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

/// The newest Landlock version that this code supports. An older kernel also protects files, but
/// does not support rules for sockets and signals. Seccomp blocks the system calls for sockets and
/// signals anyway.
const VERSION: ABI = ABI::V6;

/// The file rules of one kind of thread.
#[derive(Debug)]
pub(super) struct Files(RulesetCreated);

impl Files {
    /// Creates rules that allow only reading below `readable`, making and writing files below
    /// `writable`, and binding TCP sockets to `ports`. Below `stored`, they allow
    /// reading, making, writing and removing files.
    pub(super) fn limited_to(
        readable: &[PathBuf],
        writable: &[PathBuf],
        stored: &[PathBuf],
        ports: &[u16],
    ) -> Result<Self, RulesetError> {
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(VERSION))?
            .handle_access(AccessNet::from_all(VERSION))?
            .scope(Scope::from_all(VERSION))?
            .create()?;
        let reading = AccessFs::ReadFile | AccessFs::ReadDir;
        let writing = AccessFs::WriteFile | AccessFs::MakeReg;
        let readable = readable.iter().map(|path| (path, reading));
        let writable = writable.iter().map(|path| (path, writing));
        let storing = reading | writing | AccessFs::RemoveFile;
        let stored = stored.iter().map(|path| (path, storing));
        for (path, access) in readable.chain(writable).chain(stored) {
            // A path that cannot be opened now, with all privileges, could not be used later either,
            // so it needs no rule.
            if let Ok(opened) = PathFd::new(path) {
                rules = rules.add_rule(PathBeneath::new(opened, access))?;
            }
        }
        for port in ports {
            rules = rules.add_rule(NetPort::new(*port, AccessNet::BindTcp))?;
        }
        Ok(Self(rules))
    }

    /// Permanently applies the rules to the calling thread. Returns `false` if the kernel does not
    /// support Landlock.
    pub(super) fn apply(&self) -> io::Result<bool> {
        let status = self.0.try_clone()?.restrict_self();
        Ok(status.map_err(io::Error::other)?.ruleset != RulesetStatus::NotEnforced)
    }
}
