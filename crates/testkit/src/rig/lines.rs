//! Reads lines of a process's output, with a time limit.

use std::io::{BufRead as _, BufReader, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Maximum time to wait for a line, after which a test fails. Starting a server takes several
/// seconds on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Iterates over the lines of a process's output.
///
/// # Panics
/// If a line does not arrive in time.
#[derive(Debug)]
pub struct Lines(Receiver<String>);

impl Lines {
    /// Reads `output` on a separate thread.
    pub fn of(output: impl Read + Send + 'static) -> Self {
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                // Sending fails if the test no longer reads the lines.
                let _ = sender.send(line.unwrap());
            }
        });
        Self(lines)
    }
}

impl Iterator for Lines {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        match self.0.recv_timeout(TIMEOUT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                panic!("the process printed no line for {TIMEOUT:?}, and did not end")
            }
        }
    }
}
