//! Tests the UDP examples with clients that use this host's kernel.

use std::fs::{self, Permissions};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};
use testkit::rig::Server;

/// Maximum time to wait for an answer, after which a test fails.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum payload that fits one packet over both IP versions: the MTU minus the IPv6 and UDP
/// headers.
const MAX_PAYLOAD: usize = 1500 - 48;

fn socket(server: IpAddr, port: u16) -> UdpSocket {
    let any: IpAddr = if server.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((any, 0)).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket.connect((server, port)).unwrap();
    socket
}

/// Runs `program`, and asserts that it echoes every datagram unchanged.
fn echoes(program: &str) {
    let example = Server::start(program, &[]);
    for address in &example.addresses {
        example.beside(|| {
            let socket = socket(*address, 7);
            let mut received = [0; 2048];
            for len in [1, 2, 17, 512, MAX_PAYLOAD - 1, MAX_PAYLOAD] {
                let sent: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
                socket.send(&sent).unwrap();
                let count = socket.recv(&mut received).unwrap();
                assert!(received[..count] == sent, "{len} bytes came back changed");
            }
            // Many datagrams sent back to back are echoed in order.
            for number in 0..100u8 {
                socket.send(&[number]).unwrap();
            }
            for number in 0..100 {
                assert_eq!(socket.recv(&mut received).unwrap(), 1);
                assert_eq!(received[0], number);
            }
        });
    }
    example.stop();
}

#[test]
fn udp_echo() {
    echoes(env!("CARGO_BIN_EXE_udp_echo"));
}

#[test]
fn reflect() {
    echoes(env!("CARGO_BIN_EXE_reflect"));
}

#[test]
fn quote() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let path = path.to_str().unwrap();
    let example = Server::start(env!("CARGO_BIN_EXE_quote"), &["--control-socket", path]);
    let count = |name: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--unix-socket", path, "http://localhost/metrics"]);
        let output = curl.output().unwrap();
        let metrics = String::from_utf8(output.stdout).unwrap();
        let start = format!("quote_{name}_total{{");
        let mut lines = metrics.lines().filter(|line| line.starts_with(&start));
        let line = lines.next().unwrap_or_else(|| panic!("{name}: {metrics}"));
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    for address in &example.addresses {
        example.beside(|| {
            let socket = socket(*address, 17);
            let mut received = [0; 128];
            for _ in 0..20 {
                for (request, answer) in [
                    ("kay\n", "kay: Simple things should be simple.\n"),
                    ("saltzer", "saltzer: Functions belong at the ends.\n"),
                    ("Kay\r\n", "Kay: nobody knows this name\n"),
                    ("", ": nobody knows this name\n"),
                ] {
                    socket.send(request.as_bytes()).unwrap();
                    let len = socket.recv(&mut received).unwrap();
                    assert_eq!(str::from_utf8(&received[..len]).unwrap(), answer);
                }
            }
        });
    }
    // All answers with known names were sent from prepared packets. The worker publishes its counts ten
    // times a second.
    let start = Instant::now();
    while count("answered") < 160 && start.elapsed() < TIMEOUT {
        sleep(Duration::from_millis(20));
    }
    assert_eq!(count("answered"), 160);
    assert_eq!(count("datagrams_copied_for_want_of_resident_packets"), 0);
    example.stop();
}

#[test]
fn values() {
    let folder = tempfile::tempdir().unwrap();
    // The server's user reads the file at each reload.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let [file, next, socket] = ["list", "next", "socket"].map(|name| folder.path().join(name));
    fs::write(&file, "sand=yellow\nstorm=grey\n").unwrap();
    let [path, socket] = [&file, &socket].map(|path| path.to_str().unwrap());
    let program = env!("CARGO_BIN_EXE_values");
    let example = Server::start(program, &["serve", path, "--control-socket", socket]);
    let run = |command: &[&str]| {
        let mut run = Command::new(program);
        let output = run
            .args(command)
            .args(["--control-socket", socket])
            .output();
        let output = output.unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let expect = |pairs: &[(&str, &str)]| {
        for address in &example.addresses {
            for (key, value) in pairs {
                let answer = example.beside(|| ask(*address, 7001, key));
                assert_eq!(answer, format!("{value}\n"), "{key}");
            }
        }
    };
    let unknown = "nobody knows this key";
    expect(&[("sand", "yellow"), ("storm\n", "grey"), ("sea", unknown)]);
    // An editor or a script replaces the file by a new one, more than once.
    for colour in ["green", "blue"] {
        fs::write(&next, format!("sand=white\nsea={colour}\n")).unwrap();
        fs::rename(&next, &file).unwrap();
        let (status, text) = run(&["reload"]);
        assert!(text.contains(" s, 2 values;"), "{text}");
        assert_eq!(status, Some(0));
        expect(&[("sand", "white"), ("storm", unknown), ("sea", colour)]);
    }
    fs::write(&file, "sand\n").unwrap();
    let (status, text) = run(&["reload"]);
    let why = format!("{path}: there is no = in the line \"sand\"");
    assert!(text.contains(&why), "{text}");
    assert_eq!(status, Some(1));
    expect(&[("sand", "white"), ("sea", "blue")]);
    let (status, text) = run(&["status", "--once"]);
    assert!(text.contains(&why), "{text}");
    assert_eq!(status, Some(0));
    example.stop();
}

/// Sends a request to a server, and returns the answer.
fn ask(server: IpAddr, port: u16, request: &str) -> String {
    let socket = socket(server, port);
    socket.send(request.as_bytes()).unwrap();
    let mut received = [0; 128];
    let len = socket.recv(&mut received).unwrap();
    String::from_utf8(received[..len].to_vec()).unwrap()
}

#[test]
fn ntp() {
    let example = Server::start(env!("CARGO_BIN_EXE_ntp"), &[]);
    for address in &example.addresses {
        example.beside(|| {
            check_fields(*address);
            check_offset(*address);
        });
    }
    example.stop();
}

/// Asks for the time with `ntpdig`. Server and client read the same clock, so the offset that
/// `ntpdig` reports must be small.
fn check_offset(server: IpAddr) {
    let mut ntpdig = Command::new("ntpdig");
    ntpdig.args(["--json", "--samples=1", "--timeout=5"]);
    let output = ntpdig.arg(server.to_string()).output();
    let output = output.expect("ntpdig is installed: cargo xtask setup");
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(output_text.contains(r#""stratum":1"#), "{output_text}");
    let number = |name: &str| -> f64 {
        let (_, rest) = output_text.split_once(&format!(r#""{name}":"#)).unwrap();
        let end = rest.find([',', '}']).unwrap();
        rest[..end].parse().unwrap()
    };
    assert!(number("offset").abs() < 0.5, "{output_text}");
}

/// Checks all fields of an answer, and that invalid requests are not answered.
fn check_fields(server: IpAddr) {
    let socket = socket(server, 123);
    let mut received = [0; 128];
    let request = |first: u8| {
        let mut packet = [0x55; 60];
        packet[0] = first;
        packet[40..48].copy_from_slice(b"transmit");
        packet
    };
    // These requests are invalid: versions 0, 5 and 7, modes other than client, and a packet that
    // is too short.
    for first in [0o3, 0o53, 0o73, 0o41, 0o42, 0o44, 0o46, 0o47] {
        socket.send(&request(first)).unwrap();
    }
    socket.send(&request(0o43)[..47]).unwrap();
    for version in 1..=4 {
        // The client's leap indicator is ignored.
        socket.send(&request(0o303 | version << 3)).unwrap();
        assert_eq!(socket.recv(&mut received).unwrap(), 48);
        assert_eq!(
            received[0],
            version << 3 | 4,
            "version {version} must get the first answer"
        );
        assert_eq!(
            (received[1], received[2]),
            (1, 0x55),
            "stratum and poll interval"
        );
        assert_eq!(received[3].cast_signed(), -20, "precision");
        assert_eq!(&received[4..16], b"\0\0\0\0\0\0\0\0LOCL");
        assert_eq!(&received[24..32], b"transmit", "the origin timestamp");
        let time = |at: usize| u64::from_be_bytes(received[at..at + 8].try_into().unwrap());
        let [reference, receive, transmit] = [16, 32, 40].map(time);
        assert!(reference <= receive && receive <= transmit);
        assert!(transmit - receive < 1 << 32, "less than a second");
    }
}
