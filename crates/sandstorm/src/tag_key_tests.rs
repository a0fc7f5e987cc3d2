//! Tests of sites whose entity tags have a key.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::background::Background;
use crate::coder::{Coder, Effort};
use crate::improving::Done;
use crate::limits::Limits;
use crate::load::LoadError;
use crate::memory_budget::MemoryBudget;
use crate::settings::Settings;
use crate::site::Site;
use crate::tag_key::TagKey;
use crate::tagging::Tagging;

const KEY: &str = "a key of 24 random bytes";

/// A folder with the key, and a served folder in it. Its files are old enough to be recognised.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir(place.site()).unwrap();
        fs::write(place.key(), KEY).unwrap();
        let text = "sand and storm ".repeat(1_000);
        fs::write(place.site().join("a.html"), &text).unwrap();
        fs::write(place.site().join("b.bin"), [b'b'; 300]).unwrap();
        place
    }

    fn site(&self) -> PathBuf {
        self.0.path().join("site")
    }

    fn key(&self) -> PathBuf {
        self.0.path().join("key")
    }

    fn load(&self, settings: Settings) -> Result<Site, LoadError> {
        let mut settings = settings;
        settings.set_etag_key(&self.key());
        Site::load_with(&self.site(), &Limits::default(), &settings, |_| {})
    }
}

/// Does work in the background until nothing is left to do.
fn work(mut site: Arc<Site>, step: impl Fn(&Arc<Site>) -> Done) -> Arc<Site> {
    loop {
        match step(&site) {
            Done::Some => {}
            Done::Site(next) => site = Arc::clone(&next.site),
            Done::Nothing => return site,
        }
    }
}

/// Returns how many responses have a tag. Fails if a tag has another key.
fn tagged(site: &Site, folder: &Path, key: &TagKey) -> usize {
    let on_disk = |path: &Path| fs::read(folder.join(path)).unwrap();
    let tags = site.replies().iter().filter_map(|reply| {
        let head = std::str::from_utf8(reply.head()).unwrap();
        let tag = head.lines().find_map(|line| line.strip_prefix("ETag: "))?;
        let content = match reply.disk() {
            Some(file) => on_disk(file.path()),
            None => reply.body().to_vec(),
        };
        Some((reply.status().code() == 200, tag, content))
    });
    let mut last = String::new();
    let check = |(is_whole, tag, content): (bool, &str, Vec<u8>)| {
        if is_whole {
            assert_eq!(tag, key.tag_of(&content).to_string());
            tag.clone_into(&mut last);
        } else {
            // The response with 304 follows that with the content.
            assert_eq!(tag, last);
        }
    };
    tags.map(check).count()
}

#[test]
#[cfg(target_os = "linux")]
fn all_forms_of_files_have_tags_with_the_key() {
    let place = Place::new();
    let key = TagKey::of(KEY.as_bytes());
    let coder = Arc::new(Coder::open(Effort::Fast, None, u64::MAX).unwrap());
    let site = place.load(Settings {
        coder: Some(Arc::clone(&coder)),
        ..Settings::default()
    });
    let site = Arc::new(site.unwrap());
    assert_eq!(tagged(&site, &place.site(), &key), 4);
    let background = Background::new(coder);
    let site = work(site, |site| background.step(site));
    assert_eq!(tagged(&site, &place.site(), &key), 4 + 3 * 2);

    let site = place.load(Settings {
        memory: Some(MemoryBudget::new(0)),
        ..Settings::default()
    });
    let site = Arc::new(site.unwrap());
    assert_eq!(tagged(&site, &place.site(), &key), 0);
    let tagging = Tagging::default();
    let site = work(site, |site| tagging.step(site));
    assert_eq!(tagged(&site, &place.site(), &key), 4);
}

#[test]
fn a_reload_reads_the_key_again() {
    let place = Place::new();
    // Only files of some age are recognised.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let site = place.load(Settings::default()).unwrap();
    let next = |site: &Site| site.load_next(&place.site(), &Limits::default(), |_| {});
    let same = next(&site).unwrap();
    assert_eq!((same.added(), same.leaving.len()), (0, 0));
    let other = "another key of 32 random bytes";
    fs::write(place.key(), other).unwrap();
    let changed = next(&same.site).unwrap();
    assert_eq!((changed.added(), changed.leaving.len()), (4, 4));
    let key = TagKey::of(other.as_bytes());
    assert_eq!(tagged(&changed.site, &place.site(), &key), 4);
    fs::write(place.key(), "short").unwrap();
    let failed = next(&changed.site).unwrap_err().to_string();
    let start = format!("{} has 5 bytes, and a key has", place.key().display());
    assert!(failed.starts_with(&start), "{failed}");
}

#[test]
fn a_key_in_the_served_folder_is_refused() {
    let place = Place::new();
    fs::rename(place.key(), place.site().join("key")).unwrap();
    std::os::unix::fs::symlink(place.site().join("key"), place.key()).unwrap();
    let failed = place.load(Settings::default()).unwrap_err();
    assert!(matches!(failed, LoadError::TagKey { .. }));
    assert!(failed.to_string().contains("is in the served folder"));
    fs::remove_file(place.key()).unwrap();
    let failed = place.load(Settings::default()).unwrap_err();
    assert!(failed.to_string().contains("cannot be read"), "{failed}");
}
