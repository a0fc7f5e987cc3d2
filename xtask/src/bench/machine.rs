//! Describes the machine and the programs of a measurement.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use procfs::{CpuInfo, Current as _, Meminfo};

use super::rig::{CLIENT_CORE, SERVER_CORE};
use super::usage::Sample;
use crate::shell;

/// Returns the current time, such as `2026-11-21 12:00 UTC`.
pub(crate) fn now() -> String {
    first_line(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"])).unwrap_or_default()
}

/// Returns names and values of the machine's properties.
pub(crate) fn describe() -> Vec<(String, String)> {
    let cpu = CpuInfo::current().ok();
    let cpu = cpu.as_ref();
    let is_virtual = cpu
        .and_then(|cpu| cpu.flags(0))
        .is_some_and(|all| all.contains(&"hypervisor"));
    let kind = if is_virtual {
        "virtual, on a shared host"
    } else {
        "physical"
    };
    let memory = Meminfo::current().map_or(0, |memory| memory.mem_total >> 20);
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let system = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let kernel = first_line(Command::new("uname").args(["-s", "-r", "-m"]));
    let model = cpu.and_then(|cpu| cpu.model_name(0)).unwrap_or("unknown");
    let cores = cpu.map_or(0, CpuInfo::num_cores);
    let pair = |name: &str, value: String| (name.to_owned(), value);
    vec![
        pair("processor", format!("{model}, {cores} cores")),
        pair("memory", format!("{memory} MiB")),
        pair("machine", kind.to_owned()),
        pair(
            "system",
            system.unwrap_or("unknown").trim_matches('"').to_owned(),
        ),
        pair("kernel", kernel.unwrap_or_default()),
    ]
}

/// How long to measure other work on the machine before the first run.
const WATCH: Duration = Duration::from_secs(1);

/// Fraction of a core's time above which other work distorts the figures.
pub(super) const BUSY: f64 = 0.05;

/// Measures how busy both cores are before the first run. Prints a warning if other work would
/// distort the figures.
pub(crate) fn busy_before() -> Result<(String, String)> {
    let first = Sample::take(&[], &[])?;
    std::thread::sleep(WATCH);
    let cost = first.cost_until(&Sample::take(&[], &[])?, 1);
    let text = format!(
        "{:.0} % of core {SERVER_CORE}, {:.0} % of core {CLIENT_CORE}",
        cost.busy * 100.0,
        cost.client_busy * 100.0
    );
    if cost.busy.max(cost.client_busy) > BUSY {
        println!("bench: other work runs on this machine and distorts the figures: {text}");
    }
    Ok(("busy with other work".to_owned(), text))
}

/// Returns the versions of all programs involved, by name.
pub(crate) fn versions(programs: &Path) -> BTreeMap<String, String> {
    let second_word = |command: &mut Command| {
        let line = first_line(command)?;
        line.split_whitespace().nth(1).map(str::to_owned)
    };
    let own = |name| second_word(Command::new(programs.join(name)).arg("--version"));
    let mut git = Command::new("git");
    // Without this option git refuses to run as root in another user's folder.
    git.arg("-c")
        .arg(format!("safe.directory={}", shell::repository().display()))
        .args(["describe", "--always", "--dirty"])
        .current_dir(shell::repository());
    let ours = [
        ("sandstorm", own("sandstorm")),
        ("namestorm", own("namestorm")),
        ("commit", first_line(&mut git)),
        (
            "static-web-server",
            second_word(Command::new("static-web-server").arg("--version")),
        ),
        ("rustc", second_word(Command::new("rustc").arg("--version"))),
    ];
    let packages = [
        ("nginx", "nginx"),
        ("lighttpd", "lighttpd"),
        ("h2o", "h2o"),
        ("Caddy", "caddy"),
        ("NSD", "nsd"),
        ("Knot DNS", "knot"),
        ("BIND", "bind9"),
        ("wrk", "wrk"),
        ("dnsperf", "dnsperf"),
        ("kxdpgun", "knot-dnsutils"),
    ];
    let package = |(name, package)| {
        let mut query = Command::new("dpkg-query");
        (
            name,
            first_line(query.args(["-W", "-f", "${Version}", package])),
        )
    };
    let all = ours.into_iter().chain(packages.map(package));
    all.filter_map(|(name, version)| Some((name.to_owned(), version?)))
        .collect()
}

/// Returns the first line of a command's output, if the command succeeds.
fn first_line(command: &mut Command) -> Option<String> {
    let text = shell::capture_text(command).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}
