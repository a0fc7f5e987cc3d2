//! Lets the workers, and other programs, go before a thread.
#![allow(unsafe_code)]

use std::io;

/// Nice value of the threads that prepare new content, or exchange datagrams. Beside a worker that
/// always runs, such a thread still gets a tenth of a core.
const NICE: i32 = 10;
/// Length of a time slice of such a thread, in nanoseconds. A thread that wakes up need not wait longer
/// for its core. The usual slice is some milliseconds, in which rings fill. Kernels before 6.12 ignore it.
const SLICE: u64 = 100_000;

/// Lets other threads go first wherever they share a core with the calling one.
pub(crate) fn give_way() {
    if let Err(error) = set(NICE, SLICE) {
        tracing::info!(
            "a thread beside the workers does not give way to them: {error}; to change that, let the \
             server call sched_setattr"
        );
    }
}

fn set(nice: i32, slice: u64) -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: slice,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel reads the live attributes, which have the size that they state.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if set < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    #[test]
    fn only_the_calling_thread_gives_way() {
        let before = getpriority_process(None).unwrap();
        let lower = std::thread::spawn(|| {
            give_way();
            getpriority_process(None).unwrap()
        });
        assert_eq!(lower.join().unwrap(), NICE);
        assert_eq!(getpriority_process(None).unwrap(), before);
    }
}
