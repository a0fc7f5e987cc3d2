//! Counters of a stack.

/// Numbers of segments, connections and events since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments received, including dropped ones.
    pub segments_received: u64,
    /// Segments sent, of all kinds.
    pub segments_sent: u64,
    /// Bytes of data sent, including retransmissions.
    pub bytes_sent: u64,
    /// Segments with data sent in place, from resident packets.
    pub sent_resident: u64,
    /// Prepared segments sent by copying.
    pub sent_copied: u64,
    /// Segments with data that were assembled and summed when sent. They come from write buffers,
    /// partial prepared segments, links with a VLAN tag, or segment sizes without a class.
    pub sent_assembled: u64,
    /// Super-segments sent: runs of segments that left as one packet.
    pub sent_runs: u64,
    /// Segments copied in pre-copy mode, because the port had no memory for another resident
    /// packet.
    pub resident_fallbacks: u64,
    /// Control segments written into the received frame (turnaround).
    pub turned_round: u64,
    /// Connections accepted by the application.
    pub accepted: u64,
    /// Connections refused by the application.
    pub refused: u64,
    /// Connections closed by both sides, or by shutdown after all data was acknowledged.
    pub finished: u64,
    /// Connections reset by the peer.
    pub reset_by_peer: u64,
    /// Connections given up: no answer, or half-closed or at zero window for too long.
    pub timed_out: u64,
    /// Connections aborted by the application or by shutdown.
    pub aborted: u64,
    /// Connections closed by the idle timeout.
    pub idle_closed: u64,
    /// Application deadlines that passed.
    pub deadlines_missed: u64,
    /// Connections reset to free resources for others.
    pub evicted: u64,
    /// Half-open connections dropped to make room for others.
    pub half_open_evicted: u64,
    /// Receive buffers taken from connections whose buffer held only out-of-order data.
    pub buffers_taken: u64,
    /// Write buffers freed by evicting their connections.
    pub write_buffers_taken: u64,
    /// Lists of stream entries freed by evicting their connections.
    pub entry_lists_taken: u64,
    /// Scoreboards taken from connections with less progress.
    pub scoreboards_taken: u64,
    /// Connections in TIME-WAIT dropped to make room for new ones.
    pub time_waits_evicted: u64,
    /// Connections forgotten without TIME-WAIT, because too many were in TIME-WAIT.
    pub time_wait_overflow: u64,
    /// Handshakes that the peer did not complete.
    pub handshakes_failed: u64,
    /// SYNs answered with a cookie (RFC 4987, section 3.6).
    pub cookies_sent: u64,
    /// Handshakes completed by a cookie.
    pub cookies_accepted: u64,
    /// Acknowledgements that belong to no connection and carry no valid cookie. Counted only while
    /// cookies are outstanding.
    pub cookies_bad: u64,
    /// Resets sent.
    pub resets_sent: u64,
    /// Challenge ACKs sent (RFC 5961).
    pub challenge_acks: u64,
    /// Segments with data or a FIN retransmitted.
    pub retransmits: u64,
    /// Expirations of the retransmission timer.
    pub timeouts: u64,
    /// Fast retransmits started.
    pub fast_retransmits: u64,
    /// Retransmitted segments that were lost again.
    pub lost_again: u64,
    /// Window reductions undone because they proved spurious.
    pub undone: u64,
    /// Reductions undone because the echoed timestamp was that of the original segment (RFC 3522).
    pub undone_by_echo: u64,
    /// Reductions undone because all retransmitted segments were reported as duplicates (RFC 3708).
    pub undone_by_duplicates: u64,
    /// Reductions undone because original segments were acknowledged after a timeout (RFC 5682).
    pub undone_by_arrival: u64,
    /// Tail loss probes sent (RFC 8985, section 7).
    pub tail_probes: u64,
    /// Tail loss probes that repaired a loss.
    pub tail_losses: u64,
    /// Connections on which segments were found to be reordered.
    pub reorderings: u64,
    /// Duplicate reports received (DSACK, RFC 2883).
    pub duplicates_reported: u64,
    /// Timeouts at which the peer had discarded data that it had selectively acknowledged (RFC
    /// 2018, section 8).
    pub reneged: u64,
    /// SACK blocks for which the scoreboard had no room.
    pub scoreboard_full: u64,
    /// Segments received with a router's congestion mark (RFC 3168).
    pub marked: u64,
    /// Segments received that echo a congestion mark.
    pub echoed: u64,
    /// Window reductions because of a congestion mark.
    pub ecn_reductions: u64,
    /// Keep-alives sent to silent clients (RFC 1122, section 4.2.3.6).
    pub keep_alives: u64,
    /// Zero window probes sent.
    pub window_probes: u64,
    /// Segments received out of order and kept.
    pub out_of_order: u64,
    /// Path MTU reductions accepted from ICMP errors (RFC 1191, RFC 8201).
    pub path_mtu_reductions: u64,
    /// Path MTU black holes found: paths that silently drop large segments (RFC 4821).
    pub black_holes: u64,
    /// PLPMTUD probes sent: larger segments that test for a larger path MTU.
    pub size_probes: u64,
    /// PLPMTUD probes that arrived.
    pub path_mtu_raises: u64,
    /// Times that a connection had to wait for the TX ring or for a frame.
    pub blocked: u64,
    /// Dropped: truncated or inconsistent header.
    pub malformed: u64,
    /// Dropped: wrong checksum.
    pub bad_checksum: u64,
    /// Dropped: checksum that the sender left to an offloading device
    /// ([`Packet::has_partial_checksum`](ip::Packet::has_partial_checksum)).
    pub partial_checksum: u64,
    /// Dropped: no such connection, and not answered.
    pub no_connection: u64,
    /// Dropped: SYN beyond the limit of half-open connections.
    pub half_open_full: u64,
    /// Dropped: SYN or cookie beyond the limit of connections.
    pub connections_full: u64,
    /// Dropped: SYN of a peer whose segments would not fit a frame of the port.
    pub no_segment_fits: u64,
    /// Refused: SYN, or third segment of a handshake, beyond the limit of connections per address.
    pub per_address_full: u64,
    /// Dropped: outside the window, or a duplicate.
    pub out_of_window: u64,
    /// Dropped: timestamp older than the last one (RFC 7323, section 5).
    pub old_timestamps: u64,
    /// Dropped: timestamp missing on a connection with timestamps.
    pub no_timestamps: u64,
    /// Dropped: acknowledges data that was never sent, or has no acknowledgement.
    pub bad_ack: u64,
    /// Dropped: reset or SYN that may not come from the peer (RFC 5961).
    pub unproven: u64,
    /// Dropped: no receive buffer was free, or the buffer could not track another gap.
    pub no_buffer: u64,
    /// Dropped: data after the peer's FIN.
    pub behind_fin: u64,
    /// Dropped: data that the application had not consumed when it closed, or that arrived later.
    pub after_close: u64,
    /// Dropped: ICMP error that concerns nothing in flight, or that a connection survives.
    pub icmp_ignored: u64,
    /// Dropped: reply that found no room in the TX ring and is not queued.
    pub ring_full: u64,
}

impl Counters {
    /// Returns the drop counters with their reasons, for reports.
    pub fn drops(&self) -> [(&'static str, u64); 18] {
        [
            ("malformed TCP header", self.malformed),
            ("bad TCP checksum", self.bad_checksum),
            ("partial TCP checksum", self.partial_checksum),
            ("no connection", self.no_connection),
            ("too many half-open connections", self.half_open_full),
            ("too many connections", self.connections_full),
            ("no segment fits a frame", self.no_segment_fits),
            ("too many connections of an address", self.per_address_full),
            ("outside the window", self.out_of_window),
            ("old timestamp", self.old_timestamps),
            ("missing timestamp", self.no_timestamps),
            ("unacceptable ACK", self.bad_ack),
            ("unproven reset or SYN", self.unproven),
            ("no receive buffer", self.no_buffer),
            ("data after a FIN", self.behind_fin),
            ("data after close", self.after_close),
            ("ignored ICMP error", self.icmp_ignored),
            ("TX ring full", self.ring_full),
        ]
    }
}
