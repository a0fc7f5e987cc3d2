//! The contract test of ports, in a guest with two network cards on one hub.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::cases::Case;
use super::machine::Guest;
use crate::e2e::checks::Checks;
use crate::shell;

/// Name of the test program, also in the guest.
const PROGRAM: &str = "device";
/// Time limit for the tests of a case.
const LIMIT: Duration = Duration::from_mins(5);

/// Returns the file of the test program.
pub(super) fn program(folder: &Path) -> PathBuf {
    folder.join(PROGRAM)
}

/// Builds the test program, and copies it to where [`program`] finds it.
pub(super) fn build(folder: &Path) -> Result<()> {
    let mut build = shell::cargo();
    build.args(["test", "--release", "-p", "nmio", "--test", PROGRAM]);
    build.args(["--no-run", "--message-format", "json"]);
    let built = shell::capture_text(&mut build)?;
    let executable = built.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        Some(message["executable"].as_str()?.to_owned())
    });
    let executable = executable.context("cargo names no test program")?;
    shell::make_folder(folder)?;
    let copied = std::fs::copy(&executable, program(folder));
    copied.with_context(|| format!("copying {executable}"))?;
    Ok(())
}

/// Runs the tests whose names contain the case's text.
pub(super) fn run(case: &Case, guest: &Guest, checks: &mut Checks) -> Result<()> {
    guest.run("ip link set eth0 address 02:00:00:00:00:09")?;
    guest.run("for end in eth0 eth1; do ip link set $end up promisc on; done")?;
    guest.run("until grep -q up /sys/class/net/eth0/operstate; do usleep 10000; done")?;
    guest.run(&case.set_parameters())?;
    let (device, text) = (case.device, case.expected);
    checks.check(format_args!("tests {text} on {device}"), || {
        let line = format!(
            "NMIO_CONTRACT_DEVICE={device} NMIO_CONTRACT_PEER=eth1 \
             {PROGRAM} --test-threads 1 --nocapture {text}"
        );
        let output = guest.run_within(LIMIT, &line)?;
        let ran = !output.contains("running 0 tests") && !output.contains("skipped");
        ensure!(ran, "no test ran:\n{output}");
        Ok(())
    });
    Ok(())
}
