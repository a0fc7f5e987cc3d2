//! Content for the servers: zones, and folders of files, in an in-memory file system.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shell;
use anyhow::{Context as _, Result};
use tempfile::TempDir;

/// Folder of an in-memory file system that every Linux has.
const MEMORY: &str = "/dev/shm";

/// Name of the zone that the DNS servers serve, without the final dot.
pub(crate) const ORIGIN: &str = "bench.test";

/// Form of the load generator's zone that is served as many zones.
pub(crate) const HOSTER: &str = "hoster";

/// Returns the name of one of many zones, without the final dot.
pub(crate) fn origin_of(number: u32) -> String {
    format!("host{number}.{ORIGIN}")
}

/// Sizes in bytes of the files for runs that request only one file. A file's name is `SIZE.bin`.
#[rustfmt::skip]
const FILES: [usize; 7] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 30 << 20];

/// Size in bytes of the text that has compressed forms beside it. Its name is `SIZE.html`.
const TEXT: usize = 16 << 10;
/// Commands that make a compressed form beside a file.
const COMPRESSORS: [(&str, &str); 2] = [("gzip", "-9k"), ("brotli", "-k")];

/// Length in bytes of all files together of a site on the disk, whose files have the same length.
const ON_DISK: u32 = 2 << 30;

/// Number of files in the mix, which imitates the file sizes of a CDN. 9 of 10 files are smaller
/// than [`MIX_KNEE`] bytes.
const MIX_FILES: usize = 1_000;
const MIX_SEED: u64 = 0x5aed_2026;
const MIX_MIN: f64 = 512.0;
const MIX_KNEE: f64 = 25_000.0;
const MIX_MAX: f64 = 20_000_000.0;

/// Files of a comparison. Dropping [`Content`] removes the served files.
pub(crate) struct Content {
    scratch: TempDir,
    /// Folder of the sites on the disk.
    disk: TempDir,
    /// Folder of our release programs.
    pub(super) programs: PathBuf,
    /// Folder of the other servers' configurations, beside the results.
    pub(super) configs: PathBuf,
}

impl Content {
    /// Makes an empty folder in memory, and one beside the results in `folder`. Each file is written at
    /// its first use.
    pub(crate) fn create(programs: PathBuf, folder: &Path) -> Result<Self> {
        Ok(Self {
            scratch: shell::scratch_in(Path::new(MEMORY), "bench")?,
            disk: shell::scratch_in(folder, "disk")?,
            programs,
            configs: folder.join("configs"),
        })
    }

    /// Returns the folder of all content. Servers also write their own files there while they run.
    pub(crate) fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Returns the path of a zone file with `names` names.
    pub(crate) fn zone(&self, names: u32) -> Result<PathBuf> {
        let name = format!("{names}.zone");
        self.once(&name, |path| write(path, zone(names).as_bytes()))
    }

    /// Returns the path of a zone file of a form that the load generator knows. The generator writes
    /// it, because it also checks the answers.
    pub(crate) fn zone_of(&self, form: &str, names: u32) -> Result<PathBuf> {
        self.once(format!("{form}-{names}.zone"), |file| {
            let mut command = Command::new(self.programs.join("load"));
            command.arg("zone").arg(file).args(["--form", form]);
            shell::capture(command.args(["--hosts", &names.to_string()])).map(drop)
        })
    }

    /// Returns a folder with the same zone file for each of `zones` zones. Each file has the name
    /// of its zone.
    pub(crate) fn zones(&self, zones: u32) -> Result<PathBuf> {
        let file = self.zone_of(HOSTER, 1)?;
        self.once(format!("zones-{zones}"), |folder| {
            make(folder)?;
            (0..zones).try_for_each(|number| {
                let link = folder.join(format!("{}.zone", origin_of(number)));
                fs::hard_link(&file, &link).with_context(|| format!("making {}", link.display()))
            })
        })
    }

    /// Returns the path of a file with a question for each name in the zone. Each line has a name
    /// and a type, as third-party generators expect. The names are in the order of [`scattered`].
    pub(crate) fn questions(&self, names: u32) -> Result<PathBuf> {
        let lines = scattered(names).map(|name| format!("host{name}.{ORIGIN} A\n"));
        self.text(&format!("{names}.questions"), &lines.collect::<String>())
    }

    /// Returns the path of the file `name`. At the first call, writes `text` to the file.
    pub(crate) fn text(&self, name: &str, text: &str) -> Result<PathBuf> {
        self.once(name, |path| write(path, text.as_bytes()))
    }

    /// Returns the folder of the files for runs that request only one file.
    pub(crate) fn files(&self) -> Result<PathBuf> {
        self.once("files", |folder| {
            make(folder)?;
            let write = |size| write_body(&folder.join(format!("{size}.bin")), size);
            FILES.into_iter().try_for_each(write)?;
            let text = folder.join(format!("{TEXT}.html"));
            self::write(&text, html(TEXT).as_bytes())?;
            // Without a compressor, the runs that need its form fail.
            for (program, option) in COMPRESSORS {
                if shell::is_installed(program) {
                    shell::capture(Command::new(program).arg(option).arg(&text))?;
                }
            }
            Ok(())
        })
    }

    /// Returns the folder of the mix, and the path of a list of its files with their weights.
    pub(crate) fn mix(&self) -> Result<(PathBuf, PathBuf)> {
        let list = self.folder().join("mix.list");
        let folder = self.once("mix", |folder| {
            make(folder)?;
            let mut text = String::new();
            for (number, size) in mix_sizes().into_iter().enumerate() {
                let _ = writeln!(text, "1 /{number}.bin");
                write_body(&folder.join(format!("{number}.bin")), size)?;
            }
            write(&list, text.as_bytes())
        })?;
        Ok((folder, list))
    }

    /// Returns the folder of a site with `count` small files. The load generator writes it, because
    /// it also checks these files.
    pub(crate) fn numbered(&self, count: u32) -> Result<PathBuf> {
        self.once(format!("numbered-{count}"), |folder| {
            self.write_numbered(folder, &["--count", &count.to_string()])
        })
    }

    /// Returns the folder of a site on the disk whose files have `len` bytes each.
    pub(crate) fn on_disk(&self, len: u32) -> Result<PathBuf> {
        self.once(self.disk.path().join(len.to_string()), |folder| {
            let [count, len] = [files_on_disk(len), len].map(|n| n.to_string());
            self.write_numbered(folder, &["--count", &count, "--length", &len])?;
            // Only what is on the disk can leave the page cache.
            rustix::fs::sync();
            Ok(())
        })
    }

    fn write_numbered(&self, folder: &Path, options: &[&str]) -> Result<()> {
        make(folder)?;
        let mut command = Command::new(self.programs.join("load"));
        shell::capture(command.arg("files").arg(folder).args(options)).map(drop)
    }

    /// Makes what `name` names in the folder of all content, unless it is there. An absolute name is
    /// outside this folder.
    fn once(
        &self,
        name: impl AsRef<Path>,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let path = self.folder().join(name);
        if !path.exists() {
            make(&path)?;
        }
        Ok(path)
    }
}

/// Returns the number of files of a site on the disk whose files have `len` bytes each.
pub(crate) fn files_on_disk(len: u32) -> u32 {
    ON_DISK / len
}

fn make(folder: &Path) -> Result<()> {
    fs::create_dir(folder).with_context(|| format!("making {}", folder.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))
}

/// Writes `size` random bytes, which cannot be compressed.
fn write_body(path: &Path, size: usize) -> Result<()> {
    let mut body = vec![0; size];
    fastrand::Rng::with_seed(size as u64).fill(&mut body);
    write(path, &body)
}

/// Returns `size` bytes of HTML, which can be compressed.
fn html(size: usize) -> String {
    let mut random = fastrand::Rng::with_seed(size as u64);
    let mut text = String::new();
    while text.len() < size {
        let _ = writeln!(text, "<li>item {}</li>", random.u32(..10_000));
    }
    text.truncate(size);
    text
}

/// Returns a zone with one address record for each of `names` hosts.
fn zone(names: u32) -> String {
    let mut zone = format!(
        "$ORIGIN {ORIGIN}.\n$TTL 300\n@ SOA ns host 1 7200 3600 1209600 300\n@ NS ns\n\
         ns A 192.0.2.53\n"
    );
    for i in 0..names {
        let [_, a, b, c] = i.to_be_bytes();
        let _ = writeln!(zone, "host{i} A 10.{a}.{b}.{c}");
    }
    zone
}

/// Returns each number below `count` once. The order is scattered for most counts.
fn scattered(count: u32) -> impl Iterator<Item = u32> {
    // The stride is prime, so it is coprime to every smaller count.
    const STRIDE: u64 = 4_294_967_291;
    (0..u64::from(count)).map(move |i| (i * STRIDE % u64::from(count)) as u32)
}

/// Returns the sizes of the mix's files in shuffled order. They are evenly spaced quantiles of a
/// distribution that is log-uniform below and above [`MIX_KNEE`]. Every call returns the same
/// sizes.
fn mix_sizes() -> Vec<usize> {
    let between = |from: f64, to: f64, part: f64| from * (to / from).powf(part);
    let size = |i: usize| {
        let quantile = (i as f64 + 0.5) / MIX_FILES as f64;
        let size = if quantile < 0.9 {
            between(MIX_MIN, MIX_KNEE, quantile / 0.9)
        } else {
            between(MIX_KNEE, MIX_MAX, (quantile - 0.9) / 0.1)
        };
        // The size is at least `MIX_MIN`, so it is positive.
        #[allow(clippy::cast_sign_loss)]
        let size = size as usize;
        size
    };
    let mut sizes: Vec<usize> = (0..MIX_FILES).map(size).collect();
    fastrand::Rng::with_seed(MIX_SEED).shuffle(&mut sizes);
    sizes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_mix_has_file_sizes_like_those_of_a_cdn() {
        let sizes = mix_sizes();
        let small = sizes.iter().filter(|size| **size < 25_000).count();
        assert_eq!((sizes.len(), small), (1_000, 900));
        let most = sizes.iter().copied().max().unwrap();
        assert!((15_000_000..=20_000_000).contains(&most), "{most}");
        assert_eq!(sizes, mix_sizes());
    }

    #[test]
    fn a_zone_holds_its_names_and_every_name_is_asked_for_once() {
        let zone = zone(300);
        assert!(zone.contains("\nhost299 A 10.0.1.43\n") && zone.lines().count() == 305);
        for count in [1, 2, 10, 1_000] {
            let all: BTreeSet<u32> = scattered(count).collect();
            assert_eq!(all.len(), count as usize);
        }
    }
}
