//! Packet I/O for servers that bring their own network stack: ports, frames, the event loop and
//! timers. This crate implements no protocol.
//!
//! This crate is an implementation of `libnmio` from the paper *Network Stack Specialization for
//! Performance* (SIGCOMM 2014). It uses `AF_XDP` besides the paper's netmap.
//!
//! # The idea
//! A [`Port`] is one RX/TX queue pair, owned by one thread. A port receives [`Frame`]s, and sends
//! frames and [`Resident`]s. Each frame or resident owns a piece of the port's memory, which an
//! `AF_XDP` port shares with the kernel. Between receiving and sending, a packet is copied only if
//! the caller copies it. A server can answer in three ways:
//!
//! - *turnaround*: rewrite the received frame and give it to [`Port::send`];
//! - *memcopy*: fill a scratch frame from [`Pool::take`] and send it;
//! - *pre-copy*: build a [`Resident`] in advance. For each answer, take it if it is not in flight
//!   ([`Resident::idle`]), patch it in place, and give it to [`Port::send_resident`].
//!
//! A run of segments can be sent as one packet, a [`SuperSegment`], if the port's [`Capabilities`]
//! allow it. See [`Port::send_super`].
//!
//! [`run`] is the event loop from Figure 3 of the paper. It connects a port with a [`Handler`].
//!
//! # Calling order
//! ```no_run
//! use nmio::device::{Interface, InterfaceConfig, MemoryPlan, Transport};
//! use nmio::{Frame, Handler, Instant, LoopConfig, Port, Stop, TscClock, Wait};
//!
//! /// Sends every frame back unchanged.
//! struct Mirror;
//!
//! impl<P: Port> Handler<P> for Mirror {
//!     fn handle_frame(&mut self, port: &mut P, frame: Frame, _now: Instant) {
//!         // If the TX ring is full, the frame is dropped.
//!         let _ = port.send(frame);
//!     }
//!     fn handle_timers(&mut self, _port: &mut P, _now: Instant) {}
//!     fn poll_timeout(&self) -> Option<Instant> {
//!         None
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Once, in the main thread: attach the steering program and reserve the UDP port.
//! let interface = Interface::open(&InterfaceConfig {
//!     device: "xdp:eth1".parse()?,
//!     own_addresses: vec![],
//!     services: vec![(Transport::Udp, 7)],
//!     workers: Some(1),
//!     wait: Wait::default(),
//!     program: "mirror",
//! })?;
//! for (name, value) in interface.summary() {
//!     println!("{name}: {value}");
//! }
//! // In each worker's thread: open the worker's queue.
//! let mut port = interface.queue(0).open(MemoryPlan::default())?;
//! let (clock, config, stop) = (TscClock::new(), LoopConfig::default(), Stop::new());
//! nmio::run(&mut port, &mut Mirror, &clock, &config, &stop)?;
//! # Ok(())
//! # }
//! ```
//!
//! This loop finds out the kind of port at each call. [`AnyPort::visit`](device::AnyPort::visit)
//! finds it out once, so that the compiler makes a faster loop for each kind.
//!
//! # Ports
//! | port | description |
//! |---|---|
//! | [`xdp`] | `AF_XDP`: rings shared with the kernel; native or generic, copy or zero-copy |
//! | [`netmap`] | netmap's rings: an interface, a port of a VALE switch, or one end of a pipe |
//! | [`tap`] | the portable fallback, one system call per packet or super-segment |
//! | [`sim`] | two connected ports in one process, on virtual time; and a sink for benchmarks |
//! | [`pcap`] | wraps a port and captures its packets, for Wireshark |
//! | [`fault`] | wraps a port and drops, duplicates, reorders or corrupts frames |
//!
//! [`device`] turns the names that users write (`auto`, `xdp:eth1`, `tap:tap0`) into ports.
//!
//! # Frames that this host drops
//!
//! If the TX ring is full, [`Port::send`] fails and drops the frame. To keep the packet, check
//! [`Port::room`] first. Other frames are dropped behind the ring, still on this host:
//!
//! | port | cause | what the port does |
//! |---|---|---|
//! | [`xdp`], copy mode (native and generic), since Linux 6.17, with an MTU of at most 3,814 bytes | the driver refuses a frame, for example because the ring of a veth peer is full | queues the frame again at its place (`tx_retries`); after 100 ms it counts the frame as `tx_lost` |
//! | the same on older kernels, or with a larger MTU | the same | counts the frame as `tx_lost` |
//! | [`xdp`], zero-copy mode | `virtio_net` as a module damages frames, which the device then drops (seen in Linux 7.2). Other drivers take frames from the ring when they have room | `zerocopy=auto` copies with this driver, and `required` warns: the loss is not reported. A frame that a driver never returns counts as `tx_lost`. It is never reused, because the device may still read it |
//! | super-segments of [`xdp`], which use a packet socket | the kernel refuses a packet (`ENOBUFS`) | tries again in order; a packet that is refused again and again counts as `tx_refused` |
//! | the same, cut by the kernel for a device without a queueing discipline | the full device drops some segments | reads the device's own count once in 1,024 system calls, and counts what it has dropped as `tx_lost`. Packets of other programs count too. With several TX queues, it counts only packets whose last segment was dropped (`tx_refused`). With `offload=auto`, it sends frames from then on |
//! | [`netmap`], an interface | emulated mode drops packets while the carrier is off | nothing: netmap does not report it. A full driver pushes back |
//! | [`netmap`], a VALE switch | the receiver's ring is full | nothing: netmap does not report it |
//! | [`netmap`], a pipe | none: a full pipe pushes back | |
//! | [`tap`] | the device is down, or the kernel has no memory | counts the frame as `tx_lost`; the kernel does not report drops behind the device |
//! | [`sim`] | only as configured | counts losses in [`PathCounters`](sim::PathCounters) |
//!
//! The field names are those of [`PortCounters`]. The owner of a frame is not told of a drop: the port
//! itself queues the frame again, which keeps the order of all packets. TCP finds a lost frame as it finds
//! any other loss.
//!
//! # The paper's Table 1
//! | paper | this crate |
//! |---|---|
//! | `netmap_init()` | [`device::Interface::open`] and [`device::QueueSource::open`] |
//! | `netmap_input_set_cb()` | [`Handler`]; the compiler can inline its methods into the loop |
//! | `netmap_input()` | [`run`] |
//! | `netmap_output()` with a memory copy | [`Port::send`] |
//! | `netmap_output()` with zero copy | [`Port::send_resident`] |
//! | adaptive TX batching | [`LoopConfig::flush_interval`] and [`LoopConfig::straggler`] |
//!
//! # Absent on purpose
//! - No protocol, not even Ethernet. Only the steering rules parse packets, to find the server's. They
//!   run in the kernel, or on netmap in the port. [`checksum`] has the sums that several protocols share.
//! - No ports shared between threads. So ports need no locks, and a [`Pool`] uses `Rc`, not `Arc`.
//! - No output queue in front of a full TX ring. The send fails instead, and the caller decides
//!   what to do.
//! - No allocation and no system call per packet, except on the ports [`tap`] (one system call per
//!   packet) and [`sim`].
//! - No received packets that span several frames. Each frame holds a packet of the MTU.
//! - No cleanup that depends on a normal exit. Everything that this crate creates or attaches
//!   exists only while its file descriptors are open. So the kernel removes it, however the process
//!   terminates.
mod assembly;
pub mod checksum;
pub mod device;
pub mod event_loop;
pub mod fault;
pub mod frame;
mod idle;
pub mod mailbox;
mod memory;
pub mod netmap;
pub mod pcap;
pub mod port;
mod prefetch;
pub mod sim;
mod steering;
pub mod stop;
pub mod super_segment;
mod sys;
#[cfg(target_os = "linux")]
pub mod tap;
pub mod time;
pub mod timer;
mod timers;
mod times;
mod vnet;
mod wrong_words;
#[cfg(target_os = "linux")]
pub mod xdp;

pub use event_loop::{Handler, LoopConfig, LoopState, run};
pub use fault::{Fault, FaultConfig, FaultCounters, FaultError, FaultRates};
pub use frame::{Copies, Frame, IdleResident, Pool, PoolLayout, Resident};
pub use mailbox::{Bell, Mailbox, mailbox};
pub use memory::{prefer_large_pages, reserve_in_large_pages};
pub use pcap::{Pcap, PcapError, PcapSummary};
pub use port::{
    Batch, BatchSizes, Capabilities, MAX_BATCH, Port, PortCounters, PortHints, PortLevels,
    SendError, Wait,
};
pub use prefetch::prefetch;
pub use stop::{Drain, Stop};
pub use super_segment::SuperSegment;
pub use time::{Clock, Instant, TscClock};
pub use timer::TimerWheel;
pub use timers::Timers;
pub use times::Times;
pub use wrong_words::WrongWords;
