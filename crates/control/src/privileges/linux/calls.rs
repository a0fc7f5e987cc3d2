//! The complete list of system calls that each kind of thread may still use after it has dropped its
//! privileges. A feature that needs further calls while the server runs must add them to
//! [`system_calls`].

use libc::c_long;

use crate::privileges::table::Kind;

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

/// The flags with which a call opens a file for more than reading.
const NOT_READING: u64 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND) as u64;
/// Allows `openat` only for reading.
const READ_ONLY: Argument = Argument::Without(2, NOT_READING);

/// Forbids making memory executable, so that injected code cannot run.
const NOT_EXECUTABLE: Argument = Argument::Without(2, libc::PROT_EXEC as u64);

// Constants from linux/sockios.h and linux/if_packet.h.
const SIOCGIFFLAGS: u64 = 0x8913;
/// The `ioctl` numbers with which a netmap port synchronizes its rings (`net/netmap.h`). Both have no
/// argument.
const NIOCTXSYNC: u64 = 0x6994;
const NIOCRXSYNC: u64 = 0x6995;
/// Tells how much a socket has not sent yet.
const SIOCOUTQ: u64 = 0x5411;
const SIOCGIFMTU: u64 = 0x8921;
const SIOCGIFHWADDR: u64 = 0x8927;
const SIOCGIFINDEX: u64 = 0x8933;
const SIOCETHTOOL: u64 = 0x8946;
const PACKET_QDISC_BYPASS: u64 = 20;
// Options from linux/if_xdp.h.
const XDP_UMEM_REG: u64 = libc::XDP_UMEM_REG as u64;
const XDP_MAX_TX_SKB_BUDGET: u64 = 9;
// Timeouts with 64 bits, from asm-generic/socket.h.
const SO_RCVTIMEO_NEW: u64 = 66;
const SO_SNDTIMEO_NEW: u64 = 67;
// Commands of `bpf` from linux/bpf.h.
const BPF_MAP_CREATE: u64 = 0;
const BPF_MAP_LOOKUP_ELEM: u64 = 1;
const BPF_MAP_UPDATE_ELEM: u64 = 2;
const BPF_MAP_DELETE_ELEM: u64 = 3;
const BPF_PROG_LOAD: u64 = 5;
const BPF_OBJ_GET_INFO_BY_FD: u64 = 15;
const BPF_BTF_LOAD: u64 = 18;
const BPF_MAP_FREEZE: u64 = 22;
const BPF_LINK_CREATE: u64 = 28;
const BPF_PROG_BIND_MAP: u64 = 35;
const BPF_TOKEN_CREATE: u64 = 36;

/// Calls that the C library and the standard library may make on any thread: memory, locks, time,
/// log lines, the end of a thread, `abort`.
const EVERYWHERE: &[Call] = &[
    any(libc::SYS_read),
    any(libc::SYS_write),
    any(libc::SYS_writev),
    // A line of the log waits for room.
    any(libc::SYS_ppoll),
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
    only(libc::SYS_openat, READ_ONLY),
    any(libc::SYS_getcwd),
    #[cfg(target_arch = "x86_64")]
    any(libc::SYS_readlink),
    #[cfg(not(target_arch = "x86_64"))]
    any(libc::SYS_readlinkat),
];

/// Calls that a port makes to use a TAP device or netmap, and to send super-segments. A port also
/// checks whether its device can still cut super-segments. It continues on another queue if its
/// interface was removed.
const WORKER: &[Call] = &[
    // A port's io_uring can only watch descriptors, and no other can be created.
    any(libc::SYS_io_uring_enter),
    any(libc::SYS_readv),
    any(libc::SYS_sendmmsg),
    any(libc::SYS_getsockopt),
    only(
        libc::SYS_setsockopt,
        Argument::OneOf(
            2,
            &[PACKET_QDISC_BYPASS, XDP_UMEM_REG, XDP_MAX_TX_SKB_BUDGET],
        ),
    ),
    any(libc::SYS_bind),
    only(
        libc::SYS_ioctl,
        Argument::OneOf(
            1,
            &[SIOCETHTOOL, SIOCGIFFLAGS, SIOCOUTQ, NIOCTXSYNC, NIOCRXSYNC],
        ),
    ),
];

/// Calls to wait for events, to serve the endpoints, to ask the helper, and to wait at the end for
/// the helper's exit.
const CONTROL: &[Call] = &[
    any(libc::SYS_accept4),
    #[cfg(target_arch = "x86_64")]
    any(libc::SYS_epoll_wait),
    any(libc::SYS_epoll_pwait),
    any(libc::SYS_epoll_ctl),
    any(libc::SYS_recvmsg),
    any(libc::SYS_sendmsg),
    any(libc::SYS_shutdown),
];

/// Calls to read files and folders, and to ask for the memory in use.
const RELOAD: &[Call] = &[
    #[cfg(target_arch = "x86_64")]
    only(libc::SYS_open, Argument::Without(1, NOT_READING)),
    only(libc::SYS_openat, READ_ONLY),
    any(libc::SYS_fstat),
    any(libc::SYS_newfstatat),
    any(libc::SYS_statx),
    // The C library asks for access to the folders of a path that ends with a slash or has `..`.
    any(libc::SYS_faccessat),
    any(libc::SYS_faccessat2),
    // Before Linux 5.8, the user tells whether it has access.
    any(libc::SYS_getuid),
    any(libc::SYS_geteuid),
    any(libc::SYS_getgid),
    any(libc::SYS_getegid),
    any(libc::SYS_getdents64),
    any(libc::SYS_lseek),
    any(libc::SYS_readv),
    any(libc::SYS_pread64),
    any(libc::SYS_preadv),
    any(libc::SYS_preadv2),
    any(libc::SYS_fadvise64),
    any(libc::SYS_getcwd),
    #[cfg(target_arch = "x86_64")]
    any(libc::SYS_readlink),
    any(libc::SYS_readlinkat),
    any(libc::SYS_getrusage),
    only(
        libc::SYS_fcntl,
        Argument::OneOf(
            1,
            &[
                libc::F_GETFD as u64,
                libc::F_GETFL as u64,
                libc::F_SETFL as u64,
                libc::F_DUPFD_CLOEXEC as u64,
            ],
        ),
    ),
];

/// Calls to keep files, in addition to those for reading.
const STORE: &[Call] = &[
    any(libc::SYS_openat),
    any(libc::SYS_renameat),
    any(libc::SYS_renameat2),
    any(libc::SYS_unlinkat),
];

/// Calls to open the files of logs again, without waiting for the reader of a pipe.
const LOG: &[Call] = &[
    #[cfg(target_arch = "x86_64")]
    any(libc::SYS_open),
    any(libc::SYS_openat),
    only(
        libc::SYS_fcntl,
        Argument::OneOf(1, &[libc::F_GETFL as u64, libc::F_SETFL as u64]),
    ),
];

/// Calls to connect to the socket of a program that reads a log. The first one makes no other sockets.
const CONNECTING_LOG: &[Call] = &[
    only(
        libc::SYS_socket,
        Argument::OneOf(0, &[libc::AF_UNIX as u64]),
    ),
    any(libc::SYS_connect),
    only(
        libc::SYS_setsockopt,
        Argument::OneOf(
            2,
            &[
                libc::SO_RCVTIMEO as u64,
                libc::SO_SNDTIMEO as u64,
                SO_RCVTIMEO_NEW,
                SO_SNDTIMEO_NEW,
            ],
        ),
    ),
];

/// Calls to watch folders from a thread that does so, in addition to those for reading.
const WATCH: &[Call] = &[
    any(libc::SYS_clone3),
    any(libc::SYS_clone),
    any(libc::SYS_set_robust_list),
    any(libc::SYS_rseq),
    any(libc::SYS_prctl),
    any(libc::SYS_inotify_init1),
    any(libc::SYS_inotify_add_watch),
    any(libc::SYS_inotify_rm_watch),
    any(libc::SYS_eventfd2),
    any(libc::SYS_epoll_create1),
    any(libc::SYS_epoll_ctl),
    #[cfg(target_arch = "x86_64")]
    any(libc::SYS_epoll_wait),
    any(libc::SYS_epoll_pwait),
];

/// Calls to wait until the server exits, and to remove an interface or restore its offloads.
const HELPER: &[Call] = &[
    any(libc::SYS_recvmsg),
    any(libc::SYS_sendmsg),
    only(
        libc::SYS_socket,
        Argument::OneOf(0, &[libc::AF_UNIX as u64, libc::AF_NETLINK as u64]),
    ),
    only(
        libc::SYS_ioctl,
        Argument::OneOf(1, &[SIOCGIFINDEX, SIOCETHTOOL]),
    ),
];

/// Calls of a helper that follows the addresses of the interface: reserve ports, and change the maps of
/// the steering program.
const FOLLOW: &[Call] = &[
    only(
        libc::SYS_socket,
        Argument::OneOf(0, &[libc::AF_INET as u64, libc::AF_INET6 as u64]),
    ),
    only(
        libc::SYS_setsockopt,
        Argument::OneOf(2, &[libc::SO_REUSEADDR as u64, libc::IPV6_FREEBIND as u64]),
    ),
    any(libc::SYS_bind),
    only(
        libc::SYS_bpf,
        Argument::OneOf(
            0,
            &[
                BPF_MAP_UPDATE_ELEM,
                BPF_MAP_DELETE_ELEM,
                BPF_OBJ_GET_INFO_BY_FD,
            ],
        ),
    ),
];

/// Calls of a helper that opens the interface again. They come in addition to those for following its
/// addresses, and for reading what the kernel says about it.
const REOPEN: &[Call] = &[
    only(
        libc::SYS_socket,
        Argument::OneOf(0, &[libc::AF_PACKET as u64, libc::AF_XDP as u64]),
    ),
    any(libc::SYS_getsockopt),
    any(libc::SYS_setsockopt),
    any(libc::SYS_getsockname),
    only(
        libc::SYS_ioctl,
        Argument::OneOf(1, &[SIOCGIFFLAGS, SIOCGIFHWADDR, SIOCGIFMTU]),
    ),
    only(
        libc::SYS_bpf,
        Argument::OneOf(
            0,
            &[
                BPF_MAP_CREATE,
                BPF_MAP_LOOKUP_ELEM,
                BPF_PROG_LOAD,
                BPF_BTF_LOAD,
                BPF_MAP_FREEZE,
                BPF_LINK_CREATE,
                BPF_PROG_BIND_MAP,
                BPF_TOKEN_CREATE,
            ],
        ),
    ),
    #[cfg(target_arch = "x86_64")]
    any(libc::SYS_access),
    any(libc::SYS_statfs),
    any(libc::SYS_uname),
    any(libc::SYS_prlimit64),
    // libbpf keeps the descriptors of maps free with empty files.
    any(libc::SYS_memfd_create),
    any(libc::SYS_dup3),
];

/// Returns the calls that fail on a thread of this kind.
pub(super) fn refused(kind: Kind) -> impl Iterator<Item = &'static Call> {
    let is_allowed = move |call: &Call| system_calls(kind).any(|one| one.number == call.number);
    REFUSED.iter().filter(move |call| !is_allowed(call))
}

/// Returns all calls that a thread of this kind may use. If a call is listed several times, each of its
/// conditions allows it.
pub(super) fn system_calls(kind: Kind) -> impl Iterator<Item = &'static Call> {
    let more: &[&[Call]] = match kind {
        Kind::Worker => &[WORKER],
        Kind::Control => &[CONTROL],
        Kind::Reload | Kind::Read => &[RELOAD],
        Kind::StoringReload => &[RELOAD, STORE],
        // The calls that wait for datagrams, send and receive them are allowed everywhere.
        Kind::Exchange => &[],
        Kind::Log => &[LOG],
        Kind::ConnectingLog => &[CONNECTING_LOG],
        Kind::Watch => &[RELOAD, WATCH],
        Kind::Helper => &[HELPER],
        Kind::FollowingHelper => &[HELPER, FOLLOW],
        Kind::ReopeningHelper => &[HELPER, FOLLOW, REOPEN, RELOAD],
    };
    EVERYWHERE.iter().chain(more.iter().copied().flatten())
}
