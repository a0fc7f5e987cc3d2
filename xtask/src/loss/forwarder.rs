//! The bad network between client and server: `forward` of the benches, for
//! one run at a time.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::shell::{self, Context as _, Failure, Result};

/// A run is noise when more of its frames than this were late by 1 ms.
const LATE_PART: f64 = 0.01;
/// Or one by this much, in µs.
const LATEST_US: u64 = 20_000;
/// Or a client's SYN came to the path by this much later than it asked for the
/// connection, in µs: no server has a part in that.
const LATE_START_US: u64 = 5_000;

/// What the way between client and server does, in the forwarder's words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Paths {
    /// From the server to the client.
    pub(crate) down: String,
    /// From the client to the server.
    pub(crate) up: String,
    pub(crate) seed: u64,
    /// Silences of a sender are counted from this on.
    pub(crate) silence_ms: u64,
}

/// A forwarder that forwards. Dropping it ends it.
pub(crate) struct Forwarder {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Forwarder {
    /// Starts `command`, a `forward` without arguments, between two interfaces.
    pub(crate) fn start(
        mut command: Command,
        [client, server]: [&str; 2],
        paths: &Paths,
        trace: Option<&Path>,
    ) -> Result<Self> {
        command
            .args(["--client", client, "--server", server])
            .args(["--down", &paths.down, "--up", &paths.up])
            .args(["--seed", &paths.seed.to_string()])
            .args(["--silence", &paths.silence_ms.to_string()]);
        if let Some(file) = trace {
            command.arg("--trace").arg(file);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context(shell::shown(&command))?;
        let said = child.stdout.take();
        let said = said.ok_or_else(|| Failure::new("the forwarder has no output"))?;
        let mut forwarder = Self {
            child,
            said: BufReader::new(said),
        };
        let mut line = String::new();
        let read = forwarder.said.read_line(&mut line);
        read.context("reading what the forwarder says")?;
        if line.trim() == "ready" {
            return Ok(forwarder);
        }
        Err(Failure::new(format!(
            "{} did not get ready",
            shell::shown(&command)
        )))
    }

    /// Ends the forwarder; what it has seen.
    pub(crate) fn finish(mut self) -> Result<Seen> {
        // The end of its standard input is what it waits for.
        drop(self.child.stdin.take());
        let mut text = String::new();
        let read = self.said.read_to_string(&mut text);
        read.context("reading what the forwarder has counted")?;
        serde_json::from_str(&text).context(format_args!("the forwarder's report {text:?}"))
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a forwarder has seen in a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// From the server to the client.
    pub(crate) down: Way,
    /// From the client to the server.
    pub(crate) up: Way,
    pub(crate) connections: u64,
    /// Segments of connections that it had no memory for.
    pub(crate) unknown: u64,
    /// Frames that it did not receive in time.
    pub(crate) not_received: u64,
    /// Frames too large to be those of a wire.
    pub(crate) oversized: u64,
    /// Segments of connections of the run before.
    pub(crate) strays: u64,
    /// Times that a socket did not take frames at once.
    pub(crate) held_up: u64,
}

/// One direction.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Way {
    pub(crate) path: PathCounts,
    pub(crate) too_big: u64,
    pub(crate) sent: Sent,
    pub(crate) forwarded: u64,
    pub(crate) late: u64,
    pub(crate) latest_us: u64,
}

/// What the path did to frames.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PathCounts {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
    pub(crate) lost: u64,
    pub(crate) overflowed: u64,
    pub(crate) held: u64,
    pub(crate) doubled: u64,
    pub(crate) marked: u64,
    pub(crate) refused: u64,
    pub(crate) most_queued: u64,
}

/// What the senders did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sent {
    pub(crate) segments: u64,
    pub(crate) bytes: u64,
    pub(crate) repeated_bytes: u64,
    pub(crate) repeated_segments: u64,
    pub(crate) needless_bytes: u64,
    pub(crate) repeated_syns: u64,
    pub(crate) silences: u64,
    pub(crate) longest_silence_us: u64,
    pub(crate) most_in_flight: u64,
    pub(crate) first_payload_us: u64,
    pub(crate) last_payload_us: u64,
}

impl Seen {
    /// Why the run is worth nothing, if it is.
    pub(crate) fn fault(&self) -> Option<String> {
        let refused = self.down.path.refused + self.up.path.refused;
        let faults = [
            (self.not_received, "frames were not received in time"),
            (self.oversized, "frames were too large for a wire"),
            (refused, "frames had no room on the way"),
            (self.unknown, "segments were of too many connections"),
        ];
        let fault = faults.into_iter().find(|(count, _)| *count > 0);
        fault.map(|(count, what)| format!("{count} {what}"))
    }

    /// How the machine's other work was in the way, if it was. `connected` is
    /// the longest that a client waited for its connection, in µs.
    pub(crate) fn noise(&self, connected: u64) -> Option<String> {
        // The request follows the connection at once, and here since the SYN.
        let start = connected.saturating_sub(self.up.sent.first_payload_us);
        if start > LATE_START_US {
            return Some(format!("a client began {} ms late", start / 1_000));
        }
        let (late, all) = (
            self.down.late + self.up.late,
            self.down.forwarded + self.up.forwarded,
        );
        let latest = self.down.latest_us.max(self.up.latest_us);
        let noisy = late as f64 > all as f64 * LATE_PART || latest > LATEST_US;
        noisy.then(|| format!("{late} of {all} frames late, one by {} ms", latest / 1_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_noise_when_frames_or_clients_were_late() {
        let mut seen = Seen::default();
        seen.up.sent.first_payload_us = 150_400;
        seen.down.forwarded = 100;
        seen.down.late = 1;
        assert_eq!(seen.noise(155_400), None);
        // A client whose SYN was lost waits for as long as the path has seen.
        let late = seen.noise(155_401);
        assert_eq!(late.as_deref(), Some("a client began 5 ms late"));
        seen.down.late = 2;
        let late = seen.noise(150_100);
        assert_eq!(late.as_deref(), Some("2 of 100 frames late, one by 0 ms"));
    }
}
