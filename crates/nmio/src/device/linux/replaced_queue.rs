//! The queueing discipline that netmap replaces.

use std::io;

use super::netlink::{self, Queue};
use crate::device::DeviceError;

/// The queueing discipline of netmap's emulated mode.
const EMULATED: &str = "netmapemu";
/// The one that netmap leaves behind if the last program that closes the interface has privileges.
const LEFT: &str = "pfifo";
/// The same on an interface with several queues. Below it are the kernel's defaults.
const LEFT_ON_QUEUES: &str = "mq";
/// Number of the first `mq` of netmap, in the upper half of its handle. The next ones count up.
const FIRST_NUMBER: u32 = 18;
/// From this number on, the kernel chooses the numbers of others.
const CHOSEN_NUMBERS: u32 = 0x8000;
/// The handle of one that the kernel gives to an interface by itself.
const DEFAULT: u32 = 0;
/// Queueing disciplines whose parameters the kernel keeps as it reports them. It rounds those of
/// `codel`, `fq_codel` and `tbf`. None has classes, except `mq` for the queues.
const RESTORABLE: [&str; 9] = [
    "bfifo",
    "cake",
    "fq",
    "mq",
    "noqueue",
    "pfifo",
    "pfifo_fast",
    "pfifo_head_drop",
    "sfq",
];

/// An interface whose queueing discipline netmap may replace. Dropping this value restores the former
/// one if it has been replaced, or else the kernel's default.
///
/// In emulated mode, netmap sends packets through a queueing discipline of its own. When the last
/// program closes the interface, netmap replaces it once more, but only if this program has
/// privileges. A worker has none.
pub(super) struct ReplacedQueue {
    interface: String,
    index: u32,
    /// The queueing disciplines at first.
    former: Vec<Queue>,
}

impl ReplacedQueue {
    /// Notes the queueing discipline of interface `name`, whose number is `index`.
    ///
    /// # Errors
    /// If the kernel does not name the queueing discipline, or if it cannot be restored.
    pub(super) fn expect(name: &str, index: u32) -> Result<Self, DeviceError> {
        let step = format!("read the queueing discipline of {name}");
        let former = netlink::queues(index).map_err(DeviceError::set_up(step))?;
        if let Some(Queue { kind, .. }) = would_be_lost(&former) {
            return Err(DeviceError::NetmapQueue {
                name: name.to_owned(),
                kind: kind.clone(),
            });
        }
        Ok(Self {
            interface: name.to_owned(),
            index,
            former,
        })
    }

    /// Restores the queueing discipline if netmap has replaced it. If the kernel refuses the former
    /// one, the interface gets the default.
    fn restore(&self) -> io::Result<()> {
        if !is_of_netmap(&self.former, &netlink::queues(self.index)?) {
            return Ok(());
        }
        let Some(root) = restorable(&self.former) else {
            return netlink::remove_queue(self.index);
        };
        netlink::replace_queue(self.index, root).map_err(|error| {
            match netlink::remove_queue(self.index) {
                Ok(()) => io::Error::other(format!("{error}; it has the kernel's default now")),
                Err(_) => error,
            }
        })
    }
}

/// Returns the root of these queueing disciplines if it is the administrator's and cannot be made again.
/// After a crash, it may be netmap's own.
fn would_be_lost(queues: &[Queue]) -> Option<&Queue> {
    let root = queues.iter().find(|queue| queue.is_root())?;
    let is_made = root.handle != DEFAULT && root.kind != EMULATED;
    (is_made && restorable(queues).is_none()).then_some(root)
}

/// Returns the root of these queueing disciplines if it can be made again. Those below the root would
/// be lost, except the defaults, which the kernel makes again.
fn restorable(queues: &[Queue]) -> Option<&Queue> {
    let sending = queues.iter().filter(|queue| !queue.is_ingress());
    let kept = sending.filter(|queue| queue.is_root() || queue.handle != DEFAULT);
    let [root] = kept.collect::<Vec<_>>()[..] else {
        return None;
    };
    let is_plain = root.is_root() && root.handle != DEFAULT && !root.has_size_table;
    (is_plain && RESTORABLE.contains(&&*root.kind)).then_some(root)
}

/// Returns true if netmap has put one of the queueing disciplines `now` there. Others are the
/// administrator's, and so are those in the place of a `former` one.
fn is_of_netmap(former: &[Queue], now: &[Queue]) -> bool {
    let is_new = |queue: &Queue| former.iter().all(|old| place(old) != place(queue));
    let is_left = |queue: &Queue| queue.kind == LEFT || is_left_on_queues(queue, now);
    now.iter()
        .any(|queue| queue.kind == EMULATED || is_left(queue) && is_new(queue))
}

/// Returns true if one of the queueing disciplines `now` is an `mq` with a number of netmap, and the
/// administrator has put none below it. One that an administrator gives such a number while the server runs
/// looks the same.
fn is_left_on_queues(queue: &Queue, now: &[Queue]) -> bool {
    queue.kind == LEFT_ON_QUEUES
        && queue.is_root()
        && (FIRST_NUMBER..CHOSEN_NUMBERS).contains(&(queue.handle >> 16))
        && restorable(now).is_some()
}

/// Returns what a change of parameters does not alter.
fn place(queue: &Queue) -> (&str, u32, u32) {
    (&queue.kind, queue.handle, queue.parent)
}

impl Drop for ReplacedQueue {
    fn drop(&mut self) {
        if let Err(error) = self.restore() {
            let interface = &self.interface;
            tracing::warn!(
                target: "nmio::device",
                "cannot restore the queueing discipline of {interface}: {error}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::sys;

    fn run(line: &str) -> String {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        let output = command.args(words).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Makes an interface with two queues, which the kernel gives queueing disciplines, in a network
    /// namespace of this thread. Returns its number.
    fn make_interface() -> u32 {
        sys::unshare_network().unwrap_or_else(|error| panic!("this test needs root: {error}"));
        run("ip link add q0 numtxqueues 2 type veth peer name q1");
        run("ip link set q0 up");
        let number = run("ip -oneline link show q0");
        number.split(':').next().unwrap().parse().unwrap()
    }

    /// Returns what the kernel says of the interface's queueing disciplines, without the number of
    /// references to them.
    fn shown() -> String {
        let text = run("tc qdisc show dev q0");
        let mut words = text.split_whitespace();
        let mut shown = Vec::new();
        while let Some(word) = words.next() {
            if word == "refcnt" {
                words.next();
            } else {
                shown.push(word);
            }
        }
        shown.join(" ")
    }

    /// Returns why the interface cannot have a netmap port.
    fn refused(index: u32) -> String {
        let outcome = ReplacedQueue::expect("q0", index);
        outcome.err().unwrap().to_string()
    }

    #[test]
    fn the_former_queueing_discipline_is_restored_with_its_parameters() {
        let index = make_interface();
        for root in [
            "pfifo limit 77",
            "handle 77: bfifo limit 4321",
            "handle 78: pfifo_fast",
            "handle 79: noqueue",
        ] {
            run(&format!("tc qdisc replace dev q0 root {root}"));
            let before = shown();
            let replaced = ReplacedQueue::expect("q0", index).unwrap();
            // This one stands for netmap's. Then netmap leaves a new pfifo behind.
            run("tc qdisc replace dev q0 root pfifo_head_drop");
            run("tc qdisc replace dev q0 root pfifo");
            assert_ne!(shown(), before);
            drop(replaced);
            assert_eq!(shown(), before);
        }
    }

    #[test]
    fn of_several_queues_the_default_and_mq_are_restored() {
        let index = make_interface();
        for root in ["", "mq", "handle 7: mq"] {
            if !root.is_empty() {
                run(&format!("tc qdisc replace dev q0 root {root}"));
            }
            let before = shown();
            let replaced = ReplacedQueue::expect("q0", index).unwrap();
            run("tc qdisc replace dev q0 root handle 19: mq");
            assert_ne!(shown(), before);
            drop(replaced);
            assert_eq!(shown(), before);
        }
    }

    #[test]
    fn a_queueing_discipline_that_netmap_did_not_touch_stays() {
        let index = make_interface();
        run("tc qdisc replace dev q0 root pfifo limit 77");
        drop(ReplacedQueue::expect("q0", index).unwrap());
        assert!(shown().contains("limit 77p"));
        let replaced = ReplacedQueue::expect("q0", index).unwrap();
        run("tc qdisc change dev q0 root pfifo limit 88");
        drop(replaced);
        assert!(shown().contains("limit 88p"));
        let replaced = ReplacedQueue::expect("q0", index).unwrap();
        run("tc qdisc replace dev q0 root bfifo limit 4321");
        drop(replaced);
        assert!(shown().contains("limit 4321b"));
    }

    #[test]
    fn a_queueing_discipline_with_leaves_is_refused_and_stays() {
        let index = make_interface();
        for root in ["htb", "mq"] {
            run(&format!("tc qdisc replace dev q0 root handle 1: {root}"));
            if root == "htb" {
                run("tc class add dev q0 parent 1: classid 1:1 htb rate 1mbit");
            }
            run("tc qdisc replace dev q0 parent 1:1 pfifo limit 9");
            let before = shown();
            assert!(before.contains("parent 1:1 limit 9p"), "{before}");
            let error = refused(index);
            assert!(
                error.contains(&format!("discipline {root} of q0")),
                "{error}"
            );
            assert_eq!(shown(), before);
            run("tc qdisc del dev q0 root");
        }
    }

    #[test]
    fn if_the_kernel_refuses_the_former_queueing_discipline_there_is_the_default() {
        let index = make_interface();
        let default = shown();
        run("tc qdisc replace dev q0 root pfifo limit 77");
        let mut replaced = ReplacedQueue::expect("q0", index).unwrap();
        replaced.former[0].options.truncate(1);
        run("tc qdisc replace dev q0 root pfifo_head_drop");
        run("tc qdisc replace dev q0 root pfifo");
        let error = replaced.restore().unwrap_err().to_string();
        assert!(
            error.ends_with("; it has the kernel's default now"),
            "{error}"
        );
        assert_eq!(shown(), default);
    }

    #[test]
    fn a_size_table_is_not_restorable() {
        let index = make_interface();
        run("tc qdisc replace dev q0 root stab overhead 4 linklayer ethernet pfifo limit 77");
        let error = refused(index);
        assert!(error.contains("discipline pfifo of q0"), "{error}");
    }

    #[test]
    fn without_a_former_queueing_discipline_there_is_none_afterwards() {
        let index = make_interface();
        let before = shown();
        let replaced = ReplacedQueue::expect("q0", index).unwrap();
        run("tc qdisc replace dev q0 root pfifo");
        drop(replaced);
        assert_eq!(shown(), before);
    }

    #[test]
    fn only_the_root_alone_is_restorable() {
        let queue = |kind: &str, handle, parent| Queue {
            handle,
            parent,
            kind: kind.to_owned(),
            options: Vec::new(),
            has_size_table: false,
        };
        let (root, ingress) = (u32::MAX, 0xffff_fff1);
        let fq = queue("fq", 0x8001_0000, root);
        assert_eq!(restorable(std::slice::from_ref(&fq)), Some(&fq));
        assert!(restorable(&[queue("clsact", 1, ingress), fq.clone()]).is_some());
        assert_eq!(restorable(&[]), None);
        assert_eq!(restorable(&[queue("fq", 0, root)]), None, "the default");
        for kind in ["htb", "codel", "fq_codel", "tbf"] {
            let made = [queue(kind, 1 << 16, root)];
            assert_eq!(restorable(&made), None);
            assert_eq!(would_be_lost(&made), Some(&made[0]));
        }
        for kept in [
            queue("fq_codel", 0, root),
            queue("netmapemu", 1 << 16, root),
        ] {
            assert_eq!(would_be_lost(&[kept]), None);
        }
        let below = |handle| queue("pfifo", handle, 1 << 16 | 1);
        let mq = queue("mq", 1 << 16, root);
        assert_eq!(restorable(&[mq.clone(), below(2 << 16)]), None);
        assert_eq!(restorable(&[mq.clone(), below(0)]), Some(&mq));
        // What netmap leaves has a handle of its own.
        let of_netmap = |now: &[Queue]| is_of_netmap(std::slice::from_ref(&fq), now);
        assert!(of_netmap(&[queue("netmapemu", 1 << 16, root)]));
        let mq = queue("mq", 18 << 16, root);
        assert!(of_netmap(&[
            mq.clone(),
            queue("netmapemu", 0, 18 << 16 | 1)
        ]));
        assert!(of_netmap(&[queue("pfifo", 0x8002_0000, root)]));
        assert!(of_netmap(&[mq.clone(), queue("fq", 0, 18 << 16 | 1)]));
        assert!(!of_netmap(&[mq, queue("fq", 1 << 16, 18 << 16 | 1)]));
        for number in [0, 17, 0x8001] {
            assert!(!of_netmap(&[queue("mq", number << 16, root)]));
        }
        assert!(!of_netmap(std::slice::from_ref(&fq)));
        assert!(!of_netmap(&[queue("htb", 1 << 16, root)]));
        assert!(!of_netmap(&[]));
    }
}
