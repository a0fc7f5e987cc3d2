//! Commands that may hang: one that says nothing for too long is ended, with
//! all that it has started.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::interrupt;
use crate::shell::{self, Context as _, Result};

/// How often a running command is looked at.
const TICK: Duration = Duration::from_millis(50);
/// The time from SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// It was ended because it said nothing any more.
    pub(crate) hung: bool,
}

impl Outcome {
    /// Tests that were running when a test program was ended.
    pub(crate) fn running_tests(&self) -> Vec<&str> {
        running_tests(&self.stdout)
    }
}

/// Runs a command, which is ended when it writes no line for `silence`.
pub(crate) fn run(command: &mut Command, silence: Duration) -> Result<Outcome> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .context(format_args!("running {}", shell::shown(command)))?;
    let heard = Arc::new(Mutex::new(Instant::now()));
    let readers = (
        child.stdout.take().map(|pipe| collect(pipe, &heard)),
        child.stderr.take().map(|pipe| collect(pipe, &heard)),
    );
    let mut hung = false;
    let status = loop {
        if let Some(status) = child.try_wait().context("waiting for a command")? {
            break status;
        }
        let last = *heard.lock().unwrap_or_else(PoisonError::into_inner);
        hung = last.elapsed() >= silence;
        if hung || interrupt::seen() {
            break end(&mut child)?;
        }
        thread::sleep(TICK);
    };
    Ok(Outcome {
        status,
        stdout: finish(readers.0),
        stderr: finish(readers.1),
        hung,
    })
}

/// Gathers lines, and notes when each came.
fn collect(pipe: impl Read + Send + 'static, heard: &Arc<Mutex<Instant>>) -> JoinHandle<String> {
    let heard = Arc::clone(heard);
    thread::spawn(move || {
        let mut text = String::new();
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            *heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            text.push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
        text
    })
}

fn finish(reader: Option<JoinHandle<String>>) -> String {
    reader
        .and_then(|reader| reader.join().ok())
        .unwrap_or_default()
}

/// Ends the child and all that it has started. Where tests run through sudo,
/// those are root's.
fn end(child: &mut Child) -> Result<ExitStatus> {
    let processes = family(child.id());
    let signal = |name| {
        let mut kill = shell::as_root("kill")?;
        // An error means that one has ended by itself.
        shell::output(kill.arg(name).arg("--").args(&processes)).map(drop)
    };
    signal("-TERM")?;
    let begun = Instant::now();
    while begun.elapsed() < GRACE && child.try_wait().context("waiting for a command")?.is_none() {
        thread::sleep(TICK);
    }
    signal("-KILL")?;
    child.wait().context("waiting for a command")
}

/// The ids of a process and of all below it.
fn family(of: u32) -> Vec<String> {
    let parents: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let id = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
            // The name before may hold anything; then come state and parent.
            let (_, rest) = stat.rsplit_once(')')?;
            Some((id, rest.split_whitespace().nth(1)?.parse().ok()?))
        })
        .collect();
    let mut family = vec![of];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        let children = parents.iter().filter(|(_, of)| *of == parent);
        family.extend(children.map(|(id, _)| *id));
        next += 1;
    }
    family.iter().map(u32::to_string).collect()
}

/// What cargo's test programs say of tests that take long.
const LONG: &str = " has been running for over ";

/// Tests that were told to take long, and then not how they ended.
fn running_tests(output: &str) -> Vec<&str> {
    let mut running = Vec::new();
    for line in output.lines() {
        let Some(test) = line.strip_prefix("test ") else {
            continue;
        };
        if let Some((name, _)) = test.split_once(LONG) {
            running.push(name);
        } else if let Some((name, _)) = test.split_once(" ... ") {
            running.retain(|one| *one != name);
        }
    }
    running
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, silence: Duration) -> Outcome {
        run(Command::new("sh").args(["-c", script]), silence).unwrap()
    }

    #[test]
    fn a_command_that_speaks_is_left_alone() {
        let script = "for i in 1 2 3 4; do echo $i; sleep 0.2; done; echo said >&2; exit 3";
        let outcome = shell(script, Duration::from_millis(700));
        assert!(!outcome.hung);
        assert_eq!(outcome.status.code(), Some(3));
        assert_eq!(outcome.stdout, "1\n2\n3\n4\n");
        assert_eq!(outcome.stderr, "said\n");
    }

    #[test]
    fn one_that_hangs_is_ended_with_what_it_started_and_its_tests_are_named() {
        let begun = Instant::now();
        let script = "echo 'test a::b has been running for over 60 seconds'; sleep 1000 & \
                      echo $!; sleep 1000";
        let outcome = shell(script, Duration::from_millis(300));
        assert!(outcome.hung && !outcome.status.success());
        assert_eq!(outcome.running_tests(), ["a::b"]);
        assert!(begun.elapsed() < GRACE);
        let started = outcome.stdout.lines().nth(1).unwrap();
        let alive = std::fs::read_to_string(format!("/proc/{started}/stat"));
        assert!(alive.is_err() || alive.is_ok_and(|stat| stat.contains(") Z ")));
    }

    #[test]
    fn a_test_that_ended_after_all_does_not_run() {
        let output = "test a has been running for over 60 seconds\n\
                      test b has been running for over 60 seconds\n\
                      test a ... ok\ntest c ... ok\n";
        assert_eq!(running_tests(output), ["b"]);
    }
}
