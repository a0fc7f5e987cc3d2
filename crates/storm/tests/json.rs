//! Tests `--log-format json`: each line of both streams is one event. Needs root.

#[allow(dead_code)]
mod content;

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use content::content;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_storm");

/// Parses one line, and checks what all events have.
fn event(line: &str) -> Value {
    let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    for field in ["timestamp", "level", "message"] {
        assert!(event[field].is_string(), "no {field} in {line}");
    }
    event
}

fn message(event: &Value) -> &str {
    event["message"].as_str().unwrap()
}

fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new("unshare");
    command.args(["--net", PROGRAM]).args(arguments);
    command
        .args(["--log-format", "json", "--log", "info"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_server_writes_events() {
    let folder = tempfile::tempdir().unwrap();
    let [www, zone, socket] = &content(folder.path(), "www");
    // Both servers have something to complain about.
    std::os::unix::fs::symlink("nowhere", folder.path().join("www/bad \"name\"")).unwrap();
    let broken = folder.path().join("b.zone");
    std::fs::write(&broken, "an error\n").unwrap();
    let mut arguments = vec!["serve", "--web", www, "--zone", zone];
    arguments.extend(["--zone", broken.to_str().unwrap()]);
    arguments.extend(["--control-socket", socket]);
    let mut storm = start(&arguments);
    let mut output = BufReader::new(storm.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let serving = event(&line);
    assert_eq!(message(&serving), "serving");
    assert_eq!(serving["level"], "INFO");
    assert_eq!(serving["block"]["storm"], env!("CARGO_PKG_VERSION"));
    // The block has one `try` of each server.
    assert_eq!(serving["block"]["try"].as_array().unwrap().len(), 2);
    let process = Pid::from_child(&storm);
    let mut log = BufReader::new(storm.stderr.take().unwrap());
    let mut errors = String::new();
    kill_process(process, Signal::USR1).unwrap();
    while !errors.contains("SIGUSR1") {
        assert!(log.read_line(&mut errors).unwrap() > 0, "{errors}");
    }
    kill_process(process, Signal::TERM).unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    log.read_to_string(&mut errors).unwrap();
    assert!(storm.wait().unwrap().success(), "{errors}");
    let last = rest.lines().map(event).next_back().expect("a summary");
    assert_eq!(message(&last), "ended");
    assert!(last["block"]["uptime"].is_string(), "{last}");
    let events: Vec<_> = errors.lines().map(event).collect();
    for (level, text) in [
        ("WARN", "bad \\\"name\\\"\" is a link"),
        ("WARN", "b.zone:1:4: "),
        ("INFO", "SIGUSR1 has no effect"),
    ] {
        let found = events
            .iter()
            .find(|event| message(event).contains(text))
            .unwrap_or_else(|| panic!("no {text} in {errors}"));
        assert_eq!(found["level"], level, "{found}");
    }
}

#[test]
fn an_error_at_start_is_an_event() {
    let output = start(&["serve", "--web", "/none", "--zone", "/none.zone"])
        .wait_with_output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    let events: Vec<_> = errors.lines().map(event).collect();
    let [event] = &events[..] else {
        panic!("{errors}");
    };
    assert_eq!(event["level"], "ERROR");
    assert!(message(event).contains("there is no folder /none"));
}
