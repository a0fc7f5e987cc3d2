//! Busy polling for a server that does not enable busy polling itself.
//!
//! `net.core.busy_poll` would enable busy polling for every process of the machine. An ioctl
//! enables it for a single epoll instance, even from another process.
#![allow(unsafe_code)]

use anyhow::{Context as _, Result, anyhow};
use procfs::process::{FDTarget, Process};
use rustix::ioctl::{self, Opcode, Setter};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// `struct epoll_params` from linux/eventpoll.h, since Linux 6.9.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct EpollParams {
    busy_poll_usecs: u32,
    busy_poll_budget: u16,
    prefer_busy_poll: u8,
    pad: u8,
}

/// `EPIOCSPARAMS` from linux/eventpoll.h: ioctl number 1 of type 0x8a, which passes data to the
/// kernel.
const EPIOCSPARAMS: Opcode = ioctl::opcode::write::<EpollParams>(0x8a, 1);

/// Settings: poll for 64 µs before a wait sleeps, and take at most 64 packets per poll.
const PARAMS: EpollParams = EpollParams {
    busy_poll_usecs: 64,
    busy_poll_budget: 64,
    prefer_busy_poll: 1,
    pad: 0,
};

/// Makes all epoll instances of a process busy-poll their network queues.
pub(crate) fn set(process: i32) -> Result<()> {
    let what = || format!("setting busy polling for process {process}");
    let id = Pid::from_raw(process).ok_or_else(|| anyhow!("a process id out of range"))?;
    let pidfd = pidfd_open(id, PidfdFlags::empty()).with_context(what)?;
    let descriptors = Process::new(process)
        .and_then(|process| process.fd())
        .with_context(what)?;
    for descriptor in descriptors.flatten() {
        if !matches!(&descriptor.target, FDTarget::AnonInode(kind) if kind == "[eventpoll]") {
            continue;
        }
        let epoll =
            pidfd_getfd(&pidfd, descriptor.fd, PidfdGetfdFlags::empty()).with_context(what)?;
        // SAFETY: `EPIOCSPARAMS` reads one `epoll_params`, to which the setter points during the
        // call. It writes no memory of this process.
        let done = unsafe { ioctl::ioctl(&epoll, Setter::<EPIOCSPARAMS, _>::new(PARAMS)) };
        done.with_context(what)?;
    }
    Ok(())
}
