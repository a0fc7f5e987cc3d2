//! Network namespaces that vanish with the value that made them.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::shell::{self, Context as _, Failure, Result};

/// A namespace of our own. Dropping it removes it, and with it every
/// interface inside.
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a namespace named after us and our process, loopback up.
    pub(crate) fn create(purpose: &str) -> Result<Self> {
        let name = format!("storm-{purpose}-{}", std::process::id());
        shell::capture(Command::new("ip").args(["netns", "add", &name]))?;
        let namespace = Self { name };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// `program`, to be run inside. Its process id stays the command's own:
    /// `ip netns exec` becomes the program.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Runs `ip ARGUMENTS` inside; arguments are divided at spaces.
    pub(crate) fn ip(&self, arguments: &str) -> Result<String> {
        let mut command = Command::new("ip");
        command
            .args(["-n", &self.name])
            .args(arguments.split_whitespace());
        shell::capture_text(&mut command)
    }

    /// Moves the calling thread into the namespace, for good: threads and
    /// processes that it starts are inside as well.
    pub(crate) fn enter(&self) -> Result<()> {
        let path = format!("/run/netns/{}", self.name);
        let file = File::open(&path).context(format_args!("opening {path}"))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .context(format_args!("entering {path}"))
    }

    /// Runs `work` on a thread of its own inside.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| self.enter().map(|()| work()));
            thread
                .join()
                .map_err(|_| Failure::new("a thread inside a network namespace has panicked"))?
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = shell::capture(Command::new("ip").args(["netns", "del", &self.name])) {
            eprintln!(
                "could not remove the network namespace {}: {error}",
                self.name
            );
        }
    }
}
