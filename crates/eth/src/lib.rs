//! Ethernet II, 802.1Q, ARP and neighbour discovery. The Sandstorm paper calls this layer `libeth`.
//!
//! A server only replies, so it can take the destination MAC address from the received frame. A
//! [`Link`] stores the frame's MAC addresses, swapped, for later packets. This avoids a neighbour
//! table, which would need look-ups and ageing and could be poisoned.
//!
//! A [`Station`] answers ARP requests and neighbour solicitations for the server's own addresses,
//! and announces the addresses at start. In shared mode, the kernel owns the addresses and answers
//! for them itself.
//!
//! ```
//! use eth::{ETHERTYPE_IPV4, Header, Link, Mac};
//!
//! let mut frame = [0u8; 60];
//! frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]); // to us
//! frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]); // from a client
//! frame[12..14].copy_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
//!
//! let header = Header::parse(&frame).unwrap();
//! let back = Link::back(&header);
//! assert_eq!(back.write(&mut frame, ETHERTYPE_IPV4), 14);
//! assert_eq!(Header::parse(&frame).unwrap().dst, Mac([2, 0, 0, 0, 0, 9]));
//! ```
//!
//! Deliberately absent: neighbour resolution (a server never sends first), 802.3 length frames,
//! stacked VLAN tags, and spanning tree.

mod header;
mod station;

pub use header::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, HEADER_LEN, Header, Link, Mac, TAGGED_HEADER_LEN,
};
pub use station::Station;
