//! Reports which CPUs handle the interrupts of the served queues, which CPUs the workers may use, and
//! the NUMA node of the device. Devices without interrupts of their own, such as veth, have no such
//! lines.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::device::lines::Lines;

/// Where an interface's device is, and what handles its interrupts.
struct Placement {
    /// NUMA node of the device. `None`: the host has one node, or does not tell the device's.
    node: Option<Node>,
    /// For each served queue, the CPUs that may handle its interrupt, in the kernel's list format.
    interrupts: Vec<Option<String>>,
    /// The CPUs that the workers may use, in ascending order.
    workers: Vec<u32>,
}

/// A NUMA node.
struct Node {
    number: u32,
    /// Its CPUs, in ascending order.
    cpus: Vec<u32>,
}

/// Adds lines about the first `queues` queues of `interface`.
pub(super) fn describe(interface: &str, queues: u32, lines: &mut Lines) {
    if let Some(placement) = Placement::read(interface, queues) {
        placement.describe(interface, lines);
    }
}

impl Placement {
    fn read(interface: &str, queues: u32) -> Option<Self> {
        let device = pci_device(interface)?;
        let irqs: Vec<u32> = fs::read_dir(device.join("msi_irqs"))
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        let table = fs::read_to_string("/proc/interrupts").ok()?;
        let cpus_of = |irq: u32| {
            let files = ["effective_affinity_list", "smp_affinity_list"];
            let read = |file| fs::read_to_string(format!("/proc/irq/{irq}/{file}")).ok();
            let lists = files.into_iter().filter_map(read);
            let mut lists = lists.map(|list| list.trim().to_owned());
            lists.find(|list| !list.is_empty())
        };
        let irqs = queue_irqs(&table, &irqs, queues);
        Some(Self {
            node: Node::of(&device),
            interrupts: irqs.into_iter().map(|irq| cpus_of(irq?)).collect(),
            workers: allowed_cpus(),
        })
    }

    fn describe(&self, interface: &str, lines: &mut Lines) {
        let known = (0..).zip(&self.interrupts);
        let interrupts: Vec<_> = known
            .filter_map(|(queue, cpus)| Some(format!("{queue} on {}", cpus.as_ref()?)))
            .collect();
        if !interrupts.is_empty() {
            lines.push((
                "CPUs",
                format!(
                    "workers may use {}; interrupts of queue {}",
                    format_cpus(&self.workers),
                    interrupts.join(", ")
                ),
            ));
        }
        let Some(Node { number, cpus }) = &self.node else {
            return;
        };
        lines.push((
            "NUMA node",
            format!(
                "{interface} is on node {number}, with CPUs {}",
                format_cpus(cpus)
            ),
        ));
        let is_near = |cpu: &u32| cpus.contains(cpu);
        if !self.workers.iter().all(is_near) {
            lines.push((
                "advice",
                format!(
                    "workers may run on another NUMA node than {interface}; start the server with: \
                     numactl --cpunodebind={number} --membind={number}"
                ),
            ));
        }
        let mut handlers = self.interrupts.iter().flatten();
        if handlers.any(|list| !parse_cpus(list).iter().all(is_near)) {
            lines.push((
                "advice",
                format!(
                    "CPUs of another NUMA node handle interrupts of {interface}; move them with: \
                     echo {} > /proc/irq/NUMBER/smp_affinity_list (see /proc/interrupts)",
                    format_cpus(cpus)
                ),
            ));
        }
    }
}

impl Node {
    /// Returns the NUMA node of a device, if the host has several nodes.
    fn of(device: &Path) -> Option<Self> {
        let nodes = "/sys/devices/system/node";
        let online = fs::read_to_string(format!("{nodes}/online")).ok()?;
        if parse_cpus(online.trim()).len() < 2 {
            return None;
        }
        let number = fs::read_to_string(device.join("numa_node")).ok()?;
        // The kernel writes -1 if it does not know the node.
        let number = number.trim().parse().ok()?;
        let cpus = fs::read_to_string(format!("{nodes}/node{number}/cpulist")).ok()?;
        let cpus = parse_cpus(cpus.trim());
        Some(Self { number, cpus })
    }
}

/// Returns the CPUs that this thread and the threads that it creates may use, in ascending order.
/// Returns none if they are unknown.
fn allowed_cpus() -> Vec<u32> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    cpus.map(|cpu| cpu as u32).collect()
}

/// Returns the folder of the device that has the interface's interrupts. The device of a virtio
/// interface has none, but the PCI device above it has.
fn pci_device(interface: &str) -> Option<PathBuf> {
    let device = fs::canonicalize(format!("/sys/class/net/{interface}/device")).ok()?;
    let candidates = device.ancestors().take(2);
    let mut with_interrupts = candidates.filter(|path| path.join("msi_irqs").is_dir());
    with_interrupts.next().map(Path::to_owned)
}

/// Returns the interrupt of each of the first `queues` RX queues. `table` is the text of
/// `/proc/interrupts`, and `irqs` are the device's interrupts.
fn queue_irqs(table: &str, irqs: &[u32], queues: u32) -> Vec<Option<u32>> {
    let mut found = vec![None; queues as usize];
    for line in table.lines() {
        let Some((irq, rest)) = line.split_once(':') else {
            continue;
        };
        let irq = irq.trim().parse().ok().filter(|irq| irqs.contains(irq));
        let queue = rest.split_whitespace().next_back().and_then(queue_number);
        if let (Some(irq), Some(queue)) = (irq, queue)
            && let Some(slot) = found.get_mut(queue as usize)
        {
            slot.get_or_insert(irq);
        }
    }
    found
}

/// Returns the number of the RX queue whose interrupt has this name. Each driver has its own names,
/// such as `eth0-TxRx-3`, `eth0-Tx-Rx-3`, `virtio2-input.3` or `mlx5_comp3@pci:0000:08:00.0`.
fn queue_number(name: &str) -> Option<u32> {
    let name = name.split('@').next()?.to_ascii_lowercase();
    let receives = ["rx", "input", "comp"]
        .iter()
        .any(|word| name.contains(word));
    let before = name.trim_end_matches(|last: char| last.is_ascii_digit());
    receives.then(|| name[before.len()..].parse().ok())?
}

/// Parses a list of CPUs or nodes such as `0-3,8`. Skips parts that are invalid.
fn parse_cpus(list: &str) -> Vec<u32> {
    let parse = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range: (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        Some(range.0..=range.1.min(range.0.saturating_add(CpuSet::MAX_CPU as u32)))
    };
    list.split(',').filter_map(parse).flatten().collect()
}

/// Writes an ascending list of CPUs as the kernel does, such as `0-3,8`.
fn format_cpus(cpus: &[u32]) -> String {
    let runs = cpus.chunk_by(|a, b| a + 1 == *b);
    let format = |run: &[u32]| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    };
    runs.map(format).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interrupt_of_each_queue_is_found_by_its_name() {
        let table = "           CPU0       CPU1
 38:          0      14941 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
 39:       9379          0 PCI-MSIX-0000:00:03.0   2-edge      virtio2-output.0
 40:       9379          0 PCI-MSIX-0000:00:03.0   3-edge      virtio2-input.1
 41:          0          0 PCI-MSIX-0000:00:04.0   1-edge      virtio3-input.2
NMI:          0          0   Non-maskable interrupts";
        assert_eq!(
            queue_irqs(table, &[37, 38, 39, 40], 3),
            [Some(38), Some(40), None]
        );
        for (name, queue) in [
            ("eth0-TxRx-3", Some(3)),
            ("i40e-eth0-TxRx-12", Some(12)),
            ("ice-eth0-TxRx-0", Some(0)),
            ("eth0-Tx-Rx-1", Some(1)),
            ("mlx5_comp7@pci:0000:08:00.0", Some(7)),
            ("mlx5_async0@pci:0000:08:00.0", None),
            ("virtio0-output.0", None),
            ("virtio0-config", None),
            ("eth0-tx-2", None),
            ("eth0-rx", None),
            ("ena-mgmnt@pci:0000:00:05.0", None),
        ] {
            assert_eq!(queue_number(name), queue, "{name}");
        }
    }

    #[test]
    fn lists_of_cpus_are_read_and_written_as_the_kernel_does() {
        for list in ["0", "0-3", "0-3,8", "1,3,5-6"] {
            assert_eq!(format_cpus(&parse_cpus(list)), list);
        }
        assert_eq!(parse_cpus("x,2,3-y,"), [2]);
        assert!(parse_cpus("0-4294967295").len() <= CpuSet::MAX_CPU + 1);
    }

    #[test]
    fn workers_and_interrupts_on_another_node_give_advice() {
        let lines = |node: Option<Vec<u32>>, interrupt: &str, workers: &[u32]| {
            let placement = Placement {
                node: node.map(|cpus| Node { number: 1, cpus }),
                interrupts: vec![Some(interrupt.into()), None],
                workers: workers.to_vec(),
            };
            let mut lines = Lines::new();
            placement.describe("eth0", &mut lines);
            lines
        };
        assert_eq!(
            lines(None, "2", &[0, 1, 2, 3]),
            [(
                "CPUs",
                "workers may use 0-3; interrupts of queue 0 on 2".to_owned()
            )]
        );
        let near = lines(Some(vec![2, 3]), "2", &[2, 3]);
        assert_eq!(near.len(), 2, "{near:?}");
        assert_eq!(
            near[1],
            ("NUMA node", "eth0 is on node 1, with CPUs 2-3".into())
        );
        let far = lines(Some(vec![2, 3]), "2", &[0, 1, 2, 3]);
        assert!(far[2].1.contains("numactl --cpunodebind=1"), "{far:?}");
        let far = lines(Some(vec![2, 3]), "0-1", &[2, 3]);
        assert!(far[2].1.contains("echo 2-3 > "), "{far:?}");
        let nothing = Placement {
            node: None,
            interrupts: vec![None],
            workers: vec![0],
        };
        let mut lines = Lines::new();
        nothing.describe("eth0", &mut lines);
        assert_eq!(lines, []);
    }
}
