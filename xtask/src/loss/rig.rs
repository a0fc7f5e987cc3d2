//! Three network namespaces in a row: client, forwarder, server.

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::forwarder::{Forwarder, Paths};
use crate::netns::Namespace;
use crate::server::Server;
use crate::shell::{self, Context as _, Failure, Result};

/// The ends of the two veth pairs.
const CLIENT_LINK: &str = "cli0";
const SERVER_LINK: &str = "srv0";
const FORWARDER_LINKS: [&str; 2] = ["fwc0", "fws0"];

const CLIENT_MAC: &str = "02:99:00:00:00:01";
const SERVER_MAC: &str = "02:99:00:00:00:02";
/// Addresses of both versions.
const CLIENT: [&str; 2] = ["10.99.0.1", "fd99::1"];
const SERVER: [&str; 2] = ["10.99.0.2", "fd99::2"];
const PREFIXES: [u32; 2] = [24, 64];
const PORT: u16 = 80;

/// Least, usual and most bytes of a receive buffer: windows never end before
/// the paths do.
pub(crate) const RECEIVE_BUFFERS: &str = "4096 131072 16777216";

/// Kernel settings at both ends, beside [`RECEIVE_BUFFERS`]: one connection
/// knows nothing of the one before.
const SETTINGS: &[&str] = &[
    "net.ipv4.tcp_wmem=4096 65536 16777216",
    "net.ipv4.tcp_no_metrics_save=1",
    // Linux would give a flow another queue after a retransmission.
    "net.core.txrehash=0",
];

/// The server's kernel finds its way round a black hole, as well as it can.
const SERVER_SETTINGS: &[&str] = &["net.ipv4.tcp_mtu_probing=1"];

/// The forwarder's kernel stays out of the way.
const FORWARDER_SETTINGS: &[&str] = &["net.ipv6.conf.all.disable_ipv6=1"];

/// The server is there this long after its start.
const START_LIMIT: Duration = Duration::from_secs(10);
const PROBE_LIMIT: Duration = Duration::from_millis(200);

/// Who serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stack {
    /// nginx with `sendfile`, on the kernel's TCP with CUBIC.
    Kernel,
    /// Our server on our TCP.
    Sandstorm,
}

impl Stack {
    pub(crate) const BOTH: [Self; 2] = [Self::Kernel, Self::Sandstorm];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Sandstorm => "sandstorm",
        }
    }
}

/// A server at the end of a bad network, and a client at the other. Gone with
/// every process inside when it is dropped.
pub(crate) struct Rig {
    // In this order: the server ends before its namespace does.
    server: Server,
    client: Namespace,
    between: Namespace,
    far: Namespace,
    forward: PathBuf,
    stack: Stack,
}

impl Rig {
    /// Makes the namespaces and starts a server of `site`; `programs` has
    /// ours, `device_options` is what its device's name ends with, and `scratch`
    /// is for files of the peer.
    pub(crate) fn build(
        stack: Stack,
        programs: &Path,
        site: &Path,
        scratch: &Path,
        device_options: &str,
    ) -> Result<Self> {
        let name = |place: &str| format!("l{place}-{}", stack.name());
        let client = Namespace::create(&name("c"))?;
        let between = Namespace::create(&name("f"))?;
        let far = Namespace::create(&name("s"))?;
        set(&between, FORWARDER_SETTINGS)?;
        let [to_client, to_server] = FORWARDER_LINKS;
        for (end, link, other, mac) in [
            (&client, CLIENT_LINK, to_client, CLIENT_MAC),
            (&far, SERVER_LINK, to_server, SERVER_MAC),
        ] {
            end.ip(&format!(
                "link add {link} address {mac} mtu 1500 numrxqueues 1 numtxqueues 1 type veth \
                 peer name {other} mtu 1500 netns {} numrxqueues 1 numtxqueues 1",
                between.name()
            ))?;
            // Frames as they are on a wire: whole, no larger than the MTU,
            // with finished checksums.
            for (namespace, link) in [(end, link), (&between, other)] {
                let features = ["tx", "rx", "sg", "tso", "gso", "gro"];
                namespace.set_features(link, &features, false)?;
            }
        }
        for (end, link, own, peers, peer_mac) in [
            (&client, CLIENT_LINK, CLIENT, SERVER, SERVER_MAC),
            (&far, SERVER_LINK, SERVER, CLIENT, CLIENT_MAC),
        ] {
            set(end, &[&format!("net.ipv4.tcp_rmem={RECEIVE_BUFFERS}")])?;
            set(end, SETTINGS)?;
            // Usable at once, and no router is looked for.
            let quiet = [
                "accept_dad",
                "router_solicitations",
                "mldv2_unsolicited_report_interval",
            ];
            let quiet = quiet.map(|name| format!("net.ipv6.conf.{link}.{name}=0"));
            set(end, &quiet.each_ref().map(String::as_str))?;
            for (address, prefix) in own.iter().zip(PREFIXES) {
                end.ip(&format!("address add {address}/{prefix} dev {link}"))?;
            }
            end.ip(&format!("link set {link} up"))?;
            // Nobody asks for addresses while a run is on.
            for peer in peers {
                end.ip(&format!(
                    "neighbour replace {peer} lladdr {peer_mac} dev {link} nud permanent"
                ))?;
            }
        }
        set_route(&far, SERVER_LINK, &CLIENT, "congctl cubic")?;
        for link in FORWARDER_LINKS {
            between.ip(&format!("link set {link} up"))?;
        }
        set(&far, SERVER_SETTINGS)?;
        // For who sends super-segments all the same, which the kernel cuts.
        far.allow_long_supers(SERVER_LINK)?;
        let server = match stack {
            Stack::Kernel => start_nginx(&far, site, scratch)?,
            Stack::Sandstorm => {
                let mut command = first_served(&far, SERVER_PRIORITY, programs.join("sandstorm"));
                command.arg("serve").arg(site);
                command.args(["--device", &format!("xdp:{SERVER_LINK}{device_options}")]);
                Server::start(command)?
            }
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

    /// Where the client finds the server, by IPv4 and by IPv6.
    pub(crate) fn addresses() -> [SocketAddr; 2] {
        let v6 = Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 2);
        [
            (Ipv4Addr::new(10, 99, 0, 2), PORT).into(),
            (v6, PORT).into(),
        ]
    }

    /// Starts the network between the two.
    pub(crate) fn join(&self, paths: &Paths, trace: Option<&Path>) -> Result<Forwarder> {
        let command = first_served(&self.between, FORWARDER_PRIORITY, &self.forward);
        Forwarder::start(command, FORWARDER_LINKS, paths, trace)
    }

    /// Runs `work` on a thread inside the client's namespace.
    pub(crate) fn as_client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.client.inside(|| {
            serve_first();
            work()
        })
    }

    /// Changes kernel settings of the client.
    pub(crate) fn set_client(&self, settings: &[&str]) -> Result<()> {
        set(&self.client, settings)
    }

    /// Whether the client joins the segments that it receives to larger ones.
    pub(crate) fn set_client_gro(&self, on: bool) -> Result<()> {
        self.client.set_features(CLIENT_LINK, &["gro"], on)
    }

    /// Changes what the client's connections to the server are like:
    /// attributes of a route.
    pub(crate) fn set_client_route(&self, attributes: &str) -> Result<()> {
        set_route(&self.client, CLIENT_LINK, &SERVER, attributes)
    }

    /// Frames that the kernel has dropped at either end, so far: beyond what
    /// the forwarder knows of.
    pub(crate) fn dropped(&self) -> Result<u64> {
        let mut sum = 0;
        let ends = [(&self.client, CLIENT_LINK), (&self.far, SERVER_LINK)];
        let middle = FORWARDER_LINKS.map(|link| (&self.between, link));
        for (namespace, link) in ends.into_iter().chain(middle) {
            let mut cat = namespace.command("cat");
            let folder = format!("/sys/class/net/{link}/statistics");
            cat.args(["rx_dropped", "tx_dropped"].map(|name| format!("{folder}/{name}")));
            let text = shell::capture_text(&mut cat)?;
            sum += text
                .split_whitespace()
                .filter_map(|number| number.parse::<u64>().ok())
                .sum::<u64>();
        }
        Ok(sum)
    }

    /// Ends the server; what it has said.
    pub(crate) fn finish(self) -> Result<String> {
        let (status, output) = self.server.stop(Signal::TERM)?;
        if status.success() {
            return Ok(output);
        }
        Err(Failure::new(format!("{status}:\n{output}")))
    }

    /// What the server has said so far.
    pub(crate) fn server_output(&self) -> String {
        self.server.output()
    }
}

fn set(namespace: &Namespace, settings: &[&str]) -> Result<()> {
    let mut sysctl = namespace.command("sysctl");
    shell::capture(sysctl.args(["-q", "-w"]).args(settings)).map(drop)
}

/// Gives connections to `peers` these attributes of a route, such as a
/// congestion control. (A namespace may not choose its default one freely.)
fn set_route(namespace: &Namespace, link: &str, peers: &[&str; 2], attributes: &str) -> Result<()> {
    for (peer, version) in peers.iter().zip(["-4", "-6"]) {
        namespace.ip(&format!(
            "{version} route replace {peer} dev {link} {attributes}"
        ))?;
    }
    Ok(())
}

/// Before all ordinary work; the forwarder, on whose clock all depends,
/// before the servers.
const FORWARDER_PRIORITY: u32 = 20;
const SERVER_PRIORITY: u32 = 10;

/// `program` in `namespace`, served by the scheduler before all ordinary
/// processes where that is allowed: other work on the machine is no part of
/// the network.
fn first_served(namespace: &Namespace, priority: u32, program: impl AsRef<OsStr>) -> Command {
    if !is_first_served() {
        return namespace.command(program);
    }
    let mut command = namespace.command("chrt");
    command
        .args(["--fifo", &priority.to_string()])
        .arg(program.as_ref());
    command
}

/// The same for the calling thread and those that it starts.
fn serve_first() {
    if is_first_served() {
        let mut command = Command::new("chrt");
        let id = rustix::thread::gettid().as_raw_nonzero().to_string();
        command.args(["--fifo", "--pid", &SERVER_PRIORITY.to_string(), &id]);
        if let Err(failure) = shell::capture(&mut command) {
            eprintln!("loss: {failure}");
        }
    }
}

/// Whether real-time priorities can be had.
pub(crate) fn is_first_served() -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    *ALLOWED.get_or_init(|| {
        let mut probe = Command::new("chrt");
        shell::capture(probe.args(["--fifo", "1", "true"])).is_ok()
    })
}

fn start_nginx(far: &Namespace, site: &Path, scratch: &Path) -> Result<Server> {
    let run = scratch.join("nginx");
    fs::create_dir_all(&run).context(format_args!("making {}", run.display()))?;
    let config = run.join("nginx.conf");
    fs::write(&config, nginx_config(&run, site))
        .context(format_args!("writing {}", config.display()))?;
    let mut command = first_served(far, SERVER_PRIORITY, "nginx");
    command.args(["-e", "stderr", "-c"]).arg(&config);
    command.args(["-g", "daemon off;"]);
    Server::start_when(command, START_LIMIT, |_| {
        let [v4, _] = Rig::addresses();
        far.inside(|| TcpStream::connect_timeout(&v4, PROBE_LIMIT).is_ok())
    })
}

fn nginx_config(run: &Path, site: &Path) -> String {
    let (run, site, [v4, v6]) = (run.display(), site.display(), SERVER);
    format!(
        "user root;
worker_processes 1;
pid {run}/nginx.pid;
error_log stderr crit;
events {{
    use epoll;
    worker_connections 4096;
}}
http {{
    sendfile on;
    sendfile_max_chunk 0;
    tcp_nopush on;
    tcp_nodelay on;
    access_log off;
    server_tokens off;
    default_type application/octet-stream;
    open_file_cache max=100 inactive=1h;
    keepalive_requests 1000000;
    large_client_header_buffers 8 16k;
    client_body_temp_path {run}/body;
    proxy_temp_path {run}/proxy;
    fastcgi_temp_path {run}/fastcgi;
    uwsgi_temp_path {run}/uwsgi;
    scgi_temp_path {run}/scgi;
    server {{
        listen {v4}:{PORT};
        listen [{v6}]:{PORT};
        root {site};
    }}
}}
"
    )
}
