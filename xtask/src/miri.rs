//! `xtask miri`: runs tests under Miri, which detects undefined behaviour.

use std::process::Command;

use crate::shell;
use anyhow::{Result, ensure};

/// Packages, each with the modules whose system calls Miri supports. An empty list means all
/// modules.
const TESTS: [(&str, &[&str]); 2] = [
    (
        "nmio",
        &[
            "frame::",
            "copies::",
            "checksum::",
            "port::",
            "super_segment::",
            "timer::",
            "sim::",
            "idle::",
        ],
    ),
    ("netmap-sys", &[]),
];
/// Tests to skip. Each sends tens of thousands of frames, which takes an hour under Miri.
const SKIPPED: [&str; 2] = [
    "bursts_lose_consecutive_frames",
    "the_loss_rate_is_as_configured",
];
/// Number of cases per property test. It is small because Miri is about a thousand times slower
/// than native code.
const CASES: &str = "4";

/// Runs the command.
pub(crate) fn run() -> Result<()> {
    ensure!(
        shell::succeeds(&mut nightly(&["miri", "--version"])),
        "Miri is missing: rustup toolchain install nightly --component miri --component rust-src"
    );
    let target = shell::target_folder()?.join("miri");
    for (package, modules) in TESTS {
        let mut test = nightly(&["miri", "test", "-p", package, "--lib", "--"]);
        test.args(modules)
            .args(SKIPPED.iter().flat_map(|name| ["--skip", *name]))
            .env("CARGO_TARGET_DIR", &target)
            .env("PROPTEST_CASES", CASES)
            // Property tests read the files that record their earlier failures.
            .env("MIRIFLAGS", "-Zmiri-disable-isolation");
        shell::run(&mut test)?;
    }
    Ok(())
}

/// Returns a command that runs the nightly toolchain's cargo.
fn nightly(args: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo"])
        .args(args)
        .current_dir(shell::repository())
        // Cargo has set these variables to the current toolchain, which must not be used here.
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN");
    command
}
