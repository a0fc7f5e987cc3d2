//! Tests what `storm serve` does when its surroundings fail: it names the failure, counts what is
//! lost, and serves on. Needs root.

mod content;

use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use content::content;
use rustix::fs::OFlags;
use testkit::rig::Server;

/// Maximum time to wait for something, after which a test fails.
const TIMEOUT: Duration = Duration::from_secs(20);
const STORM: &str = env!("CARGO_BIN_EXE_storm");
/// Runs a program with loopback, and with standard error in a file.
const WITH_LOG: &str = "ip link set lo up; exec 2> \"$0\"; exec \"$@\"";

/// Starts the server with its log in a file.
fn start(log: &Path, arguments: &[&str]) -> Server {
    let log = log.to_str().unwrap();
    let line = [&["-c", WITH_LOG, log, STORM, "serve"], arguments].concat();
    Server::start("sh", &line)
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Makes a pipe that has a name.
fn make_pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

/// Checks that both servers answer.
fn serves(storm: &Server) {
    let address = storm.addresses[0];
    storm.beside(|| {
        let page = output("curl", &["-s", "-m", "20", &format!("http://{address}/")]);
        assert_eq!(page, "a page");
        let server = format!("@{address}");
        let answer = output("dig", &["+short", &server, "a.a.test", "A"]);
        assert_eq!(answer, "192.0.2.1\n");
    });
}

/// Waits until `read` returns a text with `part`.
fn wait_for(part: &str, read: impl Fn() -> String) {
    let start = Instant::now();
    while !read().contains(part) {
        assert!(start.elapsed() < TIMEOUT, "no {part} in {}", read());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns a metric's value, without its labels.
fn metric(socket: &str, name: &str) -> u64 {
    let url = "http://localhost/metrics";
    let all = output("curl", &["-s", "--unix-socket", socket, url]);
    let line = all.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.rsplit(' ').next());
    value.unwrap_or_else(|| panic!("{all}")).parse().unwrap()
}

/// Waits until a metric is more than this.
fn wait_for_more(socket: &str, name: &str, than: u64) {
    let start = Instant::now();
    while metric(socket, name) <= than {
        assert!(start.elapsed() < TIMEOUT, "{name} stays {than}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Sends requests on one connection, each with a line of 2 kB for the log.
fn ask_often(address: IpAddr, times: usize) {
    let mut stream = TcpStream::connect((address, 80)).unwrap();
    let agent = "x".repeat(2_000);
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\n\r\n");
    let mut reader = stream.try_clone().unwrap();
    let reading = thread::spawn(move || {
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        let text = String::from_utf8(all).unwrap();
        text.matches("HTTP/1.1 200 OK\r\n").count()
    });
    for number in 1..=times {
        let close = "Connection: close\r\n\r\n";
        let last = request.replace("\r\n\r\n", &format!("\r\n{close}"));
        let request = if number == times { &last } else { &request };
        stream.write_all(request.as_bytes()).unwrap();
    }
    assert_eq!(reading.join().unwrap(), times);
}

/// A taken address of the metrics, and the socket of a dead process, do not keep the server from
/// its start.
#[test]
fn taken_sockets_are_named_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let [www, zone, socket] = &content(folder.path(), "www");
    // The socket stays in the folder, and nobody listens at it.
    drop(UnixListener::bind(socket).unwrap());
    let taken = folder.path().join("metrics");
    let _listening = UnixListener::bind(&taken).unwrap();
    let metrics = format!("unix:{}", taken.display());
    let log = folder.path().join("log");
    let mut arguments = vec!["--web", www, "--zone", zone, "--control-socket", socket];
    arguments.extend(["--metrics-listen", &metrics]);
    let storm = start(&log, &arguments);
    serves(&storm);
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("there are no metrics"), "{log}");
    assert!(log.contains(&metrics), "{log}");
    wait_for("\"name\":\"requests\"", || {
        output(
            "curl",
            &["-s", "--unix-socket", socket, "http://localhost/status"],
        )
    });
    let url = "http://localhost/metrics";
    let metrics = output("curl", &["-s", "--unix-socket", socket, url]);
    for (endpoint, is_up) in [("metrics", "0.0"), ("control", "1.0")] {
        let line = format!("storm_endpoint_up{{endpoint=\"{endpoint}\"}} {is_up}");
        assert!(metrics.lines().any(|found| found == line), "{metrics}");
    }
    storm.stop();
}

/// A web page cannot read the metrics by pointing its own name at the server, and connections that
/// send nothing keep nobody from them.
#[test]
fn strangers_do_not_get_or_block_the_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let [www, zone, socket] = &content(folder.path(), "www");
    let log = folder.path().join("log");
    let mut arguments = vec!["--web", www, "--zone", zone, "--control-socket", socket];
    arguments.extend(["--metrics-listen", "9153"]);
    let storm = start(&log, &arguments);
    storm.beside(|| {
        let ask = |host: &str| {
            let host = format!("Host: {host}");
            let told = ["-s", "-m", "20", "-w", "%{http_code}", "-H", &host];
            let url = "http://127.0.0.1:9153/ready";
            output("curl", &[&told[..], &[url]].concat())
        };
        let mut idle: Vec<_> = (0..20)
            .map(|_| TcpStream::connect("127.0.0.1:9153").unwrap())
            .collect();
        for host in ["127.0.0.1:9153", "localhost", "Web1:9153"] {
            assert_eq!(ask(host), "ok\n200", "{host}");
        }
        assert_eq!(idle[0].read(&mut [0]).unwrap(), 0, "the oldest gave way");
        let refused = ask("web2.example.net");
        assert!(refused.ends_with("421"), "{refused}");
        assert!(
            refused.contains("use localhost or the address"),
            "{refused}"
        );
    });
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("\"web2.example.net\" is not a name"), "{log}");
    storm.stop();
}

/// The reader of the access log is stuck, and the disk under the query log is full. Lines are lost
/// and counted, and no client waits.
#[test]
fn logs_that_cannot_be_written_cost_only_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let [www, zone, socket] = &content(folder.path(), "www");
    let fifo = folder.path().join("fifo");
    make_pipe(&fifo);
    // The other end stays open, and nobody reads from it.
    let _stuck = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&fifo)
        .unwrap();
    let log = folder.path().join("log");
    let mut arguments = vec!["--web", www, "--zone", zone, "--control-socket", socket];
    arguments.extend(["--access-log", fifo.to_str().unwrap()]);
    arguments.extend(["--query-log", "/dev/full"]);
    let storm = start(&log, &arguments);
    serves(&storm);
    storm.beside(|| ask_often(storm.addresses[0], 4_000));
    wait_for_more(socket, "sandstorm_access_log_lines_lost_total", 0);
    // The stuck log does not keep lines from the other one.
    let name = "namestorm_query_log_lines_lost_total";
    wait_for_more(socket, name, 0);
    let before = metric(socket, name);
    serves(&storm);
    wait_for_more(socket, name, before);
    storm.stop();
}

/// Standard error cannot be written. Its lines are lost, and no thread ends.
#[test]
fn a_server_without_a_log_serves_on() {
    let folder = tempfile::tempdir().unwrap();
    let [www, zone, socket] = &content(folder.path(), "www");
    let mut arguments = vec!["--web", www, "--zone", zone, "--control-socket", socket];
    arguments.extend(["--log", "info", "--access-log", "/dev/full"]);
    let storm = start("/dev/full".as_ref(), &arguments);
    storm.cause_line();
    let name = "sandstorm_access_log_lines_lost_total";
    for before in 0..2 {
        serves(&storm);
        wait_for_more(socket, name, before);
    }
    storm.stop();
}

/// Nobody reads standard error, and its pipe is full. The control thread goes on.
#[test]
fn a_reader_of_the_log_that_is_stuck_holds_up_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [www, zone, socket] = &content(folder.path(), "www");
    let path = folder.path().join("log");
    make_pipe(&path);
    let mut pipe = OpenOptions::new();
    pipe.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let mut pipe = pipe.read(true).write(true).open(&path).unwrap();
    while pipe.write(&[b'x'; 4_096]).is_ok() {}
    let mut arguments = vec!["--web", www, "--zone", zone, "--control-socket", socket];
    arguments.extend(["--log", "info"]);
    let storm = start(&path, &arguments);
    storm.cause_line();
    thread::sleep(Duration::from_millis(500));
    let at = ["--unix-socket", socket, "http://localhost/health"];
    let health = output("curl", &[&["-s", "-m", "10"][..], &at].concat());
    assert_eq!(health, "ok\n");
    let mut text = vec![0; 1 << 20];
    while pipe.read(&mut text).is_ok() {}
    storm.cause_line();
    thread::sleep(Duration::from_millis(500));
    let len = pipe.read(&mut text).unwrap();
    let text = String::from_utf8_lossy(&text[..len]);
    assert!(text.contains("the log has lost"), "{text}");
    storm.stop();
}

/// A disk that is full is named in the log.
#[test]
fn a_full_disk_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let [www, zone, socket] = &content(folder.path(), "www");
    let log = folder.path().join("log");
    let mut arguments = vec!["--web", www, "--zone", zone, "--control-socket", socket];
    arguments.extend(["--access-log", "/dev/full"]);
    let storm = start(&log, &arguments);
    serves(&storm);
    let expected = "access log: /dev/full: No space left on device (os error 28)";
    wait_for(expected, || fs::read_to_string(&log).unwrap());
    serves(&storm);
    storm.stop();
}

/// SIGUSR1 while the log's folder is missing: the old file stays open.
#[test]
fn a_log_that_cannot_be_opened_again_goes_to_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let [www, zone, socket] = &content(folder.path(), "www");
    let [logs, moved] = ["logs", "moved"].map(|name| folder.path().join(name));
    fs::create_dir(&logs).unwrap();
    let access = logs.join("access");
    let log = folder.path().join("log");
    let mut arguments = vec!["--web", www, "--zone", zone, "--control-socket", socket];
    arguments.extend(["--access-log", access.to_str().unwrap()]);
    let storm = start(&log, &arguments);
    fs::rename(&logs, &moved).unwrap();
    storm.reopen_logs();
    let expected = "so lines still go to the old file: No such file";
    wait_for(expected, || fs::read_to_string(&log).unwrap());
    serves(&storm);
    let access = moved.join("access");
    wait_for("\"GET / HTTP/1.1\" 200", || {
        fs::read_to_string(&access).unwrap()
    });
    storm.stop();
}

/// A log that cannot be opened at start is an error of the operator.
#[test]
fn a_log_that_cannot_be_opened_ends_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let [www, zone, _] = &content(folder.path(), "www");
    for (option, name) in [("--access-log", "access log"), ("--query-log", "query log")] {
        let arguments = ["serve", "--web", www, "--zone", zone, option, "/none/log"];
        let output = Command::new(STORM).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stderr).unwrap();
        let expected = format!("storm: {name}: /none/log: No such file");
        assert!(text.contains(&expected), "{text}");
    }
}

/// A pipe without a reader is an error, and not a reason to wait for ever.
#[test]
fn a_log_that_nobody_reads_ends_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let [www, zone, _] = &content(folder.path(), "www");
    let pipe = folder.path().join("pipe");
    make_pipe(&pipe);
    let arguments = ["20", STORM, "serve", "--web", www, "--zone", zone];
    for option in ["--access-log", "--dnstap"] {
        let mut storm = Command::new("timeout");
        let storm = storm.args(arguments).arg(option).arg(&pipe);
        let output = storm.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "124 after 20 s");
        let text = String::from_utf8(output.stderr).unwrap();
        let expected = "nobody reads this pipe; start the program that reads it first";
        assert!(text.contains(expected), "{text}");
    }
}

/// Without a terminal, the load of a large file has a line in the log every few seconds.
#[test]
fn a_long_load_is_logged() {
    let folder = tempfile::tempdir().unwrap();
    let [www, zone, socket] = &content(folder.path(), "www");
    let mut records = fs::read_to_string(zone).unwrap();
    records.extend((0..2_000_000).map(|number| format!("n{number} 60 IN A 192.0.2.1\n")));
    fs::write(zone, records).unwrap();
    let mut storm = Command::new("unshare");
    storm.args(["--net", STORM, "serve", "--web", www, "--zone", zone]);
    storm.args(["--control-socket", socket]);
    let mut storm = storm.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(storm.stderr.take().unwrap()).lines();
    let [first, second] = [(); 2].map(|()| lines.next());
    storm.kill().unwrap();
    storm.wait().unwrap();
    let [first, second] = [first, second].map(|line| line.unwrap().unwrap());
    assert!(first.starts_with("loading, 1 s"), "{first}");
    assert!(second.starts_with("loading, 6 s"), "{second}");
}
