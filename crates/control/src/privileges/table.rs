//! The complete list of files and system calls that each kind of thread may still use after it has
//! dropped its privileges.
//!
//! Descriptors that are already open, such as those of queues, captures and standard error, need no
//! entry here. A feature that opens files or sockets while the server runs must add its paths to
//! [`Table::for_server`] and its calls to [`system_calls`].

use std::path::PathBuf;

use libc::c_long;
use rustix::thread::CapabilitySet;

/// A kind of thread. Each kind has its own limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A thread that handles packets from the network.
    Worker,
    /// The thread that handles signals, and watches the workers and the helper.
    Control,
    /// The only thread of the helper process.
    Helper,
}

/// What threads may still do after they have dropped their privileges, as far as it depends on the
/// configuration.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Paths below which the control thread may read. No other thread may open a file.
    readable: Vec<PathBuf>,
    /// Files that the content was read from, which the server's user should be able to read again.
    files: Vec<PathBuf>,
    /// Capabilities that the helper keeps, to remove an interface at the end.
    helper_keeps: CapabilitySet,
}

impl Table {
    /// Returns the table for a server whose content was read from `files`, below the paths
    /// `readable`.
    pub(crate) fn for_server(readable: Vec<PathBuf>, files: Vec<PathBuf>) -> Self {
        Self {
            readable,
            files,
            helper_keeps: CapabilitySet::empty(),
        }
    }

    /// Returns the table for the helper process. `made_interface` says whether the helper has to
    /// remove an interface at the end.
    pub(crate) fn for_helper(made_interface: bool) -> Self {
        Self {
            helper_keeps: if made_interface {
                CapabilitySet::NET_ADMIN
            } else {
                CapabilitySet::empty()
            },
            readable: Vec::new(),
            files: Vec::new(),
        }
    }

    /// Describes the file access of the control thread, for the start block.
    pub(super) fn describe_file_access(&self) -> String {
        if self.readable.is_empty() {
            return "no file access".to_owned();
        }
        let paths = self.readable.iter().map(|path| path.display().to_string());
        format!("read access below {}", paths.collect::<Vec<_>>().join(", "))
    }

    /// Returns the paths below which a thread of this kind may read.
    pub(super) fn readable(&self, kind: Kind) -> &[PathBuf] {
        match kind {
            Kind::Control => &self.readable,
            Kind::Worker | Kind::Helper => &[],
        }
    }

    /// Returns the files that a thread of this kind should be able to read again.
    pub(super) fn to_read_again(&self, kind: Kind) -> &[PathBuf] {
        match kind {
            Kind::Control => &self.files,
            Kind::Worker | Kind::Helper => &[],
        }
    }

    /// Returns the capabilities that a thread of this kind keeps.
    pub(super) fn keeps(&self, kind: Kind) -> CapabilitySet {
        match kind {
            Kind::Helper => self.helper_keeps,
            Kind::Worker | Kind::Control => CapabilitySet::empty(),
        }
    }
}

/// A system call, possibly with a condition on one of its arguments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) number: c_long,
    pub(super) argument: Option<Argument>,
}

/// A condition on an argument of a call. The first value is the argument's position, from 0.
#[derive(Clone, Copy, Debug)]
pub(super) enum Argument {
    /// The argument must be one of these values.
    OneOf(u8, &'static [u64]),
    /// None of these bits may be set in the argument.
    Without(u8, u64),
    /// The argument must be the ID of this process.
    ThisProcess(u8),
}

const fn any(number: c_long) -> Call {
    Call {
        number,
        argument: None,
    }
}

const fn only(number: c_long, argument: Argument) -> Call {
    Call {
        number,
        argument: Some(argument),
    }
}

/// Forbids making memory executable, so that injected code cannot run.
const NOT_EXECUTABLE: Argument = Argument::Without(2, libc::PROT_EXEC as u64);

// Constants from linux/sockios.h and linux/if_packet.h.
const SIOCGIFFLAGS: u64 = 0x8913;
const SIOCGIFINDEX: u64 = 0x8933;
const SIOCETHTOOL: u64 = 0x8946;
const PACKET_QDISC_BYPASS: u64 = 20;

/// Calls that the C library and the standard library may make on any thread: memory, locks, time,
/// log lines, the end of a thread, `abort`.
const EVERYWHERE: &[Call] = &[
    any(libc::SYS_read),
    any(libc::SYS_write),
    any(libc::SYS_writev),
    any(libc::SYS_close),
    only(libc::SYS_fcntl, Argument::OneOf(1, &[libc::F_GETFD as u64])),
    any(libc::SYS_brk),
    only(libc::SYS_mmap, NOT_EXECUTABLE),
    only(libc::SYS_mprotect, NOT_EXECUTABLE),
    any(libc::SYS_mremap),
    any(libc::SYS_munmap),
    any(libc::SYS_madvise),
    any(libc::SYS_futex),
    any(libc::SYS_clock_gettime),
    any(libc::SYS_clock_nanosleep),
    any(libc::SYS_nanosleep),
    any(libc::SYS_sched_yield),
    // The C library asks for the number of CPUs when it needs another memory arena. Since version
    // 2.41, it also does so for a new random state.
    any(libc::SYS_sched_getaffinity),
    any(libc::SYS_getrandom),
    any(libc::SYS_getpid),
    any(libc::SYS_gettid),
    only(libc::SYS_tgkill, Argument::ThisProcess(0)),
    any(libc::SYS_rt_sigaction),
    any(libc::SYS_rt_sigprocmask),
    any(libc::SYS_rt_sigreturn),
    any(libc::SYS_restart_syscall),
    any(libc::SYS_sigaltstack),
    any(libc::SYS_exit),
    any(libc::SYS_exit_group),
    // These calls are for tokio's signal handler, which may run on any thread. Wake-ups of the
    // rings use the same calls.
    any(libc::SYS_sendto),
    any(libc::SYS_recvfrom),
];

/// Calls that fail with `EACCES` instead of killing the process.
///
/// When the C library returns memory of an arena to the kernel, it tries to open
/// `/proc/sys/vm/overcommit_memory`. With `RUST_BACKTRACE`, the panic handler asks for the current
/// folder and the program's path. The C library and the panic handler tolerate these errors.
pub(super) const REFUSED: &[Call] = &[
    only(
        libc::SYS_openat,
        Argument::Without(
            2,
            (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND) as u64,
        ),
    ),
    any(libc::SYS_getcwd),
    #[cfg(target_arch = "x86_64")]
    any(libc::SYS_readlink),
    #[cfg(not(target_arch = "x86_64"))]
    any(libc::SYS_readlinkat),
];

/// Calls that a port makes to wait, to use a TAP device, and to send super-segments. A port also
/// checks whether its device can still cut super-segments.
const WORKER: &[Call] = &[
    any(libc::SYS_ppoll),
    // A port's io_uring can only watch descriptors, and no other can be created.
    any(libc::SYS_io_uring_enter),
    any(libc::SYS_readv),
    any(libc::SYS_sendmmsg),
    any(libc::SYS_getsockopt),
    only(
        libc::SYS_setsockopt,
        Argument::OneOf(2, &[PACKET_QDISC_BYPASS]),
    ),
    only(
        libc::SYS_ioctl,
        Argument::OneOf(1, &[SIOCETHTOOL, SIOCGIFFLAGS]),
    ),
];

/// Calls to wait for events, and at the end for the helper's exit.
const CONTROL: &[Call] = &[
    #[cfg(target_arch = "x86_64")]
    any(libc::SYS_epoll_wait),
    any(libc::SYS_epoll_pwait),
    any(libc::SYS_epoll_ctl),
    any(libc::SYS_recvmsg),
    any(libc::SYS_shutdown),
];

/// Calls to wait until the server exits, and to remove an interface.
const HELPER: &[Call] = &[
    any(libc::SYS_recvmsg),
    any(libc::SYS_sendmsg),
    only(
        libc::SYS_socket,
        Argument::OneOf(0, &[libc::AF_UNIX as u64, libc::AF_NETLINK as u64]),
    ),
    only(libc::SYS_ioctl, Argument::OneOf(1, &[SIOCGIFINDEX])),
];

/// Returns all calls that a thread of this kind may use.
pub(super) fn system_calls(kind: Kind) -> impl Iterator<Item = &'static Call> {
    let more = match kind {
        Kind::Worker => WORKER,
        Kind::Control => CONTROL,
        Kind::Helper => HELPER,
    };
    EVERYWHERE.iter().chain(more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_control_thread_may_read_files() {
        let [folder, file] = ["pages", "pages/index"].map(PathBuf::from);
        let table = Table::for_server(vec![folder.clone()], vec![file.clone()]);
        assert_eq!(table.describe_file_access(), "read access below pages");
        assert_eq!(table.readable(Kind::Control), [folder]);
        assert_eq!(table.to_read_again(Kind::Control), [file]);
        for kind in [Kind::Worker, Kind::Helper] {
            assert!(table.readable(kind).is_empty(), "{kind:?}");
            assert!(table.to_read_again(kind).is_empty(), "{kind:?}");
        }
    }
}
