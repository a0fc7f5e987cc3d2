//! Adds counts of queries and replies over both transports to the counts of a server.

use control::{Meanings, Tally};

use crate::counters::Counters;

/// What the counts of a DNS server mean.
pub(super) const MEANINGS: Meanings = &[
    (
        "alias chains cut",
        "Replies that end after 16 aliases, before the end of their chain",
    ),
    (
        "answered by the hook",
        "Replies of the hook, also those with its errors",
    ),
    (
        "assembled",
        "Replies made of several parts, such as chains of aliases",
    ),
    (
        "dnstap messages lost",
        "Messages of dnstap that did not fit the ring, or could not be written",
    ),
    (
        "exempt from the rate limit",
        "Queries over the rate limit that were answered, by why they have no limit",
    ),
    (
        "hook errors",
        "Replies with SERVFAIL because the hook returned an error",
    ),
    (
        "notify",
        "Secondary servers that were told of a change, by result",
    ),
    (
        "notify messages",
        "Messages to secondary servers about changes (NOTIFY)",
    ),
    ("queries", "Queries by transport"),
    ("queries by cookie", "Queries by their cookie"),
    (
        "queries by signature",
        "Queries with a signature of a key (TSIG)",
    ),
    (
        "queries too slow",
        "Connections that were closed because a query took too long to arrive",
    ),
    ("queries with EDNS", "Queries with EDNS"),
    (
        "query log lines lost",
        "Lines of the query log that did not fit its ring, or could not be written",
    ),
    (
        "rate limited",
        "Queries over the rate limit, by what they got",
    ),
    ("replies", "Replies by transport and response code"),
    (
        "replies by type",
        "Replies by query type, transport and response code",
    ),
    (
        "replies by zone",
        "Replies by zone, transport and response code",
    ),
    (
        "replies cut for a network",
        "Replies over UDP that lack records because of the EDNS size for the client's network, which is smaller than that of others",
    ),
    (
        "replies without room",
        "Replies with SERVFAIL because the longest message has no room for signatures and proofs",
    ),
    (
        "signed zones",
        "Signed zones, by the state of their signatures",
    ),
    ("transfers", "Completed transfers"),
    ("transfers by zone", "Completed transfers, by zone"),
    ("truncated", "Replies over UDP that were truncated"),
    ("zones", "Zones, by state"),
];

/// Adds the queries over the rate limit, and the replies that reached another limit.
pub(super) fn tally_limits(udp: &Counters, tcp: &Counters, tally: &mut Tally) {
    for (reply, count) in udp.by_limit() {
        tally.event_of("rate limited", ("reply", reply), count);
    }
    for (reason, count) in udp.exempt() {
        tally.event_of("exempt from the rate limit", ("reason", reason), count);
    }
    tally.event("alias chains cut", udp.chains_cut + tcp.chains_cut);
    tally.event("replies cut for a network", udp.cut_for_network);
    tally.event("replies without room", udp.without_room + tcp.without_room);
}

/// Adds the queries with cookies and signatures, by what these prove.
pub(super) fn tally_proofs(udp: &Counters, tcp: &Counters, tally: &mut Tally) {
    for ((cookie, over_udp), (_, over_tcp)) in udp.by_cookie().into_iter().zip(tcp.by_cookie()) {
        tally.detail("queries by cookie", ("cookie", cookie), over_udp + over_tcp);
    }
    let signatures = udp.by_signature().into_iter().zip(tcp.by_signature());
    for ((kind, over_udp), (_, over_tcp)) in signatures {
        tally.detail(
            "queries by signature",
            ("signature", kind),
            over_udp + over_tcp,
        );
    }
}
