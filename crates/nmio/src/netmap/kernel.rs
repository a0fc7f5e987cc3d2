//! The kernel's side of a ring pair: the netmap device, or a simulation of it.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use libc::c_ulong;
use netmap_sys::{
    NETMAP_REQ_PORT_HDR_SET, NETMAP_REQ_PORT_INFO_GET, NETMAP_REQ_REGISTER, NIOCCTRL, NIOCRXSYNC,
    NIOCTXSYNC, NM_VNET_HDR_MRG_LEN, nmreq_header, nmreq_port_hdr, nmreq_port_info_get,
    nmreq_register,
};

/// The netmap device.
pub(crate) const DEVICE: &str = "/dev/netmap";

/// The kernel's side of a ring pair.
pub trait Kernel: Clone {
    /// Sends the published slots of the TX ring, and reports which slots were sent.
    ///
    /// # Errors
    /// If the interface or its rings are gone.
    fn sync_tx(&self) -> io::Result<()>;

    /// Takes the published slots of the RX ring, and fills slots with received packets.
    ///
    /// # Errors
    /// If the interface or its rings are gone.
    fn sync_rx(&self) -> io::Result<()>;

    /// Returns the descriptor to poll for received packets. `None`: the kernel is simulated.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// A descriptor of the netmap device that is bound to a ring pair.
#[derive(Clone, Debug)]
pub struct Bound(Arc<OwnedFd>);

impl Kernel for Bound {
    #[inline]
    fn sync_tx(&self) -> io::Result<()> {
        sync(&self.0, NIOCTXSYNC)
    }

    #[inline]
    fn sync_rx(&self) -> io::Result<()> {
        sync(&self.0, NIOCRXSYNC)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

impl Bound {
    /// Opens the device and binds it as `request` says. The kernel updates the request.
    pub(super) fn open(name: &str, request: &mut nmreq_register) -> io::Result<Self> {
        let file = open()?;
        control(&file, NETMAP_REQ_REGISTER, name, request)?;
        Ok(Self(Arc::new(file.into())))
    }
}

impl AsFd for Bound {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Opens the netmap device.
pub(crate) fn open() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(DEVICE)
}

/// Asks for the memory that all ports without one of their own share.
///
/// # Errors
/// EINVAL if the kernel's netmap speaks another version of the API. The request itself is always valid.
pub(crate) fn memory_info() -> io::Result<()> {
    port_info("").map(drop)
}

/// Asks for the rings and the memory of the netmap port `name`.
pub(crate) fn port_info(name: &str) -> io::Result<nmreq_port_info_get> {
    let mut info = nmreq_port_info_get::default();
    control(&open()?, NETMAP_REQ_PORT_INFO_GET, name, &mut info)?;
    Ok(info)
}

/// Makes the kernel put a virtio-net header before each packet of `name`, which must be an open port
/// of a switch. Packets that have arrived before have none.
pub(super) fn add_headers(name: &str) -> io::Result<()> {
    let mut header = nmreq_port_hdr {
        nr_hdr_len: NM_VNET_HDR_MRG_LEN,
        pad1: 0,
    };
    control(&open()?, NETMAP_REQ_PORT_HDR_SET, name, &mut header)
}

/// Carries out a request of type `kind`. `body` must be the structure that belongs to this type.
fn control<T>(file: &File, kind: u16, name: &str, body: &mut T) -> io::Result<()> {
    let address = (&raw mut *body).expose_provenance() as u64;
    let mut header = nmreq_header::new(kind, name, address)
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the header and the body, whose address it holds, stay valid during the call. The
    // callers pass the body that belongs to the type.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), NIOCCTRL as _, &raw mut header) };
    check(result)
}

#[inline]
fn sync(file: &OwnedFd, request: c_ulong) -> io::Result<()> {
    // SAFETY: the request takes no argument.
    check(unsafe { libc::ioctl(file.as_raw_fd(), request as _) })
}

/// Says what has happened if netmap has stopped a ring. It does so while the interface is down, or while
/// its driver resets it.
#[cold]
pub(super) fn with_cause(error: io::Error) -> io::Error {
    if error.raw_os_error() == Some(libc::EIO) {
        return io::Error::other(
            "netmap has stopped its rings, because the interface is down or its driver has reset it; \
             bring the interface up, and start the server again",
        );
    }
    error
}

#[inline]
fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_stopped_ring_says_so() {
        let of = |errno| with_cause(io::Error::from_raw_os_error(errno));
        assert!(of(libc::EIO).to_string().contains("has stopped its rings"));
        assert_eq!(of(libc::ENXIO).raw_os_error(), Some(libc::ENXIO));
    }
}
