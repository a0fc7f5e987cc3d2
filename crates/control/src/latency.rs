//! How long the workers take, from histograms of times.

/// The inclusive upper bound of a range of values, and how many values are in it.
pub(crate) type Range = (Option<f64>, u64);

/// End of the names of histograms of times.
const SECONDS: &str = " seconds";
/// The quantiles that are shown, in thousandths, and their names.
pub(crate) const QUANTILES: [(u64, &str); 3] = [(500, "p50"), (990, "p99"), (999, "p99.9")];

/// How often something took how long, at all workers and for all sites.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Latency {
    /// The program and what is measured.
    pub(crate) name: String,
    /// The ranges in seconds, in ascending order. The last one has no upper bound.
    ranges: Vec<Range>,
}

impl Latency {
    /// Returns the sum of histograms with these names and ranges, one for each name. Those that measure
    /// no times are left out.
    pub(crate) fn sums<'r>(
        histograms: impl Iterator<Item = (&'r str, &'r str, &'r [Range])>,
    ) -> Vec<Self> {
        let mut sums: Vec<Self> = Vec::new();
        for (program, name, ranges) in histograms {
            let Some(what) = name.strip_suffix(SECONDS) else {
                continue;
            };
            let name = format!("{program}: {what}");
            match sums.iter_mut().find(|one| one.name == name) {
                Some(one) => one.add(ranges),
                None => sums.push(Self {
                    name,
                    ranges: ranges.to_vec(),
                }),
            }
        }
        sums
    }

    /// Returns the times since `before`. If there are none, returns those since the start.
    pub(crate) fn since(self, before: &[Self]) -> Self {
        let Some(before) = before.iter().find(|one| one.name == self.name) else {
            return self;
        };
        let ranges = self.ranges.iter().zip(&before.ranges);
        let ranges = ranges.map(|((bound, now), (_, then))| (*bound, now.saturating_sub(*then)));
        let since = Self {
            name: self.name.clone(),
            ranges: ranges.collect(),
        };
        if since.is_empty() { self } else { since }
    }

    fn add(&mut self, ranges: &[Range]) {
        for ((_, sum), (_, more)) in self.ranges.iter_mut().zip(ranges) {
            *sum += more;
        }
    }

    /// Returns true if nothing was measured.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.iter().all(|(_, count)| *count == 0)
    }

    /// Returns the end of the range with a quantile, such as `≤ 16 µs`.
    pub(crate) fn quantile(&self, thousandths: u64) -> String {
        let all: u64 = self.ranges.iter().map(|(_, count)| count).sum();
        let mut below = 0;
        let mut last = 0.0;
        for (bound, count) in &self.ranges {
            below += count;
            let Some(bound) = bound else { break };
            last = *bound;
            if 1000 * u128::from(below) >= u128::from(thousandths) * u128::from(all) {
                return format!("≤ {}", shown(last));
            }
        }
        format!("> {}", shown(last))
    }
}

/// Formats a time in seconds with three digits: `16 µs`, `2.05 ms`, `1.05 s`.
fn shown(seconds: f64) -> String {
    let (value, unit) = match seconds {
        ..1e-3 => (seconds * 1e6, "µs"),
        ..1.0 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    let digits = match value {
        _ if value.fract() == 0.0 || value >= 100.0 => 0,
        ..10.0 => 2,
        _ => 1,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(counts: [u64; 4]) -> Latency {
        let bounds = [Some(2e-6), Some(2.048e-3), Some(1.048_576), None];
        Latency {
            name: "web: request".to_owned(),
            ranges: bounds.into_iter().zip(counts).collect(),
        }
    }

    #[test]
    fn a_quantile_is_the_end_of_its_range() {
        let quantiles =
            |counts| QUANTILES.map(|(thousandths, _)| latency(counts).quantile(thousandths));
        assert_eq!(
            quantiles([500, 490, 9, 1]),
            ["≤ 2 µs", "≤ 2.05 ms", "≤ 1.05 s"]
        );
        assert_eq!(
            quantiles([499, 490, 9, 2]),
            ["≤ 2.05 ms", "≤ 1.05 s", "> 1.05 s"]
        );
        assert_eq!(quantiles([1, 0, 0, 0]), ["≤ 2 µs"; 3]);
    }

    #[test]
    fn times_are_those_since_an_earlier_status_unless_there_are_none() {
        let before = [latency([5, 0, 0, 0])];
        assert_eq!(latency([5, 7, 0, 0]).since(&before), latency([0, 7, 0, 0]));
        assert_eq!(latency([5, 0, 0, 0]).since(&before), before[0]);
        assert_eq!(latency([5, 7, 0, 0]).since(&[]), latency([5, 7, 0, 0]));
        assert!(latency([0; 4]).is_empty() && !before[0].is_empty());
    }
}
