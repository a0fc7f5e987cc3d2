//! An HTTP load generator with its own small TCP client.
//!
//! The client prepares its request packets when the run begins. For each request it fills in only
//! its address and port, the sequence numbers, the window and the checksums. It does not store
//! responses. It compares each head with the last correct head of the same page, and parses a head
//! only if they differ. For a body it computes only the length and the CRC-32, segment by segment,
//! in any order of arrival.
//!
//! | module | |
//! |---|---|
//! | [`site`] | pages, their lengths and checksums, and the requests for them |
//! | [`form`] | whole files, parts, compressed forms, and 304 |
//! | [`numbered`] | a site of many files |
//! | `pages` | prepared requests, and the order in which pages are requested |
//! | `head` | parses the head of a response |
//! | `connection` | the state of one connection |
//! | `client` | the [`Client`]: input and output of frames, timers |
//! | `receive` | processes segments: handshake, ACKs, data in and out of order |
//! | `response` | processes and checks in-order data of responses |
//! | `lanes` | when requests are sent, and on which connections |
//!
//! The client acknowledges like a kernel that merges segments (GRO). After each batch of frames, it
//! sends one ACK on a connection that has received more than one MSS of data since its last ACK.
//! Less data is acknowledged with the next request or after 40 ms. Out-of-order data and a FIN are
//! acknowledged immediately.
//!
//! The client deliberately lacks these features: IPv6, TCP timestamps, requests longer than one
//! segment, pipelining and D-SACK. It collects chunked bodies, so they may have only 64 KB. It needs no congestion window, because each
//! request is one segment. It has no TIME-WAIT state. Instead, it acknowledges any FIN that belongs
//! to no connection.

mod client;
mod connection;
pub mod form;
mod head;
mod lanes;
pub mod numbered;
mod pages;
mod receive;
mod response;
pub mod site;

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, value_parser};

use super::LoadError;
use super::pace::Pace;

pub use client::Client;
pub use form::{Form, FormOptions};
pub use numbered::NumberedSite;
pub use site::Page;

/// The configuration of a [`Client`].
#[derive(Clone, Debug)]
pub struct Workload {
    /// Pages to request, drawn at random by weight.
    pub pages: Vec<Page>,
    /// A site whose files are requested in place of `pages`.
    pub numbered: Option<NumberedSite>,
    /// Whether numbered files are requested one after the other. Otherwise their popularity follows a
    /// Zipf law.
    pub in_turn: bool,
    /// Number of connections that send requests.
    pub connections: u32,
    /// Number of requests on each connection before the client replaces it; 0 means no limit.
    pub requests: u32,
    /// Number of further connections that the client opens first and leaves idle.
    pub idle: u32,
    /// Rate of an open loop. If `None`, each connection sends the next request when the response is
    /// complete.
    pub pace: Option<Pace>,
    /// Seed for drawing pages.
    pub seed: u64,
    /// Start time of the run on a clock that never goes back, such as Unix time. Initial sequence
    /// numbers follow this clock, so they also rise from one run to the next. A server in TIME-WAIT
    /// therefore recognizes a SYN as new.
    pub epoch: Duration,
}

/// Command-line options of the HTTP generator.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Directory of the served files; the generator compares responses with these files.
    #[arg(long, value_name = "DIR", required_unless_present = "numbered")]
    pub site: Option<PathBuf>,

    /// Directory of another version of the files, with the same lengths; a response may equal
    /// either version.
    #[arg(long, value_name = "DIR")]
    pub other: Option<PathBuf>,

    /// Path to request, beginning with a slash.
    #[arg(
        long,
        value_name = "PATH",
        required_unless_present_any = ["mix", "numbered"],
        conflicts_with_all = ["mix", "numbered"]
    )]
    pub path: Option<String>,

    /// Form of the responses to `path`.
    #[command(flatten)]
    pub form: FormOptions,

    /// File of paths to request at random; each line has a weight and a path.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["form", "numbered"])]
    pub mix: Option<PathBuf>,

    /// Request files of a site of N numbered files, which `load files` writes. Their popularity
    /// follows a Zipf law.
    #[arg(long, value_name = "N", conflicts_with_all = ["form", "other"],
          value_parser = value_parser!(u32).range(1..=i64::from(numbered::MAX_FILES)))]
    pub numbered: Option<u32>,

    /// Length of each numbered file in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = numbered::LEN, requires = "numbered")]
    pub length: u32,

    /// Request numbered files one after the other, and not by a Zipf law.
    #[arg(long, requires = "numbered")]
    pub in_turn: bool,

    /// Number of connections that send requests, one request at a time.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub connections: u32,

    /// Number of requests on a connection before it is closed and replaced; 0 means no limit.
    #[arg(long, value_name = "M", default_value_t = 0)]
    pub requests: u32,

    /// Number of further connections that are opened before the warm-up and stay idle.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub idle: u32,
}

impl Options {
    /// Reads the files that the options name.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or if a path or a line of the mix is invalid.
    pub fn read(&self, common: &super::Options) -> Result<Workload, LoadError> {
        let mut pages = match (&self.site, &self.mix, &self.path) {
            (Some(site), Some(mix), _) => site::read_mix(site, mix)?,
            (Some(site), None, Some(path)) => {
                let server = SocketAddrV4::new(common.target, common.port);
                vec![Page::read_form(site, path, &self.form, server)?]
            }
            _ => Vec::new(),
        };
        if let Some(other) = &self.other {
            let both = pages.into_iter().map(|page| page.or_in(other));
            pages = both.collect::<Result<_, _>>()?;
        }
        Ok(Workload {
            pages,
            numbered: self.numbered.map(|count| NumberedSite {
                count,
                len: self.length,
            }),
            in_turn: self.in_turn,
            connections: self.connections,
            requests: self.requests,
            idle: self.idle,
            pace: common.pace(),
            seed: common.seed,
            epoch: (SystemTime::now().duration_since(UNIX_EPOCH)).unwrap_or_default(),
        })
    }
}

/// Names of errors in the report.
mod error {
    pub(super) const CONNECT_TIMEOUT: &str = "connect timeout";
    pub(super) const REFUSED: &str = "refused";
    pub(super) const TIMEOUT: &str = "timeout";
    pub(super) const RESET: &str = "reset";
    pub(super) const CLOSED_EARLY: &str = "closed early";
    pub(super) const MALFORMED: &str = "malformed head";
    pub(super) const UNASKED: &str = "unsolicited data";
    pub(super) const STATUS: &str = "wrong status";
    pub(super) const LENGTH: &str = "wrong length";
    pub(super) const FIELD: &str = "wrong field";
    pub(super) const CHECKSUM: &str = "wrong checksum";
    pub(super) const NOT_SENT: &str = "no free connection";
    pub(super) const SMALL_SEGMENTS: &str = "peer's MSS too small";
    pub(super) const CLOSE_TIMEOUT: &str = "close timeout";
    pub(super) const IDLE: &str = "idle connection failed";
}

#[cfg(test)]
#[path = "http/tests.rs"]
mod tests;

#[cfg(test)]
#[path = "http/hostile_tests.rs"]
mod hostile_tests;
