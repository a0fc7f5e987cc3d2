//! Load generators for the comparison of servers. A generator sends requests as fast as the server
//! answers (closed loop) or at a fixed rate (open loop). It checks every reply that it receives.
//!
//! A generator uses the same libraries as the server. It is a [`Handler`] on its own port in
//! own-address mode, so its packets bypass the kernel's network stack. Therefore one client core
//! can load one server core fully.
//!
//! | module | |
//! |---|---|
//! | [`link`] | opens the port, resolves the server's MAC address, runs a generator |
//! | [`meter`] | phases of a run, latencies, errors by kind |
//! | [`pace`] | due times of the requests of an open loop |
//! | [`udp`] | requests in single UDP datagrams, and their replies |
//! | [`echo`], [`dns`] | the requests that [`udp`] sends |
//! | [`http`] | HTTP requests over TCP connections |
//! | [`syn`] | a SYN flood from made-up client addresses |
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
