//! What has happened, counted.

/// Segments and connections by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments received, dropped ones included.
    pub segments_received: u64,
    /// Segments sent, of all kinds.
    pub segments_sent: u64,
    /// Bytes of data sent, those sent again included.
    pub bytes_sent: u64,
    /// Segments with data sent in place: resident packets.
    pub sent_resident: u64,
    /// Prepared segments sent by copying.
    pub sent_copied: u64,
    /// Segments with data that were put together and summed when they were
    /// sent: write buffers, ranges that are no whole segment, tagged links,
    /// segment sizes without a class.
    pub sent_assembled: u64,
    /// Runs of segments that left as one packet each.
    pub sent_runs: u64,
    /// Segments copied in pre-copy mode, because the port had no memory left
    /// for one more resident packet.
    pub resident_fallbacks: u64,
    /// Control segments that were made of the received frame.
    pub turned_round: u64,
    /// Connections opened.
    pub accepted: u64,
    /// Connections that the application refused.
    pub refused: u64,
    /// Connections closed by both sides, or at the stack's end.
    pub finished: u64,
    /// Connections reset by the peer.
    pub reset_by_peer: u64,
    /// Connections given up: no answer, half-closed or shut for too long.
    pub timed_out: u64,
    /// Connections aborted by the application, or at the stack's end.
    pub aborted: u64,
    /// Connections closed because they were silent.
    pub idle_closed: u64,
    /// Deadlines of the application that have passed.
    pub deadlines_missed: u64,
    /// Connections that gave way to others, when something ran short.
    pub evicted: u64,
    /// Half-open connections that gave way to others.
    pub half_open_evicted: u64,
    /// Receive buffers taken from connections that had nothing in order there.
    pub buffers_taken: u64,
    /// Write buffers freed for others: their connections gave way.
    pub write_buffers_taken: u64,
    /// Lists of stream entries freed for others: their connections gave way.
    pub entry_lists_taken: u64,
    /// Scoreboards taken from connections that had made less progress.
    pub scoreboards_taken: u64,
    /// Connections in TIME-WAIT that gave way to new ones.
    pub time_waits_evicted: u64,
    /// Connections forgotten without TIME-WAIT, because too many were in it.
    pub time_wait_overflow: u64,
    /// Handshakes that the peer did not complete.
    pub handshakes_failed: u64,
    /// SYNs answered with a cookie (RFC 4987, section 3.6).
    pub cookies_sent: u64,
    /// Handshakes completed by one.
    pub cookies_accepted: u64,
    /// Acknowledgements to no connection, while cookies were good, that were
    /// none, or too old.
    pub cookies_bad: u64,
    /// Resets sent.
    pub resets_sent: u64,
    /// Challenge ACKs sent (RFC 5961).
    pub challenge_acks: u64,
    /// Segments with data or a FIN sent again.
    pub retransmits: u64,
    /// Expirations of the retransmission timer.
    pub timeouts: u64,
    /// Fast retransmits begun.
    pub fast_retransmits: u64,
    /// Times that something sent again was taken as lost again.
    pub lost_again: u64,
    /// Reductions that proved needless and were taken back.
    pub undone: u64,
    /// Of these, by an echo of what was sent first (RFC 3522).
    pub undone_by_echo: u64,
    /// By reports that all that was sent again has come twice (RFC 3708).
    pub undone_by_duplicates: u64,
    /// By what arrived after a timeout and was not sent again (RFC 5682).
    pub undone_by_arrival: u64,
    /// Probes of a silent tail (RFC 8985, section 7).
    pub tail_probes: u64,
    /// Of these, such as have mended a loss.
    pub tail_losses: u64,
    /// Connections on which segments were found to overtake each other.
    pub reorderings: u64,
    /// Reports of something that arrived twice (RFC 2883).
    pub duplicates_reported: u64,
    /// Timeouts at which the peer no longer had what it had selectively
    /// acknowledged (RFC 2018, section 8).
    pub reneged: u64,
    /// Selective acknowledgements that found no place on a scoreboard.
    pub scoreboard_full: u64,
    /// Segments received with a router's mark of congestion (RFC 3168).
    pub marked: u64,
    /// Segments received that echo such a mark.
    pub echoed: u64,
    /// Windows reduced for it.
    pub ecn_reductions: u64,
    /// Silent clients asked whether they are there (RFC 1122, section
    /// 4.2.3.6).
    pub keep_alives: u64,
    /// Probes of shut windows.
    pub window_probes: u64,
    /// Segments received out of order and kept.
    pub out_of_order: u64,
    /// Path MTU reductions that were believed (RFC 1191, RFC 8201).
    pub path_mtu_reductions: u64,
    /// Times that a path was found to swallow large segments (RFC 4821).
    pub black_holes: u64,
    /// Larger segments sent to find out whether a path has become wider.
    pub size_probes: u64,
    /// Of these, such as have arrived.
    pub path_mtu_raises: u64,
    /// Times that a connection had to wait for the TX ring or for a frame.
    pub blocked: u64,
    /// Dropped: a header that is cut or inconsistent.
    pub malformed: u64,
    /// Dropped: a wrong checksum.
    pub bad_checksum: u64,
    /// Dropped: a checksum that its sender has left to a device
    /// ([`Packet::has_unfinished_checksum`](ip::Packet::has_unfinished_checksum)).
    pub unfinished_checksum: u64,
    /// Dropped: to no connection, and not answered.
    pub no_connection: u64,
    /// Dropped: a SYN beyond the limit of half-open connections.
    pub half_open_full: u64,
    /// Dropped: a SYN beyond the limit of connections.
    pub connections_full: u64,
    /// Dropped: a SYN, to whose sender no segment fits a frame of the port.
    pub no_segment_fits: u64,
    /// Refused: a SYN, or a handshake's third segment, beyond the limit of its
    /// address.
    pub per_address_full: u64,
    /// Dropped: outside the window, or a duplicate.
    pub out_of_window: u64,
    /// Dropped: an older timestamp than the last (RFC 7323, section 5).
    pub old_timestamps: u64,
    /// Dropped: no timestamp on a connection that has them.
    pub no_timestamps: u64,
    /// Dropped: acknowledges what was never sent, or nothing.
    pub bad_ack: u64,
    /// Dropped: a reset or SYN that does not prove to be the peer's
    /// (RFC 5961).
    pub unproven: u64,
    /// Dropped: needed a receive buffer when none was free, or one more gap
    /// than a buffer keeps track of.
    pub no_buffer: u64,
    /// Dropped: data of a peer that has closed, or behind its FIN.
    pub behind_fin: u64,
    /// Dropped: data that the application had not taken when it closed, or that
    /// came after.
    pub after_close: u64,
    /// Dropped: an ICMP error that is not about something in flight, or that
    /// a connection survives.
    pub icmp_ignored: u64,
    /// Dropped: a reply that the TX ring had no room for, and that nobody
    /// waits for.
    pub ring_full: u64,
}

impl Counters {
    /// The drops, by reason, for whoever reports them.
    pub fn drops(&self) -> [(&'static str, u64); 18] {
        [
            ("malformed TCP header", self.malformed),
            ("bad TCP checksum", self.bad_checksum),
            ("unfinished TCP checksum", self.unfinished_checksum),
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
            ("data behind a FIN", self.behind_fin),
            ("data after close", self.after_close),
            ("ignored ICMP error", self.icmp_ignored),
            ("TX ring full", self.ring_full),
        ]
    }
}
