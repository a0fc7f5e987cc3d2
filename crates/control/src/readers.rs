//! Threads that do for the workers what takes long, such as reading files. A worker must not wait for it.

use std::thread::{Builder, Scope};

use crate::confined::Confined;
use crate::error::Error;
use crate::privileges::{Kind, Privileges};

/// Threads beside the workers that read what clients ask for, or check passwords. A [`Program`](crate::Program) returns
/// them from [`Program::readers`](crate::Program::readers).
///
/// The threads may read files below [`Program::read_paths`](crate::Program::read_paths), as the
/// server's user. How work reaches them, and how results reach a worker, is the program's own matter,
/// for example a channel and a [mailbox](nmio::Bell::mailbox).
pub trait Readers: Sync {
    /// Number of threads.
    fn threads(&self) -> usize;

    /// Works on one of the threads until [`end`](Self::end) is called.
    fn run(&self);

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
    /// Starts the threads. They first drop their privileges, except reading the content.
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
                let thread = Confined::start(scope, name, Kind::Read, privileges, work)?;
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
