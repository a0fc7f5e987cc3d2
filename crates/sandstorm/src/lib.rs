//! A web server that answers from prepared packets, and a library for writing web applications.
//!
//! An [`App`] receives requests and decides how each one is answered. Only one method is required:
//!
//! ```
//! use sandstorm::{App, Exchange, Request, Verdict};
//!
//! /// Counts the requests for `/counter`, and leaves all other requests to the site.
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
//!     // Command line: `counter DIR`, with the options of `sandstorm serve` except `--congestion`.
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
//! #     let secret = [1, 2, 3, 4];
//! #     let host = ip::Host::own(Station::new(Mac([2, 0, 0, 0, 0, 1]), &[own]), secret);
//! #     let make = |_: &mut sandstorm::Replies<'_>| Ok::<_, tcpip::ContentError>(Counter(6));
//! #     let http = sandstorm::Http::<Counter>::load(
//! #         site.into(), make, &[own], &config, &port, secret, Instant::ZERO,
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
//! This program is a complete server. Its application sees all valid requests except CONNECT. With
//! [`Sees::Missing`] in [`App::SEES`], an application sees only requests that the site cannot
//! serve, and files are served at full speed. A [`Verdict`] says who answers: the site or the
//! application, now or later. The application can also send a [prepared reply](Replies::add), or
//! refuse the request. [`Exchange`] adds fields to a single response, and [`serve()`] adds fields
//! to all responses.
//!
//! | to | use |
//! |---|---|
//! | accept a body of more than [`BODY_LIMIT`] bytes, take a body in pieces, or leave it unread | [`App::on_head`], [`App::on_body`] |
//! | answer later, when another thread has the result | [`Verdict::Later`], [`App::on_message`], [`Clients::answer`] |
//! | stream a response of unknown length | [`Verdict::Stream`], [`App::on_more`], [`Clients::resume`] |
//! | do something at a given time | [`App::on_start`], [`App::on_timer`], [`Clients::set_timer`] |
//! | keep state for each connection | [`App::State`], [`Exchange::state`] |
//! | define your own command line | [`SiteArgs`], or [`Sandstorm`] as a [`control::Program`] |
//!
//! # How a body is read
//! The server reads bodies with `Content-Length` and chunked bodies. By default, the application
//! gets the request when the body is complete. Malformed chunks are answered with 400, and the
//! connection closes. A body that exceeds its limit is answered with 413, and its rest stays
//! unread. A client that waits for `100 Continue` gets it, unless the request is refused or its
//! body is not needed. Head and body together must arrive within [`REQUEST_TIMEOUT`]. Trailer
//! fields are parsed and discarded.
//!
//! If an unread body is known to be at most [`UNREAD_LIMIT`] bytes long, the server discards it as
//! it arrives, and the connection stays open. Otherwise, the response contains
//! `Connection: close`, and the server closes its side of the connection. For the time
//! [`tcpip::Config::fin_wait`], it still acknowledges and discards what the client sends. So a
//! client that first sends its whole body can read the response and is not reset (RFC 9112, section
//! 9.6).
//!
//! # Answering later
//! A deferred request waits in the server, and later requests of the same connection wait behind
//! it. A client that closes its sending side still gets the answer. If there is no answer within
//! [`ANSWER_TIMEOUT`], the client gets 504 and the connection stays open. An answer to a client
//! that has gone is dropped, and [`Clients::answer`] returns `false`.
//!
//! # When memory runs short
//! A pending request waits for its body, for the application, or for room in the send stream. All
//! pending requests of a worker share [`MAX_PENDING_BYTES`]. If no memory is left for a request,
//! the server evicts other requests or, if that is impossible, answers with 503. It can evict two
//! kinds of requests:
//!
//! - requests of a client address that holds more than an eighth of the memory, to make room for
//!   other addresses.
//! - slow requests. Either the body arrives at less than 16,000 bytes a second, or the response has
//!   waited for room for more than a second.
//!
//! The client of an evicted request gets 503, at the latest when the request times out. If the
//! response was already made, it is lost and the connection is reset. A request that waits for the
//! application, from an address within its share, is never evicted.
//!
//! # The site
//! A file server gives the same few responses again and again. This server makes each of them once,
//! when the folder is [loaded](Site::load). Status line, fields and body lie in one piece of
//! memory. Each form of a file has two responses: the whole file, and one for a client that already
//! has the file. The head of the first is the response to HEAD. Each worker's TCP stack segments
//! these responses once, at start. A request then costs one look-up by the bytes of its path, and its
//! response is one entry in the connection's send stream.
//!
//! The date and the connection option cannot be prepared. Both lie in one *slot* of fixed length
//! after the status line (see [`date`]). The slot is written when a packet is sent:
//!
//! ```text
//! HTTP/1.1 200 OK\r\n                          ─┐
//! Date: Sat, 21 Nov 2026 08:29:37 GMT\r\n       │ the slot: from the date to
//! Connection: keep-alive\r\n                    │ the connection option
//! Content-Type: text/css; charset=utf-8\r\n     │
//! Content-Length: 17\r\n                        │ made once for all clients
//! Last-Modified: Wed, 18 Nov 2026 20:00:00 GMT\r\n
//! ETag: "8a59fb4fec8a43ae"\r\n                  │
//! Accept-Ranges: bytes\r\n                      │
//! \r\n                                          │
//! p { color: tan }\n                           ─┘
//! ```
//!
//! The layers can be used separately. [`Site`] and [`Session`] implement HTTP without a network:
//! bytes in, replies out.
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
//! assert_eq!(answer.consumed(), whole.len());
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
//! [`server::Web`] is the application that serves a site on a TCP stack. [`Server`] is the complete
//! server: it takes frames from a port and sends frames, and [`nmio::run`] runs it. The program
//! `sandstorm` runs one worker for each queue of the device that its command line names. All
//! workers share the site and never write to it. Each worker has its own packets.
//!
//! [`reply::Status`] lists the statuses of the server's own answers. An ambiguous request is
//! refused, and its connection is closed. Such a request contains, for example, bare line feeds,
//! folded fields, more than one length or host, or a length together with a transfer coding. The
//! site does not read bodies: it answers a request with a body, and then closes the connection. A
//! head must be complete within [`REQUEST_TIMEOUT`] of its first byte.
//!
//! A client may ask for ranges of a file: one, or several as `multipart/byteranges`. Ranges that
//! overlap or touch are joined. A client that asks for more than 32 parts, or for parts that cost
//! more than the whole file, gets the whole file. Only heads and the text between parts are
//! assembled for such a response. The parts are slices of the prepared response.
//!
//! [`Settings`] say how a folder becomes a site: redirects, rules for fields, media types, listings and
//! pages for errors. All of this is prepared when the folder is loaded. A client that accepts gzip,
//! Brotli or zstd gets the shortest form of a file.
//!
//! [`Site::by_hosts`] leads each request to the site for its host.
//!
//! The server deliberately lacks TLS and tunnels (CONNECT).

mod accept;
mod access_log;
mod answer;
mod app;
mod assembled;
mod background;
mod body;
mod coder;
mod coding;
pub mod date;
mod digest;
mod disk;
#[cfg(test)]
mod disk_memory_tests;
#[cfg(test)]
mod disk_tests;
mod etag;
mod exchange;
mod fields;
mod finding;
mod framing;
mod head;
mod host;
mod hosts;
mod improving;
mod known_sites;
mod limits;
mod list;
mod listing;
mod load;
mod loading;
mod login;
#[cfg(test)]
mod login_tests;
mod memory_budget;
mod next_sites;
mod part;
mod parts;
mod pending;
mod percent;
mod port_options;
mod prepared;
mod program;
mod ranges;
mod recent_cache;
mod redirect_host;
pub mod reply;
mod request;
mod response;
mod root;
mod rule_args;
mod rules;
mod sending;
mod serve;
pub mod server;
mod session;
mod settings;
mod site;
mod site_options;
mod sites;
mod skipped;
mod status;
mod tag_key;
#[cfg(test)]
mod tag_key_tests;
mod tagging;
#[cfg(test)]
mod testing;
mod turnover;
mod verdict;
mod web;

pub use access_log::{AccessLogArgs, AccessLogSenders, AccessLogs};
pub use answer::Answer;
pub use app::{App, BODY_LIMIT, Clients, SiteOnly};
pub use exchange::{Exchange, Ticket};
pub use fields::{FieldError, Fields, MAX_FIELDS_LEN};
pub use finding::Warning;
pub use head::{HEAD_LIMIT, MAX_FIELDS};
pub use hosts::{HostName, NotAHost};
pub use limits::{Limits, MAX_FILE_LEN};
pub use load::{LoadError, Progress};
pub use loading::{GivenOption, NotLoaded};
pub use next_sites::NextSites;
pub use pending::MAX_PENDING_BYTES;
pub use prepared::{PreparedId, Replies};
pub use program::Sandstorm;
pub use request::Request;
pub use response::Response;
pub use root::FollowLinks;
pub use rules::RuleError;
pub use serve::{
    Congestion, SiteArgs, own_defaults, port_of_site, port_owners, same_congestion, serve,
};
pub use server::{Http, PacketTotals, Server, packets};
pub use session::{Session, Step};
pub use settings::Settings;
pub use site::{Builder, HostedSite, ReplyId, Site, Totals};
pub use site_options::{APPLIED, SAME_SITE, SITE_DEFAULTS, SiteOptions, SiteSource};
pub use sites::{Sites, check_next_sites, check_sites, load_sites};
pub use skipped::{Reason, Skipped};
pub use status::{Status, StatusCode};
pub use verdict::{Intake, More, Sees, Verdict};
pub use web::{ANSWER_TIMEOUT, REQUEST_TIMEOUT, UNREAD_LIMIT};
