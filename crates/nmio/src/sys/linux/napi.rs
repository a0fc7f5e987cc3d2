//! Polling of a device queue by the thread that serves it, through `io_uring`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::IoUring;
use io_uring::cqueue;
use io_uring::opcode::PollAdd;
use io_uring::register::Restriction;
use io_uring::squeue::Entry;
use io_uring::types::{Fd, SubmitArgs, Timespec};

use super::super::check;

/// Maximum time of one poll, in µs. The kernel ends a poll early if another thread needs the CPU,
/// and sleeps for the rest of this time.
const MAX_POLL: Duration = Duration::from_micros(100);
/// Number of entries of the submission queue: one for the socket and one for the bell.
const ENTRIES: u32 = 2;
// Constants from linux/io_uring.h.
const IORING_REGISTER_NAPI: libc::c_uint = 27;
const REGISTER: u8 = 0;
const ADD_ID: u8 = 1;
const TRACK_ADDED_IDS: u32 = 1;

/// `struct io_uring_napi` from `linux/io_uring.h`.
#[repr(C)]
struct NapiRequest {
    busy_poll_us: u32,
    prefer_busy_poll: u8,
    operation: u8,
    padding: [u8; 2],
    argument: u32,
    reserved: u32,
}

/// Polls one NAPI instance, which is the kernel's receiving half of a device queue.
///
/// The kernel receives in the calling thread, so no interrupt and no other thread is needed.
/// An `AF_XDP` socket has options for this, but some drivers (veth among them) do not tell the
/// socket its NAPI instance. Requires Linux 6.13.
pub(crate) struct NapiPoller {
    ring: IoUring,
    /// Whether the kernel watches the socket and the bell.
    watched: [bool; 2],
}

impl NapiPoller {
    /// Creates a poller of NAPI instance `id`. Only the calling thread can use it.
    ///
    /// # Errors
    /// If the kernel has no `io_uring`, does not allow it, or is too old.
    pub(crate) fn open(id: u32) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_r_disabled()
            .build(ENTRIES)?;
        let submitter = ring.submitter();
        register(&ring, REGISTER, TRACK_ADDED_IDS)?;
        register(&ring, ADD_ID, id)?;
        // A filter of system calls does not see what an `io_uring` executes. So this one can do
        // nothing but watch descriptors.
        submitter.register_restrictions(&mut [Restriction::sqe_op(PollAdd::CODE)])?;
        submitter.register_enable_rings()?;
        Ok(Self {
            ring,
            watched: [false; 2],
        })
    }

    /// Receives packets in the calling thread until `fd` or `other` is readable, for at most
    /// `timeout`. Returns true if one of them may be readable. Callers pass the same descriptors in
    /// each call.
    pub(crate) fn poll(
        &mut self,
        fd: BorrowedFd<'_>,
        other: Option<BorrowedFd<'_>>,
        timeout: Duration,
    ) -> io::Result<bool> {
        for (index, fd) in [Some(fd), other].into_iter().enumerate() {
            if let Some(fd) = fd
                && !self.watched[index]
            {
                self.watch(fd, index);
            }
        }
        let timeout = Timespec::from(timeout.min(MAX_POLL));
        let args = SubmitArgs::new().timespec(&timeout);
        match self.ring.submitter().submit_with_args(1, &args) {
            Err(error) if !is_temporary(&error) => return Err(error),
            _ => {}
        }
        let mut readable = false;
        for event in self.ring.completion() {
            readable = true;
            if !cqueue::more(event.flags()) {
                self.watched[event.user_data() as usize & 1] = false;
            }
        }
        Ok(readable)
    }

    /// Queues a request to watch `fd` until the ring is closed.
    fn watch(&mut self, fd: BorrowedFd<'_>, index: usize) {
        let entry: Entry = PollAdd::new(Fd(fd.as_raw_fd()), libc::POLLIN as u32)
            .multi(true)
            .build()
            .user_data(index as u64);
        // SAFETY: the request contains no pointer. The kernel takes its own reference to the file
        // during the next call, while the caller still borrows the descriptor.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        self.watched[index] = pushed.is_ok();
    }
}

/// Returns true for errors after which the next poll may succeed: a timeout, or a signal.
fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY)
    )
}

/// Changes which NAPI instances the ring polls.
fn register(ring: &IoUring, operation: u8, argument: u32) -> io::Result<()> {
    let request = NapiRequest {
        busy_poll_us: MAX_POLL.as_micros() as u32,
        prefer_busy_poll: 1,
        operation,
        padding: [0; 2],
        argument,
        reserved: 0,
    };
    // SAFETY: the kernel reads and writes one live `NapiRequest`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring.as_raw_fd(),
            IORING_REGISTER_NAPI,
            &raw const request,
            1,
        )
    };
    check(result as i32).map(drop)
}
