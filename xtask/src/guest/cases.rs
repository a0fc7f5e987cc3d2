//! The table of cases.

use crate::e2e::checks::row;

/// The cases, one in a line.
///
/// | column | meaning |
/// |---|---|
/// | name | part of the name of the guest's log |
/// | kernel | see [`System`] |
/// | client | see [`Client`] |
/// | queues, MTU | those of the network card |
/// | addresses | whether the server has addresses of its own |
/// | device | the server's `--device` |
/// | features | those of the network card, netmap's parameters, `wait-block`, `wait-spin`, `down`, `qdisc`, or `batches` |
/// | text | text that the start block must have, or the name of a test |
///
/// `!` before the text means that the server must refuse to start with it.
///
/// `access` lets the driver map memory for the device (`VIRTIO_F_ACCESS_PLATFORM`). Only with it
/// `virtio_net` offers zero-copy, and only since Linux 6.13. `admode` is a parameter of netmap: 1
/// is native mode, and 2 is emulated mode. With `down`, the interface is down for some seconds while
/// the server runs. With `qdisc`, the interface has a queueing discipline with a limit of its own. A
/// case with `batches` only measures queries, in larger batches. Its card has 1,024 buffers for packets
/// that arrive, four times the usual number.
const CASES: &str = "\
    copy                 | stable | host  | 1 | 1500 | own    | xdp:eth0                           |                                                | AF_XDP, copy
    copy-2-queues        | stable | host  | 2 | 1500 | own    | xdp:eth0                           |                                                | one queue allows super-segments
    copy-no-offload      | stable | host  | 1 | 1500 | own    | xdp:eth0,offload=off               | no-offload                                     | AF_XDP, copy
    copy-shared          | stable | host  | 1 | 1500 | shared | xdp:eth0                           |                                                | AF_XDP, copy
    copy-guests          | stable | guest | 1 | 1500 | own    | xdp:eth0                           |                                                | AF_XDP, copy
    copy-batches         | stable | host  | 1 | 1500 | own    | xdp:eth0                           | batches                                        | AF_XDP, copy
    copy-newest          | newest | host  | 1 | 1500 | own    | xdp:eth0,zerocopy=off              | access                                         | AF_XDP, copy
    copy-faulty          | newest | host  | 1 | 1500 | own    | xdp:eth0                           | access                                         | AF_XDP, copy (with zero-copy, virtio_net
    generic              | stable | host  | 1 | 1500 | own    | xdp:eth0,generic,partial-checksums |                                                | generic mode always copies
    generic-newest       | newest | host  | 2 | 1500 | own    | xdp:eth0,generic                   | access no-offload                              | generic mode always copies
    zero-copy            | newest | host  | 1 | 1500 | own    | xdp:eth0,zerocopy=required         | access                                         | AF_XDP, zero-copy
    zero-copy-batches    | newest | host  | 1 | 1500 | own    | xdp:eth0,zerocopy=required         | access batches                                 | AF_XDP, zero-copy
    zero-copy-2-queues   | newest | host  | 2 | 1500 | own    | xdp:eth0,zerocopy=required         | access                                         | AF_XDP, zero-copy
    zero-copy-no-offload | newest | host  | 1 | 1500 | own    | xdp:eth0,zerocopy=required,offload=off | access no-offload                              | AF_XDP, zero-copy
    zero-copy-shared     | newest | host  | 1 | 1500 | shared | xdp:eth0,zerocopy=required         | access                                         | AF_XDP, zero-copy
    zero-copy-guests     | newest | guest | 1 | 1500 | own    | xdp:eth0,zerocopy=required         | access                                         | AF_XDP, zero-copy
    zero-copy-mtu-1766   | newest | host  | 1 | 1766 | own    | xdp:eth0,zerocopy=required         | access                                         | AF_XDP, zero-copy
    zero-copy-mtu-3814   | newest | host  | 1 | 3814 | own    | xdp:eth0,zerocopy=required         | access                                         | AF_XDP, zero-copy
    zero-copy-refused    | stable | host  | 1 | 1500 | own    | xdp:eth0,zerocopy=required         | access                                         | !zero-copy
    zero-copy-contract   | newest | test  | 1 | 1500 | own    | xdp:eth0,zerocopy=required         | access                                         | an_interface_of
    mtu-9000             | newest | host  | 2 | 9000 | own    | xdp:eth0                           | access                                         | one queue allows super-segments
    mtu-9000-stable      | stable | host  | 1 | 9000 | own    | xdp:eth0                           |                                                | !MTU
    zero-copy-mtu-9000   | newest | host  | 1 | 9000 | own    | xdp:eth0,zerocopy=required         | access                                         | !at an MTU of 9000 bytes
    netmap-emulated      | netmap | host  | 1 | 1500 | own    | netmap:eth0                        | no-offload admode=2                            | buffers are exchanged
    netmap-checksums     | netmap | host  | 1 | 1500 | own    | netmap:eth0,partial-checksums      | admode=2                                       | partial TCP and UDP checksums
    netmap-2-queues      | netmap | host  | 2 | 1500 | own    | netmap:eth0                        | no-offload admode=2                            | buffers are exchanged
    netmap-block         | netmap | host  | 1 | 1500 | own    | netmap:eth0                        | no-offload admode=2 wait-block                 | buffers are exchanged
    netmap-spin          | netmap | host  | 1 | 1500 | own    | netmap:eth0                        | no-offload admode=2 wait-spin                  | buffers are exchanged
    netmap-shared        | netmap | host  | 1 | 1500 | shared | netmap:eth0                        | no-offload admode=2                            | buffers are exchanged
    netmap-guests        | netmap | guest | 1 | 1500 | own    | netmap:eth0                        | admode=2                                       | buffers are exchanged
    netmap-vale          | netmap | host  | 1 | 1500 | own    | netmap:vale0:storm                 | no-offload admode=2                            | buffers are exchanged
    netmap-vale-batches  | netmap | host  | 1 | 1500 | own    | netmap:vale0:storm                 | no-offload admode=2 batches                    | buffers are exchanged
    netmap-vale-offload  | netmap | host  | 1 | 1500 | own    | netmap:vale0:storm,offload=on      | no-offload admode=2                            | virtio-net headers
    netmap-pipe          | netmap | host  | 1 | 1500 | own    | netmap:storm{1                     | no-offload admode=2                            | packets are copied
    netmap-pipe-mtu-9000 | netmap | host  | 1 | 1500 | own    | netmap:storm{1,mtu=9000            | no-offload admode=2                            | packets are copied
    netmap-down          | netmap | host  | 1 | 1500 | own    | netmap:eth0                        | no-offload admode=2 down                       | buffers are exchanged
    netmap-qdisc         | netmap | host  | 1 | 1500 | own    | netmap:eth0                        | no-offload admode=2 qdisc                      | buffers are exchanged
    netmap-mtu-9000      | netmap | host  | 1 | 9000 | own    | netmap:eth0                        | no-offload admode=2                            | !MTU
    netmap-large-buffers | netmap | host  | 1 | 9000 | own    | netmap:eth0                        | no-offload admode=2 buf_size=10240 buf_num=8192 | buffers are exchanged
    netmap-few-buffers   | netmap | host  | 1 | 1500 | own    | netmap:eth0                        | no-offload admode=2 buf_num=1500               | !netmap's memory is used up
    netmap-extra-buffers | netmap | host  | 1 | 1500 | own    | netmap:eth0                        | no-offload admode=2 buf_num=1000               | !netmap has too few buffers
    netmap-no-native     | netmap | host  | 1 | 1500 | own    | netmap:eth0                        | no-offload admode=1                            | !allow emulated mode
    netmap-missing       | stable | host  | 1 | 1500 | own    | netmap:eth0                        |                                                | !modprobe netmap
    netmap-native        | native | host  | 1 | 1500 | own    | netmap:eth0                        | no-offload admode=1                            | buffers are exchanged
    netmap-contract      | netmap | test  | 1 | 1500 | own    | netmap:eth0                        | admode=2                                       | an_interface_
    netmap-vale-contract | netmap | test  | 1 | 1500 | own    | netmap:eth0                        | admode=2                                       | of_a_switch";

/// Which kernel a case needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// Where the client of a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    Host,
    /// In a second guest.
    Guest,
    /// There is no server. A test of the ports runs in the guest, which has two cards on one hub.
    Test,
}

/// One guest, its network card, and a server or a test on it.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) system: System,
    pub(super) client: Client,
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
                client: match client {
                    "host" => Client::Host,
                    "guest" => Client::Guest,
                    _ => Client::Test,
                },
                queues: number(queues),
                mtu: number(mtu),
                has_own_addresses: addresses == "own",
                device,
                features,
                expected,
            }
        })
    }

    fn has(&self, feature: &str) -> bool {
        self.features.split(' ').any(|one| one == feature)
    }

    /// Returns true if the interface is down for some seconds while the server runs.
    pub(super) fn has_outage(&self) -> bool {
        self.has("down")
    }

    /// Returns true if the interface has a queueing discipline with a limit of its own.
    pub(super) fn has_queueing_discipline(&self) -> bool {
        self.has("qdisc")
    }

    /// Returns true if the case only measures queries, in larger batches.
    pub(super) fn is_of_batches(&self) -> bool {
        self.has("batches")
    }

    /// Returns the server's options that say how an idle worker waits.
    pub(super) fn wait_options(&self) -> &'static str {
        if self.has("wait-block") {
            " --wait block"
        } else if self.has("wait-spin") {
            " --wait spin"
        } else {
            ""
        }
    }

    /// Returns true if the guest's kernel has the user's netmap module.
    pub(super) fn has_netmap(&self) -> bool {
        matches!(self.system, System::Netmap | System::Native)
    }

    /// Returns a line of shell that sets netmap's parameters.
    pub(super) fn set_parameters(&self) -> String {
        let settings = self
            .features
            .split(' ')
            .filter_map(|word| word.split_once('='));
        let lines = settings
            .map(|(name, value)| format!("echo {value} >/sys/module/netmap/parameters/{name}"));
        lines.collect::<Vec<_>>().join(" && ")
    }

    /// Returns netmap's program, and its arguments, that connect the server's device with `eth0`.
    /// Only ports of switches and ends of pipes need one.
    pub(super) fn joint(&self) -> Option<(&'static str, String)> {
        let name = self.device.strip_prefix("netmap:")?;
        if let Some((switch, _)) = name.split_once(':') {
            if self.is_of_batches() {
                // With the card as its port, the switch would drop what the card's TX ring cannot hold.
                return Some(("bridge", format!("-w 1 -i netmap:eth0 -i {switch}:wire")));
            }
            return Some(("vale-ctl", format!("-a {switch}:eth0")));
        }
        let (pipe, rest) = name.split_once('{')?;
        let number = rest.split(',').next().unwrap_or(rest);
        Some((
            "bridge",
            format!("-w 1 -i netmap:eth0 -i netmap:{pipe}}}{number}"),
        ))
    }

    /// Returns the option of the device that states its number of queues.
    pub(super) fn queues_option(&self) -> String {
        match self.joint() {
            Some(_) => String::new(),
            None => format!(",queues={}", self.queues),
        }
    }

    /// Returns QEMU's options for a network card on the given backend, which has the number `net`.
    pub(super) fn card(&self, backend: &str, net: u32, mac: &str) -> String {
        // One interrupt for each queue in each direction, one for the card, one for control.
        let queues = format!(",mq=on,vectors={}", 2 * self.queues + 2);
        let options = [
            (self.queues > 1, &*queues),
            (self.is_of_batches(), ",rx_queue_size=1024"),
            (self.has("access"), ",iommu_platform=on,disable-legacy=on"),
            (
                self.has("no-offload"),
                ",csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off",
            ),
        ];
        let options = options.iter().filter(|(is_on, _)| *is_on);
        let options: String = options.map(|(_, option)| *option).collect();
        let mtu = self.mtu;
        format!(
            "-netdev {backend},id=net{net} \
             -device virtio-net-pci,netdev=net{net},mac={mac},romfile=,host_mtu={mtu}{options}"
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
            let sets = case.set_parameters().contains("/admode");
            assert_eq!(sets, case.has_netmap(), "{}", case.name);
            assert!(case.client == Client::Host || case.queues == 1);
            assert!(!case.expected.is_empty());
        }
    }

    #[test]
    fn a_switch_and_a_pipe_are_connected_with_the_card() {
        let joint = |name| {
            let case = Case::all().find(|case| case.name == name).unwrap();
            (case.joint(), case.queues_option())
        };
        let (vale, none) = joint("netmap-vale");
        assert_eq!(vale, Some(("vale-ctl", "-a vale0:eth0".to_owned())));
        let (pipe, _) = joint("netmap-pipe");
        let ends = "-w 1 -i netmap:eth0 -i netmap:storm}1";
        assert_eq!((&pipe, &*none), (&Some(("bridge", ends.to_owned())), ""));
        assert_eq!(joint("netmap-pipe-mtu-9000").0, pipe);
        let ends = "-w 1 -i netmap:eth0 -i vale0:wire";
        let (batches, _) = joint("netmap-vale-batches");
        assert_eq!(batches, Some(("bridge", ends.to_owned())));
        let (no_joint, queues) = joint("netmap-2-queues");
        assert_eq!((no_joint, &*queues), (None, ",queues=2"));
    }
}
