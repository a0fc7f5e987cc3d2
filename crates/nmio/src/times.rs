//! A histogram of times.

/// Histogram of times in microseconds. Each range is twice as wide as the one before: below 2 µs,
/// 2 to 4 µs, 4 to 8 µs, and so on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    ranges: [u64; Self::RANGES],
    micros: u64,
}

impl Times {
    /// Number of ranges. The last one ends behind the largest time, about 72 minutes.
    pub const RANGES: usize = u32::BITS as usize;

    /// Counts a time in whole microseconds. A part of a microsecond is ignored.
    #[inline(always)]
    pub fn count(&mut self, micros: u32) {
        self.ranges[(micros | 1).ilog2() as usize] += 1;
        self.micros += u64::from(micros);
    }

    /// Returns the number of times in each range, starting with the shortest. The times of range
    /// `r` are less than `2 << r` microseconds.
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
    fn times_are_counted_in_powers_of_two() {
        let mut times = Times::default();
        for micros in [0, 1, 2, 3, 4, 1_023, 1_024, u32::MAX] {
            times.count(micros);
        }
        let mut expected = [0; Times::RANGES];
        (expected[0], expected[1], expected[2]) = (2, 2, 1);
        (expected[9], expected[10], expected[31]) = (1, 1, 1);
        assert_eq!(times.ranges(), &expected);
        assert_eq!(times.micros(), 2_057 + u64::from(u32::MAX));
        let mut sum = times;
        sum.merge(&times);
        assert_eq!(sum.ranges(), &expected.map(|count| 2 * count));
        assert_eq!(sum.micros(), 2 * times.micros());
    }
}
