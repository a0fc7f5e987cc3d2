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
use sandstorm::{Builder, Session, Site, Step};

/// Sat, 21 Nov 2026 08:29:37 GMT.
const NOW: u64 = 1_795_249_777;
/// Wed, 18 Nov 2026 20:00:00 GMT.
const MODIFIED: u64 = 1_795_032_000;

fn site() -> Site {
    let at = |second| -> SystemTime { UNIX_EPOCH + Duration::from_secs(second) };
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
    let (site, mut faults, mut count) = (site(), Vec::new(), 0);
    for entry in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        for scenario in text.split("== ").skip(1) {
            faults.extend(run(&site, scenario));
            count += 1;
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count >= 200, "{count} scenarios");
}
