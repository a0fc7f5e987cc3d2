//! Network devices as users name them, made ready to serve on.
//!
//! ```text
//!   Device ── InterfaceConfig ──▶ Interface ── queue(i) ──▶ QueueSource ── open ──▶ AnyPort
//!   (words)                       (steering, addresses)     (to its thread)
//! ```
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

mod auto;
mod error;
mod interface;
mod name;
mod namespace;
mod netlink;

use std::fmt;

pub use error::DeviceError;
pub use interface::{AnyPort, Interface, InterfaceConfig, QueueSource};
pub use name::{AddressPrefix, Device, ParseAddressError, ParseDeviceError};

/// A transport protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
