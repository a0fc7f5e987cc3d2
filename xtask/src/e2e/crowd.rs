//! A crowd: a million clients that have come and say nothing, and a few that
//! ask.

use std::path::Path;

use rustix::process::Signal;

use super::Content;
use super::checks::Checks;
use super::flood::{self, scenario};
use super::rig::{Place, Rig};
use crate::server::Server;
use crate::shell::{self, Failure, Result};

/// Connections that are open and idle.
const IDLE: u32 = 1_000_000;
/// Of one client address: it has few more ports.
const OF_ADDRESS: u32 = 50_000;
/// Connections that ask.
const ASKING: u32 = 16;
/// All of the server's memory that is in use, at most.
const MOST_MEMORY: u64 = 1 << 30;

/// Runs it.
pub(crate) fn run(programs: &Path, content: &Content, checks: &mut Checks) -> Result<()> {
    let scenario = scenario();
    let rig = Rig::build(&scenario)?;
    let limits = ["--max-connections", "1100000", "--idle-timeout", "3600"];
    let (server, place) = rig.start_with(&scenario, None, programs, content, &limits)?;
    let mut told = String::new();
    checks.check("a million idle connections in 1 GiB", || {
        told = fill(&rig, &server, &place, programs, content)?;
        Ok(())
    });
    println!("{told}");
    let (status, output) = server.stop(Signal::TERM)?;
    checks.check("it ends as ever", || {
        if status.success() {
            return Ok(());
        }
        Err(Failure::new(format!("{status}:\n{output}")))
    });
    Ok(())
}

/// Opens them all, and asks beside them; how much memory that took.
fn fill(
    rig: &Rig,
    server: &Server,
    place: &Place,
    programs: &Path,
    content: &Content,
) -> Result<String> {
    let mut command = rig.client().command(programs.join("load"));
    command
        .args(["http", "--interface", "cli0"])
        .args(["--target", &place.v4.to_string()])
        .args(["--port", &place.port.to_string()])
        .arg("--site")
        .arg(&content.site)
        .args(["--path", flood::PATH])
        .args(["--connections", &ASKING.to_string()])
        .args(["--idle", &IDLE.to_string()])
        .args(["--seconds", "3"]);
    for n in 0..=(IDLE + ASKING) / OF_ADDRESS {
        command.args(["--address", &format!("10.99.0.{}/24", 10 + n)]);
    }
    // It has its measured part when all are open, and then leaves.
    let said = shell::capture_text(&mut command)?;
    let json = said.lines().rev().find(|line| line.starts_with('{'));
    let report: serde_json::Value = serde_json::from_str(json.unwrap_or_default())
        .map_err(|error| Failure::new(format!("load http: {error}:\n{said}")))?;
    let completed = report["completed"].as_u64().unwrap_or(0);
    let (_, memory) = flood::memory(server.id())?;
    let line = format!(
        "crowd: {IDLE} idle connections: {} MB of memory at most, and {completed} requests of others",
        memory >> 20
    );
    if completed == 0 || memory > MOST_MEMORY {
        return Err(Failure::new(line));
    }
    Ok(line)
}
