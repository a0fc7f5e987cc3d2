//! The impaired network between client and server: the program `forward`, started for each run.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde_json::Value;

use crate::server::Server;

/// Time limit for `forward` to start.
const START_LIMIT: Duration = Duration::from_secs(10);

/// A run counts as disturbed if more than this fraction of its frames is at least 1 ms late.
const LATE_PART: f64 = 0.01;
/// A run counts as disturbed if a frame is late by more than this time in µs.
const LATEST_US: u64 = 20_000;
/// A run counts as disturbed if a client begins late by more than this time in µs.
const LATE_START_US: u64 = 5_000;

/// Arguments of `forward`: the impairments from the server to the client and from the client to the
/// server, and the seed.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Paths {
    pub(crate) down: Value,
    pub(crate) up: Value,
    pub(crate) seed: u64,
}

/// A running forwarder.
pub(crate) struct Forwarder(Server);

impl Forwarder {
    /// Starts `command`, which is `forward` without arguments, between two interfaces.
    pub(crate) fn start(
        mut command: Command,
        [client, server]: [&str; 2],
        paths: &Paths,
        trace: Option<&Path>,
    ) -> Result<Self> {
        let (down, up) = (paths.down.to_string(), paths.up.to_string());
        let seed = paths.seed.to_string();
        command.args(["--client", client, "--server", server, "--down", &down]);
        command.args(["--up", &up, "--seed", &seed]);
        if let Some(file) = trace {
            command.arg("--trace").arg(file);
        }
        let is_ready = |output: &str| Ok(output.starts_with("ready\n"));
        Server::start_when(command, START_LIMIT, is_ready).map(Self)
    }

    /// Stops the forwarder and returns its counters. Fails if the kernel dropped frames before the
    /// forwarder received them, because the run is then invalid.
    pub(crate) fn finish(self) -> Result<Counters> {
        let output = self.0.stop_well()?;
        let last = output.lines().last().unwrap_or_default();
        let counters = serde_json::from_str(last);
        let counters = Counters(counters.with_context(|| format!("the counters in {output:?}"))?);
        let lost = counters.get("not_received")?;
        ensure!(
            lost == 0,
            "the forwarder has not received {lost} frames in time"
        );
        Ok(counters)
    }
}

/// Counters of a run, as the JSON that `forward` prints.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Counters(pub(crate) Value);

impl Counters {
    /// Returns a counter, such as `down/lost`.
    pub(crate) fn get(&self, name: &str) -> Result<u64> {
        let value = self.0.pointer(&format!("/{name}"));
        let number = value.and_then(Value::as_u64);
        number.with_context(|| format!("forward has no counter {name}"))
    }

    /// Describes how other work on the machine disturbed the run, if it did. `connected` is the
    /// duration of the slowest connect, in µs.
    pub(crate) fn disturbance(&self, connected: u64) -> Result<Option<String>> {
        // The client's first data immediately follows the handshake. If the connect took longer
        // than the time from the SYN to this data, the client was late with its SYN.
        let start = connected.saturating_sub(self.get("up/first_data_us")?);
        if start > LATE_START_US {
            let start = start / 1_000;
            return Ok(Some(format!("a client began {start} ms late")));
        }
        let sum = |name| {
            anyhow::Ok(self.get(&format!("down/{name}"))? + self.get(&format!("up/{name}"))?)
        };
        let (late, all) = (sum("late")?, sum("forwarded")?);
        let latest = self.get("down/latest_us")?.max(self.get("up/latest_us")?);
        let disturbed = late as f64 > all as f64 * LATE_PART || latest > LATEST_US;
        Ok(disturbed.then(|| {
            let latest = latest / 1_000;
            format!("{late} of {all} frames were late, one by {latest} ms")
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn late_frames_and_clients_disturb_a_run() {
        let disturbance = |late: u64, connected| {
            let down = json!({"late": late, "forwarded": 100, "latest_us": 1_500});
            let up = json!({"late": 0, "forwarded": 0, "latest_us": 0, "first_data_us": 150_400});
            let counters = Counters(json!({"down": down, "up": up}));
            counters.disturbance(connected).unwrap()
        };
        assert_eq!(disturbance(1, 155_400), None);
        // A lost SYN delays the client and the path's first data by the same time, so it is no
        // disturbance.
        let began = disturbance(1, 155_401).unwrap();
        assert_eq!(began, "a client began 5 ms late");
        let late = disturbance(2, 150_100).unwrap();
        assert_eq!(late, "2 of 100 frames were late, one by 1 ms");
    }
}
