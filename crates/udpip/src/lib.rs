//! Pre-packetized UDP: the paper's `libudpip`.
//!
//! A [`Service`] gets each datagram for its port and answers it in the same pass. Most
//! of the answer was prepared when the content was loaded: a [`Tail`] whose checksum is
//! known. Only the *head* differs from request to request, such as a DNS message's id
//! and question. The service writes it over the start of the received payload. Head and
//! tail leave in one of three ways:
//!
//! | way | what is sent | cost |
//! |---|---|---|
//! | [`Datagram::turn_round`] | the received frame itself; the tail is copied behind the head | no frame is taken |
//! | [`Datagram::send_copy`] | a scratch frame with head and tail | one copy of everything |
//! | [`Datagram::send_resident`] | a packet in the port's memory, with the head patched in | no copy of the tail |
//!
//! A whole server is a [`Server`] around a `Service`:
//!
//! ```
//! use nmio::{Instant, Port};
//! use udpip::{Datagram, Service, Tail};
//!
//! /// Sends every datagram back.
//! struct Echo;
//!
//! impl Service for Echo {
//!     type Message = ();
//!
//!     fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, _now: Instant) {
//!         let len = datagram.payload().len();
//!         datagram.turn_round(len, Tail::EMPTY, &[]);
//!     }
//! }
//! ```
//!
//! A service also gets messages from other threads ([`Service::on_message`]), and has
//! one timer ([`Service::on_timer`]).
//!
//! Deliberately absent: sending without a request, UDP-Lite, IP
//! fragments, datagrams larger than the link's MTU.

mod counters;
mod datagram;
mod server;

pub use counters::Counters;
pub use datagram::{AnswerCopies, Datagram, Tail};
pub use server::{Server, Service, Udp};

/// Bytes of a UDP header (RFC 768).
pub const HEADER_LEN: usize = 8;
