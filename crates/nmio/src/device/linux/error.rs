//! Errors of `AF_XDP`, from the kernel's error codes.

use std::io;

use crate::device::{DeviceError, Needs};
use crate::sys;
use crate::xdp::ORDINARY_MTU;

impl DeviceError {
    pub(crate) fn bind(interface: &str, queue: u32, source: io::Error) -> Self {
        let interface = interface.to_owned();
        match source.raw_os_error() {
            Some(libc::EBUSY) => Self::QueueBusy { interface, queue },
            Some(libc::EINVAL) => Self::NoSuchQueue { interface, queue },
            Some(libc::EPERM | libc::EACCES) => {
                Self::privileges("open an AF_XDP socket", Needs::Xdp, source)
            }
            _ => Self::Bind {
                interface,
                queue,
                source,
            },
        }
    }

    pub(crate) fn attach(interface: &str, mtu: usize, generic: bool, source: io::Error) -> Self {
        let interface = interface.to_owned();
        match source.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => Self::ProgramBusy { interface },
            Some(libc::EPERM | libc::EACCES) => {
                Self::privileges("attach an XDP program", Needs::Xdp, source)
            }
            Some(libc::ENOSPC) => Self::PeerQueues {
                rx: sys::Control::new()
                    .ok()
                    .and_then(|control| control.channels(&interface))
                    .map_or(1, |channels| channels.rx),
                interface,
                source,
            },
            Some(libc::ERANGE | libc::EINVAL) if !generic && mtu > ORDINARY_MTU => {
                Self::DriverMtu {
                    interface,
                    mtu,
                    source,
                }
            }
            Some(libc::EOPNOTSUPP) if !generic => Self::NoNativeXdp { interface, source },
            _ => Self::Attach { interface, source },
        }
    }

    /// Returns true if the steering program could not be attached, and the reason may be the MTU.
    pub(crate) fn may_depend_on_mtu(&self) -> bool {
        matches!(
            self,
            Self::DriverMtu { .. } | Self::NoNativeXdp { .. } | Self::Attach { .. }
        )
    }
}
