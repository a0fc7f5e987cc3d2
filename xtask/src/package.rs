//! `xtask package`: builds a Debian package of each program, and tries it in a container with systemd.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::shell;

/// The programs, each with a package of its own.
pub(crate) const PROGRAMS: [&str; 3] = ["sandstorm", "namestorm", "storm"];
/// What each package contains. `NAME` stands for the program.
const CONTENT: [&str; 7] = [
    "usr/bin/NAME",
    "etc/NAME/NAME.toml",
    "lib/systemd/system/NAME.service",
    "usr/share/man/man1/NAME.1",
    "usr/share/bash-completion/completions/NAME",
    "usr/share/fish/vendor_completions.d/NAME.fish",
    "usr/share/zsh/vendor-completions/_NAME",
];
/// What the data of each package says about it.
const CONTROL: [&str; 5] = [
    "Package: NAME",
    "Depends: ",
    "/etc/NAME/NAME.toml",
    "adduser --quiet --system",
    "deluser",
];
/// The tools that `xtask package` needs, and those of `--try` with it.
pub(crate) const BUILDERS: [&str; 2] = ["cargo-deb", "dpkg-deb"];
pub(crate) const TRIERS: [&str; 4] = ["cargo-deb", "dpkg-deb", "debootstrap", "systemd-nspawn"];
/// The command with which `xtask test` builds one package, and that with which `--all` tries all.
pub(crate) const IN_TESTS: &str = "package --built sandstorm";
pub(crate) const IN_FULL_TESTS: &str = "package --built --try";
/// Debian packages of the container, besides the essential ones and those of the package's own
/// dependencies.
const CONTAINER: &str = "systemd-sysv,iproute2,curl,bind9-dnsutils,libelf1,zlib1g,adduser,procps";
/// The Debian release of containers and images.
pub(crate) const RELEASE: &str = "bookworm";
/// System calls that the container's own filter must let through.
const CALLS: &str = "bpf seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Use the programs that an earlier release build has left.
    #[arg(long)]
    built: bool,
    /// Install the packages in a container with systemd, start and reload the services, and remove
    /// the packages. This needs root, debootstrap and systemd-container.
    #[arg(long = "try")]
    try_them: bool,
    /// The programs whose packages are built. Without names, all are.
    #[arg(value_parser = PROGRAMS)]
    programs: Vec<String>,
}

#[derive(clap::Args)]
pub(crate) struct Manual {
    /// Folder for the manual pages and the shell completions.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
}

/// Writes the manual pages and the shell completions of all programs.
pub(crate) fn manual(options: &Manual) -> Result<()> {
    for program in PROGRAMS {
        let mut run = shell::cargo();
        run.args(["run", "--quiet", "--package", program, "--"]);
        shell::capture(run.args(["config", "manual"]).arg(&options.out))?;
    }
    println!("written to {}", options.out.display());
    Ok(())
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let named: Vec<_> = options.programs.iter().map(String::as_str).collect();
    let programs = if named.is_empty() {
        &PROGRAMS[..]
    } else {
        &named
    };
    ensure!(
        !options.try_them || programs == PROGRAMS,
        "--try needs the packages of all programs: leave out the names"
    );
    if !options.built {
        shell::build_release("package", programs)?;
    }
    let release = shell::target_folder()?.join("release");
    let outcome = make(options, programs, &release);
    shell::give_back(&release.join("package"));
    outcome
}

/// Builds the packages of these programs, and tries them if the options say so.
fn make(options: &Options, programs: &[&str], release: &Path) -> Result<()> {
    let packages = programs.iter().map(|program| {
        let package = package(program, release)?;
        check(program, &package)?;
        println!("{}", package.display());
        Ok(package)
    });
    let packages = packages.collect::<Result<Vec<_>>>()?;
    if options.try_them {
        try_packages(&packages, &release.join("package"))?;
        println!("the packages work in a container");
    }
    Ok(())
}

/// Builds the package of a program. Returns the path of the package.
pub(crate) fn package(program: &str, release: &Path) -> Result<PathBuf> {
    let folder = release.join("package").join(program);
    let path = release.join(program);
    shell::make_folder(&folder)?;
    shell::capture(Command::new(&path).args(["config", "manual"]).arg(&folder))?;
    let example = shell::capture_text(Command::new(&path).args(["config", "example"]))?;
    let file = folder.join(program).with_extension("toml");
    shell::write(&file, example)?;
    let package = folder.with_extension("deb");
    let mut deb = shell::cargo();
    deb.args([
        "deb",
        "--no-build",
        "--quiet",
        "--package",
        program,
        "--output",
    ]);
    shell::capture(deb.arg(&package)).context("cargo install cargo-deb installs the tool")?;
    Ok(package)
}

/// Checks the list of a package's files, and what it says about itself.
fn check(program: &str, package: &Path) -> Result<()> {
    let ask =
        |words: &[&str]| shell::capture_text(Command::new("dpkg-deb").args(words).arg(package));
    let files = ask(&["--contents"])?;
    let mut control = ask(&["--field"])?;
    for part in ["conffiles", "postinst", "postrm"] {
        let mut info = Command::new("dpkg-deb");
        control += &shell::capture_text(info.arg("--info").arg(package).arg(part))?;
    }
    let missing = |of: &[&str], text: &str| {
        let of = of.iter().map(|one| one.replace("NAME", program));
        of.filter(|one| !text.contains(one)).collect::<Vec<_>>()
    };
    let missing = [missing(&CONTENT, &files), missing(&CONTROL, &control)].concat();
    ensure!(
        missing.is_empty(),
        "{} lacks {}",
        package.display(),
        missing.join(", ")
    );
    Ok(())
}

/// Installs the packages in a new container, which runs `packaging/try.sh` and ends.
fn try_packages(packages: &[PathBuf], folder: &Path) -> Result<()> {
    ensure!(shell::is_root(), "--try needs root");
    let root = folder.join("root");
    remove(&root)?;
    let mut debootstrap = Command::new("debootstrap");
    let include = format!("--include={CONTAINER}");
    debootstrap.args(["--variant=minbase", &include, RELEASE]);
    shell::capture(debootstrap.arg(&root))?;
    let copy = |from: &Path, to: &str| {
        let to = root.join(to);
        fs::copy(from, &to).with_context(|| format!("{} to {}", from.display(), to.display()))
    };
    for package in packages {
        let name = package.file_name().context("a package without a name")?;
        copy(package, &format!("root/{}", name.display()))?;
    }
    let own = shell::repository().join("packaging");
    copy(&own.join("try.sh"), "root/try.sh")?;
    copy(&own.join("try.service"), "etc/systemd/system/try.service")?;
    let target = root.join("etc/systemd/system/multi-user.target.wants");
    shell::make_folder(&target)?;
    std::os::unix::fs::symlink("../try.service", target.join("try.service"))?;
    let mut nspawn = Command::new("timeout");
    nspawn.args([
        "300",
        "systemd-nspawn",
        "--quiet",
        "--register=no",
        "--keep-unit",
        "--boot",
    ]);
    nspawn.args(["--private-network", "--capability=all", "--console=pipe"]);
    nspawn.arg(format!("--system-call-filter={CALLS}"));
    let booted = shell::capture(nspawn.arg("--directory").arg(&root));
    let log = fs::read_to_string(root.join("root/try.log")).unwrap_or_default();
    remove(&root)?;
    booted.context("starting the container")?;
    ensure!(log.ends_with("all is well\n"), "the container says:\n{log}");
    Ok(())
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", folder.display()))
        }
        _ => Ok(()),
    }
}
