//! Bindings to the netmap API, version 14.
//!
//! netmap maps the rings and buffers of a network interface into a program's memory. FreeBSD
//! includes netmap; Linux can load it as a module. This crate has the structures, constants,
//! `ioctl` numbers and functions of netmap's public interface, under their original names. Only
//! [`Buffers`] is the crate's own. The crate opens no device and makes no system call. Building it
//! needs no header and no library.
//!
//! # The idea
//! A program opens [`NETMAP_DEVICE_NAME`] and binds the descriptor to a port. The program then
//! maps a memory region, in which the kernel has written structures that both sides use:
//!
//! - One [`netmap_if`] describes the port. It holds the offsets of the rings.
//! - Each [`netmap_ring`] is followed by its [`netmap_slot`]s. The program owns the slots from
//!   `head` up to, but not including, `tail`.
//! - Each slot names a buffer by its index. Swapping two indices moves a packet without a copy.
//!
//! The program fills or empties slots, and advances `head` and `cur`. The kernel changes `tail`,
//! but only in [`NIOCTXSYNC`], [`NIOCRXSYNC`] and `poll`. Everything else is a request, which
//! [`NIOCCTRL`] carries.
//!
//! | the request | its body | module |
//! |---|---|---|
//! | bind a port; describe a port or its memory | [`nmreq_register`] and others | [`requests`] |
//! | attach to VALE, netmap's software switch, or detach | [`nmreq_vale_attach`] and others | [`vale`] |
//! | let a kernel thread sync the rings | [`nmreq_sync_kloop_start`] | [`kloop`] |
//!
//! A request can have [`options`], such as external memory and packet offsets.
//!
//! # Example
//! This program sends one broadcast frame on `eth1`.
//! ```no_run
//! use std::fs::OpenOptions;
//! use std::io::Error;
//! use std::os::fd::AsRawFd;
//! use std::ptr::{null_mut, write_bytes};
//!
//! use netmap_sys::*;
//!
//! # fn main() -> Result<(), Error> {
//! let device = OpenOptions::new().read(true).write(true).open(NETMAP_DEVICE_NAME)?;
//!
//! // Bind the first ring pair of the NIC.
//! let mut body = nmreq_register { nr_mode: NR_REG_ONE_NIC, ..Default::default() };
//! let address = (&raw mut body).expose_provenance() as u64;
//! let mut header = nmreq_header::new(NETMAP_REQ_REGISTER, "eth1", address).unwrap();
//! // SAFETY: the header and the body are those of this request, and stay valid during the call.
//! if unsafe { libc::ioctl(device.as_raw_fd(), NIOCCTRL as _, &raw mut header) } < 0 {
//!     return Err(Error::last_os_error());
//! }
//!
//! // Map the region.
//! let (size, fd) = (body.nr_memsize as usize, device.as_raw_fd());
//! let access = libc::PROT_READ | libc::PROT_WRITE;
//! // SAFETY: this is a new mapping, at an address that the kernel chooses.
//! let memory = unsafe { libc::mmap(null_mut(), size, access, libc::MAP_SHARED, fd, 0) };
//! if memory == libc::MAP_FAILED {
//!     return Err(Error::last_os_error());
//! }
//!
//! // Fill the first free slot.
//! // SAFETY: the kernel has filled in the region, and TX ring 0 is bound. The program owns slot
//! // `head` and its buffer, because the ring has space. The buffer has at least 60 bytes.
//! unsafe {
//!     let nifp = memory.byte_add(body.nr_offset as usize).cast::<netmap_if>();
//!     let ring = netmap_txring(nifp, 0);
//!     assert!(nm_ring_space(&*ring) > 0);
//!     let head = (*ring).head;
//!     let slot = netmap_slot_at(ring, head);
//!     (*slot).len = 60;
//!     write_bytes(netmap_buf(ring, (*slot).buf_idx), 0xff, 60);
//!     (*ring).head = nm_ring_next(&*ring, head);
//!     (*ring).cur = (*ring).head;
//! }
//!
//! // Send it.
//! // SAFETY: this request has no argument.
//! if unsafe { libc::ioctl(fd, NIOCTXSYNC as _) } < 0 {
//!     return Err(Error::last_os_error());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Names of ports
//! The field [`nmreq_header::nr_name`] names a port in one of these ways:
//!
//! | name | port |
//! |---|---|
//! | `eth1` | a network interface, or a persistent VALE port |
//! | `valeX:Y` | port `Y` of switch `valeX`. If `Y` is an interface, the interface is attached. |
//! | `NAME{ID` | the master end of the pipe `ID`. `NAME` is any of the names above. |
//! | `NAME}ID` | the slave end of the same pipe |
//!
//! A pipe has the memory of the port `NAME`. If there is no such port, the kernel creates a
//! persistent VALE port for it. `ID` is any text that is not empty.
//!
//! Programs often accept longer names, such as `netmap:eth1-0/x`. Only their libraries know the
//! prefix `netmap:` and the suffixes `-N`, `^`, `*`, `/` and `@`. The kernel takes these properties
//! from [`nmreq_register::nr_mode`], [`nr_ringid`](nmreq_register::nr_ringid),
//! [`nr_flags`](nmreq_register::nr_flags) and [`nr_mem_id`](nmreq_register::nr_mem_id).
//!
//! # Why not `netmap_sys` from the registry
//! The published crate `netmap_sys` speaks API 11. Current modules accept only versions 14 and 15,
//! and refuse a request that has an older version. Building that crate also needs netmap's headers.
//!
//! # What this project uses
//! The bindings are whole, but the port in `nmio` needs only a part. It binds ring pairs, asks for the
//! properties of a port, and sets the length of its headers. It uses no [`options`], so its packets have no
//! offsets and no external memory. It also chooses no memory pool, attaches no interface to a switch, and
//! starts no kernel thread.
//!
//! # What is missing
//! - The requests of API 13 and older (`NIOCREGIF`, `NIOCGINFO`), because [`NIOCCTRL`] replaces
//!   them.
//! - The registers of `ptnetmap` devices, which only hypervisors and drivers in guests use.
//! - Targets whose addresses do not have 64 bits, and systems other than Linux and FreeBSD. The
//!   crate does not compile for these.

#![allow(non_camel_case_types)]

#[cfg(not(any(target_os = "linux", target_os = "freebsd")))]
compile_error!("netmap-sys knows the ioctl numbers of Linux and FreeBSD only");
#[cfg(not(target_pointer_width = "64"))]
compile_error!("netmap-sys knows the layouts of 64-bit targets only");

pub mod buffers;
pub mod interface;
pub mod ioctls;
pub mod kloop;
mod option_list;
pub mod options;
pub mod requests;
pub mod rings;
pub mod slots;
pub mod vale;
pub mod vnet_header;

pub use buffers::*;
pub use interface::*;
pub use ioctls::*;
pub use kloop::*;
pub use option_list::*;
pub use options::*;
pub use requests::*;
pub use rings::*;
pub use slots::*;
pub use vale::*;
pub use vnet_header::*;

#[cfg(test)]
mod tests;
