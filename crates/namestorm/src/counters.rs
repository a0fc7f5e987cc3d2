//! Counters of queries and replies.

use crate::rcode;

/// Numbers of queries and replies by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages received, including those that are not queries.
    pub queries: u64,
    /// Number of replies for each response code. The index is the code, from NOERROR (0) to BADCOOKIE
    /// (23), an extended code of EDNS.
    pub replies: [u64; 24],
    /// Replies with the TC flag.
    pub truncated: u64,
    /// Replies over UDP that lack records because of the size for the client's network.
    pub cut_for_network: u64,
    /// Replies assembled after a lookup of the name, for example wildcard matches, referrals and
    /// negative answers.
    pub assembled: u64,
    /// Replies that end before the end of their chain of aliases, because it has too many steps.
    pub chains_cut: u64,
    /// Replies with SERVFAIL because the longest message has no room for the signatures and proofs.
    pub without_room: u64,
    /// Replies to queries that the hook was asked about, including those with SERVFAIL because the
    /// hook returned an error.
    pub hooked: u64,
    /// Replies with SERVFAIL because the hook returned an error.
    pub hook_errors: u64,
    /// Answered queries with an OPT record (EDNS).
    pub edns: u64,
    /// Queries with only a client cookie.
    pub new_cookies: u64,
    /// Queries with a client cookie, and a server cookie that is not valid.
    pub bad_cookies: u64,
    /// Queries with a valid server cookie.
    pub good_cookies: u64,
    /// Queries with a signature (TSIG) that is not valid.
    pub bad_signatures: u64,
    /// Queries with a valid signature (TSIG).
    pub good_signatures: u64,
    /// Queries over the rate limit that got a truncated reply, or BADCOOKIE.
    pub slipped: u64,
    /// Queries over the rate limit that were answered, because the client has no limit.
    pub(crate) exempt_clients: u64,
    /// Queries over the rate limit that were answered because of a valid server cookie.
    pub(crate) exempt_cookies: u64,
    /// Queries over the rate limit that were answered because of a valid signature (TSIG).
    pub(crate) exempt_signatures: u64,
    /// Messages dropped because of the rate limit.
    pub limited: u64,
    /// Messages dropped because they are shorter than a DNS header.
    pub too_short: u64,
    /// Messages dropped because they are responses.
    pub responses: u64,
    /// Queries dropped because the hook chose not to reply.
    pub unanswered: u64,
}

impl Counters {
    /// Returns each reason for drops with the number of dropped messages, for reports.
    pub fn drops(&self) -> [(&'static str, u64); 4] {
        [
            ("shorter than a DNS header", self.too_short),
            ("a response, not a query", self.responses),
            ("no reply from the hook", self.unanswered),
            ("rate limit", self.limited),
        ]
    }

    /// Returns the number of queries over the rate limit by the reply that they got: a short one, or none.
    pub fn by_limit(&self) -> [(&'static str, u64); 2] {
        [("slipped", self.slipped), ("dropped", self.limited)]
    }

    /// Returns the number of queries over the rate limit that were answered, by the reason.
    pub fn exempt(&self) -> [(&'static str, u64); 3] {
        [
            ("client", self.exempt_clients),
            ("cookie", self.exempt_cookies),
            ("signature", self.exempt_signatures),
        ]
    }

    /// Returns the number of queries by what their cookie proves.
    pub fn by_cookie(&self) -> [(&'static str, u64); 4] {
        let with = self.new_cookies + self.bad_cookies + self.good_cookies;
        let without_query = self.too_short + self.responses + self.limited;
        [
            ("valid", self.good_cookies),
            ("invalid", self.bad_cookies),
            ("client", self.new_cookies),
            ("none", self.queries.saturating_sub(with + without_query)),
        ]
    }

    /// Returns the number of queries with a signature (TSIG), by what it is.
    pub fn by_signature(&self) -> [(&'static str, u64); 2] {
        [
            ("valid", self.good_signatures),
            ("invalid", self.bad_signatures),
        ]
    }

    /// Returns the mnemonic of each response code that the server uses, with the number of replies.
    pub fn by_rcode(&self) -> [(&'static str, u64); 10] {
        let count = |code: u16| self.replies[usize::from(code)];
        [
            ("NOERROR", count(rcode::NOERROR)),
            ("FORMERR", count(rcode::FORMERR)),
            ("SERVFAIL", count(rcode::SERVFAIL)),
            ("NXDOMAIN", count(rcode::NXDOMAIN)),
            ("NOTIMP", count(rcode::NOTIMP)),
            ("REFUSED", count(rcode::REFUSED)),
            ("YXDOMAIN", count(rcode::YXDOMAIN)),
            ("NOTAUTH", count(rcode::NOTAUTH)),
            ("BADVERS", count(rcode::BADVERS)),
            ("BADCOOKIE", count(rcode::BADCOOKIE)),
        ]
    }
}
