//! Counts of received datagrams.

/// Datagrams by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams given to the service.
    pub received: u64,
    /// Answers queued.
    pub answered: u64,
    /// Dropped: a length field that does not fit the packet.
    pub malformed: u64,
    /// Dropped: a wrong checksum, or none over IPv6.
    pub bad_checksum: u64,
    /// Dropped: a checksum that its sender has left to a device
    /// ([`ip::Packet::has_unfinished_checksum`]).
    pub unfinished_checksum: u64,
    /// Dropped: from port 0, which nobody can answer.
    pub bad_source: u64,
    /// Not answered: the TX ring was full.
    pub ring_full: u64,
    /// Not answered: longer than the link takes.
    pub too_long: u64,
    /// Answered by a copy, because the port has no memory for another
    /// resident packet.
    pub residents_exhausted: u64,
}

impl Counters {
    /// The drops, by reason, for whoever reports them.
    pub fn drops(&self) -> [(&'static str, u64); 6] {
        [
            ("malformed UDP header", self.malformed),
            ("bad UDP checksum", self.bad_checksum),
            ("unfinished UDP checksum", self.unfinished_checksum),
            ("UDP source port 0", self.bad_source),
            ("TX ring full", self.ring_full),
            ("answer too long", self.too_long),
        ]
    }
}
