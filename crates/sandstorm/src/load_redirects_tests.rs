//! Tests of redirects and rewrites of a folder.

use super::*;
use crate::coder::Made;
use crate::coding::Coding;

/// A user with a password, as `htpasswd` writes it.
const USERS: &str = "a:$2y$05$RTb6JeYNsfgw.Hd5df0OPuTz70n1ENWFVaAp56IAVAO2Soo4rJ6Au\n";

/// Follows the redirects from a path, without fragments. Returns the path at their end, and the response there.
fn follow(site: &Site, path: &str) -> (String, String) {
    let mut path = path.to_owned();
    for _ in 0..5 {
        let response = get(site, &path, "");
        let location = response.split("\r\nLocation: ").nth(1);
        match location.and_then(|rest| rest.split("\r\n").next()) {
            Some(location) => location.split('#').next().unwrap().clone_into(&mut path),
            None => return (path, response),
        }
    }
    panic!("too many redirects, the last one to {path}");
}

/// Loads a folder with rules, two pages with a clean URL, and a folder with an index.
fn load_with_redirects(rules: &str) -> (Site, Vec<String>) {
    let folder = folder(&[
        ("page.html", "page"),
        ("other.html", "other"),
        ("docs/index.html", "docs"),
        ("_redirects", rules),
    ]);
    let settings = Settings {
        clean_urls: true,
        ..Settings::default()
    };
    let mut messages = Vec::new();
    let report = |one: Progress<'_>| match one {
        Progress::Skipped(one) => messages.push(one.to_string()),
        Progress::Warning { warning, .. } => messages.push(warning.to_string()),
        Progress::Loaded(_) => {}
    };
    let site = Site::load_with(folder.path(), &Limits::default(), &settings, report);
    (site.unwrap(), messages)
}

#[test]
fn no_redirect_leads_to_itself() {
    for (rule, path, end) in [
        ("/en /en/", "/en", "/en/"),
        ("/en/ /en", "/en/", "/en"),
        ("/en /en/?a", "/en", "/en/?a"),
        ("/:a /:a/ 302", "/x", "/x/"),
        ("/:a/ /:a 302", "/x/", "/x"),
        ("/:a/:b /:b/:a", "/x/x", "/x/x"),
        ("/* /page.html 302!", "/other", "/page.html"),
        (
            "/* /page.html?from=:splat 302!",
            "/other",
            "/page.html?from=other",
        ),
        ("/* /page 302!", "/docs", "/page"),
        // The server itself redirects these targets.
        ("/* /page/ 302!", "/docs", "/page"),
        ("/* /docs 302!", "/page", "/docs/"),
        ("/page /docs 302!", "/page", "/docs/"),
        ("/s a=:a /s?a=:a&b=c", "/s?a=1", "/s?a=1&b=c"),
        ("/s a=:a /s?a=:a#b", "/s?c=d&a=%2f", "/s?a=%2F"),
        ("/:a/ /:a 301!", "/docs", "/docs/"),
        ("/docs/ a=:a /docs?a=:a 302!", "/docs/?a=1", "/docs/?a=1"),
        // An earlier rule ends the series.
        (
            "/en/* /:splat 200\n/* /en/:splat 302!",
            "/page.html",
            "/en/page.html",
        ),
    ] {
        let (site, messages) = load_with_redirects(rule);
        assert_eq!(messages, [""; 0], "{rule}");
        assert_eq!(follow(&site, path).0, end, "{rule}");
        assert_eq!(follow(&site, end).0, end, "{rule}");
    }
}

#[test]
fn an_extension_may_follow_a_placeholder() {
    let rules = "/:a.htm /:a.html 301\n/old/:a.txt/* /:splat/:a.text 302\n/:a.b.:c /x\n";
    let (site, skipped) = load_with_redirects(rules);
    for (path, to) in [
        ("/x.htm", "301 /x.html"),
        ("/x.y.htm/?q", "301 /x.y.html?q"),
        ("/old/a.txt/b", "302 /b/a.text"),
        ("/x.html", "404 "),
        ("/x", "404 "),
    ] {
        let response = get(&site, path, "");
        let location = response.split_once("\r\nLocation: ");
        let location = location.and_then(|(_, after)| after.lines().next());
        let found = format!("{} {}", &response[9..12], location.unwrap_or_default());
        assert_eq!(found, to, "{path}");
    }
    let [one] = &skipped[..] else {
        panic!("{skipped:?}");
    };
    assert!(one.contains("_redirects\" line 3, column 1: \":a.b.:c\" is no placeholder"));
}

#[test]
fn a_rule_for_a_missing_page_is_reported() {
    let folder = folder(&[
        ("a", "a"),
        ("404.html", "own page"),
        ("sub/404.html", "own page"),
        ("_redirects", "/x /none 200\n/y /none 404\n/a /none 403!\n"),
    ]);
    let users = tempfile::NamedTempFile::new().unwrap();
    let mut settings = Settings::default();
    fs::write(&users, USERS).unwrap();
    let realm = format!("/sub={}", users.path().display());
    settings.add_basic_auth(&realm).unwrap();
    settings.add_error_page(crate::Status::Gone, b"/gone.html");
    settings.add_error_page(crate::Status::NotFound, b"/none.html");
    settings.add_error_page(crate::Status::Unauthorized, b"/login.html");
    let (mut skipped, mut warnings) = (Vec::new(), Vec::new());
    let site = Site::load_with(
        folder.path(),
        &Limits::default(),
        &settings,
        |one| match one {
            Progress::Skipped(one) => skipped.push(one.to_string()),
            Progress::Warning { warning, .. } => warnings.push(warning.to_string()),
            Progress::Loaded(_) => {}
        },
    );
    let site = site.unwrap();
    assert_eq!(status(&site, "/x"), "404");
    assert_eq!(
        status(&site, "/a"),
        "403",
        "the file stays hidden without the page"
    );
    let response = get(&site, "/x", "");
    assert!(!response.ends_with("own page"), "{response}");
    assert_eq!(status(&site, "/sub/"), "401");
    // Only the rewrite does not hold.
    let [one] = &skipped[..] else {
        panic!("{skipped:?}");
    };
    assert!(one.contains("is what \"/x /none 200\" leads to"), "{one}");
    assert_eq!(site.totals().skipped, 1);
    let named = |rule: &str, page: &str, also: &str| {
        format!(
            "{rule:?} leads to {page}, but there is no such file, so clients get a page of the server\
             {also}; add or correct the file, or name another one"
        )
    };
    warnings.sort();
    let expected = [
        named("/a /none 403!", "/none", ""),
        named("/y /none 404", "/none", ""),
        named("error page 401", "/login.html", ""),
        named(
            "error page 404",
            "/none.html",
            ", and no 404.html is used either",
        ),
        named("error page 410", "/gone.html", ""),
    ];
    assert_eq!(warnings, expected);
}

#[test]
fn a_redirect_that_only_leads_to_itself_is_reported() {
    for rule in [
        "/en/ /en/",
        "/news/* /news/:splat 302",
        "/* /:splat 301!",
        "/* /a/:splat 301!",
        "/docs/ /docs 301!",
        "/page /page/ 301!",
    ] {
        let (site, messages) = load_with_redirects(rule);
        assert_eq!(messages.len(), 1, "{rule}: {messages:?}");
        assert!(messages[0].contains("write another target"), "{messages:?}");
        for (path, end) in [("/docs", "docs"), ("/page/", "page"), ("/docs/", "docs")] {
            assert!(follow(&site, path).1.ends_with(end), "{rule} {path}");
        }
    }
}

#[test]
fn a_rule_does_not_keep_a_later_one_from_paths_for_which_it_does_not_hold() {
    let (site, _) = load_with_redirects(
        "/x /page 302\n/* /docs 302\n/page.html /none 403!\n/x/ /page 302\n/* /none 410!\n",
    );
    assert_eq!(status(&site, "/page.html"), "403");
    assert_eq!(status(&site, "/page"), "410");
    assert_eq!(follow(&site, "/x/").0, "/page");
}

#[test]
fn a_rewrite_leads_to_the_file_although_a_rule_redirects_from_its_path() {
    let rules = "/index.html / 301!\n/docs/* /new/:splat 301!\n/private/* /new/:splat 301!\n\
                 /shut.txt /none 404!\n/404.html /404.html 404!\n/moved /new/moved\n\
                 /files/* /:splat 200\n/link /private/a.txt 200\n/to-moved /moved 200\n\
                 /gone /docs/page.html 410\n/v1/* /:splat 200!\n/deep/* /index.html 200\n\
                 /secret/* /none 404!\n";
    let long = LONG.repeat(20);
    let folder = folder(&[
        ("index.html", &long),
        ("index.html.gz", "\x1f"),
        ("docs/page.html", "page"),
        ("private/a.txt", "private"),
        ("shut.txt", "shut"),
        ("404.html", "lost"),
        ("secret/a.txt", "secret"),
        ("v1/secret/a.txt", "old secret"),
        ("v1/v1/secret/a.txt", "oldest secret"),
        ("v1/docs/page.html", "old page"),
        ("_redirects", rules),
    ]);
    let outside = tempfile::tempdir().unwrap();
    let users = outside.path().join("users");
    fs::write(&users, USERS).unwrap();
    let mut settings = Settings {
        clean_urls: true,
        ..Settings::default()
    };
    let realm = format!("/private={}", users.display());
    settings.add_basic_auth(&realm).unwrap();
    let (site, skipped) = load_with_messages(folder.path(), &settings);
    for (path, code, end) in [
        ("/index.html", "301", ""),
        ("/deep/link", "200", &*long),
        ("/files/index.html", "200", &long),
        ("/files/docs/page.html", "200", "page"),
        ("/files/docs/page", "200", "page"),
        ("/v1/docs/page.html", "200", "page"),
        ("/v1/docs/page", "200", "page"),
        ("/docs/page.html", "301", ""),
        ("/gone", "410", "page"),
        // An error keeps its file from rewrites too, and so does a password.
        ("/shut.txt", "404", ""),
        ("/files/shut.txt", "404", ""),
        ("/files/secret/a.txt", "404", ""),
        ("/v1/secret/a.txt", "404", ""),
        // The order in which paths are looked at does not matter.
        ("/v1/v1/secret/a.txt", "200", "old secret"),
        ("/link", "401", ""),
        ("/files/private/a.txt", "401", ""),
        ("/private/a.txt", "401", ""),
        // A rule is no file.
        ("/to-moved", "404", "lost"),
        ("/files/moved", "404", "lost"),
        ("/404.html", "404", "lost"),
        ("/none", "404", "lost"),
    ] {
        let response = get(&site, path, "");
        assert_eq!(&response[9..12], code, "{path}");
        assert!(response.ends_with(end), "{path}: {response}");
    }
    assert!(
        skipped[0].contains("moved\" is what \"/to-moved"),
        "{skipped:?}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn a_file_that_a_rule_redirects_is_taken_over_at_a_reload() {
    let long = LONG.repeat(20);
    let rules = "/index.html / 301!\n/* /index.html 200\n";
    let folder = folder(&[("index.html", &long), ("_redirects", rules)]);
    let coder = Coder::open(Effort::Fast, None, u64::MAX).unwrap();
    let Made::Coded(coded) = coder.make(long.as_bytes(), Coding::Gzip) else {
        panic!("the text can be compressed");
    };
    fs::write(folder.path().join("index.html.gz"), &coded[..]).unwrap();
    let site = load(folder.path(), &Settings::default());
    let is_coded = |site: &Site| {
        get(site, "/x", "Accept-Encoding: gzip\r\n").contains("Content-Encoding: gzip")
    };
    assert!(is_coded(&site));
    let next = site
        .load_next(folder.path(), &Limits::default(), |_| {})
        .unwrap();
    assert!(next.origins.iter().all(|origin| *origin != NEW));
    assert!(is_coded(&next.site));
}

/// Loads the folder again and again. Each reply stays, and no two replies take over the same one.
#[test]
#[cfg(target_os = "linux")]
fn a_reply_is_taken_over_once_although_others_equal_it() {
    let folder = folder(&[
        ("docs/index.html", "docs"),
        ("y.html", "page"),
        ("_redirects", "/docs /docs/ 301!\n/x.html /y.html 200\n"),
    ]);
    let mut site = load(folder.path(), &Settings::default());
    for _ in 0..3 {
        let next = site
            .load_next(folder.path(), &Limits::default(), |_| {})
            .unwrap();
        let distinct: std::collections::HashSet<_> = next.origins.iter().collect();
        assert_eq!(distinct.len(), next.origins.len());
        assert!(!distinct.contains(&NEW) && next.leaving.is_empty());
        site = Arc::into_inner(next.site).unwrap();
    }
    // A file comes to a path from which a rule led to an equal one.
    fs::copy(folder.path().join("y.html"), folder.path().join("x.html")).unwrap();
    let next = site
        .load_next(folder.path(), &Limits::default(), |_| {})
        .unwrap();
    let mut known: Vec<_> = next.origins.iter().filter(|one| **one != NEW).collect();
    known.sort();
    known.dedup();
    let new = next.added() as usize;
    assert_eq!(known.len() + new, next.origins.len());
}
