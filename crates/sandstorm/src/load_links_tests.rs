//! Tests of links that lead out of the folder, and may.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::tests::{body, folder};
use super::*;

fn all() -> Settings {
    Settings {
        follow_links: FollowLinks::All,
        ..Settings::default()
    }
}

/// Loads a folder whose links may lead out. Returns the site, and a line for each entry left out.
fn load(folder: &Path) -> (Site, Vec<String>) {
    let mut lines = Vec::new();
    let site = Site::load_with(folder, &Limits::default(), &all(), |progress| {
        if let Progress::Skipped(skipped) = progress {
            lines.push(skipped.to_string());
        }
    });
    (site.unwrap(), lines)
}

#[test]
fn files_and_folders_outside_are_served() {
    let outside = folder(&["file.txt", "shared/a", "shared/b/c", "site/index.html"]);
    let at = |path: &str| outside.path().join(path);
    symlink("../file.txt", at("site/file")).unwrap();
    symlink(at("shared"), at("site/shared")).unwrap();
    symlink("shared/b", at("site/way")).unwrap();
    symlink("../../file.txt", at("shared/b/back")).unwrap();
    symlink("../site/index.html", at("shared/home")).unwrap();
    let (site, lines) = load(&at("site"));
    assert!(lines.is_empty(), "{lines:?}");
    for (path, content) in [
        ("/file", "file.txt"),
        ("/shared/a", "shared/a"),
        ("/shared/b/c", "shared/b/c"),
        ("/way/c", "shared/b/c"),
        ("/shared/b/back", "file.txt"),
        ("/shared/home", "site/index.html"),
    ] {
        assert_eq!(
            body(&site, path.as_bytes()),
            Some(content.as_bytes()),
            "{path}"
        );
    }
    let real = outside.path().canonicalize().unwrap();
    let targets = site.outside();
    let targets: Vec<_> = targets
        .map(|path| path.strip_prefix(&real).unwrap())
        .collect();
    let expected = ["file.txt", "shared", "shared/b", "site/index.html"];
    assert_eq!(targets, expected.map(Path::new));
    // A reload finds them again.
    fs::write(at("shared/a"), "another").unwrap();
    let next = site
        .load_next(&at("site"), &Limits::default(), |_| {})
        .unwrap();
    assert_eq!(body(&next.site, b"/shared/a"), Some(&b"another"[..]));
    assert_eq!(next.site.outside().count(), 4);
}

#[test]
fn circles_through_other_folders_end() {
    let outside = folder(&["common/a", "site/index.html"]);
    let at = |path: &str| outside.path().join(path);
    symlink("../common", at("site/common")).unwrap();
    symlink("../site", at("common/site")).unwrap();
    symlink("loop", at("common/loop")).unwrap();
    symlink("nowhere", at("common/dangling")).unwrap();
    let (site, mut lines) = load(&at("site"));
    lines.sort();
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(
        lines[0].contains("common/dangling\" is a link to \"nowhere\""),
        "{lines:#?}"
    );
    assert!(
        lines[1].contains("is a link that leads to no end"),
        "{lines:#?}"
    );
    assert!(
        lines[2].contains("is a link to a folder that contains the link"),
        "{lines:#?}"
    );
    assert_eq!(body(&site, b"/common/a"), Some(&b"common/a"[..]));
    assert_eq!(site.totals().files, 2);
}

#[test]
fn a_link_may_leave_the_folder_and_come_back() {
    let outside = folder(&["site/a", "site/sub/", "other/b"]);
    let at = |path: &str| outside.path().join(path);
    for (target, link) in [
        ("../site/a", "site/back"),
        ("../../site/a", "site/sub/back"),
        ("../other/b", "site/away"),
        ("../site/../other/b", "site/twice"),
        ("../none/a", "site/none"),
    ] {
        symlink(target, at(link)).unwrap();
    }
    let site = Site::load_with(
        &at("site"),
        &Limits::default(),
        &Settings::default(),
        |_| {},
    );
    let site = site.unwrap();
    for path in ["/back", "/sub/back"] {
        assert_eq!(body(&site, path.as_bytes()), Some(&b"site/a"[..]), "{path}");
    }
    for path in ["/away", "/twice", "/none"] {
        assert_eq!(body(&site, path.as_bytes()), None, "{path}");
    }
}

#[test]
fn rules_may_be_outside() {
    let outside = folder(&["site/index.html"]);
    let at = |path: &str| outside.path().join(path);
    fs::write(at("rules"), "/old /new\n").unwrap();
    symlink("../rules", at("site/_redirects")).unwrap();
    let request = b"GET /old HTTP/1.1\r\nHost: a\r\n\r\n";
    let (site, _) = load(&at("site"));
    let crate::Step::Answer(answer) = crate::Session::default().next(&site, request) else {
        panic!("no answer");
    };
    assert_eq!(answer.of(&site).status().code(), 301);
    assert_eq!(site.outside().count(), 1);
}

#[test]
fn no_link_leads_to_a_file_with_users() {
    const USERS: &str = "ali:$2y$05$bvIG6Nmid91Mu9RcmmWZfO5HJIMCT8riNW0hEp8f6/FuA2/mHZFpe\n";
    let outside = folder(&["site/index.html", "site/.hidden/", "etc/"]);
    let at = |path: &str| outside.path().join(path);
    for (users, links) in [
        ("etc/users", FollowLinks::All),
        ("site/.hidden/users", FollowLinks::Inside),
    ] {
        fs::write(at(users), USERS).unwrap();
        let mut settings = Settings {
            follow_links: links,
            ..Settings::default()
        };
        let option = format!("/admin={}", at(users).display());
        settings.add_basic_auth(&option).unwrap();
        let load = || Site::load_with(&at("site"), &Limits::default(), &settings, |_| {});
        load().unwrap();
        let folder = at(users).parent().unwrap().to_owned();
        symlink(folder, at("site/link")).unwrap();
        let error = load().unwrap_err().to_string();
        let named = format!("{} is ", at(users).display());
        let entry = at("site/link/users");
        let entry = format!("{} too, which is in the served folder", entry.display());
        assert!(
            error.starts_with(&named) && error.contains(&entry),
            "{error}"
        );
        fs::remove_file(at("site/link")).unwrap();
    }
}
