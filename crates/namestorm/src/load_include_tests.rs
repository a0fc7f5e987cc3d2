//! Tests of `$INCLUDE`.

use std::fs;

use super::tests::START;
use super::*;

#[test]
fn included_files_are_read_where_they_are_included() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write(
        "zone",
        &format!("$TTL 60\n{START}$INCLUDE hosts @\n$INCLUDE hosts sub\nlast A 192.0.2.9\n"),
    );
    write("hosts", "$ORIGIN deep\nhost A 192.0.2.7\n");
    let spec = |file: &str| ZoneSpec {
        origin: Some(b"\x07example\x03org\x00".to_vec()),
        file: folder.path().join(file),
        group: None,
    };
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
    assert!(wrong("gone").contains("/gone:4: "), "{}", wrong("gone"));
    assert!(wrong("gone").ends_with("it is a folder, not a file"));
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
        let spec = ZoneSpec {
            origin: None,
            file: zones.join("example.org.zone"),
            group: None,
        };
        let report = match load(&spec, &mut |_| {}) {
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
