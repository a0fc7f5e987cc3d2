//! The configuration of an `AF_XDP` port.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::device::{MemoryPlan, XdpOptions};
use crate::port::Wait;

/// One queue of an interface, with what is needed to open it.
#[derive(Clone)]
pub(crate) struct XdpConfig {
    pub(crate) options: XdpOptions,
    /// The interface's number.
    pub(crate) index: u32,
    pub(crate) queue: u32,
    pub(crate) mtu: usize,
    /// Number of the queue's NAPI instance, if it is known and polled.
    pub(crate) napi: Option<u32>,
    pub(crate) wait: Wait,
    pub(crate) memory: MemoryPlan,
    /// The queue's socket, which [`unbound_socket`](super::unbound_socket) has opened.
    pub(crate) socket: Arc<OwnedFd>,
    /// Whether the port waits for another queue if the interface is removed.
    pub(crate) waits_for_return: bool,
}
