//! Drops a thread's privileges. A worker drops them when its queue is open and its packets are
//! prepared. The control thread drops them when all workers are ready.
//!
//! On Linux, each thread has its own user, groups, capabilities, and limits on system calls and
//! files. Every thread of [`serve`](crate::serve) therefore drops its own privileges before the
//! first packet is handled. Threads share memory, so none of these threads may keep any privileges.
//!
//! On FreeBSD, all threads of a process have the same user and sandbox. The control thread drops the
//! privileges of the whole process when all workers are ready.

#[cfg(target_os = "freebsd")]
mod freebsd;
#[cfg(target_os = "linux")]
mod linux;
mod reading;
mod table;
mod user;

use std::backtrace::Backtrace;

use clap::ValueEnum;
use rustix::process::{Gid, Uid};

use crate::error::Error;
#[cfg(target_os = "freebsd")]
use freebsd as system;
#[cfg(target_os = "linux")]
use linux as system;
pub(crate) use table::{HelperTasks, Kind, Table};
pub use user::UserSpec;
use user::{NewUser, same_user};

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
    /// Looks up the user that the threads of `program` become: `user`, or else the default.
    ///
    /// # Errors
    /// If `user` or its group does not exist, or if the system cannot look it up.
    pub(crate) fn new(
        program: &str,
        user: Option<&UserSpec>,
        sandbox: Sandbox,
    ) -> Result<Self, Error> {
        Ok(Self {
            user: NewUser::find(user, program)?,
            sandbox,
        })
    }

    /// Returns true if the threads keep the user who starts the server, because that is not root.
    pub(crate) fn keeps_user(&self) -> bool {
        self.user == NewUser::Same
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
                Some(system::Limits::new(&table)?)
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
    /// The limits on files and system calls, or `None` if the sandbox is off.
    limits: Option<system::Limits>,
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
                table: Table::for_server(Vec::new(), crate::content_files::ContentFiles::default()),
                limits: None,
            });
        &PRIVILEGES
    }

    /// Returns the kind of the reload thread.
    pub(crate) fn reload_kind(&self) -> Kind {
        self.table.reload_kind()
    }

    /// Permanently drops the calling thread's privileges, except those that a thread of this `kind`
    /// keeps.
    ///
    /// # Errors
    /// If the user of `--user` cannot be assumed, or if the kernel refuses to remove capabilities.
    /// Also if a part of the sandbox is missing and `--sandbox required` was given.
    pub(crate) fn drop_all(&self, kind: Kind) -> Result<Dropped, Error> {
        let mut missing = Vec::new();
        let user = system::drop_all(
            kind,
            &self.table,
            self.limits.as_ref(),
            &mut missing,
            |missing| self.change_user(missing),
        )?;
        if self.plan.sandbox == Sandbox::Required && !missing.is_empty() {
            return Err(Error::Sandbox(missing.join(", ")));
        }
        Ok(Dropped { user, missing })
    }

    /// Warns of files that the calling thread of this `kind` should be able to read again, but may not.
    /// `dropped` is what it has dropped.
    pub(crate) fn warn_of_unreadable(&self, kind: Kind, dropped: &Dropped) {
        if let Some(files) = self.table.to_read_again(kind) {
            reading::warn(files, &dropped.user);
        }
    }

    /// Returns the user that the threads become, if it is another one.
    pub(crate) fn new_user(&self) -> Option<(Uid, Gid)> {
        match &self.plan.user {
            NewUser::Account { account, .. } => Some(account.ids()),
            NewUser::Same | NewUser::NoneFound => None,
        }
    }

    fn change_user(&self, missing: &mut Vec<String>) -> Result<String, Error> {
        match &self.plan.user {
            NewUser::Account { account, required } => {
                let (uid, gid) = account.ids();
                match system::assume(uid, gid) {
                    Ok(()) => return Ok(format!("{account}, no supplementary groups")),
                    Err(source) if *required => {
                        return Err(Error::User {
                            user: account.to_string(),
                            source,
                        });
                    }
                    Err(error) => missing.push(format!("user {account} ({})", error.kind())),
                }
            }
            NewUser::Same => {}
            NewUser::NoneFound => missing.push(
                "a user other than root (neither the program's own user nor nobody exists; name \
                 one with --user)"
                    .to_owned(),
            ),
        }
        Ok(same_user())
    }

    /// Returns the lines of the start block: the threads' user, their sandbox, and its missing
    /// parts.
    pub(crate) fn lines(&self, dropped: Dropped) -> Vec<(&'static str, String)> {
        dropped.lines(system::describe(self.limits.as_ref(), &self.table))
    }
}

/// If `RUST_BACKTRACE` enables backtraces, makes the standard library load the program's symbols.
/// Later, a thread in the sandbox could not open the file that contains them.
fn keep_symbols() {
    drop(Backtrace::capture().to_string());
}
