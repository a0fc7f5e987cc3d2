//! `xtask bench dns-load`: how long zones take to load, and how much memory they take.
//!
//! Namestorm and NSD start in turn, and may use both cores. The time is that from the start of the process until
//! a client has the right answer. The memory is that of all processes a second later. Some zones then change, and
//! the time until the new answer counts from just before the signal or the command.

mod marks;
mod probe;
mod zones;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;

use super::peers::{self, fill_zones};
use super::rig::{self, Rig, SERVER_ADDRESS, Tuning};
use super::servers::is_installed;
use super::{machine, usage};
use crate::netns::SERVER_LINK;
use crate::server::Server;
use crate::{interrupt, shell};
use marks::Findings;
use probe::Probe;
use zones::{Body, FIRST, Zones};

/// Options of `cargo xtask bench dns-load`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// Do not install packages or build programs.
    #[arg(long, hide = true)]
    pub(super) built: bool,

    /// Run only cases whose name contains this text.
    #[arg(default_value = "", hide_default_value = true)]
    filter: String,
}

/// Folder of an in-memory file system, for the zones.
const MEMORY: &str = "/dev/shm";
/// Time from the first answer until the memory is measured.
const REST: Duration = Duration::from_secs(1);
/// Namestorm reads younger files again at the first reload.
const YOUNG: Duration = Duration::from_secs(2);
/// The servers, in the order of all pairs of values.
const SERVERS: [&str; 2] = ["namestorm", "NSD"];

/// How a server learns that a zone has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Hup,
    /// The command `reload NAME`.
    Named,
}

/// Zones to load, and the marks for them.
struct Case {
    name: &'static str,
    body: Body,
    /// Number of starts of each server.
    repeats: u32,
    /// Reloads after each start of Namestorm.
    reloads: &'static [Ask],
    /// Whether the memory has a mark.
    is_measured: bool,
}

impl Case {
    const fn new(name: &'static str, body: Body) -> Self {
        Self {
            name,
            body,
            repeats: 3,
            reloads: &[],
            is_measured: true,
        }
    }
}

use Ask::{Hup, Named};

const CASES: &[Case] = &[
    Case {
        reloads: &[Hup],
        ..Case::new("1,000,000 names", Body::Hosts(1_000_000))
    },
    Case::new("250,000 names of 4 types", Body::Types(250_000)),
    Case::new("300,000 delegations", Body::Delegations(300_000)),
    Case::new("200,000 aliases to 60 addresses", Body::Addresses(200_000)),
    Case::new("20,000 aliases to a text of 48 kB", Body::Text(20_000)),
    Case {
        reloads: &[Hup, Named, Hup, Named, Hup, Named],
        ..Case::new("100,000 zones", Body::Zones(100_000))
    },
    Case::new("150,000 names, NSEC", Body::Signed(150_000, "")),
    Case::new("150,000 names, NSEC3", Body::Signed(150_000, "-n -t 0")),
    Case {
        repeats: 1,
        is_measured: false,
        ..Case::new("10,000,000 names", Body::Hosts(10_000_000))
    },
];

/// Measures all cases, and writes them as tables.
pub(crate) fn run(options: &Options, target: &Path, folder: &Path) -> Result<()> {
    let busy = machine::busy_before()?;
    let mut all = Vec::new();
    let mut missing = Vec::new();
    let count = if is_installed("nsd") { 2 } else { 1 };
    if count == 1 {
        missing.push("NSD: skipped, as it is not installed".to_owned());
    }
    for case in CASES {
        if !case.name.contains(&options.filter) {
            continue;
        }
        match case.measure(&target.join("release"), count) {
            Ok(findings) => {
                eprintln!("dns-load: {}", findings.row().join(" | "));
                all.push(findings);
            }
            Err(failure) => {
                interrupt::check()?;
                eprintln!("dns-load: {}: {failure:#}", case.name);
                let failure = format!("{failure:#}");
                let first = failure.lines().next().unwrap_or_default();
                missing.push(format!("{}: {first}", case.name));
            }
        }
    }
    let page = marks::page(&busy, &all, &missing);
    shell::write(&folder.join("dns-load.md"), &page)?;
    println!("{page}");
    match missing.len() {
        0 => Ok(()),
        n => bail!("{n} cases or servers are missing"),
    }
}

/// Folders and files of a case.
struct Place<'a> {
    zones: Zones<'a>,
    run: PathBuf,
    namestorm: PathBuf,
}

impl Case {
    /// Starts the first `count` servers several times, in turn.
    fn measure(&self, programs: &Path, count: usize) -> Result<Findings> {
        let is_signed = matches!(self.body, Body::Signed(..));
        if is_signed && !is_installed("ldns-signzone") {
            bail!("skipped, as ldns-signzone is not installed");
        }
        let scratch = shell::scratch_in(Path::new(MEMORY), "load")?;
        let [folder, run] = ["zones", "run"].map(|name| scratch.path().join(name));
        shell::make_folder(&folder)?;
        shell::make_folder(&run)?;
        let place = Place {
            zones: Zones::write(&folder, self.body)?,
            run,
            namestorm: programs.join("namestorm"),
        };
        std::thread::sleep(YOUNG);
        let mut findings = Findings::new(self);
        for _ in 0..self.repeats {
            for (which, name) in SERVERS.into_iter().enumerate().take(count) {
                interrupt::check()?;
                self.start(which, &place, &mut findings).context(name)?;
            }
        }
        Ok(findings)
    }

    /// Starts a server, measures it, and stops it. Adds to `findings`.
    fn start(&self, which: usize, place: &Place<'_>, findings: &mut Findings) -> Result<()> {
        if !self.reloads.is_empty() {
            place.zones.change(FIRST)?;
        }
        let rig = Rig::build(Tuning::default())?;
        let probe = Probe::open(&rig)?;
        let is_ours = which == 0;
        let mut command = if is_ours {
            place.namestorm(&rig)
        } else {
            place.nsd(&rig)?
        };
        let start = Instant::now();
        let mut server = Server::spawn(&mut command)?;
        let taken = probe.wait(&mut server, &place.zones.last(), FIRST, start)?;
        findings.seconds[which].push(taken.as_secs_f64());
        std::thread::sleep(REST);
        findings.memory[which].push(probe::memory(&server)?);
        if !is_ours {
            // If only the first process is killed, its workers survive.
            let processes = usage::family(server.id().cast_signed());
            processes.into_iter().for_each(rig::kill);
            return server.stop(Signal::KILL).map(drop);
        }
        let output = server.output();
        let progress = |line: &&str| line.starts_with("loading, ");
        findings.progress += output.lines().filter(progress).count();
        for (ask, version) in self.reloads.iter().zip(FIRST + 1..) {
            let zone = place.zones.changed();
            place.zones.change(version)?;
            let start = Instant::now();
            match ask {
                Ask::Hup => server.signal(Signal::HUP)?,
                Ask::Named => place.reload(&zone)?,
            }
            let taken = probe.wait(&mut server, &zone, version, start)?;
            findings.reloads.push((*ask, taken.as_secs_f64() * 1e3));
            // The server does some work after the new content is served.
            std::thread::sleep(REST);
        }
        server.stop_well().map(drop)
    }
}

impl Place<'_> {
    fn socket(&self) -> PathBuf {
        self.run.join("socket")
    }

    fn namestorm(&self, rig: &Rig) -> Command {
        let mut command = both_cores(rig, &self.namestorm);
        // With this variable, each process keeps the program's line tables: 60 MB.
        command.env_remove("RUST_BACKTRACE");
        command.args(["serve", "--drain", "0", "--rate-limit", "0"]);
        command.arg("--device").arg(format!("xdp:{SERVER_LINK}"));
        command.arg("--control-socket").arg(self.socket());
        command.args(self.zones.options().split_whitespace());
        command
    }

    fn nsd(&self, rig: &Rig) -> Result<Command> {
        let words = [
            ("address", SERVER_ADDRESS.to_owned()),
            ("run", self.run.display().to_string()),
            ("limit", "0".to_owned()),
        ];
        let config = self.run.join("nsd.conf");
        shell::write(&config, fill_zones(peers::NSD, &words, self.zones.all()))?;
        let mut command = both_cores(rig, Path::new("nsd"));
        command.args(["-d", "-c"]).arg(&config);
        Ok(command)
    }

    /// Asks Namestorm to reload this zone.
    fn reload(&self, zone: &str) -> Result<()> {
        let mut reload = Command::new(&self.namestorm);
        reload.args(["reload", zone, "--control-socket"]);
        shell::capture(reload.arg(self.socket())).map(drop)
    }
}

/// Returns a command that runs `program` on the server's side, on both cores.
fn both_cores(rig: &Rig, program: &Path) -> Command {
    let cores = format!("{},{}", rig::SERVER_CORE, rig::CLIENT_CORE);
    let mut command = rig.server_command("taskset");
    command.args(["-c", &cores]).arg(program);
    command
}
