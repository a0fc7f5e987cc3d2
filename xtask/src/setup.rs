//! `xtask setup`: installs the Debian packages that the build, the demo and the tests need.

use std::process::Command;

use crate::shell;
use anyhow::{Context as _, Result, ensure};

/// Packages that build scripts need: a C compiler, libraries for libbpf, and clang for the steering
/// program.
const BUILD: &[&str] = &[
    "build-essential",
    "pkg-config",
    "libelf-dev",
    "zlib1g-dev",
    "clang",
];

/// Packages of the programs that the demo and the tests run: `ip`, `curl`, `dig`,
/// `ping`, `memcping`, `ethtool`, `sysctl`, `setpriv`, `ntpdig`, and callgrind.
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

/// The apt-get arguments that precede the names of the packages to install.
const INSTALL: &str = "install -y --no-install-recommends";

/// Prints and installs the missing packages.
pub(crate) fn run() -> Result<()> {
    let packages = || BUILD.iter().chain(RUN).copied();
    if !shell::is_installed("dpkg-query") {
        println!(
            "setup: this is not Debian, so nothing is installed. These packages are needed, \
             by their Debian names: {}",
            packages().collect::<Vec<_>>().join(" ")
        );
        return Ok(());
    }
    let missing: Vec<&str> = packages().filter(|package| !has(package)).collect();
    if missing.is_empty() {
        println!("setup: all packages are installed");
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
    let packages = packages.join(" ");
    let apt = |arguments: &str| -> Result<()> {
        let mut command = shell::as_root("env")?;
        command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]);
        shell::run(command.args(arguments.split(' ')))
    };
    apt("update")
        .and_then(|()| apt(&format!("{INSTALL} {packages}")))
        .with_context(|| format!("installing {packages} with apt-get"))?;
    println!("setup: installed {packages}");
    Ok(())
}

/// Installs the packages that are missing, without starting their services. Returns the packages
/// that could not be installed, each with its error. If `apt-get update` fails, returns only the
/// first missing package.
pub(crate) fn install_quietly(packages: &[&'static str]) -> Vec<(&'static str, anyhow::Error)> {
    if !shell::is_installed("dpkg-query") {
        return Vec::new();
    }
    let missing = packages.iter().copied().filter(|package| !has(package));
    let missing: Vec<&'static str> = missing.collect();
    let Some(first) = missing.first() else {
        return Vec::new();
    };
    println!("setup: missing packages: {}", missing.join(" "));
    if let Err(failure) = apt_quietly("update") {
        return vec![(first, failure)];
    }
    // Install packages one by one, so that an unavailable package does not block the others.
    let install = |package: &'static str| {
        let outcome = apt_quietly(&format!("{INSTALL} {package}"));
        outcome.err().map(|failure| (package, failure))
    };
    missing.into_iter().filter_map(install).collect()
}

/// Runs apt-get so that no package starts its service. A mount namespace hides systemd's folder, so
/// systemd seems not to run. `RUNLEVEL=1` makes invoke-rc.d assume single-user mode.
fn apt_quietly(arguments: &str) -> Result<()> {
    const SCRIPT: &str = "\
        if [ -d /run/systemd/system ]; then mount -t tmpfs none /run/systemd || exit 1; fi; \
        exec apt-get -q \"$@\"";
    let mut command = shell::as_root("env")?;
    command
        .args(["DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1"])
        .args(["unshare", "--mount", "sh", "-c", SCRIPT, "sh"])
        .args(arguments.split(' '));
    shell::run(&mut command)
}

/// Returns an error unless `cargo fmt` and `cargo clippy` are installed.
pub(crate) fn require_components() -> Result<()> {
    for (command, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        ensure!(
            shell::succeeds(shell::cargo().args([command, "--version"])),
            "the Rust toolchain lacks {component}: rustup component add {component}"
        );
    }
    Ok(())
}
