//! A queue of an interface that has taken the place of a removed one.

#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
#[cfg(target_os = "linux")]
use std::sync::Arc;

/// A queue of an interface that has taken the place of a removed one, for
/// [`Port::attach`](crate::Port::attach). Get it from
/// [`QueueAccess::new_queue`](super::QueueAccess::new_queue).
#[derive(Clone, Debug)]
pub struct NewQueue {
    /// The interface's number.
    #[cfg(target_os = "linux")]
    pub(crate) index: u32,
    /// An `AF_XDP` socket that is not bound yet.
    #[cfg(target_os = "linux")]
    pub(crate) socket: Arc<OwnedFd>,
}
