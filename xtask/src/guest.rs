//! `xtask guest`: tests both servers in small guests, on kernels and drivers that the host lacks.
//!
//! QEMU emulates the guests without KVM. Their kernels come from Debian packages, which are fetched
//! but not installed.

mod cases;
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
use cases::{Case, System};
use costs::Costs;
use kernel::{Choice, Kernel};
use network::Network;
use packages::Packages;

/// Debian packages of the programs that run the guests.
const TOOLS: [&str; 2] = ["qemu-system-x86", "cpio"];
/// Package of the guests' shell.
const BUSYBOX: &str = "busybox-static";
/// The command with which `xtask test` runs one case.
pub(crate) const IN_TESTS: &str = "guest --built --exact zero-copy";
/// Number of lines of the guest's output to show after a failure.
const SHOWN_LINES: usize = 40;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only print the names of the cases.
    #[arg(long)]
    list: bool,
    /// Also run the cases that need netmap, with this `netmap.ko` for a kernel of Debian. If a
    /// `virtio_net.ko` with native netmap lies beside it, the guests use it.
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
    if !options.built {
        setup::run()?;
        for (package, failure) in setup::install_quietly(&TOOLS) {
            eprintln!("guest: cannot install {package}: {failure:#}");
        }
        shell::build_release("guest", &["sandstorm", "namestorm"])?;
    }
    if !shell::is_root() {
        return shell::again_as_root("guest");
    }
    let folder = shell::target_folder()?.join("guest");
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
    let mut lab = Lab::open(folder, options)?;
    let mut checks = Checks::default();
    for case in cases {
        interrupt::check()?;
        if let Some(reason) = lab.lacks(case.system) {
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
    for line in lab.costs.lines() {
        println!("{line}");
    }
    Ok(checks)
}

/// Everything that cases share.
struct Lab {
    folder: PathBuf,
    packages: Packages,
    busybox: PathBuf,
    /// The user's `netmap.ko`, and the `virtio_net.ko` beside it.
    modules: Vec<PathBuf>,
    icount: bool,
    costs: Costs,
    /// Image and initial RAM file system of each kernel that has been prepared.
    kernels: BTreeMap<Choice, (PathBuf, PathBuf)>,
}

impl Lab {
    fn open(folder: &Path, options: &Options) -> Result<Self> {
        let modules = options.netmap_module.iter().flat_map(|netmap| {
            let virtio = netmap.with_file_name("virtio_net.ko");
            [
                Some(netmap.clone()),
                Some(virtio).filter(|path| kernel::needs_netmap(path)),
            ]
        });
        let packages = Packages::open(folder)?;
        let busybox = packages.unpacked(BUSYBOX, &[BUSYBOX.to_owned()])?;
        let busybox = ["bin/busybox", "usr/bin/busybox"].map(|path| busybox.join(path));
        let busybox = busybox.into_iter().find(|path| path.is_file());
        Ok(Self {
            folder: folder.to_path_buf(),
            packages,
            busybox: busybox.context("the package has no busybox")?,
            modules: modules.flatten().collect(),
            icount: options.icount,
            costs: Costs::default(),
            kernels: BTreeMap::new(),
        })
    }

    fn log(&self, case: &Case) -> PathBuf {
        self.folder.join(format!("{}.log", case.name))
    }

    /// Returns why cases of this kind cannot run, if they cannot.
    fn lacks(&self, system: System) -> Option<&'static str> {
        match (system, self.modules.len()) {
            (System::Netmap | System::Native, 0) => Some("it needs --netmap-module"),
            (System::Native, 1) => Some("no virtio_net.ko lies beside the netmap module"),
            _ => None,
        }
    }

    /// Returns a kernel's image and initial RAM file system.
    fn kernel(&mut self, system: System) -> Result<(PathBuf, PathBuf)> {
        let (choice, extra) = match system {
            System::Stable => (Choice::Stable, &[][..]),
            System::Newest => (Choice::Newest, &[][..]),
            System::Netmap | System::Native => {
                let release = kernel::release_of_module(&self.modules[0])?;
                (Choice::Release(release), &self.modules[..])
            }
        };
        if let Some(known) = self.kernels.get(&choice) {
            return Ok(known.clone());
        }
        let kernel = Kernel::fetch(&choice, &self.packages)?;
        let programs = shell::target_folder()?.join("release");
        let initramfs = initramfs::make(&kernel, &self.busybox, &programs, extra, &self.folder)?;
        let prepared = (kernel.image()?, initramfs);
        self.kernels.insert(choice, prepared.clone());
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
                network: network.card(case, number),
                log,
            };
            machine::Guest::boot(&machine, network.qemu())
        };
        let guest = boot(0, self.log(case))?;
        let costs = Some(&mut self.costs).filter(|_| self.icount);
        if case.has_client_guest {
            let peer = boot(1, self.folder.join(format!("{}-client.log", case.name)))?;
            for command in exchange::configure("eth0", exchange::CLIENT, case.mtu) {
                peer.run(&command)?;
            }
            exchange::run(case, &guest, &|line| peer.run(line), checks, costs)?;
            peer.power_off()?;
        } else {
            exchange::run(case, &guest, &|line| network.run(line), checks, costs)?;
        }
        checks.check("the guest's kernel reports no fault", || guest.power_off());
        Ok(())
    }
}
