//! Tests that files get other heads without being read.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use control::FileVersion;

use super::*;
use crate::background::Background;
use crate::coder::{Coder, Effort};
use crate::digest::Digester;
use crate::disk::DiskFile;
use crate::improving::Done;
use crate::root::Root;
use crate::settings::Settings;
use crate::site::page::{Page, ReplyId};
use crate::tag_key::TagKey;

/// Returns files with their paths. One of them is no UTF-8, and two are coded forms of others.
fn files() -> [(&'static [u8], Vec<u8>); 7] {
    [
        (b"/index.html", b"<p>A page. ".repeat(200)),
        (b"/docs/index.html", b"A page".to_vec()),
        (b"/docs/index.html.gz", b"\x1f\x8b...".to_vec()),
        (b"/latin.txt", b"\xfc".to_vec()),
        (b"/empty.txt", Vec::new()),
        (b"/app.3f9a02bc.js", b"alert(1)".to_vec()),
        (b"/app.3f9a02bc.js.gz", b"\x1f\x8b...".to_vec()),
    ]
}

/// Returns settings each of which makes other heads for at least one file.
fn all_settings() -> [Settings; 9] {
    let with = |change: fn(&mut Settings)| {
        let mut settings = Settings::default();
        change(&mut settings);
        settings
    };
    [
        with(|_| ()),
        with(|settings| settings.fields.add("X-All", "1").unwrap()),
        with(|settings| settings.add_security_headers().unwrap()),
        with(|settings| settings.add_header("/docs/* X-Docs: 1").unwrap()),
        with(|settings| {
            settings
                .add_header("/latin.txt Content-Type: text/html")
                .unwrap();
        }),
        with(|settings| settings.add_media_type("txt", "text/markdown").unwrap()),
        with(|settings| {
            settings
                .add_media_type("html", "application/xhtml+xml")
                .unwrap();
        }),
        with(|settings| settings.immutable = true),
        with(|settings| {
            let rule = "/latin.txt Vary: Accept-Encoding";
            settings.add_header(rule).unwrap();
        }),
    ]
}

/// Makes all coded forms of a site.
fn finished(site: Site, coder: &Arc<Coder>) -> Arc<Site> {
    let (background, mut site) = (Background::new(Arc::clone(coder)), Arc::new(site));
    loop {
        match background.step(&site) {
            Done::Some => {}
            Done::Site(next) => site = next.site,
            Done::Nothing => return site,
        }
    }
}

/// Returns all responses, and the tag of each file.
type Shown = BTreeMap<String, (Vec<Vec<u8>>, Option<String>)>;

fn shown(site: &Site) -> Shown {
    let mut shown = Shown::new();
    for (path, page) in site.known_paths() {
        let firsts: Vec<ReplyId> = match page {
            Page::File(file) => vec![file.first],
            Page::Negotiated(index) => {
                let variants = &site.variants[*index as usize];
                let coded = variants.coded.iter().map(|one| one.page.first);
                std::iter::once(variants.plain.first).chain(coded).collect()
            }
            Page::Redirect { first, .. } | Page::Rule { first, .. } | Page::Error(first) => {
                vec![*first]
            }
        };
        let replies = firsts.iter().flat_map(|first| [first.0, first.0 + 1]);
        let replies = replies.map(|id| site.reply(ReplyId(id)).bytes().to_vec());
        let tag = site.file_at(path).and_then(|page| page.tag);
        let path = String::from_utf8_lossy(path).into_owned();
        shown.insert(path, (replies.collect(), tag.map(|tag| tag.to_string())));
    }
    shown
}

#[test]
fn files_with_other_heads_are_as_if_they_were_read_again() {
    let now = UNIX_EPOCH + Duration::from_secs(1_000);
    let modified = UNIX_EPOCH + Duration::from_secs(500);
    let version = FileVersion {
        file: (1, 2),
        len: 7,
        modified: (500, 0),
        changed: (500, 0),
    };
    let make = |settings: &Settings| {
        let coder = Arc::new(Coder::open(Effort::Fast, None, u64::MAX).unwrap());
        let settings = Settings {
            coder: Some(Arc::clone(&coder)),
            ..settings.clone()
        };
        let mut builder = Builder::with_settings(now, &settings);
        for (path, content) in files() {
            builder = builder.file(path, modified, &content);
            builder.note_version(path, version);
        }
        (finished(builder.build(), &coder), settings)
    };
    let all = all_settings().map(|settings| make(&settings));
    for (at, (old, _)) in all.iter().enumerate() {
        for (to, (expected, settings)) in all.iter().enumerate() {
            let mut next = Builder::with_settings(now, settings);
            for (path, _) in files() {
                assert!(next.keep_file(path, old, Some(version)));
            }
            let next = next.build_next(old);
            assert_eq!(shown(&next.site), shown(expected), "{at} to {to}");
            assert!(next.site.uncoded().is_empty(), "{at} to {to}");
            assert_eq!(next.added() == 0, at == to, "{at} to {to}");
        }
    }
}

#[test]
fn only_files_that_a_rule_is_about_are_copied() {
    let build = |settings: &Settings| {
        let mut builder = Builder::with_settings(UNIX_EPOCH, settings);
        for (path, content) in files() {
            builder = builder.file(path, UNIX_EPOCH, &content);
        }
        builder.build()
    };
    let [first, _, _, docs, ..] = all_settings();
    let old = build(&first);
    let mut next = Builder::with_settings(UNIX_EPOCH, &docs);
    for (path, _) in files() {
        assert!(next.keep_file(path, &old, None));
    }
    let next = next.build_next(&old).site;
    for (path, _) in files() {
        let bytes = |site: &Site| {
            let page = site.file_at(path).unwrap();
            Arc::clone(site.reply(page.first).bytes())
        };
        let is_kept = Arc::ptr_eq(&bytes(&old), &bytes(&next));
        assert_eq!(is_kept, !path.starts_with(b"/docs/"), "{path:?}");
    }
}

#[test]
fn files_on_the_disk_keep_their_tags() {
    let folder = tempfile::tempdir().unwrap();
    let root = Arc::new(Root::open(folder.path()).unwrap());
    let now = SystemTime::now() + Duration::from_mins(1);
    let mut digests = HashMap::new();
    let disk: Vec<_> = [
        ("a.html", &b"text"[..]),
        ("latin.txt", b"\xfc"),
        ("c.txt", b"c"),
    ]
    .into_iter()
    .map(|(name, content)| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        let version = FileVersion::at(&path).unwrap();
        let file = Arc::new(DiskFile::new(&root, name.as_ref(), version));
        let mut digester = Digester::new(&TagKey::default());
        digester.add(content);
        digests.insert(file.number(), digester.finish());
        (format!("/{name}"), file, version)
    })
    .collect();
    let make = |settings: &Settings| {
        let mut builder = Builder::with_settings(now, settings);
        for (path, file, version) in &disk {
            builder.add_disk_file(path.as_bytes(), UNIX_EPOCH, Arc::clone(file));
            builder.note_version(path.as_bytes(), *version);
        }
        builder.build().with_digests(&digests).site
    };
    let all = all_settings().map(|settings| (make(&settings), settings));
    // Nothing can be read any more.
    fs::remove_dir_all(folder.path()).unwrap();
    for (at, (old, _)) in all.iter().enumerate() {
        for (to, (expected, settings)) in all.iter().enumerate() {
            let mut next = Builder::with_settings(now, settings);
            for (path, _, version) in &disk {
                assert!(next.keep_file(path.as_bytes(), old, Some(*version)));
            }
            let next = next.build_next(old).site;
            // A type without a charset does not tell whether a text is UTF-8.
            let untagged = next.untagged().count();
            let is_unknown = [4, 6].contains(&at) && at != to;
            assert_eq!(untagged, usize::from(is_unknown), "{at} to {to}");
            let next = next.with_digests(&digests).site;
            assert_eq!(shown(&next), shown(expected), "{at} to {to}");
            assert_eq!(next.totals().disk_files, 3);
        }
    }
}

#[test]
fn lists_with_other_heads_keep_their_coded_forms() {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..50 {
        fs::write(folder.path().join(format!("file-{n}.bin")), "").unwrap();
    }
    let limits = crate::limits::Limits::default();
    let coder = Arc::new(Coder::open(Effort::Fast, None, u64::MAX).unwrap());
    let mut settings = Settings {
        coder: Some(Arc::clone(&coder)),
        listings: true,
        ..Settings::default()
    };
    let site = Site::load_with(folder.path(), &limits, &settings, |_| {}).unwrap();
    let site = finished(site, &coder);
    assert!(site.totals.coded > 0);
    settings.add_security_headers().unwrap();
    let next = site.load_next_beside(0, folder.path(), (&limits, &settings), |_| {});
    let next = next.unwrap().site;
    assert_eq!(next.totals.coded, site.totals.coded);
    assert!(next.uncoded.is_empty());
    assert!(next.has_forms(b"/"));
    let coded = next.variants.iter().flat_map(|variants| &variants.coded);
    let heads: Vec<_> = coded.map(|form| next.reply(form.page.first)).collect();
    assert!(!heads.is_empty() && heads.iter().all(|head| head.has_field("x-frame-options")));
}
