//! CPU time and memory of processes and cores, as `/proc` reports them.

use std::fs;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use procfs::process::{Process, Stat, all_processes};
use procfs::{Current as _, CurrentSI as _, KernelStats, Meminfo};

use super::results::Cost;
use super::rig::{CLIENT_CORE, SERVER_CORE};

/// Returns all processes, including kernel threads.
pub(crate) fn processes() -> impl Iterator<Item = Stat> {
    let all = all_processes().into_iter().flatten().flatten();
    // A process may exit during the iteration.
    all.filter_map(|process| process.stat().ok())
}

/// Returns `id` and all its descendants.
pub(crate) fn family(id: i32) -> Vec<i32> {
    let all: Vec<Stat> = processes().collect();
    let mut family = vec![id];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        let children = all.iter().filter(|stat| stat.ppid == parent);
        family.extend(children.map(|stat| stat.pid));
        next += 1;
    }
    family
}

/// Returns how many times threads of these processes have slept.
pub(crate) fn sleeps(ids: &[i32]) -> u64 {
    let tasks = ids.iter().flat_map(|id| Process::new(*id)?.tasks());
    let status = tasks.flatten().flatten().flat_map(|task| task.status());
    status
        .filter_map(|status| status.voluntary_ctxt_switches)
        .sum()
}

/// Returns the CPU time of all threads of these processes in ns.
pub(crate) fn run_time(ids: &[i32]) -> u64 {
    let tasks = ids.iter().flat_map(|id| Process::new(*id)?.tasks());
    let times = tasks.flatten().flatten().flat_map(|task| task.schedstat());
    times.map(|time| time.sum_exec_runtime).sum()
}

/// Returns the kernel thread that does a core's deferred work, unless it cannot be found.
pub(crate) fn softirq_thread(core: usize) -> Option<i32> {
    let name = format!("ksoftirqd/{core}");
    let thread = processes().find(|stat| stat.comm == name)?;
    Some(thread.pid)
}

/// Returns the resident memory of the processes, in bytes.
pub(crate) fn resident(ids: &[i32]) -> u64 {
    let status = |id: &i32| Process::new(*id).and_then(|process| process.status()).ok();
    let kilobytes = ids.iter().filter_map(|id| status(id)?.vmrss);
    kilobytes.sum::<u64>() * 1024
}

/// Returns the memory of the kernel's tables on the whole machine, including sockets, in bytes.
pub(crate) fn kernel_tables() -> u64 {
    Meminfo::current().map_or(0, |memory| memory.slab)
}

/// Returns the number of `AF_XDP` sockets in the network namespace of a process.
pub(crate) fn xdp_sockets(id: u32) -> u64 {
    let protocols = fs::read_to_string(format!("/proc/{id}/net/protocols")).unwrap_or_default();
    sockets(&protocols, "XDP").unwrap_or(0)
}

/// Returns the number of sockets of a protocol from the text of `/proc/net/protocols`. The columns
/// are name, size and sockets.
fn sockets(protocols: &str, name: &str) -> Option<u64> {
    let mut lines = protocols.lines().map(str::split_whitespace);
    let mut line = lines.find(|line| line.clone().next() == Some(name))?;
    line.nth(2)?.parse().ok()
}

/// Returns the number of packets that receive packet steering moved to a core. `softnet` is the
/// text of `/proc/net/softnet_stat`.
fn steered(softnet: &str, core: usize) -> Option<u64> {
    let line = softnet.lines().nth(core)?;
    u64::from_str_radix(line.split_whitespace().nth(9)?, 16).ok()
}

/// Counters at the beginning or at the end of the measured part.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    at: Instant,
    /// Idle and stolen time of the server's core and of the client's core, in ms.
    cores: [[u64; 2]; 2],
    /// CPU time of the server's processes in user mode, in clock ticks.
    user: u64,
    /// CPU time of the server's processes, and of the core's kernel thread for deferred work, in ns.
    server: u64,
    /// CPU time of the kernel threads that receive for the server, in ns.
    receivers: u64,
    /// Number of packets that were steered to the server's core.
    steered: u64,
}

impl Sample {
    /// Reads the counters. `receivers` are the kernel threads that receive for the server.
    pub(crate) fn take(server: &[i32], receivers: &[i32]) -> Result<Self> {
        let at = Instant::now();
        let stats = KernelStats::current().context("reading /proc/stat")?;
        let core = |core: usize| {
            let time = stats.cpu_time.get(core);
            let time = time.ok_or_else(|| anyhow!("no core {core} in /proc/stat"))?;
            let idle = time.idle_ms() + time.iowait_ms().unwrap_or(0);
            anyhow::Ok([idle, time.steal_ms().unwrap_or(0)])
        };
        let mut user = 0;
        for &id in server {
            let stat = Process::new(id).and_then(|process| process.stat());
            let ended = || format!("the server's process {id} ended");
            user += stat.with_context(ended)?.utime;
        }
        let softirqs = softirq_thread(SERVER_CORE);
        let server: Vec<i32> = server.iter().copied().chain(softirqs).collect();
        let softnet = fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
        Ok(Self {
            at,
            cores: [core(SERVER_CORE)?, core(CLIENT_CORE)?],
            user,
            server: run_time(&server),
            receivers: run_time(receivers),
            steered: steered(&softnet, SERVER_CORE).unwrap_or(0),
        })
    }

    /// Returns true if the kernel received packets on the server's core between `self` and `last`.
    pub(crate) fn received_until(&self, last: &Self) -> bool {
        last.receivers > self.receivers || last.steered > self.steered
    }

    /// Returns the cost of each of `completed` requests between `self` and `last`.
    pub(crate) fn cost_until(&self, last: &Self, completed: u64) -> Cost {
        let wall_us = (last.at.duration_since(self.at).as_secs_f64() * 1e6).max(1.0);
        // The kernel measures idle and stolen time, but only samples busy time at each tick. The
        // remaining time therefore counts as busy.
        let parts = |core: usize| {
            let ms = |n: usize| last.cores[core][n].saturating_sub(self.cores[core][n]);
            let [idle, stolen] = [0, 1].map(|n| (ms(n) as f64 * 1e3 / wall_us).min(1.0));
            [(1.0 - idle - stolen).max(0.0), stolen]
        };
        let ([busy, stolen], [client_busy, _]) = (parts(0), parts(1));
        let requests = completed.max(1) as f64;
        let core_us = busy * wall_us / requests;
        let tick_us = 1e6 / procfs::ticks_per_second() as f64;
        let own = |sample: &Self| sample.server + sample.receivers;
        let own_us = own(last).saturating_sub(own(self)) as f64 / 1e3;
        let user_us = last.user.saturating_sub(self.user) as f64 * tick_us / requests;
        Cost {
            core_us,
            user_us: user_us.min(core_us),
            busy,
            stolen,
            foreign: (busy - own_us / wall_us).max(0.0),
            client_busy,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    #[test]
    fn counters_and_children_are_found() {
        let softnet = "0 0 0 0 0 0 0 0 0 0000001f 0 0 0\n0 0 0 0 0 0 0 0 0 00000020 0 0 1\n";
        assert_eq!(steered(softnet, 1), Some(32));
        assert_eq!(steered(softnet, 2), None);
        let protocols = "protocol  size sockets  memory\nXDP       1088      2      -1\n";
        assert_eq!(sockets(protocols, "XDP"), Some(2));
        assert_eq!(sockets(protocols, "TCP"), None);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let family = family(std::process::id().cast_signed());
        child.kill().and_then(|()| child.wait()).unwrap();
        assert!(family.contains(&child.id().cast_signed()));
    }

    #[test]
    fn cost_is_the_time_that_was_neither_idle_nor_stolen() {
        let first = Sample {
            at: Instant::now(),
            cores: [[10_000, 0]; 2],
            user: 50,
            server: 7,
            receivers: 5,
            steered: 0,
        };
        // In one second the core was idle for 0.5 s, and the host took 0.1 s. The server's own code
        // took 0.3 s, and with the kernel's work for it 0.35 s.
        let mut last = first.clone();
        last.at += Duration::from_secs(1);
        last.cores = [[10_500, 100]; 2];
        last.user += 3 * procfs::ticks_per_second() / 10;
        last.server += 350_000_000;
        let cost = first.cost_until(&last, 100_000);
        let parts = [cost.busy, cost.stolen, cost.client_busy, cost.foreign];
        let values = [cost.core_us, cost.user_us].into_iter().chain(parts);
        for (value, expected) in values.zip([4.0, 3.0, 0.4, 0.1, 0.4, 0.05]) {
            assert!((value - expected).abs() < 1e-9, "{value} {expected}");
        }
        assert!(!first.received_until(&last));
        last.receivers += 1;
        assert!(first.received_until(&last));
    }
}
