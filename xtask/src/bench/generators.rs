//! Load generators: our own, and third-party ones with which ours are compared.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::content::Content;
use super::results::{Load, SKIPPED};
use super::rig::{self, CLIENT_CORE, Rig, SERVER_ADDRESS};
use super::servers;
use crate::interrupt;
use crate::netns::CLIENT_LINK;
use crate::shell;
use anyhow::{Context as _, Result, anyhow, bail};

/// Time that a run may take beyond its warm-up and its measured part.
const RUN_SLACK: Duration = Duration::from_secs(20);
/// Further time that a run may take for each connection.
const CONNECTION_SLACK: Duration = Duration::from_micros(150);

/// Maximum number of connections that the generator opens from one address.
const CONNECTIONS_OF_ADDRESS: u32 = 50_000;

/// Number of names in the zone for generators that read questions from a file.
const QUESTIONS: u32 = 100;

/// Line that our generators print when the measured part begins. [`MEASURED`] marks its end.
const MEASURING: &str = "load: measuring";
const MEASURED: &str = "load: measured";

/// Runs a load generator. `load` holds its program and arguments. Calls `edge` when the measured
/// part begins and when it ends. The generator opens at most `connections` connections.
pub(crate) fn run(
    load: &str,
    connections: u32,
    rig: &Rig,
    content: &Content,
    [warm_up, measured]: [f64; 2],
    edge: impl FnMut() + Send,
) -> Result<Load> {
    let (program, arguments) = load.split_once(' ').unwrap_or((load, ""));
    let mut command = if program == "load" {
        rig.client_command(content.programs.join(program))
    } else if servers::is_installed(program) {
        rig.client_command(program)
    } else {
        bail!("{SKIPPED}{program} is not installed");
    };
    let arguments = fill(arguments, content, measured)?;
    command.args(arguments.split_whitespace());
    if program == "load" {
        let port = match arguments.split(' ').next() {
            Some("echo") => 7,
            Some("dns") => 53,
            _ => 80,
        };
        for n in 0..=connections / CONNECTIONS_OF_ADDRESS {
            command.args(["--address", &rig::generator_address(n)]);
        }
        command.args(["--interface", CLIENT_LINK, "--target", SERVER_ADDRESS]);
        let lengths = format!("--port {port} --seconds {measured} --warmup {warm_up}");
        command.args(lengths.split(' '));
    }
    let parts = Duration::from_secs_f64(warm_up + measured);
    let limit = parts + RUN_SLACK + CONNECTION_SLACK * connections;
    let output = watch(&mut command, limit, program != "load", edge);
    if program == "kxdpgun" {
        rig.detach_client_program()?;
    }
    let output = output?;
    let load = match program {
        "dnsperf" => dnsperf_load(&output),
        "kxdpgun" => kxdpgun_load(&output),
        // wrk prints its own report before the script's line, so search from the end.
        _ => output
            .lines()
            .rev()
            .find_map(|line| serde_json::from_str(line).ok()),
    };
    let what = || format!("{} printed no result:\n{output}", shell::shown(&command));
    load.ok_or_else(|| anyhow!(what()))
}

/// Replaces the placeholders in the arguments of a load generator.
fn fill(arguments: &str, content: &Content, seconds: f64) -> Result<String> {
    let in_turn = || content.text("in-turn.lua", &[WRK_SCRIPT, WRK_IN_TURN].concat());
    let paths: [(&str, &dyn Fn() -> Result<PathBuf>); 6] = [
        ("{files}", &|| content.files()),
        ("{mix}", &|| Ok(content.mix()?.0)),
        ("{list}", &|| Ok(content.mix()?.1)),
        ("{questions}", &|| content.questions(QUESTIONS)),
        ("{script}", &|| content.text("wrk.lua", WRK_SCRIPT)),
        ("{script in turn}", &in_turn),
    ];
    // Third-party generators accept only whole seconds, so round up.
    let mut text = arguments.replace("{seconds}", &seconds.ceil().to_string());
    for (word, path) in paths {
        if text.contains(word) {
            text = text.replace(word, &path()?.display().to_string());
        }
    }
    let client = format!("-F {CLIENT_CORE} -I {CLIENT_LINK}");
    Ok(text
        .replace("{address}", SERVER_ADDRESS)
        .replace("{client}", &client))
}

/// Runs `command` for at most `limit`, and returns its standard output. Calls `edge` at both ends
/// of the measured part. The lines [`MEASURING`] and [`MEASURED`] on standard error delimit this
/// part. If `whole` is set, the whole run is measured.
fn watch(
    command: &mut Command,
    limit: Duration,
    whole: bool,
    mut edge: impl FnMut() + Send,
) -> Result<String> {
    let shown = shell::shown(command);
    let pipes = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if whole {
        edge();
    }
    let mut child = pipes.spawn().with_context(|| format!("starting {shown}"))?;
    let stderr = child.stderr.take();
    let (ended, mut text) = std::thread::scope(|scope| {
        let edge = &mut edge;
        let reader = scope.spawn(move || {
            let mut text = String::new();
            let lines = stderr
                .into_iter()
                .flat_map(|pipe| BufReader::new(pipe).lines());
            for line in lines.map_while(std::io::Result::ok) {
                if !whole && (line == MEASURING || line == MEASURED) {
                    edge();
                } else {
                    text = text + &line + "\n";
                }
            }
            text
        });
        let ended = interrupt::wait_for(limit, || child.try_wait().context("waiting for the load"));
        if !matches!(ended, Ok(Some(_))) {
            // An error means that the generator has already exited, which is harmless.
            let _ = child.kill();
            let _ = child.wait();
        }
        (ended, reader.join().unwrap_or_default())
    });
    let mut output = Vec::new();
    // All generators print less than a pipe can hold, so none of them blocks before this read.
    child
        .stdout
        .take()
        .map(|mut pipe| pipe.read_to_end(&mut output));
    let output = String::from_utf8_lossy(&output).into_owned();
    let why = match ended? {
        Some(status) if status.success() => {
            if whole {
                edge();
            }
            return Ok(output);
        }
        Some(status) => format!("the load ended with {status}"),
        None => format!("the load did not end within {} s", limit.as_secs()),
    };
    text.push_str(&output);
    Err(anyhow!("{why}\n{shown}\n{text}"))
}

/// wrk script that prints a [`Load`] as JSON.
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
        '"bytes_per_second":%f,"latency_us":[%f,%f,%f,%f],"errors":{%s}}\n',
        seconds, right, right / seconds, summary.bytes / seconds,
        latency:percentile(50), latency:percentile(99), latency:percentile(99.9),
        latency.max, table.concat(errors, ",")))
end
"#;

/// Addition to [`WRK_SCRIPT`] that requests the numbered files one after the other. A script that makes
/// each request costs time, so the other runs do without it.
const WRK_IN_TURN: &str = r#"
local number = -1
function request()
    number = number + 1
    return wrk.format(nil, string.format("/%03d/%03d.bin", number / 1000, number % 1000))
end
"#;

/// Returns the number after `label` in a program's output.
fn number_after(text: &str, label: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.split_once(label))?.1;
    let number = rest.split_whitespace().next()?;
    number.trim_end_matches([')', ',']).parse().ok()
}

/// Makes the [`Load`] of a program that prints only counts. `size` is the mean size of a reply in
/// bytes.
fn counted(generator: &str, [completed, lost, seconds, size]: [f64; 4]) -> Option<Load> {
    // Packet counts are not negative.
    #[allow(clippy::cast_sign_loss)]
    let whole = |count: f64| count.max(0.0) as u64;
    let rate = completed / seconds;
    let mut load = Load {
        generator: generator.into(),
        seconds,
        completed: whole(completed),
        rate,
        bytes_per_second: rate * size,
        ..Load::default()
    };
    if lost > 0.0 {
        load.errors.insert("lost".into(), whole(lost));
    }
    (seconds > 0.0).then_some(load)
}

fn dnsperf_load(text: &str) -> Option<Load> {
    let number = |label| number_after(text, label);
    let counts = [
        number("Queries completed:")?,
        number("Queries lost:").unwrap_or(0.0),
        number("Run time (s):")?,
        number(", response").unwrap_or(0.0),
    ];
    let mut load = counted("dnsperf", counts)?;
    // It reports no percentiles.
    load.latency_us[3] = number(", max ").unwrap_or(0.0) * 1e6;
    Some(load)
}

fn kxdpgun_load(text: &str) -> Option<Load> {
    let number = |label| number_after(text, label);
    let (sent, replies) = (number("total queries:")?, number("total replies:")?);
    let size = number("average DNS reply size:").unwrap_or(0.0);
    let counts = [replies, sent - replies, number("duration:")?, size];
    counted("kxdpgun", counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_of_other_generators_are_read() {
        let kxdpgun = "using interface cli0, XDP threads 1, UDP, native mode\n\
                       total queries:     1000000 (500000 pps) (100%)\n\
                       total replies:     999000 (499500 pps) (99%)\n\
                       average DNS reply size: 51 B\nduration: 2 s\n";
        let dnsperf = "  Queries completed:    99990 (99.99%)\n  Queries lost:         10 (0.01%)\n\
                       \n  Average packet size:  request 35, response 51\n  \
                       Run time (s):         2.000000\n";
        for (load, completed, lost) in [
            (kxdpgun_load(kxdpgun).unwrap(), 999_000, 1_000),
            (dnsperf_load(dnsperf).unwrap(), 99_990, 10),
        ] {
            assert_eq!((load.completed, load.errors["lost"]), (completed, lost));
            assert!((load.rate - completed as f64 / 2.0).abs() < 1e-6);
            assert!((load.bytes_per_second - load.rate * 51.0).abs() < 1e-3);
        }
        assert!(kxdpgun_load("failed to load BPF").is_none());
        assert!(dnsperf_load("").is_none());
    }

    #[test]
    fn phase_lines_are_reported_and_a_load_that_does_not_end_is_killed() {
        let mut edges = 0;
        let mut watch = |script: &str, seconds| {
            let limit = Duration::from_secs_f64(seconds);
            super::watch(
                Command::new("sh").args(["-c", script]),
                limit,
                false,
                || edges += 1,
            )
        };
        let script = "(echo load: measuring; echo other; echo load: measured) >&2; echo {}";
        assert_eq!(watch(script, 10.0).unwrap(), "{}\n");
        let failure = watch("echo words >&2; exec sleep 60", 0.2)
            .unwrap_err()
            .to_string();
        assert!(
            failure.contains("did not end") && failure.contains("words"),
            "{failure:#}"
        );
        assert_eq!(edges, 2);
    }
}
