//! Fetches Debian packages and unpacks them, without installing them and without the host's own
//! package lists.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::shell;

/// Suite of the mirror that has newer kernels than the host's own suites.
const BACKPORTS: &str = "stable-backports";
/// Keys of Debian's archive, which also sign releases newer than the host's.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Age at which package lists are fetched again.
const MAX_AGE: Duration = Duration::from_hours(24);

/// Package lists of the host's suites and of [`BACKPORTS`], and a folder of unpacked packages.
pub(super) struct Packages {
    folder: PathBuf,
    /// Options that make apt use these lists.
    options: Vec<String>,
}

impl Packages {
    /// Fetches the package lists into `folder`, unless they are recent.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        ensure!(
            shell::is_installed("apt-get") && Path::new(KEYS).is_file(),
            "the guests' kernels come from Debian packages, and this is not Debian"
        );
        let apt = folder.join("apt");
        for part in ["lists/partial", "cache/archives/partial"] {
            shell::make_folder(&apt.join(part))?;
        }
        let sources = apt.join("sources.list");
        let packages = Self {
            folder: folder.to_path_buf(),
            options: vec![
                format!("Dir::Etc::sourcelist={}", sources.display()),
                "Dir::Etc::sourceparts=-".to_owned(),
                format!("Dir::State::Lists={}", apt.join("lists").display()),
                format!("Dir::Cache={}", apt.join("cache").display()),
                // The user of apt's sandbox may not enter the target folder.
                "APT::Sandbox::User=".to_owned(),
            ],
        };
        let fetched = apt.join("fetched");
        let age = std::fs::metadata(&fetched).and_then(|file| file.modified());
        if age.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < MAX_AGE)) {
            return Ok(packages);
        }
        shell::write(&sources, sources_list()?)?;
        println!("guest: fetching package lists");
        shell::capture(packages.apt("apt-get").arg("update"))?;
        shell::write(&fetched, "")?;
        Ok(packages)
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let options = self.options.iter().flat_map(|option| ["-o", option]);
        command.arg("-q").args(options);
        command
    }

    /// Returns the names of all packages that begin with `prefix`.
    pub(super) fn names(&self, prefix: &str) -> Result<Vec<String>> {
        let listing = shell::capture_text(self.apt("apt-cache").args(["pkgnames", prefix]))?;
        Ok(listing.lines().map(str::to_owned).collect())
    }

    /// Returns the packages that `package` depends on.
    pub(super) fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        let listing = shell::capture_text(self.apt("apt-cache").args(["depends", package]))?;
        let name = |line: &str| Some(line.trim().strip_prefix("Depends: ")?.to_owned());
        Ok(listing.lines().filter_map(name).collect())
    }

    /// Returns the folder with the unpacked files of `packages`. Fetches them if the folder does
    /// not exist yet.
    pub(super) fn unpacked(&self, name: &str, packages: &[String]) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        if folder.is_dir() {
            return Ok(folder);
        }
        println!("guest: fetching {}", packages.join(" "));
        let scratch = shell::scratch_in(&self.folder, "unpack")?;
        let (fetched, files) = (scratch.path().join("fetched"), scratch.path().join("files"));
        shell::make_folder(&fetched)?;
        let mut download = self.apt("apt-get");
        download.arg("download").args(packages);
        shell::capture(download.current_dir(&fetched))?;
        for package in std::fs::read_dir(&fetched).context("reading fetched packages")? {
            let package = package.context("reading fetched packages")?.path();
            let mut unpack = Command::new("dpkg-deb");
            shell::capture(unpack.arg("-x").arg(package).arg(&files))?;
        }
        // The folder gets its name last, so that it is complete if it exists.
        std::fs::rename(&files, &folder).with_context(|| folder.display().to_string())?;
        Ok(folder)
    }
}

/// Returns the text of an apt sources.list with the host's Debian suites, and [`BACKPORTS`] from the
/// same mirror.
fn sources_list() -> Result<String> {
    let mut targets = Command::new("apt-get");
    targets.args([
        "indextargets",
        "--format",
        "$(LABEL) $(REPO_URI) $(RELEASE)",
    ]);
    targets.args(["Created-By: Packages", "Origin: Debian"]);
    let targets = shell::capture_text(&mut targets)?;
    let line = |place: &str| format!("deb [signed-by={KEYS}] {place} main");
    let mut lines: Vec<String> = Vec::new();
    for target in targets.lines() {
        let (label, place) = target.split_once(' ').unwrap_or_default();
        lines.push(line(place));
        if label == "Debian" {
            let mirror = place.split(' ').next().unwrap_or_default();
            lines.push(line(&format!("{mirror} {BACKPORTS}")));
        }
    }
    ensure!(
        !lines.is_empty(),
        "apt knows no Debian mirror: run apt-get update"
    );
    lines.sort();
    lines.dedup();
    Ok(lines.join("\n") + "\n")
}
