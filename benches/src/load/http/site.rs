//! The pages to request and the expected responses.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};

use super::form::{Form, FormOptions};
use crate::load::LoadError;

/// Maximum number of paths in a mix.
pub const MAX_PATHS: usize = 1 << 16;
/// Maximum length of a request in bytes. Such a request fits into one segment even if the server
/// advertises no MSS.
const MAX_REQUEST: usize = crate::load::tcp::DEFAULT_MSS as usize;
/// Number of pages that `Draw` draws in advance from a mix.
const DRAWN: usize = 1 << 20;

/// One file of the site.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// Path in the request, beginning with a slash.
    pub path: String,
    /// Relative frequency of requests for this page.
    pub weight: f64,
    /// Form of the response that requests ask for.
    pub form: Form,
    /// Length of the response's body in bytes.
    pub len: u32,
    /// CRC-32 of each version of the body. Both are the same if there is only one.
    pub crcs: [u32; 2],
}

impl Page {
    /// Creates a page with this body.
    pub fn of(path: &str, weight: f64, body: &[u8]) -> Self {
        Self {
            path: path.to_owned(),
            weight,
            form: Form::Whole,
            len: body.len() as u32,
            crcs: [crc32fast::hash(body); 2],
        }
    }

    /// Returns this page with a second version: its body in the directory `site`.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if it has another length.
    pub fn or_in(mut self, site: &Path) -> Result<Self, LoadError> {
        let other = Self::read(site, &self.path, self.weight)?;
        if other.len != self.len {
            let why = format!("`{}`: its two versions differ in length", self.path);
            return Err(LoadError::Asked(why));
        }
        self.crcs[1] = other.crcs[1];
        Ok(self)
    }

    /// Reads a page from the directory `site`.
    ///
    /// # Errors
    /// Fails if the path is invalid, or if the file cannot be read or is too long.
    pub fn read(site: &Path, path: &str, weight: f64) -> Result<Self, LoadError> {
        Ok(Self::of(path, weight, &read(site, path, "")?))
    }

    /// Reads a page of which requests ask for the form that the options choose.
    ///
    /// # Errors
    /// Fails like [`Page::read`], or if the server at `server` cannot serve this form.
    pub fn read_form(
        site: &Path,
        path: &str,
        options: &FormOptions,
        server: SocketAddrV4,
    ) -> Result<Self, LoadError> {
        let body = read(site, path, options.extension())?;
        let form = options.form(server, path, body.len() as u32)?;
        let body = match form {
            Form::Part { first, last, .. } => &body[first as usize..=last as usize],
            Form::SameTag(_) | Form::NotSince(_) => &[],
            Form::Whole | Form::Coded(_) => &body[..],
        };
        let page = Self::of(path, 1.0, body);
        Ok(Self { form, ..page })
    }
}

/// Reads the file at `path` in the directory `site`, or the file beside it that has a further
/// extension.
fn read(site: &Path, path: &str, extension: &str) -> Result<Vec<u8>, LoadError> {
    let invalid = |why: String| LoadError::Asked(format!("`{path}`: {why}"));
    let relative = path
        .strip_prefix('/')
        .ok_or_else(|| invalid("a path begins with a slash".into()))?;
    if !path.bytes().all(is_plain) || relative.split('/').any(|part| part == "..") {
        return Err(invalid(
            "a path may have only letters, digits and -._~/".into(),
        ));
    }
    let mut file = site.join(relative);
    if file.is_dir() {
        file.push("index.html");
    }
    file.as_mut_os_string().push(extension);
    let body = fs::read(&file).map_err(|error| invalid(format!("{}: {error}", file.display())))?;
    if u32::try_from(body.len()).is_err() {
        return Err(invalid("the file has 4 GiB or more".into()));
    }
    Ok(body)
}

/// Returns true if this byte is an unreserved character or a slash. Neither needs
/// percent-encoding in a path (RFC 3986, sections 2.3 and 3.3).
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte)
}

/// Reads the pages of a mix. Each line of the file has a weight and a path, or is blank. The
/// weights of a repeated path add up.
///
/// # Errors
/// Fails if a file cannot be read or a line is invalid. The error names the file, line or path.
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
/// Fails if the request is too long.
pub(super) fn request(page: &Page, host: SocketAddrV4, last: bool) -> Result<Vec<u8>, LoadError> {
    let close = if last { "Connection: close\r\n" } else { "" };
    let (path, field) = (&page.path, page.form.request_field());
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{field}{close}\r\n");
    if request.len() > MAX_REQUEST {
        return Err(LoadError::Asked(format!(
            "`{}` is too long: a request may have {MAX_REQUEST} bytes",
            page.path
        )));
    }
    Ok(request.into_bytes())
}

/// Page numbers drawn in advance at random by weight, and used in turn.
#[derive(Debug)]
pub(super) struct Draw {
    pages: Box<[u32]>,
    next: usize,
}

impl Draw {
    pub(super) fn new(weights: &[f64], seed: u64) -> Self {
        let mut sum = 0.0;
        let up_to: Vec<f64> = (weights.iter())
            .map(|weight| {
                sum += weight;
                sum
            })
            .collect();
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut draw = |_| {
            let at = rng.f64() * sum;
            up_to
                .partition_point(|upper| *upper <= at)
                .min(weights.len() - 1) as u32
        };
        let count = if weights.len() == 1 { 1 } else { DRAWN };
        Self {
            pages: (0..count).map(&mut draw).collect(),
            next: 0,
        }
    }

    /// Takes each of `count` pages once before any of them comes again.
    pub(super) fn in_turn(count: u32) -> Self {
        Self {
            pages: (0..count).collect(),
            next: 0,
        }
    }

    #[inline(always)]
    pub(super) fn next(&mut self) -> u32 {
        let page = self.pages[self.next];
        self.next += 1;
        if self.next == self.pages.len() {
            self.next = 0;
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_drawn_by_weight() {
        let mut draw = Draw::new(&[0.5, 1.0, 6.5, 0.0001, 2.0], 3);
        let mut drawn = [0u32; 5];
        for _ in 0..1_000_000 {
            drawn[draw.next() as usize] += 1;
        }
        for (count, expected) in drawn.iter().zip([50_000, 100_000, 650_000, 10, 200_000]) {
            assert!(count.abs_diff(expected) < 2_000, "{drawn:?}");
        }
    }

    #[test]
    fn pages_in_turn_come_once_before_any_comes_again() {
        let mut draw = Draw::in_turn(3);
        let drawn: Vec<u32> = (0..7).map(|_| draw.next()).collect();
        assert_eq!(drawn, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn errors_in_a_mix_name_the_line_or_the_path() {
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
        assert_eq!((pages[0].len, pages[0].crcs), (9, [0xcbf4_3926; 2]));
        let both = pages[0].clone().or_in(&folder).unwrap();
        assert_eq!(both, pages[0]);
        fs::write(folder.join("a.bin"), b"12345678").unwrap();
        let error = both.or_in(&folder).unwrap_err().to_string();
        assert!(error.contains("differ in length"), "{error}");
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
