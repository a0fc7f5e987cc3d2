//! `xtask bench instructions`: what a packet or a request costs our own code,
//! in instructions.
//!
//! Each workload of the program `instructions` is run twice under callgrind
//! with different numbers of requests; the difference, divided, is the cost
//! of one, without the set-up. It is the one absolute figure that does not
//! depend on the machine's mood, so it can be compared with a committed one.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::shell::{self, Context as _, Failure, Result};
use crate::{interrupt, setup};

/// Requests in the first run: enough for every table, cache and spare copy to
/// have its size.
const FEW: u64 = 1_024;
/// Requests in the second run. The difference is a multiple of every batch.
const MANY: u64 = FEW + 10_240;
/// A figure may grow by this part before the check fails.
const TOLERANCE: f64 = 0.03;
/// glibc chooses its way to copy memory by the processor. These take the
/// choices away that differ between processors of today, so that what is
/// counted on one is counted on all.
const TUNABLES: &str =
    "glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-ERMS,-FSRM,-AVX_Fast_Unaligned_Load";
/// Where the baseline lies in the repository.
const BASELINE: &str = "benches/instructions.json";

/// What the code has cost when it was last accepted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Baseline {
    /// The first line of `rustc --version`.
    pub(crate) rustc: String,
    /// The target that was compiled for.
    pub(crate) target: String,
    /// The day, as 2026-11-21.
    pub(crate) date: String,
    /// Instructions a request, by workload.
    pub(crate) instructions: BTreeMap<String, f64>,
}

impl Baseline {
    /// The committed one.
    pub(crate) fn read() -> Result<Self> {
        let path = baseline_path();
        let text = std::fs::read(&path).context(format_args!(
            "reading {}, which `cargo xtask bench instructions --accept` writes",
            path.display()
        ))?;
        serde_json::from_slice(&text).context(format_args!("reading {}", path.display()))
    }

    fn write(&self) -> Result<()> {
        let path = baseline_path();
        let mut text = serde_json::to_string_pretty(self).context("writing JSON")?;
        text.push('\n');
        std::fs::write(&path, text).context(format_args!("writing {}", path.display()))
    }
}

fn baseline_path() -> PathBuf {
    shell::repository().join(BASELINE)
}

/// What to do with the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Show,
    Check,
    Accept,
}

/// Runs the command; an error when a figure has grown, with `--check`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let purpose = match args {
        [] => Purpose::Show,
        [arg] if arg == "--check" => Purpose::Check,
        [arg] if arg == "--accept" => Purpose::Accept,
        _ => {
            return Err(Failure::new(format!(
                "instructions takes --check or --accept, not {}",
                args.join(" ")
            )));
        }
    };
    setup::run()?;
    let counted = count()?;
    if purpose == Purpose::Accept {
        let (rustc, target) = compiler()?;
        let mut date = Command::new("date");
        date.args(["-u", "+%Y-%m-%d"]);
        let new = Baseline {
            rustc,
            target,
            date: shell::capture_text(&mut date)?.trim().to_owned(),
            instructions: counted,
        };
        let old = Baseline::read().unwrap_or_default();
        print!("{}", Comparison::new(&new.instructions, &old.instructions));
        new.write()?;
        println!("written to {BASELINE}: commit it");
        return Ok(());
    }
    let baseline = Baseline::read()?;
    let comparison = Comparison::new(&counted, &baseline.instructions);
    print!("{comparison}");
    let (rustc, target) = compiler()?;
    println!("baseline: {}, {}", baseline.date, baseline.rustc);
    if target != baseline.target {
        println!(
            "the baseline is for {}, this is {target}: nothing to check against",
            baseline.target
        );
        return Ok(());
    }
    if rustc != baseline.rustc {
        println!("this is {rustc}: a difference may be the compiler's");
    }
    let objections = comparison.objections();
    if purpose == Purpose::Check && !objections.is_empty() {
        return Err(Failure::new(format!(
            "{}\nMend it, or accept it with `cargo xtask bench instructions --accept`",
            objections.join("\n")
        )));
    }
    Ok(())
}

/// Builds the program and counts all of its workloads: instructions a
/// request, by workload.
pub(crate) fn count() -> Result<BTreeMap<String, f64>> {
    let mut build = shell::cargo();
    build.args([
        "build",
        "--release",
        "-p",
        "benches",
        "--bin",
        "instructions",
    ]);
    shell::run(&mut build)?;
    let program = shell::target_folder()?.join("release/instructions");
    let mut list = Command::new(&program);
    list.arg("--list");
    let list = shell::capture_text(&mut list)?;
    let workloads: Vec<&str> = list.lines().collect();
    println!("counting: {} workloads under callgrind", workloads.len());
    count_all(&program, &workloads)
}

/// Counts on all cores: what else runs changes no count.
fn count_all(program: &Path, workloads: &[&str]) -> Result<BTreeMap<String, f64>> {
    let left = Mutex::new(workloads.iter());
    let lanes = std::thread::available_parallelism().map_or(1, NonZero::get);
    let next = || {
        left.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next()
            .copied()
    };
    let lane = || -> Result<Vec<(String, f64)>> {
        let mut counted = Vec::new();
        while let Some(workload) = next() {
            interrupt::check()?;
            let few = total(program, workload, FEW)?;
            let many = total(program, workload, MANY)?;
            let one = many.saturating_sub(few) as f64 / (MANY - FEW) as f64;
            // More digits would be the allocator's, not the code's.
            counted.push((workload.to_owned(), (one * 10.0).round() / 10.0));
        }
        Ok(counted)
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
        let mut all = BTreeMap::new();
        for lane in lanes {
            let counted = lane.join().map_err(|_| Failure::new("a count panicked"))?;
            all.extend(counted?);
        }
        Ok(all)
    })
}

/// All instructions of one run.
fn total(program: &Path, workload: &str, requests: u64) -> Result<u64> {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([workload, &requests.to_string()])
        .env("GLIBC_TUNABLES", TUNABLES);
    let output = shell::output(&mut command)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(Failure::new(format!(
            "{} ended with {}:\n{said}",
            shell::shown(&command),
            output.status
        )));
    }
    collected(&said)
        .ok_or_else(|| Failure::new(format!("{} told no count:\n{said}", shell::shown(&command))))
}

/// The total in what callgrind writes at its end.
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().find_map(|line| line.split_once("Collected :"));
    line?.1.trim().parse().ok()
}

/// `rustc --version`, and the target that it compiles for.
fn compiler() -> Result<(String, String)> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.arg("-vV").current_dir(shell::repository());
    let said = shell::capture_text(&mut rustc)?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok((
        said.lines().next().unwrap_or_default().to_owned(),
        host.unwrap_or_default().to_owned(),
    ))
}

/// Figures beside those of the baseline, by workload.
#[derive(Debug)]
struct Comparison<'a>(BTreeMap<&'a str, (Option<f64>, Option<f64>)>);

impl<'a> Comparison<'a> {
    fn new(counted: &'a BTreeMap<String, f64>, baseline: &'a BTreeMap<String, f64>) -> Self {
        let names = counted.keys().chain(baseline.keys());
        let of = |map: &BTreeMap<String, f64>, name: &str| map.get(name).copied();
        Self(
            names
                .map(|name| (name.as_str(), (of(counted, name), of(baseline, name))))
                .collect(),
        )
    }

    /// What a check fails for, one line each.
    fn objections(&self) -> Vec<String> {
        let objection = |(name, figures): (&&str, &(Option<f64>, Option<f64>))| match *figures {
            (Some(new), Some(old)) if new > old * (1.0 + TOLERANCE) => Some(format!(
                "{name} has grown from {old:.1} to {new:.1} instructions ({:+.1} %; {} % are allowed)",
                100.0 * (new / old - 1.0),
                100.0 * TOLERANCE
            )),
            (Some(_), None) => Some(format!("{name} is not in the baseline")),
            (None, Some(_)) => Some(format!("{name} is in the baseline, and not measured")),
            _ => None,
        };
        self.0.iter().filter_map(objection).collect()
    }
}

impl fmt::Display for Comparison<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |figure: Option<f64>| figure.map_or("-".to_owned(), |n| format!("{n:.1}"));
        writeln!(
            f,
            "{:26}{:>14}{:>12}{:>10}",
            "workload", "instructions", "baseline", "change"
        )?;
        for (name, (new, old)) in &self.0 {
            let change = match (new, old) {
                (Some(new), Some(old)) if *old > 0.0 => {
                    format!("{:+.1} %", 100.0 * (new / old - 1.0))
                }
                _ => String::new(),
            };
            let line = format!(
                "{name:26}{:>14}{:>12}{change:>10}",
                shown(*new),
                shown(*old)
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(list: &[(&str, f64)]) -> BTreeMap<String, f64> {
        let pair = |&(name, n): &(&str, f64)| (name.to_owned(), n);
        list.iter().map(pair).collect()
    }

    #[test]
    fn the_total_is_read_from_callgrinds_last_words() {
        let said = "==42== Events    : Ir\n==42== Collected : 18446744\n==42== \n";
        assert_eq!(collected(said), Some(18_446_744));
        assert_eq!(collected("==42== Collected : many\n"), None);
        assert_eq!(collected("nothing\n"), None);
    }

    #[test]
    fn what_has_grown_beyond_the_tolerance_is_named() {
        let old = figures(&[("a", 1000.0), ("b", 1000.0), ("c", 1000.0), ("gone", 5.0)]);
        let new = figures(&[("a", 1029.9), ("b", 1030.1), ("c", 500.0), ("new", 7.0)]);
        let objections = Comparison::new(&new, &old).objections();
        assert_eq!(
            objections,
            [
                "b has grown from 1000.0 to 1030.1 instructions (+3.0 %; 3 % are allowed)",
                "gone is in the baseline, and not measured",
                "new is not in the baseline",
            ]
        );
        assert!(Comparison::new(&old, &old).objections().is_empty());
    }

    #[test]
    fn the_table_has_a_line_for_each_workload() {
        let old = figures(&[("a", 1000.0)]);
        let new = figures(&[("a", 990.0), ("longer-name", 7.04)]);
        assert_eq!(
            Comparison::new(&new, &old).to_string(),
            "workload                    instructions    baseline    change\n\
             a                                  990.0      1000.0    -1.0 %\n\
             longer-name                          7.0           -\n"
        );
    }

    #[test]
    fn the_committed_baseline_is_whole() {
        let baseline = Baseline::read().unwrap();
        assert!(baseline.rustc.starts_with("rustc 1."));
        assert!(!baseline.target.is_empty() && baseline.date.len() == 10);
        assert!(baseline.instructions.len() >= 16);
        assert!(baseline.instructions.values().all(|n| *n > 0.0));
    }
}
