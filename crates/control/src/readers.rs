//! Threads that do what no worker must wait for, such as reading files, or asking other servers.

use std::thread::{Builder, Scope};

use crate::confined::Confined;
use crate::error::Error;
use crate::privileges::{Kind, Privileges};

/// What the threads of [`Readers`] read. It decides what they may do when their privileges are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Files below [`Program::read_paths`](crate::Program::read_paths), as the server's user.
    #[default]
    Files,
    /// Datagrams of other servers. The threads send and receive them through sockets that were opened
    /// before, and may wait with `poll`. Workers go first where they share a core with these threads.
    Datagrams,
}

impl Source {
    fn kind(self) -> Kind {
        match self {
            Self::Files => Kind::Read,
            Self::Datagrams => Kind::Exchange,
        }
    }
}

/// Threads beside the workers that read what clients ask for, check passwords, or read what other
/// servers reply. A [`Program`](crate::Program) returns them from
/// [`Program::readers`](crate::Program::readers).
///
/// How work reaches the threads, and how results reach a worker, is the program's own matter, for
/// example a channel and a [mailbox](nmio::Bell::mailbox).
pub trait Readers: Sync {
    /// Number of threads.
    fn threads(&self) -> usize;

    /// What the threads read.
    fn source(&self) -> Source {
        Source::default()
    }

    /// Works on one of the threads until [`end`](Self::end) is called.
    fn run(&self);

    /// Called once when the workers begin to serve, on the control thread. The default does nothing.
    fn serving(&self) {}

    /// Makes all threads return from [`run`](Self::run) soon. It may be called before they do
    /// anything.
    fn end(&self);
}

/// The control thread's side of the threads. They end when this is dropped.
pub(crate) struct Reading<'env> {
    readers: Vec<&'env dyn Readers>,
    threads: Vec<Confined>,
}

impl<'env> Reading<'env> {
    /// Starts the threads. They first drop their privileges, except for their [`Source`].
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub(crate) fn start<'scope>(
        scope: &'scope Scope<'scope, 'env>,
        name: &str,
        readers: Vec<&'env dyn Readers>,
        privileges: &'env Privileges,
    ) -> Result<Self, Error> {
        let mut reading = Self {
            readers,
            threads: Vec::new(),
        };
        for &one in &reading.readers {
            for _ in 0..one.threads() {
                let (name, work) = (format!("{name}-read"), || one.run());
                let kind = one.source().kind();
                let thread = Confined::start(scope, name, kind, privileges, work)?;
                reading.threads.push(thread);
            }
        }
        Ok(reading)
    }

    /// Starts the threads in a program that keeps its privileges.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub(crate) fn start_embedded<'scope>(
        scope: &'scope Scope<'scope, 'env>,
        name: &str,
        readers: Vec<&'env dyn Readers>,
    ) -> Result<Self, Error> {
        let reading = Self {
            readers,
            threads: Vec::new(),
        };
        for &one in &reading.readers {
            for _ in 0..one.threads() {
                Builder::new()
                    .name(format!("{name}-read"))
                    .spawn_scoped(scope, || one.run())
                    .map_err(Error::system("starting a thread that reads files"))?;
            }
        }
        Ok(reading)
    }

    /// Tells the threads that the workers serve.
    pub(crate) fn serving(&self) {
        for one in &self.readers {
            one.serving();
        }
    }

    /// Returns the threads.
    pub(crate) fn threads(&self) -> impl Iterator<Item = &Confined> {
        self.threads.iter()
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        for one in &self.readers {
            one.end();
        }
    }
}
