//! An authoritative DNS server that answers from prepared packets: the
//! paper's Namestorm.
//!
//! When a zone is loaded, every name and type in it becomes the part of a
//! message that follows the question ([`compile`]). A query finds it by one
//! look-up in a hash table ([`Answers`]); what is left to do is the header.
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
//! Deliberately absent: recursion, zone transfers, dynamic update, NOTIFY,
//! TSIG, DNSSEC proofs (the records in a zone are served as data), rotation
//! of records.

mod ahead;
mod answers;
mod asked;
mod assemble;
mod body;
mod chain;
mod check;
mod compile;
mod counters;
mod edns;
mod gather;
mod hook;
mod hooked;
mod index;
mod key;
mod load;
mod lookup;
mod master;
mod name;
mod program;
mod query;
pub mod rcode;
mod rdata;
mod records;
mod report;
mod respond;
pub mod rtype;
mod serve;
mod server;
mod service;
mod tail;
mod tcp;
mod zone;
mod zones;

pub use answers::{Answer, Answers, Size};
pub use compile::compile;
pub use counters::Counters;
pub use edns::{MAX_UDP_MESSAGE, MIN_UDP_MESSAGE};
pub use hook::{Hook, NoHook, Question, Verdict};
pub use key::{Form, Key};
pub use load::{Broken, Loaded, ZoneSpec, load, load_text};
pub use name::{Name, NameError};
pub use program::{CheckFailed, LoadError, MAX_RESIDENT_PACKETS, Namestorm, check};
pub use records::{RecordError, Records, Rrset, Section};
pub use report::{Finding, Report, Severity};
pub use respond::{MAX_TCP_MESSAGE, Reply, Responder, Transport};
pub use serve::serve;
pub use server::{Server, UdpAndTcp};
pub use service::{Dns, Mode};
pub use tcp::{DnsOverTcp, IDLE_TIMEOUT, MAX_CONNECTIONS, MAX_TCP_QUERY, TcpSettings};
pub use zone::Zone;
pub use zones::{HookNameError, Zones};

/// Prepares the answers of one zone given as text, which must set its origin:
/// for tests, benches and examples. Hashes are not keyed by chance.
///
/// # Errors
/// What is wrong with the zone.
pub fn prepare_text(zone: &str, form: Form) -> Result<Answers, Report> {
    let loaded = load_text("zone", None, zone)?;
    let zones = Zones::new(vec![loaded.zone]).unwrap_or_else(|_| unreachable!("one zone"));
    compile(&zones, form, [1, 2, 3, 4], &mut |_| {}).map_err(|_| Report::default())
}
