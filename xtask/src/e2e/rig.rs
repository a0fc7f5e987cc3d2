//! The network of one scenario, and the server on it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::Env;
use super::matrix::Scenario;
use crate::interrupt;
use crate::netns::{self, CLIENT_LINK, Namespace, SERVER_LINK};
use crate::server::Server;
use anyhow::{Context as _, Result, bail};

/// Addresses and port of a server, and whether the path loses frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) v4: IpAddr,
    pub(crate) v6: IpAddr,
    pub(crate) port: u16,
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

/// Addresses of the server's side, with prefix lengths. [`CLIENT`] has those of the client's side.
const SERVER: [&str; 2] = ["10.99.0.2/24", "fd99::2/64"];
const CLIENT: [&str; 2] = ["10.99.0.1/24", "fd99::1/64"];

/// Time limit for the kernel to remove a killed process's devices and XDP programs.
const REMOVAL_LIMIT: Duration = Duration::from_secs(2);

/// The network of one scenario. Dropping a [`Rig`] removes its network.
pub(crate) struct Rig {
    server: Namespace,
    /// Namespace with the client's side of the veth pair. If it is `None`, the server makes its own
    /// device, and clients run in the server's namespace.
    client: Option<Namespace>,
}

/// Number of rigs so far, which makes the names of namespaces unique.
static BUILT: AtomicU32 = AtomicU32::new(0);

impl Rig {
    pub(crate) fn build(scenario: &Scenario) -> Result<Self> {
        let number = BUILT.fetch_add(1, Ordering::Relaxed);
        let server = Namespace::create(&format!("s{number}"))?;
        let mut rig = Self {
            server,
            client: None,
        };
        if scenario.is_xdp() {
            let client = Namespace::create(&format!("c{number}"))?;
            join_by_veth(&rig.server, &client, scenario)?;
            rig.client = Some(client);
        }
        Ok(rig)
    }

    /// Starts the scenario's server with the sample content and the further options `more`.
    pub(crate) fn start(
        &self,
        env: &Env,
        scenario: &Scenario,
        more: &[&str],
    ) -> Result<(Server, Place)> {
        let content = if scenario.is_dns() {
            env.zone_options()
        } else {
            vec![env.site.display().to_string()]
        };
        let options = scenario.options();
        let words = content.iter().map(String::as_str).chain(options);
        let device = device_options(scenario);
        let words = words.chain(more.iter().copied());
        let words = words.chain(device.iter().map(String::as_str));
        let (server, mut place) = self.serve(env, scenario.program(), words)?;
        place.loss = scenario.is_lossy();
        Ok((server, place))
    }

    /// Starts `PROGRAM serve WORDS` in the server's namespace.
    pub(crate) fn serve<W: AsRef<OsStr>>(
        &self,
        env: &Env,
        program: &str,
        words: impl IntoIterator<Item = W>,
    ) -> Result<(Server, Place)> {
        let mut command = self.server.command(env.programs.join(program));
        command.arg("serve").args(words);
        let server = Server::start(command)?;
        let place = place(&server.output())?;
        Ok((server, place))
    }

    /// Runs `client` on a thread in the client's namespace.
    pub(crate) fn as_client<T: Send>(&self, client: impl FnOnce() -> T + Send) -> Result<T> {
        self.client().inside(client)
    }

    pub(crate) fn client(&self) -> &Namespace {
        self.client.as_ref().unwrap_or(&self.server)
    }

    pub(crate) fn server(&self) -> &Namespace {
        &self.server
    }

    /// Returns the names of the interfaces in the server's namespace.
    pub(crate) fn links(&self) -> Result<BTreeSet<String>> {
        let listing = self.server.ip("-brief link show")?;
        let name = |line: &str| line.split([' ', '@']).next().unwrap_or_default().to_owned();
        Ok(listing.lines().map(name).collect())
    }

    /// Waits until the server's namespace has exactly these interfaces, without XDP programs.
    /// Returns an error after [`REMOVAL_LIMIT`].
    pub(crate) fn expect_links(&self, expected: &BTreeSet<String>) -> Result<()> {
        let mut found = String::new();
        let right = interrupt::wait_for(REMOVAL_LIMIT, || {
            let links = self.links()?;
            let details = self.server.ip("-details link show")?;
            let attached = details.contains("prog/xdp") || details.contains("xdpgeneric");
            found = format!("{links:?}:\n{details}");
            Ok((links == *expected && !attached).then_some(()))
        })?;
        right.with_context(|| {
            format!("the interfaces are not {expected:?} without XDP programs, but {found}")
        })
    }
}

/// Returns the options that select the scenario's device.
pub(super) fn device_options(scenario: &Scenario) -> Vec<String> {
    let pick = |choice, option| if scenario.has(choice) { option } else { "" };
    let queues = queues(scenario);
    let xdp = format!(
        "xdp:{SERVER_LINK},queues={queues}{}{} --workers {queues}",
        pick("xdp-generic", ",generic"),
        pick("partial", ",partial-checksums")
    );
    let named = [pick("tap", "tap:tap0"), pick("auto", "auto")].concat();
    let device = if scenario.is_xdp() { xdp } else { named };
    let mut line = format!("--device {device}");
    if scenario.has("own") || scenario.has("tap") {
        line.extend(SERVER.map(|address| format!(" --address {address}")));
    }
    line.split(' ').map(str::to_owned).collect()
}

fn queues(scenario: &Scenario) -> u32 {
    1 + u32::from(scenario.has("2-queues"))
}

fn join_by_veth(server: &Namespace, client: &Namespace, scenario: &Scenario) -> Result<()> {
    let ends = [(server, SERVER_LINK), (client, CLIENT_LINK)];
    netns::join(ends, queues(scenario))?;
    let add = |to: &Namespace, link: &str, addresses: [&str; 2]| {
        addresses.iter().try_for_each(|address| {
            // IPv6 duplicate address detection would delay the first connection.
            let no_delay = if address.contains(':') { "nodad" } else { "" };
            let line = format!("address add {address} dev {link} {no_delay}");
            to.ip(&line).map(drop)
        })
    };
    add(client, CLIENT_LINK, CLIENT)?;
    if !scenario.has("own") {
        add(server, SERVER_LINK, SERVER)?;
    }
    // Turning off `tx` also turns off TSO. Without TSO, no request exceeds a frame.
    let offload = if scenario.has("partial") { "tso" } else { "tx" };
    client.set_features(CLIENT_LINK, &[offload], false)?;
    server.ip(&format!("link set {SERVER_LINK} up"))?;
    client.ip(&format!("link set {CLIENT_LINK} up"))?;
    // After a retransmission, Linux may move a flow to another TX queue, and veth then delivers the
    // flow to another RX queue. Prevent this, because a network card's hash keeps a flow on one
    // queue.
    client.run("sysctl -q -w net.core.txrehash=0").map(drop)
}

/// Reads the addresses and the port from the line `listening: ADDRESSES, port N`.
fn place(output: &str) -> Result<Place> {
    let mut lines = output.lines();
    let listening = lines.find_map(|line| line.strip_prefix("listening:"));
    let listening = listening.with_context(|| format!("no line \"listening:\" in\n{output}"))?;
    let (addresses, port) = listening.split_once(", port ").unwrap_or((listening, ""));
    let parsed = |word: &str| word.parse::<IpAddr>().ok();
    let addresses: Vec<IpAddr> = addresses.split_whitespace().filter_map(parsed).collect();
    let v4 = addresses.iter().find(|address| address.is_ipv4());
    let global = |address: &&IpAddr| matches!(address, IpAddr::V6(a) if !a.is_unicast_link_local());
    let v6 = addresses.iter().find(global);
    let (Some(&v4), Some(&v6), Ok(port)) = (v4, v6, port.trim().parse()) else {
        bail!("no IPv4, IPv6 and port in \"listening:{listening}\"");
    };
    let loss = false;
    Ok(Place { v4, v6, port, loss })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_port_are_read_from_the_start_block() {
        let block = "sandstorm: 0.1.0\nlistening: 10.0.0.2 fe80::2 fd00::2, port 8080\n";
        let place = place(block).unwrap();
        assert_eq!(place.socket(place.v4).to_string(), "10.0.0.2:8080");
        assert_eq!(place.socket(place.v6).to_string(), "[fd00::2]:8080");
        assert!(super::place("listening: 10.0.0.2, port 80\n").is_err());
    }
}
