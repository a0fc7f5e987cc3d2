//! Runs an example (or the program `storm`) and its clients in a new network namespace. Needs root.
//! The namespace has no name, so the kernel removes it with its last process, no matter how that
//! process ends.

mod lines;

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::thread;

use lines::Lines;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const ENTER: &str = "sysctl -q -w net.core.txrehash=0; exec \"$0\" \"$@\"";

/// A running example that serves on device `auto`.
pub(crate) struct Example {
    child: Child,
    output: Lines,
    /// The served addresses: an IPv4 address, then an IPv6 address.
    pub(crate) addresses: Vec<IpAddr>,
}

impl Example {
    /// Starts the example and waits until it is ready to serve clients.
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Self {
        // Some tests open more client sockets than the default limit on open files allows.
        let files = getrlimit(Resource::Nofile);
        let limit = Rlimit {
            current: files.maximum,
            ..files
        };
        setrlimit(Resource::Nofile, limit).unwrap();
        // `unshare` and `sh` replace themselves with the example. On a veth pair, Linux chooses the
        // queue by a hash. `txrehash=0` keeps this hash the same for retransmissions.
        let mut command = Command::new("unshare");
        command
            .args(["--net", "sh", "-c", ENTER])
            .arg(program)
            .args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = Lines::of(child.stdout.take().unwrap());
        let mut example = Self {
            child,
            output,
            addresses: Vec::new(),
        };
        let mut line = String::new();
        while !line.starts_with("try:") {
            let next = example.output.next();
            line = next.unwrap_or_else(|| panic!("{program} ended before it served"));
            if let Some(addresses) = line.strip_prefix("listening:") {
                let words = addresses.split([' ', ',']);
                example.addresses = words.filter_map(|word| word.parse().ok()).collect();
            }
        }
        assert_eq!(example.addresses.len(), 2);
        example
    }

    /// Runs `work` on a thread in the namespace, where it uses the host's end of the example's
    /// link.
    #[allow(dead_code)]
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

    /// Sends SIGHUP, and waits for a line that begins with `start`.
    #[allow(dead_code)]
    pub(crate) fn hang_up_until(&mut self, start: &str) -> String {
        self.hang_up();
        let line = self.output.find(|line| line.starts_with(start));
        line.expect("the program serves on")
    }

    /// Sends SIGHUP.
    #[allow(dead_code)]
    pub(crate) fn hang_up(&self) {
        kill_process(Pid::from_child(&self.child), Signal::HUP).unwrap();
    }

    /// Sends SIGUSR1.
    #[allow(dead_code)]
    pub(crate) fn reopen_logs(&self) {
        kill_process(Pid::from_child(&self.child), Signal::USR1).unwrap();
    }

    /// Asks the example to stop, and does not wait.
    #[allow(dead_code)]
    pub(crate) fn ask_to_stop(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    /// Stops the example with SIGINT, as Ctrl-C does, and returns its summary. Panics if the
    /// example fails.
    pub(crate) fn stop(self) -> Vec<String> {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.end()
    }

    /// Waits until the example, which was asked to stop, has ended. Returns its summary. Panics if
    /// the example fails.
    pub(crate) fn end(mut self) -> Vec<String> {
        let summary: Vec<String> = self.output.by_ref().collect();
        assert!(
            summary.iter().any(|line| line.starts_with("uptime:")),
            "{summary:?}"
        );
        assert!(self.child.wait().unwrap().success());
        summary
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // Errors are ignored, because the process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
