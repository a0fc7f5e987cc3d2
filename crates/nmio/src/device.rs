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
mod config;
mod error;
mod interface;
mod lines;
mod memory_plan;
mod monitor;
mod name;
mod namespace;
mod netlink;
mod open;
mod pair;
mod queue;
mod queues;
mod ready;
mod rights;
mod transport;

pub use access::QueueAccess;
pub use config::InterfaceConfig;
pub use error::DeviceError;
pub use interface::Interface;
pub use memory_plan::MemoryPlan;
pub use monitor::{Change, Monitor};
pub use name::{
    AddressPrefix, Device, MAX_QUEUES, MAX_VLANS, Offload, ParseAddressError, ParseDeviceError,
    Queues,
};
pub(crate) use netlink::longest_supers;
pub use queue::{AnyPort, QueueSource};
pub(crate) use rights::Needs;
pub use transport::Transport;
