//! HTTP requests on TCP connections of a small client of our own.
//!
//! Requests are packets prepared when the run begins: for each, only
//! addresses, ports, sequence numbers and checksums are filled in. Responses
//! are not kept either: a head is parsed (or compared with the last one of
//! its page) and of the body only length and CRC-32 are computed, segment by
//! segment, in whatever order they come.
//!
//! | module | |
//! |---|---|
//! | [`site`] | pages, their lengths and checksums; requests |
//! | `head` | the head of a response |
//! | `connection` | what one connection remembers |
//! | `client` | the [`Client`]: frames, timers, output |
//! | `receive` | segments: opening, acknowledgements, data in and out of order |
//! | `response` | bytes in order: heads, bodies, what is wrong with them |
//! | `lanes` | which request goes out when, and on which connection |
//!
//! It acknowledges as a kernel does that merges segments (GRO): once for all
//! segments of a connection that came together when they are more than one,
//! else with the next request or after 40 ms; at once when data is out of
//! order or its end is there.
//!
//! Deliberately absent: IPv6, TCP time stamps, requests longer than a segment
//! and pipelining, a congestion window (what is sent is one segment), D-SACK,
//! chunked bodies, an own TIME-WAIT state (a FIN to no connection is
//! acknowledged as such a state would).

mod client;
mod connection;
mod head;
mod lanes;
mod receive;
mod response;
pub mod site;

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, value_parser};
use nmio::Port;

use super::LoadError;
use super::link::{Place, Start};
use super::meter::Meter;
use super::pace::Pace;

pub use client::Client;
pub use site::Page;

/// What a [`Client`] does.
#[derive(Clone, Debug)]
pub struct Workload {
    /// What is asked for, at random by weight.
    pub pages: Vec<Page>,
    /// Connections that ask.
    pub connections: u32,
    /// Requests on each of them before the next one is opened; 0: no end.
    pub requests: u32,
    /// Further connections that are opened first and never ask.
    pub idle: u32,
    /// An open loop; without it, each connection asks again when it has the
    /// answer.
    pub pace: Option<Pace>,
    /// The seed of the draw of pages.
    pub seed: u64,
    /// A clock that never goes back, not even from one run to the next, such
    /// as time since 1970: initial sequence numbers follow it, so that a
    /// server that remembers a 4-tuple sees that a SYN is new.
    pub epoch: Duration,
}

/// What the command line says of it.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The folder that is served: what must come back is read from here.
    #[arg(long, value_name = "DIR")]
    pub site: PathBuf,

    /// What to ask for, from the slash on.
    #[arg(
        long,
        value_name = "PATH",
        required_unless_present = "mix",
        conflicts_with = "mix"
    )]
    pub path: Option<String>,

    /// A file of paths to ask for at random: a weight and a path on each line.
    #[arg(long, value_name = "FILE")]
    pub mix: Option<PathBuf>,

    /// Connections that ask, each of them one request at a time.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub connections: u32,

    /// Requests on a connection before it is closed and another one opened; 0:
    /// no end.
    #[arg(long, value_name = "M", default_value_t = 0)]
    pub requests: u32,

    /// Further connections that are opened before the warm-up and never ask.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub idle: u32,
}

impl Options {
    /// Reads what is needed.
    ///
    /// # Errors
    /// When files cannot be read or make no sense.
    pub fn start(&self, common: &super::Options) -> Result<Ask, LoadError> {
        let pages = match (&self.mix, &self.path) {
            (Some(mix), _) => site::read_mix(&self.site, mix)?,
            (None, path) => {
                let path = path.as_deref().unwrap_or("/");
                vec![Page::read(&self.site, path, 1.0)?]
            }
        };
        let workload = Workload {
            pages,
            connections: self.connections,
            requests: self.requests,
            idle: self.idle,
            pace: common.pace(),
            seed: common.seed,
            epoch: (SystemTime::now().duration_since(UNIX_EPOCH)).unwrap_or_default(),
        };
        Ok(Ask {
            workload,
            meter: common.meter(),
        })
    }
}

/// Kinds of errors.
mod error {
    pub(super) const CONNECT_TIMEOUT: &str = "connect timeout";
    pub(super) const REFUSED: &str = "refused";
    pub(super) const TIMEOUT: &str = "timeout";
    pub(super) const RESET: &str = "reset";
    pub(super) const CLOSED_EARLY: &str = "closed early";
    pub(super) const MALFORMED: &str = "malformed head";
    pub(super) const UNASKED: &str = "unasked data";
    pub(super) const STATUS: &str = "wrong status";
    pub(super) const LENGTH: &str = "wrong length";
    pub(super) const CHECKSUM: &str = "wrong checksum";
    pub(super) const NOT_SENT: &str = "no free connection";
    pub(super) const SMALL_SEGMENTS: &str = "peer's segments too small";
    pub(super) const CLOSE_TIMEOUT: &str = "close timeout";
    pub(super) const IDLE: &str = "idle connection failed";
}

/// Starts a [`Client`].
#[derive(Debug)]
pub struct Ask {
    /// What it does.
    pub workload: Workload,
    /// What it measures with.
    pub meter: Meter,
}

impl Start for Ask {
    type Generator<P: Port> = Client;

    fn start<P: Port>(self, place: &Place) -> Result<Client, LoadError> {
        Client::new(place, &self.workload, self.meter)
    }
}

#[cfg(test)]
#[path = "http/tests.rs"]
mod tests;

#[cfg(test)]
#[path = "http/hostile_tests.rs"]
mod hostile_tests;
