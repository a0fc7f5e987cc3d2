//! A queue of an interface, to be opened by the thread that serves it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::namespace::Namespace;
use super::{DeviceError, MemoryPlan, Offload};
use crate::port::Wait;
use crate::tap::{TapConfig, TapPort};
use crate::xdp::{XdpConfig, XdpPort};

/// A queue that has not been opened yet. It can be sent to the thread that will serve it.
pub struct QueueSource {
    pub(super) backend: Backend,
    pub(super) mtu: usize,
    pub(super) wait: Wait,
}

pub(super) enum Backend {
    Xdp {
        interface: String,
        queue: u32,
        xsks: Arc<OwnedFd>,
        namespace: Option<Namespace>,
        generic: bool,
        partial_checksums: bool,
        offload: Offload,
        /// Number of the queue's NAPI instance, if it is known and polled.
        napi: Option<u32>,
    },
    Tap {
        name: String,
        file: Arc<OwnedFd>,
    },
}

impl QueueSource {
    /// Opens the queue, and returns a port that receives its packets.
    ///
    /// Call this method in the thread that will serve the queue. If device `auto` is a veth pair,
    /// the thread permanently enters the private network namespace of the server's end.
    ///
    /// # Errors
    /// A [`DeviceError`], for example if another program uses the queue.
    pub fn open(self, memory: MemoryPlan) -> Result<AnyPort, DeviceError> {
        match self.backend {
            Backend::Xdp {
                interface,
                queue,
                xsks,
                namespace,
                generic,
                partial_checksums,
                offload,
                napi,
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
                    napi,
                    wait: self.wait,
                    memory,
                    xsks: xsks.as_fd(),
                };
                XdpPort::open(&config).map(AnyPort::Xdp)
            }
            Backend::Tap { name, file } => {
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

/// A port whose kind is known only at run time.
///
/// Match on this enum once, outside the main loop, so that the compiler specializes the loop for
/// each kind of port.
// The size difference between the variants does not matter, because each thread creates only one
// port.
#[allow(clippy::large_enum_variant)]
pub enum AnyPort {
    /// An `AF_XDP` port.
    Xdp(XdpPort),
    /// A tap device's port.
    Tap(TapPort),
}

impl AnyPort {
    /// Describes the port's actual settings for people, as pairs of name and value.
    pub fn summary(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Xdp(port) => port.summary(),
            Self::Tap(port) => port.summary(),
        }
    }
}
