//! The queueing discipline that netmap replaces.

use super::netlink;
use crate::device::DeviceError;
use crate::device::lines::Lines;

/// The queueing discipline of netmap's emulated mode.
const EMULATED: &str = "netmapemu";
/// The kernel's default queueing disciplines.
const DEFAULTS: [&str; 5] = ["noqueue", "pfifo_fast", "fq_codel", "fq", "mq"];

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
        if !DEFAULTS.contains(&&*kind) {
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

    fn is_replaced(&self) -> std::io::Result<bool> {
        let kinds = netlink::queue_kinds(self.index)?;
        Ok(kinds.iter().any(|kind| kind == EMULATED)
            || netlink::queue_kind(self.index)? != self.kind)
    }
}

impl Drop for ReplacedQueue {
    fn drop(&mut self) {
        let restored = self.is_replaced().and_then(|is_replaced| {
            if is_replaced {
                netlink::remove_queue(self.index)
            } else {
                Ok(())
            }
        });
        if let Err(error) = restored {
            let interface = &self.interface;
            tracing::debug!(
                target: "nmio::device",
                "cannot restore the queueing discipline of {interface}: {error}"
            );
        }
    }
}
