//! What a port is opened with.

use std::os::fd::BorrowedFd;

use crate::device::{MemoryPlan, Offload};
use crate::port::Wait;

/// One queue of an interface, and how it is served.
pub(crate) struct XdpConfig<'a> {
    pub(crate) interface: &'a str,
    pub(crate) queue: u32,
    pub(crate) mtu: usize,
    pub(crate) generic: bool,
    pub(crate) partial_checksums: bool,
    pub(crate) offload: Offload,
    pub(crate) wait: Wait,
    pub(crate) memory: MemoryPlan,
    /// The steering program's table of sockets.
    pub(crate) xsks: BorrowedFd<'a>,
}
