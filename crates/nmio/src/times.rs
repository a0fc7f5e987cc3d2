//! A histogram of times.

/// Shortest time in µs that is too long for a worker between two batches.
const TOO_LONG: u32 = 200;
/// The range of the longest times below [`TOO_LONG`].
const LONGEST: usize = TOO_LONG.ilog2() as usize;

/// Histogram of times in microseconds. Each range is twice as wide as the one before: below 2 µs,
/// 2 to 4 µs, 4 to 8 µs, and so on. Only the range of 128 to 256 µs is divided, at 200 µs. A worker
/// should not stop for longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    ranges: [u64; Self::RANGES],
    micros: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            ranges: [0; Self::RANGES],
            micros: 0,
        }
    }
}

impl Times {
    /// Number of ranges. The last one ends behind the largest time, about 72 minutes.
    pub const RANGES: usize = u32::BITS as usize + 1;

    /// Counts a time in whole microseconds. A part of a microsecond is ignored.
    #[inline(always)]
    pub fn count(&mut self, micros: u32) {
        let range = (micros | 1).ilog2() as usize + usize::from(micros >= TOO_LONG);
        self.ranges[range] += 1;
        self.micros += u64::from(micros);
    }

    /// Returns the end of a range: all of its times are less than so many microseconds.
    pub fn end_of(range: usize) -> u64 {
        match range {
            LONGEST => TOO_LONG.into(),
            0..LONGEST => 2 << range,
            _ => 1 << range,
        }
    }

    /// Returns the number of times in each range, starting with the shortest.
    pub fn ranges(&self) -> &[u64; Self::RANGES] {
        &self.ranges
    }

    /// Returns the sum of all times in microseconds.
    pub fn micros(&self) -> u64 {
        self.micros
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (sum, more) in self.ranges.iter_mut().zip(other.ranges) {
            *sum += more;
        }
        self.micros += other.micros;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_in_ranges() {
        let mut times = Times::default();
        for micros in [0, 1, 2, 3, 4, 127, 128, 199, 200, 255, 256, 1_023, u32::MAX] {
            times.count(micros);
        }
        let mut expected = [0; Times::RANGES];
        (expected[0], expected[1], expected[2], expected[6]) = (2, 2, 1, 1);
        (expected[7], expected[8], expected[9]) = (2, 2, 1);
        (expected[10], expected[32]) = (1, 1);
        assert_eq!(times.ranges(), &expected);
        assert_eq!(times.micros(), 2_198 + u64::from(u32::MAX));
        let mut sum = times;
        sum.merge(&times);
        assert_eq!(sum.ranges(), &expected.map(|count| 2 * count));
        assert_eq!(sum.micros(), 2 * times.micros());
    }

    #[test]
    fn each_range_ends_where_the_next_one_begins() {
        let ends: Vec<_> = (0..Times::RANGES).map(Times::end_of).collect();
        assert_eq!(ends[..11], [2, 4, 8, 16, 32, 64, 128, 200, 256, 512, 1_024]);
        assert_eq!(ends[32], 1 << 32);
        for (range, end) in ends[..32].iter().enumerate() {
            let mut times = Times::default();
            times.count(*end as u32 - 1);
            times.count(*end as u32);
            assert_eq!(times.ranges()[range..range + 2], [1, 1]);
        }
    }
}
