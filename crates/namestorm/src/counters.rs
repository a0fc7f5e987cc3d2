//! Counters of queries and replies.

use crate::rcode;

/// Numbers of queries and replies by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages received, including those that are not queries.
    pub queries: u64,
    /// Number of replies for each response code. The index is the code, from NOERROR (0) to BADVERS
    /// (16), an extended code of EDNS.
    pub replies: [u64; 17],
    /// Replies with the TC flag.
    pub truncated: u64,
    /// Replies assembled after a lookup of the name, for example wildcard matches, referrals and
    /// negative answers.
    pub assembled: u64,
    /// Replies to queries that the hook was asked about, including those with SERVFAIL because the
    /// hook returned an error.
    pub hooked: u64,
    /// Replies with SERVFAIL because the hook returned an error.
    pub hook_errors: u64,
    /// Answered queries with a valid OPT record (EDNS).
    pub edns: u64,
    /// Messages dropped because they are shorter than a DNS header.
    pub too_short: u64,
    /// Messages dropped because they are responses.
    pub responses: u64,
    /// Queries dropped because the hook chose not to reply.
    pub unanswered: u64,
}

impl Counters {
    /// Returns each reason for drops with the number of dropped messages, for reports.
    pub fn drops(&self) -> [(&'static str, u64); 3] {
        [
            ("shorter than a DNS header", self.too_short),
            ("a response, not a query", self.responses),
            ("no reply from the hook", self.unanswered),
        ]
    }

    /// Returns the mnemonic of each response code that the server uses, with the number of replies.
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
