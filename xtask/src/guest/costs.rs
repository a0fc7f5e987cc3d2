//! Costs of a server under `--icount`: instructions of the whole guest for each unit of work.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use super::machine::Guest;

/// Instructions for a unit of each work, in all cases so far.
#[derive(Debug, Default)]
pub(super) struct Costs {
    /// The kinds of work, in the order in which they were first measured.
    works: Vec<String>,
    cases: Vec<(&'static str, BTreeMap<String, f64>)>,
}

impl Costs {
    /// Runs `work`, which consists of `units`, and adds the instructions that the guest executes
    /// for each of them.
    pub(super) fn measure(
        &mut self,
        (case, work): (&'static str, String),
        guest: &Guest,
        units: u32,
        run: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let before = busy_nanos(guest)?;
        run()?;
        // An instruction takes a nanosecond of the guest's time.
        let instructions = busy_nanos(guest)?.saturating_sub(before);
        self.add(case, work, instructions as f64 / f64::from(units));
        Ok(())
    }

    fn add(&mut self, case: &'static str, work: String, instructions: f64) {
        if !self.works.contains(&work) {
            self.works.push(work.clone());
        }
        if self.cases.last().is_none_or(|(last, _)| *last != case) {
            self.cases.push((case, BTreeMap::new()));
        }
        let last = self.cases.last_mut();
        last.expect("a case was added").1.insert(work, instructions);
    }

    /// Returns the costs as a table, or nothing if there are none. Each cost is followed by its
    /// ratio to the first one in its column.
    pub(super) fn table(&self) -> String {
        let mut table = String::new();
        if self.works.is_empty() {
            return table;
        }
        let columns = self.works.join(" | ");
        let rule = "---:|".repeat(self.works.len());
        let _ = writeln!(table, "| case | {columns} |\n|---|{rule}");
        for (case, costs) in &self.cases {
            let _ = write!(table, "| {case} |");
            for work in &self.works {
                let Some(cost) = costs.get(work) else {
                    table.push_str(" |");
                    continue;
                };
                let first = self.cases.iter().find_map(|(_, costs)| costs.get(work));
                let ratio = cost / first.unwrap_or(cost);
                let _ = write!(table, " {cost:.0} ({ratio:.2}) |");
            }
            table.push('\n');
        }
        table
    }
}

/// Nanoseconds of a unit of the times in `/proc/stat`.
const TICK: u64 = 10_000_000;

/// Returns how long the guest's only core has been busy, in nanoseconds.
fn busy_nanos(guest: &Guest) -> Result<u64> {
    let text = guest.run(
        "grep -E '^now at|(idle|iowait)_sleeptime' /proc/timer_list; grep '^cpu ' /proc/stat",
    )?;
    busy_from(&text).with_context(|| format!("the kernel says {text:?}"))
}

/// Computes the busy time from the present time, and from the two times for which the core has slept.
/// Kernels from about Linux 7 on tell the latter only in `/proc/stat`.
fn busy_from(text: &str) -> Option<u64> {
    let after = |name: &str| {
        let (_, rest) = text.split_once(name)?;
        let numbers = rest.lines().next()?.split([' ', ':']);
        Some(numbers.filter_map(|word| word.parse::<u64>().ok()))
    };
    let first = |name: &str| after(name)?.next();
    let slept = match (first("idle_sleeptime"), first("iowait_sleeptime")) {
        (Some(slept), Some(waited)) => slept + waited,
        _ => after("cpu ")?.skip(3).take(2).sum::<u64>() * TICK,
    };
    first("now at")?.checked_sub(slept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_busy_while_it_does_not_sleep() {
        let timers =
            "now at 5000 nsecs\n  .idle_sleeptime : 1200 nsecs\n  .iowait_sleeptime: 300 nsecs\n";
        let stat = "cpu  1 2 3 40 5 6\n";
        assert_eq!(busy_from(&format!("{timers}{stat}")), Some(3_500));
        assert_eq!(busy_from(timers), Some(3_500));
        let newer = format!("now at 500000000 nsecs\n{stat}");
        assert_eq!(busy_from(&newer), Some(50_000_000));
        assert_eq!(busy_from(stat), None);
    }

    #[test]
    fn costs_are_compared_with_the_first_in_their_column() {
        let mut costs = Costs::default();
        assert_eq!(costs.table(), "");
        costs.add("copy", "1 MB".into(), 4e6);
        costs.add("zero-copy", "1 MB".into(), 3e6);
        costs.add("zero-copy", "query".into(), 15_000.0);
        let table = "\
            | case | 1 MB | query |\n\
            |---|---:|---:|\n\
            | copy | 4000000 (1.00) | |\n\
            | zero-copy | 3000000 (0.75) | 15000 (1.00) |\n";
        assert_eq!(costs.table(), table);
    }
}
