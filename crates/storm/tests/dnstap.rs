//! Collects the messages of dnstap with the programs that others use for it. Needs root. A test says
//! that it is skipped if a program is not installed (`apt-get install fstrm-bin bind9-dnsutils`).

mod content;

use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use content::content;
use rustix::process::{Pid, Signal, kill_process};
use testkit::rig::Server;

const STORM: &str = env!("CARGO_BIN_EXE_storm");
const TYPE: &str = "protobuf:dnstap.Dnstap";
/// Maximum time to wait for a collector, after which a test fails.
const TIMEOUT: Duration = Duration::from_secs(20);

fn is_installed(programs: &[&str]) -> bool {
    let missing = |program: &&&str| Command::new(program).arg("-h").output().is_err();
    match programs.iter().find(missing) {
        None => true,
        Some(missing) => {
            println!(
                "skipped: {missing} is not installed (apt-get install fstrm-bin bind9-dnsutils)"
            );
            false
        }
    }
}

/// Sends queries for the zone `a.test`: one for each word, with these options of `dig`.
fn ask(server: IpAddr, options: &[&str]) {
    let mut dig = Command::new("dig");
    dig.args([
        &format!("@{server}"),
        "+time=3",
        "+tries=1",
        "A.test",
        "SOA",
    ]);
    let output = dig.args(options).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("status: NOERROR"), "{text}");
}

/// Returns the lines that `dnstap-read` prints for a file, without the time.
fn read(file: &Path) -> Vec<String> {
    let output = Command::new("dnstap-read").arg(file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| line.split(' ').skip(2).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect()
}

/// Checks that the lines are a query and its reply.
fn check_pair(lines: &[String], server: IpAddr, transport: &str) {
    let at = match server {
        IpAddr::V4(v4) => format!("-> {v4}:53 {transport} "),
        IpAddr::V6(v6) => format!("-> {v6}:53 {transport} "),
    };
    let from = match server {
        IpAddr::V4(v4) => format!("<- {v4}:53 {transport} "),
        IpAddr::V6(v6) => format!("<- {v6}:53 {transport} "),
    };
    let [query, reply] = lines else {
        panic!("{lines:?}");
    };
    assert!(query.starts_with("AQ ") && query.contains(&at), "{query}");
    assert!(reply.starts_with("AR ") && reply.contains(&from), "{reply}");
    for line in lines {
        assert!(line.ends_with("b A.test/IN/SOA"), "{line}");
    }
}

/// A program that writes what it gets at a socket to a file.
struct Collector(Child);

impl Collector {
    fn start(socket: &Path, file: &Path) -> Self {
        let mut capture = Command::new("fstrm_capture");
        capture
            .args(["-t", TYPE, "-u"])
            .arg(socket)
            .arg("-w")
            .arg(file);
        let child = capture.spawn().unwrap();
        let start = Instant::now();
        while fs::set_permissions(socket, Permissions::from_mode(0o777)).is_err() {
            assert!(start.elapsed() < TIMEOUT, "it makes no socket");
            thread::sleep(Duration::from_millis(10));
        }
        Self(child)
    }

    fn stop(mut self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // Errors are ignored, because the process may already have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server with this content, whose messages go to `to`.
fn start([www, zone, socket]: &[String; 3], to: &str) -> Server {
    let content = ["serve", "--web", www, "--zone", zone];
    let others = ["--control-socket", socket, "--dnstap", to];
    Server::start(STORM, &[&content[..], &others].concat())
}

#[test]
fn a_collector_that_restarts_gets_queries_and_replies() {
    if !is_installed(&["fstrm_capture", "dnstap-read", "dig"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let content = content(folder.path(), "www");
    let [tap, first, second] = ["tap", "first", "second"].map(|name| folder.path().join(name));
    let to = format!("unix:{}", tap.display());
    // Nobody listens yet, so the messages wait.
    let storm = start(&content, &to);
    let [v4, v6] = [storm.addresses[0], storm.addresses[1]];
    storm.beside(|| ask(v4, &["+notcp"]));
    let collector = Collector::start(&tap, &first);
    thread::sleep(Duration::from_millis(2_500));
    storm.beside(|| ask(v6, &["+notcp"]));
    thread::sleep(Duration::from_millis(500));
    collector.stop();
    fs::remove_file(&tap).unwrap();
    let lines = read(&first);
    assert_eq!(lines.len(), 4, "{lines:?}");
    check_pair(&lines[..2], v4, "UDP");
    check_pair(&lines[2..], v6, "UDP");
    // The server, which is in its sandbox, connects again.
    let collector = Collector::start(&tap, &second);
    thread::sleep(Duration::from_millis(2_500));
    storm.beside(|| ask(v4, &["+tcp"]));
    let summary = storm.stop();
    collector.stop();
    check_pair(&read(&second), v4, "TCP");
    let lost = summary
        .iter()
        .find(|line| line.contains("dnstap messages lost"));
    assert!(lost.is_some_and(|line| line.ends_with(" 0")), "{summary:?}");
}

#[test]
fn a_file_is_begun_anew_after_a_rotation() {
    if !is_installed(&["dnstap-read", "dig"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let content = content(folder.path(), "www");
    let taps = folder.path().join("taps");
    fs::create_dir(&taps).unwrap();
    for open in [folder.path(), &taps] {
        fs::set_permissions(open, Permissions::from_mode(0o777)).unwrap();
    }
    let [tap, moved] = ["tap", "moved"].map(|name| taps.join(name));
    let to = tap.to_str().unwrap();
    let storm = start(&content, to);
    let server = storm.addresses[0];
    storm.beside(|| ask(server, &["+notcp", "+edns"]));
    thread::sleep(Duration::from_millis(200));
    fs::rename(&tap, &moved).unwrap();
    storm.reopen_logs();
    let start = Instant::now();
    while !tap.exists() {
        assert!(start.elapsed() < TIMEOUT, "there is no new file");
        thread::sleep(Duration::from_millis(10));
    }
    storm.beside(|| ask(server, &["+notcp", "+noedns"]));
    storm.stop();
    for file in [&moved, &tap] {
        check_pair(&read(file), server, "UDP");
    }
}
