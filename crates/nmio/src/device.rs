//! Network devices as users name them, made ready to serve on.
//!
//! ```text
//!   Device ── InterfaceConfig ──▶ Interface ── queue(i) ──▶ QueueSource ── open ──▶ AnyPort
//!   (words)                       (steering, addresses)     (to its thread)
//! ```
//!
//! The part of an interface that opens queues, [`QueueAccess`], can be sent to
//! another process, which then needs no right to make or to remove interfaces.
//!
//! An [`Interface`] is opened once, by the main thread. Each worker then opens
//! its own queue, in its own thread. Dropping the interface, or the end of the
//! process, however it comes about, detaches the steering program and removes
//! what was made.
//!
//! # Two address modes
//! *Shared*: the server answers on the addresses that the interface has
//! anyway. The kernel keeps ARP, neighbour discovery and all other ports; the
//! served ports are reserved with kernel sockets. *Own*: the addresses are the
//! server's alone, and all of IP on them is.

mod access;
mod addressing;
mod auto;
mod error;
mod interface;
mod monitor;
mod name;
mod namespace;
mod netlink;
mod queue;
mod queues;
mod ready;
mod rights;

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use crate::frame::PoolLayout;
use crate::sys;

pub use access::QueueAccess;
pub use error::DeviceError;
pub use interface::{Interface, InterfaceConfig};
pub use monitor::{Change, Monitor};
pub use name::{
    AddressPrefix, Device, MAX_QUEUES, MAX_VLANS, Offload, ParseAddressError, ParseDeviceError,
    Queues,
};
pub(crate) use netlink::longest_supers;
pub use queue::{AnyPort, QueueSource};
pub(crate) use rights::Needs;

/// A transport protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Transport {
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
}

impl Transport {
    /// Its number in IP headers.
    pub const fn protocol(self) -> u16 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

/// What a port keeps frames for, beside its rings and one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Packets that live in the port's memory for good.
    pub resident_frames: u32,
    /// Frames that the layers above may hold back at once, such as segments
    /// received out of order.
    pub scratch_frames: u32,
}

impl MemoryPlan {
    /// The memory of a port that needs `own` frames itself, `stride` bytes
    /// apart and for `capacity` bytes each.
    ///
    /// # Errors
    /// [`DeviceError::Memory`], when this host has not so much.
    pub(crate) fn layout(
        self,
        stride: usize,
        capacity: usize,
        own: u32,
    ) -> Result<PoolLayout, DeviceError> {
        let refused = |bytes| DeviceError::memory(bytes, io::ErrorKind::OutOfMemory.into());
        let io_frames = own.checked_add(self.scratch_frames);
        let frames = io_frames.and_then(|io_frames| io_frames.checked_add(self.resident_frames));
        let (Some(io_frames), Some(frames)) = (io_frames, frames) else {
            return Err(refused(u64::MAX));
        };
        let bytes = u64::from(frames) * stride as u64;
        // The kernel would rather end other programs than refuse.
        if sys::available_memory().is_some_and(|available| bytes > available) {
            return Err(refused(bytes));
        }
        Ok(PoolLayout {
            stride,
            capacity,
            io_frames,
            resident_frames: self.resident_frames,
        })
    }
}
