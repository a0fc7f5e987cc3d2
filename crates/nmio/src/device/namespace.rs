//! A network namespace that nobody else has.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;

use crate::sys;

/// A network namespace that lives as long as this handle (and sockets in it)
/// do: with the process, however it ends, go the namespace and the interfaces
/// in it, and with one end of a veth pair goes the other.
#[derive(Clone, Debug)]
pub(super) struct Namespace(Arc<OwnedFd>);

impl Namespace {
    /// Makes an empty one. The calling thread stays where it is.
    pub(super) fn new() -> io::Result<Self> {
        in_thread(|| {
            sys::unshare_network()?;
            let file = File::open("/proc/thread-self/ns/net")?;
            Ok(Self(Arc::new(file.into())))
        })?
    }

    /// Moves the calling thread into it, for good.
    pub(super) fn enter(&self) -> io::Result<()> {
        sys::enter_network(self.0.as_fd())
    }

    /// Does `work` in it; the calling thread stays where it is.
    pub(super) fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> io::Result<R> {
        in_thread(|| {
            self.enter()?;
            Ok(work())
        })?
    }

    /// The descriptor that keeps it.
    pub(super) fn handle(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.0)
    }

    pub(super) fn from_handle(handle: Arc<OwnedFd>) -> Self {
        Self(handle)
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A thread's namespace is its own, so a short-lived one can change it.
fn in_thread<R: Send>(work: impl FnOnce() -> R + Send) -> io::Result<R> {
    thread::scope(|scope| {
        let helper = thread::Builder::new()
            .name("namespace".into())
            .spawn_scoped(scope, work)?;
        helper
            .join()
            .map_err(|_| io::Error::other("a helper thread panicked"))
    })
}
