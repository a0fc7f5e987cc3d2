//! Tests loading a folder while an attacker with write access keeps swapping its entries.

use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::*;
use crate::loading::{Loading, NotLoaded, load_next};

/// Number of times that the folder is loaded in one test. The test fails if the attacker wins even
/// one race.
const LOADS: usize = 3_000;

/// Loads `site` many times while its entries `left` and `right` are swapped continuously. A GET of
/// one of `paths` must never return `secret`, the content of the files outside.
fn never_published(site: &Path, [left, right]: [&str; 2], paths: &[&str]) {
    let (left, right) = (&site.join(left), &site.join(right));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let racer = scope.spawn(|| {
            let mut times = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, left, CWD, right, RenameFlags::EXCHANGE).unwrap();
                times += 1;
            }
            times
        });
        let published = (0..LOADS).filter(|_| is_published(site, paths)).count();
        stop.store(true, Ordering::Relaxed);
        assert!(
            racer.join().unwrap() > LOADS as u64,
            "too few exchanges for a race"
        );
        assert_eq!(published, 0, "of {LOADS} loads");
    });
}

fn is_published(site: &Path, paths: &[&str]) -> bool {
    let is_secret = |site: &Site, path: &str| body(site, path.as_bytes()) == Some(b"secret");
    load(site).is_ok_and(|site| paths.iter().any(|path| is_secret(&site, path)))
}

#[test]
fn a_file_exchanged_with_a_link_never_publishes_the_target() {
    let outside = folder(&["site/a", "site/z"]);
    fs::write(outside.path().join("secret.txt"), "secret").unwrap();
    let site = outside.path().join("site");
    symlink("../secret.txt", site.join("b")).unwrap();
    never_published(&site, ["a", "b"], &["/a", "/b"]);
}

#[test]
fn a_folder_exchanged_with_a_link_never_publishes_the_target() {
    let outside = folder(&["site/a/x", "site/z", "secrets/"]);
    fs::write(outside.path().join("secrets/x"), "secret").unwrap();
    fs::write(outside.path().join("secrets/y"), "secret").unwrap();
    let site = outside.path().join("site");
    symlink("../secrets", site.join("b")).unwrap();
    never_published(&site, ["a", "b"], &["/a/x", "/a/y", "/b/x", "/b/y"]);
}

#[test]
fn a_link_changed_to_point_outside_the_folder_publishes_nothing() {
    let outside = folder(&["site/inside", "site/z"]);
    fs::write(outside.path().join("secret.txt"), "secret").unwrap();
    let site = outside.path().join("site");
    symlink("inside", site.join("a")).unwrap();
    symlink("../secret.txt", site.join("b")).unwrap();
    symlink("a", site.join("way")).unwrap();
    never_published(&site, ["a", "b"], &["/a", "/b", "/way"]);
}

/// Does the work while a file is being written.
fn while_written<T>(path: &Path, work: impl FnOnce() -> T) -> T {
    fs::write(path, vec![b'a'; 1 << 20]).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = fs::File::options().append(true).open(path).unwrap();
            while !stop.load(Ordering::Relaxed) {
                file.write_all(b"b").unwrap();
            }
        });
        let done = work();
        stop.store(true, Ordering::Relaxed);
        done
    })
}

#[test]
fn a_file_that_is_being_written_keeps_its_content_and_is_counted() {
    let folder = folder(&["file"]);
    let site = load(folder.path()).unwrap();
    let outdated = while_written(&folder.path().join("file"), || {
        let loads = (0..LOADS).map(|_| site.load_next(folder.path(), &Limits::default(), |_| {}));
        let mut sites = loads.map(|next| next.unwrap().site);
        sites.find(|site| site.totals().outdated == 1)
    });
    let outdated = outdated.expect("no load found the file being written");
    assert_eq!(body(&outdated, b"/file"), body(&site, b"/file"));
}

#[test]
fn with_other_options_a_file_that_is_being_written_has_no_old_content() {
    let (folder, other) = (folder(&["file"]), folder(&["file"]));
    let site = load(folder.path()).unwrap();
    let loading = Loading {
        folder: other.path().to_owned(),
        limits: Limits::default(),
        strict: false,
        memory: None,
        settings: site.settings().clone(),
    };
    let is_refused = while_written(&other.path().join("file"), || {
        let mut loads = (0..LOADS).map(|_| load_next(&site, 0, &loading, true));
        loads.find_map(|next| match next {
            Ok(next) => (next.site.totals().outdated > 0).then_some(false),
            Err(error) => Some(matches!(error, NotLoaded::Changing { count: 1, .. })),
        })
    });
    assert_eq!(is_refused, Some(true));
}
