//! Costs of a server under `--icount`: instructions of the whole guest for each unit of work.

use anyhow::{Result, bail};

use super::machine::Guest;

/// Instructions for units of work, in all cases so far.
#[derive(Debug, Default)]
pub(super) struct Costs(Vec<Cost>);

#[derive(Debug)]
struct Cost {
    case: &'static str,
    work: &'static str,
    /// Instructions of a unit of work.
    instructions: f64,
}

impl Costs {
    /// Runs `work`, which consists of `units`, and adds the instructions that the guest executes
    /// for each of them.
    pub(super) fn measure(
        &mut self,
        (case, work): (&'static str, &'static str),
        guest: &Guest,
        units: u32,
        run: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let before = busy_seconds(guest)?;
        run()?;
        let seconds = busy_seconds(guest)? - before;
        // An instruction takes a nanosecond of the guest's time.
        let instructions = seconds * 1e9 / f64::from(units);
        self.0.push(Cost {
            case,
            work,
            instructions,
        });
        Ok(())
    }

    /// Returns one line for each cost, with its ratio to the cost of the same work in the first
    /// case.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |cost: &Cost| {
            let Cost {
                case,
                work,
                instructions,
            } = cost;
            let mut same = self.0.iter().filter(|other| other.work == *work);
            let first = same.next().unwrap_or(cost);
            let ratio = instructions / first.instructions;
            let than = first.case;
            format!("{case}: {instructions:.0} instructions per {work}, {ratio:.2} times {than}")
        };
        self.0.iter().map(line).collect()
    }
}

/// Returns how long the guest's only core has been busy.
fn busy_seconds(guest: &Guest) -> Result<f64> {
    let text = guest.run("cat /proc/uptime")?;
    let numbers: Vec<f64> = text
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let [up, idle] = numbers[..] else {
        bail!("/proc/uptime has {text:?}");
    };
    Ok(up - idle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_compared_with_the_first_case() {
        let cost = |case, work, instructions| Cost {
            case,
            work,
            instructions,
        };
        let costs = Costs(vec![
            cost("copy", "MB", 4e6),
            cost("copy", "question", 20_000.0),
            cost("zero-copy", "question", 15_000.0),
        ]);
        assert_eq!(
            costs.lines(),
            [
                "copy: 4000000 instructions per MB, 1.00 times copy",
                "copy: 20000 instructions per question, 1.00 times copy",
                "zero-copy: 15000 instructions per question, 0.75 times copy",
            ]
        );
    }
}
