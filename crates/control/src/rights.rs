//! Giving up rights once every queue is open and all content is read.
//!
//! User, groups, capabilities and what limits system calls and files belong to
//! a thread, not to the process. So every thread gives its own up, in the same
//! way, before the first packet is handled; and since threads share memory,
//! none of them keeps any.

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

/// `--sandbox`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sandbox {
    /// As far as the kernel has it; what could not be had is said at start.
    Auto,
    /// All of it, and no start without.
    Required,
    /// No limits on files and system calls. User and capabilities are given up
    /// all the same.
    Off,
}

/// What the command line says of rights.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    user: NewUser,
    sandbox: Sandbox,
}

impl Plan {
    /// Looks up the user that `args` names.
    ///
    /// # Errors
    /// When there is no such user or group.
    pub(crate) fn new(args: &ServeArgs, program: &str) -> Result<Self, Error> {
        Ok(Self {
            user: NewUser::find(args.user.as_ref(), program)?,
            sandbox: args.sandbox(),
        })
    }

    /// What threads of this process give up, with `table` for exceptions.
    ///
    /// # Errors
    /// When rules for files or system calls cannot be made, which is a bug.
    pub(crate) fn rights(&self, table: Table) -> Result<Rights, Error> {
        let walls = match self.sandbox {
            Sandbox::Off => None,
            Sandbox::Auto | Sandbox::Required => {
                keep_symbols();
                Some([
                    Walls::new(Kind::Worker, &table)?,
                    Walls::new(Kind::Control, &table)?,
                    Walls::new(Kind::Helper, &table)?,
                ])
            }
        };
        Ok(Rights {
            plan: self.clone(),
            table,
            walls,
        })
    }
}

/// What every thread of this process gives up.
#[derive(Debug)]
pub(crate) struct Rights {
    plan: Plan,
    table: Table,
    /// By [`Kind`]; `None` when they are off.
    walls: Option<[Walls; 3]>,
}

/// What keeps a thread of one kind from files and system calls.
#[derive(Debug)]
struct Walls {
    files: Files,
    filter: Filter,
}

impl Walls {
    fn new(kind: Kind, table: &Table) -> Result<Self, Error> {
        Ok(Self {
            files: Files::reading_below(table.readable(kind))
                .map_err(|error| Error::Walls(error.to_string()))?,
            filter: Filter::compile(kind).map_err(|error| Error::Walls(error.to_string()))?,
        })
    }

    fn raise(&self, missing: &mut Vec<String>) {
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

/// What has become of a thread's rights, in words for the start block.
#[derive(Clone, Debug, Default)]
pub(crate) struct GivenUp {
    /// Who the thread is now.
    user: String,
    /// What it could not give up; empty when all went well.
    missing: Vec<String>,
}

impl GivenUp {
    /// Adds what other threads could not give up.
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
        lines.extend(missing.map(|what| ("not to be had", what)));
        lines
    }
}

impl Rights {
    /// The threads stay who they are, without a sandbox.
    #[cfg(test)]
    pub(crate) fn of_who_started() -> &'static Self {
        static RIGHTS: std::sync::LazyLock<Rights> = std::sync::LazyLock::new(|| Rights {
            plan: Plan {
                user: NewUser::Same,
                sandbox: Sandbox::Off,
            },
            table: Table::for_server(Vec::new(), Vec::new()),
            walls: None,
        });
        &RIGHTS
    }

    /// Gives up the rights of the calling thread, of this kind, for good.
    ///
    /// # Errors
    /// When the user that was asked for cannot be assumed, when the kernel
    /// refuses to take capabilities away, or when something is missing that
    /// `--sandbox required` asks for.
    pub(crate) fn give_up(&self, kind: Kind) -> Result<GivenUp, Error> {
        let failed = |errno: Errno| Error::System {
            what: "giving up capabilities",
            source: errno.into(),
        };
        let keep = self.table.keeps(kind);
        let mut missing = Vec::new();
        set_keep_capabilities(!keep.is_empty()).map_err(failed)?;
        // While there still is the capability that this takes.
        if let Err(errno) = capabilities::empty_bounding_set() {
            missing.push(format!(
                "an empty bounding set ({}; it takes CAP_SETPCAP)",
                text(errno)
            ));
        }
        let user = self.change_user(&mut missing)?;
        capabilities::keep_only(keep).map_err(failed)?;
        if let Some(files) = Unreadable::among(self.table.to_read_again(kind)) {
            tracing::warn!(
                "only a restart can load these files again: {files}; let the server's user read \
                 them ({user}), or name another with --user"
            );
        }
        // Last: system calls that are not needed any more end here.
        if let Some(walls) = &self.walls {
            walls[kind as usize].raise(&mut missing);
        }
        if self.plan.sandbox == Sandbox::Required && !missing.is_empty() {
            return Err(Error::Sandbox(missing.join(", ")));
        }
        Ok(GivenUp { user, missing })
    }

    fn change_user(&self, missing: &mut Vec<String>) -> Result<String, Error> {
        match &self.plan.user {
            NewUser::Account { account, asked } => match account.assume() {
                Ok(()) => return Ok(format!("{account}, no supplementary groups")),
                Err(errno) if *asked => {
                    return Err(Error::User {
                        user: account.to_string(),
                        source: errno.into(),
                    });
                }
                Err(errno) => missing.push(format!("user {account} ({})", text(errno))),
            },
            NewUser::Same => {}
            NewUser::NoneFound => missing.push(
                "another user than root (neither the program's own nor nobody exists; name one \
                 with --user)"
                    .to_owned(),
            ),
        }
        Ok(format!("uid {}, who started the server", geteuid()))
    }

    /// Lines for the start block: who the threads are, what keeps them in, and
    /// what is missing.
    pub(crate) fn lines(&self, given_up: GivenUp) -> Vec<(&'static str, String)> {
        let sandbox = match &self.walls {
            None => "off, as asked for; no thread has a capability".to_owned(),
            Some([worker, control, _]) => format!(
                "no thread has a capability; Landlock: no file but for reading {}; seccomp: {} \
                 system calls for workers, {} for the control thread",
                self.table.shown(),
                worker.filter.calls(),
                control.filter.calls()
            ),
        };
        given_up.lines(sandbox)
    }

    /// The same where the workers alone have given up their rights.
    pub(crate) fn lines_of_workers(&self, given_up: GivenUp) -> Vec<(&'static str, String)> {
        let sandbox = match &self.walls {
            None => "off, as asked for; no worker has a capability".to_owned(),
            Some([worker, ..]) => format!(
                "no worker has a capability; Landlock: no file; seccomp: {} system calls; other \
                 threads of this process are as they were",
                worker.filter.calls()
            ),
        };
        given_up.lines(sandbox)
    }
}

/// Where `RUST_BACKTRACE` asks for backtraces, makes the standard library map the
/// program's symbols, as a thread behind walls cannot open them.
fn keep_symbols() {
    drop(Backtrace::capture().to_string());
}

/// The system's word for an error, without its number.
fn text(errno: Errno) -> String {
    std::io::Error::from(errno).kind().to_string()
}

#[cfg(test)]
#[path = "rights_tests.rs"]
mod tests;
