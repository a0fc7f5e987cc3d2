//! The table of cases.

use crate::e2e::checks::row;

/// The cases, one in a line.
///
/// | column | meaning |
/// |---|---|
/// | name | part of the name of the guest's log |
/// | kernel | see [`System`] |
/// | client | whether the client is the host or a second guest |
/// | queues, MTU | those of the network card |
/// | addresses | whether the server has addresses of its own |
/// | device | the server's `--device` |
/// | features | those of the network card, or netmap's mode |
/// | text | text that the start block must have |
///
/// `!` before the text means that the server must refuse to start with it. Without a text, no
/// server starts.
///
/// `access` lets the driver map memory for the device (`VIRTIO_F_ACCESS_PLATFORM`). Only with it
/// `virtio_net` offers zero-copy, and only since Linux 6.13. `admode` is netmap's parameter: 1 is
/// native mode, and 2 is emulated mode.
const CASES: &str = "\
    copy                 | stable | host  | 1 | 1500 | own    | xdp:eth0                           |                   | AF_XDP, copy
    copy-2-queues        | stable | host  | 2 | 1500 | own    | xdp:eth0                           |                   | AF_XDP, copy
    copy-no-offload      | stable | host  | 1 | 1500 | own    | xdp:eth0,offload=off               | no-offload        | AF_XDP, copy
    copy-shared          | stable | host  | 1 | 1500 | shared | xdp:eth0                           |                   | AF_XDP, copy
    copy-guests          | stable | guest | 1 | 1500 | own    | xdp:eth0                           |                   | AF_XDP, copy
    copy-newest          | newest | host  | 1 | 1500 | own    | xdp:eth0,zerocopy=off              | access            | AF_XDP, copy
    generic              | stable | host  | 1 | 1500 | own    | xdp:eth0,generic,partial-checksums |                   | generic mode always copies
    generic-newest       | newest | host  | 2 | 1500 | own    | xdp:eth0,generic                   | access no-offload | generic mode always copies
    zero-copy            | newest | host  | 1 | 1500 | own    | xdp:eth0,zerocopy=required         | access            | AF_XDP, zero-copy
    zero-copy-2-queues   | newest | host  | 2 | 1500 | own    | xdp:eth0                           | access            | AF_XDP, zero-copy
    zero-copy-no-offload | newest | host  | 1 | 1500 | own    | xdp:eth0,offload=off               | access no-offload | AF_XDP, zero-copy
    zero-copy-shared     | newest | host  | 1 | 1500 | shared | xdp:eth0                           | access            | AF_XDP, zero-copy
    zero-copy-guests     | newest | guest | 1 | 1500 | own    | xdp:eth0                           | access            | AF_XDP, zero-copy
    zero-copy-refused    | stable | host  | 1 | 1500 | own    | xdp:eth0,zerocopy=required         | access            | !zero-copy
    mtu-9000             | newest | host  | 2 | 9000 | own    | xdp:eth0                           | access            | AF_XDP, copy
    mtu-9000-stable      | stable | host  | 1 | 9000 | own    | xdp:eth0                           |                   | !MTU
    netmap-emulated      | netmap | host  | 1 | 1500 | own    | netmap:eth0                        | admode=2          | buffers are exchanged
    netmap-native        | native | host  | 1 | 1500 | own    | netmap:eth0                        | admode=1          |
    netmap-shared        | netmap | host  | 1 | 1500 | shared | netmap:eth0                        | admode=2          | buffers are exchanged
    netmap-vale          | netmap | host  | 1 | 1500 | own    | netmap:vale0:1                     | admode=2          |
    netmap-pipe          | netmap | host  | 1 | 1500 | own    | netmap:storm{1                     | admode=2          |";

/// Which kernel a case needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    /// The kernel of the host's Debian release.
    Stable,
    /// The newest kernel of the host's release and of the backports.
    Newest,
    /// The kernel for which the user's netmap module was built.
    Netmap,
    /// The same, with the user's `virtio_net` that has native netmap.
    Native,
}

/// One guest, its network card, and a server on it.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) system: System,
    /// Whether the client runs in a second guest, not on the host.
    pub(super) has_client_guest: bool,
    pub(super) queues: u32,
    pub(super) mtu: u32,
    pub(super) has_own_addresses: bool,
    pub(super) device: &'static str,
    features: &'static str,
    pub(super) expected: &'static str,
}

impl Case {
    /// Returns all cases of the table.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        CASES.lines().map(|line| {
            let [
                name,
                kernel,
                client,
                queues,
                mtu,
                addresses,
                device,
                features,
                expected,
            ] = row(line);
            let number = |text: &str| text.parse().expect("the table has numbers");
            Self {
                name,
                system: match kernel {
                    "stable" => System::Stable,
                    "newest" => System::Newest,
                    "netmap" => System::Netmap,
                    _ => System::Native,
                },
                has_client_guest: client == "guest",
                queues: number(queues),
                mtu: number(mtu),
                has_own_addresses: addresses == "own",
                device,
                features,
                expected,
            }
        })
    }

    /// Returns the value of netmap's parameter `admode`, if the case needs netmap.
    pub(super) fn admode(&self) -> Option<&'static str> {
        self.features.strip_prefix("admode=")
    }

    /// Returns QEMU's options for a network card on the given backend.
    pub(super) fn card(&self, backend: &str, mac: &str) -> String {
        let has = |feature| self.features.split(' ').any(|one| one == feature);
        // One interrupt for each queue in each direction, one for the card, one for control.
        let queues = format!(",mq=on,vectors={}", 2 * self.queues + 2);
        let options = [
            (self.queues > 1, &*queues),
            (has("access"), ",iommu_platform=on,disable-legacy=on"),
            (
                has("no-offload"),
                ",csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off",
            ),
        ];
        let options = options.iter().filter(|(is_on, _)| *is_on);
        let options: String = options.map(|(_, option)| *option).collect();
        let mtu = self.mtu;
        format!(
            "-netdev {backend} \
             -device virtio-net-pci,netdev=net,mac={mac},romfile=,host_mtu={mtu}{options}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_well_formed() {
        let cases: Vec<Case> = Case::all().collect();
        for (place, case) in cases.iter().enumerate() {
            assert!(cases[..place].iter().all(|other| other.name != case.name));
            let needs_netmap = matches!(case.system, System::Netmap | System::Native);
            assert_eq!(case.admode().is_some(), needs_netmap, "{}", case.name);
            assert!(!case.has_client_guest || case.queues == 1);
        }
    }
}
