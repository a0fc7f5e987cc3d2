//! Pre-packetized UDP: `libudpip` from the [paper](https://doi.org/10.1145/2619239.2626311).
//!
//! A [`Service`] gets each valid datagram for its port, and immediately answers or drops it. An
//! [`Answer`] has three parts. Most of it, the [`Tail`], can be prepared when the content is loaded, so
//! that its checksum is known in advance. The *head* differs between requests, for example the ID and
//! question of a DNS message. The service writes the head over the start of the received payload. A
//! short *trail* may follow the tail, for example the OPT record of a DNS message. Three methods send
//! the answer:
//!
//! | method | frame sent | cost |
//! |---|---|---|
//! | [`Datagram::turn_around`] | the received frame | copies the tail and trail, needs no new frame |
//! | [`Datagram::send_copy`] | a scratch frame | copies head, tail and trail |
//! | [`Datagram::send_resident`] | a resident packet of the port | copies only the head and trail |
//!
//! To build a complete server, implement `Service` and wrap it in a [`Server`]:
//!
//! ```
//! use nmio::{Instant, Port};
//! use udpip::{Answer, Datagram, Service};
//!
//! /// Sends every datagram back.
//! struct Echo;
//!
//! impl Service for Echo {
//!     type Message = ();
//!
//!     fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, _now: Instant) {
//!         let len = datagram.payload().len();
//!         datagram.turn_around(Answer::head(len));
//!     }
//! }
//! ```
//!
//! A datagram whose source port belongs to a service that answers anything, such as echo, is dropped. The
//! two servers would otherwise answer each other for ever.
//!
//! A service also receives messages from other threads ([`Service::on_message`]), and can set one
//! timer ([`Service::on_timer`]).
//!
//! The following features are deliberately absent: sending without a request, UDP-Lite, IP
//! fragments, and datagrams larger than the link's MTU.

mod counters;
mod datagram;
mod reflectors;
mod server;

pub use counters::Counters;
pub use datagram::{Answer, AnswerCopies, Datagram, Tail};
pub use server::{Server, Service, Udp};

/// Length of a UDP header, in bytes (RFC 768).
pub const HEADER_LEN: usize = 8;
