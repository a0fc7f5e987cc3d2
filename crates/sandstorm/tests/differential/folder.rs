//! A random folder of files.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use tempfile::TempDir;

/// Thu, 02 Jan 2020 03:04:05 GMT. Nearly all files are newer.
const OLDEST: u64 = 1_577_934_245;
/// Beginnings of names. A number and an extension follow.
const NAMES: &str =
    "page a\u{a0}b 100% %41 d\u{fc}ne \u{7802} q?x h#x a&b=c x+y s;c b\\s q\"' {b} dots.. ~u";
const EXTENSIONS: &str = ".html .css .js .txt .svg .png .json .xml .woff2 .pdf .bin .HTML . .x.y";

/// A file of the folder.
pub(crate) struct File {
    /// Its path, with a leading slash.
    pub(crate) path: String,
    pub(crate) len: usize,
    /// The time of its last change, in seconds since 1970.
    pub(crate) modified: u64,
    /// Whether Sandstorm uses the form with gzip beside it, if there is one.
    pub(crate) coded: Option<bool>,
}

pub(crate) struct Folder {
    root: TempDir,
    pub(crate) files: Vec<File>,
    /// Folders, with a slash at both ends. Some lack an index.
    pub(crate) folders: Vec<String>,
}

pub(crate) fn at(second: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(second)
}

fn word(list: &str, rng: &mut Rng) -> String {
    rng.choice(&list.split(' ').collect::<Vec<_>>())
        .unwrap()
        .replace('\u{a0}', " ")
}

impl Folder {
    pub(crate) fn make(rng: &mut Rng) -> Self {
        // Caddy hides a folder whose path has a name that begins with a dot.
        let root = tempfile::Builder::new().prefix("site").tempdir().unwrap();
        let (files, folders) = (Vec::new(), vec!["/".to_owned()]);
        let mut folder = Self {
            root,
            files,
            folders,
        };
        for number in 10..22 {
            let parent = rng.choice(&folder.folders).unwrap();
            let path = format!("{parent}{}{number}/", word(NAMES, rng));
            fs::create_dir(folder.root().join(&path[1..])).unwrap();
            folder.folders.push(path);
        }
        for (number, parent) in folder.folders.clone().into_iter().enumerate() {
            if number % 3 > 0 {
                folder.add(format!("{parent}index.html"), rng);
            }
            for number in 0..8 {
                let (name, extension) = (word(NAMES, rng), word(EXTENSIONS, rng));
                folder.add(format!("{parent}{name}{number}{extension}"), rng);
            }
        }
        fs::write(folder.root().join(".hidden"), "hidden").unwrap();
        folder
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    /// Adds a file, and perhaps a form with gzip. Sandstorm uses only forms that are shorter than the
    /// file and not older.
    fn add(&mut self, path: String, rng: &mut Rng) {
        let limit = [1, 2, 300, 300, 300, 9_000, 9_000, 200_000][rng.usize(..8)];
        let (len, modified) = (rng.usize(limit / 2..limit), OLDEST + rng.u64(..60_000_000));
        let content: Vec<u8> = std::iter::repeat_with(|| rng.alphanumeric() as u8)
            .take(len)
            .collect();
        let (padding, age) = [(0, 0), (0, 60), (len + 9, 0)][rng.usize(..5) / 2];
        let mut coded = gzip(&content);
        coded.resize(coded.len() + padding, 0);
        let has_form = len > 9 && rng.u8(..3) == 0;
        if has_form {
            self.write(format!("{path}.gz"), &coded, modified - age, None);
        }
        let is_used = has_form.then_some(coded.len() < len && age == 0);
        self.write(path, &content, modified, is_used);
    }

    fn write(&mut self, path: String, bytes: &[u8], modified: u64, coded: Option<bool>) {
        let on_disk = self.root().join(&path[1..]);
        fs::write(&on_disk, bytes).unwrap();
        let file = fs::File::options().append(true).open(on_disk).unwrap();
        file.set_modified(at(modified)).unwrap();
        let len = bytes.len();
        self.files.push(File {
            path,
            len,
            modified,
            coded,
        });
    }
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
    let mut coded = vec![0; compressor.gzip_compress_bound(content.len())];
    let len = compressor.gzip_compress(content, &mut coded).unwrap();
    coded.truncate(len);
    coded
}
