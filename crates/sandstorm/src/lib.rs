//! A web server that answers from prepared packets, and the library to answer
//! requests of one's own.
//!
//! An [`App`] gets requests and says how each is answered. One method must be
//! written:
//!
//! ```
//! use sandstorm::{App, Exchange, Request, Verdict};
//!
//! /// Counts the requests for `/counter`, and leaves all else to the site.
//! struct Counter(u64);
//!
//! impl App for Counter {
//!     type State = ();
//!     type Message = ();
//!
//!     fn on_request(&mut self, request: &Request<'_>, exchange: &mut Exchange<'_, ()>) -> Verdict {
//!         if request.path() != "/counter" {
//!             return Verdict::Site;
//!         }
//!         self.0 += 1;
//!         exchange.text(format_args!("{}\n", self.0))
//!     }
//! }
//!
//! impl control::Named for Counter {
//!     const NAME: &'static str = "counter";
//!     const PORT: u16 = 8080;
//! }
//!
//! # #[allow(dead_code, clippy::needless_doctest_main)]
//! fn main() -> std::process::ExitCode {
//!     # return tried();
//!     // `counter DIR`, with all options of `sandstorm serve`.
//!     sandstorm::serve(&[("Server", "counter")], |_worker, _replies| Ok(Counter(0)))
//! }
//! # fn tried() -> std::process::ExitCode {
//! #     use std::net::{IpAddr, Ipv4Addr};
//! #     use std::time::UNIX_EPOCH;
//! #     use eth::{Mac, Station};
//! #     use nmio::{Handler, Instant, Port, sim::Sink};
//! #     fn segment(seq: u32, ack: u32, control: u8, data: &[u8]) -> Vec<u8> {
//! #         let path = ip::Path {
//! #             link: eth::Link { peer: Mac([2, 0, 0, 0, 0, 1]), own: Mac([2, 0, 0, 0, 0, 9]), vlan: None },
//! #             addresses: ip::Addresses::V4 {
//! #                 src: Ipv4Addr::new(192, 0, 2, 9),
//! #                 dst: Ipv4Addr::new(192, 0, 2, 1),
//! #             },
//! #         };
//! #         let len = 20 + data.len();
//! #         let mut packet = vec![0; path.header_len() + len];
//! #         let at = path.write(&mut packet, ip::PROTOCOL_TCP, len);
//! #         let tcp = &mut packet[at..];
//! #         tcp[..4].copy_from_slice(&[0x9c, 0x40, 0x1f, 0x90]);
//! #         tcp[4..8].copy_from_slice(&seq.to_be_bytes());
//! #         tcp[8..12].copy_from_slice(&ack.to_be_bytes());
//! #         tcp[12..16].copy_from_slice(&[0x50, control, 0xff, 0xff]);
//! #         tcp[20..].copy_from_slice(data);
//! #         let sum = path.addresses.pseudo_sum(ip::PROTOCOL_TCP, len).add(ip::Sum::of(tcp));
//! #         tcp[16..18].copy_from_slice(&sum.finish().to_be_bytes());
//! #         packet
//! #     }
//! #     let mut port = Sink::new(1500, 16, 0);
//! #     let config = tcpip::Config::on_ports(&[8080]);
//! #     let site = sandstorm::Builder::new(UNIX_EPOCH).build();
//! #     let own = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
//! #     let host = ip::Host::own(Station::new(Mac([2, 0, 0, 0, 0, 1]), &[own]));
//! #     let make = |_: &mut sandstorm::Replies<'_>| Ok::<_, tcpip::ContentError>(Counter(6));
//! #     let http = sandstorm::Http::<Counter>::load(
//! #         site.into(), make, &[own], &config, &port, [1, 2, 3, 4], Instant::ZERO,
//! #     );
//! #     let mut server = sandstorm::Server::new(host, http.unwrap());
//! #     let mut receive = |port: &mut Sink, packet: &[u8]| {
//! #         let frame = port.frame_from(packet);
//! #         server.handle_frame(port, frame, Instant::ZERO);
//! #     };
//! #     receive(&mut port, &segment(100, 0, 2, b""));
//! #     let ours = u32::from_be_bytes(port.last()[38..42].try_into().unwrap()).wrapping_add(1);
//! #     receive(&mut port, &segment(101, ours, 16, b""));
//! #     receive(&mut port, &segment(101, ours, 16, b"GET /counter HTTP/1.1\r\nHost: a\r\n\r\n"));
//! #     assert!(port.last().ends_with(b"\r\nContent-Length: 2\r\n\r\n7\n"));
//! #     std::process::ExitCode::SUCCESS
//! # }
//! ```
//!
//! That is a whole server. Its application sees every request; [`App::SEES`] says
//! whether it sees those only that the site has nothing for, which costs the files
//! nothing. A [`Verdict`] answers with the site's file, with a [reply that was made
//! before](Replies::add), with bytes made now, later, or refuses. [`Exchange`] adds
//! fields to any of these, and [`serve()`] to all responses.
//!
//! | to | write |
//! |---|---|
//! | take a body of more than [`BODY_LIMIT`], in pieces, or none | [`App::on_head`], [`App::on_body`] |
//! | answer when another thread has the answer | [`Verdict::Later`], [`App::on_message`], [`Clients::answer`] |
//! | send a response of unknown length, in pieces | [`Verdict::Stream`], [`App::on_more`], [`Clients::resume`] |
//! | do something by time | [`App::on_start`], [`App::on_timer`], [`Clients::set_timer`] |
//! | remember something of a connection | [`App::State`], [`Exchange::state`] |
//! | have a command line of one's own | [`SiteArgs`], or [`Sandstorm`] as a [`control::Program`] |
//!
//! # How a body is read
//! With `Content-Length` or in chunks, as it comes. The application gets the request
//! when its body is whole. A body beyond its limit gets 413, malformed chunks get 400,
//! and the connection closes. A client that waits with the body (`Expect:
//! 100-continue`) is told to send it, unless it is refused. Body and head together must
//! arrive in [`REQUEST_TIMEOUT`]. Trailer fields behind a body in chunks are read and not
//! kept.
//!
//! Where nobody reads a body, up to [`UNREAD_LIMIT`] bytes of known length are discarded as
//! they come, and the connection goes on. Behind all others it closes: the answer says
//! so, and what the client still sends is acknowledged and discarded for
//! [`tcpip::Config::fin_wait`]. So a client that sends the whole body first reads its
//! answer, and is not reset (RFC 9112, section 9.6).
//!
//! # An answer that comes later
//! The request waits in the server, and later ones of its connection behind it. A client
//! that closes its half gets the answer all the same. When none has come in
//! [`ANSWER_TIMEOUT`], the client gets 504 and the connection goes on. An answer to a
//! client that has gone is dropped: [`Clients::answer`] says so.
//!
//! # When memory runs short
//! A request is under way while it waits for its body, for the application, or for room
//! for its answer. All of a worker have [`MAX_PENDING_BYTES`] together. When another one
//! finds no memory, it gets 503, unless some give way:
//!
//! - those of a client address that holds more than an eighth of the memory, but not to
//!   another request of the same address;
//! - those whose body comes, or whose client reads, slower than 16,000 bytes a second.
//!
//! The client of a request that has given way gets 503, at the latest when the request's
//! time is over; where its response is lost, its connection is reset. Who waits for the
//! application within its address's share keeps its place.
//!
//! # The site
//! A server of files gives the same few answers again and again. This one
//! makes each of them once, when the folder is [loaded](Site::load): status
//! line, fields and body in one piece of memory, for GET, for HEAD, and for
//! the client that has the file already. The TCP stack cuts these pieces into
//! packets once. A request is then one look-up by the path's bytes, and its
//! answer one entry in the connection's send stream.
//!
//! What cannot be made before is the date, and whether the connection goes
//! on. Both lie in one *slot* of fixed length behind the status line (see
//! [`date`]), which is written when a packet is sent:
//!
//! ```text
//! HTTP/1.1 200 OK\r\n                          ─┐
//! Date: Sat, 21 Nov 2026 08:29:37 GMT\r\n       │ the slot: from the date to
//! Connection: keep-alive\r\n                    │ the connection option
//! Content-Type: text/css; charset=utf-8\r\n     │
//! Content-Length: 17\r\n                        │ made once, for every client
//! Last-Modified: Wed, 18 Nov 2026 20:00:00 GMT\r\n
//! ETag: "8a59fb4fec8a43ae"\r\n                  │
//! Accept-Ranges: none\r\n                       │
//! \r\n                                          │
//! p { color: tan }\n                           ─┘
//! ```
//!
//! The layers can be used apart. [`Site`] and [`Session`] are HTTP without
//! any network: bytes in, replies out.
//!
//! ```
//! use sandstorm::date::{SlotWriter, Stamp};
//! use sandstorm::{Limits, Session, Site, Step};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! std::fs::write(folder.join("style.css"), "p { color: tan }\n")?;
//! let site = Site::load(folder, &Limits::default(), |_progress| {})?;
//!
//! let mut session = Session::default();
//! let half = b"GET /style.css HTTP/1.1\r\n";
//! assert_eq!(session.next(&site, half), Step::More { consumed: 0 });
//!
//! let whole = b"GET /style.css HTTP/1.1\r\nHost: storm.test\r\n\r\n";
//! let Step::Answer(answer) = session.next(&site, whole) else {
//!     panic!("the request is whole");
//! };
//! assert_eq!(answer.consumed, whole.len());
//! assert!(!answer.close);
//!
//! let stamp = Stamp::new(1_795_249_777, answer.close);
//! let mut response = Vec::new();
//! answer.write(&site, whole, stamp, &mut SlotWriter::new(), &mut response);
//! let response = String::from_utf8(response)?;
//! assert!(response.starts_with(
//!     "HTTP/1.1 200 OK\r\n\
//!      Date: Sat, 21 Nov 2026 08:29:37 GMT\r\n\
//!      Connection: keep-alive\r\n\
//!      Content-Type: text/css; charset=utf-8\r\n\
//!      Content-Length: 17\r\n"
//! ));
//! assert!(response.ends_with("\r\n\r\np { color: tan }\n"));
//! # Ok(())
//! # }
//! ```
//!
//! [`server::Web`] puts them on a TCP stack as its application, and
//! [`Server`] is the whole: it takes frames from a port and sends frames.
//! [`nmio::run`] runs it; the program `sandstorm` does that on the device that
//! its command line names, with one worker a queue. The site is shared by all
//! workers and never written; packets belong to one worker.
//!
//! What is answered how is in [`reply::Status`]. A request that could be read
//! in two ways is refused and its connection closed: bare line feeds, folded
//! fields, several lengths or hosts, a length beside a transfer coding. The site
//! reads no body: a request that has one is answered, and the connection
//! closed in the same way. A head must arrive whole in [`REQUEST_TIMEOUT`] from its first byte on.
//!
//! Deliberately absent: TLS, ranges, compression and content negotiation,
//! listings of folders, virtual hosts, logs of requests, and tunnels (CONNECT).

mod app;
mod body;
pub mod date;
mod exchange;
mod fields;
mod framing;
mod head;
mod host;
mod load;
mod loading;
mod pending;
mod prepared;
mod program;
mod recent_cache;
pub mod reply;
mod request;
mod response;
mod root;
mod serve;
pub mod server;
mod session;
mod site;
mod skipped;
mod status;
mod verdict;
mod web;

pub use app::{App, BODY_LIMIT, Clients, SiteOnly};
pub use exchange::{Exchange, Ticket};
pub use fields::{FieldError, Fields, MAX_FIELDS_LEN};
pub use head::{HEAD_LIMIT, MAX_FIELDS};
pub use load::{Limits, LoadError, Progress};
pub use loading::NotLoaded;
pub use pending::MAX_PENDING_BYTES;
pub use prepared::{PreparedId, Replies};
pub use program::Sandstorm;
pub use request::Request;
pub use response::Response;
pub use serve::{SiteArgs, SiteOptions, serve};
pub use server::{Http, PacketTotals, Server, packets};
pub use session::{Answer, Session, Step};
pub use site::{Builder, MAX_FILE_LEN, ReplyId, Site, Totals};
pub use skipped::{Reason, Skipped};
pub use status::{Status, StatusCode};
pub use verdict::{Intake, More, Sees, Verdict};
pub use web::{ANSWER_TIMEOUT, REQUEST_TIMEOUT, UNREAD_LIMIT};
