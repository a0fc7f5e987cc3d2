//! Binds a socket to a queue, in zero-copy or copy mode.
#![allow(unsafe_code)]

use std::error::Error as _;
use std::io;

use xsk_rs::config::{BindFlags, Interface, LibxdpFlags, QueueSize, SocketConfig, XdpFlags};
use xsk_rs::{CompQueue, FillQueue, RxQueue, Socket, TxQueue, Umem};

use super::config::XdpConfig;
use super::retry::Retry;
use super::sizes::{FrameLayout, MAX_SINGLE_BUFFER_MTU, RX_RING, TX_RING};
use super::virtio::damages_frames;
use crate::device::{DeviceError, ZeroCopy};

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

pub(super) type Queues = (TxQueue, RxQueue, FillQueue, CompQueue);

/// Binds a socket to the queue. Unless the options say otherwise, tries zero-copy first.
pub(super) fn bind(config: &XdpConfig<'_>, umem: &Umem) -> Result<(Queues, Copying), DeviceError> {
    let interface: Interface = config
        .interface
        .parse()
        .map_err(|_| DeviceError::unknown_interface(config.interface))?;
    let mut flags = BindFlags::XDP_USE_NEED_WAKEUP;
    if FrameLayout::for_mtu(config.mtu).is_multi_buffer() {
        flags |= BindFlags::XDP_USE_SG;
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
        let flag = if zero_copy {
            BindFlags::XDP_ZEROCOPY
        } else {
            BindFlags::XDP_COPY
        };
        let socket_config = SocketConfig::builder()
            .rx_queue_size(ring_size(RX_RING))
            .tx_queue_size(ring_size(TX_RING))
            // This crate loads its own steering program, so libxdp must not load another.
            .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
            .xdp_flags(XdpFlags::empty())
            .bind_flags(flag | flags)
            .build();
        // SAFETY: the UMEM is bound only to this queue, and libxdp loads no program.
        let error = match unsafe { Socket::new(socket_config, umem, &interface, config.queue) } {
            Ok((tx, rx, Some((fill, completion)))) => {
                return Ok(((tx, rx, fill, completion), copying));
            }
            Ok((_, _, None)) => io::Error::other("libxdp returned no fill and completion rings"),
            Err(error) => os_error(error.source()),
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
            Some(libc::EINVAL) if flags.contains(BindFlags::XDP_USE_SG) => {
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

pub(super) fn ring_size(slots: u32) -> QueueSize {
    QueueSize::new(slots).expect("ring sizes are powers of two")
}

/// Returns the kernel's error inside an error of `xsk-rs`.
pub(super) fn os_error(source: Option<&(dyn std::error::Error + 'static)>) -> io::Error {
    source
        .and_then(|source| source.downcast_ref::<io::Error>())
        .and_then(io::Error::raw_os_error)
        .map_or_else(
            || io::Error::other("libxdp gave no error number"),
            io::Error::from_raw_os_error,
        )
}
