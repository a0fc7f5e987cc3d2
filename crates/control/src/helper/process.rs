//! Forks the helper process.
#![allow(unsafe_code)]

use std::io;

use nix::sys::signal::SigSet;
use nix::unistd::{ForkResult, fork};

use crate::system;

/// The process in which the fork returned.
pub(super) enum Side {
    Server,
    Helper,
}

/// Forks this process, which must not have other threads.
pub(super) fn split() -> io::Result<Side> {
    if system::threads()? != 1 {
        return Err(io::Error::other("the process has threads already"));
    }
    // SAFETY: this is the only thread of the process. No other thread can hold a lock on which the
    // new process would wait forever.
    match unsafe { fork() }? {
        ForkResult::Parent { .. } => Ok(Side::Server),
        ForkResult::Child => Ok(Side::Helper),
    }
}

/// Blocks all signals. A terminal or a supervisor also sends its signals to the helper, which must
/// not exit before the server.
pub(super) fn block_signals() -> io::Result<()> {
    Ok(SigSet::all().thread_block()?)
}
