//! Served content in two versions.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::bench::content::{Content, HOSTER, origin_of};
use crate::bench::servers::Serves;
use crate::shell;

/// Sizes in bytes of the requested files, and how often they are requested.
const FILES: [(usize, u32); 2] = [(1 << 10, 9), (64 << 10, 1)];
/// Number of further files in a large site. Ten of them change.
const MANY: usize = 100_000;
/// Number of files in a folder.
const IN_FOLDER: usize = 1_000;
const CHANGED: usize = 10;
/// Number of the zone that changes among many, and the number of records that it has in addition to
/// those of the other zones. `load dns` asks for this zone most often.
const CHANGED_ZONE: u32 = 67_291;
const RECORDS: usize = 1_000;
/// Ends of the lines with addresses in both versions of a zone, up to the part that is the same in both.
/// The TTLs differ too. `load dns --versions` knows these versions.
const ADDRESSES: [&str; 2] = [" A 10.", " 400 A 11."];
/// The same for a zone among many.
const HOSTER_ADDRESSES: [[&str; 2]; 2] = [
    [" A 192.0.2.80\n", " 400 A 192.0.2.81\n"],
    [" AAAA 2001:db8::80\n", " 400 AAAA 2001:db8::81\n"],
];
/// A file that is written while it is served, and how much is written at a time.
const SLOW: &str = "being-written.bin";
const SLOW_SLICES: usize = 64;

/// A server reads younger files at each reload.
const YOUNG: Duration = Duration::from_secs(2);

/// Content in two versions, and the place from which one of them is served.
pub(super) struct Served {
    /// The served folder or zone file.
    place: PathBuf,
    /// Folder of both versions.
    versions: PathBuf,
    /// Names of the files that change.
    names: Vec<String>,
    is_zone: bool,
}

impl Served {
    /// Makes both versions of what the server serves. `is_much` makes a large site.
    pub(super) fn create(content: &Content, serves: Serves, is_much: bool) -> Result<Self> {
        let versions = content.folder().join("versions");
        if versions.exists() {
            fs::remove_dir_all(&versions).context("removing old versions")?;
        }
        let mut served = Self {
            place: content.folder().to_owned(),
            versions,
            names: Vec::new(),
            is_zone: true,
        };
        for version in 0..2 {
            shell::make_folder(&served.version(version))?;
        }
        if let Serves::Zone(Some(names)) = serves {
            let (zone, [old, new]) = (content.zone(names)?, ADDRESSES);
            // An earlier case may have left its second version.
            let text = shell::read(&zone)?.replace(new, old);
            // In the other version, either all addresses differ, or the last one.
            let other = if is_much {
                let (before, last) = text.rsplit_once(old).context("an empty zone")?;
                format!("{before}{new}{last}")
            } else {
                text.replace(old, new)
            };
            served.names = vec![format!("{names}.zone")];
            served.write_versions([text.as_bytes(), other.as_bytes()], &served.names[0])?;
            return Ok(served);
        }
        if let Serves::ZoneOf(HOSTER, Some(zones)) = serves {
            served.place = content.zones(zones)?;
            let versions = versions_of_hoster(&shell::read(&content.zone_of(HOSTER, 1)?)?);
            served.names = vec![format!("{}.zone", origin_of(CHANGED_ZONE))];
            served.write_versions(versions.each_ref().map(String::as_bytes), &served.names[0])?;
            // All zones are links to one file, whose time changes when one of them is replaced.
            served.change(0)?;
            std::thread::sleep(YOUNG);
            return Ok(served);
        }
        served.place = content.files()?;
        served.is_zone = false;
        let mut list = String::new();
        for (size, weight) in FILES {
            let name = format!("{size}.bin");
            list += &[&weight.to_string(), " /", &name, "\n"].concat();
            served.write_bodies(size, &name)?;
            served.names.push(name);
        }
        content.text("versions.list", &list)?;
        shell::write(&served.place.join(SLOW), b"")?;
        if is_much {
            served.write_many()?;
            std::thread::sleep(YOUNG);
        }
        served.change(0)?;
        Ok(served)
    }

    /// Returns the generator's options.
    pub(super) fn options(&self) -> String {
        if self.is_zone {
            return String::new();
        }
        let [one, other] = [0, 1].map(|version| self.version(version));
        format!(
            " --site {} --other {} --mix {}",
            one.display(),
            other.display(),
            self.versions.with_file_name("versions.list").display()
        )
    }

    /// Asks the server with this control socket to reload the zone that changes.
    pub(super) fn reload_by_name(&self, content: &Content, socket: &Path) -> Result<()> {
        let mut reload = Command::new(content.programs.join("namestorm"));
        reload.args(["reload", self.names[0].trim_end_matches(".zone")]);
        shell::capture(reload.arg("--control-socket").arg(socket)).map(drop)
    }

    /// Serves a version, at the next reload. Each file is replaced at once.
    pub(super) fn change(&self, version: usize) -> Result<()> {
        for name in &self.names {
            let link = self.versions.join("next");
            fs::hard_link(self.version(version).join(name), &link).context("linking a version")?;
            fs::rename(&link, self.place.join(name)).context("replacing a file")?;
            // A link to the same file is not renamed (POSIX). Then this version is served already.
            let _ = fs::remove_file(&link);
        }
        Ok(())
    }

    /// Makes the next reload fail.
    pub(super) fn break_it(&self) -> Result<()> {
        if self.is_zone {
            let broken = self.versions.join("broken");
            shell::write(&broken, b"$ORIGIN bench.test.\n@ SOA broken\n")?;
            let zone = self.place.join(&self.names[0]);
            return fs::rename(&broken, zone).context("replacing a zone");
        }
        fs::rename(&self.place, self.versions.join("away")).context("moving the site away")
    }

    /// Undoes [`break_it`](Self::break_it). A broken zone stays until the next change.
    pub(super) fn mend(&self) -> Result<()> {
        if self.is_zone {
            return Ok(());
        }
        fs::rename(self.versions.join("away"), &self.place).context("moving the site back")
    }

    /// Writes a served file in place, in many slices.
    pub(super) fn write_slowly(&self) -> Result<()> {
        let nap = Duration::from_millis(1);
        // The folder is away for a moment while a version is broken.
        if let Ok(mut file) = fs::File::create(self.place.join(SLOW)) {
            for slice in 0..SLOW_SLICES {
                file.write_all(&[slice as u8; 4_096]).context(SLOW)?;
                std::thread::sleep(nap);
            }
        }
        std::thread::sleep(nap);
        Ok(())
    }

    /// Returns how long `find`, started by `command`, takes to print the size and time of every file.
    /// The time is a median of five.
    pub(super) fn time_of_find(&self, command: &[&str]) -> Result<Duration> {
        let mut times = Vec::new();
        for _ in 0..5 {
            let mut find = Command::new(command[0]);
            find.args(&command[1..])
                .arg(&self.place)
                .args(["-printf", "%s %T@\n"]);
            let start = Instant::now();
            let status = find
                .stdout(Stdio::null())
                .status()
                .context("running find")?;
            anyhow::ensure!(status.success(), "find ended with {status}");
            times.push(start.elapsed());
        }
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }

    fn version(&self, version: usize) -> PathBuf {
        self.versions.join(version.to_string())
    }

    fn write_versions(&self, bodies: [&[u8]; 2], name: &str) -> Result<()> {
        for (version, body) in bodies.into_iter().enumerate() {
            shell::write(&self.version(version).join(name), body)?;
        }
        Ok(())
    }

    /// Writes two versions of `size` random bytes.
    fn write_bodies(&self, size: usize, name: &str) -> Result<()> {
        let bodies = [1, 2].map(|seed| {
            let mut body = vec![0; size];
            fastrand::Rng::with_seed(seed).fill(&mut body);
            body
        });
        self.write_versions([&bodies[0], &bodies[1]], name)
    }

    /// Adds many small files, of which some change.
    fn write_many(&mut self) -> Result<()> {
        for number in 0..MANY {
            let folder = Path::new("many").join((number / IN_FOLDER).to_string());
            let name = folder.join(format!("{number}.txt")).display().to_string();
            if number % IN_FOLDER == 0 {
                for base in [self.place.clone(), self.version(0), self.version(1)] {
                    let folder = base.join(&folder);
                    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
                }
            }
            if number % (MANY / CHANGED) == 0 {
                self.write_bodies(100, &name)?;
                self.names.push(name);
            } else {
                shell::write(&self.place.join(name), number.to_string())?;
            }
        }
        Ok(())
    }
}

/// Returns both versions of the zone that changes among many. `text` is the text of the other
/// zones.
fn versions_of_hoster(text: &str) -> [String; 2] {
    let records = (0..RECORDS).map(|n| format!("host{n} A 10.0.{}.{}\n", n / 256, n % 256));
    let old = records.fold(text.to_owned(), |text, line| text + &line);
    let changed = [ADDRESSES].into_iter().chain(HOSTER_ADDRESSES);
    let new = changed.fold(old.clone(), |text, [old, new]| text.replace(old, new));
    [old, new]
}
