//! Forks the helper process.
#![allow(unsafe_code)]

use std::io;

use nix::sys::signal::SigSet;
use nix::unistd::{ForkResult, fork};

use crate::system;

/// Why there is no fork in a process with several threads.
const HAS_THREADS: &str = "the process has threads already; start threads in the function that loads the \
                           content, or later, or serve with control::embed";

/// The process in which the fork returned.
pub(super) enum Side {
    Server,
    Helper,
}

/// Forks this process, which must not have other threads.
pub(super) fn split() -> io::Result<Side> {
    if system::threads()? != 1 {
        return Err(io::Error::other(HAS_THREADS));
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_process_with_threads_is_not_forked_and_hears_what_to_do() {
        let (end, is_over) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || is_over.recv());
            let error = split().map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("control::embed"), "{error}");
            drop(end);
        });
    }
}
