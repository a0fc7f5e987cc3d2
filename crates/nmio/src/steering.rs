//! The rules that decide which received packets go to the server, and which go to the kernel.
//!
//! There is one table of [`Rules`], and two compilers of it. On `AF_XDP`, the steering program in
//! the kernel follows it (`bpf/steer.bpf.c`). On netmap, the port itself follows it, with a
//! [`Classifier`]. The same tests run on both.

mod classifier;

use std::net::IpAddr;

use crate::device::Transport;

pub(crate) use classifier::Classifier;

/// Rules that decide which packets go to the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules<'a> {
    /// Whether the server is in own mode, where it gets all packets to its addresses.
    pub(crate) own: bool,
    /// The interface's MAC address. The server gets only frames to this address. In own mode it
    /// also gets ARP packets and neighbour solicitations for its addresses that are sent to a
    /// broadcast or multicast MAC address.
    pub(crate) mac: [u8; 6],
    /// VLANs whose frames go to the server, in addition to untagged frames.
    pub(crate) vlans: &'a [u16],
    /// The served addresses, at most [`MAX_ADDRESSES`](crate::device::MAX_ADDRESSES).
    pub(crate) addresses: &'a [IpAddr],
    /// The served ports, at most [`MAX_SERVICES`](crate::device::MAX_SERVICES).
    pub(crate) services: &'a [(Transport, u16)],
}
