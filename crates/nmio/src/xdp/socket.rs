//! An `AF_XDP` socket that is bound to a queue, with its rings.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::config::XdpConfig;
use super::fill_level::FILL_RING;
use super::retry::Retry;
use super::ring::{Consumer, Producer, RingName};
use super::sizes::{COMPLETION_RING, FrameLayout, MAX_SINGLE_BUFFER_MTU, RX_RING, TX_RING};
use super::tx_ring::TxRing;
use super::umem::Umem;
use super::virtio::damages_frames;
use crate::device::{DeviceError, Needs, ZeroCopy};
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

/// A socket, and its rings in memory that it shares with the kernel.
pub(super) struct Socket {
    pub(super) fill: Producer<u64>,
    pub(super) completion: Consumer<u64>,
    pub(super) rx: Consumer<libc::xdp_desc>,
    pub(super) tx: TxRing,
    fd: OwnedFd,
}

impl Socket {
    /// Opens a socket with this packet memory and binds it to the queue. Unless the options say
    /// otherwise, tries zero-copy first.
    pub(super) fn open(
        config: &XdpConfig<'_>,
        umem: &Umem,
    ) -> Result<(Self, Copying), DeviceError> {
        let socket = sys::xdp_socket().map_err(|source| {
            if sys::is_errno(&source, libc::EPERM) {
                DeviceError::privileges("open an AF_XDP socket", Needs::Xdp, source)
            } else {
                DeviceError::set_up("open an AF_XDP socket")(source)
            }
        })?;
        let fd = socket.as_fd();
        umem.register(fd, FrameLayout::for_mtu(config.mtu).chunk)
            .map_err(|source| DeviceError::memory(umem.len() as u64, source))?;
        let set_up = || DeviceError::set_up("set up the rings of an AF_XDP socket");
        let this = Self {
            fill: Producer::create(fd, RingName::Fill, FILL_RING).map_err(set_up())?,
            completion: Consumer::create(fd, RingName::Completion, COMPLETION_RING)
                .map_err(set_up())?,
            rx: Consumer::create(fd, RingName::Rx, RX_RING).map_err(set_up())?,
            tx: TxRing::create(fd, TX_RING).map_err(set_up())?,
            fd: socket,
        };
        let copying = bind(config, this.fd())?;
        Ok((this, copying))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Binds a socket to the queue. Unless the options say otherwise, tries zero-copy first.
fn bind(config: &XdpConfig<'_>, socket: BorrowedFd<'_>) -> Result<Copying, DeviceError> {
    let mut flags = libc::XDP_USE_NEED_WAKEUP;
    if FrameLayout::for_mtu(config.mtu).is_multi_buffer() {
        flags |= libc::XDP_USE_SG;
    }
    let is_faulty = is_faulty(config);
    let retry = Retry::begin();
    let mut copying = match config.zero_copy {
        _ if config.generic => Copying::Generic,
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
                return Err(DeviceError::bind(config.interface, config.queue, error));
            }
            _ if config.zero_copy == ZeroCopy::Required => {
                return Err(DeviceError::NoZeroCopy {
                    interface: config.interface.to_owned(),
                    source: error,
                });
            }
            // Drivers refuse zero-copy with various errors. If the cause is unrelated to zero-copy,
            // copy mode fails too and reports the error.
            _ if zero_copy => copying = Copying::Refused(error),
            Some(libc::EINVAL) if flags & libc::XDP_USE_SG != 0 => {
                return Err(DeviceError::MultiBuffer {
                    interface: config.interface.to_owned(),
                    mtu: config.mtu,
                    largest: MAX_SINGLE_BUFFER_MTU,
                    source: error,
                });
            }
            _ => return Err(DeviceError::bind(config.interface, config.queue, error)),
        }
    }
}

/// Returns true if the driver damages frames in zero-copy mode, which `auto` avoids. A mode that was
/// required is used anyway, with a warning.
fn is_faulty(config: &XdpConfig<'_>) -> bool {
    let is_faulty = !config.generic && damages_frames(config.interface);
    if is_faulty && config.zero_copy == ZeroCopy::Required {
        tracing::warn!(
            "queue {} of {}: with zero-copy, virtio_net as a module sends damaged frames; leave out \
             zerocopy=required, or use a kernel in which virtio_net is built in",
            config.queue,
            config.interface,
        );
    }
    is_faulty
}
