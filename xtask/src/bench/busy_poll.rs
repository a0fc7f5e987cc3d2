//! Busy polling of the kernel for a server that does not ask for it itself.
//!
//! `net.core.busy_poll` would do the same for every process of the machine;
//! an epoll instance can be told alone, also from outside.
#![allow(unsafe_code)]

use std::fs;
use std::os::fd::OwnedFd;

use rustix::ioctl::{self, Opcode, Setter};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::shell::{Context as _, Failure, Result};

/// `struct epoll_params` of linux/eventpoll.h (since Linux 6.9).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct EpollParams {
    busy_poll_usecs: u32,
    busy_poll_budget: u16,
    prefer_busy_poll: u8,
    pad: u8,
}

/// `EPIOCSPARAMS`: number 1 of type 0x8a, written by the caller.
const EPIOCSPARAMS: Opcode = ioctl::opcode::write::<EpollParams>(0x8a, 1);

/// How long a wait polls before it sleeps, and most packets of one poll.
const PARAMS: EpollParams = EpollParams {
    busy_poll_usecs: 64,
    busy_poll_budget: 64,
    prefer_busy_poll: 1,
    pad: 0,
};

/// Makes every wait of the process's epoll instances poll its network queues.
pub(crate) fn set(process: u32) -> Result<()> {
    let what = || format!("busy polling for process {process}");
    let id = i32::try_from(process).ok().and_then(Pid::from_raw);
    let id = id.ok_or_else(|| Failure::new("a process id out of range"))?;
    let pidfd = pidfd_open(id, PidfdFlags::empty()).context(what())?;
    let folder = format!("/proc/{process}/fd");
    for entry in fs::read_dir(&folder).context(what())?.flatten() {
        let is_epoll = fs::read_link(entry.path())
            .is_ok_and(|target| target.as_os_str() == "anon_inode:[eventpoll]");
        let number = entry.file_name().to_str().and_then(|n| n.parse().ok());
        let Some(number) = number.filter(|_| is_epoll) else {
            continue;
        };
        let epoll: OwnedFd =
            pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()).context(what())?;
        // SAFETY: `EPIOCSPARAMS` reads one `epoll_params`, which the setter
        // points at for the time of the call, and writes to no memory of ours.
        let done = unsafe { ioctl::ioctl(&epoll, Setter::<EPIOCSPARAMS, _>::new(PARAMS)) };
        done.context(what())?;
    }
    Ok(())
}
