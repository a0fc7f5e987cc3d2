//! Counts of queries.

use crate::rcode;

/// Queries by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages taken in.
    pub queries: u64,
    /// Replies by response code, those of EDNS included: 0 to 16.
    pub replies: [u64; 17],
    /// Of them, with TC set.
    pub truncated: u64,
    /// Of them, put together from pieces: wildcards, referrals, what does not
    /// exist.
    pub assembled: u64,
    /// Of them, answered by the hook.
    pub hooked: u64,
    /// Of the queries, those with EDNS.
    pub edns: u64,
    /// Dropped: shorter than a header.
    pub too_short: u64,
    /// Dropped: not a query but a response.
    pub responses: u64,
    /// Dropped: the hook gave no reply.
    pub unanswered: u64,
}

impl Counters {
    /// The drops, by reason, for whoever reports them.
    pub fn drops(&self) -> [(&'static str, u64); 3] {
        [
            ("shorter than a DNS header", self.too_short),
            ("a response, not a query", self.responses),
            ("no reply by the hook", self.unanswered),
        ]
    }

    /// The replies, by response code.
    pub fn by_rcode(&self) -> [(&'static str, u64); 8] {
        let count = |code: u16| self.replies[usize::from(code)];
        [
            ("NOERROR", count(rcode::NOERROR)),
            ("FORMERR", count(rcode::FORMERR)),
            ("SERVFAIL", count(rcode::SERVFAIL)),
            ("NXDOMAIN", count(rcode::NXDOMAIN)),
            ("NOTIMP", count(rcode::NOTIMP)),
            ("REFUSED", count(rcode::REFUSED)),
            ("YXDOMAIN", count(rcode::YXDOMAIN)),
            ("BADVERS", count(rcode::BADVERS)),
        ]
    }
}
