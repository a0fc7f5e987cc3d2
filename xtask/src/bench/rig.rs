//! The rig: two network namespaces and a veth pair between them, with all
//! work of the server's end on one core and all of the client's on another.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::usage;
use crate::interrupt;
use crate::netns::Namespace;
use crate::shell::{self, Context as _, Failure, Result};

pub(crate) const SERVER_CORE: usize = 0;
pub(crate) const CLIENT_CORE: usize = 1;

/// The two ends of the veth pair.
pub(crate) const SERVER_LINK: &str = "srv0";
pub(crate) const CLIENT_LINK: &str = "cli0";

pub(crate) const SERVER_ADDRESS: &str = "10.99.0.2";
/// What the client's kernel has. Our generators have addresses of their own,
/// which no kernel answers for.
const CLIENT_KERNEL_ADDRESS: &str = "10.99.0.200";
const PREFIX: u32 = 16;

/// Files that a process should be able to have open: a million connections.
const OPEN_FILES: u32 = 1_048_576;

/// Packets that wait at either end while the veth queue is full, as many as
/// wait for a network card by default.
const QUEUE_LEN: u32 = 1_000;

/// Kernel settings of the server's namespace: no queue of new connections
/// ends before the server's own limits do.
const SERVER_SETTINGS: &[&str] = &[
    "net.core.somaxconn=65535",
    "net.ipv4.tcp_max_syn_backlog=65535",
    "net.ipv4.ip_local_port_range=1024 65535",
];

/// The client's kernel never runs out of ports when each request is a
/// connection.
const CLIENT_SETTINGS: &[&str] = &[
    "net.ipv4.ip_local_port_range=1024 65535",
    "net.ipv4.tcp_tw_reuse=1",
];

/// A process that is killed is gone this long after.
const END_LIMIT: Duration = Duration::from_secs(5);

/// The `n`-th address of the generators, with its prefix.
pub(crate) fn generator_address(n: u32) -> String {
    // Past the first few, which others have.
    let n = if n == 0 { 1 } else { 255 + n };
    format!("10.99.{}.{}/{PREFIX}", n >> 8, n & 255)
}

/// How the kernel's own work is done at the server's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tuning {
    /// Segmentation and checksum offloads at both ends, long super-segments
    /// among them.
    pub(crate) offloads: bool,
    /// Received frames wait for a poll by the server, and only if none comes
    /// for a timer.
    pub(crate) deferred: bool,
}

/// What [`Tuning::deferred`] sets: empty polls before a queue is left to its
/// interrupts again, and the timer in ns.
const DEFERRAL: (u32, u32) = (100, 200_000);

/// Two namespaces and their veth pair; gone, with every process inside, when
/// it is dropped.
pub(crate) struct Rig {
    server: Namespace,
    client: Namespace,
    tuning: Tuning,
    /// Kernel threads that received for links of our names before ours were
    /// made: another's, in namespaces that are not ours.
    strangers: BTreeSet<u32>,
}

/// Rigs so far, to tell their namespaces apart.
static BUILT: AtomicU32 = AtomicU32::new(0);

impl Rig {
    pub(crate) fn build(tuning: Tuning) -> Result<Self> {
        let number = BUILT.fetch_add(1, Ordering::Relaxed);
        let processes: Vec<_> = usage::processes().collect();
        let nobody = BTreeSet::new();
        let strangers = [SERVER_LINK, CLIENT_LINK].map(|link| receivers(&processes, link, &nobody));
        let rig = Self {
            strangers: strangers.into_iter().flatten().collect(),
            server: Namespace::create(&format!("bs{number}"))?,
            client: Namespace::create(&format!("bc{number}"))?,
            tuning,
        };
        rig.server.ip(&format!(
            "link add {SERVER_LINK} mtu 1500 numrxqueues 1 numtxqueues 1 type veth \
             peer name {CLIENT_LINK} mtu 1500 netns {} numrxqueues 1 numtxqueues 1",
            rig.client.name()
        ))?;
        let ends = [
            (&rig.server, SERVER_LINK, SERVER_ADDRESS, SERVER_SETTINGS),
            (
                &rig.client,
                CLIENT_LINK,
                CLIENT_KERNEL_ADDRESS,
                CLIENT_SETTINGS,
            ),
        ];
        for (namespace, link, address, settings) in ends {
            // Without IPv6 no router is looked for while a run is on.
            let mut sysctl = namespace.command("sysctl");
            sysctl
                .args(["-q", "-w"])
                .args(settings)
                .arg(format!("net.ipv6.conf.{link}.disable_ipv6=1"));
            shell::capture(&mut sysctl)?;
            namespace.ip(&format!("address add {address}/{PREFIX} dev {link}"))?;
            let features = ["tx", "rx", "sg", "tso", "gso"];
            namespace.set_features(link, &features, tuning.offloads)?;
            if tuning.offloads {
                namespace.allow_long_supers(link)?;
            }
            // Threaded NAPI can be chosen only while the queues have a NAPI,
            // which on veth is GRO's doing.
            namespace.set_features(link, &["gro"], true)?;
            namespace.ip(&format!("link set {link} up"))?;
            // With a queueing discipline a full veth queue holds its sender
            // up; without one it drops what it is given.
            let mut tc = namespace.command("tc");
            tc.args(["qdisc", "add", "dev", link, "root", "pfifo", "limit"]);
            tc.arg(QUEUE_LEN.to_string());
            shell::capture(&mut tc)?;
        }
        for ((namespace, link, _, _), core) in ends.into_iter().zip([SERVER_CORE, CLIENT_CORE]) {
            let folder = format!("/sys/class/net/{link}");
            set(namespace, &format!("{folder}/threaded"), 1)?;
            if tuning.offloads {
                // With TSO veth hands TCP to the backlog of the core that
                // sends; from there it is steered.
                set(
                    namespace,
                    &format!("{folder}/queues/rx-0/rps_cpus"),
                    1 << core,
                )?;
            }
            if tuning.deferred && link == SERVER_LINK {
                let (polls, timeout_ns) = DEFERRAL;
                set(namespace, &format!("{folder}/napi_defer_hard_irqs"), polls)?;
                set(
                    namespace,
                    &format!("{folder}/gro_flush_timeout"),
                    timeout_ns,
                )?;
            }
        }
        Ok(rig)
    }

    /// `program` at the server's end, on its core.
    pub(crate) fn server_command(&self, program: impl AsRef<OsStr>) -> Command {
        on_core(&self.server, SERVER_CORE, program.as_ref())
    }

    /// `program` at the client's end, on its core.
    pub(crate) fn client_command(&self, program: impl AsRef<OsStr>) -> Command {
        on_core(&self.client, CLIENT_CORE, program.as_ref())
    }

    /// Takes an XDP program off the client's end that its owner has left there.
    pub(crate) fn forget_client_program(&self) -> Result<()> {
        let off = format!("link set dev {CLIENT_LINK} xdp off");
        self.client.ip(&off).map(drop)
    }

    /// Puts the kernel threads that receive at each end on their cores, and
    /// returns them. They may be new ones after a program was attached.
    pub(crate) fn pin_receivers(&self) -> Result<[Vec<u32>; 2]> {
        let processes: Vec<_> = usage::processes().collect();
        let pinned = |link, core| {
            let mut threads = receivers(&processes, link, &self.strangers);
            threads.retain(|id| pin(*id, core));
            if threads.is_empty() {
                return Err(Failure::new(format!(
                    "no kernel thread receives for {link}: threaded NAPI is not in force"
                )));
            }
            Ok(threads)
        };
        Ok([
            pinned(SERVER_LINK, SERVER_CORE)?,
            pinned(CLIENT_LINK, CLIENT_CORE)?,
        ])
    }

    pub(crate) fn tuning(&self) -> Tuning {
        self.tuning
    }
}

/// The kernel threads among `processes` that receive for a link of this name,
/// in whatever namespace it is, without the `strangers`.
fn receivers(processes: &[(u32, String)], link: &str, strangers: &BTreeSet<u32>) -> Vec<u32> {
    let ids = processes.iter().filter(|(_, name)| is_receiver(name, link));
    let ids = ids.map(|(id, _)| *id);
    ids.filter(|id| !strangers.contains(id)).collect()
}

/// Whether the kernel thread of this name is `link`'s: `napi/LINK-NUMBER`.
fn is_receiver(name: &str, link: &str) -> bool {
    name.strip_prefix("napi/")
        .and_then(|name| name.strip_prefix(link))
        .is_some_and(|rest| rest.starts_with('-'))
}

/// Keeps a thread on a core; whether it is there now.
pub(crate) fn pin(id: u32, core: usize) -> bool {
    let Some(id) = i32::try_from(id).ok().and_then(Pid::from_raw) else {
        return false;
    };
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(Some(id), &cores).is_ok()
        && sched_getaffinity(Some(id)).is_ok_and(|now| now == cores)
}

/// Files that a process of the rig may have open: [`OPEN_FILES`], or as many
/// as this process may allow it.
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
        limit.map_or(OPEN_FILES, |limit| {
            u32::try_from(limit).unwrap_or(OPEN_FILES)
        })
    })
}

/// A session of its own, as a service has: where the kernel shares cores out
/// by session, server and generator would have one share between them.
fn on_core(namespace: &Namespace, core: usize, program: &OsStr) -> Command {
    let mut command = namespace.command("setsid");
    command.args(["taskset", "-c", &core.to_string(), "prlimit"]);
    command.arg(format!("--nofile={0}:{0}", open_files()));
    command.arg(program);
    command
}

/// Writes a number to a file of `/sys` as `namespace` sees it.
fn set(namespace: &Namespace, path: &str, value: u32) -> Result<()> {
    let mut command = namespace.command("sh");
    command.args(["-c", &format!("echo {value} > {path}")]);
    shell::capture(&mut command).map(drop)
}

impl Drop for Rig {
    fn drop(&mut self) {
        // A server's children outlive it when it was killed.
        for namespace in [&self.server, &self.client] {
            if let Err(failure) = end_processes(namespace) {
                eprintln!("bench: {failure}");
            }
        }
    }
}

/// Ends a process at once.
pub(crate) fn kill(id: u32) {
    if let Some(id) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        // An error means that it has ended meanwhile.
        let _ = kill_process(id, Signal::KILL);
    }
}

fn end_processes(namespace: &Namespace) -> Result<()> {
    let mut waited = Duration::ZERO;
    loop {
        let mut list = Command::new("ip");
        list.args(["netns", "pids", namespace.name()]);
        let inside = shell::capture_text(&mut list)?;
        if inside.trim().is_empty() {
            return Ok(());
        }
        if waited >= END_LIMIT {
            return Err(Failure::new(format!(
                "in {} these processes did not end: {}",
                namespace.name(),
                inside.split_whitespace().collect::<Vec<_>>().join(" ")
            )));
        }
        inside
            .split_whitespace()
            .filter_map(|id| id.parse().ok())
            .for_each(kill);
        let tick = Duration::from_millis(20);
        std::thread::sleep(tick);
        waited += tick;
    }
}

/// Keeps this process and what it starts away from the server's core.
pub(crate) fn keep_away() -> Result<()> {
    let mut cores = CpuSet::new();
    cores.set(CLIENT_CORE);
    sched_setaffinity(None, &cores).context(format_args!(
        "two cores are needed, one for the server and one for the client; going to core \
         {CLIENT_CORE}"
    ))
}

/// Waits until `probe`, run at the client's end, finds the server. `Ok(false)`
/// when it does not yet.
pub(crate) fn probe(rig: &Rig, probe: impl FnOnce() -> bool + Send) -> Result<bool> {
    interrupt::check()?;
    rig.client.inside(probe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_all_different_and_nobody_elses() {
        let all: std::collections::BTreeSet<String> = (0..1_000).map(generator_address).collect();
        assert_eq!(all.len(), 1_000);
        assert!(all.contains("10.99.0.1/16"));
        assert!(all.contains("10.99.1.0/16"));
        for taken in [SERVER_ADDRESS, CLIENT_KERNEL_ADDRESS] {
            assert!(!all.contains(&format!("{taken}/16")));
        }
    }

    #[test]
    fn a_links_threads_are_told_by_their_names() {
        assert!(is_receiver("napi/srv0-8193", SERVER_LINK));
        assert!(!is_receiver("napi/srv01-8193", SERVER_LINK));
        assert!(!is_receiver("napi/cli0-8194", SERVER_LINK));
        assert!(!is_receiver("srv0-8193", SERVER_LINK));
    }

    #[test]
    fn threads_that_were_there_before_are_left_alone() {
        let processes = [
            (7, "napi/srv0-8193"),
            (8, "napi/cli0-8194"),
            (9, "srv0"),
            (10, "napi/srv0-8200"),
        ];
        let processes = processes.map(|(id, name)| (id, name.to_owned()));
        let nobody = BTreeSet::new();
        assert_eq!(receivers(&processes, SERVER_LINK, &nobody), [7, 10]);
        let strangers = BTreeSet::from([7]);
        assert_eq!(receivers(&processes, SERVER_LINK, &strangers), [10]);
        assert_eq!(receivers(&processes, CLIENT_LINK, &strangers), [8]);
    }
}
