//! Two network namespaces joined by a veth pair. One core does all work of the server's side.
//! Another core does all work of the client's side.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::usage;
use crate::netns::{self, CLIENT_LINK, Namespace, SERVER_LINK};
use crate::shell;

pub(crate) const SERVER_CORE: usize = 0;
pub(crate) const CLIENT_CORE: usize = 1;

pub(crate) const SERVER_ADDRESS: &str = "10.99.0.2";
/// Address of the client's kernel. Our generators use other addresses, for which no kernel answers.
const CLIENT_KERNEL_ADDRESS: &str = "10.99.0.200";
const PREFIX: u32 = 16;

/// Limit on open files. It is enough for a process with a million connections.
const OPEN_FILES: u32 = 1_048_576;

/// Length of the transmit queue in packets, which is typical of a network card.
const QUEUE_LEN: &str = "1000";

/// Sysctls for the server. Without them, queues of new connections would fill before the server's
/// own limits are reached.
const SERVER_SETTINGS: &[&str] = &[
    "net.core.somaxconn=65535",
    "net.ipv4.tcp_max_syn_backlog=65535",
];

/// Sysctls for the client. Without them, it would run out of ports when each request opens a
/// connection.
const CLIENT_SETTINGS: &[&str] = &[
    "net.ipv4.ip_local_port_range=1024 65535",
    "net.ipv4.tcp_tw_reuse=1",
];

/// Number of attempts to kill all processes of a namespace, 20 ms apart.
const END_ATTEMPTS: u32 = 250;

/// Returns the `n`-th address for the generators, with its prefix length.
pub(crate) fn generator_address(n: u32) -> String {
    // Skip the addresses that the server's and the client's kernels use.
    let n = if n == 0 { 1 } else { 255 + n };
    format!("10.99.{}.{}/{PREFIX}", n >> 8, n & 255)
}

/// When the kernel receives frames for the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Interrupts {
    #[default]
    Immediate,
    /// After 50 µs, together with the frames that arrive meanwhile.
    Deferred,
    /// When the server polls, or after 200 µs.
    Polled,
}

impl Interrupts {
    /// Returns the number of empty polls before a queue enables interrupts again, and the timer in
    /// ns after which waiting frames are delivered.
    fn settings(self) -> Option<[u32; 2]> {
        match self {
            Self::Immediate => None,
            Self::Deferred => Some([1, 50_000]),
            Self::Polled => Some([100, 200_000]),
        }
    }
}

/// Kernel settings in which rigs differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tuning {
    /// Whether segmentation and checksum offloads are on at both sides, with long super-segments.
    pub(crate) offloads: bool,
    /// Whether the veth pair stays as `ip` creates it, except for the queueing discipline. Then the
    /// kernel receives in the sender's thread, and offloads are on.
    pub(crate) plain: bool,
    /// Whether the links have no queueing discipline. A full veth queue then drops frames, as a
    /// network card does. Otherwise it pauses its sender.
    pub(crate) unqueued: bool,
    /// Whether the kernel receives in the sender's thread, and not in threads of its own.
    pub(crate) unthreaded: bool,
    pub(crate) interrupts: Interrupts,
}

impl Tuning {
    /// No offloads, threads that receive, and a queueing discipline.
    pub(crate) const USUAL: Self = Self {
        offloads: false,
        plain: false,
        unqueued: false,
        unthreaded: false,
        interrupts: Interrupts::Immediate,
    };

    /// Returns true if threads of the kernel receive.
    pub(crate) fn has_receivers(self) -> bool {
        !(self.plain || self.unthreaded)
    }
}

/// One side of the veth pair.
struct End {
    namespace: Namespace,
    link: &'static str,
    core: usize,
}

/// The namespaces and their veth pair. Dropping a [`Rig`] removes them and kills every process in
/// them.
pub(crate) struct Rig {
    server: End,
    client: End,
    /// Kernel threads that receive for links with the same names in other namespaces. They are not
    /// this rig's and must not be pinned.
    foreign: BTreeSet<i32>,
    /// Whether kernel threads receive at both sides.
    has_receivers: bool,
}

/// Number of rigs so far, which makes the names of namespaces unique.
static BUILT: AtomicU32 = AtomicU32::new(0);

impl Rig {
    pub(crate) fn build(tuning: Tuning) -> Result<Self> {
        let number = BUILT.fetch_add(1, Ordering::Relaxed);
        let end = |name, link, core| {
            let namespace = Namespace::create(&format!("{name}{number}"))?;
            anyhow::Ok(End {
                namespace,
                link,
                core,
            })
        };
        let rig = Self {
            foreign: [SERVER_LINK, CLIENT_LINK]
                .into_iter()
                .flat_map(receivers)
                .collect(),
            has_receivers: tuning.has_receivers(),
            server: end("bs", SERVER_LINK, SERVER_CORE)?,
            client: end("bc", CLIENT_LINK, CLIENT_CORE)?,
        };
        let Self { server, client, .. } = &rig;
        netns::join([server, client].map(|end| (&end.namespace, end.link)), 1)?;
        server.set_up(SERVER_ADDRESS, SERVER_SETTINGS, tuning)?;
        client.set_up(CLIENT_KERNEL_ADDRESS, CLIENT_SETTINGS, tuning)?;
        let ends = [server, client].into_iter();
        for end in ends.filter(|_| tuning.has_receivers()) {
            // Threaded NAPI can be enabled only while both sides are up.
            end.set("threaded", 1)?;
            if tuning.offloads {
                // With TSO, veth queues TCP segments on the sender's core. Receive packet steering
                // moves them to the receiver's core.
                end.set("queues/rx-0/rps_cpus", 1 << end.core)?;
            }
        }
        if let Some([polls, timer]) = tuning.interrupts.settings() {
            server.set("napi_defer_hard_irqs", polls)?;
            server.set("gro_flush_timeout", timer)?;
        }
        Ok(rig)
    }

    /// Returns a command that runs `program` in the server's namespace and on its core.
    pub(crate) fn server_command(&self, program: impl AsRef<OsStr>) -> Command {
        self.server.command(program.as_ref())
    }

    /// Returns a command that runs `program` in the client's namespace and on its core.
    pub(crate) fn client_command(&self, program: impl AsRef<OsStr>) -> Command {
        self.client.command(program.as_ref())
    }

    /// Runs `work` on a new thread in the client's namespace, and returns its result.
    pub(crate) fn inside_client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.client.namespace.inside(work)
    }

    /// Tells the client's kernel the server's hardware address, so that it never asks for it.
    pub(crate) fn know_server(&self) -> Result<()> {
        let file = format!("cat /sys/class/net/{SERVER_LINK}/address");
        let address = self.server.namespace.run(&file)?;
        let neighbour = format!("{SERVER_ADDRESS} lladdr {} nud permanent", address.trim());
        let client = &self.client.namespace;
        let known = client.ip(&format!("neighbour replace {neighbour} dev {CLIENT_LINK}"));
        known.map(drop)
    }

    /// Detaches an XDP program that a generator left on the client's link.
    pub(crate) fn detach_client_program(&self) -> Result<()> {
        let off = format!("link set dev {CLIENT_LINK} xdp off");
        self.client.namespace.ip(&off).map(drop)
    }

    /// Returns the numbers of frames that the server's link has sent, and that it has refused because the
    /// other side's ring was full.
    pub(crate) fn sent_and_refused(&self) -> Result<[u64; 2]> {
        let statistics = format!("/sys/class/net/{SERVER_LINK}/statistics");
        let line = format!("cat {statistics}/tx_packets {statistics}/tx_dropped");
        let text = self.server.namespace.run(&line)?;
        let mut numbers = text.split_whitespace().map(str::parse);
        let (sent, refused) = (numbers.next(), numbers.next());
        let numbers = sent.zip(refused).context("the link has no statistics")?;
        Ok([numbers.0?, numbers.1?])
    }

    /// Pins the kernel threads that receive on each side to that side's core, and returns those of
    /// the server's side. Call this function again after an XDP program is attached, which creates
    /// new threads.
    ///
    /// In a plain rig there are none.
    pub(crate) fn pin_receivers(&self) -> Result<Vec<i32>> {
        if !self.has_receivers {
            return Ok(Vec::new());
        }
        let pinned = |end: &End| {
            let mut threads = receivers(end.link);
            threads.retain(|id| !self.foreign.contains(id) && pin(*id, end.core));
            if threads.is_empty() {
                bail!(
                    "no kernel thread receives for {}: threaded NAPI is not in force",
                    end.link
                );
            }
            Ok(threads)
        };
        pinned(&self.client)?;
        pinned(&self.server)
    }
}

impl End {
    fn set_up(&self, address: &str, settings: &[&str], tuning: Tuning) -> Result<()> {
        let Self {
            namespace, link, ..
        } = self;
        let mut sysctl = namespace.command("sysctl");
        sysctl.args(["-q", "-w"]).args(settings);
        // Without IPv6, the kernel sends no router solicitations during a run.
        sysctl.arg(format!("net.ipv6.conf.{link}.disable_ipv6=1"));
        shell::capture(&mut sysctl)?;
        namespace.ip(&format!("address add {address}/{PREFIX} dev {link}"))?;
        if !tuning.plain {
            let features = ["tx", "rx", "sg", "tso", "gso"];
            namespace.set_features(link, &features, tuning.offloads)?;
            if tuning.offloads {
                namespace.allow_long_supers(link)?;
            }
            // Threaded NAPI needs a NAPI instance per queue, which veth has only with GRO.
            namespace.set_features(link, &["gro"], true)?;
        }
        namespace.ip(&format!("link set {link} up"))?;
        if tuning.unqueued {
            return Ok(());
        }
        // With a queueing discipline, a full veth queue pauses its sender. Without one, veth drops
        // frames.
        let mut tc = namespace.command("tc");
        tc.args([
            "qdisc", "add", "dev", link, "root", "pfifo", "limit", QUEUE_LEN,
        ]);
        shell::capture(&mut tc).map(drop)
    }

    /// Returns a command that runs `program` in this side's namespace and on its core. The program
    /// has a separate session, like a service. Otherwise a scheduler that groups processes by
    /// session would make server and generator share one part of the CPU time.
    fn command(&self, program: &OsStr) -> Command {
        let mut command = self.namespace.command("setsid");
        command.args(["taskset", "-c", &self.core.to_string(), "prlimit"]);
        command.arg(format!("--nofile={0}:{0}", open_files()));
        command.arg(program);
        command
    }

    /// Writes a number to one of the link's files in `/sys`.
    fn set(&self, file: &str, value: u32) -> Result<()> {
        let mut command = self.namespace.command("sh");
        let path = format!("/sys/class/net/{}/{file}", self.link);
        command.args(["-c", &format!("echo {value} > {path}")]);
        shell::capture(&mut command).map(drop)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // A killed server can leave child processes behind.
        if let Err(failure) = end_processes(&self.namespace) {
            eprintln!("bench: {failure:#}");
        }
    }
}

/// Returns the kernel threads that receive for a link of this name, in any namespace.
fn receivers(link: &str) -> Vec<i32> {
    let of_link = usage::processes().filter(|stat| is_receiver(&stat.comm, link));
    of_link.map(|stat| stat.pid).collect()
}

/// Returns true if a kernel thread with this name receives for `link`: `napi/LINK-NUMBER`.
fn is_receiver(name: &str, link: &str) -> bool {
    let link_and_number = name.strip_prefix("napi/");
    link_and_number
        .and_then(|name| name.strip_prefix(link))
        .is_some_and(|n| n.starts_with('-'))
}

/// Pins a thread to a core. Returns true on success.
pub(crate) fn pin(id: i32, core: usize) -> bool {
    let Some(id) = Pid::from_raw(id) else {
        return false;
    };
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(Some(id), &cores).is_ok()
        && sched_getaffinity(Some(id)).is_ok_and(|now| now == cores)
}

/// Returns the limit on open files for a process of the rig. This is [`OPEN_FILES`] if the system
/// allows this limit, or else the limit of this process.
pub(crate) fn open_files() -> u32 {
    static ALLOWED: OnceLock<u32> = OnceLock::new();
    *ALLOWED.get_or_init(|| {
        let mut probe = Command::new("prlimit");
        probe
            .arg(format!("--nofile={OPEN_FILES}:{OPEN_FILES}"))
            .arg("true");
        if shell::capture(&mut probe).is_ok() {
            return OPEN_FILES;
        }
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
        limit
            .and_then(|limit| u32::try_from(limit).ok())
            .unwrap_or(OPEN_FILES)
    })
}

/// Kills a process.
pub(crate) fn kill(id: i32) {
    if let Some(id) = Pid::from_raw(id) {
        // An error means that the process has already exited, which is harmless.
        let _ = kill_process(id, Signal::KILL);
    }
}

fn end_processes(namespace: &Namespace) -> Result<()> {
    let mut inside = String::new();
    for _ in 0..END_ATTEMPTS {
        let mut list = Command::new("ip");
        inside = shell::capture_text(list.args(["netns", "pids", namespace.name()]))?;
        if inside.trim().is_empty() {
            return Ok(());
        }
        inside
            .lines()
            .filter_map(|id| id.trim().parse().ok())
            .for_each(kill);
        std::thread::sleep(Duration::from_millis(20));
    }
    let ids = inside.trim().replace('\n', " ");
    let name = namespace.name();
    Err(anyhow!("processes in {name} did not end: {ids}"))
}

/// Moves this thread to the client's core. Threads and processes that it starts later inherit the
/// core.
pub(crate) fn keep_away() -> Result<()> {
    let mut cores = CpuSet::new();
    cores.set(CLIENT_CORE);
    sched_setaffinity(None, &cores).with_context(|| format!(
        "a comparison needs two cores, one for the server and one for the client; moving to core \
         {CLIENT_CORE}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_generators_are_distinct() {
        let all: BTreeSet<String> = (0..1_000).map(generator_address).collect();
        assert_eq!(all.len(), 1_000);
        assert!(all.contains("10.99.0.1/16") && all.contains("10.99.1.0/16"));
        for taken in [SERVER_ADDRESS, CLIENT_KERNEL_ADDRESS] {
            assert!(!all.contains(&format!("{taken}/16")));
        }
    }

    #[test]
    fn threads_of_a_link_are_found_by_their_names() {
        assert!(is_receiver("napi/srv0-8193", SERVER_LINK));
        assert!(!is_receiver("napi/srv01-8193", SERVER_LINK));
        assert!(!is_receiver("napi/cli0-8194", SERVER_LINK));
        assert!(!is_receiver("srv0-8193", SERVER_LINK));
    }
}
