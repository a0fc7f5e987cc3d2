//! The programs that make load: our own, and those of others for cross-checks.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::content::Content;
use super::results::Load;
use super::rig::{self, CLIENT_LINK, Rig, SERVER_ADDRESS};
use crate::interrupt;
use crate::shell::{self, Context as _, Failure, Result};

/// How requests follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// The next one when a reply is there, so many under way; for connections
    /// one each.
    Closed(u32),
    /// So many a second.
    Rate(u32),
    /// So many a second, [`BURST`] at a time.
    Bursts(u32),
}

/// Requests of a burst, as many as kxdpgun sends together.
pub(crate) const BURST: u32 = 32;

/// What is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// A file of [`super::content::FILES`].
    File(&'static str),
    /// All files of the mix.
    Mix,
}

/// HTTP by our own generator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Http {
    pub(crate) fetch: Fetch,
    pub(crate) connections: u32,
    /// Requests on a connection; 0 without end.
    pub(crate) requests: u32,
    /// Requests a second of all connections; as many as go without it.
    pub(crate) rate: Option<u32>,
    /// Connections that are open beside those.
    pub(crate) idle: u32,
    /// What happens to frames at the client's end, as `--fault` takes it.
    pub(crate) fault: Option<&'static str>,
}

impl Http {
    pub(crate) fn closed(fetch: Fetch, connections: u32) -> Self {
        Self {
            fetch,
            connections,
            requests: 0,
            rate: None,
            idle: 0,
            fault: None,
        }
    }
}

/// A load.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Generator {
    /// Frames of so many bytes that are to come back.
    Echo {
        size: u32,
        pace: Pace,
    },
    /// Names of a zone of so many.
    Dns {
        names: u32,
        pace: Pace,
    },
    Http(Http),
    /// wrk, with so many connections.
    Wrk {
        file: &'static str,
        connections: u32,
        new_connections: bool,
    },
    Dnsperf {
        names: u32,
        rate: u32,
    },
    Kxdpgun {
        names: u32,
        rate: u32,
    },
}

/// Lengths of a run's parts, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lengths {
    pub(crate) warm_up: f64,
    pub(crate) measured: f64,
}

/// Beyond its parts, a run may take this long, and this much more for each
/// connection that is to be opened.
const RUN_SLACK: Duration = Duration::from_secs(20);
const CONNECTION_SLACK: Duration = Duration::from_micros(150);

/// Connections that one address of the generator may have.
const CONNECTIONS_OF_ADDRESS: u32 = 50_000;

/// Written by our generators when the warm-up and the measured part end.
const MEASURING: &str = "load: measuring";
const MEASURED: &str = "load: measured";

impl Generator {
    /// The program, as a package must have it; `None` for our own.
    pub(crate) fn program(&self) -> Option<&'static str> {
        match self {
            Self::Echo { .. } | Self::Dns { .. } | Self::Http(_) => None,
            Self::Wrk { .. } => Some("wrk"),
            Self::Dnsperf { .. } => Some("dnsperf"),
            Self::Kxdpgun { .. } => Some("kxdpgun"),
        }
    }

    /// Runs it; `edge` is called when the measured part begins and when it
    /// ends.
    pub(crate) fn run(
        &self,
        rig: &Rig,
        content: &Content,
        programs: &Path,
        lengths: Lengths,
        edge: impl FnMut() + Send,
    ) -> Result<Load> {
        let mut command = match self {
            Self::Echo { .. } | Self::Dns { .. } | Self::Http(_) => {
                self.our_command(rig, content, programs, lengths)?
            }
            _ => self.other_command(rig, content, lengths)?,
        };
        let connections = match self {
            Self::Http(http) => http.connections + http.idle,
            _ => 0,
        };
        let parts = Duration::from_secs_f64(lengths.warm_up + lengths.measured);
        let limit = parts + RUN_SLACK + CONNECTION_SLACK * connections;
        let said = watch(&mut command, limit, self.program().is_some(), edge);
        if matches!(self, Self::Kxdpgun { .. }) {
            rig.forget_client_program()?;
        }
        let said = said?;
        match self {
            Self::Dnsperf { rate, .. } => dnsperf_load(&said, *rate),
            Self::Kxdpgun { rate, .. } => kxdpgun_load(&said, *rate),
            _ => {
                // wrk's connections may have words of their own before it.
                let json = said.lines().rev().find(|line| line.starts_with('{'));
                serde_json::from_str(json.unwrap_or_default())
                    .context(format_args!("{} printed no result", shell::shown(&command)))
            }
        }
    }

    fn our_command(
        &self,
        rig: &Rig,
        content: &Content,
        programs: &Path,
        lengths: Lengths,
    ) -> Result<Command> {
        let mut command = rig.client_command(programs.join("load"));
        let mut pace = None;
        let (addresses, port) = match self {
            Self::Http(http) => (
                1 + (http.connections + http.idle) / CONNECTIONS_OF_ADDRESS,
                "80",
            ),
            Self::Echo { .. } => (1, "7"),
            _ => (1, "53"),
        };
        match self {
            Self::Echo { size, pace: asked } => {
                command.args(["echo", "--size", &size.to_string()]);
                pace = Some(*asked);
            }
            Self::Dns { names, pace: asked } => {
                command.args(["dns", "--hosts", &names.to_string()]);
                pace = Some(*asked);
            }
            Self::Http(http) => {
                command.arg("http");
                match http.fetch {
                    Fetch::File(name) => {
                        command.arg("--site").arg(content.files()?);
                        command.args(["--path", &format!("/{name}.bin")]);
                    }
                    Fetch::Mix => {
                        let (folder, list) = content.mix()?;
                        command.arg("--site").arg(folder).arg("--mix").arg(list);
                    }
                }
                command.args(["--connections", &http.connections.to_string()]);
                command.args(["--requests", &http.requests.to_string()]);
                if http.idle > 0 {
                    command.args(["--idle", &http.idle.to_string()]);
                }
                if let Some(fault) = http.fault {
                    command.args(["--fault", fault]);
                }
                pace = http.rate.map(Pace::Rate);
            }
            _ => {}
        }
        match pace {
            Some(Pace::Closed(window)) => command.args(["--window", &window.to_string()]),
            Some(Pace::Rate(rate)) => command.args(["--rate", &rate.to_string()]),
            Some(Pace::Bursts(rate)) => command
                .args(["--rate", &rate.to_string()])
                .args(["--burst", &BURST.to_string()]),
            None => &mut command,
        };
        command.args(["--interface", CLIENT_LINK]);
        for n in 0..addresses {
            command.args(["--address", &rig::generator_address(n)]);
        }
        command.args(["--target", SERVER_ADDRESS, "--port", port]);
        command.args(["--seconds", &lengths.measured.to_string()]);
        command.args(["--warmup", &lengths.warm_up.to_string()]);
        Ok(command)
    }

    fn other_command(&self, rig: &Rig, content: &Content, lengths: Lengths) -> Result<Command> {
        // Whole seconds are all that they take.
        let seconds = lengths.measured.ceil().max(1.0).to_string();
        let mut command = rig.client_command(self.program().unwrap_or_default());
        match self {
            Self::Wrk {
                file,
                connections,
                new_connections,
            } => {
                let script = content.folder().join("wrk.lua");
                fs::write(&script, WRK_SCRIPT)
                    .context(format_args!("writing {}", script.display()))?;
                command.args(["-t", "1", "-c", &connections.to_string(), "-d", &seconds]);
                if *new_connections {
                    command.args(["-H", "Connection: close"]);
                }
                command.arg("-s").arg(script);
                command.arg(format!("http://{SERVER_ADDRESS}/{file}.bin"));
            }
            Self::Dnsperf { names, rate } => {
                command.args(["-s", SERVER_ADDRESS, "-p", "53", "-c", "4", "-T", "1"]);
                command.args(["-q", "1024", "-l", &seconds, "-Q", &rate.to_string()]);
                command.arg("-d").arg(content.questions(*names)?);
            }
            Self::Kxdpgun { names, rate } => {
                command.args(["-t", &seconds, "-Q", &rate.to_string(), "-b", "32"]);
                command.args(["-F", &rig::CLIENT_CORE.to_string()]);
                command.args(["-I", CLIENT_LINK, "-i"]);
                command.arg(content.questions(*names)?).arg(SERVER_ADDRESS);
            }
            _ => {}
        }
        Ok(command)
    }
}

/// Runs `command` for at most `limit`, and returns what it wrote to standard
/// output. The measured part is between two lines on its standard error, or
/// the whole run.
fn watch(
    command: &mut Command,
    limit: Duration,
    whole: bool,
    mut edge: impl FnMut() + Send,
) -> Result<String> {
    let shown = shell::shown(command);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if whole {
        edge();
    }
    let mut child = command.spawn().context(format_args!("starting {shown}"))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (ended, out, err) = std::thread::scope(|scope| {
        let out = scope.spawn(move || {
            let mut text = Vec::new();
            // What could be read is what it has written.
            let _ = stdout.map(|mut pipe| pipe.read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        });
        let edge = &mut edge;
        let err = scope.spawn(move || {
            let mut text = String::new();
            for line in stderr
                .into_iter()
                .flat_map(|pipe| BufReader::new(pipe).lines())
                .map_while(std::io::Result::ok)
            {
                if !whole && (line == MEASURING || line == MEASURED) {
                    edge();
                } else {
                    text.push_str(&line);
                    text.push('\n');
                }
            }
            text
        });
        let ended = interrupt::wait_for(limit, || child.try_wait().context("waiting for the load"));
        if !matches!(ended, Ok(Some(_))) {
            // Errors mean that it has ended meanwhile.
            let _ = child.kill();
            let _ = child.wait();
        }
        let text = |thread: std::thread::ScopedJoinHandle<'_, String>| {
            thread
                .join()
                .unwrap_or_else(|_| "a reader has panicked".into())
        };
        (ended, text(out), text(err))
    });
    let status = ended?.ok_or_else(|| {
        Failure::new(format!(
            "the load has stalled: no end after {} s\n{shown}\n{out}{err}",
            limit.as_secs()
        ))
    })?;
    if !status.success() {
        return Err(Failure::new(format!(
            "the load ended with {status}\n{shown}\n{out}{err}"
        )));
    }
    if whole {
        edge();
    }
    Ok(out)
}

/// Makes wrk print its results as our generators do.
const WRK_SCRIPT: &str = r#"
function done(summary, latency, requests)
    local errors = {}
    for _, kind in ipairs({"connect", "read", "write", "status", "timeout"}) do
        if summary.errors[kind] > 0 then
            table.insert(errors, string.format('"%s":%d', kind, summary.errors[kind]))
        end
    end
    local seconds = summary.duration / 1e6
    local right = summary.requests - summary.errors.status
    io.write(string.format(
        '\n{"generator":"wrk","asked_rate":0,"seconds":%f,"completed":%d,"rate":%f,' ..
        '"bytes_per_second":%f,"latency_us":[%f,%f,%f,%f],"errors":{%s},' ..
        '"connection_rate":null}\n',
        seconds, right, right / seconds, summary.bytes / seconds,
        latency:percentile(50), latency:percentile(99), latency:percentile(99.9),
        latency.max, table.concat(errors, ",")))
end
"#;

/// A count that a program has printed, not below 0.
fn whole(number: f64) -> u64 {
    // Larger ones stay what `as` makes of them: the greatest.
    #[allow(clippy::cast_sign_loss)]
    let whole = number.max(0.0) as u64;
    whole
}

/// The number behind `label` in what a program has written; commas in it and
/// what stands behind it do not matter.
pub(crate) fn number_behind(text: &str, label: &str) -> Option<f64> {
    let behind = text.lines().find_map(|line| {
        let (_, behind) = line.split_once(label)?;
        Some(behind.trim_start())
    })?;
    let end = behind
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ','))
        .unwrap_or(behind.len());
    behind[..end].replace(',', "").parse().ok()
}

/// The load of a program that tells only its counts.
fn counted(generator: &str, rate: u32, completed: f64, seconds: f64, size: f64) -> Load {
    Load {
        generator: generator.into(),
        asked_rate: f64::from(rate),
        seconds,
        completed: whole(completed),
        rate: completed / seconds,
        bytes_per_second: completed / seconds * size,
        ..Load::default()
    }
}

fn no_result(text: &str) -> Failure {
    Failure::new(format!("no result in what the load has written\n{text}"))
}

fn dnsperf_load(text: &str, rate: u32) -> Result<Load> {
    let read = || {
        let number = |label| number_behind(text, label);
        let completed = number("Queries completed:")?;
        let seconds = number("Run time (s):").filter(|seconds| *seconds > 0.0)?;
        // "Average packet size: request 35, response 51"
        let size = number(", response").unwrap_or(0.0);
        let mut load = counted("dnsperf", rate, completed, seconds, size);
        let greatest = number("max").unwrap_or(0.0) * 1e6;
        let average = number("Average Latency (s):").unwrap_or(0.0) * 1e6;
        // It tells no percentiles: the average stands for the first.
        load.latency_us = [average, 0.0, 0.0, greatest];
        let lost = number("Queries lost:").unwrap_or(0.0);
        if lost > 0.0 {
            load.errors.insert("lost".into(), whole(lost));
        }
        Some(load)
    };
    read().ok_or_else(|| no_result(text))
}

fn kxdpgun_load(text: &str, rate: u32) -> Result<Load> {
    let read = || {
        let number = |label| number_behind(text, label);
        let sent = number("total queries:")?;
        let replies = number("total replies:")?;
        let seconds = number("duration:").filter(|seconds| *seconds > 0.0)?;
        let size = number("average DNS reply size:").unwrap_or(0.0);
        let mut load = counted("kxdpgun", rate, replies, seconds, size);
        let lost = whole(sent - replies);
        load.errors = BTreeMap::from([("lost".to_owned(), lost)]);
        load.errors.retain(|_, count| *count > 0);
        Some(load)
    };
    read().ok_or_else(|| no_result(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kxdpgun_says_is_a_load() {
        let text = "using interface cli0, XDP threads 1, UDP, native mode\n\
                    total queries:     1000000 (500000 pps) (100%)\n\
                    total replies:     999000 (499500 pps) (99%)\n\
                    average DNS reply size: 51 B\n\
                    average Ethernet reply rate: 0 bps (0 Mbps)\nduration: 2 s\n";
        let load = kxdpgun_load(text, 500_000).unwrap();
        assert_eq!(load.completed, 999_000);
        assert!((load.rate - 499_500.0).abs() < 1e-6);
        assert_eq!(load.errors.get("lost"), Some(&1_000));
        assert!(kxdpgun_load("failed to load BPF", 5).is_err());
    }

    #[test]
    fn what_dnsperf_says_is_a_load() {
        let text = "Statistics:\n\n  Queries sent:         100000\n  \
                    Queries completed:    99990 (99.99%)\n  Queries lost:         10 (0.01%)\n\n  \
                    Response codes:       NOERROR 99990 (100.00%)\n  \
                    Average packet size:  request 35, response 51\n  \
                    Run time (s):         2.000000\n  Queries per second:   49995.0\n\n  \
                    Average Latency (s):  0.000250 (min 0.000010, max 0.005000)\n";
        let load = dnsperf_load(text, 50_000).unwrap();
        assert_eq!(load.completed, 99_990);
        assert!((load.rate - 49_995.0).abs() < 1e-6);
        assert!((load.latency_us[0] - 250.0).abs() < 1e-6);
        assert!((load.latency_us[3] - 5_000.0).abs() < 1e-6);
        assert_eq!(load.errors.get("lost"), Some(&10));
        assert!(dnsperf_load("", 5).is_err());
    }

    #[test]
    fn numbers_may_have_commas() {
        assert_eq!(number_behind("sent: 1,234 frames", "sent:"), Some(1_234.0));
        assert_eq!(number_behind("sent: none", "sent:"), None);
        assert_eq!(number_behind("", "sent:"), None);
    }

    #[test]
    fn edges_are_the_lines_of_our_generators() {
        let mut edges = 0;
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "echo 'load: measuring' >&2; echo other >&2; echo 'load: measured' >&2; echo {}",
        ]);
        let said = watch(&mut command, Duration::from_secs(10), false, || edges += 1).unwrap();
        assert_eq!((edges, said.as_str()), (2, "{}\n"));
    }

    #[test]
    fn a_stalled_load_is_ended() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo words >&2; exec sleep 60"]);
        let failure = watch(&mut command, Duration::from_millis(200), false, || ())
            .unwrap_err()
            .to_string();
        assert!(
            failure.contains("stalled") && failure.contains("words"),
            "{failure}"
        );
    }
}
