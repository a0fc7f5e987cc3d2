//! A server under test: started, watched until it says how to reach it, and
//! ended by its own process id, whatever happens.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::interrupt;
use crate::shell::{self, Context as _, Failure, Result};

/// A server has this long from its start to its `try:` line.
const START_LIMIT: Duration = Duration::from_mins(1);

/// A server has this long from SIGTERM to its end.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// How often an ending server is looked at.
const TICK: Duration = Duration::from_millis(5);

/// A running server. Dropping it ends it.
pub(crate) struct Server {
    child: Child,
    said: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
    try_line: String,
}

impl Server {
    /// Starts `command` and waits for the line of its start block that tells
    /// how to reach it.
    pub(crate) fn start(command: Command) -> Result<Self> {
        let mut try_line = None;
        let mut server = Self::start_when(command, START_LIMIT, |said| {
            try_line = self::try_line(said);
            Ok(try_line.is_some())
        })?;
        server.try_line = try_line.unwrap_or_default();
        Ok(server)
    }

    /// Starts `command` and waits until `is_ready`, which is shown what the
    /// server has said so far, says so.
    pub(crate) fn start_when(
        mut command: Command,
        limit: Duration,
        mut is_ready: impl FnMut(&str) -> Result<bool>,
    ) -> Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().context(shell::shown(&command))?;
        let said = Arc::new(Mutex::new(String::new()));
        let readers = [
            child.stdout.take().map(|pipe| collect(pipe, &said)),
            child.stderr.take().map(|pipe| collect(pipe, &said)),
        ];
        let readers = readers.into_iter().flatten().collect();
        let mut server = Self {
            child,
            said,
            readers,
            try_line: String::new(),
        };
        let started = interrupt::wait_for(limit, || {
            if is_ready(&server.output())? {
                return Ok(Some(()));
            }
            let ended = server.child.try_wait().context("waiting for the server")?;
            match ended {
                None => Ok(None),
                Some(status) => Err(Failure::new(format!(
                    "{} ended at once with {status}:\n{}",
                    shell::shown(&command),
                    server.output().trim_end()
                ))),
            }
        })?;
        if started.is_some() {
            return Ok(server);
        }
        Err(Failure::new(format!(
            "{} could not be reached within {} s:\n{}",
            shell::shown(&command),
            limit.as_secs(),
            server.output().trim_end()
        )))
    }

    /// The process id of the program that was started.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The first command that the server itself proposes.
    pub(crate) fn try_line(&self) -> &str {
        &self.try_line
    }

    /// Everything the server has written so far.
    pub(crate) fn output(&self) -> String {
        self.said
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// `Some` when the server has ended by itself.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context("waiting for the server")
    }

    /// Ends the server by `signal`; an error when it does not end in time.
    /// Returns its status and everything it wrote.
    pub(crate) fn stop(mut self, signal: Signal) -> Result<(ExitStatus, String)> {
        self.signal(signal)?;
        let mut waited = Duration::ZERO;
        // Not `interrupt::wait_for`: a Ctrl-C must not keep a server alive.
        let status = loop {
            if let Some(status) = self.ended()? {
                break status;
            }
            if waited >= STOP_LIMIT {
                return Err(Failure::new(format!(
                    "the server was still there {} s after {signal:?}:\n{}",
                    STOP_LIMIT.as_secs(),
                    self.output().trim_end()
                )));
            }
            std::thread::sleep(TICK);
            waited += TICK;
        };
        // Its last words are read in a moment, unless someone that it has left
        // behind holds the pipes.
        while waited < STOP_LIMIT && !self.readers.iter().all(JoinHandle::is_finished) {
            std::thread::sleep(TICK);
            waited += TICK;
        }
        let output = self.output();
        Ok((status, output))
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        // The child is not waited for yet, so its id cannot be another's.
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Failure::new("a process id out of range"))?;
        kill_process(pid, signal).context(format_args!("sending {signal:?} to the server"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        let asked = self.signal(Signal::TERM).is_ok();
        let mut waited = Duration::ZERO;
        while asked && waited < STOP_LIMIT {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
            waited += Duration::from_millis(20);
        }
        // Errors mean that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command after the first `try:` of a start block.
fn try_line(output: &str) -> Option<String> {
    // Only whole lines: the last one may still be on its way.
    let whole = &output[..=output.rfind('\n')?];
    whole
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("try:"))
        .map(|line| line.trim().to_owned())
}

fn collect(pipe: impl Read + Send + 'static, into: &Arc<Mutex<String>>) -> JoinHandle<()> {
    let into = Arc::clone(into);
    std::thread::spawn(move || {
        let mut lines = BufReader::new(pipe);
        let mut line = Vec::new();
        while lines
            .read_until(b'\n', &mut line)
            .is_ok_and(|read| read > 0)
        {
            let mut said = into.lock().unwrap_or_else(PoisonError::into_inner);
            said.push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_whole_try_line_counts() {
        assert_eq!(
            try_line("sandstorm: 0.1.0\n      try: curl http://10.0.0.2/"),
            None
        );
        let block = "listening: 10.0.0.2:80\n      try: curl http://10.0.0.2/\n  try: other\n";
        assert_eq!(try_line(block).as_deref(), Some("curl http://10.0.0.2/"));
    }
}
