//! Tests the example `embedded`, which has its own runtime. Its clients use this host's kernel, in
//! a network namespace that exists only during the test. Needs root.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use testkit::rig::{self, Lines};

/// Maximum time to wait for the example, after which a test fails.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A process that runs the example.
struct Running {
    child: Child,
    output: Lines,
    errors: Lines,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        // `unshare` replaces itself with the example.
        let mut command = Command::new("unshare");
        command.args(["--net", env!("CARGO_BIN_EXE_embedded")]);
        command.args(arguments).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        Self {
            output: Lines::of(child.stdout.take().unwrap()),
            errors: Lines::of(child.stderr.take().unwrap()),
            child,
        }
    }

    /// Runs `work` on a thread in the namespace, where it uses the host's end of the link.
    fn beside<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        rig::beside(&self.child, work)
    }

    /// Waits for the process to end. Returns the remaining lines of its output, its errors, and its
    /// exit status.
    fn end(mut self) -> (Vec<String>, Vec<String>, Option<i32>) {
        let output = self.output.by_ref().collect();
        let errors = self.errors.by_ref().collect();
        (output, errors, self.child.wait().unwrap().code())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Errors are ignored, because the process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect(address: IpAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&(address, 7).into(), TIMEOUT).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    stream
}

#[test]
fn the_embedded_server_echoes_prints_its_counts_and_ends_on_quit() {
    let mut embedded = Running::start(&[]);
    let mut addresses: Vec<IpAddr> = Vec::new();
    for line in embedded.output.by_ref() {
        if let Some(listening) = line.strip_prefix("listening:") {
            let words = listening.split([' ', ',']);
            addresses = words.filter_map(|word| word.parse().ok()).collect();
        }
        if line.starts_with("try:") {
            break;
        }
    }
    assert_eq!(addresses.len(), 2, "the example ended before it served");
    let (mut sent, mut streams) = (0, Vec::new());
    for address in &addresses {
        let mut stream = embedded.beside(|| connect(*address));
        for bytes in [&b"hello"[..], &[b'x'; 10_000]] {
            stream.write_all(bytes).unwrap();
            let mut received = vec![0; bytes.len()];
            stream.read_exact(&mut received).unwrap();
            assert!(received == bytes, "wrong bytes");
            sent += bytes.len();
        }
        streams.push(stream);
    }
    // The example prints its counts once a second.
    let mut expect = |open: usize| {
        let expected = format!("connections 2, connections open {open}, data bytes sent {sent}");
        let mut counts = embedded.output.by_ref().take(10);
        assert!(
            counts.any(|line| line == expected),
            "none of 10 lines is {expected}"
        );
    };
    expect(2);
    drop(streams);
    expect(0);
    let mut stream = embedded.beside(|| connect(addresses[0]));
    stream.write_all(b"quit\n").unwrap();
    // The stopped server closes the connection.
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    let (output, errors, status) = embedded.end();
    let (last, counts) = output.split_last().unwrap();
    assert!(last.starts_with("echoed for "), "{last}");
    assert!(counts.iter().all(|line| line.starts_with("connections ")));
    assert_eq!((errors.as_slice(), status), (&[][..], Some(0)));
}

#[test]
fn a_missing_device_gives_one_error_message() {
    let (output, errors, status) = Running::start(&["xdp:none"]).end();
    assert!(output.is_empty(), "{output:?}");
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].starts_with("embedded: ") && errors[0].contains("\"none\""),
        "{errors:?}"
    );
    assert_eq!(status, Some(1));
}
