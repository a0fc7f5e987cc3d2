//! A TCP stack that sends pre-packetized content. It follows the `libtcpip` of the SIGCOMM 2014
//! paper *Network Stack Specialization for Performance*.
//!
//! A [`Stack`] handles all TCP connections of one network port ([`nmio::Port`]). It calls an
//! [`Application`], which responds through a [`Connection`]. A [`Server`] adds the IP and Ethernet
//! layers, and can be passed to [`nmio::run`], as the example `bare` does. The crate `control` turns
//! an application into a complete program. In the following example, the port keeps only the last
//! packet sent. A few hand-made segments stand in for a client:
//!
//! ```
//! use std::net::{IpAddr, Ipv4Addr};
//! use std::sync::Arc;
//!
//! use eth::{Mac, Station};
//! use nmio::sim::Sink;
//! use nmio::{Handler, Instant, Port};
//! use tcpip::{
//!     Application, Config, Connection, ContentError, ContentId, Contents, Server, Stack,
//! };
//!
//! /// Answers every line with the same content.
//! struct Greeter {
//!     greeting: ContentId,
//! }
//!
//! impl Application for Greeter {
//!     type State = ();
//!     type Message = ();
//!
//!     fn on_receive(&mut self, conn: &mut Connection<'_, ()>, data: &[u8]) -> usize {
//!         // The stack offers unconsumed data again: a partial line when more data
//!         // arrives, and a whole line when the stream has room for the answer.
//!         let line = data.iter().position(|byte| *byte == b'\n');
//!         match line {
//!             Some(end) if conn.write(self.greeting, 0).is_ok() => end + 1,
//!             _ => 0,
//!         }
//!     }
//! }
//!
//! let mut port = Sink::new(1500, 16, 0);
//! let config = Config::on_ports(&[7]);
//! let secret = [1, 2, 3, 4]; // random numbers, in a real server
//! let greeter = |contents: &mut Contents| {
//!     let greeting = contents.add(Arc::from(*b"Hello.\n"), None)?;
//!     Ok::<_, ContentError>(Greeter { greeting })
//! };
//! let capabilities = port.capabilities();
//! let stack = <Stack<_>>::load(&config, greeter, &capabilities, secret, Instant::ZERO)?;
//!
//! let own = Ipv4Addr::new(192, 0, 2, 1);
//! let station = Station::new(Mac([2, 0, 0, 0, 0, 1]), &[IpAddr::V4(own)]);
//! let mut server = Server::new(ip::Host::own(station, secret), stack);
//!
//! # /// Builds a client's segment from its sequence numbers, control bits and data.
//! # fn segment(seq: u32, ack: u32, control: u8, data: &[u8]) -> Vec<u8> {
//! #     let path = ip::Path {
//! #         link: eth::Link { peer: Mac([2, 0, 0, 0, 0, 1]), own: Mac([2, 0, 0, 0, 0, 9]), vlan: None },
//! #         addresses: ip::Addresses::V4 {
//! #             src: Ipv4Addr::new(192, 0, 2, 9),
//! #             dst: Ipv4Addr::new(192, 0, 2, 1),
//! #         },
//! #     };
//! #     let len = 20 + data.len();
//! #     let mut packet = vec![0; path.header_len() + len];
//! #     let at = path.write(&mut packet, ip::PROTOCOL_TCP, len);
//! #     let tcp = &mut packet[at..];
//! #     tcp[..4].copy_from_slice(&[0x9c, 0x40, 0, 7]);
//! #     tcp[4..8].copy_from_slice(&seq.to_be_bytes());
//! #     tcp[8..12].copy_from_slice(&ack.to_be_bytes());
//! #     tcp[12..16].copy_from_slice(&[0x50, control, 0xff, 0xff]);
//! #     tcp[20..].copy_from_slice(data);
//! #     let sum = path.addresses.pseudo_sum(ip::PROTOCOL_TCP, len).add(ip::Sum::of(tcp));
//! #     tcp[16..18].copy_from_slice(&sum.finish().to_be_bytes());
//! #     packet
//! # }
//! # const SYN: u8 = 2;
//! # const ACK: u8 = 16;
//! let mut receive = |port: &mut Sink, packet: &[u8]| {
//!     let frame = port.frame_from(packet);
//!     server.handle_frame(port, frame, Instant::ZERO);
//! };
//! receive(&mut port, &segment(100, 0, SYN, b""));
//! let syn_ack = port.last();
//! let ours = u32::from_be_bytes(syn_ack[38..42].try_into()?).wrapping_add(1);
//! receive(&mut port, &segment(101, ours, ACK, b""));
//! receive(&mut port, &segment(101, ours, ACK, b"hi there\n"));
//! assert!(port.last().ends_with(b"Hello.\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Many clients of a server get the same bytes, so the application adds these bytes once, as a
//! *content* item ([`Contents::add`]). A *class* of clients shares an IP family and a maximum
//! segment size. The stack cuts a content item into segments for each class, and stores the payload
//! checksum of each segment. In pre-copy mode, it also keeps segments as whole packets in the
//! port's memory.
//!
//! A connection's send stream is a short list of slices of content items and write buffers, in the
//! order of sequence numbers. So the stack can find the data of any segment by its offset in the
//! stream, even for a retransmission. Therefore a content item is never copied to a retransmission
//! buffer. To send a prepared segment, the stack writes its headers, and derives their checksum
//! from the stored one. In pre-copy mode, it does not read the payload. In memcopy mode, it copies
//! the payload to a frame.
//!
//! ACKs clock the transmission, unless the connection is paced. The TX ring is the only output
//! queue. If the port supports super-segments ([`nmio::Capabilities::segmentation`]), a run of new
//! segments of one content item is sent as one packet. This packet consists of one set of headers
//! and a slice of the content item. Several short slices in a row, such as the responses to
//! pipelined requests, are copied to a buffer and sent as one packet, too.
//!
//! # The paper's Table 1
//!
//! | paper | this crate |
//! |---|---|
//! | `tcpip_init()`, `tcp_bind()`, `tcp_listen()` | [`Stack::new`] or [`Stack::load`] with [`Config::ports`] |
//! | `tcp_accept()` | [`Application::on_accept`] |
//! | `tcp_recv()` | [`Application::on_receive`] |
//! | `tcp_sent()` | [`Application::on_sent`] |
//! | `tcp_write()` | [`Connection::write`], [`Connection::write_slice`], [`Connection::write_bytes`], [`Connection::write_once`], [`Connection::write_parts`] |
//! | `tcp_close()` | [`Connection::close`] |
//!
//! The paper's calls work on a connection at any time. Here a connection is usable only inside a
//! callback. [`Application::on_message`] (another thread has sent a message) and
//! [`Application::on_timer`] can access any connection by its id ([`Connection::id`]). A connection
//! can be [parked](Connection::park) until its answer is available.
//!
//! # Standards
//!
//! - RFC 9293 for a server: passive open, all later states, half-close, simultaneous close, resets,
//!   zero windows, silly window syndrome avoidance, a user timeout, and keep-alive.
//! - TIME-WAIT, which a new SYN can end early (RFC 6191).
//! - Options: MSS, window scale in both directions, timestamps with PAWS (RFC 7323), SACK (RFC
//!   2018) with duplicate SACKs (RFC 2883).
//! - Loss detection: a scoreboard (RFC 6675), RACK and tail loss probes (RFC 8985), and `NewReno`
//!   for peers without SACK (RFC 6582).
//! - Limited transmit (RFC 3042) and proportional rate reduction (RFC 6937).
//! - Retransmission timeouts (RFC 6298), and undoing spurious window reductions (RFC 3522, RFC
//!   3708, RFC 5682). The minimum timeout is 200 ms. On short paths, it falls to the longest
//!   timeout that the RTT samples have given, which includes the client's delayed ACKs.
//! - Congestion control: [`Cubic`] (RFC 9438) with `HyStart++` (RFC 9406), [`NewReno`], the paper's
//!   [`Reno`], and [`Bbr`].
//! - An initial window of ten segments (RFC 6928), congestion window validation (RFC 7661), ECN
//!   (RFC 3168), and optional pacing.
//! - Path MTU: plausible ICMP errors (RFC 1191, RFC 8201, RFC 5927), and our own probes (RFC 4821,
//!   RFC 8899).
//! - Protection against attacks: SYN cookies (RFC 4987), unpredictable initial sequence numbers
//!   (RFC 6528), and challenge ACKs (RFC 5961). The number of connections is limited: in total, per
//!   client address, in SYN-RECEIVED, and in TIME-WAIT. When connections, buffers, lists or
//!   scoreboards run short, usually the connection with the least progress gives way.
//!
//! State for loss recovery and reordering is kept outside the TCBs, in a pool that only connections
//! with lost or reordered segments use. For other connections, recovery costs only a few
//! comparisons per segment. Every segment reserves space for the timestamps option, even if the
//! client sends no timestamps. So a content item is cut in the same way for all clients of a class.
//!
//! Deliberately absent:
//! - Active open, urgent data, IP options and TCP Fast Open.
//! - Delayed acknowledgements: an answer carries the acknowledgement. Without an answer, the
//!   acknowledgement is sent immediately.
//! - A reset for data that arrives after our close (RFC 9293, section 3.6.1): the stack
//!   acknowledges and discards such data.

mod clock;
mod config;
mod congestion;
mod connection;
mod content;
mod counters;
mod emit;
mod mss;
mod negotiated;
mod outcome;
mod pools;
mod rto;
#[cfg(test)]
#[path = "../tests/segments/mod.rs"]
mod segments;
mod server;
mod stack;
mod stream;
mod table;
pub mod wire;
mod writes;

pub use config::{Config, SynCookies, WhenFull};
pub use congestion::{Bbr, Congestion, CongestionControl, Cubic, Event, NewReno, Reno};
pub use connection::{CloseReason, Condition, Info, MAX_RANGES, State, StateCounts};
pub use content::{
    ContentError, ContentId, Contents, Family, MAX_CLASSES, MAX_CONTENT_LEN, MAX_CONTENTS,
    MAX_SLOT_LEN, SendMode, Slot, Totals,
};
pub use counters::Counters;
pub use mss::{DEFAULT_MSS_V4, DEFAULT_MSS_V6, MIN_MSS};
pub use negotiated::Negotiated;
pub use rto::{
    INITIAL_RTO_AFTER_LOSS_MS, INITIAL_RTO_MS, MAX_RTO_MS, MIN_RTO_MS, QUICK_MIN_RTO_MS,
};
pub use server::Server;
pub use stack::{
    Application, Connection, ConnectionId, Connections, Deadline, Overview, Part, Sending, Stack,
    Timer, WriteError,
};
pub use stream::STREAM_ENTRIES;
pub use wire::TIMESTAMPED_HEADER_LEN as PREPARED_HEADER_LEN;
pub use writes::MAX_WRITE_LEN;
