//! `xtask guest`: tests both servers in small guests, on kernels and drivers that the host lacks.
//!
//! QEMU emulates the guests without KVM. Their kernels come from Debian packages, which are fetched
//! but not installed.

mod cases;
mod contract;
mod costs;
mod exchange;
mod initramfs;
mod kernel;
mod machine;
mod network;
mod packages;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::e2e::checks::Checks;
use crate::{interrupt, setup, shell};
use cases::{Case, Client, System};
use costs::Costs;
use initramfs::Content;
use kernel::{Choice, Kernel};
use network::Network;
use packages::Packages;

/// Debian packages of the programs that run the guests.
const TOOLS: [&str; 2] = ["qemu-system-x86", "cpio"];
/// The package, also needed to measure costs, that sends many queries at once.
const LOAD: &str = "dnsperf";
/// Package of the guests' shell.
const BUSYBOX: &str = "busybox-static";
/// The command with which `xtask test` runs one case.
pub(crate) const IN_TESTS: &str = "guest --built --exact zero-copy";
/// Our programs.
const SERVERS: [&str; 2] = ["sandstorm", "namestorm"];
/// netmap's programs that connect two ports.
const JOINTS: [&str; 2] = ["vale-ctl", "bridge"];
/// Number of lines of the guest's output to show after a failure.
const SHOWN_LINES: usize = 40;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only print the names of the cases.
    #[arg(long)]
    list: bool,
    /// Also run the cases that need netmap, with this `netmap.ko` for a kernel of Debian. Some of
    /// them need the build's programs, or a `virtio_net.ko` with native netmap beside it.
    #[arg(long, value_name = "PATH")]
    netmap_module: Option<PathBuf>,
    /// Also measure what the servers cost, in instructions. The guests get one core.
    #[arg(long)]
    icount: bool,
    /// Run only the case with exactly this name.
    #[arg(long)]
    exact: bool,
    /// Do not install packages or build programs.
    #[arg(long, hide = true)]
    built: bool,
    /// Run only cases whose name contains this text.
    #[arg(default_value = "", hide_default_value = true)]
    filter: String,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut cases: Vec<Case> = Case::all().collect();
    cases.retain(|case| {
        let name = case.name;
        name == options.filter || !options.exact && name.contains(&options.filter)
    });
    if options.list {
        for case in &cases {
            println!("{}", case.name);
        }
        return Ok(());
    }
    ensure!(
        cfg!(target_arch = "x86_64"),
        "the guests are x86-64 machines, and they run the host's programs"
    );
    let folder = shell::target_folder()?.join("guest");
    if !options.built {
        setup::run()?;
        let load = Some(LOAD).filter(|_| options.icount);
        let tools: Vec<&str> = TOOLS.into_iter().chain(load).collect();
        for (package, failure) in setup::install_quietly(&tools) {
            eprintln!("guest: cannot install {package}: {failure:#}");
        }
        shell::build_release("guest", &SERVERS)?;
        if cases.iter().any(|case| case.client == Client::Test) {
            contract::build(&folder)?;
        }
    }
    if !shell::is_root() {
        return shell::again_as_root("guest");
    }
    let checks = run_cases(&cases, options, &folder);
    shell::give_back(&folder);
    let checks = checks?;
    println!("{checks}");
    ensure!(checks.failed() == 0, "{} checks failed", checks.failed());
    Ok(())
}

/// Returns a command that succeeds if `xtask test` can run a guest.
pub(crate) fn probe() -> Command {
    let mut command = Command::new("which");
    command.args(["qemu-system-x86_64", "cpio", "apt-get", "dpkg-deb"]);
    // Guests run the host's programs.
    command.args((!cfg!(target_arch = "x86_64")).then_some("no-such-guest"));
    command
}

fn run_cases(cases: &[Case], options: &Options, folder: &Path) -> Result<Checks> {
    shell::make_folder(folder)?;
    let begin = Instant::now();
    let mut lab = Lab::open(folder, options)?;
    let mut checks = Checks::default();
    for case in cases {
        interrupt::check()?;
        if let Some(reason) = lab.lacks(case) {
            println!("skip {}: {reason}", case.name);
            continue;
        }
        let (start, mut some) = (Instant::now(), Checks::default());
        if let Err(failure) = lab.run(case, &mut some) {
            interrupt::check()?;
            some.fail("the case itself", &format!("{failure:#}"));
        }
        if some.failed() > 0 {
            let log = std::fs::read(lab.log(case)).unwrap_or_default();
            let log = String::from_utf8_lossy(&log).into_owned();
            some.note(&shell::end_of(&log, SHOWN_LINES));
        }
        some.print(case.name, None, start.elapsed());
        checks.add(some);
    }
    print!("{}", lab.costs.table());
    println!("all guests: {} s", begin.elapsed().as_secs());
    Ok(checks)
}

/// Everything that cases share.
struct Lab {
    folder: PathBuf,
    packages: Packages,
    busybox: PathBuf,
    netmap: Option<Netmap>,
    icount: bool,
    costs: Costs,
    /// Image and initial RAM file system of each kernel that has been prepared.
    kernels: BTreeMap<System, (PathBuf, PathBuf)>,
}

impl Lab {
    fn open(folder: &Path, options: &Options) -> Result<Self> {
        let packages = Packages::open(folder)?;
        let busybox = packages.unpacked(BUSYBOX, &[BUSYBOX.to_owned()])?;
        let busybox = ["bin/busybox", "usr/bin/busybox"].map(|path| busybox.join(path));
        let busybox = busybox.into_iter().find(|path| path.is_file());
        Ok(Self {
            folder: folder.to_path_buf(),
            packages,
            busybox: busybox.context("the package has no busybox")?,
            netmap: options.netmap_module.clone().map(Netmap::new),
            icount: options.icount,
            costs: Costs::default(),
            kernels: BTreeMap::new(),
        })
    }

    fn log(&self, case: &Case) -> PathBuf {
        self.folder.join(format!("{}.log", case.name))
    }

    /// Returns why a case cannot run, if it cannot.
    fn lacks(&self, case: &Case) -> Option<String> {
        if self.icount && case.queues > 1 {
            return Some("a guest with one core has one queue".to_owned());
        }
        if !self.icount && case.is_of_batches() {
            return Some("it only measures, with --icount".to_owned());
        }
        if case.client == Client::Test && !contract::program(&self.folder).is_file() {
            return Some("its test is not built".to_owned());
        }
        let is_native = match case.system {
            System::Stable | System::Newest => return None,
            System::Netmap => false,
            System::Native => true,
        };
        let Some(netmap) = &self.netmap else {
            return Some("it needs --netmap-module".to_owned());
        };
        if is_native && netmap.native_driver().is_none() {
            return Some("no virtio_net.ko for netmap lies beside the module".to_owned());
        }
        let (program, _) = case.joint()?;
        let is_there = netmap.program(program).is_some();
        (!is_there).then(|| format!("no build-apps/{program}/{program} lies beside the module"))
    }

    /// Returns a kernel's image and initial RAM file system.
    fn kernel(&mut self, system: System) -> Result<(PathBuf, PathBuf)> {
        if let Some(known) = self.kernels.get(&system) {
            return Ok(known.clone());
        }
        let netmap = match (&self.netmap, system) {
            (Some(netmap), System::Netmap | System::Native) => Some(netmap),
            _ => None,
        };
        let choice = match netmap {
            Some(netmap) => Choice::Release(kernel::release_of_module(&netmap.module)?),
            None if system == System::Stable => Choice::Stable,
            None => Choice::Newest,
        };
        let kernel = Kernel::fetch(&choice, &self.packages)?;
        let mut content = Content::default();
        let programs = shell::target_folder()?.join("release");
        content
            .programs
            .extend(SERVERS.map(|name| programs.join(name)));
        content.programs.push(contract::program(&self.folder));
        if let Some(netmap) = netmap {
            content.modules.push(netmap.module.clone());
            let driver = netmap.native_driver();
            content
                .modules
                .extend(driver.filter(|_| system == System::Native));
            content
                .programs
                .extend(JOINTS.iter().filter_map(|name| netmap.program(name)));
        }
        content.programs.retain(|program| program.is_file());
        let file = self.folder.join(format!("{system:?}.cpio").to_lowercase());
        initramfs::make(&kernel, &self.busybox, &content, &self.folder, &file)?;
        let prepared = (kernel.image()?, file);
        self.kernels.insert(system, prepared.clone());
        Ok(prepared)
    }

    fn run(&mut self, case: &Case, checks: &mut Checks) -> Result<()> {
        let (image, initramfs) = self.kernel(case.system)?;
        let network = Network::new(case)?;
        let boot = |number: u32, log: PathBuf| {
            let machine = machine::Machine {
                image: &image,
                initramfs: &initramfs,
                cores: if self.icount { 1 } else { case.queues },
                counts_instructions: self.icount,
                network: network.cards(case, number),
                log,
            };
            machine::Guest::boot(&machine, network.qemu())
        };
        let guest = boot(0, self.log(case))?;
        // The other guest has no program that sends many queries at once.
        let measured = self.icount && case.client == Client::Host;
        let costs = Some(&mut self.costs).filter(|_| measured);
        match case.client {
            Client::Host => {
                exchange::run(case, &guest, &|line| network.run(line), checks, costs)?;
            }
            Client::Guest => {
                let peer = boot(1, self.folder.join(format!("{}-client.log", case.name)))?;
                for command in exchange::configure("eth0", exchange::CLIENT, case.mtu) {
                    peer.run(&command)?;
                }
                exchange::run(case, &guest, &|line| peer.run(line), checks, costs)?;
                peer.power_off()?;
            }
            Client::Test => contract::run(case, &guest, checks)?,
        }
        checks.check("the guest's kernel reports no fault", || guest.power_off());
        Ok(())
    }
}

/// The user's build of netmap.
struct Netmap {
    /// The file `netmap.ko`. The build's other results lie beside it.
    module: PathBuf,
}

impl Netmap {
    fn new(module: PathBuf) -> Self {
        Self { module }
    }

    /// Returns the driver with native netmap, if there is one.
    fn native_driver(&self) -> Option<PathBuf> {
        let driver = self.module.with_file_name("virtio_net.ko");
        Some(driver).filter(|driver| kernel::needs_netmap(driver))
    }

    /// Returns the file of one of netmap's programs, if there is one.
    fn program(&self, name: &str) -> Option<PathBuf> {
        let program = self
            .module
            .with_file_name("build-apps")
            .join(name)
            .join(name);
        Some(program).filter(|program| program.is_file())
    }
}
