//! Adds the counts of a TCP stack to a tally.

use tcpip::{Counters, StateCounts};

use crate::tally::{Labels, Tally};

/// Name of the number of open connections.
pub(crate) const OPEN: &str = "connections open";

/// Adds the counts of a worker's TCP stack to `tally`, with the drops. `states` has the numbers of
/// connections in each state. A program that serves TCP calls this function in its
/// [`tally`](crate::Program::tally).
pub fn tally_tcp(tally: &mut Tally, tcp: &Counters, states: &StateCounts) {
    tally.event("connections", tcp.accepted);
    tally.level(OPEN, states.open().into());
    for (state, count) in states.iter() {
        tally.level_detail(
            "connections in state",
            ("state", state.name()),
            count.into(),
        );
    }
    tally.event("connections drained", tcp.drained);
    tally.event("connections cut", tcp.cut);
    tally.event("segments retransmitted", tcp.retransmits);
    tally.event("SYN cookies sent", tcp.cookies_sent);
    tally.event("SYN cookies redeemed", tcp.cookies_accepted);
    tally.event("connections evicted", tcp.evicted);
    tally.event("receive buffers reclaimed", tcp.recv_buffers_taken);
    tally.event("write buffers reclaimed", tcp.write_buffers_taken);
    tally.event("entry lists reclaimed", tcp.entry_lists_taken);
    tally.event("scoreboards reclaimed", tcp.scoreboards_taken);
    for (how, count) in [
        ("finished", tcp.finished),
        ("reset by peer", tcp.reset_by_peer),
        ("timed out", tcp.timed_out),
        ("aborted", tcp.aborted),
        ("evicted", tcp.evicted),
    ] {
        tally.detail("connections ended", ("how", how), count);
    }
    for (cause, count) in [
        ("retransmission timeout", tcp.timeouts),
        ("loss detected", tcp.fast_recoveries),
        ("retransmission lost", tcp.lost_retransmits),
        ("tail loss probe", tcp.tail_loss_probe_recoveries),
        ("congestion mark", tcp.ecn_reductions),
    ] {
        tally.detail("recoveries", ("cause", cause), count);
    }
    for (way, count) in [
        ("pre-copy", tcp.sent_resident),
        ("memcopy", tcp.sent_copied),
        ("assembled", tcp.sent_assembled),
        ("super-segments", tcp.sent_in_super_segments),
    ] {
        tally.detail("data segments sent", ("way", way), count);
    }
    tally_segments(tally, tcp);
    tally.measured("rtt", &tcp.handshake_rtts);
    for (reason, count) in tcp.drops() {
        tally.drop(reason, count);
    }
}

/// Adds the counts of segments and rare events, which only metrics show.
fn tally_segments(tally: &mut Tally, tcp: &Counters) {
    for (name, count) in [
        ("segments received", tcp.segments_received),
        ("segments sent", tcp.segments_sent),
        ("data bytes sent", tcp.bytes_sent),
        (
            "copies for want of resident packets",
            tcp.resident_fallbacks,
        ),
        ("connections closed when idle", tcp.idle_closed),
        ("connections refused", tcp.refused),
        ("handshakes failed", tcp.handshakes_failed),
        ("half-open connections evicted", tcp.half_open_evicted),
        ("resets sent", tcp.resets_sent),
        ("challenge ACKs sent", tcp.challenge_acks),
        ("reductions undone", tcp.undos),
        ("reorderings", tcp.reorderings),
        ("keep-alives sent", tcp.keep_alives),
        ("window probes sent", tcp.window_probes),
        ("segments out of order", tcp.out_of_order),
        ("path MTU reductions", tcp.path_mtu_reductions),
        ("black holes", tcp.black_holes),
        ("sends delayed by a full ring", tcp.sends_delayed),
    ] {
        tally.detail(name, Labels::NONE, count);
    }
    for (event, count) in [
        ("super-segment sent", tcp.super_segments_sent),
        ("control segment turned round", tcp.turned_around),
        ("TIME-WAIT cut short", tcp.time_waits_evicted),
        ("TIME-WAIT skipped", tcp.time_wait_overflow),
        ("invalid SYN cookie", tcp.cookies_failed),
        ("reduction undone by timestamps", tcp.eifel_undos),
        ("reduction undone by duplicates", tcp.dsack_undos),
        ("reduction undone by late ACKs", tcp.spurious_rtos),
        ("tail loss probe sent", tcp.tail_loss_probes),
        ("duplicates reported", tcp.dsacks_received),
        ("SACK taken back", tcp.sack_reneging),
        ("SACK without room", tcp.scoreboard_full),
        ("congestion mark received", tcp.ce_received),
        ("congestion mark echoed", tcp.ece_received),
        ("size probe sent", tcp.mtu_probes),
        ("path MTU raised", tcp.path_mtu_raises),
    ] {
        tally.detail("TCP events", ("event", event), count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::CountKind;

    /// An idle connection also ends in one of these ways, so `idle` is none of them.
    #[test]
    fn the_ways_in_which_connections_end_exclude_each_other() {
        let mut tally = Tally::default();
        let counters = Counters {
            finished: 1,
            idle_closed: 1,
            ..Counters::default()
        };
        tally_tcp(&mut tally, &counters, &StateCounts::default());
        let sum = |name| {
            let events = tally.events().iter().filter(|one| one.name == name);
            events.map(|one| one.count).sum::<u64>()
        };
        assert_eq!(sum("connections ended"), 1);
        assert_eq!(sum("connections closed when idle"), 1);
    }

    #[test]
    fn every_state_of_a_connection_is_a_level() {
        let mut tally = Tally::default();
        tally_tcp(&mut tally, &Counters::default(), &StateCounts::default());
        let events = tally.events().iter();
        let levels = events.filter(|one| one.name == "connections in state");
        let levels: Vec<_> = levels.map(|one| (one.labels.values(), one.kind)).collect();
        let states = [
            "syn-recv",
            "established",
            "close-wait",
            "fin-wait-1",
            "fin-wait-2",
            "closing",
            "last-ack",
            "time-wait",
        ];
        assert_eq!(
            levels,
            states.map(|state| (state.to_owned(), CountKind::LevelDetail))
        );
    }
}
