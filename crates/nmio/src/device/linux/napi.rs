//! The NAPI instances of an interface, the kernel's receiving halves of its queues.
//!
//! Generic netlink family `netdev` lists and configures them (Linux 6.13). On older kernels, all instances
//! of an interface have the same settings, which are files in `/sys`.

use std::fmt;
use std::fs::{self, File};
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
const NETDEV_A_NAPI_PID: u16 = 4;
const NETDEV_A_NAPI_DEFER_HARD_IRQS: u16 = 5;
const NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT: u16 = 6;
const NETDEV_A_NAPI_THREADED: u16 = 8;
/// Size of `struct genlmsghdr`, in bytes.
const GENERIC_HEADER: usize = 4;

/// The settings of a NAPI instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settings {
    /// Whether a thread of the kernel receives, and not the CPU that handles the interrupt.
    threaded: bool,
    defer_hard_irqs: u32,
    /// In ns.
    gro_flush_timeout: u32,
}

/// A NAPI instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Napi {
    id: u32,
    settings: Settings,
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "threaded NAPI {}, napi_defer_hard_irqs {}, gro_flush_timeout {} ns",
            if self.threaded { "on" } else { "off" },
            self.defer_hard_irqs,
            self.gro_flush_timeout
        )
    }
}

/// Adds a line to the summary: the settings of interface `name`, whose number is `index`.
pub(super) fn describe(name: &str, index: u32, lines: &mut Lines) {
    lines.push(("interrupts", in_force(name, index)));
}

/// Describes the settings that are in force for an interface's NAPI instances, whoever has set them.
fn in_force(name: &str, index: u32) -> String {
    let settings = match Family::netdev().and_then(|family| family.napis(index)) {
        Ok(napis) if napis.is_empty() => {
            return format!(
                "{name} has no NAPI instance: packets are received by the CPU that delivers them"
            );
        }
        Ok(napis) => Ok(napis.iter().map(|napi| napi.settings).collect()),
        Err(_) => Settings::of_interface(name, index).map(|settings| vec![settings]),
    };
    match settings {
        Ok(settings) => describe_all(&settings),
        Err(error) => format!("the settings of {name} cannot be read: {error}"),
    }
}

/// Describes the settings of several NAPI instances.
fn describe_all(all: &[Settings]) -> String {
    let mut distinct: Vec<(Settings, usize)> = Vec::new();
    for settings in all {
        match distinct.iter_mut().find(|(known, _)| known == settings) {
            Some((_, instances)) => *instances += 1,
            None => distinct.push((*settings, 1)),
        }
    }
    if let [(settings, _)] = &distinct[..] {
        return settings.to_string();
    }
    let count = |(settings, instances): &(Settings, usize)| {
        format!("{instances} of {} NAPI instances: {settings}", all.len())
    };
    distinct.iter().map(count).collect::<Vec<_>>().join("; ")
}

impl Settings {
    /// Reads the settings that all NAPI instances of an interface have.
    fn of_interface(name: &str, index: u32) -> io::Result<Self> {
        let folder = sys::listed_interface(name, index)
            .ok_or_else(|| io::Error::other("/sys shows another network namespace"))?;
        let number = |file| {
            let text = fs::read_to_string(folder.join(file))?;
            text.trim().parse().map_err(io::Error::other)
        };
        Ok(Self {
            // Before Linux 5.12, there is no such file.
            threaded: number("threaded").is_ok_and(|threaded: u32| threaded != 0),
            defer_hard_irqs: number("napi_defer_hard_irqs")?,
            gro_flush_timeout: number("gro_flush_timeout")?,
        })
    }
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
        lines.push(("interrupts", format!("{line}; {}", in_force(name, index))));
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
            let settings = Settings {
                defer_hard_irqs: DEFERRALS,
                gro_flush_timeout: DEFERRAL,
                ..napi.settings
            };
            family.set(napi.id, settings)?;
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
            let set = |napi: &Napi| family.set(napi.id, napi.settings);
            self.napis.iter().try_for_each(set)
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

    /// Returns the NAPI instances of interface number `index`. Fails if the kernel does not tell their
    /// settings.
    fn napis(&self, index: u32) -> io::Result<Vec<Napi>> {
        let interface = netlink::value(NETDEV_A_NAPI_IFINDEX, &index.to_ne_bytes());
        let fixed = generic(NETDEV_CMD_NAPI_GET);
        let list = netlink::dump(&self.socket, self.id, &fixed, &[interface])?;
        let parse = |message: &Vec<u8>| {
            let attributes = message.get(GENERIC_HEADER..)?;
            let number = |kind| number(attributes, kind);
            // Before Linux 6.17, only the thread's number tells that there is one.
            let threaded = number(NETDEV_A_NAPI_THREADED).or(number(NETDEV_A_NAPI_PID));
            Some(Napi {
                id: number(NETDEV_A_NAPI_ID)?,
                settings: Settings {
                    threaded: threaded.is_some_and(|threaded| threaded != 0),
                    defer_hard_irqs: number(NETDEV_A_NAPI_DEFER_HARD_IRQS)?,
                    gro_flush_timeout: number(NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT)?,
                },
            })
        };
        let napis: Option<Vec<_>> = list.iter().map(parse).collect();
        napis.ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Gives a NAPI instance these deferrals of interrupts.
    fn set(&self, id: u32, settings: Settings) -> io::Result<()> {
        let attributes = [
            (NETDEV_A_NAPI_ID, id),
            (NETDEV_A_NAPI_DEFER_HARD_IRQS, settings.defer_hard_irqs),
            (NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT, settings.gro_flush_timeout),
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
        let unknown = [io::ErrorKind::NotFound, io::ErrorKind::Unsupported];
        match list {
            Err(error) if unknown.contains(&error.kind()) => Vec::new(),
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
                assert_eq!(napi.settings.defer_hard_irqs, DEFERRALS);
                assert_eq!(napi.settings.gro_flush_timeout, DEFERRAL);
            }
            let text = &lines[0].1;
            assert!(text.starts_with("deferred on a "), "{text}");
            assert!(
                text.ends_with("napi_defer_hard_irqs 2, gro_flush_timeout 200000 ns"),
                "{text}"
            );
            let ids = polled.ids();
            assert!(ids.is_sorted() && ids.len() == 2, "{ids:?}");
            drop(polled);
            assert_eq!(list(index), before);
        });
    }

    #[test]
    fn settings_of_the_operator_are_shown() {
        on_veth(2, |index| {
            let shown = || {
                let mut lines = Lines::new();
                describe("a", index, &mut lines);
                lines.remove(0).1
            };
            let Some(first) = list(index).first().copied() else {
                eprintln!("skipped: this kernel does not list the settings of NAPI instances");
                return;
            };
            let usual = "threaded NAPI off, napi_defer_hard_irqs 0, gro_flush_timeout 0 ns";
            assert_eq!(shown(), usual);
            let settings = Settings {
                defer_hard_irqs: 3,
                gro_flush_timeout: 50_000,
                ..first.settings
            };
            Family::netdev().unwrap().set(first.id, settings).unwrap();
            let changed = "threaded NAPI off, napi_defer_hard_irqs 3, gro_flush_timeout 50000 ns";
            let shown = shown();
            for expected in [usual, changed] {
                let part = format!("1 of 2 NAPI instances: {expected}");
                assert!(shown.contains(&part), "{shown}");
            }
        });
    }

    #[test]
    fn interfaces_of_another_network_namespace_are_not_asked() {
        on_veth(1, |index| {
            for (name, index) in [("a", index), ("lo", index)] {
                let error = Settings::of_interface(name, index).unwrap_err();
                assert_eq!(error.to_string(), "/sys shows another network namespace");
            }
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
