//! The signals of an embedded server's threads.

use std::io;

use nix::sys::signal::{SigSet, Signal};

/// Signals caused by a thread's own faults, such as SIGSEGV, which must not be blocked.
const FAULTS: [Signal; 7] = [
    Signal::SIGABRT,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGSEGV,
    Signal::SIGSYS,
    Signal::SIGTRAP,
];

/// Blocks all signals except [`FAULTS`] on this thread. The threads that it starts inherit the signal
/// mask. Otherwise a signal handler could run in a worker's sandbox.
pub(super) fn block_signals() -> io::Result<()> {
    let mut others = SigSet::all();
    for fault in FAULTS {
        others.remove(fault);
    }
    Ok(others.thread_block()?)
}
