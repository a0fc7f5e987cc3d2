//! Runs a server and its clients in a new network namespace. Needs root. The namespace has no name, so
//! the kernel removes it with its last process, no matter how that process ends.

mod lines;

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub use lines::Lines;

const ENTER: &str = "sysctl -q -w net.core.txrehash=0; exec \"$0\" \"$@\"";

/// Runs `work` on a thread in the network namespace of a process.
pub fn beside<R: Send>(process: &Child, work: impl FnOnce() -> R + Send) -> R {
    let namespace = File::open(format!("/proc/{}/ns/net", process.id())).unwrap();
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), network).unwrap();
            work()
        });
        inside.join().unwrap()
    })
}

/// A running program that serves on device `auto`.
#[derive(Debug)]
pub struct Server {
    child: Child,
    output: Lines,
    /// The served addresses: an IPv4 address, then an IPv6 address.
    pub addresses: Vec<IpAddr>,
}

impl Server {
    /// Starts the program and waits until it is ready to serve clients.
    pub fn start(program: &str, arguments: &[&str]) -> Self {
        // Some tests open more client sockets than the default limit on open files allows.
        let files = getrlimit(Resource::Nofile);
        let limit = Rlimit {
            current: files.maximum,
            ..files
        };
        setrlimit(Resource::Nofile, limit).unwrap();
        // `unshare` and `sh` replace themselves with the program. On a veth pair, Linux chooses the
        // queue by a hash. `txrehash=0` keeps this hash the same for retransmissions.
        let mut command = Command::new("unshare");
        command
            .args(["--net", "sh", "-c", ENTER])
            .arg(program)
            .args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = Lines::of(child.stdout.take().unwrap());
        let mut server = Self {
            child,
            output,
            addresses: Vec::new(),
        };
        let mut line = String::new();
        while !line.starts_with("try:") {
            let next = server.output.next();
            line = next.unwrap_or_else(|| panic!("{program} ended before it served"));
            if let Some(addresses) = line.strip_prefix("listening:") {
                let words = addresses.split([' ', ',']);
                server.addresses = words.filter_map(|word| word.parse().ok()).collect();
            }
        }
        assert_eq!(server.addresses.len(), 2);
        server
    }

    /// Returns the ID of the program's process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Runs `work` on a thread in the namespace, where it uses the host's end of the server's link.
    pub fn beside<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        beside(&self.child, work)
    }

    /// Sends SIGHUP, and waits for a line that begins with `start`.
    pub fn hang_up_until(&mut self, start: &str) -> String {
        self.hang_up();
        let line = self.output.find(|line| line.starts_with(start));
        line.expect("the program serves on")
    }

    /// Sends SIGHUP.
    pub fn hang_up(&self) {
        kill_process(Pid::from_child(&self.child), Signal::HUP).unwrap();
    }

    /// Sends SIGUSR1.
    pub fn reopen_logs(&self) {
        kill_process(Pid::from_child(&self.child), Signal::USR1).unwrap();
    }

    /// Sends SIGUSR2, which causes only a line of the log, at level `info`.
    pub fn cause_line(&self) {
        kill_process(Pid::from_child(&self.child), Signal::USR2).unwrap();
    }

    /// Asks the server to stop, and does not wait.
    pub fn ask_to_stop(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    /// Stops the server with SIGINT, as Ctrl-C does, and returns its summary.
    ///
    /// # Panics
    /// If the server fails.
    pub fn stop(self) -> Vec<String> {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.end()
    }

    /// Waits until the server, which was asked to stop, has ended. Returns its summary.
    ///
    /// # Panics
    /// If the server fails.
    pub fn end(mut self) -> Vec<String> {
        let summary: Vec<String> = self.output.by_ref().collect();
        assert!(
            summary.iter().any(|line| line.starts_with("uptime:")),
            "{summary:?}"
        );
        assert!(self.child.wait().unwrap().success());
        summary
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Errors are ignored, because the process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
