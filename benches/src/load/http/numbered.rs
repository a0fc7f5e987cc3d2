//! A site of many small files with numbers as names, and the law by which they are requested.

use std::fs;
use std::io;
use std::path::Path;

/// Maximum number of files. A number has six digits.
pub const MAX_FILES: u32 = 1_000_000;
/// Length of each file in bytes.
pub const LEN: usize = 1024;
/// Number of files in a folder. The name of a folder or a file has three digits.
const IN_FOLDER: u32 = 1000;
/// Length in bytes of the part of a path that differs between files.
pub(super) const NAME_LEN: usize = "/000/000".len();
/// End of each path, after the name.
pub(super) const EXTENSION: &str = ".bin";

/// Returns the part of a file's path that differs between files.
#[inline(always)]
pub(super) fn name(number: u32) -> [u8; NAME_LEN] {
    let digit = |power: u32| b'0' + (number / power % 10) as u8;
    let [a, b, c] = [100_000, 10_000, 1_000].map(digit);
    let [d, e, f] = [100, 10, 1].map(digit);
    [b'/', a, b, c, b'/', d, e, f]
}

/// Returns the content of a file. All files differ.
pub fn body(number: u32) -> [u8; LEN] {
    let mut body = [0; LEN];
    fastrand::Rng::with_seed(u64::from(number)).fill(&mut body);
    body
}

/// Writes the site with `count` files into the empty directory `site`.
///
/// # Errors
/// Fails if a file cannot be written.
pub fn write(site: &Path, count: u32) -> io::Result<()> {
    for number in 0..count {
        let name = name(number);
        let path = String::from_utf8_lossy(&name[1..]) + EXTENSION;
        let path = site.join(&*path);
        if number % IN_FOLDER == 0
            && let Some(folder) = path.parent()
        {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, body(number))?;
    }
    Ok(())
}

/// Returns the CRC-32 of each file.
pub(super) fn checksums(count: u32) -> Box<[u32]> {
    (0..count).map(|n| crc32fast::hash(&body(n))).collect()
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
