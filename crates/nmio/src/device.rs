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
//!
//! # Operating systems
//! Only the module `linux` or `freebsd` knows the system's own kinds of device. Both define the same
//! names, and exactly one of them is compiled.

mod access;
mod addresses;
mod any_port;
mod change;
mod config;
mod current_addresses;
mod error;
#[cfg(target_os = "freebsd")]
mod freebsd;
mod interface;
mod interface_name;
mod limits;
mod lines;
#[cfg(target_os = "linux")]
mod linux;
mod memory_plan;
mod name;
mod netmap;
mod netmap_kind;
mod netmap_options;
mod netmap_target;
mod network;
mod new_queue;
mod offload;
mod open;
mod packet_memory;
mod parse_error;
mod queue;
mod queues;
mod random_mac;
mod transport;
mod xdp_options;

pub use access::QueueAccess;
pub use any_port::{AnyPort, PortVisitor};
pub use change::Change;
pub use config::InterfaceConfig;
#[cfg(target_os = "linux")]
pub(crate) use config::MAX_ADDRESSES;
pub use current_addresses::CurrentAddresses;
pub use error::DeviceError;
#[cfg(target_os = "freebsd")]
use freebsd as system;
pub use interface::Interface;
pub use limits::{MAX_QUEUES, MAX_VLANS};
#[cfg(target_os = "linux")]
use linux as system;
#[cfg(target_os = "linux")]
pub(crate) use linux::{dropped_without_queue, longest_supers, queue_kinds};
pub use memory_plan::MemoryPlan;
pub use name::{AddressPrefix, Device, ParseAddressError};
pub use netmap_options::NetmapOptions;
pub use netmap_target::NetmapTarget;
use network::{Network, NetworkRequest};
pub use new_queue::NewQueue;
pub use offload::Offload;
pub use packet_memory::{MemoryFacts, PacketMemory};
pub use parse_error::ParseDeviceError;
pub use queue::QueueSource;
pub use queues::Queues;
pub use system::Monitor;
pub(crate) use system::Needs;
pub use transport::Transport;
pub use xdp_options::{XdpOptions, ZeroCopy};
