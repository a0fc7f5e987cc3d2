//! The pages to request and the expected responses.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};

use crc32fast::Hasher;

use crate::load::LoadError;

/// Maximum number of paths in a mix.
pub const MAX_PATHS: usize = 1 << 16;
/// Maximum length of a request, so that it fits into one segment to any peer.
const MAX_REQUEST: usize = crate::load::tcp::DEFAULT_MSS as usize;
/// Number of bytes read from a file at a time.
const BLOCK: usize = 1 << 18;

/// One file of the site.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// Path in the request, beginning with a slash.
    pub path: String,
    /// Relative frequency of requests for this page.
    pub weight: f64,
    /// Length of the body in bytes.
    pub len: u32,
    /// CRC-32 of the body.
    pub crc: u32,
}

impl Page {
    /// Creates a page with this body.
    pub fn of(path: &str, weight: f64, body: &[u8]) -> Self {
        Self {
            path: path.to_owned(),
            weight,
            len: body.len() as u32,
            crc: crc32fast::hash(body),
        }
    }

    /// Reads a page from the directory `site`.
    ///
    /// # Errors
    /// Fails when the file does not exist or the path has special characters.
    pub fn read(site: &Path, path: &str, weight: f64) -> Result<Self, LoadError> {
        let asked = |why: String| LoadError::Asked(format!("`{path}`: {why}"));
        let relative = path
            .strip_prefix('/')
            .ok_or_else(|| asked("a path begins with a slash".into()))?;
        if !path.bytes().all(is_plain) || relative.split('/').any(|part| part == "..") {
            return Err(asked(
                "a path may have only letters, digits and -._~/".into(),
            ));
        }
        let mut file = site.join(relative);
        if file.is_dir() {
            file.push("index.html");
        }
        let (len, crc) =
            checksum(&file).map_err(|error| asked(format!("{}: {error}", file.display())))?;
        let len = u32::try_from(len).map_err(|_| asked("the file has 4 GiB or more".into()))?;
        Ok(Self {
            path: path.to_owned(),
            weight,
            len,
            crc,
        })
    }
}

/// Returns whether a path needs no percent-encoding of this byte (RFC 3986, section 3.3).
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte)
}

fn checksum(file: &Path) -> io::Result<(u64, u32)> {
    let mut file = File::open(file)?;
    let mut block = vec![0; BLOCK];
    let (mut len, mut hasher) = (0, Hasher::new());
    loop {
        match file.read(&mut block)? {
            0 => return Ok((len, hasher.finalize())),
            n => {
                len += n as u64;
                hasher.update(&block[..n]);
            }
        }
    }
}

/// Reads the pages of a mix. Each line of the file has a weight and a path.
///
/// # Errors
/// Fails when the file cannot be read or a line is invalid, and names the line.
pub fn read_mix(site: &Path, mix: &PathBuf) -> Result<Vec<Page>, LoadError> {
    let text = fs::read_to_string(mix)
        .map_err(|error| LoadError::Asked(format!("cannot read {}: {error}", mix.display())))?;
    let mut pages: Vec<Page> = Vec::new();
    let mut known = HashMap::new();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (weight, path) = match words.as_slice() {
            [] => continue,
            [weight, path] => (weight.parse().ok().filter(|w: &f64| is_weight(*w)), *path),
            _ => (None, ""),
        };
        let Some(weight) = weight else {
            return Err(LoadError::Asked(format!(
                "{}, line {}: `{line}` is not a weight above 0 and a path",
                mix.display(),
                number + 1
            )));
        };
        if let Some(&known) = known.get(path) {
            let page: &mut Page = &mut pages[known];
            page.weight += weight;
        } else {
            known.insert(path, pages.len());
            pages.push(Page::read(site, path, weight)?);
        }
    }
    Ok(pages)
}

fn is_weight(weight: f64) -> bool {
    weight.is_finite() && weight > 0.0
}

/// Builds the request for a page. The last request on a connection asks the server to close.
///
/// # Errors
/// Fails when the request is too long.
pub(super) fn request(page: &Page, host: SocketAddrV4, last: bool) -> Result<Vec<u8>, LoadError> {
    let close = if last { "Connection: close\r\n" } else { "" };
    let request = format!("GET {} HTTP/1.1\r\nHost: {host}\r\n{close}\r\n", page.path);
    if request.len() > MAX_REQUEST {
        return Err(LoadError::Asked(format!(
            "`{}` is too long: a request may have {MAX_REQUEST} bytes",
            page.path
        )));
    }
    Ok(request.into_bytes())
}

/// Draws pages by their weights in constant time (the alias method).
#[derive(Debug)]
pub(super) struct Draw {
    /// For each column: the threshold as a fraction of 2^32, and the page that is drawn above it.
    /// Below it, the column's own page is drawn.
    columns: Vec<(u32, u32)>,
    rng: fastrand::Rng,
}

impl Draw {
    pub(super) fn new(pages: &[Page], seed: u64) -> Self {
        let total: f64 = pages.iter().map(|page| page.weight).sum();
        let mut parts: Vec<f64> = (pages.iter())
            .map(|page| page.weight * pages.len() as f64 / total)
            .collect();
        let mut columns: Vec<(u32, u32)> = (0..pages.len() as u32).map(|i| (u32::MAX, i)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..parts.len()).partition(|i| parts[*i] < 1.0);
        while let (Some(&one), Some(&other)) = (small.last(), large.last()) {
            small.pop();
            // The small part is between 0 and 1.
            #[allow(clippy::cast_sign_loss)]
            let own = (parts[one] * f64::from(u32::MAX)) as u32;
            columns[one] = (own, other as u32);
            parts[other] -= 1.0 - parts[one];
            if parts[other] < 1.0 {
                large.pop();
                small.push(other);
            }
        }
        Self {
            columns,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    #[inline(always)]
    pub(super) fn next(&mut self) -> u32 {
        if self.columns.len() == 1 {
            return 0;
        }
        let random = self.rng.u64(..);
        let column = ((random >> 32) * self.columns.len() as u64) >> 32;
        let (own, alias) = self.columns[column as usize];
        if random as u32 <= own {
            column as u32
        } else {
            alias
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_drawn_by_weight() {
        let pages: Vec<Page> = [0.5, 1.0, 6.5, 0.0001, 2.0]
            .map(|weight| Page::of("/x", weight, b""))
            .into();
        let mut draw = Draw::new(&pages, 3);
        let mut drawn = [0u32; 5];
        for _ in 0..1_000_000 {
            drawn[draw.next() as usize] += 1;
        }
        for (count, expected) in drawn.iter().zip([50_000, 100_000, 650_000, 10, 200_000]) {
            assert!(count.abs_diff(expected) < 2_000, "{drawn:?}");
        }
    }

    #[test]
    fn errors_in_a_mix_name_the_line() {
        let folder = std::env::temp_dir().join(format!("load-mix-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a.bin"), b"123456789").unwrap();
        let mix = folder.join("mix");
        let read = |text: &str| {
            fs::write(&mix, text).unwrap();
            read_mix(&folder, &mix)
        };
        let pages = read("1 /a.bin\n\n2.5 /a.bin\n").unwrap();
        assert_eq!(pages.len(), 1);
        assert_eq!((pages[0].len, pages[0].crc), (9, 0xcbf4_3926));
        assert!((pages[0].weight - 3.5).abs() < 1e-9);
        for (wrong, why) in [
            ("1 /a.bin\n0 /a.bin", "line 2"),
            ("nan /a.bin", "line 1"),
            ("1 /a.bin x", "line 1"),
            ("1 a.bin", "begins with a slash"),
            ("1 /../a.bin", "only letters"),
            ("1 /a%20b", "only letters"),
            ("1 /b.bin", "b.bin"),
        ] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains(why), "{wrong}: {error}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
