//! Runs an example in a network namespace of its own, and clients beside it.
//! Needs root. The namespace has no name, so that it vanishes with the
//! processes in it, however they end.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const ENTER: &str = "sysctl -q -w net.core.txrehash=0; exec \"$0\" \"$@\"";

/// A running example, on device `auto`.
pub(crate) struct Example {
    child: Child,
    output: BufReader<ChildStdout>,
    /// The addresses that it serves: one of IPv4, then one of IPv6.
    pub(crate) addresses: Vec<IpAddr>,
}

impl Example {
    /// Starts it and waits until it serves.
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Self {
        // Some tests have more clients than the usual limit lets have files.
        let files = getrlimit(Resource::Nofile);
        let most = Rlimit {
            current: files.maximum,
            ..files
        };
        setrlimit(Resource::Nofile, most).unwrap();
        // Both become the program. Over a veth pair Linux chooses the queue by a hash of
        // its own, which must not change when it sends again.
        let mut command = Command::new("unshare");
        command
            .args(["--net", "sh", "-c", ENTER])
            .arg(program)
            .args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut example = Self {
            child,
            output,
            addresses: Vec::new(),
        };
        let mut line = String::new();
        while !line.starts_with("try:") {
            line.clear();
            let len = example.output.read_line(&mut line).unwrap();
            assert!(len > 0, "{program} has ended before it served");
            if let Some(addresses) = line.strip_prefix("listening:") {
                let words = addresses.split([' ', ',']);
                example.addresses = words.filter_map(|word| word.parse().ok()).collect();
            }
        }
        assert_eq!(example.addresses.len(), 2);
        example
    }

    /// Does `work` on the host's side of the example's wire.
    pub(crate) fn beside<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let namespace = File::open(format!("/proc/{}/ns/net", self.child.id())).unwrap();
        thread::scope(|scope| {
            let client = scope.spawn(|| {
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(namespace.as_fd(), network).unwrap();
                work()
            });
            client.join().unwrap()
        })
    }

    /// Ends it as Ctrl-C does; it must end well, with its summary.
    pub(crate) fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        let mut summary = String::new();
        self.output.read_to_string(&mut summary).unwrap();
        assert!(summary.contains("uptime:"), "{summary}");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // Errors mean that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
