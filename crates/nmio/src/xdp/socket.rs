//! An `AF_XDP` socket that is bound to a queue, with its rings.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::config::XdpConfig;
use super::fill_level::FILL_RING;
use super::retry::Retry;
use super::ring::{Consumer, Producer, RingName};
use super::sizes::{COMPLETION_RING, FrameLayout, MAX_SINGLE_BUFFER_MTU, RX_RING, TX_RING};
use super::tx_ring::TxRing;
use super::umem::Umem;
use super::virtio::damages_frames;
use crate::device::{DeviceError, ZeroCopy};
use crate::port::Wait;
use crate::sys;

/// Whether the kernel copies packets between frames and the device.
#[derive(Debug)]
pub(super) enum Copying {
    /// The kernel does not copy packets (zero-copy).
    Never,
    /// The kernel copies packets, because generic mode always does.
    Generic,
    /// The kernel copies packets, because `zerocopy=off` was given.
    Requested,
    /// The kernel copies packets, because the driver [damages frames](damages_frames) otherwise.
    Faulty,
    /// The kernel copies packets, because the driver refused zero-copy with this error.
    Refused(io::Error),
}

/// Limit on the kernel memory for packets in flight, in bytes. It suffices for a full TX ring,
/// because each packet is charged at most one page.
const SEND_BUFFER: u32 = TX_RING * 4096;
/// Maximum number of packets that one busy-polling call handles.
const BUSY_POLL_BUDGET: u32 = 64;
/// Time that one busy-polling call may spin in the kernel, in µs.
const BUSY_POLL_TIME: u32 = 20;

// Options from linux/socket.h that libc does not define for every target.
const SO_BUSY_POLL: i32 = 46;
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;

/// Opens a socket that has rings, but no packet memory and no queue. It does all that needs
/// capabilities: the receiver of the socket needs none to use it.
///
/// # Errors
/// The kernel's error, for example `EPERM`.
pub(crate) fn unbound_socket(wait: Wait) -> io::Result<OwnedFd> {
    let socket = sys::xdp_socket()?;
    let fd = socket.as_fd();
    for (ring, slots) in [
        (RingName::Fill, FILL_RING),
        (RingName::Completion, COMPLETION_RING),
        (RingName::Rx, RX_RING),
        (RingName::Tx, TX_RING),
    ] {
        sys::set_option(fd, libc::SOL_XDP, ring.size_option(), slots)?;
    }
    // The default limit allows only about 90 packets in flight. `SO_SNDBUFFORCE` needs
    // CAP_NET_ADMIN. `SO_SNDBUF` needs no capability, but the kernel limits its value.
    if sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BUFFER).is_err() {
        let _ = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_BUFFER);
    }
    if wait == Wait::BusyPoll {
        // If the kernel refuses them, `prefers_busy_polling` returns false.
        let _ = [
            (SO_BUSY_POLL, BUSY_POLL_TIME),
            (SO_BUSY_POLL_BUDGET, BUSY_POLL_BUDGET),
            (SO_PREFER_BUSY_POLL, 1),
        ]
        .into_iter()
        .try_for_each(|(name, value)| sys::set_option(fd, libc::SOL_SOCKET, name, value));
    }
    Ok(socket)
}

/// A socket that is bound to a queue, and its rings in memory that it shares with the kernel.
pub(super) struct Socket {
    pub(super) fill: Producer<u64>,
    pub(super) completion: Consumer<u64>,
    pub(super) rx: Consumer<libc::xdp_desc>,
    pub(super) tx: TxRing,
    fd: Arc<OwnedFd>,
}

impl Socket {
    /// Gives the socket this packet memory, and maps its rings. If `may_have_it` is true, the process that
    /// has opened the socket may have registered the memory already.
    pub(super) fn with_memory(
        config: &XdpConfig,
        umem: &Umem,
        may_have_it: bool,
    ) -> Result<Self, DeviceError> {
        let chunk = FrameLayout::for_mtu(config.mtu).chunk;
        match umem.register(config.socket.as_fd(), chunk) {
            Err(error) if may_have_it && sys::is_errno(&error, libc::EBUSY) => {}
            outcome => {
                outcome.map_err(|source| DeviceError::memory(umem.len() as u64, source))?;
            }
        }
        Self::map(&config.socket).map_err(DeviceError::set_up("map the rings of an AF_XDP socket"))
    }

    /// Binds the socket to the queue. Unless the options say otherwise, tries zero-copy first.
    pub(super) fn bind(&self, config: &XdpConfig) -> Result<Copying, DeviceError> {
        bind(config, self.fd())
    }

    /// Returns true if the socket is bound to a queue that exists.
    pub(super) fn has_queue(&self) -> bool {
        let woken = sys::kick_tx(self.fd());
        !woken.is_err_and(|error| sys::is_errno(&error, libc::ENXIO))
    }

    fn map(socket: &Arc<OwnedFd>) -> io::Result<Self> {
        let fd = socket.as_fd();
        Ok(Self {
            fill: Producer::map(fd, RingName::Fill, FILL_RING)?,
            completion: Consumer::map(fd, RingName::Completion, COMPLETION_RING)?,
            rx: Consumer::map(fd, RingName::Rx, RX_RING)?,
            tx: TxRing::map(fd, TX_RING)?,
            fd: Arc::clone(socket),
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns true if the kernel has accepted the options for busy polling.
    pub(super) fn prefers_busy_polling(&self) -> bool {
        sys::option(self.fd(), libc::SOL_SOCKET, SO_PREFER_BUSY_POLL).is_ok_and(|on| on != 0)
    }
}

/// Binds a socket to the queue. Unless the options say otherwise, tries zero-copy first.
fn bind(config: &XdpConfig, socket: BorrowedFd<'_>) -> Result<Copying, DeviceError> {
    let mut flags = libc::XDP_USE_NEED_WAKEUP;
    if FrameLayout::for_mtu(config.mtu).is_multi_buffer() {
        flags |= libc::XDP_USE_SG;
    }
    let is_faulty = is_faulty(config);
    let retry = Retry::begin();
    let mut copying = match config.options.zero_copy {
        _ if config.options.generic => Copying::Generic,
        ZeroCopy::Off => Copying::Requested,
        ZeroCopy::Auto if is_faulty => Copying::Faulty,
        ZeroCopy::Auto | ZeroCopy::Required => Copying::Never,
    };
    loop {
        let zero_copy = matches!(copying, Copying::Never);
        let mode = if zero_copy {
            libc::XDP_ZEROCOPY
        } else {
            libc::XDP_COPY
        };
        let bound = sys::bind_xdp(socket, config.index, config.queue, mode | flags);
        let Err(error) = bound else {
            return Ok(copying);
        };
        match error.raw_os_error() {
            Some(libc::EBUSY) if retry.wait() => {}
            Some(libc::EBUSY | libc::EPERM | libc::EACCES) => {
                return Err(DeviceError::bind(
                    &config.options.interface,
                    config.queue,
                    error,
                ));
            }
            _ if config.options.zero_copy == ZeroCopy::Required => {
                return Err(no_zero_copy(config, error));
            }
            // Drivers refuse zero-copy with various errors. If the cause is unrelated to zero-copy,
            // copy mode fails too and reports the error.
            _ if zero_copy => copying = Copying::Refused(error),
            Some(libc::EINVAL) if flags & libc::XDP_USE_SG != 0 => {
                return Err(DeviceError::MultiBuffer {
                    interface: config.options.interface.clone(),
                    mtu: config.mtu,
                    largest: MAX_SINGLE_BUFFER_MTU,
                    source: error,
                });
            }
            _ => {
                return Err(DeviceError::bind(
                    &config.options.interface,
                    config.queue,
                    error,
                ));
            }
        }
    }
}

/// Returns the error for a driver that refuses the zero-copy that was required.
fn no_zero_copy(config: &XdpConfig, source: io::Error) -> DeviceError {
    let interface = config.options.interface.clone();
    if FrameLayout::for_mtu(config.mtu).is_multi_buffer() {
        return DeviceError::NoLargeZeroCopy {
            interface,
            mtu: config.mtu,
            largest: MAX_SINGLE_BUFFER_MTU,
            source,
        };
    }
    DeviceError::NoZeroCopy { interface, source }
}

/// Returns true if the driver damages frames in zero-copy mode, which `auto` avoids. A mode that was
/// required is used anyway, with a warning.
fn is_faulty(config: &XdpConfig) -> bool {
    let is_faulty = !config.options.generic && damages_frames(&config.options.interface);
    if is_faulty && config.options.zero_copy == ZeroCopy::Required {
        tracing::warn!(
            "queue {} of {}: with zero-copy, virtio_net as a module sends damaged frames; leave out \
             zerocopy=required, or use a kernel in which virtio_net is built in",
            config.queue,
            config.options.interface,
        );
    }
    is_faulty
}
