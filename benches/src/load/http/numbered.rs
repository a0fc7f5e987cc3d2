//! A site of many files with numbers as names, and the law by which they are requested.

use std::fs;
use std::io;
use std::path::Path;

/// Maximum number of files. A number has six digits.
pub const MAX_FILES: u32 = 1_000_000;
/// Length of each file in bytes, unless another one is chosen.
pub const LEN: u32 = 1024;
/// Number of files in a folder. The name of a folder or a file has three digits.
const IN_FOLDER: u32 = 1000;
/// Length in bytes of the part of a path that differs between files.
pub(super) const NAME_LEN: usize = "/000/000".len();
/// End of each path, after the name.
pub(super) const EXTENSION: &str = ".bin";

/// A site of numbered files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberedSite {
    /// Number of files.
    pub count: u32,
    /// Length of each file in bytes.
    pub len: u32,
}

/// Returns the part of a file's path that differs between files.
#[inline(always)]
pub(super) fn name(number: u32) -> [u8; NAME_LEN] {
    let digit = |power: u32| b'0' + (number / power % 10) as u8;
    let [a, b, c] = [100_000, 10_000, 1_000].map(digit);
    let [d, e, f] = [100, 10, 1].map(digit);
    [b'/', a, b, c, b'/', d, e, f]
}

/// Returns `len` bytes as the content of a file. All files differ.
pub fn body(number: u32, len: u32) -> Vec<u8> {
    let mut body = vec![0; len as usize];
    fastrand::Rng::with_seed(u64::from(number)).fill(&mut body);
    body
}

impl NumberedSite {
    /// Writes the files into the empty directory `folder`.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub fn write(self, folder: &Path) -> io::Result<()> {
        for number in 0..self.count {
            let name = name(number);
            let path = String::from_utf8_lossy(&name[1..]) + EXTENSION;
            let path = folder.join(&*path);
            if number % IN_FOLDER == 0
                && let Some(folder) = path.parent()
            {
                fs::create_dir_all(folder)?;
            }
            fs::write(path, body(number, self.len))?;
        }
        Ok(())
    }

    /// Returns the CRC-32 of each file.
    pub(super) fn checksums(self) -> Box<[u32]> {
        let bodies = (0..self.count).map(|number| body(number, self.len));
        bodies.map(|body| crc32fast::hash(&body)).collect()
    }
}

/// Returns the weight of each file by a Zipf law with the exponent 1. The n-th most popular file is
/// requested n times less often than the first. The order of popularity depends only on the seed.
pub(super) fn weights(count: u32, seed: u64) -> Vec<f64> {
    let mut weights: Vec<f64> = (1..=count).map(|rank| 1.0 / f64::from(rank)).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut weights);
    weights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_all_digits_of_the_number() {
        assert_eq!(&name(0), b"/000/000");
        assert_eq!(&name(123_456), b"/123/456");
        assert_eq!(&name(MAX_FILES - 1), b"/999/999");
    }

    #[test]
    fn the_weights_are_those_of_a_zipf_law_in_an_order_of_the_seed() {
        let sorted = |seed| {
            let mut weights = weights(1000, seed);
            weights.sort_by(f64::total_cmp);
            weights
        };
        assert_eq!(weights(1000, 1), weights(1000, 1));
        assert_ne!(weights(1000, 1), weights(1000, 2));
        assert_eq!(sorted(1), sorted(2));
        assert!((sorted(1)[0] - 0.001).abs() < 1e-9);
    }
}
