//! Copies of one client's packets, as a capture for Wireshark and tcpdump.
//!
//! On `AF_XDP`, the kernel does not see the server's packets, so a capture on the interface shows
//! nothing. While an operator asks for a trace, each worker copies the frames from and to one address
//! into a bounded ring. The control thread turns them into pcapng, which has an interface for each
//! worker. A frame that does not fit in the ring is counted and left out. It is still sent or handled.

pub(crate) mod capture;
pub(crate) mod pcapng;
pub(crate) mod port;
pub(crate) mod session;
