//! `xtask image`: builds an OCI image of Storm from a Debian root, and tries it in a container.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::package::{self, RELEASE};
use crate::shell;

/// The program in the image. It serves a folder and zones.
const PROGRAM: &str = "storm";
/// Debian packages of the image, besides the essential ones: those that the program's package needs.
const NEEDED: &str = "libelf1,zlib1g,adduser,procps";
/// The tools that build the image.
pub(crate) const BUILDERS: [&str; 3] = ["debootstrap", "buildah", "cargo-deb"];
/// The tools that run it.
pub(crate) const RUNNERS: [&str; 3] = ["crun", "ip", "curl"];
/// The command with which `xtask test --all` tries the image.
pub(crate) const IN_FULL_TESTS: &str = "image --built --try";
/// The image's capabilities, as docs/service.md explains them.
const CAPABILITIES: [&str; 9] = [
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_NET_BIND_SERVICE",
    "CAP_BPF",
    "CAP_PERFMON",
    "CAP_IPC_LOCK",
    "CAP_SETUID",
    "CAP_SETGID",
    "CAP_SETPCAP",
];
/// Maximum time until the container answers, and until it ends.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The addresses of the container and of its client.
const SERVER: &str = "10.9.0.1";
const CLIENT: &str = "10.9.0.2";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Use the programs that an earlier release build has left.
    #[arg(long)]
    built: bool,
    /// Run the image with crun in a network namespace, fetch a page, and stop it.
    #[arg(long = "try")]
    try_it: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(tool) = shell::missing(&BUILDERS) {
        println!("skip the image: {tool} is not installed");
        return Ok(());
    }
    ensure!(shell::is_root(), "this command needs root");
    if !options.built {
        shell::build_release("image", &[PROGRAM])?;
    }
    let release = shell::target_folder()?.join("release");
    let outcome = make(options, &release);
    shell::give_back(&release.join("package"));
    outcome
}

/// Builds the image, and tries it if the options say so.
fn make(options: &Options, release: &Path) -> Result<()> {
    let package = package::package(PROGRAM, release)?;
    let archive = release.join("package").join(format!("{PROGRAM}.oci.tar"));
    let scratch = shell::scratch("image")?;
    let root = scratch.path().join("root");
    install(&root, &package)?;
    let store = Store(scratch.path().join("store"));
    store.build(&root, &archive)?;
    println!("{}", archive.display());
    if options.try_it {
        if let Some(tool) = shell::missing(&RUNNERS) {
            println!("skip the container: {tool} is not installed");
            return Ok(());
        }
        let unpacked = store.unpack(&archive)?;
        let outcome = try_image(&unpacked, scratch.path());
        store.forget()?;
        outcome?;
        println!("the image works in a container");
    }
    Ok(())
}

/// Makes a Debian root with the package in it.
fn install(root: &Path, package: &Path) -> Result<()> {
    let mut debootstrap = Command::new("debootstrap");
    let include = format!("--include={NEEDED}");
    debootstrap.args(["--variant=minbase", &include, RELEASE]);
    shell::capture(debootstrap.arg(root))?;
    let inside = root.join("package.deb");
    fs::copy(package, &inside).with_context(|| format!("copying {}", package.display()))?;
    let mut dpkg = Command::new("chroot");
    dpkg.arg(root).args(["dpkg", "--install", "/package.deb"]);
    shell::capture(&mut dpkg)?;
    fs::remove_file(&inside).context("removing the package from the image")?;
    // Lists and packages that were downloaded are of no use in an image.
    for folder in ["var/cache/apt", "var/lib/apt/lists"] {
        let folder = root.join(folder);
        fs::remove_dir_all(&folder).with_context(|| format!("emptying {}", folder.display()))?;
        shell::make_folder(&folder)?;
    }
    Ok(())
}

/// A store of images, which needs no support of the file system.
struct Store(PathBuf);

impl Store {
    fn buildah(&self) -> Command {
        let mut buildah = Command::new("buildah");
        let [root, run] = ["root", "run"].map(|name| self.0.join(name));
        buildah
            .args(["--storage-driver", "vfs", "--root"])
            .arg(root);
        buildah.arg("--runroot").arg(run);
        buildah
    }

    /// Runs a command of buildah, which prints one line.
    fn ask(&self, words: &[&str]) -> Result<String> {
        let text = shell::capture_text(self.buildah().args(words))?;
        Ok(text.trim().to_owned())
    }

    /// Makes an image from the root, and writes it to an archive.
    fn build(&self, root: &Path, archive: &Path) -> Result<()> {
        let id = self.ask(&["from", "scratch"])?;
        let root = root.display().to_string();
        self.ask(&["copy", "--quiet", &id, &root, "/"])?;
        let entry = format!("[\"/usr/bin/{PROGRAM}\"]");
        let command = format!("serve --config /etc/{PROGRAM}/{PROGRAM}.toml");
        self.ask(&["config", "--entrypoint", &entry, "--cmd", &command, &id])?;
        self.ask(&["config", "--stop-signal", "SIGTERM", &id])?;
        if archive.exists() {
            fs::remove_file(archive).context("removing the old image")?;
        }
        let to = format!("oci-archive:{}:{PROGRAM}:latest", archive.display());
        self.ask(&["commit", "--quiet", "--rm", &id, &to])?;
        Ok(())
    }

    /// Unpacks an archive. Returns the path of its root folder.
    fn unpack(&self, archive: &Path) -> Result<PathBuf> {
        let id = self.ask(&["from", &format!("oci-archive:{}", archive.display())])?;
        Ok(self.ask(&["mount", &id])?.into())
    }

    /// Removes all containers, so that nothing stays mounted.
    fn forget(&self) -> Result<()> {
        self.ask(&["rm", "--all"]).map(drop)
    }
}

/// A network namespace with an interface, and another one for the client. They end with this value.
struct Network {
    names: [String; 2],
}

impl Network {
    fn make() -> Result<Self> {
        let id = std::process::id();
        let network = Self {
            names: ["server", "client"].map(|name| format!("image-{name}-{id}")),
        };
        let [server, client] = &network.names;
        for line in [
            format!("netns add {server}"),
            format!("netns add {client}"),
            format!("-n {server} link add srv0 type veth peer name cli0 netns {client}"),
            format!("-n {server} address add {SERVER}/24 dev srv0"),
            format!("-n {server} link set srv0 up"),
            format!("-n {client} address add {CLIENT}/24 dev cli0"),
            format!("-n {client} link set cli0 up"),
        ] {
            shell::capture(Command::new("ip").args(line.split(' ')))?;
        }
        Ok(network)
    }

    /// Fetches the page as a client. Returns `None` if there is no answer yet.
    fn fetch(&self) -> Option<String> {
        let mut curl = Command::new("ip");
        curl.args(["netns", "exec", &self.names[1], "curl", "-sf", "-m", "5"]);
        shell::capture_text(curl.arg(format!("http://{SERVER}/"))).ok()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            // It may not exist, if making the network has failed.
            let _ = shell::capture(Command::new("ip").args(["netns", "del", name]));
        }
    }
}

/// Runs the image, fetches a page, and stops it.
fn try_image(root: &Path, scratch: &Path) -> Result<()> {
    let network = Network::make()?;
    let [site, settings] = ["site", "settings"].map(|name| scratch.join(name));
    shell::make_folder(&site)?;
    shell::make_folder(&settings)?;
    shell::write(&site.join("index.html"), "a page\n")?;
    let zone = "@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns.example.\n";
    shell::write(&site.join("try.test.zone"), zone)?;
    let toml = "[network]\ndevice = \"xdp:srv0,partial-checksums\"\n[[web]]\nroot = \"/srv\"\n\
                [[dns]]\nzones-from = [\"/srv/*.zone\"]\n";
    shell::write(&settings.join("storm.toml"), toml)?;
    let config = bundle(root, &network.names[0], &site, &settings);
    shell::write(&scratch.join("config.json"), config.to_string())?;
    let mut container = Container::start(scratch)?;
    let start = Instant::now();
    let page = loop {
        if let Some(page) = network.fetch() {
            break page;
        }
        container.check()?;
        ensure!(start.elapsed() < TIMEOUT, "the container gives no answer");
        std::thread::sleep(Duration::from_millis(100));
    };
    ensure!(page == "a page\n", "the container answers {page:?}");
    container.stop()
}

/// Describes a container (OCI runtime specification 1.0). It has no limits on resources, because a
/// runtime that is in a container itself may be unable to set them.
fn bundle(root: &Path, network: &str, site: &Path, settings: &Path) -> Value {
    let bind = |from: &Path, to: &str| json!({"destination": to, "source": from, "type": "bind", "options": ["bind", "ro"]});
    let file = format!("/etc/{PROGRAM}/{PROGRAM}.toml");
    let program = format!("/usr/bin/{PROGRAM}");
    json!({
        "ociVersion": "1.0.2",
        "root": {"path": root, "readonly": true},
        "process": {
            "args": [program, "serve", "--config", file],
            "cwd": "/",
            "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
            "user": {"uid": 0, "gid": 0},
            "noNewPrivileges": true,
            "capabilities": {
                "bounding": CAPABILITIES,
                "effective": CAPABILITIES,
                "permitted": CAPABILITIES,
            },
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro", "nosuid", "nodev", "noexec"]},
            {"destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            bind(site, "/srv"),
            bind(settings, &format!("/etc/{PROGRAM}")),
        ],
        "linux": {
            "namespaces": [
                {"type": "pid"},
                {"type": "mount"},
                {"type": "ipc"},
                {"type": "uts"},
                {"type": "network", "path": format!("/run/netns/{network}")},
            ],
        },
    })
}

/// Runs crun, which keeps its state in a folder. It refuses hosts that have both versions of control
/// groups, so it sees only the newer one.
fn crun(state: &Path) -> Command {
    let enter = "mount -t cgroup2 none /sys/fs/cgroup && exec crun \"$@\"";
    let mut crun = Command::new("unshare");
    crun.args(["--mount", "sh", "-c", enter, "crun", "--root"]);
    crun.arg(state);
    crun
}

/// A running container. It ends with this value.
struct Container {
    id: String,
    run: Child,
    state: PathBuf,
}

impl Container {
    fn start(bundle: &Path) -> Result<Self> {
        let id = format!("image-{}", std::process::id());
        let state = bundle.join("state");
        let mut run = crun(&state);
        run.args(["--cgroup-manager=disabled", "run", "--bundle"]);
        run.arg(bundle).arg(&id);
        let run = run.stdin(Stdio::null()).spawn().context("starting crun")?;
        Ok(Self { id, run, state })
    }

    /// Fails if the container has ended.
    fn check(&mut self) -> Result<()> {
        if let Some(status) = self.run.try_wait()? {
            bail!("the container has ended: {status}");
        }
        Ok(())
    }

    fn signal(&self, name: &str) -> Result<Vec<u8>> {
        shell::capture(crun(&self.state).args(["kill", &self.id, name]))
    }

    /// Asks the server to stop, and waits for its end.
    fn stop(mut self) -> Result<()> {
        self.signal("TERM")?;
        let start = Instant::now();
        loop {
            if let Some(status) = self.run.try_wait()? {
                ensure!(status.success(), "the container ends badly: {status}");
                return Ok(());
            }
            ensure!(start.elapsed() < TIMEOUT, "the container does not end");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if matches!(self.run.try_wait(), Ok(None)) {
            // The container may end at this moment.
            let _ = self.signal("KILL");
            let _ = self.run.wait();
        }
    }
}
