//! Pieces of work that are measured: each is set up once and then done again
//! and again, over a [`Sink`](nmio::sim::Sink).
//!
//! The Criterion benches take their time, and the program `instructions`
//! counts what they execute. Hash keys, secrets and the clock are fixed, so
//! that the same program executes the same instructions each time.

pub mod dns;
pub mod http;
pub mod tcp;
pub mod udp;

/// The secret of every server here: keys of hashes and of sequence numbers.
const SECRET: [u64; 4] = [1, 2, 3, 4];

/// One piece of work.
pub trait Workload {
    /// Requests (packets, where there are no requests) in one [`run`](Self::run).
    const REQUESTS: u64 = 1;

    /// Does it once.
    fn run(&mut self);

    /// Makes sure that all that was done so far was done right.
    ///
    /// # Panics
    /// When it was not: what was measured then is something else.
    fn check(&self);
}
