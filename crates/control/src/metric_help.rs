//! What metrics mean, for their HELP lines.

/// What the metrics of every program mean. Names are without the program and the unit `total`.
const OF_ALL: [(&str, &str); 66] = [
    ("addresses", "Addresses that are served"),
    ("batch_frames", "Frames in each batch"),
    (
        "batch_seconds",
        "Time from the receipt of a batch until the packets in answer to it were flushed",
    ),
    (
        "black_holes",
        "Paths on which long packets got lost without a message",
    ),
    (
        "challenge_acks_sent",
        "ACKs sent in answer to suspicious segments (RFC 5961)",
    ),
    (
        "clock_steps",
        "Times at which the system's clock was set by two seconds or more",
    ),
    (
        "configuration_unread",
        "Reloads that could not read the configuration file again, by why",
    ),
    ("connections", "TCP connections"),
    (
        "connections_closed_when_idle",
        "Connections that the server closed because they were idle",
    ),
    (
        "connections_cut",
        "Connections that were cut because the time to drain was over",
    ),
    (
        "connections_drained",
        "Connections that ended after the request to stop",
    ),
    ("connections_ended", "Connections that have ended, by how"),
    (
        "connections_evicted",
        "Connections that were reset to free resources for others",
    ),
    ("connections_in_state", "TCP connections in each state"),
    ("connections_open", "Open TCP connections"),
    (
        "connections_refused",
        "Connections that the application refused",
    ),
    (
        "control_messages",
        "Messages of ARP, neighbour discovery and ICMP, by kind",
    ),
    (
        "copies_for_want_of_resident_packets",
        "Packets that were copied because no resident packet was free",
    ),
    (
        "data_bytes_sent",
        "Bytes of TCP data sent, with those that were sent again",
    ),
    (
        "data_segments_sent",
        "TCP segments with data sent, by how they were made",
    ),
    (
        "datagrams_copied_for_want_of_resident_packets",
        "Answers over UDP that were copied because no resident packet was free",
    ),
    (
        "dropped_packets",
        "Packets that were not handled, by reason",
    ),
    (
        "endpoint_up",
        "1 if the server listens at a socket for the operator, 0 if it does without",
    ),
    (
        "entry_lists_reclaimed",
        "Times at which the connection with the least progress lost its list of sent data",
    ),
    (
        "frames_sent_again",
        "Frames that the device dropped and the port sent again",
    ),
    ("generation", "Generation of the content that is served"),
    (
        "half_open_connections_evicted",
        "Connections in their handshake that gave their place to newer ones",
    ),
    ("handshakes_failed", "Handshakes that were never finished"),
    ("info", "Program and version; the value is always 1"),
    ("interface_changes", "Changes of the interface, by kind"),
    ("keep_alives_sent", "Keep-alive probes sent"),
    ("last_reload_seconds", "How long the last reload took"),
    (
        "last_reload_timestamp_seconds",
        "When the last reload ended, in seconds since 1970",
    ),
    ("link_up", "1 while the interface is up and has a carrier"),
    (
        "path_mtu_reductions",
        "Paths whose MTU turned out to be smaller",
    ),
    ("pool_frames", "Frames of the packet memory"),
    (
        "pool_frames_free",
        "Frames of the packet memory that are free",
    ),
    (
        "receive_buffers_reclaimed",
        "Times at which the connection with the least progress lost its buffer of received data",
    ),
    ("received_bytes", "Bytes received, with link headers"),
    ("received_frames", "Frames received"),
    ("recoveries", "Recoveries from losses, by cause"),
    (
        "reductions_undone",
        "Reductions of the congestion window that turned out to be needless",
    ),
    ("reloads", "Reloads of the content, by result"),
    (
        "reorderings",
        "Times at which segments arrived in another order",
    ),
    ("resets_sent", "RST segments sent"),
    (
        "ring_frames",
        "Frames that the kernel or the device has, by direction",
    ),
    ("rtt_seconds", "Round-trip times of handshakes"),
    (
        "scoreboards_reclaimed",
        "Times at which the connection with the least progress lost its record of acknowledged ranges",
    ),
    (
        "segments_out_of_order",
        "Segments received before an earlier one",
    ),
    ("segments_received", "TCP segments received"),
    ("segments_retransmitted", "TCP segments sent again"),
    ("segments_sent", "TCP segments sent"),
    (
        "sends_delayed_by_a_full_ring",
        "Times at which a connection had to send later, usually because the ring was full",
    ),
    ("sent_bytes", "Bytes sent, with link headers"),
    ("sent_frames", "Frames sent"),
    ("serving", "1 while the workers serve"),
    (
        "snapshot_age_seconds",
        "Time since the worker published its counts",
    ),
    (
        "super_segments_sent",
        "Super-segments sent, which the device or the kernel cuts",
    ),
    (
        "syn_cookies_redeemed",
        "Connections that began with a SYN cookie",
    ),
    ("syn_cookies_sent", "SYN cookies sent"),
    (
        "system_calls_to_send",
        "System calls that woke the kernel to send",
    ),
    (
        "system_calls_to_wait",
        "System calls in which the worker slept or polled",
    ),
    ("tcp_events", "Rare events of TCP connections, by event"),
    ("uptime_seconds", "Time since the start"),
    (
        "window_probes_sent",
        "Probes sent to clients that had no room for data",
    ),
    (
        "write_buffers_reclaimed",
        "Times at which the connection with the least progress lost its buffer of data to send",
    ),
];

/// Returns what a metric means that every program may have, or `None` for another one. `name` is that
/// of the metric, without the program.
pub(crate) fn meaning(name: &str) -> Option<&'static str> {
    let found = OF_ALL.binary_search_by_key(&name, |one| one.0);
    found.ok().map(|at| OF_ALL[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_stands_once_and_in_order() {
        assert!(OF_ALL.is_sorted_by(|one, next| one.0 < next.0));
    }
}
