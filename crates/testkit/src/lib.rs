//! Helpers for the tests of several crates: plain values for frames and TCP segments, a smoltcp
//! client and a simulated link. Two ports of this crate record or inspect frames. `rig` runs a server
//! and its clients in a network namespace.
//!
//! This crate does not use the stack's code for headers, checksums or sequence numbers. It uses
//! `etherparse`, smoltcp and code of this crate instead, so that tests find errors in the stack's
//! code. The crate uses no type of `eth`, `ip` or `tcpip`, so that the unit tests of those crates
//! can use this crate. Only tests, benches and fuzz targets depend on this crate.
#![allow(clippy::missing_panics_doc, reason = "a test that fails panics")]

use nmio::Port;

pub mod cli;
mod direct;
pub mod dnssec;
mod link;
mod observer;
mod outbox;
mod packet;
mod ranges;
#[cfg(target_os = "linux")]
pub mod rig;
mod segment;
pub mod smol;
pub mod tsig;

pub use direct::Direct;
pub use link::Link;
pub use observer::{Observed, Observer, Verdict};
pub use outbox::Outbox;
pub use packet::{
    CLIENT, CLIENT_MAC, End, ICMP, ICMPV6, IcmpError, Packet, Route, SERVER, SERVER_MAC, TCP, UDP,
    checksum, fill_checksum, mark_congestion, read,
};
pub use ranges::Ranges;
pub use segment::{
    ACK, CE, CWR, ECE, FIN, LETTERS, Layout, MAX_OPTIONS, Opt, PSH, RST, Received, SYN, Segment,
    read_options, read_segment,
};

/// Copies a frame into the port's memory and sends it.
///
/// # Panics
/// Panics if the pool has no free frame or the TX ring is full.
pub fn send<P: Port>(port: &mut P, bytes: &[u8]) {
    let mut frame = port.pool().take().expect("a free frame");
    frame.set_len(bytes.len());
    frame.copy_from_slice(bytes);
    port.send(frame).expect("room in the TX ring");
}

/// Returns `len` pseudo-random bytes, which depend on the lower 32 bits of `seed`.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    // SplitMix64's finalizer, applied to a counter.
    let word = |at: u64| {
        let mut z = (seed << 32 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31).to_le_bytes()
    };
    (0..).flat_map(word).take(len).collect()
}
