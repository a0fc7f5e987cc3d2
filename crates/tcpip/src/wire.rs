//! The TCP header and its options in packets (RFC 9293, section 3.1; RFC 2018; RFC 7323).
//!
//! [`Segment::parse`] parses a received header. For any input, this function returns `None` or a
//! segment whose data lies within the packet. It also reads timestamps if they are the only option.
//! [`Options::read`] reads all options. [`Header`] and [`Written`] encode the headers and options
//! that we send.
//!
//! ```
//! use tcpip::wire::{Control, Header, Options, Segment, Seq, Written};
//!
//! let header = Header {
//!     seq: Seq(u32::MAX),
//!     ack: Seq(7),
//!     control: Control::SYN | Control::ACK,
//!     window: 65_535,
//!     timestamps: None,
//! };
//! let options = Written::syn_ack(1_460, Some(7), true);
//! let mut bytes = vec![0; header.len() + options.len()];
//! header.write(&mut bytes, (80, 40_000), 0, options.len());
//! options.write(&mut bytes[header.len()..]);
//!
//! let segment = Segment::parse(&bytes).unwrap();
//! assert_eq!((segment.src_port, segment.dst_port), (80, 40_000));
//! // A SYN takes one sequence number, and sequence numbers wrap.
//! assert_eq!(segment.seq + segment.sequence_len(), Seq(0));
//! assert!(segment.seq.before(Seq(0)));
//!
//! let read = Options::read(&bytes);
//! assert_eq!((read.mss, read.window_scale), (Some(1_460), Some(7)));
//! ```
//!
//! Deliberately absent: urgent data, and options that a content server does not need (fast open,
//! multipath, authentication). The parser skips such options.

mod header;
mod options;
mod seq;

pub use header::{
    CHECKSUM_AT, Control, HEADER_LEN, Header, Segment, TIMESTAMPED_HEADER_LEN, TIMESTAMPS_LEN,
    Timestamps,
};
pub use options::{Block, MAX_SACK_BLOCKS, Options, Written};
pub use seq::Seq;
