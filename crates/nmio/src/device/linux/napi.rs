//! The NAPI instances of an interface, the kernel's receiving halves of its queues.
//!
//! Generic netlink family `netdev` lists and configures them (Linux 6.13).

use std::fs::File;
use std::io;

use super::netlink::{self, attribute, number};
use crate::device::lines::Lines;
use crate::sys::{self, NapiPoller};

/// Time after the last poll until the kernel receives by itself again, in ns. This is the value
/// that the kernel's documentation of busy polling suggests.
const DEFERRAL: u32 = 200_000;
/// Number of such times without packets, after which the kernel allows interrupts again.
const DEFERRALS: u32 = 2;

// Constants from linux/genetlink.h and linux/netdev.h.
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_NAPI_GET: u8 = 11;
const NETDEV_CMD_NAPI_SET: u8 = 14;
const NETDEV_A_NAPI_IFINDEX: u16 = 1;
const NETDEV_A_NAPI_ID: u16 = 2;
const NETDEV_A_NAPI_DEFER_HARD_IRQS: u16 = 5;
const NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT: u16 = 6;
/// Size of `struct genlmsghdr`, in bytes.
const GENERIC_HEADER: usize = 4;

/// A NAPI instance, with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Napi {
    id: u32,
    defer_hard_irqs: u32,
    /// In ns.
    gro_flush_timeout: u32,
}

/// The NAPI instances of an interface whose interrupts are deferred while workers poll them.
/// Dropping this value restores their settings.
pub(super) struct PolledQueues {
    /// One for each queue, in order.
    napis: Vec<Napi>,
}

impl PolledQueues {
    /// Defers the interrupts of interface `name`, whose number is `index`, if all its queues are
    /// served, `queues` in number. Adds a line to the summary.
    ///
    /// Returns `None` if the kernel does not tell the queues' NAPI instances, cannot poll them through
    /// `io_uring`, or does not defer their interrupts.
    pub(super) fn defer(name: &str, index: u32, queues: u32, lines: &mut Lines) -> Option<Self> {
        let (line, polled) = match Self::try_defer(index, queues) {
            Ok(Some(polled)) => (
                format!(
                    "deferred on {name} by up to {} µs while workers poll; restored at exit",
                    DEFERRAL / 1_000
                ),
                Some(polled),
            ),
            Ok(None) => (
                format!(
                    "not deferred: {name} does not have one NAPI instance for each served queue"
                ),
                None,
            ),
            Err(error) => (
                format!(
                    "not deferred: {error}; this needs Linux 6.13, and 0 in \
                     /proc/sys/kernel/io_uring_disabled"
                ),
                None,
            ),
        };
        lines.push(("interrupts", line));
        polled
    }

    fn try_defer(index: u32, queues: u32) -> io::Result<Option<Self>> {
        let family = Family::netdev()?;
        let mut napis = family.napis(index)?;
        // The kernel numbers the instances in the order of their queues.
        napis.sort_unstable_by_key(|napi| napi.id);
        if napis.len() != queues as usize {
            return Ok(None);
        }
        // Without workers that poll, deferred interrupts would only delay packets.
        napis
            .iter()
            .try_for_each(|napi| NapiPoller::open(napi.id).map(drop))?;
        let polled = Self { napis };
        for napi in &polled.napis {
            family.set(Napi {
                defer_hard_irqs: DEFERRALS,
                gro_flush_timeout: DEFERRAL,
                ..*napi
            })?;
        }
        Ok(Some(polled))
    }

    /// Returns the number of the NAPI instance of each queue.
    pub(super) fn ids(&self) -> Vec<u32> {
        self.napis.iter().map(|napi| napi.id).collect()
    }
}

impl Drop for PolledQueues {
    fn drop(&mut self) {
        let restore = || {
            let family = Family::netdev()?;
            self.napis.iter().try_for_each(|napi| family.set(*napi))
        };
        if let Err(error) = restore() {
            tracing::debug!(target: "nmio::device", "cannot restore NAPI settings: {error}");
        }
    }
}

/// Generic netlink family `netdev`.
struct Family {
    socket: File,
    id: u16,
}

impl Family {
    fn netdev() -> io::Result<Self> {
        let socket = sys::generic_socket()?;
        let name = netlink::value(CTRL_ATTR_FAMILY_NAME, b"netdev\0");
        let fixed = generic(CTRL_CMD_GETFAMILY);
        let response = netlink::exchange(&socket, GENL_ID_CTRL, 0, &fixed, &[name])?;
        let attributes = response.get(GENERIC_HEADER..).unwrap_or_default();
        let id = attribute(attributes, CTRL_ATTR_FAMILY_ID).and_then(<[u8]>::first_chunk);
        let id = u16::from_ne_bytes(*id.ok_or(io::ErrorKind::InvalidData)?);
        Ok(Self { socket, id })
    }

    /// Returns the NAPI instances of interface number `index`.
    fn napis(&self, index: u32) -> io::Result<Vec<Napi>> {
        let interface = netlink::value(NETDEV_A_NAPI_IFINDEX, &index.to_ne_bytes());
        let fixed = generic(NETDEV_CMD_NAPI_GET);
        let list = netlink::dump(&self.socket, self.id, &fixed, &[interface])?;
        let parse = |message: &Vec<u8>| {
            let attributes = message.get(GENERIC_HEADER..)?;
            let number = |kind| number(attributes, kind);
            Some(Napi {
                id: number(NETDEV_A_NAPI_ID)?,
                defer_hard_irqs: number(NETDEV_A_NAPI_DEFER_HARD_IRQS)?,
                gro_flush_timeout: number(NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT)?,
            })
        };
        Ok(list.iter().filter_map(parse).collect())
    }

    /// Gives a NAPI instance these settings.
    fn set(&self, napi: Napi) -> io::Result<()> {
        let attributes = [
            (NETDEV_A_NAPI_ID, napi.id),
            (NETDEV_A_NAPI_DEFER_HARD_IRQS, napi.defer_hard_irqs),
            (NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT, napi.gro_flush_timeout),
        ]
        .map(|(kind, number)| netlink::value(kind, &number.to_ne_bytes()));
        let fixed = generic(NETDEV_CMD_NAPI_SET);
        netlink::exchange(&self.socket, self.id, netlink::ACK, &fixed, &attributes).map(drop)
    }
}

/// Returns the `struct genlmsghdr` of a request.
fn generic(command: u8) -> [u8; GENERIC_HEADER] {
    [command, 1, 0, 0]
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::process::Command;
    use std::thread;

    use super::*;
    use crate::sys::Control;

    /// Returns the NAPI instances. Kernels before Linux 6.13 do not list their settings, or have no
    /// such list.
    fn list(index: u32) -> Vec<Napi> {
        let list = Family::netdev().and_then(|family| family.napis(index));
        let is_unknown = |error: &io::Error| {
            [libc::ENOENT, libc::EOPNOTSUPP]
                .iter()
                .any(|errno| sys::is_errno(error, *errno))
        };
        match list {
            Err(error) if is_unknown(&error) => Vec::new(),
            list => list.unwrap(),
        }
    }

    /// Runs `test` on a veth device with `queues` queues, whose NAPI instances always exist, in a
    /// network namespace that exists only during the test. Needs root.
    fn on_veth(queues: u32, test: impl FnOnce(u32) + Send) {
        thread::scope(|scope| {
            scope.spawn(|| {
                sys::unshare_network().unwrap();
                let here = File::open("/proc/thread-self/ns/net").unwrap();
                netlink::create_veth("a", "b", queues, here.as_fd()).unwrap();
                let control = Control::new().unwrap();
                control.set_up("a").unwrap();
                let gro = Command::new("ethtool")
                    .args(["-K", "a", "gro", "on"])
                    .status();
                assert!(gro.unwrap().success());
                test(control.index("a").unwrap());
            });
        });
    }

    #[test]
    fn interrupts_are_deferred_until_the_interface_is_closed() {
        on_veth(2, |index| {
            let before = list(index);
            if before.is_empty() {
                eprintln!("skipped: this kernel does not list the settings of NAPI instances");
                return;
            }
            assert_eq!(before.len(), 2);
            if let Err(error) = NapiPoller::open(before[0].id) {
                eprintln!("skipped: io_uring is not available: {error}");
                return;
            }
            let mut lines = Lines::new();
            let polled = PolledQueues::defer("a", index, 2, &mut lines).unwrap();
            for napi in list(index) {
                assert_eq!(napi.defer_hard_irqs, DEFERRALS);
                assert_eq!(napi.gro_flush_timeout, DEFERRAL);
            }
            let ids = polled.ids();
            assert!(ids.is_sorted() && ids.len() == 2, "{ids:?}");
            drop(polled);
            assert_eq!(list(index), before);
        });
    }

    #[test]
    fn interrupts_stay_if_the_queues_are_not_known() {
        on_veth(2, |index| {
            let before = list(index);
            let mut lines = Lines::new();
            assert!(PolledQueues::defer("a", index, 1, &mut lines).is_none());
            assert!(lines[0].1.starts_with("not deferred: "), "{lines:?}");
            assert_eq!(list(index), before);
        });
    }
}
