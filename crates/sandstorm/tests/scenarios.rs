//! Runs the scenarios in `tests/scenarios/*.http`: request bytes in, response bytes out.
//!
//! A scenario begins with `== RFC SECTION: NAME`. Its requests follow, up to a line `--`. Each line ends
//! with CRLF on the wire, unless it ends with `\c`. `\r`, `\n`, `\t`, `\0` and `\xNN` stand for single
//! bytes. Then come the expected responses, separated by lines `&`:
//!
//! - a status, and `close` if the connection ends with this response; `more` if none is due yet
//! - `NAME: VALUE` for each field that must be there, `! NAME` for each that must not
//! - `= TEXT` for the body, with the same escapes, or `=` for none. Without such a line, any body is right

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sandstorm::date::{SlotWriter, Stamp};
use sandstorm::{Builder, HostedSite, Session, Settings, Site, Status, Step};

/// Sat, 21 Nov 2026 08:29:37 GMT.
const NOW: u64 = 1_795_249_777;
/// Wed, 18 Nov 2026 20:00:00 GMT.
const MODIFIED: u64 = 1_795_032_000;

fn at(second: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(second)
}

/// The site of a file with scenarios.
fn site_of(file: &str) -> Site {
    match file {
        "codings.http" => site_with_codings(),
        "default_host.http" => site_by_hosts(&[(&["a.test"], "A"), (&[], "Other")]),
        "errors.http" => site_with_errors(),
        "hosts.http" => site_by_hosts(&[(&["a.test"], "A"), (&["b.test", "*.b.test"], "B")]),
        "rules.http" => site_with_rules(),
        _ => site(),
    }
}

/// Files with coded forms beside them. The codings are only marked by their first bytes.
fn site_with_codings() -> Site {
    Builder::new(at(NOW))
        .file(b"/app.js", at(MODIFIED), b"let sand = 'storm'\n")
        .file(b"/app.js.gz", at(MODIFIED), b"\x1f\x8bgz")
        .file(b"/app.js.br", at(MODIFIED + 9), b"brotl")
        .file(b"/app.js.zst", at(MODIFIED), b"\x28\xb5\x2f\xfdzs")
        .file(b"/long.js", at(MODIFIED), &[b'x'; 3_000])
        .file(b"/long.js.br", at(MODIFIED), &[b'y'; 2_000])
        .file(b"/index.html", at(MODIFIED), b"<p>Sandstorm\n")
        .file(b"/index.html.gz", at(MODIFIED), b"\x1f\x8bindex")
        .file(b"/stale.js", at(MODIFIED), b"let now = 'stale'\n")
        .file(b"/stale.js.gz", at(MODIFIED - 1), b"\x1f\x8bold")
        .file(b"/short.js", at(MODIFIED), b"x\n")
        .file(b"/short.js.gz", at(MODIFIED), b"\x1f\x8blonger")
        .file(b"/false.js", at(MODIFIED), b"let coding = false\n")
        .file(b"/false.js.gz", at(MODIFIED), b"no gzip")
        .build()
}

/// Pages for errors, some of them with coded forms, and rules for fields.
fn site_with_errors() -> Site {
    let mut settings = Settings::default();
    settings.add_security_headers().unwrap();
    settings.add_error_page(Status::MethodNotAllowed, b"/405.html");
    settings.add_error_page(Status::RangeNotSatisfiable, b"/416.html");
    settings.add_redirect("/dropped /404.html 410").unwrap();
    settings.add_redirect("/api/gone /404.html 410").unwrap();
    for rule in [
        "/* X-Site: sand",
        "/* Cache-Control: public, max-age=31536000, immutable",
        "/* Expires: Thu, 31 Dec 2099 00:00:00 GMT",
        "/* CDN-Cache-Control: max-age=9",
        "/404.html Cache-Control: no-store",
        "/api/* X-Site: api",
        "/api/* Access-Control-Allow-Origin: *",
        "/api/* Content-Language: de",
        "/api/* Vary: Origin",
        "/* Vary: Accept-Language",
        "/* Link: </a.css>; rel=preload",
        "/api/* Link: </b.css>; rel=preload",
        "/api/open/* ! Link",
        "/api/open/* ! X-Site",
        "/api/open/* ! Referrer-Policy",
    ] {
        settings.add_header(rule).unwrap();
    }
    Builder::with_settings(at(NOW), &settings)
        .file(b"/index.html", at(MODIFIED), b"<p>Home")
        .file(b"/404.html", at(MODIFIED), b"<p>It is lost")
        .file(b"/404.html.gz", at(MODIFIED), b"\x1f\x8blost")
        .file(b"/405.html", at(MODIFIED), b"<p>No")
        .file(b"/416.html", at(MODIFIED), b"<p>There is no such part")
        .file(b"/416.html.gz", at(MODIFIED), b"\x1f\x8bpart")
        .file(b"/api/data.json", at(MODIFIED), b"{}\n")
        .file(b"/api/open/a.json", at(MODIFIED), b"[]\n")
        .build()
}

fn site_with_rules() -> Site {
    let mut settings = Settings::default();
    settings.clean_urls = true;
    settings.immutable = true;
    settings.add_security_headers().unwrap();
    settings.add_media_type("conf", "text/plain").unwrap();
    settings.add_error_page(Status::MethodNotAllowed, b"/405.html");
    for rule in [
        "/home /",
        "/temporary https://b.test/x?y 302",
        "/seen /style.css 303",
        "/style.css /never 307",
        "/secret.txt /gone 308!",
        "/old/* /new/:splat",
        "/news/:year/:month/* /archive/:month/:year?from=:splat 302",
        "/go/* https://b.test/:splat 307",
        "/alias /docs/page.html 200",
        "/files/* /:splat 200",
        "/closed /404.html 403",
        "/dropped/* /404.html 410",
        "/old/kept /never",
        "/app/* /index.html 200",
        "/store id=:id size=big /goods/:id/big",
        "/store id=:id /goods/:id?from=store 302",
        "/store /shop",
        "/style.css v=:v /never/:v",
        "/docs/* print=1 /print/:splat 307!",
        "/en /en/",
        "/lang/* /lang/start 302",
        "/moved.html /home 301!",
        "/spa/* /moved.html 200",
    ] {
        settings.add_redirect(rule).unwrap();
    }
    for rule in [
        "/* X-Site: sand",
        "/docs/* Cache-Control: no-cache",
        "/*.html X-Page: yes",
        "/files/*/feed X-Feed: yes",
        "/docs/page Link: </style.css>; rel=preload",
        "/docs/page Content-Type: text/x-page",
        "/plain.conf ! X-Site",
        "/app.3f9a1b2c.js Access-Control-Allow-Origin: *",
        "/app.3f9a1b2c.js Access-Control-Allow-Headers: X-Own",
    ] {
        settings.add_header(rule).unwrap();
    }
    Builder::with_settings(at(NOW), &settings)
        .file(b"/moved.html", at(MODIFIED), b"<p>Moved\n")
        .file(b"/index.html", at(MODIFIED), b"<p>Sand\n")
        .file(b"/404.html", at(MODIFIED), b"<p>Lost\n")
        .file(b"/405.html", at(MODIFIED), b"<p>No\n")
        .file(b"/style.css", at(MODIFIED), b"p {}\n")
        .file(b"/app.3f9a1b2c.js", at(MODIFIED), b"1\n")
        .file(b"/secret.txt", at(MODIFIED), b"secret\n")
        .file(b"/plain.conf", at(MODIFIED), b"a = 1\n")
        .file(b"/docs/page.html", at(MODIFIED), b"<p>Page\n")
        .file(b"/docs/index.html", at(MODIFIED), b"<p>Docs\n")
        .file(b"/docs.html", at(MODIFIED), b"<p>Never\n")
        .build()
}

/// Sites for these hosts. The content of each names it.
fn site_by_hosts(sites: &[(&[&str], &str)]) -> Site {
    let mut settings = Settings::default();
    settings.add_redirect("/old/* /new/:splat").unwrap();
    let hosted = |(hosts, name): &(&[&str], &str)| HostedSite {
        hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
        site: Builder::with_settings(at(NOW), &settings)
            .file(
                b"/index.html",
                at(MODIFIED),
                format!("<p>{name}\n").as_bytes(),
            )
            .file(
                format!("/only-{name}").as_bytes(),
                at(MODIFIED),
                b"0123456789\n",
            )
            .file(
                b"/404.html",
                at(MODIFIED),
                format!("<p>Lost in {name}\n").as_bytes(),
            )
            .build()
            .into(),
    };
    Site::by_hosts(&sites.iter().map(hosted).collect::<Vec<_>>())
}

fn site() -> Site {
    let long: Vec<_> = (0..200).map(|n| format!("{n:04}\n")).collect();
    Builder::new(at(NOW))
        .file(b"/index.html", at(MODIFIED), b"<p>Sand\n")
        .file(b"/docs/index.html", at(MODIFIED), b"<p>Docs\n")
        .file(b"/style.css", at(MODIFIED), b"p { color: tan }\n")
        .file(b"/empty.txt", at(MODIFIED), b"")
        .file(b"/long.txt", at(MODIFIED), long.concat().as_bytes())
        .file(b"/a b&c.txt", at(MODIFIED), b"odd\n")
        .file("/d\u{fc}ne.txt".as_bytes(), at(MODIFIED), b"dune\n")
        .build()
}

/// A response, and whether the server closes the connection after it.
struct Answered {
    head: String,
    body: Vec<u8>,
    closes: bool,
}

/// Returns the responses to `bytes`.
fn talk(site: &Site, bytes: &[u8]) -> Vec<Answered> {
    let (mut session, mut slots) = (Session::default(), SlotWriter::new());
    let (mut rest, mut all) = (bytes, Vec::new());
    while let Step::Answer(answer) = session.next(site, rest) {
        let mut sent = Vec::new();
        answer.write(
            site,
            rest,
            Stamp::new(NOW, answer.close),
            &mut slots,
            &mut sent,
        );
        let head_len = sent
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap()
            + 4;
        let body = sent.split_off(head_len);
        all.push(Answered {
            head: String::from_utf8(sent).unwrap(),
            body,
            closes: answer.close,
        });
        rest = &rest[answer.consumed()..];
        if answer.close || rest.is_empty() {
            break;
        }
    }
    all
}

/// Resolves the escapes of a line.
fn unescaped(line: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), line.as_bytes());
    while let [first, more @ ..] = rest {
        rest = more;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (byte, len) = match more {
            [b'r', ..] => (b'\r', 1),
            [b'n', ..] => (b'\n', 1),
            [b't', ..] => (b'\t', 1),
            [b'0', ..] => (0, 1),
            [b'x', high, low, ..] => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).unwrap();
                (u8::from_str_radix(digits, 16).unwrap(), 3)
            }
            _ => panic!("an unknown escape in {line}"),
        };
        bytes.push(byte);
        rest = &more[len..];
    }
    bytes
}

/// Returns the bytes of a scenario's requests.
fn requests(text: &str) -> Vec<u8> {
    let line = |line: &str| match line.strip_suffix("\\c") {
        Some(start) => unescaped(start),
        None => [&unescaped(line)[..], b"\r\n"].concat(),
    };
    text.split('\n').flat_map(line).collect()
}

/// Returns what is wrong with the response, if anything is.
fn fault(answered: &Answered, expected: &str) -> Option<String> {
    let mut lines = expected.lines();
    let (status, closes) = match lines.next()?.split_once(' ') {
        Some((status, "close")) => (status, true),
        Some((_, word)) => return Some(format!("what is {word}?")),
        None => (expected.lines().next()?, false),
    };
    let found = &answered.head[9..12];
    if found != status || answered.closes != closes {
        return Some(format!(
            "the status is {found}, and closes: {}",
            answered.closes
        ));
    }
    let fields: Vec<_> = answered.head.lines().skip(1).map(str::trim_end).collect();
    for line in lines {
        let is_right = match line.split_at_checked(2) {
            None => answered.body.is_empty(),
            Some(("= ", text)) => answered.body == unescaped(text),
            Some(("! ", name)) => !fields
                .iter()
                .any(|field| field.starts_with(&format!("{name}: "))),
            _ => fields.contains(&line),
        };
        if !is_right {
            let body = String::from_utf8_lossy(&answered.body);
            return Some(format!("not so: {line}\n{}{body}", answered.head));
        }
    }
    None
}

/// Returns the faults of a scenario, and its name.
fn run(site: &Site, scenario: &str) -> Vec<String> {
    let (name, rest) = scenario.split_once('\n').unwrap();
    let (text, expected) = rest.split_once("\n--\n").unwrap();
    let answered = talk(site, &requests(text));
    let expected = expected.trim_end();
    let expected: Vec<_> = match expected {
        "more" => Vec::new(),
        _ => expected.split("\n&\n").collect(),
    };
    if answered.len() != expected.len() {
        return vec![format!("{name}: {} responses", answered.len())];
    }
    let pairs = answered.iter().zip(expected);
    let faults = pairs.filter_map(|(one, expected)| fault(one, expected));
    faults.map(|fault| format!("{name}: {fault}")).collect()
}

#[test]
fn the_server_answers_as_the_rfcs_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let (mut faults, mut count) = (Vec::new(), 0);
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let site = site_of(entry.file_name().to_str().unwrap());
        let text = fs::read_to_string(entry.path()).unwrap();
        for scenario in text.split("== ").skip(1) {
            faults.extend(run(&site, scenario));
            count += 1;
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count >= 300, "{count} scenarios");
}
