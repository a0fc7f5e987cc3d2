//! What the kernel says about time and memory: parsers of `/proc`, and one
//! sample of everything that a run's cost is the difference of.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use super::results::Cost;
use crate::shell::{Context as _, Failure, Result};

/// The unit of CPU times in `/proc`: `USER_HZ`, 100 on every Linux.
const TICK_US: f64 = 10_000.0;

/// CPU time of one core since the start of the machine, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoreTime {
    /// Idle, and waiting for a disk.
    pub(crate) idle: u64,
    /// Taken away by the host.
    pub(crate) stolen: u64,
}

impl CoreTime {
    /// The line of `core` in `/proc/stat`.
    fn parse(stat: &str, core: usize) -> Option<Self> {
        let name = format!("cpu{core}");
        let line = stat
            .lines()
            .find(|line| line.split(' ').next() == Some(name.as_str()))?;
        // user nice system idle iowait irq softirq steal
        let times: Vec<u64> = line
            .split_whitespace()
            .skip(1)
            .map_while(|word| word.parse().ok())
            .collect();
        Some(Self {
            idle: times.get(3)? + times.get(4)?,
            stolen: times.get(7).copied().unwrap_or(0),
        })
    }
}

/// What `/proc/PID/stat` says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessStat {
    parent: u32,
    /// Ticks in user mode and in the kernel, all threads.
    user: u64,
    system: u64,
}

impl ProcessStat {
    fn parse(stat: &str) -> Option<Self> {
        // The name stands in parentheses and may hold anything.
        let (_, behind) = stat.rsplit_once(')')?;
        let mut fields = behind.split_whitespace();
        let parent = fields.nth(1)?.parse().ok()?;
        let user = fields.nth(9)?.parse().ok()?;
        let system = fields.next()?.parse().ok()?;
        Some(Self {
            parent,
            user,
            system,
        })
    }

    fn read(id: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }
}

/// `id` and all processes that descend from it.
pub(crate) fn family(id: u32) -> Vec<u32> {
    let mut parents: BTreeMap<u32, u32> = BTreeMap::new();
    for (child, _) in processes() {
        if let Some(stat) = ProcessStat::read(child) {
            parents.insert(child, stat.parent);
        }
    }
    let mut family = vec![id];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        family.extend(
            parents
                .iter()
                .filter(|&(_, of)| *of == parent)
                .map(|(&child, _)| child),
        );
        next += 1;
    }
    family
}

/// Every process, kernel threads included, with its name.
pub(crate) fn processes() -> impl Iterator<Item = (u32, String)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        Some((id, name.trim_end().to_owned()))
    })
}

/// A value in kB of `/proc/meminfo` or `/proc/PID/status`, in bytes.
fn kilobytes(text: &str, label: &str) -> Option<u64> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(label)?.strip_prefix(':'))?;
    let number: u64 = value.split_whitespace().next()?.parse().ok()?;
    Some(number * 1024)
}

/// Resident memory of the processes `ids`, in bytes.
pub(crate) fn resident(ids: &[u32]) -> Option<u64> {
    let of = |id: &u32| {
        let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        kilobytes(&status, "VmRSS")
    };
    ids.iter().map(of).sum()
}

/// Memory in the kernel's own tables, sockets among them, in bytes; the whole
/// machine's.
pub(crate) fn kernel_tables() -> u64 {
    fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| kilobytes(&text, "Slab"))
        .unwrap_or(0)
}

/// Frames that `interface` has received and sent, from `/proc/PID/net/dev`.
fn frames(net_dev: &str, interface: &str) -> Option<u64> {
    let counts = net_dev
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
    let counts: Vec<u64> = counts
        .split_whitespace()
        .map_while(|word| word.parse().ok())
        .collect();
    // bytes packets errs drop fifo frame compressed multicast, twice
    Some(counts.get(1)? + counts.get(9)?)
}

/// `AF_XDP` sockets in the network namespace of the process `id`.
pub(crate) fn xdp_sockets(id: u32) -> u64 {
    fs::read_to_string(format!("/proc/{id}/net/protocols"))
        .ok()
        .and_then(|protocols| sockets(&protocols, "XDP"))
        .unwrap_or(0)
}

/// Sockets of a protocol in `/proc/net/protocols`: name, size, sockets.
fn sockets(protocols: &str, name: &str) -> Option<u64> {
    let mut lines = protocols.lines().map(str::split_whitespace);
    let mut line = lines.find(|line| line.clone().next() == Some(name))?;
    line.nth(2)?.parse().ok()
}

/// Packets that receive packet steering has brought to the core whose line
/// of `/proc/net/softnet_stat` this is.
fn steered(softnet: &str, core: usize) -> Option<u64> {
    let line = softnet.lines().nth(core)?;
    u64::from_str_radix(line.split_whitespace().nth(9)?, 16).ok()
}

/// Time on a core that the scheduler has given a thread, in ns.
fn time_on_core(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

/// What a sample looks at.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    /// The server's core and the client's.
    pub(crate) cores: [usize; 2],
    /// The server's processes, its first one first.
    pub(crate) server: Vec<u32>,
    /// The server's interface, in its network namespace.
    pub(crate) interface: &'static str,
    /// Kernel threads that receive at the server's end and at the client's.
    pub(crate) receivers: [Vec<u32>; 2],
}

/// How things stand at one edge of a run's measured part.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    at: Instant,
    cores: [CoreTime; 2],
    user: u64,
    frames: u64,
    received_for: [u64; 2],
    /// By receive packet steering to the server's core.
    steered: u64,
}

impl Sample {
    pub(crate) fn take(watched: &Watched) -> Result<Self> {
        let at = Instant::now();
        let stat = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
        let mut cores = [CoreTime::default(); 2];
        for (time, &core) in cores.iter_mut().zip(&watched.cores) {
            *time = CoreTime::parse(&stat, core)
                .ok_or_else(|| Failure::new(format!("no core {core} in /proc/stat")))?;
        }
        let mut user = 0;
        for &id in &watched.server {
            let stat = ProcessStat::read(id)
                .ok_or_else(|| Failure::new(format!("the server's process {id} has ended")))?;
            user += stat.user;
        }
        let first = watched.server.first().copied().unwrap_or_default();
        let net_dev = fs::read_to_string(format!("/proc/{first}/net/dev")).unwrap_or_default();
        let softnet = fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
        let received_for = watched.receivers.each_ref().map(|threads| {
            let of =
                |id: &u32| time_on_core(&fs::read_to_string(format!("/proc/{id}/schedstat")).ok()?);
            threads.iter().filter_map(of).sum()
        });
        Ok(Self {
            at,
            cores,
            user,
            frames: frames(&net_dev, watched.interface).unwrap_or(0),
            received_for,
            steered: steered(&softnet, watched.cores[0]).unwrap_or(0),
        })
    }
}

/// The difference between two samples.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) seconds: f64,
    /// Part of the time that the server's core and the client's were busy.
    pub(crate) busy: [f64; 2],
    stolen: f64,
    /// µs in the server's processes, user mode.
    user_us: f64,
    /// Frames that the server's interface has received and sent.
    pub(crate) frames: u64,
    /// Part of the time that the kernel's receiving threads ran, at the
    /// server's end and at the client's.
    pub(crate) receiving: [f64; 2],
    /// Packets were steered to the server's core.
    pub(crate) steered: bool,
}

impl Usage {
    pub(crate) fn between(first: &Sample, last: &Sample) -> Self {
        let seconds = last.at.duration_since(first.at).as_secs_f64();
        let wall_us = (seconds * 1e6).max(1.0);
        let part = |ticks: u64| (ticks as f64 * TICK_US / wall_us).clamp(0.0, 1.0);
        let since = |get: fn(&CoreTime) -> u64, core: usize| {
            part(get(&last.cores[core]).saturating_sub(get(&first.cores[core])))
        };
        // What is idle and what is stolen is measured; the rest of the
        // kernel's own table is guessed at each tick.
        let stolen = [0, 1].map(|core| since(|time| time.stolen, core));
        let busy = [0, 1].map(|core| (1.0 - since(|time| time.idle, core) - stolen[core]).max(0.0));
        let receiving = [0, 1].map(|end| {
            let ns = last.received_for[end].saturating_sub(first.received_for[end]);
            ns as f64 / 1e3 / wall_us
        });
        Self {
            seconds,
            busy,
            stolen: stolen[0],
            user_us: last.user.saturating_sub(first.user) as f64 * TICK_US,
            frames: last.frames.saturating_sub(first.frames),
            receiving,
            steered: last.steered > first.steered,
        }
    }

    /// The cost of each of `completed` requests; `None` when there were none.
    pub(crate) fn cost(&self, completed: u64) -> Option<Cost> {
        if completed == 0 {
            return None;
        }
        let core_us = self.busy[0] * self.seconds * 1e6 / completed as f64;
        let user_us = (self.user_us / completed as f64).min(core_us);
        Some(Cost {
            core_us,
            user_us,
            system_us: core_us - user_us,
            busy: self.busy[0],
            stolen: self.stolen,
            client_busy: self.busy[1],
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_right_core_is_found() {
        let stat = "cpu  1 2 3 4 5 6 7 8 0 0\ncpu1 10 0 20 400 5 0 7 9 0 0\n\
                    cpu10 10 0 20 30 5 0 7 8 0 0\nintr 5\n";
        let time = CoreTime::parse(stat, 1);
        assert_eq!(
            time,
            Some(CoreTime {
                idle: 405,
                stolen: 9
            })
        );
        assert_eq!(CoreTime::parse(stat, 2), None);
        assert_eq!(CoreTime::parse("cpu0 1 2", 0), None);
    }

    #[test]
    fn a_process_may_have_any_name() {
        let stat = "17 (a) b (c) S 3 17 17 0 -1 4194560 1 2 3 4 250 60 0 0 20 0 1 0";
        assert_eq!(
            ProcessStat::parse(stat),
            Some(ProcessStat {
                parent: 3,
                user: 250,
                system: 60
            })
        );
        assert_eq!(ProcessStat::parse("17 (a"), None);
        assert_eq!(ProcessStat::parse("17 (a) S 3"), None);
    }

    #[test]
    fn memory_and_frames_are_read() {
        let status = "Name:\tx\nVmRSS:\t     120 kB\nThreads:\t1\n";
        assert_eq!(kilobytes(status, "VmRSS"), Some(120 * 1024));
        assert_eq!(kilobytes(status, "VmSwap"), None);
        let dev = "Inter-| Receive | Transmit\n    lo: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n  \
                   srv0:1000 20 0 0 0 0 0 0 3000 40 0 0 0 0 0 0\n";
        assert_eq!(frames(dev, "srv0"), Some(60));
        assert_eq!(frames(dev, "cli0"), None);
        let softnet = "0 0 0 0 0 0 0 0 0 0000001f 0 0 0\n0 0 0 0 0 0 0 0 0 00000020 0 0 1\n";
        assert_eq!(steered(softnet, 1), Some(32));
        assert_eq!(steered(softnet, 2), None);
        let protocols =
            "protocol  size sockets  memory press\nXDP       1088      2      -1   NI\n";
        assert_eq!(sockets(protocols, "XDP"), Some(2));
        assert_eq!(sockets(protocols, "TCP"), None);
        assert_eq!(time_on_core("123456 7 8\n"), Some(123_456));
    }

    #[test]
    fn a_family_includes_its_children() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let family = family(std::process::id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(family.first(), Some(&std::process::id()));
        assert!(family.contains(&child.id()));
    }

    #[test]
    fn cost_is_what_was_not_idle() {
        let at = Instant::now();
        let sample = |at, idle, user| Sample {
            at,
            cores: [CoreTime { idle, stolen: 0 }; 2],
            user,
            frames: 0,
            received_for: [0; 2],
            steered: 0,
        };
        let first = sample(at, 1_000, 50);
        // A second, of which the core was idle for 0.6 and 0.3 went to the
        // server's own code.
        let last = sample(at + Duration::from_secs(1), 1_060, 80);
        let usage = Usage::between(&first, &last);
        let cost = usage.cost(100_000).unwrap();
        assert!((cost.core_us - 4.0).abs() < 1e-9);
        assert!((cost.user_us - 3.0).abs() < 1e-9);
        assert!((cost.system_us - 1.0).abs() < 1e-9);
        assert!((cost.busy - 0.4).abs() < 1e-9);
        assert!(usage.cost(0).is_none());
    }
}
