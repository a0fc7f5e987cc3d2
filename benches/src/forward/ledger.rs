//! What one end of a connection has sent, as seen on the wire before anything
//! is lost.

use std::time::Duration;

use nmio::Instant;
use serde::Serialize;

use super::segment::{Segment, flags};

/// Ranges of lost bytes that one ledger remembers; more are forgotten, and
/// count as needless when they are repeated.
const MAX_RANGES: usize = 65_536;

/// What a sender has done. Sums over connections but for the greatest values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// Segments with payload.
    pub segments: u64,
    /// Bytes of payload in them.
    pub bytes: u64,
    /// Bytes whose sequence numbers had been sent before.
    pub repeated_bytes: u64,
    /// Segments with any of these.
    pub repeated_segments: u64,
    /// Of the repeated bytes, those that were not lost before: they had
    /// arrived or were still on the way.
    pub needless_bytes: u64,
    /// SYN segments beyond a connection's first.
    pub repeated_syns: u64,
    /// Times that a sender with bytes unacknowledged sent none for as long as
    /// was asked to be told.
    pub silences: u64,
    /// The longest time that a sender with bytes unacknowledged sent none, in
    /// µs.
    pub longest_silence_us: u64,
    /// Most bytes sent and not acknowledged.
    pub most_in_flight: u64,
    /// From the connection's first frame to its first segment with payload,
    /// in µs; the greatest of all connections.
    pub first_payload_us: u64,
    /// From the connection's first frame to its last segment with payload,
    /// in µs; the greatest of all connections.
    pub last_payload_us: u64,
}

impl Sent {
    /// Adds what another connection's sender has done.
    pub fn add(&mut self, other: &Self) {
        self.segments += other.segments;
        self.bytes += other.bytes;
        self.repeated_bytes += other.repeated_bytes;
        self.repeated_segments += other.repeated_segments;
        self.needless_bytes += other.needless_bytes;
        self.repeated_syns += other.repeated_syns;
        self.silences += other.silences;
        for (mine, others) in [
            (&mut self.longest_silence_us, other.longest_silence_us),
            (&mut self.most_in_flight, other.most_in_flight),
            (&mut self.first_payload_us, other.first_payload_us),
            (&mut self.last_payload_us, other.last_payload_us),
        ] {
            *mine = others.max(*mine);
        }
    }
}

/// Where a segment lies in its sender's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Offset of its first byte from the first that was sent.
    pub start: u64,
    /// Offset behind its last byte.
    pub end: u64,
    /// Bytes of it that had been sent before.
    pub repeated: u64,
}

/// One sender's ledger.
#[derive(Clone, Debug)]
pub struct Ledger {
    sent: Sent,
    /// The sequence number of offset 0, once it is known.
    base: Option<u32>,
    /// Behind the last byte that was sent.
    high: u64,
    /// Behind the last byte that was acknowledged.
    acked: u64,
    began: Instant,
    /// The last segment with payload.
    last: Option<Instant>,
    has_syn: bool,
    /// Silences from this on are counted.
    silence: Duration,
    /// Bytes that were lost and have not been sent again.
    lost: Ranges,
}

impl Ledger {
    /// The ledger of a connection whose first frame came at `began`.
    pub fn new(began: Instant, silence: Duration) -> Self {
        Self {
            sent: Sent::default(),
            base: None,
            high: 0,
            acked: 0,
            began,
            last: None,
            has_syn: false,
            silence,
            lost: Ranges::default(),
        }
    }

    /// What the sender has done.
    pub fn sent(&self) -> &Sent {
        &self.sent
    }

    /// Writes down a segment that its sender has just sent.
    pub fn handle_sent(&mut self, segment: &Segment, now: Instant) -> Place {
        if segment.has(flags::SYN) {
            self.sent.repeated_syns += u64::from(self.has_syn);
            self.has_syn = true;
        }
        let first = segment.seq.wrapping_add(u32::from(segment.has(flags::SYN)));
        let base = *self.base.get_or_insert(first);
        let start = unwrapped(first.wrapping_sub(base), self.high);
        let end = start + u64::from(segment.len);
        let repeated = self.high.min(end).saturating_sub(start);
        let place = Place {
            start,
            end,
            repeated,
        };
        if segment.len == 0 {
            return place;
        }
        if let Some(last) = self.last
            && (self.acked < self.high || repeated > 0)
        {
            let gap = now.since(last);
            self.sent.silences += u64::from(gap >= self.silence);
            let gap = gap.as_micros() as u64;
            self.sent.longest_silence_us = self.sent.longest_silence_us.max(gap);
        }
        let since = now.since(self.began).as_micros() as u64;
        if self.last.is_none() {
            self.sent.first_payload_us = since;
        }
        self.last = Some(now);
        self.sent.last_payload_us = since;
        self.sent.segments += 1;
        self.sent.bytes += u64::from(segment.len);
        if repeated > 0 {
            self.sent.repeated_segments += 1;
            self.sent.repeated_bytes += repeated;
            let needed = self.lost.overlap(start, start + repeated);
            self.sent.needless_bytes += repeated - needed;
        }
        self.high = self.high.max(end);
        let in_flight = self.high.saturating_sub(self.acked);
        self.sent.most_in_flight = self.sent.most_in_flight.max(in_flight);
        place
    }

    /// Writes down what became of a segment: whether it will arrive.
    pub fn handle_outcome(&mut self, place: Place, passed: bool) {
        if passed {
            self.lost.remove(place.start, place.end);
        } else if place.repeated < place.end - place.start {
            // What has been there before may have arrived then.
            self.lost.insert(place.start + place.repeated, place.end);
        }
    }

    /// Writes down an acknowledgement by the other end.
    pub fn handle_ack(&mut self, ack: u32) {
        if let Some(base) = self.base {
            let acked = unwrapped(ack.wrapping_sub(base), self.high);
            // A FIN is acknowledged beyond the last byte.
            self.acked = self.acked.max(acked.min(self.high));
        }
    }

    /// An acknowledgement's offset in the stream, for a person to read.
    pub fn offset(&self, seq: u32) -> u64 {
        self.base
            .map_or(0, |base| unwrapped(seq.wrapping_sub(base), self.high))
    }
}

/// The offset with these low 32 bits that is nearest to `near`; none lies
/// before 0.
fn unwrapped(low: u32, near: u64) -> u64 {
    let ahead = low.wrapping_sub(near as u32).cast_signed();
    near.saturating_add_signed(i64::from(ahead))
}

/// Ranges of a stream, in order; no two touch.
#[derive(Clone, Debug, Default)]
struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// The first range that ends behind `at`.
    fn first_behind(&self, at: u64) -> usize {
        self.0.partition_point(|&(_, end)| end <= at)
    }

    fn insert(&mut self, start: u64, end: u64) {
        let first = self.0.partition_point(|&(_, e)| e < start);
        let touched = self.0[first..].iter().take_while(|&&(s, _)| s <= end);
        let last = first + touched.count();
        if first == last {
            if self.0.len() < MAX_RANGES {
                self.0.insert(first, (start, end));
            }
            return;
        }
        let whole = (start.min(self.0[first].0), end.max(self.0[last - 1].1));
        self.0.splice(first..last, [whole]);
    }

    fn remove(&mut self, start: u64, end: u64) {
        let first = self.first_behind(start);
        let touched = self.0[first..].iter().take_while(|&&(s, _)| s < end);
        let last = first + touched.count();
        if first == last {
            return;
        }
        let (before, behind) = ((self.0[first].0, start), (end, self.0[last - 1].1));
        let left = [before, behind];
        let left = left.into_iter().filter(|(start, end)| start < end);
        self.0.splice(first..last, left);
    }

    /// Bytes of `start..end` that are in a range.
    fn overlap(&self, start: u64, end: u64) -> u64 {
        let first = self.first_behind(start);
        let touched = self.0[first..].iter().take_while(|&&(s, _)| s < end);
        touched.map(|&(s, e)| e.min(end) - s.max(start)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(seq: u32, len: u32, flags: u8) -> Segment {
        Segment {
            src: "10.0.0.1:80".parse().unwrap(),
            dst: "10.0.0.2:4000".parse().unwrap(),
            seq,
            ack: 0,
            flags,
            window: 0,
            len,
            sack: arrayvec::ArrayVec::new(),
        }
    }

    fn ms(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn ledger() -> Ledger {
        Ledger::new(ms(0), Duration::from_millis(200))
    }

    #[test]
    fn bytes_are_repeated_whatever_the_cut_and_across_the_wrap() {
        let mut ledger = ledger();
        let isn = u32::MAX - 500;
        ledger.handle_sent(&segment(isn, 0, flags::SYN | flags::ACK), ms(1));
        let first = isn.wrapping_add(1);
        let a = ledger.handle_sent(&segment(first, 1_000, 0), ms(2));
        assert_eq!((a.start, a.end, a.repeated), (0, 1_000, 0));
        let b = ledger.handle_sent(&segment(first.wrapping_add(1_000), 1_000, 0), ms(3));
        assert_eq!((b.start, b.end, b.repeated), (1_000, 2_000, 0));
        let c = ledger.handle_sent(&segment(first.wrapping_add(600), 1_800, 0), ms(4));
        assert_eq!((c.start, c.end, c.repeated), (600, 2_400, 1_400));
        let sent = ledger.sent();
        assert_eq!((sent.bytes, sent.repeated_bytes), (3_800, 1_400));
        assert_eq!((sent.segments, sent.repeated_segments), (3, 1));
        assert_eq!(sent.first_payload_us, 2_000);
        assert_eq!(sent.last_payload_us, 4_000);
    }

    #[test]
    fn what_was_lost_is_needed_and_the_rest_is_not() {
        let mut ledger = ledger();
        for (seq, passed) in [(0, true), (100, false), (200, true)] {
            let place = ledger.handle_sent(&segment(seq, 100, 0), ms(1));
            ledger.handle_outcome(place, passed);
        }
        // Of 200 bytes each time: lost again, then right, then once too often.
        for (passed, needless) in [(false, 100), (true, 200), (true, 400)] {
            let place = ledger.handle_sent(&segment(100, 200, 0), ms(2));
            ledger.handle_outcome(place, passed);
            assert_eq!(ledger.sent().needless_bytes, needless);
        }
    }

    #[test]
    fn a_silence_is_one_only_with_bytes_in_flight() {
        let mut ledger = ledger();
        ledger.handle_sent(&segment(0, 100, 0), ms(0));
        ledger.handle_ack(100);
        ledger.handle_sent(&segment(100, 100, 0), ms(1_000));
        assert_eq!(ledger.sent().silences, 0, "all was acknowledged");
        ledger.handle_ack(150);
        ledger.handle_sent(&segment(200, 100, 0), ms(1_199));
        assert_eq!(ledger.sent().silences, 0, "too short");
        ledger.handle_sent(&segment(300, 100, 0), ms(1_399));
        assert_eq!(ledger.sent().silences, 1);
        assert_eq!(ledger.sent().longest_silence_us, 200_000);
        assert_eq!(ledger.sent().most_in_flight, 250);
    }

    #[test]
    fn a_second_syn_is_a_repeated_one() {
        let mut ledger = ledger();
        for _ in 0..3 {
            ledger.handle_sent(&segment(7, 0, flags::SYN), ms(0));
        }
        assert_eq!(ledger.sent().repeated_syns, 2);
        assert_eq!(ledger.sent().repeated_bytes, 0);
    }

    #[test]
    fn sums_add_up_and_greatest_values_stay() {
        let one = Sent {
            bytes: 5,
            most_in_flight: 9,
            ..Sent::default()
        };
        let mut sum = Sent {
            bytes: 7,
            most_in_flight: 4,
            ..Sent::default()
        };
        sum.add(&one);
        assert_eq!((sum.bytes, sum.most_in_flight), (12, 9));
    }

    #[test]
    fn ranges_agree_with_a_set_of_bytes() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut ranges = Ranges::default();
        let mut bytes = [false; 64];
        for round in 0..5_000 {
            let start = rng.usize(0..63);
            let end = rng.usize(start + 1..64);
            let (s, e) = (start as u64, end as u64);
            let expected = bytes[start..end].iter().filter(|&&set| set).count();
            assert_eq!(ranges.overlap(s, e), expected as u64, "round {round}");
            let set = rng.bool();
            if set {
                ranges.insert(s, e);
            } else {
                ranges.remove(s, e);
            }
            bytes[start..end].fill(set);
            assert!(ranges.0.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}
