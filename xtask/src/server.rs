//! A program in the background, such as a server under test. Dropping a [`Server`] stops the
//! program.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::interrupt;
use crate::shell;

/// Time limit for a server to print the `try:` line of its start block.
const START_LIMIT: Duration = Duration::from_mins(1);
/// Time limit for a program to exit after SIGTERM or another signal. By default a server lets open
/// connections finish for 10 s.
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// Poll interval while waiting for a program to exit.
const TICK: Duration = Duration::from_millis(5);
/// Poll interval while waiting for a reload, whose time is measured.
const SHORT_TICK: Duration = Duration::from_millis(1);

/// A running program and its output.
pub(crate) struct Server {
    child: Child,
    command: String,
    /// File that receives standard output and standard error.
    log: File,
    try_line: String,
}

impl Server {
    /// Starts a program without waiting for it.
    pub(crate) fn spawn(command: &mut Command) -> Result<Self> {
        let log = tempfile::tempfile().context("making a file for a program's output")?;
        let share = || log.try_clone().context("sharing a file");
        command
            .stdin(Stdio::null())
            .stdout(share()?)
            .stderr(share()?);
        let shown = shell::shown(command);
        let child = command.spawn().with_context(|| shown.clone())?;
        Ok(Self {
            child,
            command: shown,
            log,
            try_line: String::new(),
        })
    }

    /// Starts a server and waits for the `try:` line of its start block.
    pub(crate) fn start(command: Command) -> Result<Self> {
        let mut line = None;
        let mut server = Self::start_when(command, START_LIMIT, |output| {
            line = try_line(output);
            Ok(line.is_some())
        })?;
        server.try_line = line.unwrap_or_default();
        Ok(server)
    }

    /// Starts a server and waits until `is_ready` returns true for the server's output so far.
    /// Returns an error if this takes longer than `limit`.
    pub(crate) fn start_when(
        mut command: Command,
        limit: Duration,
        mut is_ready: impl FnMut(&str) -> Result<bool>,
    ) -> Result<Self> {
        let mut server = Self::spawn(&mut command)?;
        let ready = interrupt::wait_for(limit, || {
            if is_ready(&server.output())? {
                return Ok(Some(()));
            }
            server.expect_running().map(|()| None)
        })?;
        let (command, output) = (&server.command, server.output());
        ensure!(
            ready.is_some(),
            "{command} is not ready after {limit:?}:\n{}",
            output.trim_end()
        );
        Ok(server)
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the command in the server's first `try:` line. It is empty unless
    /// [`start`](Self::start) started the server.
    pub(crate) fn try_line(&self) -> &str {
        &self.try_line
    }

    /// Returns everything that the program has written so far.
    pub(crate) fn output(&self) -> String {
        let length = self.log.metadata().map_or(0, |log| log.len());
        let mut bytes = vec![0; length as usize];
        // The program shares the file position, so read at an explicit offset.
        let read = self.log.read_at(&mut bytes, 0).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    }

    /// Returns the time since the program last wrote output, or since it started.
    pub(crate) fn silent_for(&self) -> Duration {
        let written = self.log.metadata().and_then(|log| log.modified());
        written.map_or(Duration::ZERO, |at| at.elapsed().unwrap_or_default())
    }

    /// Returns the exit status, or `None` while the program runs.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context("waiting for a program")
    }

    /// Returns an error if the program has exited.
    pub(crate) fn expect_running(&mut self) -> Result<()> {
        let ended = self.ended()?;
        ensure!(
            ended.is_none(),
            "{} ended by itself with {}:\n{}",
            self.command,
            ended.unwrap_or_default(),
            self.output().trim_end()
        );
        Ok(())
    }

    /// Waits for the program to exit, and returns `None` after `limit`. Ctrl-C does not shorten the
    /// wait, so that no server outlives this process.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let begun = Instant::now();
        loop {
            let ended = self.ended()?;
            if ended.is_some() || begun.elapsed() >= limit {
                return Ok(ended);
            }
            std::thread::sleep(TICK);
        }
    }

    /// Sends `signal` and waits for the program to exit. Returns its exit status and output, or an
    /// error if it does not exit in time.
    pub(crate) fn stop(mut self, signal: Signal) -> Result<(ExitStatus, String)> {
        self.signal(signal)?;
        let ended = self.wait(STOP_LIMIT)?;
        let output = self.output();
        let status = ended.with_context(|| {
            format!(
                "{} still runs {STOP_LIMIT:?} after {signal:?}:\n{}",
                self.command,
                output.trim_end()
            )
        })?;
        Ok((status, output))
    }

    /// Stops the program with SIGTERM. Returns its output, or an error if its exit status is not 0.
    pub(crate) fn stop_well(self) -> Result<String> {
        let (status, output) = self.stop(Signal::TERM)?;
        ensure!(status.success(), "it ended with {status}:\n{output}");
        Ok(output)
    }

    /// Sends SIGHUP, and waits until the program has written `word` once more. Returns how long that takes,
    /// or an error after `limit`.
    pub(crate) fn hang_up_until(&self, word: &str, limit: Duration) -> Result<Duration> {
        self.time_until(word, limit, || self.signal(Signal::HUP))
    }

    /// Like [`hang_up_until`](Self::hang_up_until), but `ask` asks for the reload.
    pub(crate) fn time_until(
        &self,
        word: &str,
        limit: Duration,
        ask: impl FnOnce() -> Result<()>,
    ) -> Result<Duration> {
        let told = || self.output().matches(word).count();
        let (before, signalled) = (told(), Instant::now());
        ask()?;
        while told() == before {
            interrupt::check()?;
            ensure!(
                signalled.elapsed() < limit,
                "{} has not reloaded:\n{}",
                self.command,
                self.output()
            );
            std::thread::sleep(SHORT_TICK);
        }
        Ok(signalled.elapsed())
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        // The child has not been waited for, so its process id cannot have been reused.
        let pid = i32::try_from(self.id()).ok().and_then(Pid::from_raw);
        let pid = pid.context("a process id out of range")?;
        kill_process(pid, signal).with_context(|| format!("sending {signal:?}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.ended(), Ok(Some(_))) {
            return;
        }
        let result = self.signal(Signal::TERM);
        if result.is_ok() && matches!(self.wait(STOP_LIMIT), Ok(Some(_))) {
            return;
        }
        // `kill` fails if the program has already exited, which is harmless.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the command in the first complete `try:` line, if there is such a line.
fn try_line(output: &str) -> Option<String> {
    // The last line may still be incomplete, so ignore text after the last newline.
    let complete = &output[..=output.rfind('\n')?];
    let mut lines = complete.lines();
    let line = lines.find_map(|line| line.trim_start().strip_prefix("try:"))?;
    Some(line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_complete_try_line_is_used() {
        assert_eq!(
            try_line("sandstorm: 0.1.0\n      try: curl http://10.0.0.2/"),
            None
        );
        let block = "listening: 10.0.0.2:80\n      try: curl http://10.0.0.2/\n  try: other\n";
        assert_eq!(try_line(block).as_deref(), Some("curl http://10.0.0.2/"));
    }
}
