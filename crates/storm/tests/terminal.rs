//! Drives `storm status` in a terminal of tmux. Needs root and tmux, so `cargo xtask test` runs it as
//! a step of its own.

mod content;
#[path = "../../../examples/tests/rig/mod.rs"]
mod rig;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use content::content;
use rig::Example;

/// Maximum time until the screen shows something, after which a test fails.
const TIMEOUT: Duration = Duration::from_secs(20);
const STORM: &str = env!("CARGO_BIN_EXE_storm");

/// A tmux server of its own with one window. It ends with this value.
struct Tmux(PathBuf);

impl Tmux {
    fn start(socket: PathBuf, command: &str) -> Self {
        let tmux = Self(socket);
        let size = ["-x", "100", "-y", "40"];
        let started = tmux.run(&[&["new-session", "-d"], &size[..], &[command]].concat());
        assert!(started.status.success(), "{started:?}");
        tmux
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut tmux = Command::new("tmux");
        tmux.args(["-f", "/dev/null", "-S"]).arg(&self.0);
        tmux.args(words).output().unwrap()
    }

    fn screen(&self) -> String {
        let captured = self.run(&["capture-pane", "-p"]).stdout;
        String::from_utf8(captured).unwrap()
    }

    /// Waits until the screen is as expected, and returns it.
    fn wait_for(&self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if is_it(&screen) {
                return screen;
            }
            assert!(start.elapsed() < TIMEOUT, "no {what} in:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

#[test]
#[ignore = "needs tmux"]
fn status_is_a_page_that_follows_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let [www, zone, socket] = &content(folder.path(), "www");
    let arguments = [
        "serve",
        "--web",
        www,
        "--zone",
        zone,
        "--control-socket",
        socket,
    ];
    let storm = Example::start(STORM, &arguments);
    let command = format!("{STORM} status --control-socket {socket}; echo \"status $?\"; cat");
    let tmux = Tmux::start(folder.path().join("tmux"), &command);
    let screen = tmux.wait_for("server", |screen| screen.contains("serving"));
    assert!(screen.starts_with("storm 0.1.0"), "{screen}");
    let has_total = |screen: &str, name: &str, total: &str| {
        let words = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let row = |line: &&str| line.contains(name) && words(line).iter().any(|word| word == total);
        screen.lines().any(|line| row(&line))
    };
    storm.beside(|| {
        let url = format!("http://{}/", storm.addresses[0]);
        for _ in 0..3 {
            assert!(
                Command::new("curl")
                    .args(["-s", &url])
                    .output()
                    .unwrap()
                    .status
                    .success()
            );
        }
    });
    tmux.wait_for("requests", |screen| {
        has_total(screen, "sandstorm: requests", "3│")
    });
    tmux.run(&["resize-window", "-x", "70", "-y", "20"]);
    let is_drawn = |screen: &str| {
        screen
            .lines()
            .nth(1)
            .is_some_and(|line| line.ends_with('┐'))
    };
    tmux.wait_for("frame of the new size", is_drawn);
    storm.stop();
    tmux.wait_for("word of the lost server", |screen| {
        screen.contains("no answer, trying again:")
    });
    let again = Example::start(STORM, &arguments);
    tmux.wait_for("new server", |screen| !screen.contains("no answer"));
    tmux.run(&["send-keys", "q"]);
    tmux.wait_for("end", |screen| screen.contains("status 0"));
    again.stop();
}
