//! Tests of what the loader makes of a folder beside its files.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;

use crate::background::Background;
use crate::coder::{Coder, Effort};
use crate::date::{SlotWriter, Stamp};
use crate::improving::Done;
use crate::limits::Limits;
use crate::load::Progress;
use crate::memory_budget::MemoryBudget;
use crate::settings::Settings;
use crate::site::{NEW, Site};
use crate::status::Status;
use crate::{Session, Step};

#[path = "load_redirects_tests.rs"]
mod redirects;

/// A text that every coding shortens.
const LONG: &str = "Sand, storm, dune, desert and wind are in this line.\n";

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder
}

fn load(folder: &Path, settings: &Settings) -> Site {
    Site::load_with(folder, &Limits::default(), settings, |_| {}).unwrap()
}

/// Loads a folder. Also returns the messages about what was left out.
fn load_with_messages(folder: &Path, settings: &Settings) -> (Site, Vec<String>) {
    let mut skipped = Vec::new();
    let site = Site::load_with(folder, &Limits::default(), settings, |one| {
        if let Progress::Skipped(one) = one {
            skipped.push(one.to_string());
        }
    });
    (site.unwrap(), skipped)
}

/// Returns the whole response to a GET with further fields.
fn get(site: &Site, path: &str, fields: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let Step::Answer(answer) = Session::default().next(site, request.as_bytes()) else {
        panic!("no answer");
    };
    let (mut out, mut slots) = (Vec::new(), SlotWriter::new());
    let stamp = Stamp::new(0, answer.close);
    answer.write(site, request.as_bytes(), stamp, &mut slots, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

fn status(site: &Site, path: &str) -> String {
    get(site, path, "")[9..12].to_owned()
}

#[test]
fn the_rules_of_a_folder_are_used_and_not_served() {
    let folder = folder(&[
        ("index.html", "home"),
        ("a.css", "a"),
        ("sub/_headers", "a file like others"),
        (
            "_redirects",
            "\u{feff}# comment\n/old/* /new/:splat\n/home /  302 # comment\n",
        ),
        (
            "_headers",
            "/:a-b\n  A: 1\n/*\n  X-A: 1\n/*.css\n  X-A: 2\n",
        ),
    ]);
    let (site, skipped) = load_with_messages(folder.path(), &Settings::default());
    assert!(get(&site, "/old/x", "").contains("\r\nLocation: /new/x\r\n"));
    assert_eq!(status(&site, "/home"), "302");
    assert!(get(&site, "/a.css", "").contains("\r\nX-A: 2\r\n"));
    assert!(get(&site, "/", "").contains("\r\nX-A: 1\r\n"));
    for path in ["/_redirects", "/_headers"] {
        assert_eq!(status(&site, path), "404");
    }
    assert_eq!(status(&site, "/sub/_headers"), "200");
    assert_eq!(site.totals().files, 3);
    let [one] = &skipped[..] else {
        panic!("{skipped:?}");
    };
    assert!(one.contains("_headers\" line 1, column 1: "), "{one}");
}

#[test]
fn a_folder_whose_rules_cannot_be_read_is_not_loaded() {
    let folder = folder(&[("a", "a"), ("_headers", "/*\n X: 1\n")]);
    let at = |name: &str| folder.path().join(name);
    let site = load(folder.path(), &Settings::default());
    let fault = || {
        let next = site.load_next(folder.path(), &Limits::default(), |_| {});
        next.unwrap_err().to_string()
    };
    fs::write(at("_headers"), vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(
        fault().contains("_headers has more than 1048576 bytes"),
        "{}",
        fault()
    );
    fs::write(at("_headers"), b"/a\n X: \xe9\n").unwrap();
    assert!(
        fault().contains("_headers is not UTF-8 in line 2, column 5,"),
        "{}",
        fault()
    );
    fs::remove_file(at("_headers")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", at("_headers")).unwrap();
    assert!(fault().contains("leads out of the folder"), "{}", fault());
    fs::remove_file(at("_headers")).unwrap();
    fs::write(at(".rules"), "/*\n X: 2\n").unwrap();
    std::os::unix::fs::symlink(".rules", at("_headers")).unwrap();
    let next = site.load_next(folder.path(), &Limits::default(), |_| {});
    assert!(get(&next.unwrap().site, "/a", "").contains("\r\nX: 2\r\n"));
}

#[test]
#[cfg(target_os = "linux")]
fn a_coded_file_that_is_damaged_is_not_used() {
    let long = LONG.repeat(100);
    let folder = folder(&[("a.txt", &long), ("b.txt", &long), ("c.txt", &long)]);
    let coder = Coder::open(Effort::Fast, None, u64::MAX).unwrap();
    let crate::coder::Made::Coded(coded) = coder.make(long.as_bytes(), crate::coding::Coding::Gzip)
    else {
        panic!("the text can be compressed");
    };
    let other = b"\x1f\x8b";
    for (name, bytes) in [
        ("a", &coded[..]),
        ("b", &coded[..coded.len() - 1]),
        ("c", other),
    ] {
        fs::write(folder.path().join(format!("{name}.txt.gz")), bytes).unwrap();
    }
    let site = load(folder.path(), &Settings::default());
    let next = site
        .load_next(folder.path(), &Limits::default(), |_| {})
        .unwrap();
    for site in [&site, &*next.site] {
        assert!(get(site, "/a.txt", GZIP).contains(CODED));
        assert!(!get(site, "/b.txt", GZIP).contains(CODED));
        assert!(!get(site, "/c.txt", GZIP).contains(CODED));
    }
}

#[test]
fn a_rule_that_is_forced_holds_for_every_path_to_a_file() {
    let folder = folder(&[
        ("open/page.html", "open"),
        ("secret/page.html", "secret"),
        ("secret/page.html.gz", "secret"),
        ("secret/sub/index.html", "secret"),
        (
            "_redirects",
            "/early /secret/page.html 200\n/secret/* /404.html 404!\n",
        ),
    ]);
    let settings = Settings {
        clean_urls: true,
        listings: true,
        ..Settings::default()
    };
    let site = load(folder.path(), &settings);
    for path in [
        "/open/page.html",
        "/open/page",
        "/open/",
        "/open/index.json",
        "/early",
    ] {
        assert_eq!(status(&site, path), "200", "{path}");
    }
    for path in [
        "/secret/page.html",
        "/secret/page.html.gz",
        "/secret/page",
        "/secret/",
        "/secret",
        "/secret/index.json",
        "/secret/sub",
        "/secret/sub/",
        "/secret/sub/index.html",
        "/%73ecret/page",
        "/secret/none",
    ] {
        assert_eq!(status(&site, path), "404", "{path}");
    }
}

#[test]
fn a_rule_without_a_page_for_a_path_leaves_it_to_later_rules() {
    let rules = "/ghost/* /none/:splat 200\n/ghost/exact /a 200\n/ghost/pattern* /a 200\n\
                 /taken/* /a 200\n/taken/b /none 302\n";
    let folder = folder(&[("a", "a"), ("_redirects", rules)]);
    let site = load(folder.path(), &Settings::default());
    for path in ["/ghost/exact", "/ghost/pattern", "/taken/b"] {
        assert_eq!(status(&site, path), "200", "{path}");
    }
    assert_eq!(status(&site, "/ghost/other"), "404");
}

#[test]
fn a_rewrite_to_a_folder_needs_no_slash() {
    let rules = "/spa/* /app 200\n/old/* /app 301\n";
    let folder = folder(&[("app/index.html", "app"), ("_redirects", rules)]);
    let site = load(folder.path(), &Settings::default());
    assert!(get(&site, "/spa/deep/x", "").ends_with("\r\n\r\napp"));
    assert!(get(&site, "/old/x", "").contains("\r\nLocation: /app\r\n"));
}

#[test]
fn rules_are_in_files_only() {
    let folder = folder(&[("a", "a")]);
    let path = folder.path().join("_headers");
    let load = || {
        Site::load_with(
            folder.path(),
            &Limits::default(),
            &Settings::default(),
            |_| {},
        )
    };
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let error = load().unwrap_err().to_string();
    assert!(
        error.contains("_headers is a named pipe, so no rule"),
        "{error}"
    );
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let error = load().unwrap_err().to_string();
    assert!(
        error.contains("_headers is a folder, so no rule"),
        "{error}"
    );
}

#[test]
fn a_change_of_the_rules_for_fields_reaches_files_that_have_not_changed() {
    let folder = folder(&[
        ("a", "a"),
        ("_headers", "/a\n X: 1\n"),
        ("_redirects", "/x/* /y/:splat\n/z/* / 302\n/home / 302\n"),
    ]);
    let site = load(folder.path(), &Settings::default());
    fs::write(folder.path().join("_headers"), "/a\n X: 2\n").unwrap();
    let next = site
        .load_next(folder.path(), &Limits::default(), |_| {})
        .unwrap();
    assert!(get(&next.site, "/a", "").contains("\r\nX: 2\r\n"));
    let last = next
        .site
        .load_next(folder.path(), &Limits::default(), |_| {})
        .unwrap();
    assert!(last.origins.iter().all(|origin| *origin != NEW));
}

#[test]
fn a_field_that_a_rule_removes_from_a_file_is_not_in_an_error_about_its_ranges_either() {
    let rules =
        "/*\n  X-A: 1\n  X-B: 1\n  Link: </a>\n  Vary: X\n/a/*\n  ! X-A\n  ! Link\n  ! Vary\n";
    let folder = folder(&[("a/b", "b"), ("b", "b"), ("_headers", rules)]);
    let site = load(folder.path(), &Settings::default());
    let fields = |path: &str| {
        let response = get(&site, path, "Range: bytes=1-\r\n");
        let names = ["416", "X-A: 1", "X-B: 1", "Link: </a>", "Vary: X"];
        let found = names.into_iter().filter(|one| response.contains(one));
        found.collect::<Vec<_>>()
    };
    // A cache needs `Vary` in any case.
    assert_eq!(fields("/a/b"), ["416", "X-B: 1", "Vary: X"]);
    assert_eq!(
        fields("/b"),
        ["416", "X-A: 1", "X-B: 1", "Link: </a>", "Vary: X"]
    );
}

#[test]
fn a_missing_file_has_the_page_of_the_innermost_folder_that_has_one() {
    let folder = folder(&[
        ("404.html", "of the site"),
        ("a b/404.html", "of a b"),
        ("a b/c/d/404.html", "of d"),
        ("e/x", "x"),
        ("_headers", "/a%20b/*\n  X-A: 1\n"),
    ]);
    let mut settings = Settings::default();
    let site = load(folder.path(), &settings);
    let page = |site: &Site, path: &str| {
        let response = get(site, path, "");
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 404 "), "{path}: {head}");
        assert_eq!(head.contains("X-A: 1"), path.starts_with("/a%20b"));
        body.to_owned()
    };
    let deep = format!("/a%20b/{}", "c/".repeat(2_000));
    for (path, expected) in [
        ("/none", "of the site"),
        ("/e/none", "of the site"),
        ("/e", "of the site"),
        ("/a%20b", "of the site"),
        ("/a%20b/", "of a b"),
        ("/a%20b/none", "of a b"),
        ("/a%20b/c/d", "of a b"),
        ("/a%20b/c/dd/none", "of a b"),
        ("/a%20b/c/d/none", "of d"),
        ("/a%20b/c/d/e/f/", "of d"),
        ("/a%20b/c/d%2Fe", "of a b"),
        (&deep, "of a b"),
    ] {
        assert_eq!(page(&site, path), expected, "{path}");
    }
    let next = site.load_next(folder.path(), &Limits::default(), |_| {});
    let next = next.unwrap();
    assert_eq!((next.added(), next.leaving.len()), (0, 0));
    settings.add_error_page(Status::NotFound, b"/e/x");
    let site = load(folder.path(), &settings);
    assert_eq!(page(&site, "/a%20b/none"), "x");
}

#[test]
fn an_encoded_slash_asks_for_the_same_password_whether_or_not_there_is_a_file() {
    let rules = "/below/:p/:q/:r /a/x 200\n/below/:x/* /b/:x 200\n";
    let folder = folder(&[("_redirects", rules), ("a/y", "y"), ("b/known", "x")]);
    let users = tempfile::NamedTempFile::new().unwrap();
    let hash = "a:$2y$05$RTb6JeYNsfgw.Hd5df0OPuTz70n1ENWFVaAp56IAVAO2Soo4rJ6Au";
    fs::write(&users, hash).unwrap();
    let mut settings = Settings::default();
    for path in ["/a", "/b"] {
        let realm = format!("{path}={}", users.path().display());
        settings.add_basic_auth(&realm).unwrap();
    }
    let site = load(folder.path(), &settings);
    let of = |path: &str| site.realm(path.as_bytes(), None).unwrap();
    let [known, none] = [of("/below/known/u%2Fv"), of("/below/none/u%2Fv")];
    assert!(std::ptr::eq(known, none));
}

#[test]
fn the_page_of_a_folder_needs_no_other_password_than_the_folder() {
    let folder = folder(&[
        ("404.html", "of the site"),
        ("a/404.html", "secret"),
        ("a/b/x", "x"),
    ]);
    let users = tempfile::NamedTempFile::new().unwrap();
    let hash = "a:$2y$05$RTb6JeYNsfgw.Hd5df0OPuTz70n1ENWFVaAp56IAVAO2Soo4rJ6Au";
    fs::write(&users, hash).unwrap();
    let site_with = |realms: &[&str]| {
        let mut settings = Settings::default();
        for realm in realms {
            let realm = format!("{realm}={}", users.path().display());
            settings.add_basic_auth(&realm).unwrap();
        }
        load(folder.path(), &settings)
    };
    let page_of = |realm: &str| {
        let site = site_with(&[realm]);
        let response = get(&site, "/a/none", "");
        (status(&site, "/a/none"), response.ends_with("secret"))
    };
    assert_eq!(page_of("/a/404.html"), ("404".to_owned(), false));
    assert_eq!(page_of("/a"), ("401".to_owned(), false));
    assert_eq!(page_of("/a/b"), ("404".to_owned(), true));
    // What a user sees for a missing file, after the password for its path.
    let page = |realms: &[&str], path: &str| {
        let site = site_with(realms);
        let reply = site.reply(site.missing(path.as_bytes()));
        String::from_utf8_lossy(reply.body()).into_owned()
    };
    for (realms, path, expected) in [
        (&["/a", "/a/b"][..], "/a/none", "secret"),
        (&["/a", "/a/b"], "/a/c/none", "secret"),
        (&["/a", "/a/b"], "/a/b/none", "of the site"),
        (&["/a", "/a/b"], "/a/b%2Fnone", "of the site"),
        (&["/a/b"], "/a/b/none", "secret"),
    ] {
        assert_eq!(page(realms, path), expected, "{realms:?} {path}");
    }
}

#[test]
fn a_long_page_of_a_folder_is_not_used() {
    let [fits, long] = [256 << 10, (256 << 10) + 1].map(|len| "x".repeat(len));
    let folder = folder(&[
        ("404.html", "of the site"),
        ("a/404.html", &fits),
        ("b/404.html", &long),
    ]);
    for memory in [None, Some(MemoryBudget::new(0))] {
        let settings = Settings {
            memory,
            ..Settings::default()
        };
        let mut warnings = Vec::new();
        let limits = Limits::default();
        let site = Site::load_with(folder.path(), &limits, &settings, |one| {
            if let Progress::Warning { warning, .. } = one {
                warnings.push(warning.to_string());
            }
        });
        let site = site.unwrap();
        let page = |path: &[u8]| site.reply(site.missing(path)).body();
        assert_eq!(page(b"/a/none").len(), fits.len());
        assert_eq!(page(b"/b/none"), b"of the site");
        let of_page = warnings.iter().filter(|one| one.contains("404.html"));
        let of_page: Vec<_> = of_page.collect();
        assert!(
            of_page.len() == 1 && of_page[0].starts_with("/b/404.html "),
            "{warnings:?}"
        );
    }
}

#[test]
fn a_folder_gets_no_list_if_its_index_cannot_be_served() {
    let folder = folder(&[("a.txt", "a"), ("b.txt", "b"), ("sub/c.txt", "c")]);
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("index.html")).unwrap();
    let settings = Settings {
        listings: true,
        ..Settings::default()
    };
    let site = load(folder.path(), &settings);
    for path in ["/", "/index.html", "/index.json"] {
        assert_eq!(status(&site, path), "404", "{path}");
    }
    assert!(get(&site, "/sub/", "").contains("./c.txt"));
    let limits = Limits {
        files: 1,
        ..Limits::default()
    };
    fs::remove_file(folder.path().join("index.html")).unwrap();
    let site = Site::load_with(folder.path(), &limits, &settings, |_| {}).unwrap();
    assert_eq!(
        status(&site, "/"),
        "404",
        "the index may be among the other files"
    );
}

#[test]
fn a_folder_without_an_index_gets_lists_of_its_entries() {
    let folder = folder(&[
        ("b.txt", "12345"),
        ("sub/c.txt", "c"),
        ("own/index.html", "own"),
        (".hidden", "x"),
        ("_headers", "/*\n X-A: 1\n"),
    ]);
    let settings = Settings {
        listings: true,
        ..Settings::default()
    };
    let site = load(folder.path(), &settings);
    let html = get(&site, "/", "");
    for part in ["text/html", "X-A: 1", "./b.txt", "./sub/", "./own/"] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    for part in [".hidden", "_headers"] {
        assert!(!html.contains(part), "{part} is in {html}");
    }
    let json = get(&site, "/index.json", "");
    assert!(
        json.contains("application/json") && json.contains("\"size\":5"),
        "{json}"
    );
    assert!(get(&site, "/sub/", "").contains("./c.txt"));
    assert!(get(&site, "/sub", "").contains("\r\nLocation: /sub/\r\n"));
    assert!(get(&site, "/own/", "").ends_with("own"));
    assert_eq!(status(&site, "/own/index.json"), "404");
    assert_eq!((site.totals().files, site.file_paths().count()), (3, 3));
    let next = site
        .load_next(folder.path(), &Limits::default(), |_| {})
        .unwrap();
    assert!(next.origins.iter().all(|origin| *origin != NEW));
    assert_eq!(
        status(&load(folder.path(), &Settings::default()), "/"),
        "404"
    );
}

#[test]
fn hidden_files_are_served_if_the_settings_say_so() {
    let folder = folder(&[("a", "a"), (".b/c", "c")]);
    let mut settings = Settings::default();
    assert_eq!(status(&load(folder.path(), &settings), "/.b/c"), "404");
    settings.hidden = true;
    assert_eq!(status(&load(folder.path(), &settings), "/.b/c"), "200");
}

/// A coder, and the settings with it.
fn coder(cache: Option<&Path>) -> (Arc<Coder>, Settings) {
    coder_up_to(u64::MAX, cache)
}

fn coder_up_to(max_bytes: u64, cache: Option<&Path>) -> (Arc<Coder>, Settings) {
    let coder = Coder::open(Effort::Fast, cache.map(Path::to_owned), max_bytes).unwrap();
    let coder = Arc::new(coder);
    let settings = Settings {
        coder: Some(Arc::clone(&coder)),
        ..Settings::default()
    };
    (coder, settings)
}

/// Makes all coded forms.
fn work(background: &Background, mut site: Arc<Site>) -> Arc<Site> {
    loop {
        match background.step(&site) {
            Done::Some => {}
            Done::Site(next) => {
                assert!(next.leaving.is_empty());
                site = Arc::clone(&next.site);
            }
            Done::Nothing => return site,
        }
    }
}

const GZIP: &str = "Accept-Encoding: gzip\r\n";
const CODED: &str = "\r\nContent-Encoding: gzip\r\n";

#[test]
#[cfg(target_os = "linux")]
fn coded_forms_become_part_of_the_site_and_stay_when_it_is_loaded_again() {
    let long = LONG.repeat(100);
    let folder = folder(&[
        ("index.html", &long),
        ("docs/a.txt", &long.replace("wind", "rain")),
        ("short.txt", "short"),
        ("image.png", &long),
        ("coded.txt", &long),
        ("_headers", "/coded.txt\n Content-Encoding: x\n"),
        ("_redirects", "/spa/* / 200\n"),
    ]);
    let (coder, mut settings) = coder(None);
    settings.clean_urls = true;
    let site = Arc::new(load(folder.path(), &settings));
    for path in ["/", "/docs/a.txt"] {
        let plain = get(&site, path, GZIP);
        assert!(plain.contains("\r\nVary: Accept-Encoding\r\n") && !plain.contains(CODED));
    }
    let background = Background::new(coder);
    let site = work(&background, site);
    assert_eq!(site.totals().coded, 6);
    for path in ["/", "/index.html", "/index", "/docs/a.txt", "/spa/x"] {
        assert!(get(&site, path, GZIP).contains(CODED), "{path}");
        assert!(!get(&site, path, "").contains(CODED), "{path}");
    }
    for path in ["/short.txt", "/image.png", "/coded.txt"] {
        let plain = get(&site, path, GZIP);
        assert!(!plain.contains(CODED) && !plain.contains("Vary"), "{path}");
    }
    fs::write(folder.path().join("new.css"), &long).unwrap();
    let next = site
        .load_next(folder.path(), &Limits::default(), |_| {})
        .unwrap();
    assert!(next.leaving.is_empty());
    assert_eq!(
        next.origins.iter().filter(|origin| **origin == NEW).count(),
        2
    );
    let last = work(&background, next.site);
    assert!(get(&last, "/new.css", GZIP).contains(CODED));
    assert_eq!(last.totals().coded, 9);
}

#[test]
#[cfg(target_os = "linux")]
fn pages_for_errors_get_the_coded_forms_of_their_files() {
    let long = LONG.repeat(100);
    let folder = folder(&[
        ("index.html", "home"),
        ("404.html", &long),
        ("_redirects", "/gone /404.html 410\n"),
    ]);
    let (coder, settings) = coder(None);
    let site = Arc::new(load(folder.path(), &settings));
    let plain = get(&site, "/none", GZIP);
    assert!(plain.contains("\r\nVary: Accept-Encoding\r\n") && plain.ends_with(&long));
    let site = work(&Background::new(coder), site);
    let next = site
        .load_next(folder.path(), &Limits::default(), |_| {})
        .unwrap();
    assert!(next.leaving.is_empty());
    assert!(next.origins.iter().all(|origin| *origin != NEW));
    for site in [&site, &next.site] {
        for (path, status) in [("/none", "HTTP/1.1 404 "), ("/gone", "HTTP/1.1 410 ")] {
            let coded = get(site, path, GZIP);
            assert!(
                coded.starts_with(status) && coded.contains(CODED),
                "{coded}"
            );
            assert!(coded.contains("\r\nVary: Accept-Encoding\r\n"), "{coded}");
            assert!(
                coded.len() < long.len() / 2 && !coded.contains("ETag"),
                "{coded}"
            );
            let plain = get(site, path, "");
            assert!(!plain.contains(CODED) && plain.ends_with(&long), "{plain}");
        }
    }
    fs::write(folder.path().join("404.html"), "short").unwrap();
    let last = site
        .load_next(folder.path(), &Limits::default(), |_| {})
        .unwrap();
    assert!(get(&last.site, "/none", GZIP).ends_with("\r\n\r\nshort"));
}

#[test]
#[cfg(target_os = "linux")]
fn a_server_that_starts_again_finds_its_coded_forms() {
    let folder = folder(&[("a.html", &LONG.repeat(100))]);
    let cache = tempfile::tempdir().unwrap();
    let (first, settings) = coder(Some(cache.path()));
    let site = Arc::new(load(folder.path(), &settings));
    work(&Background::new(first), site);
    let (_, settings) = coder(Some(cache.path()));
    let site = load(folder.path(), &settings);
    assert!(get(&site, "/a.html", GZIP).contains(CODED));
    assert!(site.uncoded().is_empty());
}

#[test]
#[cfg(target_os = "linux")]
fn coded_forms_are_made_as_long_as_there_is_room() {
    // Each coded form has some 1,500 bytes.
    let text = |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        (0..3_000).map(|_| rng.digit(16)).collect::<String>()
    };
    let texts: Vec<String> = (0..9).map(text).collect();
    let names: Vec<String> = (0..9).map(|n| format!("{n}.txt")).collect();
    let files = names.iter().map(String::as_str);
    let files: Vec<_> = files.zip(texts.iter().map(String::as_str)).collect();
    let folder = folder(&files);
    let plain = load(folder.path(), &Settings::default())
        .totals()
        .reply_bytes;
    let limit = plain + 12_000;
    let cache = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let (coder, settings) = coder_up_to(limit, Some(cache.path()));
        let site = Arc::new(load(folder.path(), &settings));
        let site = work(&Background::new(coder), site);
        let totals = site.totals();
        assert!((1..27).contains(&totals.coded), "{totals:?}");
        assert!(totals.reply_bytes < limit + 6_000, "{totals:?}");
        let made = fs::read_dir(cache.path()).unwrap().count();
        assert!(made < 27, "{made} forms were made for {totals:?}");
    }
}
