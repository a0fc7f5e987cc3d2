//! An authoritative DNS server that answers from prepared packets: the Namestorm of the
//! [paper](https://doi.org/10.1145/2619239.2626311).
//!
//! To write your own server, combine a zone with a [`Hook`], which answers queries for some of the
//! zone's names itself. A [`Question`] holds the name and type asked for, and the client's address.
//! The following hook answers with the addresses of servers that pass a health check:
//!
//! ```
//! use std::process::ExitCode;
//! use std::thread;
//!
//! use namestorm::{Hook, Question, RecordError, Records, Rrset, Verdict, rtype};
//! use nmio::Instant;
//!
//! const ZONE: &str = "\
//! $ORIGIN example.org.
//! @   60 SOA ns hostmaster 1 7200 3600 1209600 60
//! @   60 NS  ns
//! ns  60 A   192.0.2.53
//! ";
//!
//! /// The addresses of the healthy servers.
//! struct Healthy(Rrset);
//!
//! impl Hook for Healthy {
//!     type Message = Rrset;
//!
//!     fn answer(
//!         &mut self,
//!         question: &Question<'_>,
//!         records: &mut Records<'_>,
//!         _now: Instant,
//!     ) -> Result<Verdict, RecordError> {
//!         if question.wants(rtype::A) {
//!             records.add_rrset(&self.0)?;
//!         }
//!         Ok(Verdict::Records)
//!     }
//!
//!     fn on_message(&mut self, healthy: Rrset, _now: Instant) {
//!         self.0 = healthy;
//!     }
//! }
//!
//! impl control::Named for Healthy {
//!     const NAME: &'static str = "healthy";
//!     const PORT: u16 = 53;
//! }
//!
//! # fn check_health(_: nmio::mailbox::Sender<Rrset>) {}
//! fn main() -> ExitCode {
//! # return in_memory();
//!     namestorm::serve(ZONE, &["www.example.org"], |worker| {
//!         let sender = worker.open_mailbox(8);
//!         // The thread sends a new RRset whenever the set of healthy servers changes.
//!         thread::spawn(move || check_health(sender));
//!         let all = [[192, 0, 2, 1], [192, 0, 2, 2]];
//!         Ok(Healthy(Rrset::new(rtype::A, 30, all)?))
//!     })
//! }
//! # fn in_memory() -> ExitCode {
//! #     use namestorm::{Form, Responder, Transport, Zones, compile, load_text};
//! #     let mut zones = Zones::new(vec![load_text("zone", None, ZONE).unwrap().zone]).unwrap();
//! #     zones.hook("www.example.org").unwrap();
//! #     let answers = compile(&zones, Form::Wire, [1, 2, 3, 4], &mut |_| {}).unwrap();
//! #     let mut responder = Responder::new(answers.into());
//! #     let set = |last| Rrset::new(rtype::A, 30, [[192, 0, 2, last]]).unwrap();
//! #     let mut hook = Healthy(set(1));
//! #     for last in [1, 2] {
//! #         let mut query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\
//! #             \x03www\x07example\x03org\x00\x00\x01\x00\x01".to_vec();
//! #         let peer = ([192, 0, 2, 9], 4_000).into();
//! #         let udp = Transport::Udp { link: 1472 };
//! #         let reply = responder.respond_with(&mut query, udp, &mut hook, peer, Instant::ZERO);
//! #         assert!(reply.unwrap().tail.bytes.ends_with(&[192, 0, 2, last]));
//! #         hook.on_message(set(2), Instant::ZERO);
//! #     }
//! #     ExitCode::SUCCESS
//! # }
//! ```
//!
//! When a zone is loaded, [`compile()`] prepares an answer for each name and type that the zone is
//! authoritative for. It is the part of a message after the question. A small index leads from the
//! name to its zone, and one lookup in the zone's hash table finds the prepared answer
//! ([`Answers`]). Only the header and the OPT record are written for each query. The lookup does not
//! find names that a hook answers for, so hooks do not slow down other queries.
//!
//! Each layer can be used alone. [`Responder`] answers DNS messages without a network:
//!
//! ```
//! use namestorm::{Form, Responder, Transport, prepare_text};
//!
//! let zone = "\
//! $ORIGIN example.org.
//! @   3600 IN SOA ns hostmaster 1 7200 3600 1209600 300
//! @   3600 IN NS  ns
//! ns  3600 IN A   192.0.2.53
//! ";
//! let answers = prepare_text(zone, Form::Wire).unwrap();
//! let mut responder = Responder::new(answers.into());
//! let mut query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\
//!     \x02ns\x07example\x03org\x00\x00\x01\x00\x01".to_vec();
//! let reply = responder.respond(&mut query, Transport::Udp { link: 1472 }).unwrap();
//! assert!(reply.tail.bytes.ends_with(&[192, 0, 2, 53]));
//! ```
//!
//! A server says who it is only if it has an [`Identity`]. A reply to ANY over UDP has one RRset (RFC
//! 8482), and errors have extended errors (RFC 8914) if the query has an OPT record.
//!
//! Zones are transferred over TCP (RFC 5936) to the clients that a server allows ([`TransferClients`]).
//! A client that asks for differences (RFC 1995) gets the whole zone, unless its own is current.
//!
//! Secondary servers are told of changes at once (NOTIFY, RFC 1996). Queries, replies and these messages may
//! have signatures (TSIG, RFC 8945).
//!
//! The following features are deliberately absent: recursion, secondary zones, dynamic update,
//! DNSSEC signing, and rotation of the records in an RRset. Signed zones are served with their
//! signatures and proofs.

mod answers;
mod assemble;
mod bare;
mod body;
mod chain;
mod check;
mod check_files;
mod compile;
mod cookie;
mod cookie_check;
mod counted_type;
mod counters;
mod defence;
mod dns_options;
mod dnssec;
mod edns;
mod fields;
mod groups;
mod hashed_question;
mod hook;
mod hooked;
mod identity;
mod index;
mod inventory;
mod key;
mod load;
mod master;
mod name;
mod notify;
mod nsec3;
mod options;
mod prefetcher;
mod program;
mod proofs;
mod query;
mod query_log;
mod rate_limit;
pub mod rcode;
mod rdata;
mod records;
mod redirect;
mod report;
mod respond;
pub mod rtype;
mod secret_source;
mod secret_text;
mod serve;
mod server;
mod service;
mod tail;
mod tcp;
mod transfer;
mod tsig;
mod turnover;
mod udp_size;
mod words;
mod zone;
mod zone_args;
mod zone_counts;
mod zone_files;
mod zone_folders;
mod zone_number;
mod zone_records;
mod zones;
mod zones_args;

pub use answers::{AnswerId, Answers, Size};
pub use check_files::{CheckFailed, check};
pub use compile::compile;
pub use cookie::{CookieFileError, Cookies, MAX_SECRETS, SECRET_LEN, Secret, WallClock};
pub use counters::Counters;
pub use defence::DefenceArgs;
pub use dns_options::{DnsOptions, port_owner};
pub use edns::{MAX_UDP_MESSAGE, MIN_UDP_MESSAGE};
pub use hook::{Hook, NoHook, Question, Verdict};
pub use identity::{ChaosText, Identity, IdentityArgs, MAX_CHAOS_TEXT, MAX_NSID, Nsid};
pub use key::Form;
pub use load::{Broken, Loaded, ZoneSpec, load, load_text};
pub use name::{Name, NameError};
pub use program::{LoadError, MAX_RESIDENT_PACKETS, Namestorm, NextZones};
pub use query_log::QueryLogArgs;
pub use rate_limit::{
    DEFAULT_BITS, DEFAULT_RATE, DEFAULT_SLIP, MAX_IPV6_BITS, MAX_RATE, RateLimit,
};
pub use records::{RecordError, Records, Rrset, Section};
pub use report::{Finding, Report, Severity};
pub use respond::{Reply, Responder, Transport};
pub use serve::{own_defaults, serve};
pub use server::{Server, UdpAndTcp};
pub use service::{Dns, ReplyMode};
pub use tail::MAX_TCP_MESSAGE;
pub use tcp::{DnsOverTcp, IDLE_TIMEOUT, MAX_CONNECTIONS, MAX_TCP_QUERY, TcpSettings};
pub use transfer::{Transfer, TransferClients, TransferRule};
pub use tsig::{KeyFileError, MAX_KEYS, TsigKeys};
pub use udp_size::{MAX_UDP_SIZE, UdpSize, UdpSizeError, UdpSizes};
pub use zone::Zone;
pub use zone_args::{NoZones, ZONE_OPTIONS, ZoneArgs, port_of_zones};
pub use zones::{HookNameError, Zones};
pub use zones_args::ZonesArgs;

/// Prepares the answers of one zone given as text, for tests, benchmarks and examples. The text
/// should set the origin, which is otherwise `zone.`. The hash keys are fixed, not random, so a
/// server must use [`compile()`] instead.
///
/// # Errors
///
/// Returns a report with at least one error, or an empty report if the answers exceed 32 GiB.
pub fn prepare_text(zone: &str, form: Form) -> Result<Answers, Report> {
    let loaded = load_text("zone", None, zone)?;
    let zones = Zones::new(vec![loaded.zone]).unwrap_or_else(|_| unreachable!("one zone"));
    compile(&zones, form, [1, 2, 3, 4], &mut |_| {}).map_err(|_| Report::default())
}
