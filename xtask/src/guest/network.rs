//! The network of one case: a tap device in a namespace for a client on the host, or a pair of
//! sockets between two guests.

use std::process::Command;

use anyhow::Result;
use tempfile::TempDir;

use super::cases::{Case, Client};
use super::exchange::{CLIENT, configure};
use crate::netns::Namespace;
use crate::shell;

/// The host's end of the link to a guest.
const TAP: &str = "tap0";

/// Number of times that the host asks for a guest's MAC address, once a second.
const SOLICITATIONS: u32 = 20;
/// Time limit for a client on the host, in seconds.
const CLIENT_LIMIT: &str = "120";

/// The network of one case. Dropping it removes the namespace and the sockets.
pub(super) struct Network {
    namespace: Namespace,
    sockets: TempDir,
}

impl Network {
    pub(super) fn new(case: &Case) -> Result<Self> {
        let network = Self {
            namespace: Namespace::create("guest")?,
            sockets: shell::scratch("guest-link")?,
        };
        if case.client == Client::Host {
            // QEMU opens a device with several queues only if the device was made for them.
            let queues = if case.queues > 1 { " multi_queue" } else { "" };
            network
                .namespace
                .ip(&format!("tuntap add {TAP} mode tap vnet_hdr{queues}"))?;
            if case.is_of_batches() {
                // The guest's card does not take all queries at once.
                network
                    .namespace
                    .ip(&format!("link set {TAP} txqueuelen 4096"))?;
            }
            for command in configure(TAP, CLIENT, case.mtu) {
                network.namespace.run(&command)?;
            }
            // On a busy host, a guest may answer only after some seconds.
            for family in ["ipv4", "ipv6"] {
                let solicit = format!("net.{family}.neigh.{TAP}.mcast_solicit={SOLICITATIONS}");
                network.namespace.run(&format!("sysctl -q -w {solicit}"))?;
            }
        }
        Ok(network)
    }

    /// Returns a command that runs QEMU in the namespace.
    pub(super) fn qemu(&self) -> Command {
        self.namespace.command("qemu-system-x86_64")
    }

    /// Returns QEMU's options for the network cards of guest 0, or of guest 1, its client.
    pub(super) fn cards(&self, case: &Case, number: u32) -> String {
        let card = |backend: &str, net: u32, number: u32| {
            case.card(backend, net, &format!("52:54:00:00:00:0{number}"))
        };
        match case.client {
            Client::Guest => {
                let socket = |number| format!("{}/{number}", self.sockets.path().display());
                let (here, there) = (socket(number), socket(1 - number));
                let backend = format!(
                    "dgram,local.type=unix,local.path={here},remote.type=unix,remote.path={there}"
                );
                card(&backend, 0, number)
            }
            Client::Host => {
                let queues = case.queues;
                let backend =
                    format!("tap,ifname={TAP},script=no,downscript=no,vhost=off,queues={queues}");
                card(&backend, 0, number)
            }
            Client::Test => {
                let cards = [0, 1].map(|net| card("hubport,hubid=0", net, net));
                cards.join(" ")
            }
        }
    }

    /// Runs a line of shell in the namespace and returns its output. Ends it after
    /// [`CLIENT_LIMIT`].
    pub(super) fn run(&self, line: &str) -> Result<String> {
        let mut command = self.namespace.command("timeout");
        shell::capture_text(command.args([CLIENT_LIMIT, "sh", "-c", line]))
    }
}
