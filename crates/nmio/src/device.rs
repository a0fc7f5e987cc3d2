//! Turns device names that users write into interfaces that are ready to be served.
//!
//! ```text
//!   Device ── InterfaceConfig ──▶ Interface ── queue(i) ──▶ QueueSource ── open ──▶ AnyPort
//!   (parsed name)                 (steering, addresses)     (sent to its thread)
//! ```
//!
//! [`QueueAccess`] is the part of an interface that opens queues. It can be sent to another
//! process, which then needs no privilege to create or remove interfaces.
//!
//! The main thread opens an [`Interface`] once. Then each worker opens its own queue in its own
//! thread. Dropping the interface detaches the steering program and removes the interfaces that
//! were created. The kernel does the same if the process dies.
//!
//! # Two address modes
//! *Shared*: the server answers on the interface's existing addresses. The kernel continues to
//! handle ARP, neighbour discovery and all other ports. Kernel sockets reserve the served ports.
//!
//! *Own*: the addresses belong only to the server, which handles all IP traffic to them.

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
mod napi;
mod netlink;
mod open;
mod pair;
mod pfifo;
mod privileges;
mod queue;
mod queues;
mod ready;
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
pub(crate) use privileges::Needs;
pub use queue::{AnyPort, QueueSource};
pub use transport::Transport;
