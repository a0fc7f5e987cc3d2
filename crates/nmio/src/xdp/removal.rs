//! The removal of the interface, and its return.
//!
//! When an interface is removed, the kernel takes the socket's queue away for good. A port that waits
//! for the interface's return then behaves as if a cable were unplugged, until it gets a new queue
//! ([`Port::attach`](crate::Port::attach)). The packet memory stays, with the
//! resident packets in it. So connections can go on, if the interface gets its addresses back.

use std::error::Error as _;
use std::io;

use crate::device::DeviceError;

/// Whether the interface was removed.
#[derive(Debug)]
pub(super) struct Removal {
    /// Whether the port waits for the interface's return.
    is_expected: bool,
    is_gone: bool,
    /// The kernel's counts of received frames that it lost, and of invalid descriptors, for the sockets
    /// of removed interfaces.
    earlier: (u64, u64),
}

impl Removal {
    pub(super) fn expected(is_expected: bool) -> Self {
        Self {
            is_expected,
            is_gone: false,
            earlier: (0, 0),
        }
    }

    /// Returns true if the port waits for the interface's return now.
    #[inline(always)]
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Adds the counts of earlier sockets to those of the present one.
    pub(super) fn with_earlier(&self, (lost, invalid): (u64, u64)) -> (u64, u64) {
        (self.earlier.0 + lost, self.earlier.1 + invalid)
    }

    /// Notes a failure of the port. Returns true if it is a removal for whose end the port waits.
    pub(super) fn note(&mut self, error: &io::Error) -> bool {
        let is_removal = matches!(
            error.raw_os_error(),
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV)
        );
        self.is_gone = is_removal && self.is_expected;
        self.is_gone
    }

    /// Returns true if a new queue could not be used because its interface was removed, too.
    pub(super) fn prevents(error: &DeviceError) -> bool {
        let source = error
            .source()
            .and_then(<dyn std::error::Error>::downcast_ref);
        let errno = source.and_then(io::Error::raw_os_error);
        matches!(errno, Some(libc::ENODEV | libc::ENXIO))
    }

    /// Returns true if the port may wait for the interface's return.
    pub(super) fn is_expected(&self) -> bool {
        self.is_expected
    }

    /// Notes that the port has another socket. `counts` are the kernel's counts for the former one.
    pub(super) fn keep_counts(&mut self, counts: (u64, u64)) {
        self.earlier = self.with_earlier(counts);
    }

    /// Notes that the port no longer waits.
    pub(super) fn end(&mut self) {
        self.is_gone = false;
    }
}
