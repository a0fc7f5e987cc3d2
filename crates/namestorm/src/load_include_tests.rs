//! Tests of `$INCLUDE`.

use std::fs;

use super::tests::START;
use super::*;
use crate::report::Severity;

/// The zone `example.org` in a file.
fn spec_of(file: &Path) -> ZoneSpec {
    ZoneSpec {
        origin: name::parse("example.org"),
        file: file.to_owned(),
        group: None,
    }
}

#[test]
fn included_files_are_read_where_they_are_included() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write(
        "zone",
        &format!("$TTL 60\n{START}$INCLUDE hosts @\n$INCLUDE hosts sub\nlast A 192.0.2.9\n"),
    );
    write("hosts", "$ORIGIN deep\nhost A 192.0.2.7\n");
    let spec = |file: &str| spec_of(&folder.path().join(file));
    let loaded = load(&spec("zone"), &mut |_| {}).unwrap();
    let names: Vec<_> = loaded
        .zone
        .names()
        .map(|name| name::Shown(name.owner()).to_string())
        .collect();
    assert_eq!(
        names,
        [
            "example.org.",
            "host.deep.example.org.",
            "last.example.org.",
            "ns.example.org.",
            "host.deep.sub.example.org."
        ]
    );
    write("bad", &format!("{START}$INCLUDE worse\n"));
    write("worse", "\n\nx A nonsense\n");
    let wrong = |file: &str| {
        let broken = load(&spec(file), &mut |_| {}).unwrap_err();
        assert_eq!(broken.apex.as_deref(), Some(&b"\x07example\x03org\0"[..]));
        broken.report.to_string()
    };
    let report = wrong("bad");
    assert!(report.contains("/worse:3:5: "), "{report}");
    write("loop", &format!("{START}$INCLUDE loop\n"));
    let report = wrong("loop");
    assert!(report.contains("it includes itself"), "{report}");
    let missing = wrong("missing");
    let ends = "/missing: cannot read the file: No such file or directory (os error 2)";
    assert!(missing.ends_with(ends), "{missing}");
    write("gone", &format!("{START}$INCLUDE .\n"));
    let ends = "cannot read the file: it is a folder, not a file";
    assert!(wrong("").ends_with(ends), "{}", wrong(""));
    assert!(wrong("gone").contains("/gone:4:10: "), "{}", wrong("gone"));
    assert!(wrong("gone").ends_with("it is a folder, not a file"));
}

#[test]
fn an_included_file_begins_with_the_ttl_stated_last() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("zone", &format!("{START}x 90 TXT y\n$INCLUDE hosts\n"));
    write("hosts", "w A 192.0.2.7\n");
    let loaded = load(&spec_of(&folder.path().join("zone")), &mut |_| {}).unwrap();
    assert!(loaded.report.findings().is_empty(), "{}", loaded.report);
    let host = loaded.zone.find(b"w\0").unwrap();
    assert_eq!(host.rrset(rtype::A).unwrap().ttl(), 90);
}

#[test]
fn only_files_below_the_zones_folder_are_included() {
    let folder = tempfile::tempdir().unwrap();
    let zones = folder.path().join("zones");
    fs::create_dir_all(zones.join("parts")).unwrap();
    fs::write(folder.path().join("secret"), "token 12345\n").unwrap();
    fs::write(zones.join("parts/hosts"), "host A 192.0.2.7\n").unwrap();
    std::os::unix::fs::symlink("../secret", zones.join("link")).unwrap();
    std::os::unix::fs::symlink("parts/hosts", zones.join("inner")).unwrap();
    let secret = folder.path().join("secret");
    for (included, is_read) in [
        ("parts/hosts", true),
        ("inner", true),
        ("parts/../parts/hosts", true),
        (zones.join("parts/hosts").to_str().unwrap(), true),
        ("../secret", false),
        ("link", false),
        (secret.to_str().unwrap(), false),
    ] {
        let text = format!("$TTL 60\n{START}$INCLUDE {included}\n");
        fs::write(zones.join("example.org.zone"), text).unwrap();
        let report = match load(&spec_of(&zones.join("example.org.zone")), &mut |_| {}) {
            Ok(loaded) => loaded.report.to_string(),
            Err(broken) => broken.report.to_string(),
        };
        let is_refused = report.contains("it is not below the folder of the zone's file, ");
        assert_eq!(is_refused, !is_read, "{included}: {report}");
        assert!(
            !report.contains("token") && !report.contains("12345"),
            "{report}"
        );
    }
}

#[test]
fn a_path_may_have_quotes_and_escapes() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("a b;c", "host A 192.0.2.7\n");
    write("h\u{e9}\"", "\u{e9} A 192.0.2.7\n");
    for (included, owner) in [
        ("\"a b;c\"", "host.example.org."),
        ("\"a b;c\" sub ; comment", "host.sub.example.org."),
        ("\"./a b;c\" @", "host.example.org."),
        (r"a\ b\059c", "host.example.org."),
        ("h\u{e9}\\\" \u{e9}", r"\195\169.\195\169.example.org."),
        ("\"h\u{e9}\\\"\"", r"\195\169.example.org."),
    ] {
        write("zone", &format!("$TTL 60\n{START}$INCLUDE {included}\n"));
        let loaded = load(&spec_of(&folder.path().join("zone")), &mut |_| {});
        let loaded = loaded.unwrap_or_else(|broken| panic!("{included}: {}", broken.report));
        let mut names = loaded
            .zone
            .names()
            .map(|name| name::Shown(name.owner()).to_string());
        assert!(names.any(|name| name == owner), "{included}");
    }
    write("zone", &format!("{START}$INCLUDE \"a\\256\"\n"));
    let broken = load(&spec_of(&folder.path().join("zone")), &mut |_| {}).unwrap_err();
    let report = broken.report.to_string();
    assert!(report.contains("/zone:4:10: an escape is "), "{report}");
}

#[test]
fn included_files_have_limits() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let report = |text: &str| {
        write("zone", &format!("$TTL 60\n{START}{text}\n"));
        load(&spec_of(&folder.path().join("zone")), &mut |_| {})
            .map_or_else(|broken| broken.report.to_string(), |_| String::new())
    };
    // Two files that include each other.
    write("a", "$INCLUDE b\n");
    write("b", "\n$INCLUDE a\n");
    let found = report("$INCLUDE a");
    assert!(
        found.contains("/b:2:10: ") && found.ends_with("remove this line"),
        "{found}"
    );
    // Files that include the next one, up to the limit and beyond it.
    for depth in 1..=9 {
        write(&format!("d{depth}"), &format!("$INCLUDE d{}\n", depth + 1));
    }
    write("d10", "");
    assert_eq!(report("$INCLUDE d3"), "");
    let found = report("$INCLUDE d2");
    assert!(
        found.ends_with("d10: files are included more than 8 levels deep"),
        "{found}"
    );
    // A file may be included many times, but each time counts.
    write("empty", "");
    assert_eq!(report(&"$INCLUDE empty\n".repeat(MAX_FILES - 1)), "");
    let found = report(&"$INCLUDE empty\n".repeat(MAX_FILES));
    assert!(
        found.ends_with("empty: a zone may have at most 1024 files"),
        "{found}"
    );
}

#[test]
fn all_text_of_a_zone_has_one_limit() {
    let folder = tempfile::tempdir().unwrap();
    let zone = folder.path().join("zone");
    let part = "x 60 TXT y\n";
    fs::write(folder.path().join("part"), part).unwrap();
    let text = format!("{START}$INCLUDE part\n$INCLUDE part\n$GENERATE 1-2 a$ 60 TXT $\n");
    fs::write(&zone, &text).unwrap();
    let generated = "a1 60 TXT 1a2 60 TXT 2".len();
    let size = (text.len() + 2 * part.len() + generated) as u64;
    let errors = |limit| {
        let mut quiet = |_| {};
        let mut loader = Loader::new(&mut quiet);
        loader.text_left = limit;
        loader.read_first(&spec_of(&zone));
        let report = loader.finish().map_or_else(|b| b.report, |l| l.report);
        let errors = report.findings().iter();
        let errors = errors.filter(|found| found.severity == Severity::Error);
        errors
            .map(|error| (error.line, error.message.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(errors(size), []);
    assert_eq!(errors(size - 1), [(6, TOO_MUCH_TEXT.to_owned())]);
    let found = errors(size - generated as u64 - 1);
    let lines: Vec<_> = found.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [5, 6]);
    assert!(found[0].1.ends_with(TOO_MUCH_TEXT), "{found:?}");
    assert_eq!(errors(text.len() as u64 - 1).len(), 1);
    // A file of the maximum size leaves no place for the file that includes it. It has no blocks,
    // so this costs no space.
    let sparse = fs::File::create(folder.path().join("part")).unwrap();
    sparse.set_len(MAX_TEXT).unwrap();
    let lines: Vec<_> = errors(MAX_TEXT).iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [4, 5]);
}

#[test]
fn bytes_beyond_ascii_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("example.org");
    let data = |text: &[u8]| {
        let zone = [b"$TTL 60\n", START.as_bytes(), b"\xe9.x TXT ", text, b"\n"].concat();
        fs::write(&file, zone).unwrap();
        let loaded =
            load(&spec_of(&file), &mut |_| {}).unwrap_or_else(|broken| panic!("{}", broken.report));
        let name = loaded.zone.names().last().unwrap();
        assert_eq!(name.owner(), b"\x01\xe9\x01x\x07example\x03org\0");
        let data = name.rrset(rtype::TXT).unwrap().data().next().unwrap();
        data.to_vec()
    };
    // Latin-1, UTF-8, escapes, and a backslash before a byte beyond ASCII.
    assert_eq!(data(b"caf\xe9"), b"\x04caf\xe9");
    assert_eq!(
        data("\"caf\u{e9}\"".as_bytes()),
        "\u{5}caf\u{e9}".as_bytes()
    );
    assert_eq!(data(b"\\233\\\\\\\xe9 ; \xe9"), b"\x03\xe9\\\xe9");
    assert_eq!(
        data("\\\u{e9}\"\t;\"".as_bytes()),
        "\u{2}\u{e9}\u{2}\t;".as_bytes()
    );
}
