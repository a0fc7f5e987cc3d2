//! An interface made ready to serve on.

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::access::{Facts, Kind, QueueAccess};
use super::addressing::refuse_twice;
use super::namespace::Namespace;
use super::ready::{XdpReady, XdpWanted};
use super::{AddressPrefix, Device, DeviceError, Queues, Transport, auto};
use crate::port::Wait;
use crate::xdp::steer::{self, Steering};

/// What a program wants of an interface.
#[derive(Clone, Debug)]
pub struct InterfaceConfig {
    /// Where.
    pub device: Device,
    /// Own mode: the server's addresses. Empty: shared mode, and on devices
    /// that are a wire of their own, addresses are chosen.
    pub own_addresses: Vec<AddressPrefix>,
    /// The ports that are served.
    pub services: Vec<(Transport, u16)>,
    /// Workers, each of which will serve a queue. `None`: as many as an `xdp`
    /// interface has queues, and one on a wire of the server's own; see
    /// [`QueueAccess::queues`](super::QueueAccess::queues).
    pub workers: Option<u32>,
    /// How the workers will wait.
    pub wait: Wait,
    /// What the program calls itself, at most 12 characters of an interface
    /// name: device `auto` is named after it.
    pub program: &'static str,
}

impl InterfaceConfig {
    /// Queues of a wire that is made for the server, one for each worker.
    pub(super) fn wire_queues(&self) -> u32 {
        self.workers.unwrap_or(1).max(1)
    }
}

/// What the peer of a veth pair must do to be heard.
const VETH_CHECKSUMS: &str = "a packet without a whole one is dropped; a peer on this host that \
    leaves them to the device (ethtool -k PEER) is heard after: ethtool -K PEER tx off, or with \
    partial-checksums here";

/// Lines of a name and a value, for people.
pub(super) type Lines = Vec<(&'static str, String)>;

/// An interface made ready: the steering program attached, ports reserved,
/// addresses known. Dropping it undoes all that. What is known of it and how
/// its queues are opened is its [`QueueAccess`].
pub struct Interface {
    // Fields drop in this order: first no more packets are steered, then
    // ports and groups are given up, then the wire goes.
    _steering: Option<Steering>,
    _held: Vec<OwnedFd>,
    wire: Option<auto::VethPair>,
    access: QueueAccess,
}

impl Deref for Interface {
    type Target = QueueAccess;

    fn deref(&self) -> &QueueAccess {
        &self.access
    }
}

impl Interface {
    /// Makes the configured interface ready.
    ///
    /// # Errors
    /// [`DeviceError`]; nothing is left behind then.
    pub fn open(config: &InterfaceConfig) -> Result<Self, DeviceError> {
        check_count(
            "addresses",
            config.own_addresses.len(),
            steer::MAX_ADDRESSES,
        )?;
        refuse_twice(&config.own_addresses)?;
        check_count("ports", config.services.len(), steer::MAX_SERVICES)?;
        let queues = config.wire_queues() as usize;
        check_count("queues", queues, steer::MAX_QUEUES as usize)?;
        match &config.device {
            Device::Auto => auto::open(config),
            Device::Tap { name } => auto::open_named_tap(config, name),
            Device::Xdp {
                interface,
                queues,
                vlans,
                generic,
                partial_checksums,
                offload,
            } => {
                let wanted = XdpWanted {
                    interface,
                    queues: asked_queues(*queues, config.workers)?,
                    vlans,
                    generic: *generic,
                    partial_checksums: *partial_checksums,
                    offload: *offload,
                    own: &config.own_addresses,
                    services: &config.services,
                };
                let ready = XdpReady::open(&wanted)?;
                let is_veth = ready.is_veth;
                let mut interface = Self::from_xdp(ready, &wanted, config.wait);
                interface.set_device_line(config.device.to_string());
                if is_veth && !partial_checksums {
                    interface.add_line("checksums", VETH_CHECKSUMS.to_owned());
                }
                Ok(interface)
            }
        }
    }

    pub(super) fn from_xdp(ready: XdpReady, wanted: &XdpWanted<'_>, wait: Wait) -> Self {
        let xsks = ready.steering.xsks();
        let summary = ready.lines.into_iter();
        let facts = Facts {
            kind: Kind::Xdp {
                interface: wanted.interface.to_owned(),
                generic: wanted.generic,
                partial_checksums: wanted.partial_checksums,
                offload: wanted.offload,
            },
            mac: ready.mac,
            mtu: ready.mtu,
            own: !wanted.own.is_empty(),
            addresses: ready.addresses,
            queues: ready.queues,
            vlans: wanted.vlans.to_vec(),
            wait,
            summary: summary
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        };
        Self {
            _steering: Some(ready.steering),
            _held: ready.held,
            wire: None,
            access: QueueAccess::new(facts, vec![xsks]),
        }
    }

    pub(super) fn from_tap(
        name: String,
        queues: Vec<Arc<OwnedFd>>,
        mtu: usize,
        addresses: Vec<AddressPrefix>,
        wait: Wait,
    ) -> Self {
        let facts = Facts {
            kind: Kind::Tap { name },
            mac: random_mac(),
            mtu,
            own: true,
            addresses,
            queues: queues.len() as u32,
            vlans: Vec::new(),
            wait,
            summary: Vec::new(),
        };
        Self {
            _steering: None,
            _held: Vec::new(),
            wire: None,
            access: QueueAccess::new(facts, queues),
        }
    }

    /// Says that the interface is one end of `pair`, in `namespace`.
    pub(super) fn on_pair(mut self, pair: auto::VethPair, namespace: &Namespace) -> Self {
        self.access.set_namespace(namespace);
        self.wire = Some(pair);
        self
    }

    pub(super) fn add_line(&mut self, name: &str, value: String) {
        self.access.add_line(name, value);
    }

    pub(super) fn set_device_line(&mut self, value: String) {
        self.access.set_device_line(value);
    }

    /// Whether dropping it takes the right to remove an interface
    /// (`CAP_NET_ADMIN`): it was made for this.
    pub fn needs_removal(&self) -> bool {
        self.wire.is_some()
    }
}

/// `queues=` and `--workers` say the same thing, as each worker has a queue.
fn asked_queues(queues: Queues, workers: Option<u32>) -> Result<Queues, DeviceError> {
    match (queues, queues.number(), workers) {
        (Queues::All, _, Some(workers)) => Ok(Queues::Exactly(workers)),
        (_, Some(queues), Some(workers)) if queues != workers => {
            Err(DeviceError::WorkersAndQueues { workers, queues })
        }
        _ => Ok(queues),
    }
}

pub(super) fn check_count(
    what: &'static str,
    count: usize,
    most: usize,
) -> Result<(), DeviceError> {
    if count > most {
        Err(DeviceError::TooMany { what, count, most })
    } else {
        Ok(())
    }
}

pub(super) fn join(list: &[impl ToString]) -> String {
    list.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

/// The addresses without their networks, for people.
pub(super) fn join_addresses(list: &[AddressPrefix]) -> String {
    join(&list.iter().map(|one| one.address).collect::<Vec<_>>())
}

/// A locally administered unicast address (IEEE 802-2014, 8.4.2).
fn random_mac() -> [u8; 6] {
    let mut mac = [0; 6];
    fastrand::Rng::new().fill(&mut mac);
    mac[0] = mac[0] & 0xfc | 0x02;
    mac
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::QueueSource;

    #[test]
    fn queues_can_be_sent_to_their_threads() {
        fn is_send<T: Send>() {}
        is_send::<Interface>();
        is_send::<QueueSource>();
        is_send::<DeviceError>();
    }

    #[test]
    fn an_address_given_twice_opens_nothing() {
        let own = ["10.7.0.2/24", "10.7.0.2/16"];
        let config = InterfaceConfig {
            device: "tap:nmio-none".parse().unwrap(),
            own_addresses: own.iter().map(|own| own.parse().unwrap()).collect(),
            services: Vec::new(),
            workers: None,
            wait: Wait::Block,
            program: "test",
        };
        let error = Interface::open(&config).err().unwrap();
        assert!(matches!(error, DeviceError::AddressTwice { .. }), "{error}");
    }

    #[test]
    fn workers_and_queues_say_the_same_thing() {
        use Queues::{All, Exactly, Partial};
        for (queues, workers, asked) in [
            (All, None, All),
            (All, Some(2), Exactly(2)),
            (Exactly(2), None, Exactly(2)),
            (Exactly(2), Some(2), Exactly(2)),
            (Partial(2), Some(2), Partial(2)),
        ] {
            assert_eq!(asked_queues(queues, workers).unwrap(), asked);
        }
        for queues in [Exactly(2), Partial(2)] {
            let error = asked_queues(queues, Some(3)).unwrap_err().to_string();
            assert!(error.contains("--workers 3 and queues=2 differ"), "{error}");
        }
    }

    #[test]
    fn made_up_addresses_are_local_and_unicast() {
        for _ in 0..100 {
            assert_eq!(random_mac()[0] & 0x03, 0x02);
        }
    }
}
