//! Three network namespaces in a row: the client's, the forwarder's and the server's.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::forwarder::{Forwarder, Paths};
use crate::bench::peers::{NGINX, fill};
use crate::netns::{self, CLIENT_LINK, Namespace, SERVER_LINK};
use crate::server::Server;
use crate::shell;

/// The forwarder's ends of the two veth pairs.
const FORWARDER_LINKS: [&str; 2] = ["fwc0", "fws0"];

/// MAC, IPv4 and IPv6 addresses of the client and of the server.
const CLIENT: [&str; 3] = ["02:99:00:00:00:01", "10.99.0.1", "fd99::1"];
pub(crate) const SERVER: [&str; 3] = ["02:99:00:00:00:02", "10.99.0.2", "fd99::2"];

/// Socket addresses of the server: first IPv4, then IPv6.
pub(crate) const ADDRESSES: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2)), 80),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 2)), 80),
];

/// Minimum, default and maximum receive buffer in bytes. The maximum exceeds the bandwidth-delay
/// product of every cell.
pub(crate) const RECEIVE_BUFFERS: &str = "4096 131072 16777216";

/// Real-time priorities, which keep other work on the machine from disturbing the network. The
/// forwarder has the highest, because all times depend on it.
const FORWARDER_PRIORITY: u32 = 20;
const END_PRIORITY: u32 = 10;

/// Time limit for nginx to start.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Time limit for each attempt to connect to nginx while it starts.
const PROBE_LIMIT: Duration = Duration::from_millis(200);

/// A server, with its TCP and its congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) enum Stack {
    #[default]
    /// nginx with `sendfile`, on the kernel's TCP with CUBIC.
    Nginx,
    /// Sandstorm with CUBIC.
    Sandstorm,
    /// Sandstorm with BBR.
    Bbr,
}

impl Stack {
    pub(crate) const ALL: [Self; 3] = [Self::Nginx, Self::Sandstorm, Self::Bbr];
}

/// A server at one side of an impaired network, and a client at the other side. Dropping a [`Rig`]
/// stops the server and removes the namespaces.
pub(crate) struct Rig {
    // The order of these fields matters: the server must stop before its namespace is removed.
    server: Server,
    client: Namespace,
    between: Namespace,
    far: Namespace,
    forward: PathBuf,
    stack: Stack,
}

impl Rig {
    /// Makes the namespaces and starts a server of `site`. `programs` is the folder of the
    /// project's programs. `device_options` follow the name of Sandstorm's device. `scratch` holds
    /// nginx's files.
    pub(crate) fn build(
        stack: Stack,
        programs: &Path,
        site: &Path,
        scratch: &Path,
        device_options: &str,
    ) -> Result<Self> {
        let name = |place: &str| format!("l{place}-{stack:?}");
        let client = Namespace::create(&name("c"))?;
        let between = Namespace::create(&name("f"))?;
        let far = Namespace::create(&name("s"))?;
        script(&between, "sysctl -q -w net.ipv6.conf.all.disable_ipv6=1")?;
        let [to_client, to_server] = FORWARDER_LINKS;
        link(&client, CLIENT_LINK, CLIENT, SERVER, &between, to_client)?;
        link(&far, SERVER_LINK, SERVER, CLIENT, &between, to_server)?;
        script(&far, &routes(SERVER_LINK, CLIENT, "congctl cubic"))?;
        // This link has no TSO, so the kernel cuts the server's super-segments.
        far.allow_long_supers(SERVER_LINK)?;
        let server = if stack == Stack::Nginx {
            start_nginx(&far, site, scratch)?
        } else {
            let mut command = with_priority(&far, END_PRIORITY, programs.join("sandstorm"));
            command.arg("serve").arg(site);
            command.args(["--device", &format!("xdp:{SERVER_LINK}{device_options}")]);
            // When the server stops, no forwarder runs, so open connections cannot end.
            command.args(["--drain", "0"]);
            if stack == Stack::Bbr {
                command.args(["--congestion", "bbr"]);
            }
            Server::start(command)?
        };
        Ok(Self {
            server,
            client,
            between,
            far,
            forward: programs.join("forward"),
            stack,
        })
    }

    pub(crate) fn stack(&self) -> Stack {
        self.stack
    }

    /// Starts the forwarder between client and server.
    pub(crate) fn join(&self, paths: &Paths, trace: Option<&Path>) -> Result<Forwarder> {
        let command = with_priority(&self.between, FORWARDER_PRIORITY, &self.forward);
        Forwarder::start(command, FORWARDER_LINKS, paths, trace)
    }

    /// Runs `work` on a thread in the client's namespace, with a real-time priority if allowed.
    pub(crate) fn as_client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.client.inside(|| {
            if has_priorities() {
                let id = rustix::thread::gettid().as_raw_nonzero().to_string();
                let mut command = Command::new("chrt");
                command.args(["--fifo", "--pid", &END_PRIORITY.to_string(), &id]);
                shell::capture(&mut command)?;
            }
            Ok(work())
        })?
    }

    /// Runs a shell script in the client's namespace.
    pub(crate) fn client_script(&self, text: &str) -> Result<()> {
        script(&self.client, text).map(drop)
    }

    /// Returns the number of frames that the kernel has dropped on the rig's four interfaces.
    pub(crate) fn dropped(&self) -> Result<u64> {
        let mut sum = 0;
        for namespace in [&self.client, &self.between, &self.far] {
            let counters = script(namespace, "cat /sys/class/net/*/statistics/?x_dropped")?;
            for counter in counters.split_whitespace() {
                sum += counter
                    .parse::<u64>()
                    .with_context(|| counter.to_string())?;
            }
        }
        Ok(sum)
    }

    /// Stops the server and returns its output.
    pub(crate) fn finish(self) -> Result<String> {
        self.server.stop_well()
    }

    /// Returns the server's output so far.
    pub(crate) fn server_output(&self) -> String {
        self.server.output()
    }
}

/// Runs a shell script in a namespace and returns its output.
fn script(namespace: &Namespace, text: &str) -> Result<String> {
    shell::capture_text(namespace.command("sh").args(["-ec", text]))
}

/// Makes a veth pair that behaves like a cable: frames are no larger than the MTU and have complete
/// checksums. No connection learns from earlier connections or waits for address resolution.
/// `txrehash` is off, because it moves a flow to another queue after a retransmission.
fn link(
    end: &Namespace,
    name: &str,
    [mac, v4, v6]: [&str; 3],
    [peer_mac, peer_v4, peer_v6]: [&str; 3],
    other: &Namespace,
    other_name: &str,
) -> Result<()> {
    netns::join([(end, name), (other, other_name)], 1)?;
    let features = "tx off rx off sg off tso off gso off gro off";
    let neighbour = format!("lladdr {peer_mac} dev {name} nud permanent");
    script(
        end,
        &format!(
            "ip link set {name} address {mac}
             ethtool -K {name} {features}
             sysctl -q -w net.ipv4.tcp_wmem='4096 65536 16777216' \
               net.ipv4.tcp_rmem='{RECEIVE_BUFFERS}' net.ipv4.tcp_no_metrics_save=1 \
               net.ipv4.tcp_mtu_probing=1 net.core.txrehash=0 \
               net.ipv6.conf.{name}.router_solicitations=0 \
               net.ipv6.conf.{name}.mldv2_unsolicited_report_interval=0
             ip address add {v4}/24 dev {name}
             ip address add {v6}/64 dev {name} nodad
             ip link set {name} up
             ip neighbour replace {peer_v4} {neighbour}
             ip neighbour replace {peer_v6} {neighbour}"
        ),
    )?;
    let up = format!("ethtool -K {other_name} {features}\nip link set {other_name} up");
    script(other, &up).map(drop)
}

/// Returns a script that sets attributes of the routes to a peer. One attribute is the congestion
/// control, because in a namespace the sysctl does not offer every control.
pub(crate) fn routes(link: &str, [_, v4, v6]: [&str; 3], attributes: &str) -> String {
    format!(
        "ip -4 route replace {v4} dev {link} {attributes}
         ip -6 route replace {v6} dev {link} {attributes}"
    )
}

/// Returns a command that runs `program` in `namespace`, with a real-time priority if allowed.
fn with_priority(namespace: &Namespace, priority: u32, program: impl AsRef<OsStr>) -> Command {
    if !has_priorities() {
        return namespace.command(program);
    }
    let mut command = namespace.command("chrt");
    command.args(["--fifo", &priority.to_string()]);
    command.arg(program.as_ref());
    command
}

/// Returns true if this process may set real-time priorities.
pub(crate) fn has_priorities() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| shell::succeeds(Command::new("chrt").args(["--fifo", "1", "true"])))
}

fn start_nginx(far: &Namespace, site: &Path, scratch: &Path) -> Result<Server> {
    let [v4, _] = ADDRESSES;
    let words = [
        ("workers", "1".to_owned()),
        ("files", "8192".to_owned()),
        ("cached", "4000".to_owned()),
        ("nopush", "on".to_owned()),
        ("modules", String::new()),
        ("more", String::new()),
        ("worker_connections", "4096".to_owned()),
        ("run", scratch.display().to_string()),
        ("address", v4.ip().to_string()),
        ("served", site.display().to_string()),
    ];
    let file = scratch.join("nginx.conf");
    shell::write(&file, fill(NGINX, &words))?;
    let mut command = with_priority(far, END_PRIORITY, "nginx");
    command.args(["-e", "stderr", "-c"]).arg(&file);
    Server::start_when(command, START_LIMIT, |_| {
        far.inside(|| TcpStream::connect_timeout(&v4, PROBE_LIMIT).is_ok())
    })
}
