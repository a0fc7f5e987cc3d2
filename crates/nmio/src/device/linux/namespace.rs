//! Private network namespaces.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;

use crate::sys;

/// A network namespace. It exists while a handle to it or a socket in it is open, or a thread is in
/// it.
///
/// When none of these is left, the kernel removes the namespace and its virtual interfaces. If an
/// interface is one end of a veth pair, the kernel also removes the other end.
#[derive(Clone, Debug)]
pub(in crate::device) struct Namespace(Arc<OwnedFd>);

impl Namespace {
    /// Creates an empty namespace. The calling thread stays in its current namespace.
    pub(super) fn new() -> io::Result<Self> {
        in_thread(|| {
            sys::unshare_network()?;
            let file = File::open("/proc/thread-self/ns/net")?;
            Ok(Self(Arc::new(file.into())))
        })?
    }

    /// Moves the calling thread into this namespace permanently.
    pub(super) fn enter(&self) -> io::Result<()> {
        sys::enter_network(self.0.as_fd())
    }

    /// Runs `work` inside this namespace. The calling thread stays in its current namespace.
    pub(super) fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> io::Result<R> {
        in_thread(|| {
            self.enter()?;
            Ok(work())
        })?
    }

    /// Returns the descriptor that keeps the namespace alive.
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

/// Runs `work` in a short-lived thread, which can change its namespace without affecting the
/// caller.
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
