//! Looks at single connections and packets of a running `storm` through its control socket. Needs
//! root.

mod content;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use content::content;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use serde_json::Value;
use testkit::rig::Server;

const STORM: &str = env!("CARGO_BIN_EXE_storm");
/// Size of a file that does not fit in the buffers of a client that does not read.
const LARGE: usize = 40_000_000;

/// Runs a command for the server at this socket. Returns its output, which must be UTF-8.
fn ask(socket: &str, words: &[&str]) -> String {
    let mut command = Command::new("timeout");
    command.args(["20", STORM]).args(words);
    let output = command.args(["--control-socket", socket]).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the connections that `connections --json` lists, and the summary.
fn list(socket: &str, filter: &[&str]) -> (Vec<Value>, Value) {
    let text = ask(socket, &[&["connections", "--json"], filter].concat());
    let parse = |line| serde_json::from_str::<Value>(line).unwrap();
    let mut lines: Vec<Value> = text.lines().map(parse).collect();
    let mut end = lines.pop().unwrap();
    (lines, end["summary"].take())
}

/// Waits until the list is as expected.
fn wait_for(socket: &str, filter: &[&str], is_it: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let mut rows = Vec::new();
    for _ in 0..200 {
        rows = list(socket, filter).0;
        if is_it(&rows) {
            return rows;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{rows:#?}");
}

fn start(folder: &Path) -> (Server, String) {
    let [www, zone, socket] = content(folder, "www");
    fs::write(Path::new(&www).join("large"), vec![b'x'; LARGE]).unwrap();
    let arguments = ["serve", "--web", &www, "--zone", &zone, "--workers", "2"];
    let socket_arguments = ["--control-socket", &socket];
    let storm = Server::start(STORM, &[&arguments[..], &socket_arguments].concat());
    (storm, socket)
}

/// Opens a connection, and returns it with the client's address.
fn open(server: IpAddr, port: u16) -> (TcpStream, SocketAddr) {
    let server = SocketAddr::new(server, port);
    let stream = TcpStream::connect_timeout(&server, Duration::from_secs(10)).unwrap();
    let own = stream.local_addr().unwrap();
    (stream, own)
}

#[test]
fn connections_are_those_of_the_clients() {
    let folder = tempfile::tempdir().unwrap();
    let (storm, socket) = start(folder.path());
    let socket = &*socket;
    assert_eq!(list(socket, &[]).0, Vec::<Value>::new());
    let address = storm.addresses[0];
    storm.beside(|| {
        let (mut web, own) = open(address, 80);
        let (_idle, idle) = open(address, 80);
        let (_dns, dns) = open(address, 53);
        let server = SocketAddr::new(address, 80);
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        web.write_all(request).unwrap();
        let mut answer = [0; 4_096];
        let length = web.read(&mut answer).unwrap();
        assert!(answer[..length].ends_with(b"a page"));
        let port = own.port().to_string();
        let rows = wait_for(socket, &["--port", &port], |rows| {
            rows.len() == 1 && rows[0]["bytes_acked"] == length
        });
        let row = &rows[0];
        for (name, expected) in [
            ("program", "sandstorm".into()),
            ("state", "established".into()),
            ("peer", own.to_string().into()),
            ("local", server.to_string().into()),
            ("bytes_sent", length.into()),
            ("bytes_received", request.len().into()),
            ("retransmits", 0.into()),
            ("sending", Value::Null),
        ] {
            assert_eq!(row[name], expected, "{name} of {row:#}");
        }
        assert!(row["srtt_seconds"].as_f64().unwrap() > 0.0, "{row:#}");
        let (rows, summary) = list(socket, &[]);
        let mut peers: Vec<_> = rows.iter().map(|row| row["peer"].as_str()).collect();
        peers.sort();
        let mut clients = [own, idle, dns].map(|client| client.to_string());
        clients.sort();
        assert!(peers.into_iter().eq(clients.iter().map(|one| Some(&**one))));
        assert_eq!(summary["connections"], 3);
        let (rows, summary) = list(socket, &["--limit", "2"]);
        assert_eq!((rows.len(), &summary["matching"]), (2, &3.into()));
        let (rows, _) = list(socket, &["--port", "53", "--state", "established"]);
        assert_eq!(rows[0]["program"], "namestorm");
        let (rows, summary) = list(socket, &["--peer", "203.0.113.0/24"]);
        assert_eq!((rows.len(), &summary["connections"]), (0, &3.into()));
    });
    wait_for(socket, &["--state", "established"], <[_]>::is_empty);
    storm.stop();
}

/// A client that does not read shows the file that it is sent.
#[test]
fn a_download_shows_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let (storm, socket) = start(folder.path());
    let socket = &*socket;
    let address = storm.addresses[0];
    storm.beside(|| {
        let (mut slow, own) = open(address, 80);
        slow.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        let peer = own.ip().to_string();
        let rows = wait_for(socket, &["--peer", &peer], |rows| {
            rows.len() == 1 && rows[0]["bytes_acked"].as_u64() > Some(100_000)
        });
        let sending = &rows[0]["sending"];
        assert_eq!(sending["name"], "/large", "{sending}");
        let len = sending["len"].as_u64().unwrap() as usize;
        assert!((LARGE + 1..LARGE + 1_000).contains(&len), "{sending}");
        let text = ask(socket, &["connections"]);
        assert!(text.contains(", sending /large ("), "{text}");
        assert!(text.ends_with("connections: 1\n"), "{text}");
    });
    storm.stop();
}

/// Returns the packets of a capture file, each with whether the server sent it, and the number of
/// missing ones.
fn packets(path: &Path) -> (Vec<(bool, Vec<u8>)>, u64) {
    let mut reader = PcapNgReader::new(fs::File::open(path).unwrap()).unwrap();
    let (mut packets, mut missing) = (Vec::new(), 0);
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::EnhancedPacket(packet) => {
                let is_sent = packet.options == [EnhancedPacketOption::Flags(2)];
                packets.push((is_sent, packet.data.to_vec()));
            }
            Block::InterfaceStatistics(end) => {
                for option in end.options {
                    if let InterfaceStatisticsOption::IsbIfDrop(dropped) = option {
                        missing += dropped;
                    }
                }
            }
            _ => {}
        }
    }
    (packets, missing)
}

/// Returns the client's port and the flags, if a frame is a TCP segment of the web server.
fn segment(is_sent: bool, frame: &[u8]) -> Option<(u16, u8)> {
    if frame.get(12..15) != Some(&[8, 0, 0x45]) || frame[23] != 6 {
        return None;
    }
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let (own, client) = if is_sent { (34, 36) } else { (36, 34) };
    (port(own) == 80).then(|| (port(client), frame[47]))
}

/// The trace has the client's whole connection, from the SYN to the response, and nothing of others.
#[test]
fn a_trace_shows_both_directions_of_one_client() {
    const SYN: u8 = 2;
    const SYN_ACK: u8 = 18;
    let folder = tempfile::tempdir().unwrap();
    let (storm, socket) = start(folder.path());
    let socket = &*socket;
    let address = storm.addresses[0];
    let path = folder.path().join("trace.pcapng");
    // The client's address is that of the host's end of the server's link.
    let client = storm.beside(|| open(address, 80).1.ip());
    let mut trace = Command::new(STORM);
    let own = client.to_string();
    trace.args(["trace", &own, "--seconds", "60", "--out"]);
    trace.arg(&path).args(["--control-socket", socket]);
    let trace = trace.stderr(Stdio::piped()).spawn().unwrap();
    // When the file's header has arrived, all workers copy packets.
    for _ in 0..200 {
        if fs::metadata(&path).is_ok_and(|file| file.len() > 0) {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let refused = Command::new(STORM)
        .args([
            "trace",
            "192.0.2.99",
            "--out",
            "-",
            "--control-socket",
            socket,
        ])
        .output()
        .unwrap();
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(why.contains("another trace is running"), "{why}");
    let port = storm.beside(|| {
        let (mut web, own) = open(address, 80);
        web.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .unwrap();
        web.read_to_end(&mut Vec::new()).unwrap();
        own.port()
    });
    // Ctrl-C ends the trace.
    let interrupt = ["-INT", &trace.id().to_string()];
    let status = Command::new("kill").args(interrupt).status().unwrap();
    assert!(status.success());
    let ended = trace.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    let (packets, missing) = packets(&path);
    assert_eq!(missing, 0);
    let expected = format!("storm: {} packets, none missing\n", packets.len());
    assert_eq!(said, expected);
    let of_client: Vec<_> = packets
        .iter()
        .filter_map(|(is_sent, frame)| {
            let (client, flags) = segment(*is_sent, frame)?;
            (client == port).then_some((*is_sent, flags, &frame[..]))
        })
        .collect();
    assert_eq!((of_client[0].0, of_client[0].1), (false, SYN));
    assert_eq!((of_client[1].0, of_client[1].1), (true, SYN_ACK));
    let has = |is_sent: bool, bytes: &[u8]| {
        let mut segments = of_client.iter().filter(|one| one.0 == is_sent);
        segments.any(|(_, _, frame)| frame.windows(bytes.len()).any(|part| part == bytes))
    };
    assert!(has(false, b"GET / HTTP/1.1"));
    assert!(has(true, b"HTTP/1.1 200 OK") && has(true, b"a page"));

    // So does the number of packets.
    let mut trace = Command::new(STORM);
    trace.args(["trace", &own, "--seconds", "60", "--count", "9", "--out"]);
    trace.arg(&path).args(["--control-socket", socket]);
    let mut trace = trace.stderr(Stdio::piped()).spawn().unwrap();
    let ended = storm.beside(|| {
        (0..200).any(|_| {
            drop(open(address, 80));
            std::thread::sleep(Duration::from_millis(50));
            trace.try_wait().unwrap().is_some()
        })
    });
    assert!(ended);
    let said = trace.wait_with_output().unwrap().stderr;
    assert_eq!(said, b"storm: 9 packets, none missing\n");
    let (packets, missing) = self::packets(&path);
    assert_eq!((packets.len(), missing), (9, 0));
    storm.stop();
}

/// A trace whose output is not read, as by a stopped pager, ends at Ctrl-C. A second Ctrl-C ends the
/// command.
#[test]
fn a_trace_that_is_not_read_can_be_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (storm, socket) = start(folder.path());
    let address = storm.addresses[0];
    let client = storm.beside(|| open(address, 80).1.ip());
    let command = |more: &[&str]| {
        let mut command = Command::new(STORM);
        command.args(["trace", &client.to_string(), "--control-socket", &socket]);
        command
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    };
    let mut trace = command(&[]).spawn().unwrap();
    let mut begun = [0; 1];
    trace
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut begun)
        .unwrap();
    // The capture of this download fills all buffers between the server and the test.
    storm.beside(|| {
        let (mut web, _) = open(address, 80);
        web.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .unwrap();
        web.read_to_end(&mut Vec::new()).unwrap();
    });
    let interrupt = || {
        let id = trace.id().to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status().unwrap();
        assert!(sent.success());
    };
    let next = || command(&["--seconds", "1"]).output().unwrap();
    let refused = next();
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(why.contains("another trace is running"), "{why}");
    interrupt();
    let is_free = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        next().status.success()
    });
    assert!(is_free, "another trace can begin");
    interrupt();
    let has_ended = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        trace.try_wait().unwrap().is_some()
    });
    assert!(
        has_ended,
        "the command ends although nothing reads its output"
    );
    let ended = trace.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("its last packets are missing"), "{said}");
    storm.stop();
}

/// Ctrl-C ends the trace of a server that has been stopped, as by SIGSTOP.
#[test]
fn a_trace_of_a_server_that_does_not_answer_can_be_ended() {
    let folder = tempfile::tempdir().unwrap();
    let [socket, path] = ["socket", "trace.pcapng"].map(|name| folder.path().join(name));
    let server = UnixListener::bind(&socket).unwrap();
    let mut trace = Command::new(STORM);
    trace.args(["trace", "192.0.2.7", "--out"]).arg(&path);
    trace.arg("--control-socket").arg(&socket);
    let trace = trace.stderr(Stdio::piped()).spawn().unwrap();
    // The server sends the beginning of a capture, and accepts no other connection.
    let (mut asked, _) = server.accept().unwrap();
    assert!(asked.read(&mut [0; 1_000]).unwrap() > 0);
    let head = "HTTP/1.1 200 OK\r\nTrace-Number: 7\r\nTransfer-Encoding: chunked\r\n\r\n";
    let begin = "4\r\n\n\r\r\n\r\n";
    asked
        .write_all((head.to_owned() + begin).as_bytes())
        .unwrap();
    for _ in 0..200 {
        if fs::metadata(&path).is_ok_and(|file| file.len() == 4) {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let interrupt = ["-INT", &trace.id().to_string()];
    assert!(
        Command::new("kill")
            .args(interrupt)
            .status()
            .unwrap()
            .success()
    );
    let ended = trace.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("has not answered for 5 s"), "{said}");
    // The command has asked for the end of its own trace only.
    let mut asked = [0; 24];
    server.accept().unwrap().0.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"DELETE /trace?number=7 H");
}
