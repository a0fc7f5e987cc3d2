//! Load for the comparison: a client's end that asks a server as fast as it
//! answers (closed loop), or at a fixed rate (open loop), and looks at every
//! reply.
//!
//! It is a server's mirror image on the same libraries: a [`Handler`] on a
//! port of its own, in own-address mode, so that no kernel stack stands
//! between it and the wire. That is what lets one core of a client load one
//! core of a server.
//!
//! | module | |
//! |---|---|
//! | [`link`] | opens the port, finds the server's MAC address, runs a generator to its end |
//! | [`meter`] | warm-up and measured part, latencies, errors by kind |
//! | [`pace`] | when the next request of an open loop is due |
//! | [`udp`] | requests in single datagrams, and their replies |
//! | [`echo`], [`dns`] | what those datagrams say |
//! | [`syn`] | a flood of SYNs, which nobody is behind |
//!
//! [`Handler`]: nmio::Handler

pub mod dns;
pub mod echo;
pub mod http;
pub mod link;
pub mod meter;
pub mod pace;
pub mod syn;
mod tcp;
pub mod udp;

pub use link::{LoadError, Options};
pub use meter::{Meter, Report};
