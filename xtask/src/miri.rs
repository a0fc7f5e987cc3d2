//! `xtask miri`: the tests that run under Miri, which finds undefined
//! behaviour that no result shows.

use std::process::Command;

use crate::shell::{self, Failure, Result};

/// Packages, and the modules whose tests make no system call that Miri lacks.
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
/// Tests that count what befalls tens of thousands of frames, all of which take
/// the same way through the code: each would take an hour.
const SKIPPED: [&str; 2] = [
    "bursts_lose_frames_that_follow_each_other",
    "losses_are_as_many_as_asked_for",
];
/// Of each property so many cases: Miri takes a thousand times as long.
const CASES: &str = "4";

/// Runs the command.
pub(crate) fn run() -> Result<()> {
    require_miri()?;
    let target = shell::target_folder()?.join("miri");
    for (package, modules) in TESTS {
        let mut test = nightly(&["miri", "test", "-p", package, "--lib", "--"]);
        test.args(modules)
            .args(SKIPPED.iter().flat_map(|name| ["--skip", *name]))
            .env("CARGO_TARGET_DIR", &target)
            .env("PROPTEST_CASES", CASES)
            // Properties look for the file of failures that they keep.
            .env("MIRIFLAGS", "-Zmiri-disable-isolation");
        shell::run(&mut test)?;
    }
    Ok(())
}

/// A command of the nightly toolchain's cargo.
fn nightly(args: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo"])
        .args(args)
        .current_dir(shell::repository())
        // Our own toolchain's, which cargo has set for us.
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN");
    command
}

fn require_miri() -> Result<()> {
    let version = shell::output(&mut nightly(&["miri", "--version"]));
    if version.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    Err(Failure::new(
        "Miri is missing: rustup toolchain install nightly --component miri --component rust-src",
    ))
}
