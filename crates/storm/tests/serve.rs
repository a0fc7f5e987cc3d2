//! Tests `storm serve`: its service to clients that use this host's kernel, and its error messages.
//! Needs root.

#[path = "../../../examples/tests/rig/mod.rs"]
mod rig;

use std::fs;
use std::io::ErrorKind::ConnectionRefused;
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use rig::Example;

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
        let storm = Example::start(env!("CARGO_BIN_EXE_storm"), &arguments);
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
            ("namestorm:", "queries over UDP 2"),
            ("namestorm:", "queries over TCP 2"),
            ("namestorm:", "TCP connections 2"),
            ("namestorm:", "TCP connections open 0"),
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
