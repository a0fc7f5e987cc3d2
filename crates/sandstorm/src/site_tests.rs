use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::*;

fn at(second: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(second)
}

fn site_of(path: &str, content: &[u8]) -> Site {
    Builder::new(at(2_000_000_000))
        .file(path.as_bytes(), at(1_900_000_000), content)
        .build()
}

/// Returns the head of the response to a GET.
fn head(site: &Site, path: &str) -> String {
    let Ok(Page::File(page)) = site.find(path.as_bytes()) else {
        panic!("no file at {path}");
    };
    let bytes = site.reply(page.whole()).bytes();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    String::from_utf8(bytes[..end.unwrap()].to_vec()).unwrap()
}

fn field<'h>(head: &'h str, name: &str) -> &'h str {
    head.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        .unwrap_or_else(|| panic!("no {name} in {head}"))
}

#[test]
fn media_types_follow_the_extension() {
    for (path, media_type) in [
        ("/a.html", "text/html; charset=utf-8"),
        ("/a.HTML", "text/html; charset=utf-8"),
        ("/a.css", "text/css; charset=utf-8"),
        ("/a.js", "text/javascript; charset=utf-8"),
        ("/a.txt", "text/plain; charset=utf-8"),
        ("/a.md", "text/markdown; charset=utf-8"),
        ("/a.json", "application/json"),
        ("/a.svg", "image/svg+xml"),
        ("/a.png", "image/png"),
        ("/a.jpg", "image/jpeg"),
        ("/a.woff2", "font/woff2"),
        ("/a.wasm", "application/wasm"),
        ("/a.pdf", "application/pdf"),
        ("/a.tar.gz", "application/gzip"),
        ("/a.html/plain", "application/octet-stream"),
        ("/a", "application/octet-stream"),
        ("/a.", "application/octet-stream"),
        ("/html", "application/octet-stream"),
        ("/a.x-nobody-knows", "application/octet-stream"),
    ] {
        let site = site_of(path, b"content");
        assert_eq!(field(&head(&site, path), "Content-Type"), media_type);
    }
}

#[test]
fn text_that_is_not_utf_8_gets_no_charset() {
    let latin = b"d\xfcne";
    let site = site_of("/a.txt", latin);
    let head = head(&site, "/a.txt");
    assert_eq!(field(&head, "Content-Type"), "text/plain");
    assert_eq!(field(&head, "Content-Length"), "4");
    let Ok(Page::File(page)) = site.find(b"/a.txt") else {
        panic!("no file");
    };
    assert!(site.reply(page.whole()).bytes().ends_with(latin));
    assert_eq!(
        site.reply(page.whole()).head(),
        format!("{head}\r\n\r\n").as_bytes()
    );
}

#[test]
fn etags_depend_only_on_the_content() {
    let tag = |path, content, modified| {
        let site = Builder::new(at(2_000_000_000))
            .file(path, at(modified), content)
            .build();
        let path = std::str::from_utf8(path).unwrap();
        field(&head(&site, path), "ETag").to_owned()
    };
    let first = tag(b"/a", b"content", 1);
    assert_eq!(first.len(), 18);
    assert_eq!(tag(b"/b.html", b"content", 2), first);
    assert_ne!(tag(b"/a", b"Content", 1), first);
    // The hash of empty input, as published by the authors of xxHash.
    assert_eq!(tag(b"/a", b"", 1), "\"2d06800538d394c2\"");
}

#[test]
fn last_modified_is_never_in_the_future() {
    let last_modified = |modified| {
        let site = Builder::new(at(1_000_000_000))
            .file(b"/a", modified, b"")
            .build();
        field(&head(&site, "/a"), "Last-Modified").to_owned()
    };
    let now = "Sun, 09 Sep 2001 01:46:40 GMT";
    assert_eq!(last_modified(at(1_000_000_000)), now);
    assert_eq!(last_modified(at(1_000_000_001)), now);
    assert_eq!(last_modified(at(1_000_000_000_000)), now);
    let early = "Wed, 31 Dec 1969 23:59:51 GMT";
    assert_eq!(last_modified(UNIX_EPOCH - Duration::from_secs(9)), early);
    let far = Builder::new(at(1_000_000_000_000))
        .file(b"/a", at(999_999_999_999), b"")
        .build();
    assert_eq!(
        field(&head(&far, "/a"), "Last-Modified"),
        "Fri, 31 Dec 9999 23:59:59 GMT"
    );
}

#[test]
fn a_file_before_1970_has_its_own_time() {
    let early = UNIX_EPOCH - Duration::from_secs(310_522_000);
    let site = Builder::new(at(1_000_000_000))
        .file(b"/early", early, b"")
        .file(b"/later", at(5), b"")
        .build();
    let time = "Sun, 28 Feb 1960 23:53:20 GMT";
    assert_eq!(field(&head(&site, "/early"), "Last-Modified"), time);
    let status = |path: &str, name: &str, date: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{name}: {date}\r\n\r\n");
        let step = crate::Session::default().next(&site, request.as_bytes());
        let crate::Step::Answer(answer) = step else {
            panic!("no answer");
        };
        answer.of(&site).status().code()
    };
    let (modified, unmodified) = ("If-Modified-Since", "If-Unmodified-Since");
    for (path, name, date, expected) in [
        ("/early", modified, time, 304),
        ("/early", unmodified, time, 200),
        ("/early", modified, "Sun, 28 Feb 1960 23:53:19 GMT", 200),
        ("/early", unmodified, "Sun, 28 Feb 1960 23:53:19 GMT", 412),
        ("/early", unmodified, "Sun Feb 28 23:53:19 1960", 412),
        ("/later", modified, time, 200),
        ("/later", unmodified, time, 412),
        // An invalid date is no condition.
        ("/later", unmodified, "Mon, 28 Feb 1960 23:53:20 GMT", 200),
    ] {
        assert_eq!(status(path, name, date), expected, "{path} {name}: {date}");
    }
}

#[test]
fn every_reply_has_its_date_slot_after_the_status_line() {
    let site = Builder::new(at(2_000_000_000))
        .file(b"/docs/index.html", at(1), b"page")
        .file(b"/b", at(1), b"")
        .build();
    for reply in site.replies() {
        let at = reply.slot_at() as usize;
        let line = format!("HTTP/1.1 {}\r\nDate: ", reply.status());
        assert!(reply.bytes().starts_with(line.as_bytes()));
        assert_eq!(at, line.len());
        assert_eq!(&reply.bytes()[at + crate::date::SLOT_LEN..][..2], b"\r\n");
    }
}

#[test]
fn all_that_distinguishes_a_version_changes_its_fingerprint() {
    let versions = (0..8).map(|changed| {
        let part = |n| u64::from(n == changed);
        let time = |n| (part(n).cast_signed(), part(n + 1).cast_signed());
        FileVersion {
            file: (part(0), part(1)),
            len: part(2),
            modified: time(3),
            changed: time(5),
        }
    });
    let fingerprints: Vec<_> = versions.map(|version| Fingerprint::of(&version)).collect();
    for (index, one) in fingerprints.iter().enumerate() {
        assert!(!fingerprints[..index].contains(one), "{index}");
    }
}

#[test]
fn shared_replies_are_at_their_computed_index() {
    let site = site_of("/a", b"");
    for status in SHARED {
        let [whole, head] = [false, true].map(|head_only| Site::shared(status, head_only));
        assert_eq!(site.reply(whole).status(), status);
        let has_body = status != Status::NoContent;
        assert_eq!(site.reply(whole).body_len() > 0, has_body);
        assert_eq!(site.reply(head).body_len(), 0);
        assert!(whole.bytes_of(&site).starts_with(head.bytes_of(&site)));
    }
}

impl ReplyId {
    fn bytes_of(self, site: &Site) -> &[u8] {
        site.reply(self).bytes()
    }
}

#[test]
fn statuses_are_numbered_in_the_order_of_their_codes() {
    for (index, status) in Status::ALL.iter().enumerate() {
        assert_eq!(*status as usize, index);
    }
    assert!(Status::ALL.is_sorted_by_key(|status| status.code()));
}

#[test]
fn the_totals_count_everything_once() {
    let site = Builder::new(at(2_000_000_000))
        .file(b"/index.html", at(1), b"12345")
        .file(b"/docs/index.html", at(1), b"678")
        .build();
    let totals = site.totals();
    assert_eq!(
        (totals.files, totals.indexes, totals.content_bytes),
        (2, 2, 8)
    );
    // The root path `/` needs no redirect, so only the path `/docs` has one.
    assert_eq!(totals.replies as usize, 2 * SHARED.len() + 2 * 2 + 2);
    assert_eq!(totals.replies as usize, site.replies().len());
    let bytes: usize = site.replies().iter().map(|r| r.bytes().len()).sum();
    assert_eq!(totals.reply_bytes as usize, bytes);
}

#[test]
fn some_path_returns_the_path_of_a_file() {
    assert_eq!(site_of("/index.html", b"").some_path(), "/");
    assert_eq!(site_of("/a/index.html", b"").some_path(), "/a/");
    assert_eq!(site_of("/a b?.txt", b"").some_path(), "/a%20b%3F.txt");
}

#[test]
fn a_redirect_encodes_what_could_be_taken_for_html() {
    let site = site_of("/<b>\"&'\r\n/index.html", b"");
    let Ok(Page::Redirect { first, .. }) = site.find(b"/<b>\"&'\r\n") else {
        panic!("no redirect");
    };
    let text = std::str::from_utf8(first.bytes_of(&site)).unwrap();
    let location = "/%3Cb%3E%22%26%27%0D%0A/";
    assert!(text.contains(&format!("\r\nLocation: {location}\r\n")));
    assert!(text.contains(&format!("<a href=\"{location}\">here</a>")));
}

#[test]
fn the_hash_of_paths_has_random_keys() {
    let hash = |builder: &Builder| builder.site.pages.hasher().hash_one("/index.html");
    let now = SystemTime::UNIX_EPOCH;
    let (a, b) = (Builder::new(now), Builder::new(now));
    assert_ne!(hash(&a), hash(&b));
    let keyed = |keys| hash(&Builder::keyed(now, keys));
    assert_ne!(keyed([0; 4]), hash(&a));
    assert_ne!(keyed([0; 4]), keyed([1, 0, 0, 0]));
}
