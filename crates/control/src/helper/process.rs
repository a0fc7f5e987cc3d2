//! Becoming two processes.
#![allow(unsafe_code)]

use std::fs;
use std::io;

use nix::sys::signal::SigSet;
use nix::unistd::{ForkResult, fork};

/// Which of the two processes this is.
pub(super) enum Side {
    Server,
    Helper,
}

/// Makes a second process of this one, which must have no thread yet.
pub(super) fn split() -> io::Result<Side> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("the process has threads already"));
    }
    // SAFETY: this is the only thread of the process, so no other one can hold
    // a lock that the new process would wait for.
    match unsafe { fork() }? {
        ForkResult::Parent { .. } => Ok(Side::Server),
        ForkResult::Child => Ok(Side::Helper),
    }
}

/// Keeps signals that a terminal or a supervisor sends to all processes from
/// ending this one before the server has ended.
pub(super) fn block_signals() -> io::Result<()> {
    Ok(SigSet::all().thread_block()?)
}
