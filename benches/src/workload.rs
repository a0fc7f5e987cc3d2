//! The measured workloads. Each workload is set up once and then runs many times over a
//! [`Sink`](nmio::sim::Sink).
//!
//! The Criterion benches measure the time of the workloads. The program `instructions` counts the
//! instructions that they execute. Hash keys, secrets and the clock are fixed, so that the count is
//! the same in each run.

pub mod dns;
pub mod http;
pub mod tcp;
pub mod udp;

/// Secret of the server in every workload. Its keys for hashes and sequence numbers derive from
/// this secret.
const SECRET: [u64; 4] = [1, 2, 3, 4];

/// A measured workload.
pub trait Workload {
    /// Number of requests in one [`run`](Self::run), or of packets if the workload has no requests.
    const REQUESTS: u64 = 1;

    /// Runs the workload once.
    fn run(&mut self);

    /// Checks that all runs so far gave the right result.
    ///
    /// # Panics
    /// Panics if a result was wrong, because the measurement is then meaningless.
    fn check(&self);
}
