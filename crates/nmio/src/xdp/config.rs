//! The configuration of an `AF_XDP` port.

use std::os::fd::BorrowedFd;

use crate::device::{MemoryPlan, Offload, ZeroCopy};
use crate::port::Wait;

/// One queue of an interface, with the options to open it.
pub(crate) struct XdpConfig<'a> {
    pub(crate) interface: &'a str,
    /// The interface's number.
    pub(crate) index: u32,
    pub(crate) queue: u32,
    pub(crate) mtu: usize,
    pub(crate) generic: bool,
    pub(crate) partial_checksums: bool,
    pub(crate) zero_copy: ZeroCopy,
    pub(crate) offload: Offload,
    /// Number of the queue's NAPI instance, if it is known and polled.
    pub(crate) napi: Option<u32>,
    pub(crate) wait: Wait,
    pub(crate) memory: MemoryPlan,
    /// The steering program's map from queues to sockets.
    pub(crate) xsks: BorrowedFd<'a>,
}
