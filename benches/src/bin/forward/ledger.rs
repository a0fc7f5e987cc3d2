//! Records what one side of a connection has sent, including segments that are then lost.

use nmio::Instant;
use serde::Serialize;
use testkit::{Ranges, SYN};

use crate::segment::Segment;

/// What all connections have sent in one direction: sums and maxima.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Sent {
    /// Number of payload bytes, including retransmissions.
    pub(crate) bytes: u64,
    /// Number of retransmitted bytes, which `bytes` includes.
    pub(crate) retransmitted: u64,
    /// Number of retransmitted bytes that had not been lost. `retransmitted` includes these bytes.
    pub(crate) spurious: u64,
    /// Longest time in µs between two data segments of a sender that still had unacknowledged
    /// bytes.
    pub(crate) longest_stall_us: u64,
    /// Longest time in µs from a connection's SYN to the first data segment in this direction.
    pub(crate) first_data_us: u64,
}

/// Position of a segment in its sender's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Offset of the segment's first byte in the stream.
    pub(crate) start: u64,
    /// Offset after the segment's last byte.
    pub(crate) end: u64,
    /// Number of the segment's bytes that had been sent before.
    pub(crate) retransmitted: u64,
}

/// The record of what one sender has sent.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// Sequence number of offset 0, once it is known.
    base: Option<u32>,
    /// Offset after the highest sent byte.
    high: u64,
    /// Offset after the highest acknowledged byte.
    acked: u64,
    began: Instant,
    /// Time of the last data segment.
    last: Option<Instant>,
    /// Ranges of sent bytes that were not lost.
    passed: Ranges,
}

impl Ledger {
    /// Creates the ledger of a connection whose SYN arrived at `began`.
    pub(crate) fn new(began: Instant) -> Self {
        Self {
            base: None,
            high: 0,
            acked: 0,
            began,
            last: None,
            passed: Ranges::default(),
        }
    }

    pub(crate) fn has_data(&self) -> bool {
        self.last.is_some()
    }

    /// Records a segment that its sender has just sent, and updates `sent`. Returns the segment's
    /// place in the stream.
    pub(crate) fn handle_sent(
        &mut self,
        segment: &Segment,
        now: Instant,
        sent: &mut Sent,
    ) -> Place {
        let first = segment.seq.wrapping_add(u32::from(segment.has(SYN)));
        self.base.get_or_insert(first);
        let start = self.offset(first);
        let end = start + u64::from(segment.len);
        let retransmitted = self.high.min(end).saturating_sub(start);
        if segment.len > 0 {
            let since = |then: Instant| now.since(then).as_micros() as u64;
            match self.last.replace(now) {
                None => sent.first_data_us = sent.first_data_us.max(since(self.began)),
                Some(last) if self.acked < self.high || retransmitted > 0 => {
                    sent.longest_stall_us = sent.longest_stall_us.max(since(last));
                }
                Some(_) => {}
            }
            sent.bytes += u64::from(segment.len);
            sent.retransmitted += retransmitted;
            sent.spurious += self.passed.overlap(&(start..start + retransmitted));
            self.high = self.high.max(end);
        }
        Place {
            start,
            end,
            retransmitted,
        }
    }

    /// Records that the network has not dropped a segment.
    pub(crate) fn handle_passed(&mut self, place: Place) {
        if place.start < place.end {
            self.passed.add(place.start..place.end);
        }
    }

    /// Records an acknowledgement from the peer of this sender.
    pub(crate) fn handle_ack(&mut self, ack: u32) {
        // The ACK of a FIN is one above `high`, because the FIN takes one sequence number. The
        // stream offset is therefore limited to `high`.
        self.acked = self.acked.max(self.offset(ack).min(self.high));
    }

    /// Returns the stream offset of a sequence number. Sequence numbers wrap, so this is the offset
    /// nearest to the highest sent byte. Returns 0 before the first segment.
    pub(crate) fn offset(&self, seq: u32) -> u64 {
        let Some(base) = self.base else { return 0 };
        let ahead = seq.wrapping_sub(base).wrapping_sub(self.high as u32);
        self.high.saturating_add_signed(ahead.cast_signed().into())
    }
}

#[cfg(test)]
mod tests {
    use testkit::{ACK, Route};

    use super::*;

    #[test]
    fn retransmissions_and_stalls_are_found_across_a_sequence_wrap() {
        let (mut ledger, mut sent) = (Ledger::new(Instant::ZERO), Sent::default());
        let isn = u32::MAX - 500;
        // Each row holds an ACK, a segment, its time in ms, and whether the segment passes. The
        // last column holds the expected retransmitted bytes, spurious bytes and longest stall in
        // ms.
        for (ack, (start, len), at, passes, expected) in [
            (0, (0, 0), 1, true, (0, 0, 0)),
            (0, (0, 1_000), 2, true, (0, 0, 0)),
            (0, (1_000, 1_000), 3, false, (0, 0, 1)),
            // The retransmission has another size and is lost too.
            (1_000, (1_000, 1_400), 150, false, (1_000, 0, 147)),
            (1_000, (1_000, 1_400), 349, true, (2_400, 0, 199)),
            (1_000, (1_000, 1_400), 549, true, (3_800, 1_400, 200)),
            (1_000, (0, 500), 550, true, (4_300, 1_900, 200)),
            // Everything is acknowledged, so the pause is not a stall.
            (2_400, (2_400, 100), 1_000, true, (4_300, 1_900, 200)),
        ] {
            ledger.handle_ack(isn.wrapping_add(1 + ack));
            let is_syn = u32::from(len == 0);
            let segment = Segment {
                route: Route::to_server(false, 4_000, 80).back(),
                bits: if len == 0 { SYN | ACK } else { ACK },
                seq: isn.wrapping_add(1 + start - is_syn),
                ack: 0,
                window: 0,
                len,
                sack: Vec::new(),
            };
            let place = ledger.handle_sent(&segment, Instant::from_millis(at), &mut sent);
            assert_eq!(
                [place.start, place.end],
                [start, start + len].map(u64::from)
            );
            if passes {
                ledger.handle_passed(place);
            }
            let stall = sent.longest_stall_us / 1_000;
            assert_eq!((sent.retransmitted, sent.spurious, stall), expected, "{at}");
        }
        assert_eq!((sent.bytes, sent.first_data_us), (6_800, 2_000));
    }
}
