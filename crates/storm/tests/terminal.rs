//! Drives `storm` in a terminal of tmux: the page of `status`, and the progress of a load. Needs root and
//! tmux, so `cargo xtask test` runs it as a step of its own.

mod content;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use content::content;
use rustix::process::{Pid, Signal, kill_process};
use testkit::rig::Server;

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
    let storm = Server::start(STORM, &arguments);
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
    let again = Server::start(STORM, &arguments);
    tmux.wait_for("new server", |screen| !screen.contains("no answer"));
    tmux.run(&["send-keys", "q"]);
    tmux.wait_for("end", |screen| screen.contains("status 0"));
    again.stop();
}

/// A signal ends the page, and the terminal is as it was: in canonical mode, with echo, and without
/// the page.
#[test]
#[ignore = "needs tmux"]
fn a_signal_leaves_the_terminal_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let [www, zone, socket] = &content(folder.path(), "www");
    let mut arguments = vec!["serve", "--web", www, "--zone", zone];
    arguments.extend(["--control-socket", socket]);
    let storm = Server::start(STORM, &arguments);
    let note = folder.path().join("pid");
    let note = note.to_str().unwrap();
    // The shell becomes the page, so the number that it notes is the page's.
    let page = format!("echo $$ > {note}; exec {STORM} status --control-socket {socket}");
    let command = format!("stty -a > {note}.before; sh -c '{page}'; echo \"status $?\"");
    let command = format!("{command}; stty -a > {note}.after; echo ended; cat");
    let tmux = Tmux::start(folder.path().join("tmux"), &command);
    tmux.wait_for("server", |screen| screen.contains("serving"));
    let number = std::fs::read_to_string(note).unwrap();
    let number = number.trim().parse().ok().and_then(Pid::from_raw);
    kill_process(number.unwrap(), Signal::TERM).unwrap();
    // The status is 128 and the signal's number, as of a program without a handler.
    let screen = tmux.wait_for("end", |screen| screen.contains("ended"));
    assert!(screen.contains("status 143"), "{screen}");
    assert!(!screen.contains("serving"), "{screen}");
    let mode = |name| std::fs::read_to_string(format!("{note}.{name}")).unwrap();
    assert!(mode("before").contains(" icanon ") && mode("before").contains(" echo "));
    assert_eq!(mode("after"), mode("before"));
    storm.stop();
}

/// A load that takes long, here of many names, shows a spinner on a terminal.
#[test]
#[ignore = "needs tmux"]
fn a_long_load_shows_its_progress() {
    let folder = tempfile::tempdir().unwrap();
    let [www, zone, socket] = &content(folder.path(), "www");
    std::os::unix::fs::symlink("nowhere", folder.path().join("www/bad")).unwrap();
    let mut records = std::fs::read_to_string(zone).unwrap();
    records.extend((0..600_000).map(|number| format!("n{number} 60 IN A 192.0.2.1\n")));
    std::fs::write(zone, records).unwrap();
    let storm = format!("{STORM} serve --web {www} --zone {zone} --control-socket {socket}");
    let tmux = Tmux::start(
        folder.path().join("tmux"),
        &format!("timeout --foreground 60 unshare --net {storm}; echo ended; cat"),
    );
    let screen = tmux.wait_for("spinner", |screen| screen.contains("loading, "));
    // The spinner keeps to one line.
    assert_eq!(screen.matches("loading, ").count(), 1, "{screen}");
    assert!(screen.contains("left out: "), "{screen}");
    let screen = tmux.wait_for("server", |screen| screen.contains("listening:"));
    assert!(!screen.contains("loading, "), "{screen}");
    tmux.run(&["send-keys", "C-c"]);
    tmux.wait_for("end", |screen| screen.contains("ended"));
}
