//! The packet queue that `qdisc=pfifo` adds to an interface.

use std::io;

use super::netlink;
use crate::device::DeviceError;
use crate::device::lines::Lines;

/// Maximum number of packets in the queue. This is the kernel's default for network cards.
pub(super) const QUEUE_LEN: u32 = 1_000;

/// The kernel's name of the queue.
const KIND: &str = "pfifo";

/// A packet queue that this process has added to an interface. Dropping this value removes it, unless
/// somebody has replaced it by a queueing discipline of another kind.
pub(super) struct Pfifo {
    interface: String,
    index: u32,
}

impl Pfifo {
    /// Adds the queue to interface `name`, whose number is `index`, and a line to the summary.
    /// Returns `None` if the interface already has a queue, which stays as it is.
    ///
    /// # Errors
    /// If the kernel refuses the queue.
    pub(super) fn add(
        name: &str,
        index: u32,
        lines: &mut Lines,
    ) -> Result<Option<Self>, DeviceError> {
        let step = format!("read the queueing discipline of {name}");
        if !netlink::is_without_queue(index).map_err(DeviceError::set_up(step))? {
            let line = format!("{name} already has a queueing discipline, which stays as it is");
            lines.push(("TX queue", line));
            return Ok(None);
        }
        let step = format!("add a pfifo queue to {name}");
        netlink::add_queue(index, QUEUE_LEN).map_err(DeviceError::set_up(step))?;
        let line = format!(
            "{name} has a pfifo queue of {QUEUE_LEN} packets until the server exits, so all \
             senders wait while its peer's ring is full"
        );
        lines.push(("TX queue", line));
        let interface = name.to_owned();
        Ok(Some(Self { interface, index }))
    }
}

impl Pfifo {
    fn remove(&self) -> io::Result<()> {
        if netlink::queue_kind(self.index)? == KIND {
            netlink::remove_queue(self.index)?;
        }
        Ok(())
    }
}

impl Drop for Pfifo {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            let interface = &self.interface;
            tracing::debug!(
                target: "nmio::device", "cannot remove the pfifo queue of {interface}: {error}"
            );
        }
    }
}
