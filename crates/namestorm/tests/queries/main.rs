//! Tests zone files, and replies to queries through the whole server.
//!
//! All of them are one program, because each program would have its own copies of the server.

mod batches;
mod harness;
mod hooks;
mod options;
mod over_tcp;
mod properties;
mod rate_limit;
mod scenarios;
mod signed;
mod tcp_pressure;
mod transfers;
mod tsig;
mod udp_sizes;
mod zone_text;
