//! The removal of the interface, and its return.
//!
//! When an interface is removed, the kernel takes the socket's queue away for good. A port that waits
//! for the interface's return then behaves as if a cable were unplugged, until it gets the socket of a
//! new queue ([`Port::attach`](crate::Port::attach)). The packet memory stays, with the resident packets
//! in it. So connections can go on, if the interface gets its addresses back.

use std::io;

use super::socket::Copying;
use super::{BusyPolling, XdpPort};
use crate::device::{NewQueue, ZeroCopy};
use crate::sys;
use crate::xdp::{Runs, XdpConfig};

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
}

impl XdpPort {
    /// Handles the failure of a system call. If the interface was removed and the port waits for its
    /// return, packets are dropped from now on.
    ///
    /// # Errors
    /// The error that made the port unusable: the socket's pending error if there is one, otherwise
    /// `error`.
    #[cold]
    pub(super) fn fail(&mut self, error: io::Error) -> io::Result<()> {
        let cause = sys::option(self.rings.fd(), libc::SOL_SOCKET, libc::SO_ERROR);
        let error = match cause {
            Ok(errno) if errno != 0 => io::Error::from_raw_os_error(errno),
            _ => error,
        };
        let is_removal = matches!(
            error.raw_os_error(),
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV)
        );
        if !is_removal || !self.removal.is_expected {
            return Err(error);
        }
        if let Runs::Supers(packets) = &mut self.runs {
            self.dropped += packets.clear() as u64;
        }
        self.removal.is_gone = true;
        // Sending then takes the path on which it is checked whether the interface is gone.
        self.bypasses_ring = true;
        self.unflushed = false;
        Ok(())
    }

    /// Checks whether the port is still usable.
    ///
    /// # Errors
    /// The socket's pending error, unless the port waits for the return of its interface.
    pub(super) fn check_alive(&mut self) -> io::Result<()> {
        if self.removal.is_gone {
            return Ok(());
        }
        match sys::option(self.rings.fd(), libc::SOL_SOCKET, libc::SO_ERROR)? {
            0 => Ok(()),
            errno => self.fail(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Goes on with another queue, in the same mode.
    pub(super) fn attach_to(&mut self, queue: NewQueue) -> io::Result<()> {
        if !self.removal.is_expected {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if self.poller.is_some() {
            let why = "a port that polls its queue through io_uring cannot use another queue";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let mode = match self.rings.copying() {
            Copying::Never => ZeroCopy::Required,
            _ => ZeroCopy::Off,
        };
        let config = XdpConfig {
            index: queue.index,
            socket: queue.socket,
            zero_copy: mode,
            ..self.config.clone()
        };
        let counts = self.rings.kernel_counts();
        self.rings.attach(&config).map_err(io::Error::other)?;
        self.removal.earlier = self.removal.with_earlier(counts);
        // The kernel accepts the budget if it did so for the first socket.
        let _ = self.rings.raise_budget();
        if let Runs::Supers(packets) = &mut self.runs {
            packets.attach(config.index)?;
        }
        self.busy_polling = BusyPolling::of(&self.rings, config.wait);
        self.napi_id_queries = 0;
        (self.config.index, self.config.socket) = (config.index, config.socket);
        self.removal.is_gone = false;
        (self.bypasses_ring, self.unflushed) = (false, false);
        Ok(())
    }
}
