//! The servers that are compared: how each is configured, started and found
//! ready.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::busy_poll;
use super::configs::{self, Paths};
use super::content::{Content, ORIGIN};
use super::rig::{self, Rig, SERVER_ADDRESS, SERVER_LINK};
use super::usage;
use crate::server::Server;
use crate::shell::{self, Context as _, Failure, Result};

/// A server has this long to load a million names.
const START_LIMIT: Duration = Duration::from_mins(2);

/// A server that is asked whether it is there answers within this.
const PROBE_LIMIT: Duration = Duration::from_millis(200);

/// A program, and how it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Program {
    /// The example that turns datagrams round.
    Reflect,
    Namestorm {
        mode: &'static str,
        hash: &'static str,
    },
    Sandstorm {
        mode: &'static str,
    },
    Nginx {
        /// The kernel is polled by nginx instead of by its own threads.
        busy_poll: bool,
    },
    Lighttpd,
    H2o,
    Nsd {
        /// The one of the tree that was given, with `AF_XDP`.
        xdp: bool,
    },
    Knot {
        xdp: bool,
    },
    Bind,
}

impl Program {
    /// The line of a chart.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Reflect => "reflect".into(),
            Self::Namestorm { mode, hash: "wire" } => format!("namestorm {mode}"),
            Self::Namestorm { mode, hash } => format!("namestorm {mode} {hash}"),
            Self::Sandstorm { mode } => format!("sandstorm {mode}"),
            Self::Nginx { busy_poll: false } => "nginx".into(),
            Self::Nginx { busy_poll: true } => "nginx busy-poll".into(),
            Self::Lighttpd => "lighttpd".into(),
            Self::H2o => "h2o".into(),
            Self::Nsd { xdp: false } => "NSD".into(),
            Self::Nsd { xdp: true } => "NSD XDP".into(),
            Self::Knot { xdp: false } => "Knot DNS".into(),
            Self::Knot { xdp: true } => "Knot DNS XDP".into(),
            Self::Bind => "BIND".into(),
        }
    }

    /// The Debian package of a peer, and the program in it.
    pub(crate) fn package(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Reflect
            | Self::Namestorm { .. }
            | Self::Sandstorm { .. }
            | Self::Nsd { xdp: true } => None,
            Self::Nginx { .. } => Some(("nginx", "nginx")),
            Self::Lighttpd => Some(("lighttpd", "lighttpd")),
            Self::H2o => Some(("h2o", "h2o")),
            Self::Nsd { xdp: false } => Some(("nsd", "nsd")),
            Self::Knot { .. } => Some(("knot", "knotd")),
            Self::Bind => Some(("bind9", "named")),
        }
    }

    /// A peer that is to receive by `AF_XDP`.
    fn uses_xdp(self) -> bool {
        matches!(self, Self::Nsd { xdp: true } | Self::Knot { xdp: true })
    }

    /// One of ours: it tells its batches at its end.
    pub(crate) fn is_ours(self) -> bool {
        matches!(
            self,
            Self::Reflect | Self::Namestorm { .. } | Self::Sandstorm { .. }
        )
    }
}

/// What a server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serves {
    /// Whatever comes, to where it came from.
    Echo,
    /// So many names.
    Zone(u32),
    /// The single files.
    Files,
    /// The files of the mix.
    Mix,
}

/// A server to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) program: Program,
    pub(crate) serves: Serves,
    /// More arguments, for programs of ours.
    pub(crate) arguments: Vec<String>,
    /// Connections that it must be able to hold.
    pub(crate) connections: u32,
}

/// Where things lie.
pub(crate) struct Folders {
    /// Programs of ours, built for release.
    pub(crate) programs: PathBuf,
    /// Configurations, beside the results.
    pub(crate) configs: PathBuf,
    /// The tree with an NSD that has an XDP mode.
    pub(crate) nsd_xdp: Option<PathBuf>,
}

/// A server that answers.
pub(crate) struct Started {
    pub(crate) server: Server,
    /// Its processes.
    pub(crate) processes: Vec<u32>,
}

/// Starts a server on the rig, and waits until it answers a client.
pub(crate) fn start(
    spec: &Spec,
    rig: &Rig,
    content: &Content,
    folders: &Folders,
) -> Result<Started> {
    let command = command(spec, rig, content, folders)?;
    let serves = spec.serves;
    let ours = spec.program.is_ours();
    let server = Server::start_when(command, START_LIMIT, |said| {
        if ours && !said.contains("try:") {
            return Ok(false);
        }
        rig::probe(rig, || answers(serves))
    })?;
    // A program that is attached may still pass everything on to the kernel.
    if spec.program.uses_xdp() && usage::xdp_sockets(server.id()) == 0 {
        return Err(Failure::new(format!(
            "its XDP mode is not in force, so it would answer from kernel sockets\n{}",
            server.output()
        )));
    }
    let processes = usage::family(server.id());
    if spec.program == (Program::Nginx { busy_poll: true }) {
        for &process in &processes {
            busy_poll::set(process)?;
        }
    }
    Ok(Started { server, processes })
}

fn command(spec: &Spec, rig: &Rig, content: &Content, folders: &Folders) -> Result<Command> {
    let served = match spec.serves {
        Serves::Echo => PathBuf::new(),
        Serves::Zone(names) => content.zone(names)?,
        Serves::Files => content.files()?,
        Serves::Mix => content.mix()?.0,
    };
    if spec.program.is_ours() {
        return Ok(our_command(spec, rig, &served, folders));
    }
    let name = spec.program.name().to_lowercase().replace(' ', "-");
    let config_folder = folders.configs.join(&name);
    // Fresh for each start: no lock or journal of the one before is met.
    let run = content.folder().join("run").join(&name);
    if run.exists() {
        fs::remove_dir_all(&run).context(format_args!("removing {}", run.display()))?;
    }
    for folder in [&config_folder, &run] {
        fs::create_dir_all(folder).context(format_args!("making {}", folder.display()))?;
    }
    let paths = Paths {
        run: &run,
        served: &served,
    };
    let (n, files) = (spec.connections, rig::open_files());
    // What these have is one process, and lighttpd keeps half of its files
    // for what it serves.
    let most = match spec.program {
        Program::Lighttpd => files / 2,
        Program::H2o => files,
        _ => u32::MAX,
    };
    if n > most {
        return Err(Failure::new(format!(
            "{n} connections are more than the {most} that it takes with the {files} files that a \
             process may have open here (ulimit -Hn)"
        )));
    }
    let (text, file) = match spec.program {
        Program::Nginx { .. } => (configs::nginx(&paths, n, files), "nginx.conf"),
        Program::Lighttpd => (configs::lighttpd(&paths, n, files), "lighttpd.conf"),
        Program::H2o => (configs::h2o(&paths, n), "h2o.conf"),
        Program::Nsd { xdp: false } => (configs::nsd(&paths), "nsd.conf"),
        Program::Nsd { xdp: true } => {
            build_memlock(content.folder())?;
            let inner = Paths {
                run: &Path::new(INNER).join("run").join(&name),
                served: &Path::new(INNER).join(served.file_name().unwrap_or_default()),
            };
            (configs::nsd_xdp(&inner), "nsd.conf")
        }
        Program::Knot { xdp } => (configs::knot(&paths, xdp), "knot.conf"),
        Program::Bind => (configs::bind(&paths), "named.conf"),
        Program::Reflect | Program::Namestorm { .. } | Program::Sandstorm { .. } => {
            return Err(Failure::new(format!("{name} needs no configuration")));
        }
    };
    let config = config_folder.join(file);
    fs::write(&config, text).context(format_args!("writing {}", config.display()))?;
    Ok(peer_command(spec.program, rig, &config, content, folders))
}

fn our_command(spec: &Spec, rig: &Rig, served: &Path, folders: &Folders) -> Command {
    let program = |name| rig.server_command(folders.programs.join(name));
    let mut command = match spec.program {
        Program::Namestorm { mode, hash } => {
            let mut command = program("namestorm");
            command.args(["serve", "--mode", mode, "--hash", hash, "--zone"]);
            command.arg(format!("{ORIGIN}={}", served.display()));
            command
        }
        Program::Sandstorm { mode } => {
            let mut command = program("sandstorm");
            command.arg("serve").arg(served).args(["--mode", mode]);
            command
        }
        _ => program("reflect"),
    };
    let mut device = format!("xdp:{SERVER_LINK}");
    if rig.tuning().offloads {
        // A kernel with offloads leaves its checksums to the other end.
        device.push_str(",partial-checksums");
    }
    command.args(["--device", &device]).args(&spec.arguments);
    command
}

fn peer_command(
    program: Program,
    rig: &Rig,
    config: &Path,
    content: &Content,
    folders: &Folders,
) -> Command {
    let (name, before, behind): (&str, &[&str], &[&str]) = match program {
        Program::Lighttpd => ("lighttpd", &["-D", "-f"], &[]),
        Program::H2o => ("h2o", &["-m", "worker", "-c"], &[]),
        Program::Nsd { xdp: false } => ("nsd", &["-d", "-c"], &[]),
        Program::Knot { .. } => ("knotd", &["-c"], &[]),
        Program::Bind => ("named", &["-f", "-n", "1", "-c"], &[]),
        Program::Nsd { xdp: true } => return nsd_xdp_command(rig, config, content, folders),
        _ => ("nginx", &["-e", "stderr", "-c"], &["-g", "daemon off;"]),
    };
    let mut command = rig.server_command(name);
    command.args(before).arg(config).args(behind);
    command
}

/// Where the tree of the other Debian sees what is served, and its
/// configuration.
const INNER: &str = "/mnt";

/// NSD gives its XDP mode up where it may not lift the limit of locked memory,
/// which root in a container may not, and needs not: `CAP_IPC_LOCK` is enough.
/// With this before the C library, lifting that limit succeeds.
const MEMLOCK: &str = "\
#define _GNU_SOURCE
#include <sys/resource.h>
int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
    return resource == RLIMIT_MEMLOCK ? 0 : prlimit(0, resource, limit, 0);
}
int setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *limit)
{
    return resource == RLIMIT_MEMLOCK ? 0 : prlimit64(0, resource, limit, 0);
}
";

/// Compiles [`MEMLOCK`] into `folder`.
fn build_memlock(folder: &Path) -> Result<()> {
    let (source, library) = (folder.join("memlock.c"), folder.join("memlock.so"));
    if library.exists() {
        return Ok(());
    }
    fs::write(&source, MEMLOCK).context(format_args!("writing {}", source.display()))?;
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-shared", "-fPIC", "-o"]);
    shell::capture(compile.arg(&library).arg(&source)).map(drop)
}

/// NSD in its own tree: what it needs of ours is mounted there in a mount
/// namespace that ends with it.
fn nsd_xdp_command(rig: &Rig, config: &Path, content: &Content, folders: &Folders) -> Command {
    const SCRIPT: &str = "\
        mount --bind \"$2\" \"$1/mnt\" && cp \"$3\" \"$1/mnt/nsd.conf\" && \
        mount -t proc proc \"$1/proc\" && mount --rbind /sys \"$1/sys\" && \
        mount -t bpf bpf \"$1/sys/fs/bpf\" && \
        exec chroot \"$1\" env LD_PRELOAD=/mnt/memlock.so nsd -d -c /mnt/nsd.conf";
    let tree = folders.nsd_xdp.clone().unwrap_or_default();
    let mut command = rig.server_command("unshare");
    command
        .args(["--mount", "sh", "-c", SCRIPT, "sh"])
        .arg(tree)
        .arg(content.folder())
        .arg(config);
    command
}

/// Whether a client gets an answer.
fn answers(serves: Serves) -> bool {
    let address: IpAddr = match SERVER_ADDRESS.parse() {
        Ok(address) => address,
        Err(_) => return false,
    };
    let answered = match serves {
        Serves::Echo => return true,
        Serves::Zone(_) => knows_zone(address),
        Serves::Files => has_page(address, "/64.bin"),
        Serves::Mix => has_page(address, "/0.bin"),
    };
    answered.unwrap_or(false)
}

fn knows_zone(address: IpAddr) -> std::io::Result<bool> {
    const SOA: u8 = 6;
    let mut query = vec![0x53, 0x74, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in ORIGIN.split('.') {
        query.push(label.len() as u8);
        query.extend_from_slice(label.as_bytes());
    }
    query.extend_from_slice(&[0, 0, SOA, 0, 1]);
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(PROBE_LIMIT))?;
    socket.connect(SocketAddr::new(address, 53))?;
    socket.send(&query)?;
    let mut reply = [0; 1_500];
    let len = socket.recv(&mut reply)?;
    // A response with the same id, without an error, with an answer.
    Ok(len > query.len()
        && reply[..2] == query[..2]
        && reply[2] & 0x80 != 0
        && reply[3].trailing_zeros() >= 4
        && reply[6..8] != [0, 0])
}

fn has_page(address: IpAddr, path: &str) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::new(address, 80), PROBE_LIMIT)?;
    stream.set_read_timeout(Some(PROBE_LIMIT))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut status = [0; 12];
    stream.read_exact(&mut status)?;
    Ok(status.starts_with(b"HTTP/1.") && status.ends_with(b" 200"))
}

/// The version of an installed Debian package.
pub(crate) fn package_version(package: &str) -> Option<String> {
    package_version_in(Path::new("/"), package)
}

/// The version of a Debian package in a tree.
pub(crate) fn package_version_in(tree: &Path, package: &str) -> Option<String> {
    let mut query = Command::new("dpkg-query");
    query
        .arg("--admindir")
        .arg(tree.join("var/lib/dpkg"))
        .args(["-W", "-f", "${Version}", package]);
    let version = shell::capture_text(&mut query).ok()?;
    (!version.trim().is_empty()).then(|| version.trim().to_owned())
}
