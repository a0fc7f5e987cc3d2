//! What a server tells its outside about itself.

use std::error::Error;
use std::net::IpAddr;
use std::path::PathBuf;

use eth::{Mac, Station};
use ip::{Host, Transports};
use nmio::device::{AddressPrefix, MemoryPlan, Transport};
use nmio::{Bell, Capabilities, Port};

use crate::secret::Secret;
pub use crate::tally::{Count, Tally};

/// Why a worker could not be prepared: a message for a person.
pub type StartError = Box<dyn Error + Send + Sync>;

/// A server, loaded and ready to be put on ports.
///
/// # Calling contract
/// Each worker thread asks for [`memory`](Program::memory), opens its port
/// with it, and makes what it serves by [`transports`](Program::transports). When all
/// are ready, [`loaded`](Program::loaded) and
/// [`try_commands`](Program::try_commands) become part of the start block,
/// and the workers begin to serve. While a worker serves and when it has ended,
/// [`tally`](Program::tally) collects what they have counted.
///
/// # Rights
/// Some hooks run before rights are given up, as the user who started the server,
/// mostly root. The others run as the server's user in the
/// [sandbox](crate#what-a-callback-may-do-in-the-sandbox).
///
/// | hook | thread | rights |
/// |---|---|---|
/// | `load` of [`serve`](crate::serve), [`read_paths`](Program::read_paths), [`files`](Program::files), [`services`](Program::services) | control | as started |
/// | [`memory`](Program::memory), [`transports`](Program::transports) | worker | as started |
/// | [`prepared`](Program::prepared) | worker | given up |
/// | [`loaded`](Program::loaded), [`try_commands`](Program::try_commands) | control | given up |
/// | the callbacks of the transports, [`counted`](Program::counted), [`tally`](Program::tally) | worker | given up |
///
/// [`embed`](crate::embed()) has no `load`: the program reads its content before. It does
/// not call [`read_paths`](Program::read_paths) and [`files`](Program::files). Its control
/// thread keeps the rights as started, and its workers give theirs up.
pub trait Program: Sync {
    /// The program's name, as in `sandstorm`. Worker threads are named after
    /// it, so it should be at most 12 bytes long.
    const NAME: &'static str;

    /// The program's version.
    const VERSION: &'static str;

    /// The port that is served without `--port`.
    const DEFAULT_PORT: u16;

    /// What serves TCP, UDP or both on one port of packets.
    type Transports<P: Port>: Transports<P>;

    /// What is to be steered to the rings when `port` is served. Called before
    /// rights are given up.
    fn services(&self, port: u16) -> Vec<(Transport, u16)>;

    /// How much packet memory one worker wants. Without an own answer:
    /// frames for receiving and scratch only, no resident packets. Called before
    /// rights are given up.
    fn memory(&self, context: &WorkerContext) -> MemoryPlan {
        let _ = context;
        MemoryPlan::default()
    }

    /// Makes what one worker serves, with everything prepared in `port`'s
    /// memory. Called on the worker's own thread, before it gives up its rights.
    ///
    /// # Errors
    /// When it cannot serve on this port; nothing is served then.
    fn transports<P: Port>(
        &self,
        port: &mut P,
        context: &WorkerContext,
    ) -> Result<Self::Transports<P>, StartError>;

    /// What stands ready. Called after rights are given up.
    fn prepared<P: Port>(&self, transports: &Self::Transports<P>) -> PreparedPackets {
        let _ = transports;
        PreparedPackets::default()
    }

    /// Folders and files that the content was read from. Called before rights are
    /// given up. Landlock lets the control thread read below these and open no
    /// other file; where seccomp is in force too, it opens none at all.
    fn read_paths(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Files that the content was read from. A warning at start names those that
    /// the server may not read again. Called before rights are given up.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Lines for the start block, label and value: what was loaded. Called after
    /// rights are given up.
    fn loaded(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Commands to try, typed as they stand here; the first is the one that
    /// scripts take. Called after rights are given up.
    fn try_commands(&self, at: &Listening) -> Vec<String> {
        let _ = at;
        Vec::new()
    }

    /// What a worker has counted that the log tells of. Called up to ten times a
    /// second while it serves, after rights are given up.
    fn counted<P: Port>(&self, transports: &Self::Transports<P>) -> Counted {
        let _ = transports;
        Counted::default()
    }

    /// Adds what a worker has counted above the network layer. Called up to ten times a second while it
    /// serves, for [live counters](crate::Snapshot), and at its end, after rights are
    /// given up. It is called between two batches, so it should only copy numbers.
    fn tally<P: Port>(&self, transports: &Self::Transports<P>, tally: &mut Tally) {
        let _ = (transports, tally);
    }
}

/// What a worker knows about its place in the world.
#[derive(Clone, Debug)]
pub struct WorkerContext {
    /// This worker's number, from 0.
    pub index: u32,
    /// How many workers there are.
    pub workers: u32,
    /// The interface's link-layer address.
    pub mac: [u8; 6],
    /// The addresses served, and the networks that they are in.
    pub addresses: Vec<AddressPrefix>,
    /// VLANs whose frames are served beside untagged ones.
    pub vlans: Vec<u16>,
    /// Whether the addresses are the server's own, so that ARP, NDP and echo
    /// are answered here; otherwise the interface's kernel answers them.
    pub own: bool,
    /// The largest IP packet, in bytes.
    pub mtu: usize,
    /// The port served.
    pub port: u16,
    /// This worker's own.
    pub secret: Secret,
    /// What wakes the worker. Its mailboxes [hang on it](Bell::mailbox).
    pub bell: Bell,
}

impl WorkerContext {
    /// Worker `index` of so many.
    #[cfg(test)]
    pub(crate) fn example(index: u32, workers: u32) -> Self {
        Self {
            index,
            workers,
            mac: [2, 0, 0, 0, 0, 1],
            addresses: Vec::new(),
            vlans: Vec::new(),
            own: true,
            mtu: 1500,
            port: 7,
            secret: Secret::random().expect("random bytes"),
            bell: Bell::new().expect("an eventfd"),
        }
    }

    /// The network layer for a port with these capabilities: it serves the
    /// worker's addresses.
    pub(crate) fn host(&self, capabilities: &Capabilities) -> Host {
        let host = if self.own {
            Host::own(self.station())
        } else {
            Host::shared(self.station())
        };
        host.with_secret(self.secret.words())
            .with_partial_checksums(capabilities.partial_checksums)
    }

    /// The server on its link.
    pub(crate) fn station(&self) -> Station {
        let addresses: Vec<_> = self
            .addresses
            .iter()
            .map(|a| (a.address, a.prefix))
            .collect();
        Station::with_prefixes(Mac(self.mac), &addresses).with_vlans(&self.vlans)
    }
}

/// What the log tells of while workers serve, counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Packets dropped because their senders left the checksum to a device.
    pub unfinished_checksums: u64,
    /// Connections that gave way to others.
    pub evicted: u64,
}

/// Packets that stand ready to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreparedPackets {
    /// How many.
    pub packets: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
}

/// Where a server can be reached.
#[derive(Clone, Debug)]
pub struct Listening {
    /// Addresses, those that one would try first in front: IPv4, then global
    /// IPv6, then link-local.
    pub addresses: Vec<IpAddr>,
    /// The port.
    pub port: u16,
}

impl Listening {
    pub(crate) fn new(mut addresses: Vec<IpAddr>, port: u16) -> Self {
        addresses.sort_by_key(|address| match address {
            IpAddr::V4(_) => 0,
            IpAddr::V6(v6) if !v6.is_unicast_link_local() => 1,
            IpAddr::V6(_) => 2,
        });
        Self { addresses, port }
    }

    /// A command for the first address and the port, as
    /// [`Program::try_commands`] gives it; none without an address.
    pub fn command(&self, with: impl FnOnce(&IpAddr, u16) -> String) -> Vec<String> {
        let command = self.addresses.first().map(|first| with(first, self.port));
        command.into_iter().collect()
    }

    /// The first address, and the port unless it is `default_port`, as they
    /// stand in a URL.
    pub fn authority(&self, default_port: u16) -> Option<String> {
        let host = match self.addresses.first()? {
            IpAddr::V4(v4) => v4.to_string(),
            IpAddr::V6(v6) => format!("[{v6}]"),
        };
        Some(if self.port == default_port {
            host
        } else {
            format!("{host}:{}", self.port)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_to_try_is_the_easiest_one() {
        let addresses = ["fe80::1", "2001:db8::1", "192.0.2.1"].map(|a| a.parse().unwrap());
        let at = Listening::new(addresses.to_vec(), 80);
        assert_eq!(at.authority(80).unwrap(), "192.0.2.1");
        let at = Listening::new(addresses[..2].to_vec(), 8080);
        assert_eq!(at.authority(80).unwrap(), "[2001:db8::1]:8080");
        assert_eq!(
            at.command(|ip, port| format!("nc {ip} {port}")),
            ["nc 2001:db8::1 8080"]
        );
        let nowhere = Listening::new(vec![], 80);
        assert_eq!(nowhere.authority(80), None);
        assert!(nowhere.command(|_, _| unreachable!()).is_empty());
    }

    #[test]
    fn a_context_knows_its_host() {
        let mut context = WorkerContext {
            index: 0,
            workers: 1,
            mac: [2, 0, 0, 0, 0, 1],
            addresses: vec!["192.0.2.1/24".parse().unwrap()],
            vlans: vec![5],
            own: true,
            mtu: 1500,
            port: 80,
            secret: Secret::random().unwrap(),
            bell: Bell::new().unwrap(),
        };
        let mut capabilities = nmio::sim::Sink::new(1500, 64, 0).capabilities();
        capabilities.partial_checksums = true;
        let host = context.host(&capabilities);
        assert_eq!(host.station().mac(), Mac(context.mac));
        assert_eq!(host.station().addresses(), [context.addresses[0].address]);
        assert!(
            host.station()
                .is_reserved_on_link("192.0.2.255".parse().unwrap())
        );
        assert!(host.station().is_on_vlan(Some(5)) && !host.station().is_on_vlan(Some(6)));
        assert!(host.partial_checksums());
        context.own = false;
        capabilities.partial_checksums = false;
        assert!(!context.host(&capabilities).partial_checksums());
    }
}
