//! `xtask bench instructions`: counts our instructions per packet or request.
//!
//! Each workload of the program `instructions` runs twice under callgrind, with different numbers
//! of requests. The difference is the cost without set-up. Other work on the machine does not
//! change this cost, so it can be compared with a committed figure. Workloads on an `AF_XDP` port run
//! as root in a network namespace of their own. The kernel's instructions are not counted.
//!
//! Some counts also have a mark: snapshots and the access log may cost only a small part of a request.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use super::machine;
use crate::shell;
use crate::{interrupt, setup};

/// Number of requests in the first run. They bring every table, cache and spare copy to its final
/// size.
const FEW: u64 = 1_024;
/// Number of requests in the second run. It exceeds [`FEW`] by a multiple of every batch size.
const MANY: u64 = FEW + 10_240;
/// Relative growth of a count above which the check fails.
const TOLERANCE: f64 = 0.03;
/// glibc tunables that hide processor features from glibc. It then selects the same `memcpy` on all
/// current processors.
const TUNABLES: &str =
    "glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-ERMS,-FSRM,-AVX_Fast_Unaligned_Load";
/// Functions whose instructions are not counted, as callgrind's patterns: the simulated netmap
/// kernel, and what a workload does in place of a client.
const UNCOUNTED: [&str; 2] = ["*SimulatedKernel as *::sync_*", "*::uncounted_*"];
/// Start of the names of workloads that need root, and a network namespace of their own.
const ON_A_PAIR: &str = "xdp-";
/// A request without a log, and what watching it adds.
const REQUEST: &str = "http-get-1k-memcopy";
const LOGGED: &str = "http-get-1k-logged";
const SNAPSHOT: &str = "http-snapshot";
/// Number of requests between two snapshots of a busy worker, at 100,000 requests a second. On the
/// machine of the comparison a worker serves more, so its snapshots cost less of each request.
const REQUESTS_PER_SNAPSHOT: f64 = 10_000.0;
/// Parts of a request's instructions that snapshots and the access log may add.
const SNAPSHOT_MARK: f64 = 0.01;
const LOG_MARK: f64 = 0.1;
/// Largest number of instructions that some kinds of DNS answers may take.
const ANSWER_MARKS: [(&str, f64); 7] = [
    ("dns-turnaround-100", 1_450.0),
    ("dns-memcopy-100", 1_450.0),
    ("dns-precopy-100", 1_450.0),
    ("dns-fqdn-100", 1_450.0),
    ("dns-many-zones", 1_450.0),
    ("dns-signed", 1_450.0),
    ("dns-signed-nxdomain-nsec3", 6_000.0),
];
/// Path of the committed counts in the repository.
const BASELINE: &str = "benches/instructions.json";

/// Options of `cargo xtask bench instructions`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// Fail if a count is more than 3 % above the committed one, or if a mark is missed.
    #[arg(long)]
    check: bool,

    /// Write the counts to benches/instructions.json.
    #[arg(long, conflicts_with = "check")]
    accept: bool,
}

/// The committed counts, with which new counts are compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Baseline {
    /// First line of `rustc --version` when the counts were made.
    rustc: String,
    /// Target triple for which the program was compiled.
    target: String,
    /// Date of the counts, such as 2026-11-21.
    date: String,
    /// Number of instructions per request, by workload.
    pub(crate) instructions: BTreeMap<String, f64>,
}

impl Baseline {
    /// Reads the committed counts.
    pub(crate) fn read() -> Result<Self> {
        let text = std::fs::read(baseline_path()).with_context(|| {
            format!("reading {BASELINE}, which `cargo xtask bench instructions --accept` writes")
        })?;
        serde_json::from_slice(&text).with_context(|| format!("reading {BASELINE}"))
    }
}

fn baseline_path() -> PathBuf {
    shell::repository().join(BASELINE)
}

pub(crate) fn run(options: &Options) -> Result<()> {
    setup::run()?;
    let counted = count()?;
    let (rustc, target) = compiler()?;
    let baseline = if options.accept {
        Baseline::read().unwrap_or_default()
    } else {
        Baseline::read()?
    };
    let (table, mut objections) = compare(&counted, &baseline.instructions);
    let (shares, missed) = compare_with_marks(&counted);
    objections.extend(missed);
    print!("{table}{shares}");
    if options.accept {
        let new = Baseline {
            rustc,
            target,
            date: machine::now().chars().take("2026-11-21".len()).collect(),
            instructions: counted,
        };
        let text = serde_json::to_string_pretty(&new).context("writing JSON")? + "\n";
        std::fs::write(baseline_path(), text).with_context(|| format!("writing {BASELINE}"))?;
        println!("written to {BASELINE}; `cargo xtask bench figures` quotes it in README");
        return Ok(());
    }
    println!("baseline: {}, {}", baseline.date, baseline.rustc);
    if target != baseline.target {
        println!(
            "the baseline is for {}, not for {target}: no check",
            baseline.target
        );
        return Ok(());
    }
    if rustc != baseline.rustc {
        println!("the compiler is {rustc}, which may explain a difference");
    }
    if options.check && !objections.is_empty() {
        bail!(
            "{}\nMake it cheaper, or accept it: cargo xtask bench instructions --accept",
            objections.join("\n")
        );
    }
    Ok(())
}

/// Counts the instructions per request of all workloads, using all cores.
fn count() -> Result<BTreeMap<String, f64>> {
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
    let list = shell::capture_text(Command::new(&program).arg("--list"))?;
    let workloads: Vec<&str> = list.lines().collect();
    println!("counting: {} workloads under callgrind", workloads.len());
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let count = |first: usize| -> Result<Vec<(String, f64)>> {
        let mut counted = Vec::new();
        for workload in workloads.iter().skip(first).step_by(cores) {
            interrupt::check()?;
            let (few, many) = (
                total(&program, workload, FEW)?,
                total(&program, workload, MANY)?,
            );
            let one = many.saturating_sub(few) as f64 / (MANY - FEW) as f64;
            // Further digits are noise, because the allocator's work varies.
            counted.push(((*workload).to_owned(), (one * 10.0).round() / 10.0));
        }
        Ok(counted)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores)
            .map(|first| scope.spawn(move || count(first)))
            .collect();
        let mut all = BTreeMap::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| anyhow!("a count panicked"))??);
        }
        Ok(all)
    })
}

/// Returns the number of instructions in one run.
fn total(program: &Path, workload: &str, requests: u64) -> Result<u64> {
    let tunables = format!("GLIBC_TUNABLES={TUNABLES}");
    let mut command = if workload.starts_with(ON_A_PAIR) {
        let mut command = shell::as_root("unshare")?;
        command.args(["--net", "env"]);
        command
    } else {
        Command::new("env")
    };
    command
        .args([&tunables, "valgrind", "--tool=callgrind"])
        .arg("--callgrind-out-file=/dev/null")
        .args(UNCOUNTED.map(|name| format!("--toggle-collect={name}")))
        // Without this option, callgrind would count only these functions.
        .arg("--collect-atstart=yes")
        .arg(program)
        .args([workload, &requests.to_string()]);
    let output = shell::output(&mut command)?;
    let text = String::from_utf8_lossy(&output.stderr);
    collected(&text)
        .filter(|_| output.status.success())
        .ok_or_else(|| {
            let (shown, status) = (shell::shown(&command), output.status);
            anyhow!("{shown} ended with {status} and counted nothing:\n{text}")
        })
}

/// Returns the total at the end of callgrind's output.
fn collected(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.split_once("Collected :"));
    line?.1.trim().parse().ok()
}

/// Returns `rustc --version` and the target triple.
fn compiler() -> Result<(String, String)> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let text = shell::capture_text(rustc.arg("-vV").current_dir(shell::repository()))?;
    let line = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
    let version = line("rustc ").map(|version| format!("rustc {version}"));
    Ok((
        version.unwrap_or_default(),
        line("host: ").unwrap_or_default().to_owned(),
    ))
}

type Counts = BTreeMap<String, f64>;

/// Returns a table of all workloads, and the reasons why the check fails, if any.
fn compare(counted: &Counts, baseline: &Counts) -> (String, Vec<String>) {
    let mut table = format!(
        "{:26}{:>14}{:>12}  change\n",
        "workload", "instructions", "baseline"
    );
    let mut objections = Vec::new();
    let mut names: Vec<&String> = counted.keys().chain(baseline.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let (new, old) = (counted.get(name), baseline.get(name));
        let shown = |count: Option<&f64>| count.map_or("-".to_owned(), |n| format!("{n:.1}"));
        let mut change = String::new();
        match (new, old) {
            (Some(new), Some(old)) => {
                change = format!("{:+.1} %", 100.0 * (new / old - 1.0));
                if *new > old * (1.0 + TOLERANCE) {
                    objections.push(format!("{name} grew from {old:.1} to {new:.1} ({change})"));
                }
            }
            (None, _) => objections.push(format!("{name} is in the baseline but not measured")),
            (_, None) => objections.push(format!("{name} is not in the baseline")),
        }
        let _ = writeln!(
            table,
            "{name:26}{:>14}{:>12}  {change}",
            shown(new),
            shown(old)
        );
    }
    (table, objections)
}

/// Returns lines with what snapshots and the access log add to a request and with the marks of answers. Also
/// returns the missed marks.
fn compare_with_marks(counted: &Counts) -> (String, Vec<String>) {
    let count = |name: &str| counted.get(name).copied().unwrap_or(f64::NAN);
    let request = count(REQUEST);
    let (mut lines, mut missed) = (String::new(), Vec::new());
    for (what, added, mark) in [
        (
            "snapshots",
            count(SNAPSHOT) / REQUESTS_PER_SNAPSHOT,
            SNAPSHOT_MARK,
        ),
        ("the access log", count(LOGGED) - request, LOG_MARK),
    ] {
        let part = added / request;
        let line = format!(
            "{what}: {:.2} % of a request, at most {:.0} %",
            100.0 * part,
            100.0 * mark
        );
        let _ = writeln!(lines, "{line}");
        // Without a count, the part is not a number.
        if part.is_nan() || part > mark {
            missed.push(line);
        }
    }
    for (name, mark) in ANSWER_MARKS {
        let counted = count(name);
        let line = format!("{name}: {counted:.0}, at most {mark:.0}");
        let _ = writeln!(lines, "{line}");
        if counted.is_nan() || counted > mark {
            missed.push(line);
        }
    }
    (lines, missed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_mark_is_reported() {
        let counted = |logged, snapshot| {
            let counts = [(REQUEST, 2000.0), (LOGGED, logged), (SNAPSHOT, snapshot)];
            let counts = counts.into_iter().chain(ANSWER_MARKS);
            counts
                .map(|(name, count)| (name.to_owned(), count))
                .collect()
        };
        let (lines, missed) = compare_with_marks(&counted(2200.0, 200_000.0));
        assert!(lines.starts_with("snapshots: 1.00 % of a request, at most 1 %\n"));
        assert!(missed.is_empty());
        let (_, missed) = compare_with_marks(&counted(2201.0, 201_000.0));
        assert_eq!(missed.len(), 2);
        assert_eq!(
            compare_with_marks(&Counts::new()).1.len(),
            2 + ANSWER_MARKS.len()
        );
        let mut counts: Counts = counted(2200.0, 200_000.0);
        *counts.get_mut("dns-turnaround-100").unwrap() += 1.0;
        let expected = ["dns-turnaround-100: 1451, at most 1450"];
        assert_eq!(compare_with_marks(&counts).1, expected);
    }

    #[test]
    fn growth_beyond_the_tolerance_is_reported() {
        assert_eq!(
            collected("==42== Events    : Ir\n==42== Collected : 184\n"),
            Some(184)
        );
        let counts = |list: &[(&str, f64)]| {
            list.iter()
                .map(|(name, n)| ((*name).to_owned(), *n))
                .collect::<Counts>()
        };
        let old = counts(&[("a", 1000.0), ("b", 1000.0), ("c", 1000.0), ("gone", 5.0)]);
        let new = counts(&[("a", 1029.9), ("b", 1030.1), ("c", 500.0), ("new", 7.0)]);
        let (table, objections) = compare(&new, &old);
        assert_eq!(
            objections,
            [
                "b grew from 1000.0 to 1030.1 (+3.0 %)",
                "gone is in the baseline but not measured",
                "new is not in the baseline",
            ]
        );
        assert_eq!(table.lines().count(), 6);
        assert!(compare(&old, &old).1.is_empty());
    }
}
