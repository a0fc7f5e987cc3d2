//! Packet I/O for servers that carry their own network stack: ports, frames,
//! the event loop and timers. No protocol is known here.
//!
//! This is `libnmio` of *Network Stack Specialization for Performance*
//! (SIGCOMM 2014), on `AF_XDP` instead of netmap.
//!
//! # The idea
//! A [`Port`] is one RX/TX queue pair, owned by one thread. What it receives,
//! sends and keeps are [`Frame`]s and [`Resident`]s: values that own a piece of
//! the memory which the port shares with the kernel. A packet is never copied
//! on its way unless somebody asks for it, and is answered in one of three
//! ways:
//!
//! - *turnaround*: the received frame is rewritten and given to [`Port::send`];
//! - *memcopy*: a scratch frame of [`Pool::take`] is filled and sent;
//! - *pre-copy*: a [`Resident`], built long before, is patched in place and
//!   given to [`Port::send_resident`], again and again.
//!
//! A run of segments may leave as one packet, a [`SuperSegment`], where the port
//! says so in its [`Capabilities`]: [`Port::send_super`].
//!
//! The TX ring is the only output queue. [`run`] drives a port and a
//! [`Handler`] through the paper's Figure 3.
//!
//! # Calling order
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//!
//! use nmio::device::{AnyPort, Interface, InterfaceConfig, MemoryPlan, Transport};
//! use nmio::{Frame, Handler, Instant, LoopConfig, Port, TscClock, Wait};
//!
//! /// Sends every frame back as it came.
//! struct Mirror;
//!
//! impl<P: Port> Handler<P> for Mirror {
//!     fn handle_frame(&mut self, port: &mut P, frame: Frame, _now: Instant) {
//!         // A full ring drops it: there is no other queue.
//!         let _ = port.send(frame);
//!     }
//!     fn handle_timers(&mut self, _port: &mut P, _now: Instant) {}
//!     fn poll_timeout(&self) -> Option<Instant> {
//!         None
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Once, in the main thread: steering, addresses, reserved ports.
//! let interface = Interface::open(&InterfaceConfig {
//!     device: "xdp:eth1".parse()?,
//!     own_addresses: vec![],
//!     services: vec![(Transport::Udp, 7)],
//!     workers: Some(1),
//!     wait: Wait::Block,
//!     program: "mirror",
//! })?;
//! for (name, value) in interface.summary() {
//!     println!("{name}: {value}");
//! }
//! // Then in each worker's thread, its queue.
//! let port = interface.queue(0).open(MemoryPlan::default())?;
//! let (clock, config, stop) = (TscClock::new(), LoopConfig::default(), AtomicBool::new(false));
//! // Matched once, so that the loop is compiled for one kind of port.
//! match port {
//!     AnyPort::Xdp(mut port) => nmio::run(&mut port, &mut Mirror, &clock, &config, &stop)?,
//!     AnyPort::Tap(mut port) => nmio::run(&mut port, &mut Mirror, &clock, &config, &stop)?,
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Ports
//! | port | for |
//! |---|---|
//! | [`xdp`] | the kernel's fast way: rings shared with it, native or generic, zero-copy or copy |
//! | [`tap`] | the portable fallback, one system call a packet or super-segment |
//! | [`sim`] | two ends in one process on virtual time |
//! | [`pcap`] | wraps a port and writes down what passes, for Wireshark |
//! | [`fault`] | wraps a port and drops, duplicates, reorders or damages frames |
//!
//! [`device`] turns the names that users write (`auto`, `xdp:eth1`,
//! `tap:tap0`) into ports.
//!
//! # The paper's Table 1
//! | paper | here |
//! |---|---|
//! | `netmap_init()` | [`device::Interface::open`] and [`device::QueueSource::open`] |
//! | `netmap_input_set_cb()` | [`Handler`], whose methods inline into the loop |
//! | `netmap_input()` | [`run`] |
//! | `netmap_output()` with a memory copy | [`Port::send`] |
//! | `netmap_output()` with zero copy | [`Port::send_resident`] |
//! | its adaptive TX batching | [`LoopConfig::flush_interval`] and [`LoopConfig::straggler`] |
//!
//! # Absent on purpose
//! - No protocol, not even Ethernet: the steering program alone parses, in the
//!   kernel, to tell the server's packets from all others.
//! - No sharing between threads: no lock, no atomic, and `Rc` in a [`Pool`].
//! - No queue beside the TX ring, no allocation, and no system call for a
//!   packet, but for the ring's wakeup (and on [`tap`]).
//! - No packet in several frames: an MTU beyond a page is refused.
//! - No removal of what the kernel has set up: what is opened here is held by
//!   descriptors, and goes with the process, however it ends.
pub mod checksum;
pub mod copies;
pub mod device;
pub mod event_loop;
pub mod fault;
pub mod frame;
mod idle;
pub mod mailbox;
mod memory;
pub mod pcap;
pub mod port;
mod prefetch;
pub mod sim;
pub mod super_segment;
mod sys;
pub mod tap;
pub mod time;
pub mod timer;
mod timers;
pub mod xdp;

pub use copies::Copies;
pub use event_loop::{Handler, LoopConfig, Turn, run};
pub use fault::{Fault, FaultConfig, FaultCounters, FaultError, FaultRates};
pub use frame::{Frame, Pool, PoolLayout, Resident};
pub use mailbox::{Bell, Mailbox, mailbox};
pub use memory::prefer_large_pages;
pub use pcap::{Pcap, PcapError, PcapSummary};
pub use port::{
    Batch, BatchSizes, Capabilities, MAX_BATCH, Port, PortCounters, PortHints, SendError, Wait,
};
pub use prefetch::prefetch;
pub use super_segment::SuperSegment;
pub use time::{Clock, Instant, TscClock};
pub use timer::TimerWheel;
pub use timers::Timers;
