//! The network of one scenario, and the server on it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::Content;
use super::matrix::{Device, Program, Scenario, Xdp};
use crate::interrupt;
use crate::netns::Namespace;
use crate::server::Server;
use crate::shell::{self, Failure, Result};

/// Where a server is, and what a client must know of the way there.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) v4: IpAddr,
    pub(crate) v6: IpAddr,
    pub(crate) port: u16,
    /// Frames are lost on the way.
    pub(crate) loss: bool,
}

impl Place {
    pub(crate) fn addresses(&self) -> [IpAddr; 2] {
        [self.v4, self.v6]
    }

    pub(crate) fn socket(&self, address: IpAddr) -> SocketAddr {
        SocketAddr::new(address, self.port)
    }
}

/// The server's end of a veth pair, and the client's.
pub(super) const SERVER_LINK: &str = "srv0";
pub(super) const CLIENT_LINK: &str = "cli0";

/// Addresses of the server and of the client, with their prefixes.
const SERVER: [&str; 2] = ["10.99.0.2/24", "fd99::2/64"];
const CLIENT: [&str; 2] = ["10.99.0.1/24", "fd99::1/64"];

/// What a process had on an interface is gone this long after its end.
const REMOVAL_LIMIT: Duration = Duration::from_secs(2);

/// The network of one scenario; gone when it is dropped.
pub(crate) struct Rig {
    server: Namespace,
    /// Its own where a veth pair stands between client and server; where the
    /// server makes its own device, the client is on its host.
    client: Option<Namespace>,
}

/// Scenarios so far, to tell their namespaces apart.
static BUILT: AtomicU32 = AtomicU32::new(0);

impl Rig {
    pub(crate) fn build(scenario: &Scenario) -> Result<Self> {
        let number = BUILT.fetch_add(1, Ordering::Relaxed);
        let server = Namespace::create(&format!("s{number}"))?;
        let client = match scenario.device {
            Device::Xdp(xdp) => {
                let client = Namespace::create(&format!("c{number}"))?;
                join_by_veth(&server, &client, xdp)?;
                Some(client)
            }
            Device::Tap | Device::Auto => None,
        };
        Ok(Self { server, client })
    }

    /// Starts the scenario's server.
    pub(crate) fn start(
        &self,
        scenario: &Scenario,
        seed: Option<u64>,
        programs: &Path,
        content: &Content,
    ) -> Result<(Server, Place)> {
        self.start_with(scenario, seed, programs, content, &[])
    }

    /// The same with `more` options.
    pub(crate) fn start_with(
        &self,
        scenario: &Scenario,
        seed: Option<u64>,
        programs: &Path,
        content: &Content,
        more: &[&str],
    ) -> Result<(Server, Place)> {
        let mut command = match scenario.program {
            Program::Sandstorm { mode } => {
                let mut command = self.server.command(programs.join("sandstorm"));
                command
                    .arg("serve")
                    .arg(&content.site)
                    .args(["--mode", mode]);
                command
            }
            Program::Namestorm { mode, hash } => {
                let mut command = self.server.command(programs.join("namestorm"));
                command.args(["serve", "--mode", mode, "--hash", hash]);
                for zone in content.zone_arguments() {
                    command.args(["--zone", &zone]);
                }
                command
            }
        };
        command.args(more);
        add_device(&mut command, scenario.device);
        if let Some(seed) = seed {
            command.args(["--fault", &format!("drop=0.01,seed={seed}")]);
        }
        let server = Server::start(command)?;
        let place = place(&server.output(), scenario.loss)?;
        Ok((server, place))
    }

    /// Runs `client` on a thread inside the client's namespace.
    pub(crate) fn as_client<T: Send>(&self, client: impl FnOnce() -> T + Send) -> Result<T> {
        self.client().inside(client)
    }

    pub(crate) fn client(&self) -> &Namespace {
        self.client.as_ref().unwrap_or(&self.server)
    }

    /// Runs `work` on a thread inside the server's namespace.
    pub(crate) fn in_server<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.server.inside(work)
    }

    pub(crate) fn server(&self) -> &Namespace {
        &self.server
    }

    /// The names of the server's interfaces.
    pub(crate) fn links(&self) -> Result<BTreeSet<String>> {
        let listing = self.server.ip("-brief link show")?;
        let name = |line: &str| line.split([' ', '@']).next().unwrap_or_default().to_owned();
        Ok(listing.lines().map(name).collect())
    }

    /// Checks that the interfaces are these, and that none has an XDP program.
    /// What a killed process had goes a moment after it.
    pub(crate) fn expect_links(&self, expected: &BTreeSet<String>) -> Result<()> {
        let mut links = BTreeSet::new();
        let right = interrupt::wait_for(REMOVAL_LIMIT, || {
            links = self.links()?;
            Ok((links == *expected).then_some(()))
        })?;
        if right.is_none() {
            return Err(Failure::new(format!(
                "the interfaces are {links:?}, not {expected:?}"
            )));
        }
        self.expect_no_xdp()
    }

    fn expect_no_xdp(&self) -> Result<()> {
        let mut listing = String::new();
        let right = interrupt::wait_for(REMOVAL_LIMIT, || {
            listing = self.server.ip("-details link show")?;
            let attached = listing.contains("prog/xdp") || listing.contains("xdpgeneric");
            Ok((!attached).then_some(()))
        })?;
        right.ok_or_else(|| Failure::new(format!("an XDP program is still attached:\n{listing}")))
    }
}

/// Adds what makes a server serve on `device`.
pub(super) fn add_device(command: &mut Command, device: Device) {
    let own = match device {
        Device::Auto => {
            command.args(["--device", "auto"]);
            return;
        }
        Device::Tap => {
            command.args(["--device", "tap:tap0"]);
            true
        }
        Device::Xdp(xdp) => {
            let mut device = format!("xdp:{SERVER_LINK},queues={}", xdp.queues);
            if xdp.generic {
                device.push_str(",generic");
            }
            if xdp.partial {
                device.push_str(",partial-checksums");
            }
            command.args(["--device", &device, "--workers", &xdp.queues.to_string()]);
            xdp.own
        }
    };
    if own {
        for address in SERVER {
            command.args(["--address", address]);
        }
    }
}

fn join_by_veth(server: &Namespace, client: &Namespace, xdp: Xdp) -> Result<()> {
    let queues = format!("numrxqueues {0} numtxqueues {0}", xdp.queues);
    server.ip(&format!(
        "link add {SERVER_LINK} {queues} type veth peer name {CLIENT_LINK} netns {} {queues}",
        client.name()
    ))?;
    for address in CLIENT {
        client.ip(&format!(
            "address add {address} dev {CLIENT_LINK}{}",
            no_detection(address)
        ))?;
    }
    if !xdp.own {
        for address in SERVER {
            server.ip(&format!(
                "address add {address} dev {SERVER_LINK}{}",
                no_detection(address)
            ))?;
        }
    }
    // Without TSO in any case: a request is never larger than a frame then.
    let offload = if xdp.partial { "tso" } else { "tx" };
    client.set_features(CLIENT_LINK, &[offload], false)?;
    server.ip(&format!("link set {SERVER_LINK} up"))?;
    client.ip(&format!("link set {CLIENT_LINK} up"))?;
    // Linux gives a flow another TX queue after a retransmission, and what
    // leaves one end of a veth pair by queue N arrives at the other end on
    // queue N. A network card that spreads by addresses and ports, as they
    // all do, keeps a flow on its queue: so does this.
    let mut keep = client.command("sysctl");
    shell::capture(keep.args(["-q", "-w", "net.core.txrehash=0"]))?;
    Ok(())
}

/// IPv6 addresses are usable at once without duplicate address detection.
fn no_detection(address: &str) -> &'static str {
    if address.contains(':') { " nodad" } else { "" }
}

/// Reads where the server says that it listens: `listening: ADDRESSES, port N`.
pub(super) fn place(output: &str, loss: bool) -> Result<Place> {
    let listening = output
        .lines()
        .find_map(|line| line.strip_prefix("listening:"))
        .ok_or_else(|| Failure::new(format!("no line \"listening:\" in\n{output}")))?;
    let (addresses, port) = listening
        .split_once(", port ")
        .ok_or_else(|| Failure::new(format!("no port in \"listening:{listening}\"")))?;
    let addresses: Vec<IpAddr> = addresses
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let v4 = addresses.iter().find(|address| address.is_ipv4());
    let global = |address: &&IpAddr| matches!(address, IpAddr::V6(a) if !a.is_unicast_link_local());
    let v6 = addresses.iter().find(global);
    match (v4, v6, port.trim().parse()) {
        (Some(&v4), Some(&v6), Ok(port)) => Ok(Place { v4, v6, port, loss }),
        _ => Err(Failure::new(format!(
            "no IPv4, IPv6 and port in \"listening:{listening}\""
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_from_the_start_block() {
        let block = "sandstorm: 0.1.0\nlistening: 10.0.0.2 fe80::2 fd00::2, port 8080\n";
        let place = place(block, false).unwrap();
        assert_eq!(place.socket(place.v4).to_string(), "10.0.0.2:8080");
        assert_eq!(place.socket(place.v6).to_string(), "[fd00::2]:8080");
        assert!(super::place("listening: 10.0.0.2, port 80\n", false).is_err());
    }
}
