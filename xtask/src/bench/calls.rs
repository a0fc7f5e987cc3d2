//! How often a server asks the kernel for something: counted by perf.

use std::fmt::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::results::Batches;
use crate::interrupt;
use crate::shell::{Context as _, Failure, Result};

/// perf prints its count this long after the counted time at the latest.
const END_LIMIT: Duration = Duration::from_secs(10);

/// A count of system calls under way.
pub(crate) struct Counting {
    perf: Child,
    seconds: f64,
}

impl Counting {
    /// Counts the system calls of `processes` from now on, for `seconds`.
    pub(crate) fn start(processes: &[u32], seconds: f64) -> Result<Self> {
        let mut list = String::new();
        for id in processes {
            let _ = write!(list, "{}{id}", if list.is_empty() { "" } else { "," });
        }
        let mut command = Command::new("perf");
        command
            .args(["stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-p"])
            .args([&list, "--", "sleep", &seconds.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let perf = command.spawn().context("starting perf")?;
        Ok(Self { perf, seconds })
    }

    /// System calls a second.
    pub(crate) fn finish(mut self) -> Result<f64> {
        interrupt::wait_for(END_LIMIT, || {
            self.perf.try_wait().context("waiting for perf")
        })?;
        let mut said = String::new();
        if let Some(mut pipe) = self.perf.stderr.take() {
            // It has ended, or is ended here: what it has written is all.
            let _ = self.perf.kill();
            std::io::Read::read_to_string(&mut pipe, &mut said).context("reading from perf")?;
        }
        let count = count(&said)
            .ok_or_else(|| Failure::new(format!("perf counted no system calls\n{said}")))?;
        Ok(count as f64 / self.seconds)
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ = self.perf.kill();
        let _ = self.perf.wait();
    }
}

/// The count in a line of `perf stat -x ,`.
fn count(said: &str) -> Option<u64> {
    let line = said
        .lines()
        .find(|line| line.contains("raw_syscalls:sys_enter"))?;
    line.split(',').next()?.parse().ok()
}

/// The batches that a server of ours tells of in its summary.
pub(crate) fn batches(summary: &str) -> Option<Batches> {
    let line = |label: &str| {
        summary
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(label))
            .map(classes)
    };
    Some(Batches {
        received: line("received batches:")?,
        sent: line("sent batches:").unwrap_or_default(),
    })
}

/// Reads `1: N, 2-3: N, 4-7: N`, where thousands may be set apart as in
/// `1,234`, into counts by powers of two.
fn classes(text: &str) -> Vec<u64> {
    let mut counts = Vec::new();
    for class in text.split(", ") {
        let Some((sizes, count)) = class.split_once(':') else {
            continue;
        };
        let least = sizes.trim().split('-').next().unwrap_or_default();
        let (Ok(least), Ok(count)) = (
            least.parse::<u32>(),
            count.trim().replace(',', "").parse::<u64>(),
        ) else {
            continue;
        };
        let Some(power) = least.checked_ilog2() else {
            continue;
        };
        let power = power as usize;
        if counts.len() <= power {
            counts.resize(power + 1, 0);
        }
        counts[power] += count;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perfs_count_is_its_lines_first_word() {
        let said = "12345,,raw_syscalls:sys_enter,1000213,100.00,,\n";
        assert_eq!(count(said), Some(12_345));
        assert_eq!(
            count("<not counted>,,raw_syscalls:sys_enter,0,0.00,,"),
            None
        );
        assert_eq!(count(""), None);
    }

    #[test]
    fn batches_are_counted_by_powers_of_two() {
        let summary = "uptime:           1.5 s\nreceived batches: 1: 1,234, 4-7: 20, 256: 3\n\
                       sent batches:     1: 7\n";
        let batches = batches(summary).unwrap();
        assert_eq!(batches.received, [1_234, 0, 20, 0, 0, 0, 0, 0, 3]);
        assert_eq!(batches.sent, [7]);
        assert!(super::batches("uptime: 1 s\n").is_none());
        assert_eq!(classes("0: 5, x: 3, 2-3"), [0; 0]);
    }
}
