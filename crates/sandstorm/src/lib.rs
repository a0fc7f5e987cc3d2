//! A static web server that answers from prepared packets.
//!
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
//! fields, several lengths or hosts, a length beside a transfer coding. A
//! request's body is not read: its request is answered, and the connection
//! closed. A head must arrive whole in [`REQUEST_TIMEOUT`] from its first byte on.
//!
//! Deliberately absent: TLS, ranges, compression and content negotiation,
//! listings of folders, virtual hosts, logs of requests, and anything that
//! depends on who asks.

pub mod date;
mod framing;
mod host;
mod load;
mod recent;
pub mod reply;
mod request;
mod root;
pub mod server;
mod session;
mod site;
mod skipped;

pub use load::{Limits, LoadError, Progress};
pub use request::{HEAD_LIMIT, MAX_FIELDS};
pub use server::{Http, Packets, REQUEST_TIMEOUT, Server, packets};
pub use session::{Answer, Session, Step};
pub use site::{Builder, MAX_FILE_LEN, ReplyId, Site, Totals};
pub use skipped::{Reason, Skipped};
