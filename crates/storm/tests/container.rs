//! Tests `storm serve` as the first process of a container. Such a process has no default effect of
//! signals, and the kernel kills the helper with it. Needs root.

mod content;

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use content::content;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use testkit::rig::Server;

/// Maximum time to wait for something, after which a test fails.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Runs the server as the first process.
const CONTAINER: [&str; 5] = [
    "--pid",
    "--fork",
    "--kill-child",
    env!("CARGO_BIN_EXE_storm"),
    "serve",
];

/// Makes a link whose other end is for clients, and runs a program.
const WITH_LINK: &str = "set -e; ip link add va type veth peer name vb; \
    ip address add 192.0.2.2/24 dev vb; ip address add fd00::2/64 dev vb nodad; \
    ip link set va up; ip link set vb up; exec unshare \"$@\"";
/// Uses this link, with a queue that the helper removes at the end.
const ON_LINK: [&str; 6] = [
    "--device",
    "xdp:va,qdisc=pfifo,partial-checksums",
    "--address",
    "192.0.2.80/24",
    "--address",
    "fd00::80/64",
];

/// A server in a container.
struct Contained {
    storm: Server,
    /// The server's process.
    process: Pid,
    /// Keeps the network namespace, also after the end of the server.
    network: File,
}

impl Contained {
    fn start(arguments: &[&str]) -> Self {
        let words = ["-c", WITH_LINK, "sh"];
        let words = [&words[..], &CONTAINER, arguments, &ON_LINK].concat();
        let storm = Server::start("sh", &words);
        let network = storm.beside(|| File::open("/proc/thread-self/ns/net").unwrap());
        let process = first_process(storm.id());
        let contained = Self {
            storm,
            process,
            network,
        };
        assert!(contained.queue().contains("pfifo"));
        contained
    }

    fn terminate(&self) {
        kill_process(self.process, Signal::TERM).unwrap();
    }

    /// Returns what `tc` says about the queue of the interface.
    fn queue(&self) -> String {
        let network = self.network.try_clone().unwrap();
        let inside = move || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(network.as_fd(), kind).unwrap();
            let show = ["qdisc", "show", "dev", "va"];
            let output = Command::new("tc").args(show).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        thread::spawn(inside).join().unwrap()
    }

    /// Waits until the process has ended, and checks that the interface is as before.
    fn leaves_nothing(&self) {
        let place = PathBuf::from(format!("/proc/{}", self.process));
        let start = Instant::now();
        while place.exists() {
            assert!(start.elapsed() < TIMEOUT, "the server serves on");
            thread::sleep(Duration::from_millis(20));
        }
        let queue = self.queue();
        assert!(queue.contains("noqueue"), "{queue}");
    }
}

/// Returns the only child of a process.
fn first_process(parent: u32) -> Pid {
    let children = format!("/proc/{parent}/task/{parent}/children");
    let start = Instant::now();
    loop {
        let text = fs::read_to_string(&children).unwrap();
        if let Ok(child) = text.trim().parse() {
            return Pid::from_raw(child).unwrap();
        }
        assert!(start.elapsed() < TIMEOUT, "there is no child");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a request on a connection of its own, with a line of 2 kB for the log.
fn ask(address: IpAddr) {
    let mut stream = TcpStream::connect((address, 80)).unwrap();
    let agent = "x".repeat(2_000);
    let fields = format!("Host: a\r\nConnection: close\r\nUser-Agent: {agent}\r\n\r\n");
    write!(stream, "GET / HTTP/1.1\r\n{fields}").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
}

/// The server leaves no time to the thread that writes the log, but to the helper.
#[test]
fn a_log_whose_reader_is_stuck_leaves_no_queue() {
    let folder = tempfile::tempdir().unwrap();
    let [www, zone, socket] = &content(folder.path(), "www");
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let mut both = OpenOptions::new();
    let _stuck = both.read(true).write(true).open(&pipe).unwrap();
    let mut arguments = vec!["--web", www, "--zone", zone, "--control-socket", socket];
    arguments.extend(["--access-log", pipe.to_str().unwrap()]);
    let contained = Contained::start(&arguments);
    let address = contained.storm.addresses[0];
    contained
        .storm
        .beside(|| (0..60).for_each(|_| ask(address)));
    contained.terminate();
    contained.leaves_nothing();
    let summary = contained.storm.end();
    let is_lost = |line: &String| line.contains("at the end, because whoever reads");
    assert!(summary.iter().any(is_lost), "{summary:#?}");
}

#[test]
fn a_second_signal_leaves_no_queue() {
    let folder = tempfile::tempdir().unwrap();
    let [www, zone, socket] = &content(folder.path(), "www");
    let arguments = ["--web", www, "--zone", zone, "--control-socket", socket];
    let contained = Contained::start(&arguments);
    let address = contained.storm.addresses[0];
    let _open = contained.storm.beside(|| {
        let mut stream = TcpStream::connect((address, 80)).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        stream
    });
    // The drain waits only for a request that has begun.
    thread::sleep(Duration::from_millis(500));
    contained.terminate();
    thread::sleep(Duration::from_millis(1_500));
    contained.terminate();
    contained.leaves_nothing();
}

#[test]
fn a_signal_ends_the_process_while_it_loads() {
    let folder = tempfile::tempdir().unwrap();
    let [www, zone, socket] = &content(folder.path(), "www");
    let mut records = fs::read_to_string(zone).unwrap();
    // They take several seconds.
    records.extend((0..1_000_000).map(|number| format!("n{number} 60 IN A 192.0.2.1\n")));
    fs::write(zone, records).unwrap();
    let mut storm = Command::new("unshare");
    storm.arg("--net").args(CONTAINER);
    storm.args(["--web", www, "--zone", zone, "--control-socket", socket]);
    let mut storm = storm.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(storm.stderr.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    assert!(line.starts_with("loading, 1 s"), "{line}");
    kill_process(first_process(storm.id()), Signal::TERM).unwrap();
    let start = Instant::now();
    while storm.try_wait().unwrap().is_none() && start.elapsed() < TIMEOUT {
        thread::sleep(Duration::from_millis(20));
    }
    // Has no effect on a process that has ended.
    storm.kill().unwrap();
    // 128, and the number of the signal.
    assert_eq!(storm.wait().unwrap().code(), Some(143));
}
