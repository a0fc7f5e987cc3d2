//! Tests which zones on the command line are served, and what is reported about the zones that are
//! not served.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use control::FileVersion;

use super::*;
use crate::{Form, LoadError, Namestorm};

const GOOD: &str = "@ 60 IN SOA ns host 1 2 3 4 60\n@ 60 IN NS ns\nns 60 IN A 192.0.2.1\n";

fn zone(folder: &Path, file: &str, text: &str) -> ZoneSpec {
    fs::write(folder.join(file), text).unwrap();
    ZoneSpec {
        origin: None,
        file: folder.join(file),
        group: None,
    }
}

fn read(specs: &[ZoneSpec], say: &mut dyn FnMut(String)) -> ZoneFiles {
    ZoneFiles::new(Hashing::new(Form::Wire, [1; 4])).read(specs, 3, say)
}

/// Reads the zones of `specs`. Returns the apexes of the good zones, the apexes of the broken
/// zones, and the reason for each file that is not served.
fn apexes(specs: &[ZoneSpec]) -> (Vec<String>, Vec<String>, Vec<String>) {
    let mut messages = Vec::new();
    let files = read(specs, &mut |line| messages.push(line));
    let show = |apex: &[u8]| name::Shown(apex).to_string();
    (
        files.sizes().map(|(apex, _)| show(apex)).collect(),
        files
            .unserved()
            .iter()
            .filter_map(UnservedFile::apex)
            .map(show)
            .collect(),
        files.unserved().iter().map(ToString::to_string).collect(),
    )
}

#[test]
fn the_first_error_of_a_broken_zone_has_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = format!("{GOOD}x 60 A nonsense\ny 60 A nonsense\n");
    let spec = zone(folder.path(), "a.example.zone", &wrong);
    let files = read(std::slice::from_ref(&spec), &mut |_| {});
    let error = files.unserved()[0].error();
    let place = format!("{}:4:8: ADDRESS must be ", spec.file.display());
    assert!(error.starts_with(&place), "{error}");
}

#[test]
fn a_broken_zone_takes_its_name_from_the_first_source_that_has_one() {
    let folder = tempfile::tempdir().unwrap();
    let zone = |file: &str, text: &str| zone(folder.path(), file, text);
    let wrong = format!("{GOOD}x 60 A nonsense\n");
    let given = ZoneSpec {
        origin: name::parse("given.example"),
        ..zone("a", &wrong)
    };
    let missing = |file: &str| ZoneSpec {
        origin: None,
        file: folder.path().join(file),
        group: None,
    };
    let cases = [
        (given, Some("given.example.")),
        (
            zone("b.example", &format!("$ORIGIN set.example.\n{wrong}")),
            Some("set.example."),
        ),
        (
            zone("c", "owner.example. 60 SOA a. b. 1 2 3 4 5\n"),
            Some("owner.example."),
        ),
        (zone("Called.Example.zone", &wrong), Some("called.example.")),
        (
            zone("no-ns.example.zone", "@ 60 SOA a. b. 1 2 3 4 5\n"),
            Some("no-ns.example."),
        ),
        (
            zone("no-soa.example.zone", "@ 60 NS a.\n"),
            Some("no-soa.example."),
        ),
        (
            zone("nothing.example.zone", "; nothing\n"),
            Some("nothing.example."),
        ),
        (zone("empty.example", ""), Some("empty.example.")),
        (
            zone("junk.example.db", "\u{7f}ELF\0\0\0\n"),
            Some("junk.example."),
        ),
        (missing("db.missing.example"), Some("missing.example.")),
        (zone("no..name", &wrong), None),
        (
            zone("root.example", "$ORIGIN .\nx.example 60 SOA a. b. wrong\n"),
            None,
        ),
        (missing("no..file"), None),
    ];
    for (spec, expected) in cases {
        let (good, broken, unserved) = apexes(std::slice::from_ref(&spec));
        assert!(good.is_empty(), "{spec}");
        assert_eq!(broken, Vec::from_iter(expected), "{spec}");
        let end = match expected {
            Some(apex) => format!(": not loaded; queries for {apex} get SERVFAIL"),
            None => "give ORIGIN=FILE".into(),
        };
        assert!(
            unserved.len() == 1 && unserved[0].ends_with(&end),
            "{unserved:?}"
        );
    }
}

#[test]
fn good_zones_are_served_despite_broken_ones() {
    let folder = tempfile::tempdir().unwrap();
    let zone = |file: &str, text: &str| zone(folder.path(), file, text);
    let two = format!("{GOOD}other.example. 60 SOA a. b. 1 2 3 4 5\nother.example. 60 NS a.\n");
    let again = ZoneSpec {
        origin: name::parse("GOOD.example"),
        ..zone("again", GOOD)
    };
    let specs = [
        zone("two.example", &two),
        // This file has errors, but a later file holds the same zone without errors.
        zone("good.example.db", "nonsense\n"),
        zone("good.example", GOOD),
        again,
    ];
    let (good, broken, unserved) = apexes(&specs);
    assert_eq!(good, ["good.example."]);
    assert_eq!(broken, ["two.example."]);
    let ends = [
        "/again: not loaded; ",
        "/two.example: not loaded; queries for two.example. get SERVFAIL",
        "/good.example.db: not loaded; ",
    ];
    assert_eq!(unserved.len(), ends.len(), "{unserved:?}");
    assert!(
        unserved
            .iter()
            .zip(ends)
            .all(|(unserved, end)| unserved.contains(end)),
        "{unserved:?}"
    );
    assert!(
        unserved[2].ends_with("/good.example holds the zone good.example. too: give it only once")
    );
    let mut messages = Vec::new();
    read(&specs, &mut |line| messages.push(line));
    let messages = messages.join("\n");
    assert!(
        messages.contains("two.example:4:1: a second zone starts here, other.example.: "),
        "{messages}"
    );
}

#[test]
fn fifos_devices_and_folders_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo.example");
    let path = std::ffi::CString::new(fifo.as_os_str().as_bytes()).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let spec = |file: &Path| ZoneSpec {
        origin: None,
        file: file.to_owned(),
        group: None,
    };
    for (file, what) in [
        (fifo.as_path(), "it is a FIFO, a socket or a device"),
        (Path::new("/dev/zero"), "it is a FIFO, a socket or a device"),
        (folder.path(), "it is a folder"),
    ] {
        let mut messages = Vec::new();
        read(&[spec(file)], &mut |line| messages.push(line));
        let expected = format!("{}: cannot read the file: {what}", file.display());
        assert!(messages[0].starts_with(&expected), "{messages:?}");
    }
}

#[test]
fn strict_refuses_broken_and_duplicate_zones() {
    let folder = tempfile::tempdir().unwrap();
    let good = zone(folder.path(), "good.example", GOOD);
    let bad = zone(folder.path(), "bad.example", "nonsense\n");
    let nameless = zone(folder.path(), "no..name", "nonsense\n");
    let load_saying = |specs: &[&ZoneSpec], strict, say: &mut dyn FnMut(String)| {
        let specs: Vec<_> = specs.iter().map(|spec| (*spec).clone()).collect();
        Namestorm::load(&specs, Form::Wire, strict, say)
    };
    let load = |specs: &[&ZoneSpec], strict| load_saying(specs, strict, &mut |_| {});
    assert!(load(&[&good], true).is_ok());
    assert!(load(&[&good, &bad, &nameless], false).is_ok());
    let error = load(&[&good, &bad, &good], true).unwrap_err();
    assert!(
        matches!(error, LoadError::Strict { lost: 2, all: 3 }),
        "{error}"
    );
    let mut messages = Vec::new();
    load_saying(&[&good, &good], true, &mut |line| messages.push(line)).unwrap_err();
    let end = "/good.example holds the zone good.example. too: give it only once";
    assert!(
        messages.len() == 1 && messages[0].ends_with(end),
        "{messages:?}"
    );
    let served = load(&[&good, &bad, &nameless, &good], false).unwrap();
    let lines = control::Program::loaded(&served);
    let expected =
        "1 answered with SERVFAIL, 1 refused because their names are unknown, 1 given twice";
    assert_eq!(lines[0], ("zones", "1".to_owned()));
    assert_eq!(lines[1], ("zones not loaded", expected.to_owned()));
}

#[test]
fn loading_fails_without_a_good_zone() {
    let folder = tempfile::tempdir().unwrap();
    let bad = zone(folder.path(), "bad.example", "nonsense\n");
    let nameless = zone(folder.path(), "no..name", "nonsense\n");
    let missing = ZoneSpec {
        origin: None,
        file: folder.path().join("missing.example"),
        group: None,
    };
    for specs in [&[missing.clone()][..], &[bad, nameless, missing]] {
        for strict in [false, true] {
            let mut messages = Vec::new();
            let mut say = |line| messages.push(line);
            let error = Namestorm::load(specs, Form::Wire, strict, &mut say);
            assert!(matches!(error, Err(LoadError::Nothing)), "{error:?}");
            // The server exits, so no line may claim that it answers with SERVFAIL.
            assert_eq!(messages.len(), specs.len(), "{messages:?}");
            assert!(!messages.join("\n").contains("SERVFAIL"), "{messages:?}");
        }
    }
}

/// Makes the files older, so that their versions are recognised, and reads them.
fn read_settled(folder: &Path, specs: &[ZoneSpec]) -> ZoneFiles {
    for file in fs::read_dir(folder).unwrap() {
        settle(&file.unwrap().path());
    }
    read(specs, &mut |_| {})
}

/// Waits until the version of a file is settled. Its time of the last change cannot be set.
fn settle(path: &Path) {
    while !FileVersion::at(path).unwrap().is_settled(SystemTime::now()) {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the answers of each zone.
fn answers(files: &ZoneFiles) -> Vec<*const ZoneAnswers> {
    files
        .good
        .iter()
        .map(|zone| Arc::as_ptr(&zone.answers))
        .collect()
}

#[test]
fn only_changed_zones_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = |file: &str| folder.path().join(file);
    fs::write(path("part"), "more 60 IN A 192.0.2.2\n").unwrap();
    let mut specs = vec![
        zone(folder.path(), "a.example", GOOD),
        zone(
            folder.path(),
            "b.example",
            &format!("{GOOD}$INCLUDE part\n"),
        ),
        zone(folder.path(), "c.example", GOOD),
    ];
    let first = read_settled(folder.path(), &specs);
    let again = first.read(&specs, 1, &mut |_| {});
    assert_eq!((again.read_count(), answers(&again)), (0, answers(&first)));
    // A file that a zone includes changes, one zone is gone, and one is new.
    fs::write(path("part"), "other 60 IN A 192.0.2.2\n").unwrap();
    specs.remove(0);
    specs.push(zone(folder.path(), "d.example", GOOD));
    let changed = again.read(&specs, 1, &mut |_| {});
    assert_eq!(changed.read_count(), 2);
    let [before, after] = [answers(&again), answers(&changed)];
    assert!(
        after[0] != before[1] && after[1] == before[2],
        "{before:?} {after:?}"
    );
    // A zone that has become broken stays as it was, and is reported each time.
    fs::write(path("c.example"), "nonsense\n").unwrap();
    for _ in 0..2 {
        let mut messages = Vec::new();
        let stale = changed.read(&specs, 1, &mut |line| messages.push(line));
        assert_eq!((stale.good(), stale.stale().len()), (3, 1));
        assert!(stale.unserved().is_empty() && answers(&stale)[1] == answers(&changed)[1]);
        assert!(messages.concat().contains("c.example:1"), "{messages:?}");
    }
}

#[test]
fn answers_after_a_change_are_those_of_all_zones() {
    let folder = tempfile::tempdir().unwrap();
    let zone = |file: &str, text: &str| zone(folder.path(), file, text);
    let names = ["a.example", "b.example", "c.example"];
    let mut specs: Vec<_> = names.map(|name| zone(name, GOOD)).into();
    specs.push(zone("broken.example", "nonsense\n"));
    let first = read_settled(folder.path(), &specs);
    let old = first.answers();
    let more = format!("{GOOD}more 60 IN A 192.0.2.2\n");
    // One zone has another record, then the zones have other places.
    for (number, has_same_zones) in [(1, true), (0, false)] {
        zone(names[number], &more);
        if !has_same_zones {
            specs.rotate_left(1);
        }
        let next = first.read(&specs, 1, &mut |_| {});
        assert_eq!(next.replaced_since(&first).is_some(), has_same_zones);
        assert!(next.differ_from(&first));
        let (after, all) = (next.answers_after(&first, &old), next.answers());
        assert_eq!(after.size(), all.size());
        let mut key = Key::new();
        for (zone, text) in [(1, "more.b.example"), (0, "more.a.example")] {
            key.set(all.hashing(), &name::parse(text).unwrap());
            let [found, expected] = [&after, &all].map(|answers| {
                let zone = answers.zone(answers.zone_of(rtype::A, &key));
                zone.unwrap().node(&key).is_some()
            });
            assert!(found == expected && (found || zone != number), "{text}");
        }
    }
}

#[test]
fn a_zone_is_not_taken_over_by_a_file_that_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let taken = format!("$ORIGIN c.example.\n{GOOD}");
    let served = zone(folder.path(), "c.example", GOOD);
    let first = read(std::slice::from_ref(&served), &mut |_| {});
    let other = zone(folder.path(), "a", &taken);
    let both = first.read(&[other.clone(), served.clone()], 1, &mut |_| {});
    let unserved: Vec<_> = both.unserved().iter().map(ToString::to_string).collect();
    assert!(
        unserved.len() == 1 && unserved[0].contains("/a: not loaded; "),
        "{unserved:?}"
    );
    assert!(both.differ_from(&first) && !both.differ_from(&both));
    assert_eq!(both.files().count(), 1);
    // At the start, the first file is served.
    let files = read(&[other, served], &mut |_| {});
    assert!(
        files.unserved()[0]
            .to_string()
            .contains("/c.example: not loaded; ")
    );
}

#[test]
fn a_zone_that_is_read_alone_leaves_the_others_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let specs = [
        zone(folder.path(), "a.example", GOOD),
        zone(folder.path(), "b.example", GOOD),
        zone(folder.path(), "c.example", "nonsense\n"),
    ];
    let first = read(&specs, &mut |_| {});
    let read_one = |name: &str| {
        let apex = name::parse(name).unwrap();
        // The guess is wrong for all but one.
        let at = first.position(&apex, Some(1));
        at.map_or(Ok(None), |at| first.read_one(at, &mut |_| {}))
    };
    let changed = first.with_zones(read_one("b.example").unwrap().unwrap());
    let [before, after] = [answers(&first), answers(&changed)];
    assert!(after[0] == before[0] && after[1] != before[1]);
    assert_eq!((changed.read_count(), changed.unserved().len()), (1, 1));
    assert!(read_one("c.example").unwrap().is_none() && read_one("x.example").unwrap().is_none());
    fs::write(&specs[0].file, "nonsense\n").unwrap();
    assert!(
        read_one("a.example")
            .unwrap_err()
            .error()
            .contains("a.example:1")
    );
    fs::write(&specs[0].file, format!("$ORIGIN other.example.\n{GOOD}")).unwrap();
    assert!(read_one("a.example").unwrap().is_none());
}

/// Returns the numbers of the zones that are read again after a change of this file.
fn hinted(files: &ZoneFiles, path: &Path) -> Vec<usize> {
    let read = files.read_hinted(&HashSet::from([path.to_owned()]), &mut |_| {});
    read.map_or(Vec::new(), |read| read.numbers())
}

/// The index of paths is kept, unless other zones are served or one has other files.
#[test]
fn the_zones_of_a_changed_file_are_found_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["part", "other"] {
        fs::write(path(name), "x 60 A 192.0.2.2\n").unwrap();
    }
    let with_part = format!("{GOOD}$INCLUDE part\n");
    let specs = ["a.example", "b.example", "c.example"];
    let mut specs = specs.map(|name| zone(folder.path(), name, &with_part));
    let mut files = read(&specs, &mut |_| {});
    assert_eq!(hinted(&files, &path("part")), [0, 1, 2]);
    assert_eq!(hinted(&files, &path("b.example")), [1]);
    assert!(hinted(&files, &path("d.example")).is_empty());
    let change = |files: &mut ZoneFiles, text: &str| {
        fs::write(path("b.example"), text).unwrap();
        let again = files.read_one(1, &mut |_| {}).unwrap().unwrap();
        *files = files.with_zones(again);
    };
    change(&mut files, &format!("{with_part}y 60 A 192.0.2.3\n"));
    assert_eq!(hinted(&files, &path("part")), [0, 1, 2]);
    change(&mut files, GOOD);
    assert_eq!(hinted(&files, &path("part")), [0, 2]);
    change(&mut files, &with_part.replace("part", "./part"));
    assert_eq!(hinted(&files, &path("part")), [0, 1, 2]);
    change(&mut files, &with_part.replace("part", "other"));
    assert_eq!(hinted(&files, &path("other")), [1]);
    specs.swap(1, 2);
    let next = files.read(&specs, 1, &mut |_| {});
    assert_eq!(hinted(&next, &path("b.example")), [2]);
}

/// A file that more zones include gives no hint.
#[test]
fn at_most_64_zones_are_read_for_hints() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("part"), "x 60 A 192.0.2.2\n").unwrap();
    let with_part = format!("{GOOD}$INCLUDE part\n");
    let specs: Vec<_> = (0..65)
        .map(|number| zone(folder.path(), &format!("z{number}.example"), &with_part))
        .collect();
    for (zones, expected) in [(64, (0..64).collect()), (65, Vec::new())] {
        let files = read(&specs[..zones], &mut |_| {});
        assert_eq!(hinted(&files, &folder.path().join("part")), expected);
    }
}

#[test]
fn a_zone_without_a_delegation_in_the_zone_above_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let delegating = format!("{GOOD}in 60 NS ns.in\n");
    let specs = [
        zone(folder.path(), "example", &delegating),
        zone(folder.path(), "in.example", GOOD),
        zone(folder.path(), "x.in.example", GOOD),
        zone(folder.path(), "out.example", GOOD),
        zone(folder.path(), "bad.example", "nonsense\n"),
        zone(folder.path(), "x.bad.example", GOOD),
    ];
    for form in [Form::Wire, Form::Fqdn] {
        let files = ZoneFiles::new(Hashing::new(form, [1; 4])).read(&specs, 1, &mut |_| {});
        let mut messages = Vec::new();
        files.warn_of_missing_delegations(&files.answers(), &mut |line| messages.push(line));
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(messages[0].contains("/x.in.example: warning: a zone above x.in.example. is"));
        assert!(messages[1].contains("/out.example: warning: a zone above out.example. is"));
    }
}

#[test]
fn new_and_removed_zones_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let zones = |names: std::ops::Range<char>| {
        let spec = |letter: char| zone(folder.path(), &format!("{letter}.example"), GOOD);
        read(&names.map(spec).collect::<Vec<_>>(), &mut |_| {})
    };
    assert_eq!(zones('a'..'d').changes_since(&zones('a'..'d')), "");
    assert_eq!(
        zones('b'..'e').changes_since(&zones('a'..'d')),
        "; new: d.example.; removed: a.example."
    );
    assert_eq!(
        zones('a'..'y').changes_since(&zones('a'..'b')),
        "; new: b.example., c.example., d.example., e.example., f.example. and 18 more"
    );
}

#[test]
fn news_are_new_zones_new_serials_and_zones_that_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, serial: u32| {
        let text = GOOD.replace("host 1", &format!("host {serial}"));
        zone(folder.path(), name, &text)
    };
    let [a, b, c] = ["a.example", "b.example", "c.example"];
    let first = read(&[write(a, 1), write(b, 1)], &mut |_| {});
    let names = |files: &ZoneFiles, before: &ZoneFiles| {
        let news = files.news_since(before);
        let show = |apex: &[u8]| name::Shown(apex).to_string();
        let changed = news.changed.iter().map(|(apex, _)| show(apex));
        let gone = news.gone.iter().map(|apex| show(apex));
        (changed.collect::<Vec<_>>(), gone.collect::<Vec<_>>())
    };
    let none = Vec::<String>::new();
    let all = vec!["a.example.".to_owned(), "b.example.".to_owned()];
    assert_eq!(names(&first, &first.without_zones()), (all, none.clone()));
    assert_eq!(names(&first, &first), (none.clone(), none.clone()));
    let second = first.read(&[write(a, 22), write(b, 1)], 1, &mut |_| {});
    let changed = vec!["a.example.".to_owned()];
    assert_eq!(names(&second, &first), (changed, none));
    let third = second.read(&[write(b, 1), write(c, 1)], 1, &mut |_| {});
    let (new, gone) = (vec!["c.example.".to_owned()], vec!["a.example.".to_owned()]);
    assert_eq!(names(&third, &second), (new, gone));
}

/// A file may be given to several zones, each with an origin of its own. One of them may be wrong there.
#[test]
fn a_zone_of_a_shared_file_is_not_taken_for_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{GOOD}www.good.example. 60 A 192.0.2.1\n");
    let spec = |origin: &str| ZoneSpec {
        origin: name::parse(origin),
        ..zone(folder.path(), "shared", &text)
    };
    for specs in [
        [spec("sub.good.example"), spec("good.example")],
        [spec("good.example"), spec("sub.good.example")],
    ] {
        let mut files = read(&specs, &mut |_| {});
        for _ in 0..3 {
            let good: Vec<_> = files.sizes().map(|(apex, _)| apex.to_vec()).collect();
            assert_eq!(good, [name::parse("good.example").unwrap()]);
            let broken = files.unserved().iter().filter_map(UnservedFile::apex);
            let broken: Vec<_> = broken.map(<[u8]>::to_vec).collect();
            assert_eq!(broken, [name::parse("sub.good.example").unwrap()]);
            assert!(files.stale().is_empty());
            files = files.read(&specs, 1, &mut |_| {});
        }
    }
}

#[test]
fn a_zone_in_a_new_file_with_errors_keeps_its_old_answers() {
    let folder = tempfile::tempdir().unwrap();
    let zone = |file: &str, text: &str| zone(folder.path(), file, text);
    let old = zone("a.example", GOOD);
    let first = read(std::slice::from_ref(&old), &mut |_| {});
    let wrong = format!("$ORIGIN A.example.\n{GOOD}x 60 A nonsense\n");
    let [new, other] = ["new", "other"].map(|file| zone(file, &wrong));
    let specs = [new.clone(), other];
    let mut moved = first.read(&specs, 1, &mut |_| {});
    assert!(moved.differ_from(&first));
    for _ in 0..2 {
        assert_eq!(answers(&moved), answers(&first));
        assert_eq!(moved.stale()[0].spec(), moved.facts_of(0).spec());
        assert!(moved.unserved().len() == 1 && moved.unserved()[0].is_duplicate());
        let again = moved.read(&specs, 1, &mut |_| {});
        assert!(!again.differ_from(&moved));
        moved = again;
    }
    // The file is watched, and read as soon as it is right.
    let watched: HashSet<_> = moved.files().collect();
    assert_eq!(watched, HashSet::from([&*new.file]));
    zone("new", &wrong.replace("nonsense", "192.0.2.2"));
    let mended = moved.read(&specs, 1, &mut |_| {});
    assert!(mended.stale().is_empty() && answers(&mended) != answers(&first));
}
