use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use super::*;
use crate::limits::{MAX_DEPTH, MAX_FILE_LEN};

/// Creates a folder with these files, each of which contains its own name. A name with a trailing
/// slash creates a folder.
pub(super) fn folder(names: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        let path = folder.path().join(name);
        if name.ends_with('/') {
            fs::create_dir_all(path).unwrap();
        } else {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
    }
    folder
}

fn load(folder: &Path) -> Result<Site, LoadError> {
    Site::load(folder, &Limits::default(), |_| {})
}

/// Returns the body of the response to GET, or `None` if the status is not 200.
pub(super) fn body<'s>(site: &'s Site, path: &[u8]) -> Option<&'s [u8]> {
    let request = [b"GET ", path, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
    let crate::Step::Answer(answer) = crate::Session::default().next(site, &request) else {
        panic!("no answer");
    };
    let reply = answer.of(site);
    let bytes = reply.bytes();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    (reply.status().code() == 200).then(|| &bytes[end.unwrap() + 4..])
}

#[test]
fn files_are_found_by_their_path() {
    let folder = folder(&["index.html", "a/b/c.txt", "a/index.html", "d e/%f?.txt"]);
    let site = load(folder.path()).unwrap();
    assert_eq!(body(&site, b"/").unwrap(), b"index.html");
    assert_eq!(body(&site, b"/a/b/c.txt").unwrap(), b"a/b/c.txt");
    assert_eq!(body(&site, b"/a/").unwrap(), b"a/index.html");
    assert_eq!(body(&site, b"/d%20e/%25f%3f.txt").unwrap(), b"d e/%f?.txt");
    assert_eq!(body(&site, b"/a/b/"), None);
    assert_eq!(body(&site, b"/a/b"), None);
    assert_eq!(site.totals().files, 4);
}

#[test]
fn file_names_need_not_be_utf_8() {
    let folder = folder(&[]);
    let name = OsStr::from_bytes(b"\xff\xfe \n.html");
    fs::write(folder.path().join(name), "odd").unwrap();
    let site = load(folder.path()).unwrap();
    assert_eq!(body(&site, b"/%FF%fe%20%0a.html").unwrap(), b"odd");
}

#[test]
fn the_folder_may_be_given_by_any_kind_of_path() {
    let outside = folder(&["site/a/index.html", "other/"]);
    let link = outside.path().join("link");
    symlink("site", &link).unwrap();
    for path in [
        "site",
        "site/",
        "./site/.",
        "other/../site",
        "link",
        "link/",
    ] {
        let site = load(&outside.path().join(path)).unwrap();
        assert_eq!(body(&site, b"/a/").unwrap(), b"site/a/index.html", "{path}");
    }
}

#[test]
fn hidden_files_are_left_out() {
    let folder = folder(&[
        ".htpasswd",
        ".git/config",
        "a/.secret",
        "a/b",
        ".well-known/security.txt",
        ".well-known/.hidden",
    ]);
    symlink("nowhere", folder.path().join(".#lock")).unwrap();
    let site = load(folder.path()).unwrap();
    for path in [
        "/.htpasswd",
        "/.git/config",
        "/a/.secret",
        "/.well-known/.hidden",
    ] {
        assert_eq!(body(&site, path.as_bytes()), None, "{path}");
    }
    assert!(body(&site, b"/.well-known/security.txt").is_some());
    assert_eq!((site.totals().files, site.totals().hidden), (2, 5));
}

#[test]
fn a_hidden_folder_is_served_if_the_user_names_it() {
    let outside = folder(&[".site/index.html"]);
    assert!(load(&outside.path().join(".site")).is_ok());
}

#[test]
fn links_are_followed_inside_the_folder() {
    let folder = folder(&["a/b.txt", "a/index.html"]);
    symlink("a/b.txt", folder.path().join("b.txt")).unwrap();
    symlink("a", folder.path().join("c")).unwrap();
    symlink(folder.path().join("a"), folder.path().join("d")).unwrap();
    let site = load(folder.path()).unwrap();
    assert_eq!(body(&site, b"/b.txt").unwrap(), b"a/b.txt");
    assert_eq!(body(&site, b"/c/").unwrap(), b"a/index.html");
    assert_eq!(body(&site, b"/d/b.txt").unwrap(), b"a/b.txt");
}

/// Returns the loaded site, and a line for each entry that was left out.
fn load_with(folder: &Path, limits: &Limits) -> (Site, Vec<String>) {
    let mut lines = Vec::new();
    let site = Site::load(folder, limits, |progress| {
        if let Progress::Skipped(skipped) = progress {
            lines.push(skipped.to_string());
        }
    });
    let site = site.unwrap();
    assert_eq!(site.totals().skipped as usize, lines.len());
    (site, lines)
}

/// Asserts which entries of the folder are left out. Each must have one line that contains the
/// expected words. `/index.html` must be served nevertheless.
fn assert_skipped(folder: &Path, expected: &[(&str, &str)]) {
    fs::write(folder.join("index.html"), "served").unwrap();
    let (site, lines) = load_with(folder, &Limits::default());
    assert_eq!(body(&site, b"/").unwrap(), b"served");
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, (name, words)) in lines.iter().zip(expected) {
        let path = format!("{:?}", folder.join(name));
        assert!(line.starts_with(&path), "no {path} in {line}");
        assert!(line.contains(words), "no {words:?} in {line}");
        assert_eq!(line.lines().count(), 1, "{line:?}");
    }
}

#[test]
fn links_that_point_outside_the_folder_are_left_out() {
    let outside = folder(&["secret.txt", "site/a/b", "site-b/x", "secrets/a"]);
    let site = outside.path().join("site");
    let link = site.join("link");
    for target in [
        "../secret.txt",
        "../secrets",
        "..",
        "a/../../secret.txt",
        "../site/../secret.txt",
        "/",
        "/etc/passwd",
        "../site-b/x",
        outside.path().join("secret.txt").to_str().unwrap(),
    ] {
        symlink(target, &link).unwrap();
        assert_skipped(&site, &[("link", "leads out of the folder")]);
        fs::remove_file(&link).unwrap();
    }
    // `way` is a link to `link` in the same folder, and `link` leads out of the folder.
    symlink("link", site.join("way")).unwrap();
    symlink("../secret.txt", &link).unwrap();
    assert_skipped(
        &site,
        &[("link", "secret.txt"), ("way", "to \"../secret.txt\"")],
    );
}

#[test]
fn links_through_other_links_are_followed_inside_the_folder() {
    let outside = folder(&["site/a/b/c", "site/d"]);
    let site = outside.path().join("site");
    symlink("site", outside.path().join("alias")).unwrap();
    let link = |target: &Path, name: &str| symlink(target, site.join(name)).unwrap();
    link(&site.join("a"), "absolute");
    link(Path::new("absolute/b/../../d"), "through");
    link(&outside.path().join("alias/d"), "by-alias");
    link(Path::new("../a/b/c"), "a/up");
    let (site, lines) = load_with(&site, &Limits::default());
    assert_eq!(lines, [""; 0]);
    for (path, expected) in [
        ("/absolute/b/c", "site/a/b/c"),
        ("/absolute/up", "site/a/b/c"),
        ("/through", "site/d"),
        ("/by-alias", "site/d"),
    ] {
        let found = body(&site, path.as_bytes());
        assert_eq!(found, Some(expected.as_bytes()), "{path}");
    }
}

#[test]
fn links_that_form_a_loop_are_left_out() {
    let folder = folder(&["a/b/c"]);
    symlink("..", folder.path().join("a/b/up")).unwrap();
    symlink(".", folder.path().join("here")).unwrap();
    symlink("itself", folder.path().join("itself")).unwrap();
    symlink("pong", folder.path().join("ping")).unwrap();
    symlink("ping", folder.path().join("pong")).unwrap();
    let round = folder.path().join("round");
    symlink(&round, &round).unwrap();
    assert_skipped(
        folder.path(),
        &[
            ("a/b/up", "a folder that contains the link"),
            ("here", "a folder that contains the link"),
            ("itself", "leads to no end"),
            ("ping", "leads to no end"),
            ("pong", "leads to no end"),
            ("round", "leads to no end"),
        ],
    );
}

#[test]
fn unservable_entries_are_left_out() {
    let folder = folder(&["special/x", "z"]);
    let path = |name: &str| folder.path().join(name);
    symlink("nothing", path("dangling")).unwrap();
    symlink("z/nothing", path("dangling-below-a-file")).unwrap();
    symlink(path("z/nothing"), path("dangling-by-its-whole-path")).unwrap();
    symlink("/nothing/at/all", path("dangling-far")).unwrap();
    let _socket = UnixListener::bind(path("special/socket")).unwrap();
    for pipe in ["pipe", "line\nfeed \u{1b}[31m"] {
        mknodat(
            CWD,
            path(pipe),
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
    }
    symlink("pipe", path("way")).unwrap();
    assert_skipped(
        folder.path(),
        &[
            ("dangling", "is a link to \"nothing\", which does not exist"),
            ("dangling-below-a-file", "which does not exist"),
            ("dangling-by-its-whole-path", "which does not exist"),
            ("dangling-far", "which does not exist"),
            ("line\nfeed \u{1b}[31m", "is a named pipe"),
            ("pipe", "is a named pipe"),
            ("special/socket", "is a socket"),
            ("way", "is a named pipe"),
        ],
    );
    // The name is not valid UTF-8.
    let non_utf8 = path("").join(OsStr::from_bytes(b"\xff"));
    symlink("nothing", non_utf8).unwrap();
    let (_, lines) = load_with(folder.path(), &Limits::default());
    assert!(lines.iter().any(|line| line.contains("/\\xFF\" is a link")));
}

#[test]
fn a_folder_with_nothing_to_serve_is_an_error() {
    let folder = folder(&["empty/.hidden", "empty/deep/er/", "file", "bad/"]);
    let path = |name: &str| folder.path().join(name);
    symlink("nothing", path("bad/link")).unwrap();
    symlink("nothing", path("link")).unwrap();
    for (name, words) in [
        ("nowhere", "there is no folder"),
        ("link", "there is no folder"),
        ("file", "is not a folder"),
        ("file/x", "is not a folder"),
        ("empty", "there is no file to serve"),
        ("bad", "each with its reason: 1"),
    ] {
        let message = load(&path(name)).unwrap_err().to_string();
        assert!(message.contains(words), "no {words:?} in {message:?}");
        assert!(message.contains(path(name).to_str().unwrap()), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn a_folder_named_index_html_is_not_an_index() {
    let folder = folder(&["index.html/a", "docs/index.html/index.html"]);
    let site = load(folder.path()).unwrap();
    assert_eq!(body(&site, b"/"), None);
    assert_eq!(body(&site, b"/index.html/a").unwrap(), b"index.html/a");
    assert_eq!(body(&site, b"/docs/"), None);
    assert!(body(&site, b"/docs/index.html/").is_some());
}

#[test]
fn files_beyond_the_limits_are_left_out() {
    let folder = folder(&["a", "bb", "c", "d/e"]);
    let load = |files, bytes| {
        let folders = 9;
        load_with(
            folder.path(),
            &Limits {
                files,
                bytes,
                folders,
            },
        )
    };
    let (site, lines) = load(4, 7);
    assert_eq!((site.totals().files, lines.len()), (4, 0));
    // After a file that does not fit, smaller files are still loaded.
    let (site, lines) = load(4, 2);
    assert_eq!(body(&site, b"/c").unwrap(), b"c");
    assert_eq!((site.totals().files, lines.len()), (2, 2));
    assert!(lines[0].contains("/bb\" has 2 bytes"), "{lines:?}");
    assert!(lines[0].contains("raise the limit"), "{lines:?}");
    let (site, lines) = load(2, 9);
    assert_eq!((site.totals().files, lines.len()), (2, 1));
    assert!(
        lines[0].contains("/c\" and all files behind it"),
        "{lines:?}"
    );
    assert!(lines[0].contains("--max-files"), "{lines:?}");
}

#[test]
fn a_file_too_long_for_one_response_is_left_out() {
    let folder = folder(&["a"]);
    for len in [MAX_FILE_LEN + 1, 1 << 32, 5 << 30, 1 << 42] {
        // The file is sparse, so it takes no space on disk.
        let huge = File::create(folder.path().join("huge")).unwrap();
        huge.set_len(len).unwrap();
        let limits = Limits {
            bytes: u64::MAX,
            ..Limits::default()
        };
        let (site, lines) = load_with(folder.path(), &limits);
        assert_eq!(site.totals().files, 1);
        assert!(lines[0].contains(&format!("has {len} bytes")), "{lines:?}");
    }
}

#[test]
fn folders_nested_too_deeply_are_left_out() {
    let deep = |depth: usize| folder(&[&*("d/".repeat(depth) + "file"), "a"]);
    let loaded = |depth| load_with(deep(depth).path(), &Limits::default());
    // The served folder itself counts as one level.
    let (site, lines) = loaded(MAX_DEPTH - 1);
    assert_eq!((site.totals().files, lines.len()), (2, 0));
    let (site, lines) = loaded(MAX_DEPTH);
    assert_eq!((site.totals().files, lines.len()), (1, 1));
    assert!(lines[0].contains("folders deep"), "{lines:?}");
}

#[test]
fn the_number_of_paths_to_folders_is_limited() {
    // Each folder contains two links to the next folder, which makes about 2^40 paths.
    let folder = folder(&["a"]);
    let path = |name: String| folder.path().join(name);
    for n in 0..40 {
        fs::create_dir(path(format!("d{n:02}"))).unwrap();
        for name in ["l", "r"] {
            symlink(format!("../d{:02}", n + 1), path(format!("d{n:02}/{name}"))).unwrap();
        }
    }
    let limits = Limits {
        folders: 1_000,
        ..Limits::default()
    };
    let (site, lines) = load_with(folder.path(), &limits);
    assert_eq!(site.totals().files, 1);
    let last = lines.last().unwrap();
    assert!(last.contains("more than 1000 paths to folders"), "{last}");
}

#[test]
fn progress_is_reported_after_each_file() {
    let folder = folder(&[".a", "b", "c/d"]);
    let mut reports = Vec::new();
    let site = Site::load(folder.path(), &Limits::default(), |progress| {
        if let Progress::Loaded(totals) = progress {
            reports.push(*totals);
        }
    })
    .unwrap();
    assert_eq!(reports.last(), Some(site.totals()));
    assert!(reports.is_sorted_by_key(|totals| totals.files));
}

#[path = "load_race_tests.rs"]
mod race;

#[test]
fn many_files_are_read_on_other_threads() {
    const FILES: usize = 3_000;
    let folder = folder(&["long"]);
    let name = |number: usize| format!("{}/{number}", number % 7);
    for number in 0..FILES {
        let path = folder.path().join(name(number));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, number.to_string()).unwrap();
    }
    let long = "x".repeat(reading::MAX_LEN as usize + 1);
    fs::write(folder.path().join("6/long"), &long).unwrap();
    symlink("../1/1", folder.path().join("6/link")).unwrap();
    let site = load(folder.path()).unwrap();
    assert_eq!(site.totals().files, FILES as u64 + 3);
    for number in 0..FILES {
        let path = format!("/{}", name(number));
        let expected = number.to_string();
        assert_eq!(body(&site, path.as_bytes()).unwrap(), expected.as_bytes());
    }
    assert_eq!(body(&site, b"/6/long").unwrap(), long.as_bytes());
    assert_eq!(body(&site, b"/6/link").unwrap(), b"1");
    let next = site.load_next(folder.path(), &Limits::default(), |_| {});
    assert_eq!(next.unwrap().added(), 0);
}

#[test]
fn limits_hold_for_files_that_are_being_read() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..2_500 {
        fs::write(folder.path().join(number.to_string()), [b'x'; 300]).unwrap();
    }
    let load = |limits: &Limits, memory: Option<u64>| {
        let settings = Settings {
            memory: memory.map(crate::memory_budget::MemoryBudget::new),
            ..Settings::default()
        };
        let mut skipped = Vec::new();
        let site = Site::load_with(folder.path(), limits, &settings, |one| {
            if let Progress::Skipped(one) = one {
                skipped.push(one.to_string());
            }
        });
        (*site.unwrap().totals(), skipped)
    };
    let limits = Limits {
        files: 1_777,
        ..Limits::default()
    };
    let (totals, skipped) = load(&limits, None);
    assert_eq!((totals.files, skipped.len()), (1_777, 1));
    let limits = Limits {
        bytes: 300 * 1_777 + 299,
        ..Limits::default()
    };
    let (totals, skipped) = load(&limits, None);
    assert_eq!((totals.files, skipped.len()), (1_777, 2_500 - 1_777));
    let (totals, _) = load(&Limits::default(), Some(2_500_000));
    assert_eq!(totals.files, 2_500);
    assert!((800..1_300).contains(&totals.disk_files), "{totals:?}");
}
