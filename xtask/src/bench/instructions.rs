//! `xtask bench instructions`: counts our instructions per packet or request.
//!
//! Each workload of the program `instructions` runs twice under callgrind, with different numbers
//! of requests. The difference is the cost without set-up. Other work on the machine does not
//! change this cost, so it can be compared with a committed figure. Workloads on an `AF_XDP` port run
//! as root in a network namespace of their own. The kernel's instructions are not counted.
//!
//! Some counts also have a mark. Snapshots and the access log may cost only a small part of a request, and
//! a 304 or a 206 no more than a 200.

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
/// A request with which a snapshot is compared.
const REQUEST: &str = "http-get-1k-memcopy";
const SNAPSHOT: &str = "http-snapshot";
/// Requests without a log, and the same requests with one.
const LOGGED: [(&str, &str); 2] = [
    (REQUEST, "http-get-1k-logged"),
    ("http-get-1k-precopy", "http-get-1k-precopy-logged"),
];
/// Number of requests between two snapshots of a busy worker, at 100,000 requests a second. On the
/// machine of the comparison a worker serves more, so its snapshots cost less of each request.
const REQUESTS_PER_SNAPSHOT: f64 = 10_000.0;
/// Parts of a request's instructions that snapshots and the access log may add.
const SNAPSHOT_MARK: f64 = 0.01;
const LOG_MARK: f64 = 0.1;
/// Two workloads, and the largest ratio of the first one's instructions to the second one's.
///
/// A 304 or a 206 may cost no more than a whole page of at least the same length. The checksum of a
/// head takes up to 0.5 % more or less, depending on the offset of its date.
const RATIO_MARKS: [(&str, &str, f64); 6] = [
    ("netmap-turn-round-64", "xdp-turn-round-64", 1.10),
    ("netmap-get-1k-precopy", "netmap-get-1k-memcopy", 0.85),
    ("http-304", "http-200-empty", 1.005),
    ("http-206-1k", "http-200-as-206", 1.005),
    ("http-chromium-304", "http-chromium-seen", 1.005),
    ("http-chromium-206", "http-chromium-seen", 1.005),
];
/// Largest number of instructions that some workloads may take.
///
/// Both slots of a packet that is turned round may take 150. The workload's own loop takes 6 more.
const COUNT_MARKS: [(&str, f64); 10] = [
    ("netmap-receive-64", 150.0),
    ("netmap-send-64", 150.0),
    ("netmap-turn-round-64", 156.0),
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

/// Compares the counts with all marks. Returns a line for each mark, and the missed ones again.
fn compare_with_marks(counted: &Counts) -> (String, Vec<String>) {
    // Without a count, a comparison is false, so the mark is missed.
    let count = |name: &str| counted.get(name).copied().unwrap_or(f64::NAN);
    let added = |what: &str, more: f64, request: &str, mark: f64| {
        let part = more / count(request);
        let (percent, most) = (100.0 * part, 100.0 * mark);
        let line = format!("{what}: {percent:.2} % of {request}, at most {most:.0} %");
        (line, part <= mark)
    };
    let snapshot = count(SNAPSHOT) / REQUESTS_PER_SNAPSHOT;
    let mut marks = vec![added("snapshots", snapshot, REQUEST, SNAPSHOT_MARK)];
    marks.extend(LOGGED.map(|(request, logged)| {
        let more = count(logged) - count(request);
        added("the access log", more, request, LOG_MARK)
    }));
    marks.extend(RATIO_MARKS.map(|(name, other, mark)| {
        let ratio = count(name) / count(other);
        let line = format!("{name}: {ratio:.3} times {other}, at most {mark:.3}");
        (line, ratio <= mark)
    }));
    marks.extend(COUNT_MARKS.map(|(name, mark)| {
        let counted = count(name);
        let line = format!("{name}: {counted:.0}, at most {mark:.0}");
        (line, counted <= mark)
    }));
    let (mut lines, mut missed) = (String::new(), Vec::new());
    for (line, is_met) in marks {
        let _ = writeln!(lines, "{line}");
        if !is_met {
            missed.push(line);
        }
    }
    (lines, missed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns counts with which each mark is just met.
    fn just_met() -> Counts {
        let mut counts: Counts = COUNT_MARKS.map(|(name, n)| (name.to_owned(), n)).into();
        for (name, other, mark) in RATIO_MARKS {
            let count = *counts.entry(name.to_owned()).or_insert(2000.0 * mark);
            counts.insert(other.to_owned(), count / mark);
        }
        for (request, logged) in LOGGED {
            counts.insert(request.to_owned(), 2000.0);
            counts.insert(logged.to_owned(), 2200.0);
        }
        counts.insert(SNAPSHOT.to_owned(), 200_000.0);
        counts
    }

    #[test]
    fn a_missed_mark_is_reported() {
        let marks = 1 + LOGGED.len() + RATIO_MARKS.len() + COUNT_MARKS.len();
        let (lines, missed) = compare_with_marks(&just_met());
        assert!(lines.starts_with("snapshots: 1.00 % of http-get-1k-memcopy, at most 1 %\n"));
        assert_eq!((lines.lines().count(), missed.len()), (marks, 0));
        assert_eq!(compare_with_marks(&Counts::new()).1.len(), marks);
        for (name, more, expected) in [
            (SNAPSHOT, 2000.0, "snapshots: 1.01 % of http-get-1k-memcopy"),
            (LOGGED[0].1, 1.0, "the access log: 10.05 % of http-get-1k-m"),
            (LOGGED[1].1, 1.0, "the access log: 10.05 % of http-get-1k-p"),
            (
                "xdp-turn-round-64",
                -1.0,
                "netmap-turn-round-64: 1.108 times",
            ),
            (
                "netmap-get-1k-precopy",
                2.0,
                "netmap-get-1k-precopy: 0.851 times",
            ),
            (
                "dns-turnaround-100",
                1.0,
                "dns-turnaround-100: 1451, at most 1450",
            ),
        ] {
            let mut counts = just_met();
            *counts.get_mut(name).unwrap() += more;
            let missed = compare_with_marks(&counts).1;
            assert_eq!(missed.len(), 1, "{missed:?}");
            assert!(missed[0].starts_with(expected), "{missed:?}");
        }
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
