//! Privileges and sandbox on Linux, where each thread has its own.

mod calls;
mod capabilities;
mod files;
mod seccomp;

use std::io;

use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use super::table::{HelperTasks, Kind, Table};
use crate::error::Error;
use files::Files;
use seccomp::Filter;

/// The first port that every user may reserve.
const FIRST_HIGH_PORT: u16 = 1024;

/// The limits on files and system calls for each [`Kind`] of thread.
#[derive(Debug)]
pub(super) struct Limits([ThreadLimits; 12]);

impl Limits {
    /// Prepares the limits.
    ///
    /// # Errors
    /// If the rules for files or system calls cannot be created, which is a bug.
    pub(super) fn new(table: &Table) -> Result<Self, Error> {
        Ok(Self([
            ThreadLimits::new(Kind::Worker, table)?,
            ThreadLimits::new(Kind::Control, table)?,
            ThreadLimits::new(Kind::Reload, table)?,
            ThreadLimits::new(Kind::StoringReload, table)?,
            ThreadLimits::new(Kind::Read, table)?,
            ThreadLimits::new(Kind::Exchange, table)?,
            ThreadLimits::new(Kind::Log, table)?,
            ThreadLimits::new(Kind::ConnectingLog, table)?,
            ThreadLimits::new(Kind::Watch, table)?,
            ThreadLimits::new(Kind::Helper, table)?,
            ThreadLimits::new(Kind::FollowingHelper, table)?,
            ThreadLimits::new(Kind::ReopeningHelper, table)?,
        ]))
    }

    fn of(&self, kind: Kind) -> &ThreadLimits {
        &self.0[kind as usize]
    }
}

/// The limits on files and system calls for one kind of thread.
#[derive(Debug)]
struct ThreadLimits {
    files: Files,
    filter: Filter,
}

impl ThreadLimits {
    fn new(kind: Kind, table: &Table) -> Result<Self, Error> {
        Ok(Self {
            files: Files::limited_to(
                &table.readable(kind),
                table.writable(kind),
                table.stored(kind),
                table.helper(kind).map_or(&[], |tasks| &tasks.ports),
            )
            .map_err(|error| Error::Limits(error.to_string()))?,
            filter: Filter::compile(kind).map_err(|error| Error::Limits(error.to_string()))?,
        })
    }

    fn apply(&self, missing: &mut Vec<String>) {
        match self.files.apply() {
            Ok(true) => {}
            Ok(false) => missing.push("Landlock (this kernel has none)".to_owned()),
            Err(error) => missing.push(format!("Landlock ({error})")),
        }
        if let Err(error) = self.filter.apply() {
            missing.push(format!("seccomp ({error})"));
        }
    }
}

/// Permanently drops the calling thread's privileges, except those that a thread of this `kind`
/// keeps. `change_user` changes the thread's user and describes it. Adds what is missing to
/// `missing`. Returns the description of the user.
pub(super) fn drop_all(
    kind: Kind,
    table: &Table,
    limits: Option<&Limits>,
    missing: &mut Vec<String>,
    change_user: impl FnOnce(&mut Vec<String>) -> Result<String, Error>,
) -> Result<String, Error> {
    let failed = |errno: Errno| Error::System {
        what: "dropping capabilities",
        source: errno.into(),
    };
    let keep = table.helper(kind).map_or(CapabilitySet::empty(), kept_for);
    set_keep_capabilities(!keep.is_empty()).map_err(failed)?;
    // Emptying the bounding set needs CAP_SETPCAP, so this step comes before the thread drops that
    // capability.
    if let Err(errno) = capabilities::empty_bounding_set() {
        missing.push(format!(
            "an empty bounding set ({}; it needs CAP_SETPCAP)",
            io::Error::from(errno).kind()
        ));
    }
    let user = change_user(missing)?;
    capabilities::keep_only(keep).map_err(failed)?;
    // The sandbox comes last, because it forbids system calls that the steps above need.
    if let Some(limits) = limits {
        limits.of(kind).apply(missing);
    }
    Ok(user)
}

/// Returns the capabilities that these tasks of the helper need.
fn kept_for(tasks: &HelperTasks) -> CapabilitySet {
    let has_low_port = tasks.ports.iter().any(|port| *port < FIRST_HIGH_PORT);
    let needed = [
        (
            tasks.removes_interface || tasks.reopens,
            CapabilitySet::NET_ADMIN,
        ),
        // Linux before 5.19 needs it to change a map, if `kernel.unprivileged_bpf_disabled` is set.
        (tasks.follows || tasks.reopens, CapabilitySet::BPF),
        (tasks.reopens, CapabilitySet::NET_RAW),
        (tasks.reopens, CapabilitySet::PERFMON),
        // It registers the workers' packet memory.
        (tasks.reopens, CapabilitySet::IPC_LOCK),
        (has_low_port, CapabilitySet::NET_BIND_SERVICE),
    ];
    let needed = needed.into_iter().filter(|(is_needed, _)| *is_needed);
    needed.fold(CapabilitySet::empty(), |all, (_, one)| all | one)
}

/// Switches the calling thread to this user, without supplementary groups. When a thread leaves uid
/// 0, the kernel also removes all its capabilities, unless `PR_SET_KEEPCAPS` is set.
///
/// The C library's functions would change all threads of the process, while some of them still open
/// their queues.
pub(super) fn assume(uid: Uid, gid: Gid) -> io::Result<()> {
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

/// Describes the sandbox for the start block. `None`: it is off by option.
pub(super) fn describe(limits: Option<&Limits>, table: &Table) -> String {
    match (limits, table.is_embedded()) {
        (None, false) => "off by option; no thread has a capability".to_owned(),
        (Some(limits), false) => format!(
            "no thread has a capability; Landlock: {}; seccomp: {} system calls for workers, {} for \
             the control thread",
            table.describe_file_access(),
            limits.of(Kind::Worker).filter.calls(),
            limits.of(Kind::Control).filter.calls()
        ),
        // Only the workers have dropped their privileges.
        (None, true) => "off by option; no worker has a capability".to_owned(),
        (Some(limits), true) => format!(
            "no worker has a capability; Landlock: no file access; seccomp: {} system calls; other \
             threads of this process keep their privileges",
            limits.of(Kind::Worker).filter.calls()
        ),
    }
}

#[cfg(test)]
mod tests;
