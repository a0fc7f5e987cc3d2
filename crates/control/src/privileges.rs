//! Drops a thread's privileges. A worker drops them when its queue is open and its packets are
//! prepared. The control thread drops them when all workers are ready.
//!
//! On Linux, each thread has its own user, groups, capabilities, and limits on system calls and
//! files. Every thread of [`serve`](crate::serve) therefore drops its own privileges before the
//! first packet is handled. Threads share memory, so none of these threads may keep any privileges.

mod capabilities;
mod files;
mod reading;
mod seccomp;
mod table;
mod user;

use std::backtrace::Backtrace;

use clap::ValueEnum;
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::set_keep_capabilities;

use crate::args::ServeArgs;
use crate::error::Error;
use files::Files;
use reading::Unreadable;
use seccomp::Filter;
pub(crate) use table::{Kind, Table};
use user::NewUser;
pub use user::UserSpec;

/// Values of `--sandbox`: what to do if parts of the sandbox are missing.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sandbox {
    /// Use what the kernel supports. The start block names the missing parts.
    Auto,
    /// Refuse to start if any part of the sandbox is missing.
    Required,
    /// Do not limit files and system calls. Each thread still changes its user and drops its
    /// capabilities.
    Off,
}

/// The settings for privileges from the command line.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    user: NewUser,
    sandbox: Sandbox,
}

impl Plan {
    /// Looks up the user that the threads become: the one in `args`, or else the default.
    ///
    /// # Errors
    /// If the user or group in `args` does not exist, or if the system cannot look it up.
    pub(crate) fn new(args: &ServeArgs, program: &str) -> Result<Self, Error> {
        Ok(Self {
            user: NewUser::find(args.user.as_ref(), program)?,
            sandbox: args.sandbox(),
        })
    }

    /// Prepares everything that the threads of this process need to drop their privileges. `table`
    /// lists what they may do afterwards.
    ///
    /// # Errors
    /// If the rules for files or system calls cannot be created, which is a bug.
    pub(crate) fn privileges(&self, table: Table) -> Result<Privileges, Error> {
        let limits = match self.sandbox {
            Sandbox::Off => None,
            Sandbox::Auto | Sandbox::Required => {
                keep_symbols();
                Some([
                    Limits::new(Kind::Worker, &table)?,
                    Limits::new(Kind::Control, &table)?,
                    Limits::new(Kind::Helper, &table)?,
                ])
            }
        };
        Ok(Privileges {
            plan: self.clone(),
            table,
            limits,
        })
    }
}

/// Everything that the threads of this process need to drop their privileges.
#[derive(Debug)]
pub(crate) struct Privileges {
    plan: Plan,
    table: Table,
    /// The limits for each [`Kind`] of thread, or `None` if the sandbox is off.
    limits: Option<[Limits; 3]>,
}

/// The limits on files and system calls for one kind of thread.
#[derive(Debug)]
struct Limits {
    files: Files,
    filter: Filter,
}

impl Limits {
    fn new(kind: Kind, table: &Table) -> Result<Self, Error> {
        Ok(Self {
            files: Files::reading_below(table.readable(kind))
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

/// The result of dropping a thread's privileges, as text for the start block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dropped {
    /// The thread's user afterwards.
    user: String,
    /// What is missing, such as Landlock. Empty if nothing is missing.
    missing: Vec<String>,
}

impl Dropped {
    /// Adds what is missing on another thread.
    pub(crate) fn merge(&mut self, other: &Self) {
        for what in &other.missing {
            if !self.missing.contains(what) {
                self.missing.push(what.clone());
            }
        }
    }

    fn lines(self, sandbox: String) -> Vec<(&'static str, String)> {
        let mut lines = vec![("user", self.user), ("sandbox", sandbox)];
        let missing = self.missing.into_iter();
        lines.extend(missing.map(|what| ("sandbox lacks", what)));
        lines
    }
}

impl Privileges {
    /// Returns a value for tests. A thread that uses it keeps its user and gets no sandbox.
    #[cfg(test)]
    pub(crate) fn for_tests() -> &'static Self {
        static PRIVILEGES: std::sync::LazyLock<Privileges> =
            std::sync::LazyLock::new(|| Privileges {
                plan: Plan {
                    user: NewUser::Same,
                    sandbox: Sandbox::Off,
                },
                table: Table::for_server(Vec::new(), Vec::new()),
                limits: None,
            });
        &PRIVILEGES
    }

    /// Permanently drops the calling thread's privileges, except those that a thread of this `kind`
    /// keeps.
    ///
    /// # Errors
    /// If the user of `--user` cannot be assumed, or if the kernel refuses to remove capabilities.
    /// Also if a part of the sandbox is missing and `--sandbox required` was given.
    pub(crate) fn drop_all(&self, kind: Kind) -> Result<Dropped, Error> {
        let failed = |errno: Errno| Error::System {
            what: "dropping capabilities",
            source: errno.into(),
        };
        let keep = self.table.keeps(kind);
        let mut missing = Vec::new();
        set_keep_capabilities(!keep.is_empty()).map_err(failed)?;
        // Emptying the bounding set needs CAP_SETPCAP, so this step comes before the thread drops
        // that capability.
        if let Err(errno) = capabilities::empty_bounding_set() {
            missing.push(format!(
                "an empty bounding set ({}; it needs CAP_SETPCAP)",
                text(errno)
            ));
        }
        let user = self.change_user(&mut missing)?;
        capabilities::keep_only(keep).map_err(failed)?;
        if let Some(files) = Unreadable::among(self.table.to_read_again(kind)) {
            tracing::warn!("{}", files.warning(&user));
        }
        // The sandbox comes last, because it forbids system calls that the steps above need.
        if let Some(limits) = &self.limits {
            limits[kind as usize].apply(&mut missing);
        }
        if self.plan.sandbox == Sandbox::Required && !missing.is_empty() {
            return Err(Error::Sandbox(missing.join(", ")));
        }
        Ok(Dropped { user, missing })
    }

    fn change_user(&self, missing: &mut Vec<String>) -> Result<String, Error> {
        match &self.plan.user {
            NewUser::Account { account, required } => match account.assume() {
                Ok(()) => return Ok(format!("{account}, no supplementary groups")),
                Err(errno) if *required => {
                    return Err(Error::User {
                        user: account.to_string(),
                        source: errno.into(),
                    });
                }
                Err(errno) => missing.push(format!("user {account} ({})", text(errno))),
            },
            NewUser::Same => {}
            NewUser::NoneFound => missing.push(
                "a user other than root (neither the program's own user nor nobody exists; name \
                 one with --user)"
                    .to_owned(),
            ),
        }
        Ok(format!(
            "uid {}, the user who started the server",
            geteuid()
        ))
    }

    /// Returns the lines of the start block: the threads' user, their sandbox, and its missing
    /// parts.
    pub(crate) fn lines(&self, dropped: Dropped) -> Vec<(&'static str, String)> {
        let sandbox = match &self.limits {
            None => "off by option; no thread has a capability".to_owned(),
            Some([worker, control, _]) => format!(
                "no thread has a capability; Landlock: {}; seccomp: {} system calls for workers, \
                 {} for the control thread",
                self.table.describe_file_access(),
                worker.filter.calls(),
                control.filter.calls()
            ),
        };
        dropped.lines(sandbox)
    }

    /// Same as [`lines`](Self::lines), but for an embedded server, where only the workers have
    /// dropped their privileges.
    pub(crate) fn lines_of_workers(&self, dropped: Dropped) -> Vec<(&'static str, String)> {
        let sandbox = match &self.limits {
            None => "off by option; no worker has a capability".to_owned(),
            Some([worker, ..]) => format!(
                "no worker has a capability; Landlock: no file access; seccomp: {} system calls; \
                 other threads of this process keep their privileges",
                worker.filter.calls()
            ),
        };
        dropped.lines(sandbox)
    }
}

/// If `RUST_BACKTRACE` enables backtraces, makes the standard library load the program's symbols.
/// Later, a thread in the sandbox could not open the file that contains them.
fn keep_symbols() {
    drop(Backtrace::capture().to_string());
}

/// Returns a short description of an error, without the error number.
fn text(errno: Errno) -> String {
    std::io::Error::from(errno).kind().to_string()
}

#[cfg(test)]
#[path = "privileges_tests.rs"]
mod tests;
