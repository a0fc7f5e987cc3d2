//! The queueing discipline that netmap replaces.

use std::{fs, io};

use super::netlink;
use crate::device::DeviceError;
use crate::device::lines::Lines;

/// The queueing discipline of netmap's emulated mode.
const EMULATED: &str = "netmapemu";
/// The one that netmap leaves behind if the last program that closes the interface has privileges.
const LEFT: &str = "pfifo";
/// The kernel's defaults for devices without a queue, and for those with several.
const DEFAULTS: [&str; 2] = ["noqueue", "mq"];
/// Names the kernel's default for other devices.
const DEFAULT_FILE: &str = "/proc/sys/net/core/default_qdisc";

/// An interface whose queueing discipline netmap may replace. Dropping this value restores the
/// kernel's default if it has been replaced.
///
/// In emulated mode, netmap sends packets through a queueing discipline of its own. When the last
/// program closes the interface, netmap replaces it once more, but only if this program has
/// privileges. A worker has none.
pub(super) struct ReplacedQueue {
    interface: String,
    index: u32,
    /// Name of the queueing discipline at first.
    kind: String,
}

impl ReplacedQueue {
    /// Notes the queueing discipline of interface `name`, whose number is `index`. Adds a line to the
    /// summary if it cannot be restored.
    ///
    /// # Errors
    /// If the kernel does not name the queueing discipline.
    pub(super) fn expect(name: &str, index: u32, lines: &mut Lines) -> Result<Self, DeviceError> {
        let step = format!("read the queueing discipline of {name}");
        let kind = netlink::queue_kind(index).map_err(DeviceError::set_up(step))?;
        if !is_default(&kind) {
            let line = format!(
                "in emulated mode, netmap replaces the queueing discipline {kind} of {name}; when \
                 the server exits, {name} gets the kernel's default instead"
            );
            lines.push(("TX queue", line));
        }
        Ok(Self {
            interface: name.to_owned(),
            index,
            kind,
        })
    }

    /// Restores the kernel's default, unless the queueing discipline is not netmap's.
    fn restore(&self) -> io::Result<()> {
        if is_of_netmap(&self.kind, &netlink::queue_kinds(self.index)?) {
            return netlink::remove_queue(self.index);
        }
        Ok(())
    }
}

/// Returns true if the kernel gives this queueing discipline to a device by itself.
fn is_default(kind: &str) -> bool {
    let default = fs::read_to_string(DEFAULT_FILE);
    DEFAULTS.contains(&kind) || default.is_ok_and(|default| default.trim() == kind)
}

/// Returns true if netmap has put one of the queueing disciplines `now` there. At first, the
/// interface had `before`. Others are the administrator's.
fn is_of_netmap(before: &str, now: &[String]) -> bool {
    now.iter()
        .any(|kind| kind == EMULATED || kind == LEFT && before != LEFT)
}

impl Drop for ReplacedQueue {
    fn drop(&mut self) {
        if let Err(error) = self.restore() {
            let interface = &self.interface;
            tracing::debug!(
                target: "nmio::device",
                "cannot restore the queueing discipline of {interface}: {error}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_netmaps_queueing_disciplines_are_removed() {
        let is_of_netmap = |before, now: &[&str]| {
            let now: Vec<String> = now.iter().map(|kind| (*kind).to_owned()).collect();
            super::is_of_netmap(before, &now)
        };
        assert!(is_of_netmap("fq_codel", &["netmapemu"]));
        assert!(is_of_netmap("mq", &["mq", "netmapemu", "netmapemu"]));
        assert!(is_of_netmap("fq_codel", &["pfifo"]));
        for (before, now) in [
            ("fq_codel", &["fq_codel"][..]),
            ("noqueue", &[]),
            ("pfifo", &["pfifo"]),
            ("mq", &["mq", "fq_codel", "fq_codel"]),
            // The administrator has changed it while the server ran.
            ("fq_codel", &["htb", "fq"]),
        ] {
            assert!(!is_of_netmap(before, now), "{before}, {now:?}");
        }
    }
}
