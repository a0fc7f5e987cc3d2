//! Counters of received datagrams and sent answers.

use crate::reflectors::is_reflector;

/// Numbers of datagrams and answers, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams passed to the service.
    pub received: u64,
    /// Answers queued for sending.
    pub answered: u64,
    /// Datagrams dropped because they are shorter than a UDP header, or because the UDP length
    /// field is smaller than the header or exceeds the packet.
    pub malformed: u64,
    /// Datagrams dropped because the checksum is wrong, or because it is missing and the datagram
    /// came over IPv6, which requires a checksum.
    pub bad_checksum: u64,
    /// Datagrams dropped because the checksum covers only the pseudo-header
    /// ([`ip::Packet::has_partial_checksum`]).
    pub partial_checksum: u64,
    /// Datagrams dropped because the source port is 0, so no reply is possible.
    pub bad_source: u64,
    /// Datagrams dropped because the service at their source port would answer our answer.
    pub reflectors: u64,
    /// Answers not sent because the TX ring was full or no frame was free.
    pub ring_full: u64,
    /// Answers not sent because they did not fit one packet on the link, or because their head
    /// exceeded the payload.
    pub too_long: u64,
    /// Answers that needed another resident packet, which could not be created because the port had
    /// no memory for it or no free frame. They are handled as in
    /// [`Datagram::send_copy`](crate::Datagram::send_copy) instead.
    pub residents_exhausted: u64,
}

impl Counters {
    /// Counts a datagram from this port, and returns true if it gets no reply because of the port.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse(&mut self, source: u16) -> bool {
        let is_reflector = is_reflector(source);
        self.bad_source += u64::from(source == 0);
        self.reflectors += u64::from(is_reflector);
        source == 0 || is_reflector
    }

    /// Returns the name and count of each drop reason, for reports.
    pub fn drops(&self) -> [(&'static str, u64); 7] {
        [
            ("malformed UDP header", self.malformed),
            ("bad UDP checksum", self.bad_checksum),
            ("partial UDP checksum", self.partial_checksum),
            ("UDP source port 0", self.bad_source),
            ("UDP source port of a reflector", self.reflectors),
            ("TX ring full", self.ring_full),
            ("answer too long", self.too_long),
        ]
    }
}
