//! Tests `storm serve`: its service to clients that use this host's kernel, and its error messages.
//! Needs root.

use std::fs;
use std::io::ErrorKind::ConnectionRefused;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use testkit::rig::Server;

const ZONE: &str = "\
$ORIGIN storm.test.
@   3600 IN SOA ns hostmaster 1 7200 3600 1209600 300
@   3600 IN NS  ns
ns  3600 IN A   192.0.2.53
";

/// Maximum time to wait for a refusal, after which a test fails.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a program and returns its output. The program must succeed within 20 s.
fn output(program: &str, arguments: &[&str]) -> String {
    let mut limited = Command::new("timeout");
    limited.args(["20", program]).args(arguments);
    let output = limited.output().unwrap();
    assert!(
        output.status.success(),
        "{program}, 124 after 20 s: {output:?}"
    );
    String::from_utf8(output.stdout).unwrap()
}

fn url(address: &IpAddr, port: u16) -> String {
    match address {
        IpAddr::V4(address) => format!("http://{address}:{port}/"),
        IpAddr::V6(address) => format!("http://[{address}]:{port}/"),
    }
}

#[test]
fn one_interface_serves_web_and_dns() {
    let folder = tempfile::tempdir().unwrap();
    let page = "a page\n".repeat(10_000);
    fs::write(folder.path().join("index.html"), &page).unwrap();
    let zone = tempfile::NamedTempFile::with_suffix(".zone").unwrap();
    fs::write(zone.path(), ZONE).unwrap();
    let place = folder.path().to_str().unwrap();
    let zone = zone.path().to_str().unwrap();
    for (ports, web, dns) in [
        (&[][..], 80, "53"),
        (
            &["--port", "8080", "--dns-port", "5353", "--workers", "2"],
            8080,
            "5353",
        ),
    ] {
        let arguments = [&["serve", "--web", place, "--zone", zone], ports].concat();
        let storm = Server::start(env!("CARGO_BIN_EXE_storm"), &arguments);
        storm.beside(|| {
            for address in &storm.addresses {
                let got = output("curl", &["-s", "-g", &url(address, web)]);
                assert!(got == page, "{} bytes", got.len());
                let server = format!("@{address}");
                for over in ["+notcp", "+tcp"] {
                    let asked = ["+short", over, "-p", dns, &server, "ns.storm.test", "A"];
                    assert_eq!(output("dig", &asked), "192.0.2.53\n");
                }
                // Unserved ports are refused: over TCP by a reset, over UDP by an ICMP error.
                let refused = TcpStream::connect_timeout(&(*address, 81).into(), TIMEOUT);
                assert_eq!(refused.unwrap_err().kind(), ConnectionRefused);
                let any = if address.is_ipv4() {
                    "0.0.0.0:0"
                } else {
                    "[::]:0"
                };
                let socket = UdpSocket::bind(any).unwrap();
                socket.set_read_timeout(Some(TIMEOUT)).unwrap();
                socket.connect((*address, 80)).unwrap();
                socket.send(b"to a closed port").unwrap();
                let refused = socket.recv(&mut [0; 8]).unwrap_err();
                assert_eq!(refused.kind(), ConnectionRefused);
            }
        });
        let summary = storm.stop();
        // Each of the two addresses got one HTTP request, one query over UDP and one over TCP.
        for (server, event) in [
            ("sandstorm:", "connections 2"),
            ("sandstorm:", "connections open 0"),
            ("sandstorm:", "requests 2"),
            ("sandstorm:", "answers 2 (200 2)"),
            ("namestorm:", "queries 4 (udp 2, tcp 2)"),
            ("namestorm:", "replies 4 (udp NOERROR 2, tcp NOERROR 2)"),
            ("namestorm:", "connections 2"),
            ("namestorm:", "connections open 0"),
        ] {
            let words = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
            let expected = format!("{server} {event}");
            assert!(
                summary.iter().any(|line| words(line) == expected),
                "{expected}: {summary:#?}"
            );
        }
    }
}

#[test]
fn an_error_is_one_message_with_the_remedy() {
    let run = |status: i32, arguments: &[&str]| {
        let mut storm = Command::new("timeout");
        storm.args(["20", env!("CARGO_BIN_EXE_storm"), "serve"]);
        let output = storm.args(arguments).output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(status),
            "124 after 20 s: {output:?}"
        );
        String::from_utf8(output.stderr).unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    fs::write(folder.path().join("index.html"), "a page").unwrap();
    let message = run(1, &["--web", "/nowhere", "--zone", "/nowhere.zone"]);
    assert!(message.contains("/nowhere"), "{message}");
    for strict in [&[][..], &["--strict"]] {
        let arguments = [&["--web", place, "--zone", "/nowhere.zone"], strict].concat();
        let message = run(1, &arguments);
        assert!(message.contains("/nowhere.zone"), "{message}");
        assert!(message.contains("no zone can be loaded"), "{message}");
    }
    let zone = tempfile::NamedTempFile::with_suffix(".zone").unwrap();
    fs::write(zone.path(), ZONE).unwrap();
    let zone = zone.path().to_str().unwrap();
    let message = run(2, &["--web", place, "--zone", zone, "--port", "53"]);
    let conflict =
        "sandstorm (--port) and namestorm (--dns-port) both have TCP port 53; give one of them";
    assert!(message.contains(conflict), "{message}");
}

/// A download that begins before a reload is the old file, byte for byte. What follows is new. An
/// error in a zone keeps all old zones.
#[test]
fn sighup_reloads_the_folder_and_the_zones() {
    const LARGE: usize = 8_000_000;
    let folder = tempfile::tempdir().unwrap();
    // The server's user reads the files again.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        fs::create_dir_all(folder.path().join("www")).unwrap();
        fs::write(folder.path().join(name), bytes).unwrap();
    };
    let zone = |address: &str| ZONE.replace("192.0.2.53", address);
    write("www/index.html", b"old");
    write("www/large", &vec![b'A'; LARGE]);
    write("a.zone", zone("192.0.2.1").as_bytes());
    // The completion of a shell ends a folder with a slash.
    let [www, pattern] = ["www/", "*.zone"].map(|name| folder.path().join(name));
    let [www, pattern] = [&www, &pattern].map(|path| path.to_str().unwrap());
    let arguments = ["serve", "--web", www, "--zones-from", pattern];
    let mut storm = Server::start(env!("CARGO_BIN_EXE_storm"), &arguments);
    let address = storm.addresses[0];
    let server = format!("@{address}");
    let get = |path: &str| output("curl", &["-s", &(url(&address, 80) + path)]);
    let ask = |name: &str| output("dig", &["+short", &server, name, "A"]);
    let mut slow = storm.beside(|| {
        assert_eq!(
            (get(""), ask("ns.storm.test")),
            ("old".into(), "192.0.2.1\n".into())
        );
        let url = url(&address, 80) + "large";
        let mut slow = Command::new("curl");
        slow.args(["-s", "--limit-rate", "4M", &url])
            .stdout(Stdio::piped());
        slow.spawn().unwrap()
    });
    let mut received = [0; 1];
    let mut stream = slow.stdout.take().unwrap();
    stream.read_exact(&mut received).unwrap();
    write("www/index.html", b"new");
    write("www/large", &vec![b'B'; LARGE]);
    write("a.zone", zone("192.0.2.2").as_bytes());
    write("b.zone", ZONE.replace("storm", "second").as_bytes());
    let line = storm.hang_up_until("reloaded:");
    assert!(
        line.contains("sandstorm: 2 files") && line.contains("namestorm: 2 zones"),
        "{line}"
    );
    storm.beside(|| {
        assert_eq!(
            (get(""), ask("ns.storm.test")),
            ("new".into(), "192.0.2.2\n".into())
        );
        assert_eq!(ask("ns.second.test"), "192.0.2.53\n");
        assert!(get("large").bytes().all(|byte| byte == b'B'));
    });
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(slow.wait().unwrap().success());
    assert_eq!(rest.len() + received.len(), LARGE);
    assert!(rest.iter().all(|byte| *byte == b'A'));
    // The folder is new, but the zone has an error.
    write("www/index.html", b"newest");
    write("a.zone", b"an error");
    storm.hang_up();
    storm.beside(|| {
        let start = std::time::Instant::now();
        while get("") != "newest" {
            assert!(start.elapsed() < TIMEOUT, "the page stays old");
        }
        assert_eq!(ask("ns.storm.test"), "192.0.2.2\n");
    });
    storm.stop();
}

/// The command `reload` tells what has become of the new content, and metrics count it.
#[test]
fn the_control_socket_reloads_and_tells() {
    let folder = tempfile::tempdir().unwrap();
    // The server's user reads the files again.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let [www, zone, socket] = ["www", "a.zone", "socket"].map(|name| folder.path().join(name));
    let page = www.join("index.html");
    fs::create_dir(&www).unwrap();
    fs::write(&page, "old").unwrap();
    fs::write(&zone, ZONE).unwrap();
    let [www, zone_file, socket] = [&www, &zone, &socket].map(|path| path.to_str().unwrap());
    let at_socket = ["--control-socket", socket];
    let arguments = ["serve", "--web", www, "--zone", zone_file];
    let arguments = [&arguments[..], &at_socket].concat();
    let storm = Server::start(env!("CARGO_BIN_EXE_storm"), &arguments);
    let url = url(&storm.addresses[0], 80);
    let get = || output("curl", &["-s", &url]);
    let command = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_storm"));
        let output = command.args(words).args(at_socket).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    // The folder is new, but the zone has an error.
    fs::write(&page, "new").unwrap();
    fs::write(&zone, "an error").unwrap();
    let (succeeded, text) = command(&["reload"]);
    assert!(
        !succeeded && text.starts_with("storm: only a part is reloaded, other content stays old: "),
        "{text}"
    );
    let (kept, done) = text.split_once("; the rest was reloaded in ").unwrap();
    let kept = kept.split_once("stays old: ").unwrap().1;
    assert!(done.contains(" s, sandstorm: 1 file, 3 B; "), "{text}");
    let why = "namestorm: zones with errors: 1; the first error is ";
    assert!(
        kept.starts_with(&format!("{why}{zone_file}:1:4: ")),
        "{text}"
    );
    storm.beside(|| assert_eq!(get(), "new"));
    // One part of the content can be reloaded alone.
    fs::write(&page, "newest").unwrap();
    let (succeeded, text) = command(&["reload", www]);
    assert!(succeeded && text.starts_with("reloaded in "), "{text}");
    storm.beside(|| assert_eq!(get(), "newest"));
    let (succeeded, text) = command(&["reload", www]);
    assert!(
        succeeded && text.contains("1 file, 6 B; nothing has changed"),
        "{text}"
    );
    for (name, why) in [
        ("storm.test", "storm.test. cannot be loaded: "),
        ("a..b", "no content is called"),
    ] {
        let (succeeded, text) = command(&["reload", name]);
        assert!(!succeeded && text.contains(why), "{text}");
    }
    let (succeeded, text) = command(&["status"]);
    assert!(
        succeeded && text.contains("4 (2 reloads failed, 1 was partial)"),
        "{text}"
    );
    for line in [
        "storm_reloads_total{result=\"succeeded\"} 2\n",
        "storm_reloads_total{result=\"partial\"} 1\n",
        "storm_reloads_total{result=\"failed\"} 2\n",
        "sandstorm_answers_total{worker=\"0\",status=\"200\"} 2\n",
    ] {
        // Workers publish their counts only now and then.
        let start = std::time::Instant::now();
        let metrics = || {
            let url = "http://localhost/metrics";
            output("curl", &["-s", "--unix-socket", socket, url])
        };
        while !metrics().contains(line) {
            assert!(start.elapsed() < TIMEOUT, "{line}{}", metrics());
        }
    }
    storm.stop();
}

/// Both logs have a line for each request and query, and SIGUSR1 opens their files again.
#[test]
fn requests_and_queries_are_logged() {
    let folder = tempfile::tempdir().unwrap();
    // The server's user makes new files.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let paths = ["www", "zone", "access", "query", "old"].map(|name| folder.path().join(name));
    let [www, zone, access, query, old] = &paths;
    fs::create_dir(www).unwrap();
    fs::write(www.join("index.html"), "hello").unwrap();
    fs::write(zone, ZONE).unwrap();
    let [www, zone, access_file, query_file] =
        [www, zone, access, query].map(|path| path.to_str().unwrap());
    let mut arguments = vec!["serve", "--web", www, "--zone", zone];
    arguments.extend(["--access-log", access_file, "--access-log-format"]);
    arguments.extend([
        "method,target,status,bytes,user-agent",
        "--query-log",
        query_file,
    ]);
    let storm = Server::start(env!("CARGO_BIN_EXE_storm"), &arguments);
    let address = storm.addresses[0];
    let (url, server) = (url(&address, 80), format!("@{address}"));
    let get = |agent: &str| output("curl", &["-s", "-A", agent, &url]);
    let logged = |path: &Path, text: &str| {
        let start = std::time::Instant::now();
        let read = || fs::read_to_string(path).unwrap_or_default();
        while !read().contains(text) {
            assert!(start.elapsed() < TIMEOUT, "{text}: {}", read());
        }
    };
    storm.beside(|| {
        get("one");
        output("curl", &["-sI", "-A", "two", &(url.clone() + "none")]);
        for transport in ["+notcp", "+tcp"] {
            output("dig", &[transport, &server, "ns.storm.test", "A"]);
        }
    });
    logged(access, "GET\t/\t200\t5\tone\nHEAD\t/none\t404\t0\ttwo\n");
    logged(query, " udp ns.storm.test. A NOERROR ");
    logged(query, " tcp ns.storm.test. A NOERROR ");
    fs::rename(access, old).unwrap();
    storm.reopen_logs();
    let start = std::time::Instant::now();
    while !access.exists() {
        assert!(start.elapsed() < TIMEOUT, "the file is not made again");
    }
    storm.beside(|| get("three"));
    logged(access, "GET\t/\t200\t5\tthree\n");
    assert!(!fs::read_to_string(old).unwrap().contains("three"));
    storm.stop();
}

/// With `--watch`, a changed page, a page in a new folder and a new zone are served without a
/// command.
#[test]
fn changes_are_seen_without_a_command() {
    let folder = tempfile::tempdir().unwrap();
    // The server's user reads the files again.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("www/index.html", "old");
    write("a.zone", ZONE);
    let [www, pattern] = ["www", "*.zone"].map(|name| folder.path().join(name));
    let [www, pattern] = [&www, &pattern].map(|path| path.to_str().unwrap());
    let arguments = ["serve", "--watch", "--web", www, "--zones-from", pattern];
    let storm = Server::start(env!("CARGO_BIN_EXE_storm"), &arguments);
    let address = storm.addresses[0];
    let server = format!("@{address}");
    storm.beside(|| {
        let becomes = |path: &str, text: &str| {
            let start = std::time::Instant::now();
            while output("curl", &["-s", &(url(&address, 80) + path)]) != text {
                assert!(start.elapsed() < TIMEOUT, "{path} does not become {text}");
            }
        };
        becomes("", "old");
        write("www/index.html", "new");
        becomes("", "new");
        write("www/below/page", "deep");
        write("b.zone", &ZONE.replace("storm", "second"));
        becomes("below/page", "deep");
        let start = std::time::Instant::now();
        while output("dig", &["+short", &server, "ns.second.test", "A"]) != "192.0.2.53\n" {
            assert!(start.elapsed() < TIMEOUT, "the new zone is not served");
        }
        write("www/below/page", "deeper");
        becomes("below/page", "deeper");
    });
    storm.stop();
}

/// The end of the drain cuts what has not ended. A client that reads nothing gets a reset. One that
/// has not completed its request gets a FIN.
#[test]
fn the_end_of_the_drain_cuts_what_is_stuck() {
    const LARGE: usize = 40_000_000;
    const DRAIN: Duration = Duration::from_secs(2);
    let folder = tempfile::tempdir().unwrap();
    let [www, zone] = ["www", "a.zone"].map(|name| folder.path().join(name));
    fs::create_dir(&www).unwrap();
    fs::write(www.join("large"), vec![b'A'; LARGE]).unwrap();
    fs::write(&zone, ZONE).unwrap();
    let [www, zone] = [&www, &zone].map(|path| path.to_str().unwrap());
    let arguments = ["serve", "--web", www, "--zone", zone, "--drain", "2s"];
    let storm = Server::start(env!("CARGO_BIN_EXE_storm"), &arguments);
    let address = storm.addresses[0];
    // Once the second request is answered, the server has the part of the first one.
    let [mut slow, mut stuck] = storm.beside(|| {
        ["GET /large HT", "GET /large HTTP/1.1\r\nHost: a\r\n\r\n"].map(|request| {
            let mut stream = TcpStream::connect((address, 80)).unwrap();
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
    });
    let mut received = [0; 1];
    stuck.read_exact(&mut received).unwrap();
    let asked = std::time::Instant::now();
    storm.ask_to_stop();
    // The FIN comes while the server still runs.
    assert_eq!(slow.read(&mut received).unwrap(), 0);
    assert!(asked.elapsed() >= DRAIN, "{:?}", asked.elapsed());
    let summary = storm.end();
    let words = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        summary
            .iter()
            .any(|line| words(line) == "sandstorm: connections cut 2"),
        "{summary:#?}"
    );
    // What the client's kernel has received comes first.
    let error = std::io::copy(&mut stuck, &mut std::io::sink()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// After a request to stop, a download that has begun gets every byte, and a new client is refused.
#[test]
fn a_download_outlives_the_request_to_stop() {
    const LARGE: usize = 40_000_000;
    let folder = tempfile::tempdir().unwrap();
    let [www, zone] = ["www", "a.zone"].map(|name| folder.path().join(name));
    fs::create_dir(&www).unwrap();
    fs::write(www.join("large"), vec![b'A'; LARGE]).unwrap();
    fs::write(&zone, ZONE).unwrap();
    let [www, zone] = [&www, &zone].map(|path| path.to_str().unwrap());
    let arguments = ["serve", "--web", www, "--zone", zone];
    let storm = Server::start(env!("CARGO_BIN_EXE_storm"), &arguments);
    let address = storm.addresses[0];
    let mut slow = storm.beside(|| {
        let url = url(&address, 80) + "large";
        let mut slow = Command::new("curl");
        slow.args(["-s", "--limit-rate", "20M", &url])
            .stdout(Stdio::piped());
        slow.spawn().unwrap()
    });
    let mut received = [0; 1];
    let mut stream = slow.stdout.take().unwrap();
    stream.read_exact(&mut received).unwrap();
    storm.ask_to_stop();
    storm.beside(|| {
        let start = std::time::Instant::now();
        // The request to stop may take a moment.
        while TcpStream::connect_timeout(&(address, 80).into(), TIMEOUT).is_ok() {
            assert!(start.elapsed() < TIMEOUT, "new clients are still served");
        }
    });
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(slow.wait().unwrap().success());
    assert_eq!(rest.len() + received.len(), LARGE);
    let summary = storm.end();
    assert!(
        summary
            .iter()
            .any(|line| line.contains("may finish within 10 s")),
        "{summary:#?}"
    );
}
