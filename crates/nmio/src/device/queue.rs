//! One queue of an interface, on its way to the thread that will serve it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::namespace::Namespace;
use super::{DeviceError, MemoryPlan, Offload};
use crate::port::Wait;
use crate::tap::{TapConfig, TapPort};
use crate::xdp::{XdpConfig, XdpPort};

/// One queue, not opened yet: it can be sent to its thread.
pub struct QueueSource {
    pub(super) way: Way,
    pub(super) mtu: usize,
    pub(super) wait: Wait,
}

pub(super) enum Way {
    Xdp {
        interface: String,
        queue: u32,
        xsks: Arc<OwnedFd>,
        namespace: Option<Namespace>,
        generic: bool,
        partial_checksums: bool,
        offload: Offload,
    },
    Tap {
        name: String,
        file: Arc<OwnedFd>,
    },
}

impl QueueSource {
    /// Opens the queue; from then on packets arrive.
    ///
    /// Call it in the thread that will serve the queue. With device `auto`
    /// that thread is moved into the private network namespace of the
    /// server's end, and stays there.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn open(self, memory: MemoryPlan) -> Result<AnyPort, DeviceError> {
        match self.way {
            Way::Xdp {
                interface,
                queue,
                xsks,
                namespace,
                generic,
                partial_checksums,
                offload,
            } => {
                if let Some(namespace) = namespace {
                    namespace
                        .enter()
                        .map_err(DeviceError::set_up("enter the private network namespace"))?;
                }
                let config = XdpConfig {
                    interface: &interface,
                    queue,
                    mtu: self.mtu,
                    generic,
                    partial_checksums,
                    offload,
                    wait: self.wait,
                    memory,
                    xsks: xsks.as_fd(),
                };
                XdpPort::open(&config).map(AnyPort::Xdp)
            }
            Way::Tap { name, file } => {
                let config = TapConfig {
                    name,
                    mtu: self.mtu,
                    wait: self.wait,
                    memory,
                };
                TapPort::new(file, config).map(AnyPort::Tap)
            }
        }
    }
}

/// A port of a kind that is known at run time: match once, outside the loop,
/// so that the loop is compiled for one of them.
// A port is made once a thread and moved once.
#[allow(clippy::large_enum_variant)]
pub enum AnyPort {
    /// `AF_XDP`.
    Xdp(XdpPort),
    /// A tap device.
    Tap(TapPort),
}

impl AnyPort {
    /// What the port really does, for people: pairs of a name and a value.
    pub fn summary(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Xdp(port) => port.summary(),
            Self::Tap(port) => port.summary(),
        }
    }
}
