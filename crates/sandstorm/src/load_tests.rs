use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use tempfile::TempDir;

use super::*;

/// A folder with these files, whose content is their name. Names that end
/// with a slash become folders.
fn folder(names: &[&str]) -> TempDir {
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

/// What a GET of `path` gives, if there is something.
fn body<'s>(site: &'s Site, path: &[u8]) -> Option<&'s [u8]> {
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
fn names_need_not_be_text() {
    let folder = folder(&[]);
    let name = OsStr::from_bytes(b"\xff\xfe \n.html");
    fs::write(folder.path().join(name), "odd").unwrap();
    let site = load(folder.path()).unwrap();
    assert_eq!(body(&site, b"/%FF%fe%20%0a.html").unwrap(), b"odd");
}

#[test]
fn the_folder_may_be_named_in_any_way() {
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
fn a_hidden_folder_can_be_served_when_it_is_named() {
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

/// That loading fails, with a message of one line that has these words.
fn assert_refused(folder: &Path, words: &[&str]) {
    let message = load(folder).unwrap_err().to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    for word in words {
        assert!(message.contains(word), "no {word:?} in {message:?}");
    }
}

#[test]
fn links_that_lead_out_are_refused() {
    let outside = folder(&["secret.txt", "site/index.html", "site-b/x", "secrets/a"]);
    let site = outside.path().join("site");
    let link = site.join("link");
    for target in [
        "../secret.txt",
        "../secrets",
        "..",
        "/",
        "/etc/passwd",
        "../site-b/x",
    ] {
        symlink(target, &link).unwrap();
        assert_refused(&site, &[link.to_str().unwrap(), "is a link to"]);
        fs::remove_file(&link).unwrap();
    }
    // Through another link that stays inside.
    symlink("link", site.join("way")).unwrap();
    symlink("../secret.txt", &link).unwrap();
    assert_refused(&site, &["is a link to", "secret.txt"]);
}

#[test]
fn links_in_a_circle_are_refused() {
    let folder = folder(&["a/b/c"]);
    symlink("..", folder.path().join("a/b/up")).unwrap();
    assert_refused(folder.path(), &["a/b/up", "in which it lies"]);
    fs::remove_file(folder.path().join("a/b/up")).unwrap();
    symlink("itself", folder.path().join("itself")).unwrap();
    assert_refused(folder.path(), &["itself", "cannot read"]);
}

#[test]
fn what_cannot_be_served_is_named() {
    let folder = folder(&["empty/.hidden", "empty/deep/er/", "dangling/x", "special/x"]);
    let path = |name: &str| folder.path().join(name);
    assert_refused(&path("nowhere"), &["nowhere", "name the folder"]);
    assert_refused(&path("dangling/x"), &["dangling/x", "is not a folder"]);
    assert_refused(&path("empty"), &["empty", "no file to serve"]);
    symlink("nothing", path("dangling/link")).unwrap();
    assert_refused(&path("dangling"), &["dangling/link", "cannot read"]);
    let _socket = UnixListener::bind(path("special/socket")).unwrap();
    assert_refused(
        &path("special"),
        &["special/socket", "neither a file nor a folder"],
    );
}

#[test]
fn too_much_is_refused() {
    let folder = folder(&["a", "b", "c"]);
    let load = |files, bytes| Site::load(folder.path(), &Limits { files, bytes }, |_| {});
    assert!(load(3, 3).is_ok());
    let error = load(2, 3).unwrap_err();
    assert!(
        matches!(error, LoadError::TooManyFiles { limit: 2, .. }),
        "{error}"
    );
    let error = load(3, 2).unwrap_err();
    assert!(
        matches!(error, LoadError::TooManyBytes { limit: 2, .. }),
        "{error}"
    );
    // A file that is mostly a hole, beyond what one response holds.
    let huge = File::create(folder.path().join("huge")).unwrap();
    huge.set_len(MAX_FILE_LEN + 1).unwrap();
    let error = load(9, u64::MAX).unwrap_err();
    assert!(matches!(error, LoadError::FileTooLong { .. }), "{error}");
}

#[test]
fn folders_lie_in_each_other_only_so_deep() {
    let deep = |depth: usize| folder(&[&*("d/".repeat(depth) + "file")]);
    // The file itself lies one deeper than its folder.
    assert!(load(deep(MAX_DEPTH - 1).path()).is_ok());
    assert_refused(deep(MAX_DEPTH).path(), &["folders deep"]);
}

#[test]
fn a_file_that_changes_is_noticed() {
    let folder = folder(&["four"]);
    let path = folder.path().join("four");
    for (len, right) in [(3, false), (4, true), (5, false)] {
        let mut file = File::open(&path).unwrap();
        let outcome = read_exactly(&mut file, &mut vec![0; len], &path);
        assert_eq!(outcome.is_ok(), right);
        assert!(right || matches!(outcome, Err(LoadError::Changed { .. })));
    }
}

#[test]
fn progress_is_told_after_each_entry() {
    let folder = folder(&["a", "b/c", ".d"]);
    let mut told = Vec::new();
    let site = Site::load(folder.path(), &Limits::default(), |totals| {
        told.push(*totals);
    })
    .unwrap();
    assert_eq!(told.last(), Some(site.totals()));
    assert!(told.is_sorted_by_key(|totals| totals.files));
}
