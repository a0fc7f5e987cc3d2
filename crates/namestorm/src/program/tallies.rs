//! Adds counts of queries and replies over both transports to the counts of a server.

use control::Tally;

use crate::counters::Counters;

/// Adds the queries over the rate limit, and the replies that reached another limit.
pub(super) fn tally_limits(udp: &Counters, tcp: &Counters, tally: &mut Tally) {
    for (reply, count) in udp.by_limit() {
        tally.event_of("rate limited", ("reply", reply), count);
    }
    for (reason, count) in udp.exempt() {
        tally.event_of("exempt from the rate limit", ("reason", reason), count);
    }
    tally.event("alias chains cut", udp.chains_cut + tcp.chains_cut);
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
