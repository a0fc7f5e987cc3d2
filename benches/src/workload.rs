//! The measured workloads. Each workload is set up once and then runs many times, most of them over
//! a [`Sink`](nmio::sim::Sink).
//!
//! The Criterion benches measure the time of most workloads. The program `instructions` runs most
//! of them for callgrind, which counts their instructions. Hash keys, secrets and the clock are
//! fixed, so that the count is the same in each run.

pub mod dns;
pub mod http;
pub mod netmap;
pub mod tcp;
pub mod udp;
pub mod xdp;

/// Secret of the DNS, HTTP and TCP servers. They derive their keys for hashes and sequence numbers
/// from this secret.
pub(crate) const SECRET: [u64; 4] = [1, 2, 3, 4];

/// A measured workload.
///
/// Its instruction count leaves out functions whose names begin with `uncounted_`, and the simulated
/// netmap kernel. Such a function must call no other one, and must not be inlined.
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
