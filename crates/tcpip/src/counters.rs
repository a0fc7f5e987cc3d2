//! Counters of a stack.

use nmio::Times;

/// Numbers of segments, connections and events since the stack was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes of data sent, including retransmissions.
    pub bytes_sent: u64,
    /// Segments received, including dropped ones.
    pub segments_received: u64,
    /// Segments sent, of all kinds.
    pub segments_sent: u64,
    /// Data segments sent in place, from resident packets.
    pub sent_resident: u64,
    /// Prepared data segments copied to a frame and sent.
    pub sent_copied: u64,
    /// Data segments assembled when they were sent, because no prepared segment could be used. For
    /// example, their data came from a write buffer, or was only a part of a prepared segment.
    pub sent_assembled: u64,
    /// Super-segments sent. Each is a run of segments that the port was given as one packet.
    pub super_segments_sent: u64,
    /// Data segments in these super-segments.
    pub sent_in_super_segments: u64,
    /// Segments copied although the mode is pre-copy, because the port had no memory for another
    /// resident packet.
    pub resident_fallbacks: u64,
    /// Control segments sent by reusing the received frame (turnaround).
    pub turned_around: u64,
    /// Connections accepted by the application.
    pub accepted: u64,
    /// Connections refused by the application.
    pub refused: u64,
    /// Connections closed normally by both sides, or shut down after all data was acknowledged.
    pub finished: u64,
    /// Connections reset by the peer.
    pub reset_by_peer: u64,
    /// Connections given up because the peer did not answer, or did not close its side.
    pub timed_out: u64,
    /// Connections aborted by the application or by shutdown.
    pub aborted: u64,
    /// Connections that have ended since the drain began, and were not cut.
    pub drained: u64,
    /// Connections that shutdown ended although a message was in progress, or data was not
    /// acknowledged.
    pub cut: u64,
    /// Connections on which the idle timeout closed our side.
    pub idle_closed: u64,
    /// Expired deadlines that the application had set.
    pub deadlines_missed: u64,
    /// Connections reset to free resources for others.
    pub evicted: u64,
    /// Half-open connections dropped to make room for others.
    pub half_open_evicted: u64,
    /// Receive buffers taken from connections without closing them, because the buffers held only
    /// out-of-order data.
    pub recv_buffers_taken: u64,
    /// Connections evicted because another one needed a write buffer.
    pub write_buffers_taken: u64,
    /// Connections evicted because another one needed a list of stream entries.
    pub entry_lists_taken: u64,
    /// Scoreboards taken from connections because others needed a larger scoreboard.
    pub scoreboards_taken: u64,
    /// Connections in TIME-WAIT dropped to make room for new ones.
    pub time_waits_evicted: u64,
    /// Connections that skipped TIME-WAIT, because [`max_time_wait`](crate::Config::max_time_wait)
    /// was reached.
    pub time_wait_overflow: u64,
    /// Handshakes that the peer did not complete.
    pub handshakes_failed: u64,
    /// SYNs answered with a cookie (RFC 4987, section 3.6).
    pub cookies_sent: u64,
    /// Handshakes completed with a valid cookie.
    pub cookies_accepted: u64,
    /// Acknowledgements that belong to no connection and return no valid cookie. Counted only in
    /// the 128 seconds after a cookie was sent.
    pub cookies_failed: u64,
    /// Resets sent.
    pub resets_sent: u64,
    /// Challenge ACKs sent (RFC 5961).
    pub challenge_acks: u64,
    /// Round trips of handshakes: from a SYN-ACK that was sent once to the ACK that establishes the
    /// connection. A handshake with a SYN cookie is not timed.
    pub handshake_rtts: Times,
    /// Retransmitted segments with data or a FIN.
    pub retransmits: u64,
    /// Retransmission timeouts of data or a FIN that did not end the connection.
    pub timeouts: u64,
    /// Fast recoveries started: losses were detected before the retransmission timeout.
    pub fast_recoveries: u64,
    /// Number of times that loss detection found a retransmission lost.
    pub lost_retransmits: u64,
    /// Window reductions undone because they proved spurious.
    pub undos: u64,
    /// Window reductions undone because the peer echoed the original segment's timestamp (RFC
    /// 3522).
    pub eifel_undos: u64,
    /// Window reductions undone because the peer reported all retransmitted segments as duplicates
    /// (RFC 3708), or acknowledged them before the retransmissions could arrive.
    pub dsack_undos: u64,
    /// Window reductions undone because ACKs after a timeout showed that original segments had
    /// arrived (F-RTO, RFC 5682).
    pub spurious_rtos: u64,
    /// Tail loss probes sent (RFC 8985, section 7).
    pub tail_loss_probes: u64,
    /// Tail loss probes that repaired a loss.
    pub tail_loss_probe_recoveries: u64,
    /// Connections on which reordering was detected.
    pub reorderings: u64,
    /// DSACKs received: the peers' reports of duplicate segments (RFC 2883).
    pub dsacks_received: u64,
    /// Timeouts that revealed that the peer had discarded selectively acknowledged data (RFC 2018,
    /// section 8).
    pub sack_reneging: u64,
    /// ACKs with a SACK block that was ignored because the scoreboard was full.
    pub scoreboard_full: u64,
    /// Segments received with a router's congestion mark (RFC 3168).
    pub ce_received: u64,
    /// Received segments that echo a congestion mark to us (ECE).
    pub ece_received: u64,
    /// Window reductions caused by an echoed congestion mark.
    pub ecn_reductions: u64,
    /// Keep-alives sent to silent clients (RFC 1122, section 4.2.3.6).
    pub keep_alives: u64,
    /// Zero window probes sent.
    pub window_probes: u64,
    /// Segments received out of order and buffered.
    pub out_of_order: u64,
    /// Path MTU reductions accepted from ICMP errors (RFC 1191, RFC 8201).
    pub path_mtu_reductions: u64,
    /// Reductions of a connection's segment size because the path seemed to drop large segments
    /// silently (a black hole, RFC 4821).
    pub black_holes: u64,
    /// PLPMTUD probes sent: larger segments that test whether the path MTU has grown.
    pub mtu_probes: u64,
    /// PLPMTUD probes acknowledged, which raised the path MTU.
    pub path_mtu_raises: u64,
    /// Number of times that a connection had to send later, usually because the TX ring was full or
    /// no frame was free.
    pub sends_delayed: u64,
    /// Segments dropped because their header is truncated or invalid, although their checksum is
    /// correct.
    pub malformed: u64,
    /// Segments dropped because of a wrong checksum.
    pub bad_checksum: u64,
    /// Segments dropped because the sender left the checksum to an offloading device
    /// ([`Packet::has_partial_checksum`](ip::Packet::has_partial_checksum)).
    pub partial_checksum: u64,
    /// Segments dropped without a reset because they belong to no connection.
    pub no_connection: u64,
    /// SYNs dropped because the limit on half-open connections was reached.
    pub half_open_full: u64,
    /// SYNs, and final ACKs with a valid cookie, dropped because the limit on connections was
    /// reached.
    pub connections_full: u64,
    /// SYNs dropped because the port's frames are too small for any segment to the peer.
    pub no_segment_fits: u64,
    /// SYNs and final ACKs of handshakes refused because the limit on connections per address was
    /// reached.
    pub per_address_full: u64,
    /// SYNs, and final ACKs with a valid cookie, refused because the server stops.
    pub refused_in_drain: u64,
    /// Segments dropped because they were outside the window, for example duplicates. Also counts
    /// probes of our zero window, of which only the data is dropped.
    pub out_of_window: u64,
    /// Segments dropped because their TSval was older than the last accepted one (PAWS, RFC 7323,
    /// section 5).
    pub old_timestamps: u64,
    /// Segments dropped because they have no timestamp although the connection uses timestamps.
    pub no_timestamps: u64,
    /// Segments dropped because they have no acknowledgement, or an unacceptable one.
    pub bad_ack: u64,
    /// Resets and SYNs dropped because they may be spoofed (RFC 5961).
    pub unproven: u64,
    /// Segments whose data was dropped, in whole or in part, because no receive buffer was free, or
    /// the buffer could not track another gap.
    pub no_buffer: u64,
    /// Segments with data after the peer's FIN. That data was dropped.
    pub data_after_fin: u64,
    /// Segments whose data was discarded because the application had closed its side.
    pub data_after_close: u64,
    /// ICMP errors ignored because they concern data that is not in flight, or do not reduce the
    /// path MTU.
    pub icmp_ignored: u64,
    /// Resets and SYN cookies dropped because the TX ring was full or no frame was free. They are
    /// never queued.
    pub ring_full: u64,
}

impl Counters {
    /// Returns the reason and value of each drop counter, for reports.
    pub fn drops(&self) -> [(&'static str, u64); 19] {
        [
            ("malformed TCP header", self.malformed),
            ("bad TCP checksum", self.bad_checksum),
            ("partial TCP checksum", self.partial_checksum),
            ("no connection", self.no_connection),
            ("too many half-open connections", self.half_open_full),
            ("too many connections", self.connections_full),
            ("no segment fits a frame", self.no_segment_fits),
            ("too many connections of an address", self.per_address_full),
            ("new connection while stopping", self.refused_in_drain),
            ("outside the window", self.out_of_window),
            ("old timestamp", self.old_timestamps),
            ("missing timestamp", self.no_timestamps),
            ("unacceptable ACK", self.bad_ack),
            ("unproven reset or SYN", self.unproven),
            ("no receive buffer", self.no_buffer),
            ("data after a FIN", self.data_after_fin),
            ("data after close", self.data_after_close),
            ("ignored ICMP error", self.icmp_ignored),
            ("TX ring full", self.ring_full),
        ]
    }
}
