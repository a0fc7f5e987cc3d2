//! What is served: zones, and folders of files, in memory.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use crate::shell::{Context as _, Result, Scratch};

/// A file system in memory, on every Linux.
const MEMORY: &str = "/dev/shm";

/// The zone's name, without the dot behind it.
pub(crate) const ORIGIN: &str = "bench.test";

/// Sizes of the single files, in bytes, by the names that they have.
pub(crate) const FILES: &[(&str, usize)] = &[
    ("64", 64),
    ("1k", 1 << 10),
    ("4k", 4 << 10),
    ("16k", 16 << 10),
    ("64k", 64 << 10),
    ("256k", 256 << 10),
    ("1m", 1 << 20),
    ("30m", 30 << 20),
];

/// Files of the mix, and its seed.
const MIX_FILES: usize = 1_000;
const MIX_SEED: u64 = 0x5aed_2026;

/// The mix: 9 of 10 files below `MIX_KNEE` bytes, the rest up to `MIX_MOST`.
const MIX_LEAST: f64 = 512.0;
const MIX_KNEE: f64 = 25_000.0;
const MIX_MOST: f64 = 20_000_000.0;

/// Everything that is served; removed when dropped.
pub(crate) struct Content {
    scratch: Scratch,
}

impl Content {
    /// An empty place in memory. What is in it is made when it is asked for.
    pub(crate) fn create() -> Result<Self> {
        let memory = Path::new(MEMORY);
        let scratch = if memory.is_dir() {
            Scratch::create_in(memory, "bench")?
        } else {
            Scratch::create("bench")?
        };
        Ok(Self { scratch })
    }

    /// Room for what servers write while they run.
    pub(crate) fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// The file of a zone of `names` names.
    pub(crate) fn zone(&self, names: u32) -> Result<PathBuf> {
        let path = self.folder().join(format!("{ORIGIN}-{names}.zone"));
        if !path.exists() {
            fs::write(&path, zone(names)).context(format_args!("writing {}", path.display()))?;
        }
        Ok(path)
    }

    /// A file of all the zone's names with their type, one a line, as other
    /// generators read it, in an order that leaps about in the zone.
    pub(crate) fn questions(&self, names: u32) -> Result<PathBuf> {
        let path = self.folder().join(format!("{ORIGIN}-{names}.questions"));
        if !path.exists() {
            let mut text = String::new();
            for name in scattered(names) {
                let _ = writeln!(text, "host{name}.{ORIGIN} A");
            }
            fs::write(&path, text).context(format_args!("writing {}", path.display()))?;
        }
        Ok(path)
    }

    /// The folder of the single files.
    pub(crate) fn files(&self) -> Result<PathBuf> {
        let folder = self.folder().join("files");
        if !folder.exists() {
            fs::create_dir(&folder).context(format_args!("making {}", folder.display()))?;
            for &(name, size) in FILES {
                write_body(&folder.join(format!("{name}.bin")), size, size as u64)?;
            }
        }
        Ok(folder)
    }

    /// The folder of the mix, and the list of its files with their weights.
    pub(crate) fn mix(&self) -> Result<(PathBuf, PathBuf)> {
        let folder = self.folder().join("mix");
        let list = self.folder().join("mix.list");
        if !folder.exists() {
            fs::create_dir(&folder).context(format_args!("making {}", folder.display()))?;
            let mut text = String::new();
            for (number, size) in mix_sizes().into_iter().enumerate() {
                let name = format!("{number}.bin");
                write_body(&folder.join(&name), size, number as u64)?;
                let _ = writeln!(text, "1 /{name}");
            }
            fs::write(&list, text).context(format_args!("writing {}", list.display()))?;
        }
        Ok((folder, list))
    }
}

/// A zone of `names` addresses.
fn zone(names: u32) -> String {
    let mut zone = format!(
        "$ORIGIN {ORIGIN}.\n$TTL 300\n@ SOA ns host 1 7200 3600 1209600 300\n@ NS ns\n\
         ns A 192.0.2.53\n"
    );
    for i in 0..names {
        let _ = writeln!(
            zone,
            "host{i} A 10.{}.{}.{}",
            i >> 16 & 255,
            i >> 8 & 255,
            i & 255
        );
    }
    zone
}

/// Numbers below `count`, each once.
fn scattered(count: u32) -> impl Iterator<Item = u32> {
    // Prime, so that it has no divisor in common with a count below it.
    const STRIDE: u64 = 4_294_967_291;
    (0..u64::from(count)).map(move |i| (i * STRIDE % u64::from(count)) as u32)
}

/// The sizes of the mix's files: log-uniform below the knee and above it, at
/// evenly spaced quantiles, in an order of no meaning. Always the same.
fn mix_sizes() -> Vec<usize> {
    let between = |from: f64, to: f64, part: f64| (from.ln() + (to / from).ln() * part).exp();
    let mut sizes: Vec<usize> = (0..MIX_FILES)
        .map(|i| {
            let quantile = (i as f64 + 0.5) / MIX_FILES as f64;
            let size = if quantile < 0.9 {
                between(MIX_LEAST, MIX_KNEE, quantile / 0.9)
            } else {
                between(MIX_KNEE, MIX_MOST, (quantile - 0.9) / 0.1)
            };
            // Between the least and the most: never below 0.
            #[allow(clippy::cast_sign_loss)]
            let size = size as usize;
            size
        })
        .collect();
    let mut random = Xorshift(MIX_SEED);
    for i in (1..sizes.len()).rev() {
        sizes.swap(i, (random.next() % (i as u64 + 1)) as usize);
    }
    sizes
}

/// Bytes that nothing can compress.
fn write_body(path: &Path, size: usize, seed: u64) -> Result<()> {
    let write = || {
        let mut file = BufWriter::new(fs::File::create(path)?);
        let mut random = Xorshift(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut left = size;
        while left > 0 {
            let word = random.next().to_le_bytes();
            let part = left.min(word.len());
            file.write_all(&word[..part])?;
            left -= part;
        }
        file.flush()
    };
    write().context(format_args!("writing {}", path.display()))
}

/// Marsaglia's xorshift64; the state is never 0.
struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_mix_is_a_cdns() {
        let sizes = mix_sizes();
        assert_eq!(sizes.len(), 1_000);
        let small = sizes.iter().filter(|size| **size < 25_000).count();
        assert_eq!(small, 900);
        let most = sizes.iter().copied().max().unwrap();
        assert!((15_000_000..=20_000_000).contains(&most), "{most}");
        assert_eq!(sizes, mix_sizes());
        assert!(!sizes.is_sorted());
    }

    #[test]
    fn every_name_is_asked_for() {
        for count in [1, 2, 10, 1_000] {
            let all: BTreeSet<u32> = scattered(count).collect();
            assert_eq!(all.len(), count as usize);
        }
        assert!(!scattered(1_000).is_sorted());
    }

    #[test]
    fn a_zone_holds_its_names() {
        let zone = zone(300);
        assert!(zone.contains("\nhost299 A 10.0.1.43\n"));
        assert_eq!(zone.lines().count(), 305);
    }

    #[test]
    fn bodies_have_their_lengths() {
        let scratch = Scratch::create("content-test").unwrap();
        for size in [0, 1, 7, 8, 9, 1_024] {
            let path = scratch.path().join("body");
            write_body(&path, size, 5).unwrap();
            assert_eq!(fs::read(&path).unwrap().len(), size);
        }
    }
}
