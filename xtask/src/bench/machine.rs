//! What the results were measured on, and with.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::servers::{self, Program};
use super::usage::{Sample, Usage, Watched};
use crate::shell::{self, Result};

/// The time, as `2026-11-21 12:00 UTC`.
pub(crate) fn now() -> String {
    said(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"])).unwrap_or_default()
}

/// Pairs of a name and a value.
pub(crate) fn describe() -> Vec<(String, String)> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = value(&cpu, "model name", ':').unwrap_or("unknown");
    let cores = cpu
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let memory = read("/proc/meminfo");
    let memory: u64 = value(&memory, "MemTotal", ':')
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(0);
    let release = read("/etc/os-release");
    let system = value(&release, "PRETTY_NAME", '=').unwrap_or("unknown");
    let kernel = said(Command::new("uname").args(["-s", "-r", "-m"])).unwrap_or_default();
    let hypervisor = cpu
        .lines()
        .any(|line| line.starts_with("flags") && line.split(' ').any(|flag| flag == "hypervisor"));
    let kind = if hypervisor {
        "virtual, on a host that is shared"
    } else {
        "of its own"
    };
    [
        ("processor", model.to_owned()),
        ("cores", cores.to_string()),
        ("memory", format!("{} MiB", memory / 1024)),
        ("machine", kind.to_owned()),
        ("system", system.trim_matches('"').to_owned()),
        ("kernel", kernel),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// How long the machine is looked at before the first run.
const LOOK: Duration = Duration::from_secs(1);

/// Above this part of both cores, other work is in the way.
const BUSY: f64 = 0.05;

/// Part of the time that the two cores are busy while nothing of ours runs;
/// says so when it is too much.
pub(crate) fn busy_before(cores: [usize; 2]) -> Result<(String, String)> {
    let watched = Watched {
        cores,
        server: Vec::new(),
        interface: "",
        receivers: [Vec::new(), Vec::new()],
    };
    let first = Sample::take(&watched)?;
    std::thread::sleep(LOOK);
    let usage = Usage::between(&first, &Sample::take(&watched)?);
    let [server, client] = usage.busy.map(|part| part * 100.0);
    let text = format!(
        "{server:.0} % of core {}, {client:.0} % of core {}",
        cores[0], cores[1]
    );
    if usage.busy.iter().any(|part| *part > BUSY) {
        println!("bench: other work is on this machine, figures will be off: {text}");
    }
    Ok(("busy before with other work".to_owned(), text))
}

/// The value of the first line `NAME SEPARATOR VALUE`.
fn value<'a>(text: &'a str, name: &str, separator: char) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (label, value) = line.split_once(separator)?;
        (label.trim() == name).then(|| value.trim())
    })
}

/// Versions of everything that takes part, by name.
pub(crate) fn versions(programs: &Path) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    for name in ["sandstorm", "namestorm"] {
        let text = said(Command::new(programs.join(name)).arg("--version"));
        let version = text.as_deref().and_then(|text| text.split(' ').nth(1));
        versions.extend(version.map(|version| (name.to_owned(), version.to_owned())));
    }
    let mut git = Command::new("git");
    // Root may not look into the folder of another user without this.
    git.arg("-c")
        .arg(format!("safe.directory={}", shell::repository().display()))
        .args(["describe", "--always", "--dirty"])
        .current_dir(shell::repository());
    versions.extend(said(&mut git).map(|commit| ("commit".to_owned(), commit)));
    let rust = said(Command::new("rustc").arg("--version"));
    let rust = rust.as_deref().and_then(|text| text.split(' ').nth(1));
    versions.extend(rust.map(|version| ("rustc".to_owned(), version.to_owned())));
    let peers = [
        Program::Nginx { busy_poll: false },
        Program::Lighttpd,
        Program::H2o,
        Program::Nsd { xdp: false },
        Program::Knot { xdp: false },
        Program::Bind,
    ];
    let of_peers = peers
        .into_iter()
        .filter_map(|peer| Some((peer.name(), peer.package()?.0)));
    let others = [
        ("wrk", "wrk"),
        ("dnsperf", "dnsperf"),
        ("kxdpgun", "knot-dnsutils"),
    ];
    let others = others.map(|(name, package)| (name.to_owned(), package));
    for (name, package) in of_peers.chain(others) {
        versions.extend(servers::package_version(package).map(|version| (name, version)));
    }
    versions
}

/// The first line that a command prints, when it succeeds.
fn said(command: &mut Command) -> Option<String> {
    let text = shell::capture_text(command).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_names() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: other\n";
        assert_eq!(value(text, "model name", ':'), Some("Some CPU @ 2 GHz"));
        assert_eq!(value(text, "model", ':'), None);
        assert_eq!(value("A=\"b c\"\n", "A", '='), Some("\"b c\""));
    }

    #[test]
    fn the_machine_has_a_kernel_and_the_time_a_zone() {
        let machine = describe();
        assert!(
            machine
                .iter()
                .any(|(name, value)| name == "kernel" && value.contains("Linux"))
        );
        assert!(now().ends_with(" UTC"));
    }
}
