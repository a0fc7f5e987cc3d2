//! Capabilities that a device needs, and advice about missing ones.

use std::fs;

use rustix::process::{Resource, getrlimit};

/// An operation that needs capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Opening device `auto`.
    Auto,
    /// Opening device `xdp`.
    Xdp,
    /// Reserving a port below 1024 for device `xdp`.
    LowPort,
    /// Opening a tap device, for device `tap` or as the fallback of `auto`.
    Tap,
    /// Opening a netmap port.
    Netmap,
}

/// Number (`linux/capability.h`) and name of a capability.
type Capability = (u32, &'static str);

const NET_BIND_SERVICE: Capability = (10, "CAP_NET_BIND_SERVICE");
const NET_ADMIN: Capability = (12, "CAP_NET_ADMIN");
const NET_RAW: Capability = (13, "CAP_NET_RAW");
const IPC_LOCK: Capability = (14, "CAP_IPC_LOCK");
const SYS_ADMIN: Capability = (21, "CAP_SYS_ADMIN");
const PERFMON: Capability = (38, "CAP_PERFMON");
const BPF: Capability = (39, "CAP_BPF");

const FOR_XDP: &str = "CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON, \
    CAP_NET_BIND_SERVICE for a port below 1024, and CAP_IPC_LOCK or a limit on locked memory \
    (ulimit -l) above the packet memory";

impl Needs {
    fn capabilities(self) -> &'static [Capability] {
        match self {
            Self::Auto => &[SYS_ADMIN, NET_ADMIN, NET_RAW, BPF, PERFMON],
            Self::Xdp => &[NET_ADMIN, NET_RAW, BPF, PERFMON],
            Self::LowPort => &[NET_ADMIN, NET_RAW, BPF, PERFMON, NET_BIND_SERVICE],
            Self::Tap => &[NET_ADMIN],
            Self::Netmap => &[],
        }
    }

    /// Returns advice: the capabilities that the operation needs, those that this thread lacks, and
    /// the remedy.
    pub(in crate::device) fn advice(self) -> String {
        self.advice_with(effective())
    }

    /// Returns the advice of [`Needs::advice`] for a thread whose effective capabilities are the
    /// bit mask `effective`. `None` means that they are unknown.
    fn advice_with(self, effective: Option<u64>) -> String {
        let needed = match self {
            Self::Auto => format!("device auto needs CAP_SYS_ADMIN, {FOR_XDP}"),
            Self::Xdp | Self::LowPort => format!("device xdp:IFACE needs {FOR_XDP}"),
            Self::Tap => "device tap:NAME needs CAP_NET_ADMIN, and read and write access to \
                          /dev/net/tun"
                .to_owned(),
            Self::Netmap => {
                return "device netmap needs read and write access to /dev/netmap: run as root, or \
                        change the owner or the mode of this file"
                    .to_owned();
            }
        };
        let Some(effective) = effective else {
            return format!("{needed}; run as root or with these capabilities");
        };
        let lacking: Vec<_> = self
            .capabilities()
            .iter()
            .filter(|(number, _)| effective >> number & 1 == 0)
            .map(|&(_, name)| name)
            .collect();
        if lacking.is_empty() {
            return format!(
                "{needed}; this process has these capabilities, so file permissions, a security \
                 module, or a container with its own user namespace must be the cause"
            );
        }
        format!(
            "{needed}; this process lacks {}: run it as root or add these capabilities",
            lacking.join(", ")
        )
    }
}

/// Returns true if no limit on locked memory holds for the calling thread.
pub(super) fn can_lock_memory() -> bool {
    let (number, _) = IPC_LOCK;
    let is_capable = effective().is_some_and(|bits| bits >> number & 1 == 1);
    is_capable || getrlimit(Resource::Memlock).current.is_none()
}

/// Returns the calling thread's effective capabilities as a bit mask, or `None` if unknown.
fn effective() -> Option<u64> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_the_missing_capabilities() {
        let all = effective().map(|_| u64::MAX);
        assert!(all.is_some(), "the kernel tells the effective set");
        let advice = |needs: Needs, lacking: &[u32]| {
            let bits = lacking.iter().map(|number| 1 << number);
            needs.advice_with(Some(!bits.sum::<u64>()))
        };
        let xdp = advice(Needs::Xdp, &[39, 10]);
        assert!(xdp.contains("lacks CAP_BPF:"), "{xdp}");
        for name in [
            "NET_ADMIN",
            "NET_RAW",
            "PERFMON",
            "NET_BIND_SERVICE",
            "IPC_LOCK",
        ] {
            assert!(xdp.contains(&format!("CAP_{name}")), "{xdp}");
        }
        let port = advice(Needs::LowPort, &[10, 12]);
        assert!(
            port.contains("lacks CAP_NET_ADMIN, CAP_NET_BIND_SERVICE:"),
            "{port}"
        );
        let auto = advice(Needs::Auto, &[21]);
        assert!(auto.contains("lacks CAP_SYS_ADMIN:"), "{auto}");
        let tap = advice(Needs::Tap, &[12, 39]);
        assert!(tap.contains("lacks CAP_NET_ADMIN:"), "{tap}");
        assert!(tap.contains("/dev/net/tun"), "{tap}");
        let nothing = advice(Needs::Tap, &[]);
        assert!(!nothing.contains("lacks"), "{nothing}");
    }
}
