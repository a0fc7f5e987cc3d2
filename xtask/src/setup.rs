//! `xtask setup`: the Debian packages that building, demo and tests need.

use std::process::Command;

use crate::shell::{self, Failure, Result};

/// What the crates' build scripts need: a C compiler and headers for libbpf
/// and libxdp, libclang for their bindings.
const BUILD: &[&str] = &[
    "build-essential",
    "pkg-config",
    "libelf-dev",
    "zlib1g-dev",
    "libpcap-dev",
    "clang",
    "llvm",
    "libclang-dev",
    "m4",
];

/// What demo and tests run: `ip`, `curl`, `dig`, `ping`, `ethtool`, `sysctl`,
/// `setpriv`, `ntpdig`, and callgrind for the count of instructions.
const RUN: &[&str] = &[
    "iproute2",
    "curl",
    "bind9-dnsutils",
    "iputils-ping",
    "libmemcached-tools",
    "ethtool",
    "procps",
    "util-linux",
    "ntpsec-ntpdig",
    "valgrind",
];

/// Finds what is missing, says so, and installs it.
pub(crate) fn run() -> Result<()> {
    let wanted = || BUILD.iter().chain(RUN).copied();
    if !shell::is_installed("dpkg-query") {
        println!(
            "setup: this is not Debian, so nothing is installed here. Needed, under Debian's \
             names: {}",
            wanted().collect::<Vec<_>>().join(" ")
        );
        return Ok(());
    }
    let missing: Vec<&str> = wanted().filter(|package| !has(package)).collect();
    if missing.is_empty() {
        println!("setup: every package needed is installed");
        return Ok(());
    }
    println!("setup: missing packages: {}", missing.join(" "));
    install(&missing)
}

fn has(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    query.args(["-W", "-f", "${db:Status-Status}", package]);
    shell::output(&mut query).is_ok_and(|output| output.stdout == b"installed")
}

fn install(packages: &[&str]) -> Result<()> {
    let by_hand = format!("apt-get update && apt-get install {}", packages.join(" "));
    let apt = |arguments: &[&str]| -> Result<()> {
        let mut command = shell::as_root("env")?;
        command
            .args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"])
            .args(arguments);
        shell::run(&mut command)
    };
    apt(&["update"])
        .and_then(|()| apt(&[&["install", "-y", "--no-install-recommends"], packages].concat()))
        .map_err(|error| Failure::new(format!("{error}\nInstall them by hand: {by_hand}")))?;
    println!("setup: installed {}", packages.join(" "));
    Ok(())
}

/// Installs those of `packages` that are missing, without letting them start
/// what they bring; returns those that could not be had, and why.
pub(crate) fn install_quietly(packages: &[&'static str]) -> Vec<(&'static str, Failure)> {
    if !shell::is_installed("dpkg-query") {
        return Vec::new();
    }
    let missing = packages.iter().copied().filter(|package| !has(package));
    let missing: Vec<&'static str> = missing.collect();
    let Some(first) = missing.first() else {
        return Vec::new();
    };
    println!("setup: missing packages: {}", missing.join(" "));
    if let Err(failure) = apt_quietly(&["update"]) {
        return vec![(first, failure)];
    }
    // One by one: the others are there when one cannot be had.
    let install = |package: &'static str| {
        let outcome = apt_quietly(&["install", "-y", "--no-install-recommends", package]);
        outcome.err().map(|failure| (package, failure))
    };
    missing.into_iter().filter_map(install).collect()
}

/// Runs apt-get where a package finds neither a service manager that runs nor
/// a runlevel with servers: the first where systemd's folder is hidden, in a
/// mount namespace of its own, the second by what invoke-rc.d is told.
fn apt_quietly(arguments: &[&str]) -> Result<()> {
    const SCRIPT: &str = "\
        if [ -d /run/systemd/system ]; then mount -t tmpfs none /run/systemd || exit 1; fi; \
        exec apt-get -q \"$@\"";
    let mut command = shell::as_root("env")?;
    command
        .args(["DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1"])
        .args(["unshare", "--mount", "sh", "-c", SCRIPT, "sh"])
        .args(arguments);
    shell::run(&mut command)
}

/// Whether `cargo fmt` and `cargo clippy` are there, which only checks need.
pub(crate) fn require_components() -> Result<()> {
    let missing: Vec<&str> = [("fmt", "rustfmt"), ("clippy", "clippy")]
        .into_iter()
        .filter(|(command, _)| {
            let mut cargo = shell::cargo();
            cargo.args([command, "--version"]);
            !shell::output(&mut cargo).is_ok_and(|output| output.status.success())
        })
        .map(|(_, component)| component)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "the Rust toolchain lacks {0}: rustup component add {0}",
        missing.join(" ")
    )))
}
