//! Medians, ratios, and formatting of numbers.

use crate::bench::results::{Quantity, Run};

/// Median, minimum and maximum of some values, usually one value from each repeat of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    repeats: usize,
}

impl Spread {
    /// Returns the spread of the finite values, or `None` if there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values
            .into_iter()
            .filter(|value| value.is_finite())
            .collect();
        values.sort_by(f64::total_cmp);
        Some(Self {
            median: percentile(&values, 50)?,
            min: *values.first()?,
            max: *values.last()?,
            repeats: values.len(),
        })
    }

    pub(super) fn of_runs(quantity: Quantity, runs: &[&Run]) -> Option<Self> {
        Self::of(runs.iter().filter_map(|run| quantity.of(run)))
    }

    /// Returns the distance from minimum to maximum relative to the median. Returns `None` if there
    /// is only one value, or if the median is 0.
    pub(super) fn relative(&self) -> Option<f64> {
        (self.repeats > 1 && self.median > 0.0).then(|| (self.max - self.min) / self.median)
    }

    /// Formats `MIN to MAX`, or one number if both look the same.
    pub(super) fn range(&self, shown: fn(f64) -> String) -> String {
        match [self.min, self.max].map(shown) {
            [min, max] if min == max => min,
            [min, max] => format!("{min} to {max}"),
        }
    }

    /// Formats `MEDIAN (MIN to MAX)`.
    pub(crate) fn shown(&self) -> String {
        let median = digits(self.median);
        match self.range(digits) {
            range if range == median => median,
            range => format!("{median} ({range})"),
        }
    }
}

/// Returns the ratio of two medians. Its minimum and maximum are those of the ratios between runs
/// of the same repeat, and of the ratio itself.
pub(super) fn ratio(quantity: Quantity, ours: &[&Run], others: &[&Run]) -> Option<Spread> {
    let median = |runs| Spread::of_runs(quantity, runs).map(|spread| spread.median);
    let value = median(ours)? / median(others)?;
    let pairs = ours.iter().flat_map(|run| {
        let beside = others.iter().filter(|other| other.repeat == run.repeat);
        beside.filter_map(|other| Some(quantity.of(run)? / quantity.of(other)?))
    });
    let all = Spread::of(pairs.chain([value]))?;
    value.is_finite().then_some(Spread {
        median: value,
        ..all
    })
}

/// Returns a percentile of sorted values, by linear interpolation.
pub(super) fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let at = percent * sorted.len().checked_sub(1)?;
    let (low, high) = (sorted[at / 100], sorted[at.div_ceil(100)]);
    Some(low + (high - low) * (at % 100) as f64 / 100.0)
}

/// Formats a number below 1,000 with at most three significant digits and three decimals. A larger
/// number is rounded to an integer.
pub(crate) fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 999.5 => return thousands(value),
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.0995 || v == 0.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// Formats a number rounded to three significant digits.
pub(super) fn rounded(value: f64) -> String {
    let unit = 10_f64
        .powf(value.abs().max(1.0).log10().floor() - 2.0)
        .max(1e-9);
    digits((value / unit).round() * unit)
}

/// Formats a number as an integer, with commas between thousands.
pub(crate) fn thousands(value: f64) -> String {
    let whole = format!("{value:.0}");
    let digits = whole.trim_start_matches('-').len();
    let mut text = String::new();
    for (place, c) in (0..digits).rev().zip(whole.trim_start_matches('-').chars()) {
        text.push(c);
        if place > 0 && place % 3 == 0 {
            text.push(',');
        }
    }
    format!("{}{text}", if whole.starts_with('-') { "-" } else { "" })
}

/// Formats a value of a figure's variable, with binary units for bodies.
pub(super) fn x_shown(x: f64, label: &str) -> String {
    const UNITS: [(f64, &str); 2] = [((1 << 20) as f64, "MB"), (1024.0, "KB")];
    let unit = UNITS.iter().find(|(unit, _)| x >= *unit && x % unit == 0.0);
    match unit {
        Some((unit, name)) if label.contains("body") => format!("{} {name}", thousands(x / unit)),
        _ => thousands(x),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::results::Cost;

    #[test]
    fn a_median_lies_between_minimum_and_maximum() {
        assert_eq!(Spread::of([f64::NAN]), None);
        let shown = |values: &[f64]| Spread::of(values.iter().copied()).unwrap().shown();
        assert_eq!(shown(&[3.0, 1.0, 2.0]), "2.00 (1.00 to 3.00)");
        assert_eq!(shown(&[4.0, 1.0, 2.0, 3.0]), "2.50 (1.00 to 4.00)");
        assert_eq!(shown(&[4.0]), "4.00");
    }

    #[test]
    fn a_ratio_compares_medians_and_its_range_compares_runs_of_one_repeat() {
        let runs = |costs: [f64; 3]| {
            let run = |(repeat, core_us)| Run {
                repeat,
                cost: Cost {
                    core_us,
                    ..Cost::default()
                },
                ..Run::default()
            };
            (0..).zip(costs).map(run).collect::<Vec<_>>()
        };
        let (ours, others) = (runs([1.0, 2.0, 3.0]), runs([4.0, 4.0, 12.0]));
        let (ours, others): (Vec<_>, Vec<_>) = (ours.iter().collect(), others.iter().collect());
        let found = ratio(Quantity::Cost, &ours, &others).unwrap();
        assert_eq!(found.shown(), "0.50 (0.25 to 0.50)");
        assert_eq!(ratio(Quantity::Cost, &ours, &[]), None);
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        let cases = [
            (0.0, "0.00"),
            (0.0123, "0.012"),
            (0.5, "0.50"),
            (9.994, "9.99"),
        ];
        let more = [
            (9.996, "10.0"),
            (99.96, "100"),
            (1234.5, "1,234"),
            (-1e6, "-1,000,000"),
        ];
        for (value, shown) in cases.into_iter().chain(more) {
            assert_eq!(digits(value), shown);
        }
        assert_eq!(rounded(783_623.0), "784,000");
        assert_eq!(rounded(1.714), "1.71");
        assert_eq!(x_shown(65_536.0, "body"), "64 KB");
        assert_eq!(x_shown(1024.0, "frame, bytes"), "1,024");
    }
}
