//! The example that has a runtime of its own, served to clients of this host's kernel
//! in a network namespace that vanishes with it. Needs root.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A test that waits for longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);

fn start(arguments: &[&str]) -> Child {
    // `unshare` becomes the program.
    let mut command = Command::new("unshare");
    command.args(["--net", env!("CARGO_BIN_EXE_embedded")]);
    command.args(arguments).stdout(Stdio::piped());
    command.stderr(Stdio::piped()).spawn().unwrap()
}

/// Does `work` on the host's side of the program's wire.
fn beside<R: Send>(child: &Child, work: impl FnOnce() -> R + Send) -> R {
    let namespace = File::open(format!("/proc/{}/ns/net", child.id())).unwrap();
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), network).unwrap();
            work()
        });
        client.join().unwrap()
    })
}

fn connect(address: IpAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&(address, 7).into(), PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn it_echoes_counts_and_ends_by_itself_and_prints_nothing_else() {
    let mut child = start(&[]);
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = || output.next().map(Result::unwrap);
    let mut addresses: Vec<IpAddr> = Vec::new();
    while let Some(line) = lines() {
        if let Some(listening) = line.strip_prefix("listening:") {
            let words = listening.split([' ', ',']);
            addresses = words.filter_map(|word| word.parse().ok()).collect();
        }
        if line.starts_with("try:") {
            break;
        }
    }
    assert_eq!(addresses.len(), 2, "it has ended before it served");
    let mut sent = 0;
    for address in &addresses {
        let mut stream = beside(&child, || connect(*address));
        for bytes in [&b"hello"[..], &[b'x'; 10_000]] {
            stream.write_all(bytes).unwrap();
            let mut received = vec![0; bytes.len()];
            stream.read_exact(&mut received).unwrap();
            assert!(received == bytes, "other bytes");
            sent += bytes.len();
        }
    }
    // While it serves, it tells what it has done.
    let expected = format!("connections 2, bytes sent {sent}");
    let mut told = String::new();
    while told != expected {
        told = lines().unwrap();
        assert!(told.starts_with("connections "), "{told}");
    }
    let mut stream = beside(&child, || connect(addresses[0]));
    stream.write_all(b"quit\n").unwrap();
    // It takes leave of its client.
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    let mut last = lines().unwrap();
    while last.starts_with("connections ") {
        last = lines().unwrap();
    }
    assert!(last.starts_with("echoed for "), "{last}");
    assert_eq!(lines(), None);
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    assert!(status.success());
    assert_eq!(String::from_utf8(stderr).unwrap(), "");
}

#[test]
fn a_device_that_does_not_exist_is_its_own_error() {
    let output = start(&["xdp:none"]).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.starts_with("embedded: "), "{message}");
    assert!(
        message.contains("none") && message.lines().count() == 1,
        "{message}"
    );
}
