//! Gives arbitrary rules to a site, and sends it requests. Wrong rules are refused. The responses must be
//! valid, and no redirect leads to another host unless its rule names the host.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::http::{Piece, bytes, response};
use arbitrary::Arbitrary;
use sandstorm::date::{SlotWriter, Stamp};
use sandstorm::{Builder, Session, Settings, Step};

/// Sat, 21 Nov 2026 08:29:37 GMT.
const NOW: u64 = 1_795_249_777;
/// Maximum number of rules. The independent reader takes 32 fields.
const MAX_RULES: usize = 12;

/// Parts of rules and paths, separated by `|`.
const WORDS: &str = "\
    /a/* /b/:splat|/:x/:y /:y/:x 302|/* /index.html 200|/gone /404.html 410!|/a |/b/|/:x|:splat|\
    https://c/:splat|//c|/\\\\|%2f|%0d%0a|%|*|:|?q|#f| 200| 301!| 404|!|\\n|\\n/|\\t| |/docs/|\
    /index.html|/docs|X-A: b|/* X-A: b|/* ! X-A|/a Content-Type: a/b|/*.html Link: c|/* Cache-Control: x|Vary: |, |/q id=:i /:i| k=v|?id=|&k=v|;";

/// What libFuzzer makes.
#[derive(Arbitrary, Debug)]
pub struct Input<'a> {
    /// Whether lines are rules for fields. Otherwise they are redirects.
    are_headers: [bool; 4],
    clean_urls: bool,
    rules: Vec<Piece<'a>>,
    path: Vec<Piece<'a>>,
}

/// Returns the settings with those lines that are rules.
fn settings(input: &Input<'_>) -> Settings {
    let mut settings = Settings::default();
    settings.clean_urls = input.clean_urls;
    let text = bytes(&input.rules, WORDS);
    let text = String::from_utf8_lossy(&text);
    for (index, line) in text.lines().take(MAX_RULES).enumerate() {
        // Most lines are wrong.
        let _ = if input.are_headers[index % input.are_headers.len()] {
            settings.add_header(line)
        } else {
            settings.add_redirect(line)
        };
    }
    settings
}

/// Checks the location of a response. Locations on this site begin with one slash.
fn check_location(head: &str) {
    let Some(location) = head
        .lines()
        .find_map(|line| line.strip_prefix("Location: "))
    else {
        return;
    };
    let is_url = location.starts_with("http://") || location.starts_with("https://");
    let on_site = location.starts_with('/') && !location.starts_with("//");
    assert!(is_url || on_site, "{location:?}");
    assert!(
        location.bytes().all(|byte| byte.is_ascii_graphic()),
        "{location:?}"
    );
}

/// Runs the target.
pub fn run(input: &Input<'_>) {
    let now: SystemTime = UNIX_EPOCH + Duration::from_secs(NOW);
    let site = Builder::with_settings(now, &settings(&input))
        .file(b"/index.html", now, b"<p>Sand\n")
        .file(b"/404.html", now, b"<p>Lost\n")
        .file(b"/docs/page.html", now, b"<p>Page\n")
        .file(b"/docs/index.html", now, b"<p>Docs\n")
        .build();
    let path = bytes(&input.path, WORDS);
    for method in ["GET", "HEAD", "OPTIONS"] {
        let line = [
            method.as_bytes(),
            b" /",
            &path[..path.len() - 1],
            b" HTTP/1.1\r\n",
        ]
        .concat();
        let request = [&line[..], b"Host: a\r\n\r\n"].concat();
        let Step::Answer(answer) = Session::default().next(&site, &request) else {
            return;
        };
        let (mut sent, mut slots) = (Vec::new(), SlotWriter::new());
        let stamp = Stamp::new(NOW, answer.close);
        answer.write(&site, &request, stamp, &mut slots, &mut sent);
        let read = response(&sent);
        let body_len = read.rest.len();
        assert!(body_len == 0 || read.content_length == Some(body_len));
        let head = &sent[..sent.len() - body_len];
        check_location(&String::from_utf8_lossy(head));
    }
}
