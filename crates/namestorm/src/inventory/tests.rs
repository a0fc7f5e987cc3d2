use std::fs;
use std::sync::Weak;

use super::*;
use crate::answers::ZoneNumber;
use crate::key::{Form, Hashing, Key};
use crate::load::{Broken, ZoneSpec};
use crate::report::Report;
use crate::rtype;
use crate::zone_records::ZoneRecords;

const GOOD: &str = "@ 60 IN SOA ns host 7 2 3 4 60\n@ 60 IN NS ns\nns 60 IN A 192.0.2.1\n";

/// The zones of some files in a folder, as a server reads them.
struct Server {
    folder: tempfile::TempDir,
    specs: Vec<ZoneSpec>,
    files: ZoneFiles,
    answers: Answers,
    inventory: Inventory,
}

impl Server {
    fn new(names: &[&str]) -> Self {
        let files = ZoneFiles::new(Hashing::new(Form::Wire, [1; 4]));
        let mut this = Self {
            specs: Vec::new(),
            answers: files.answers(),
            files,
            inventory: Inventory::default(),
            folder: tempfile::tempdir().unwrap(),
        };
        this.specs = names.iter().map(|name| this.spec(name)).collect();
        this
    }

    fn spec(&self, name: &str) -> ZoneSpec {
        ZoneSpec {
            origin: None,
            file: self.folder.path().join(name),
            group: None,
        }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn read(&mut self) {
        let files = self.files.read(&self.specs, 1, &mut |_| {});
        self.inventory.note_stale(files.stale());
        self.take(files);
    }

    fn take(&mut self, files: ZoneFiles) {
        let answers = files.answers_after(&self.files, &self.answers);
        self.inventory.note_reloaded(&files, &self.files, &answers);
        (self.files, self.answers) = (files, answers);
    }

    /// Reads the zone with this number alone.
    fn read_one(&mut self, at: usize) {
        let again = self.files.read_one(at, &mut |_| {}).unwrap().unwrap();
        self.take(self.files.with_zones(again));
    }

    /// Returns the rows of a list, and its summary.
    fn list(&self, names: &[&str]) -> (Vec<serde_json::Value>, Summary) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let lines: Vec<_> = self.inventory.lines(names, &Tally::default()).collect();
        let (last, rows) = lines.split_last().unwrap();
        let rows = rows.iter().map(|row| serde_json::from_str(row).unwrap());
        match serde_json::from_str(last).unwrap() {
            Line::End { summary } => (rows.collect(), summary),
            Line::Zone(_) => panic!("{last}"),
        }
    }

    fn states(&self) -> Vec<String> {
        let (rows, _) = self.list(&[]);
        let text = |value: &serde_json::Value| value.as_str().unwrap_or("-").to_owned();
        let state =
            |row: &serde_json::Value| format!("{} {}", text(&row["zone"]), text(&row["state"]));
        rows.iter().map(state).collect()
    }
}

#[test]
fn each_zone_and_each_file_that_is_not_served_has_a_line() {
    let mut server = Server::new(&["a.example", "b.example", "c", "d..x"]);
    server.write("a.example", GOOD);
    server.write("b.example", "@ 60 NS a.\n");
    server.write("c", &format!("$ORIGIN A.example.\n{GOOD}"));
    server.write("d..x", "nonsense\n");
    server.read();
    let (rows, summary) = server.list(&[]);
    let names = [
        "a.example. served",
        "a.example. twice",
        "b.example. broken",
        "- broken",
    ];
    assert_eq!(server.states(), names);
    let first = &rows[0];
    assert_eq!(
        (&first["serial"], &first["records"]),
        (&7.into(), &3.into())
    );
    assert_eq!((&first["names"], &first["queries"]), (&2.into(), &0.into()));
    assert!(first["file"].as_str().unwrap().ends_with("/a.example"));
    assert!(first["loaded_unix_time"].as_f64().unwrap() > 1.7e9);
    assert!(first["error"].is_null() && first["signed_until_unix_time"].is_null());
    let error = rows[2]["error"].as_str().unwrap();
    assert!(
        error.contains("b.example") && error.contains("SOA"),
        "{error}"
    );
    let twice = rows[1]["error"].as_str().unwrap();
    assert!(twice.contains("holds the zone a.example. too"), "{twice}");
    let expected = Summary {
        zones: 4,
        matching: 4,
        served: 1,
        broken: 2,
        twice: 1,
        ..Summary::default()
    };
    assert_eq!(summary, expected);
    let by_state = [("served", 1), ("old", 0), ("broken", 2), ("twice", 1)];
    assert!(server.inventory.by_state().eq(by_state));
}

#[test]
fn names_choose_zones_and_those_that_no_zone_has_are_told() {
    let mut server = Server::new(&["a.example", "b.example"]);
    server.write("a.example", GOOD);
    server.write("b.example", GOOD);
    server.read();
    let (rows, summary) = server.list(&["B.Example", "c.example", "x..y"]);
    assert_eq!((rows.len(), &rows[0]["zone"]), (1, &"b.example.".into()));
    assert_eq!(summary.unknown, ["c.example", "x..y"]);
    assert_eq!((summary.zones, summary.matching), (2, 1));
    let (rows, summary) = server.list(&["x..y"]);
    assert!(rows.is_empty() && summary.unknown == ["x..y"]);
}

#[test]
fn a_zone_whose_file_has_an_error_is_old_until_the_file_is_correct() {
    let mut server = Server::new(&["a.example", "b.example"]);
    server.write("a.example", GOOD);
    server.write("b.example", GOOD);
    server.read();
    server.write("b.example", &format!("{GOOD}x 60 A nonsense\n"));
    server.read();
    assert_eq!(server.states(), ["a.example. served", "b.example. old"]);
    let by_state = [("served", 1), ("old", 1), ("broken", 0), ("twice", 0)];
    assert!(server.inventory.by_state().eq(by_state));
    let (rows, summary) = server.list(&["b.example"]);
    let error = rows[0]["error"].as_str().unwrap();
    assert!(error.contains("b.example:4:8: "), "{error}");
    assert_eq!(
        (summary.served, summary.old, rows[0]["serial"].as_u64()),
        (1, 1, Some(7))
    );
    // A reload of another zone says nothing about this one.
    let apex = b"\x01a\x07example\0";
    let at = server.files.position(apex, None).unwrap();
    let spec = server.files.facts_of(at).spec().clone();
    server.inventory.note_correct_file(&spec);
    assert_eq!(server.states(), ["a.example. served", "b.example. old"]);
    server.write("b.example", GOOD);
    server.read();
    assert_eq!(server.states(), ["a.example. served", "b.example. served"]);
    server.write("a.example", "nonsense\n");
    let stale = server.files.read_one(at, &mut |_| {}).unwrap_err();
    server.inventory.note_stale_file(&stale);
    assert_eq!(server.states(), ["a.example. old", "b.example. served"]);
}

/// A name that is too long in one of two zones of one file is no error of the other zone.
#[test]
fn zones_of_one_file_have_states_of_their_own() {
    let mut server = Server::new(&["f"]);
    let long = vec!["x".repeat(59); 4].join(".") + ".example";
    let file = server.folder.path().join("f").display().to_string();
    let specs = [format!("a.example={file}"), format!("{long}={file}")];
    server.specs = specs.map(|spec| spec.parse().unwrap()).into();
    server.write("f", GOOD);
    server.read();
    let of = |states: [&str; 2]| {
        let [short, other] = states;
        [format!("a.example. {short}"), format!("{long}. {other}")]
    };
    assert_eq!(server.states(), of(["served", "served"]));
    server.write("f", &format!("{GOOD}{} 60 A 192.0.2.1\n", "y".repeat(9)));
    server.read();
    assert_eq!(server.states(), of(["served", "old"]));
    let by_state = [("served", 1), ("old", 1), ("broken", 0), ("twice", 0)];
    assert!(server.inventory.by_state().eq(by_state));
    // A reload of the zone without errors says nothing about the other one.
    let spec = server.files.facts_of(0).spec().clone();
    server.inventory.note_correct_file(&spec);
    assert_eq!(server.states(), of(["served", "old"]));
    let stale = server.files.read_one(1, &mut |_| {}).unwrap_err();
    server.inventory.note_stale_file(&stale);
    assert_eq!(server.states(), of(["served", "old"]));
}

#[test]
fn a_list_that_has_begun_goes_on_while_zones_change() {
    let mut server = Server::new(&["a.example", "b.example"]);
    server.write("a.example", GOOD);
    server.write("b.example", GOOD);
    server.read();
    let mut lines = server.inventory.lines(Vec::new(), &Tally::default());
    assert!(lines.next().unwrap().contains("\"a.example.\""));
    server.specs.pop();
    server.read();
    assert!(lines.next().unwrap().contains("\"b.example.\""));
    assert!(lines.next().unwrap().contains("\"zones\":2") && lines.next().is_none());
    assert_eq!(server.states(), ["a.example. served"]);
}

#[test]
fn queries_and_transfers_of_each_zone_are_counted_over_all_workers_and_reloads() {
    let mut server = Server::new(&["a.example", "c.example"]);
    for name in ["a.example", "b.example", "c.example"] {
        server.write(name, GOOD);
    }
    server.read();
    // Each worker answers this number of queries for `c.example`.
    let answer = |server: &Server, queries: &[usize]| {
        let counts = server.answers.zone_counts();
        let mut key = Key::new();
        key.set(server.answers.hashing(), b"\x01x\x01c\x07example\0");
        for number in queries {
            let worker = counts.open();
            let zone = server.answers.zone_of(rtype::A, &key);
            (0..*number).for_each(|_| worker.add(zone));
            worker.add(ZoneNumber::NONE);
        }
        let number = server.answers.number_of(b"\x01C\x07example\0").unwrap();
        counts.add_transfer(number);
    };
    let counted = |server: &Server| {
        let (rows, _) = server.list(&[]);
        let counts = rows.iter().map(|row| {
            let count = |of: &str| row[of].as_u64().unwrap();
            [count("queries"), count("transfers")]
        });
        counts.collect::<Vec<_>>()
    };
    answer(&server, &[3, 4]);
    assert_eq!(counted(&server), [[0, 0], [7, 1]]);
    // A reload of a zone keeps the numbers, and a new zone changes them.
    server.write("a.example", &GOOD.replace(" 7 ", " 8 "));
    server.read();
    answer(&server, &[1]);
    assert_eq!(counted(&server), [[0, 0], [8, 2]]);
    let [b, c] = ["b.example", "c.example"].map(|name| server.spec(name));
    server.specs.insert(1, b);
    server.read();
    assert_eq!(counted(&server), [[0, 0], [0, 0], [8, 2]]);
    answer(&server, &[2]);
    server.specs.remove(0);
    server.read();
    answer(&server, &[5]);
    assert_eq!(counted(&server), [[0, 0], [15, 4]]);
    // A zone that comes back begins again.
    server.specs.pop();
    server.read();
    server.specs.push(c);
    server.read();
    assert_eq!(counted(&server), [[0, 0], [0, 0]]);
}

/// A worker has the last transfer of the records of a zone that is reloaded meanwhile.
#[test]
fn the_control_thread_frees_records_when_their_transfers_have_ended() {
    let mut server = Server::new(&["a.example", "b.example"]);
    server.files = server.files.without_zones().keeping_records(true);
    server.write("a.example", GOOD);
    server.write("b.example", GOOD);
    server.read();
    let records = |server: &Server, name: &[u8]| {
        let mut key = Key::new();
        key.set(server.answers.hashing(), name);
        let zone = server.answers.zone_of(rtype::A, &key);
        Arc::clone(server.answers.zone(zone).unwrap().records().unwrap())
    };
    let [a, b] = [&b"\x01a\x07example\0"[..], b"\x01b\x07example\0"];
    let changes: [fn(&mut Server); 3] = [
        Server::read,
        |server| server.read_one(0),
        |server| {
            server.specs.pop();
            server.read();
        },
    ];
    for change in changes {
        let transfers = [records(&server, a), records(&server, b)];
        let text = fs::read_to_string(server.folder.path().join("a.example")).unwrap();
        server.write("a.example", &format!("{text}more 60 IN A 192.0.2.2\n"));
        change(&mut server);
        let left = transfers.map(|records| Arc::downgrade(&records));
        let is_served = |old: &Weak<ZoneRecords>| {
            server.specs.len() == 2 && Arc::as_ptr(&records(&server, b)) == old.as_ptr()
        };
        let exist =
            |left: &[Weak<ZoneRecords>; 2]| left.each_ref().map(|it| it.upgrade().is_some());
        assert_eq!(exist(&left), [true, true]);
        server.inventory.notice(SystemTime::now());
        assert_eq!(exist(&left), [false, is_served(&left[1])]);
    }
}

#[test]
fn lines_for_people_are_columns() {
    let mut row = {
        let apex = b"\x01x\x07example\0".to_vec();
        let broken = Broken {
            apex: Some(apex),
            report: Report::default(),
            files: Vec::new(),
        };
        let file = UnservedFile::broken("x.zone".parse().unwrap(), broken);
        Row::unserved(&file, State::Broken)
    };
    assert_eq!(
        row.to_string(),
        "x.example.                   broken          -         -         -           -         - -                    x.zone\n     \
         x.zone: not loaded; queries for x.example. get SERVFAIL\n"
    );
    row = serde_json::from_str(
        "{\"zone\":\"example.org.\",\"state\":\"served\",\"serial\":2026010101,\"records\":1204,\
         \"names\":310,\"queries\":50123,\"transfers\":2,\"file\":\"a.zone\",\"loaded_unix_time\":784111777.5,\
         \"signed_until_unix_time\":1000000000000,\"error\":null}",
    )
    .unwrap();
    assert_eq!(
        format!("{Heading}{row}"),
        "zone                         state      serial   records     names     queries transfers loaded               file\n\
         example.org.                 served 2026010101     1,204       310      50,123         2 1994-11-06T08:49:37Z a.zone\n     \
         signed until 9999-12-31T23:59:59Z\n"
    );
    let summary = Summary {
        zones: 1_204,
        matching: 3,
        served: 1_200,
        old: 2,
        broken: 1,
        twice: 1,
        expiring: 5,
        expired: 4,
        unknown: Vec::new(),
    };
    assert_eq!(
        summary.to_string(),
        "zones: 1,204, of which 3 match; old because of an error: 2; not loaded: 1; given twice: 1; \
         with expired signatures: 4; with signatures that expire within a day: 5"
    );
    for (state, note) in [
        (Signatures::Valid, ""),
        (Signatures::Expiring, ", within a day: sign the zone again"),
        (
            Signatures::Expired,
            ", so signatures have expired: sign the zone again",
        ),
    ] {
        row = row.with_signatures(Some(state));
        let expected = format!("\n     signed until 9999-12-31T23:59:59Z{note}\n");
        assert!(row.to_string().ends_with(&expected), "{row}");
    }
}

/// Returns the text of a zone whose signatures expire at this time.
fn signed(until: &str) -> String {
    let apex = "$ORIGIN z.example.\n@ 60 IN SOA ns.y. h 7 2 3 4 60\n@ 60 IN NS ns.y.\n";
    let signature = |rtype: &str, until: &str| {
        format!("@ 60 IN RRSIG {rtype} 13 2 60 {until} 20200101000000 1 z.example. AAAA\n")
    };
    let [soa, ns] =
        [("SOA", "20400101000000"), ("NS", until)].map(|(rtype, until)| signature(rtype, until));
    let nsec = signature("NSEC", "20400101000000");
    format!("{apex}{soa}{ns}@ 60 IN NSEC @ NS SOA RRSIG NSEC\n{nsec}")
}

#[test]
fn each_state_of_the_signatures_of_a_zone_is_warned_of_once() {
    let mut server = Server::new(&["a", "b", "c"]);
    let of =
        |name: &str, until: &str| signed(until).replace("z.example.", &format!("{name}.example."));
    server.write("a", &of("a", "20300102000000"));
    server.write("b", &of("b", "20300103120000"));
    server.write("c", &format!("$ORIGIN c.example.\n{GOOD}"));
    server.read();
    let at = |text: &str| humantime::parse_rfc3339(text).unwrap();
    let states = |server: &Server| {
        server
            .inventory
            .by_signatures()
            .map(|(_, n)| n)
            .collect::<Vec<_>>()
    };
    let warned = |server: &Server, time: &str| server.inventory.warnings(at(time));
    assert!(warned(&server, "2029-12-31T00:00:00Z").is_empty());
    assert_eq!(states(&server), [2, 0, 0]);
    let expiring = "signatures of a.example. expire within a day, the first at 2030-01-02T00:00:00Z: \
                    sign the zone again, and reload it";
    assert_eq!(warned(&server, "2030-01-01T00:00:01Z"), [expiring]);
    assert_eq!(states(&server), [1, 1, 0]);
    assert!(
        warned(&server, "2030-01-01T12:00:00Z").is_empty(),
        "it is told once"
    );
    let expired = "signatures of a.example. have expired, the first at 2030-01-02T00:00:00Z, so \
                   resolvers refuse answers: sign the zone again, and reload it";
    assert_eq!(warned(&server, "2030-01-02T00:00:01Z"), [expired]);
    assert_eq!(states(&server), [1, 0, 1]);
    let next = warned(&server, "2030-01-02T12:00:01Z");
    assert!(
        next[0].starts_with("signatures of b.example. expire within a day"),
        "{next:?}"
    );
    assert_eq!(states(&server), [0, 1, 1]);
    // A zone that was signed again has not been told.
    server.write("a", &(of("a", "20300102033000") + "; signed again\n"));
    server.read();
    assert_eq!(states(&server), [2, 0, 0], "the clock of this host");
    assert!(warned(&server, "2030-01-01T00:00:01Z").is_empty());
    // The clock was set back, which is no reason to wait. One line an hour is enough.
    server.write("b", &(of("b", "20300102034000") + "; signed again\n"));
    server.read();
    assert_eq!(warned(&server, "2030-01-02T03:29:00Z").len(), 1);
    let expired = warned(&server, "2030-01-02T03:31:00Z");
    assert!(
        expired[0].starts_with("signatures of a.example. have expired"),
        "{expired:?}"
    );
    assert!(warned(&server, "2030-01-02T04:30:59Z").is_empty());
    let expired = warned(&server, "2030-01-02T04:31:00Z");
    assert!(
        expired[0].starts_with("signatures of b.example. have expired"),
        "{expired:?}"
    );
    server.specs.clear();
    server.read();
    assert_eq!(states(&server), [0, 0, 0]);
}

#[test]
fn the_list_says_which_signatures_have_expired() {
    let mut server = Server::new(&["a", "b", "c", "d"]);
    server.write("a", &signed("20200102000000"));
    // An RRset is valid as long as one of its signatures.
    let old = "@ 60 IN RRSIG NS 13 2 60 20200102000000 20200101000000 1 d.example. AAAA\n";
    let two = signed("20390102000000") + old;
    server.write("d", &two.replace("z.example.", "d.example."));
    server.write(
        "b",
        &signed("20390102000000").replace("z.example.", "b.example."),
    );
    server.write("c", &format!("$ORIGIN c.example.\n{GOOD}"));
    server.read();
    let (rows, summary) = server.list(&[]);
    let states: Vec<_> = rows.iter().map(|row| row["signatures"].as_str()).collect();
    assert_eq!(
        states,
        [Some("expired"), Some("valid"), None, Some("valid")]
    );
    assert_eq!((summary.expired, summary.expiring), (1, 0));
}

#[test]
fn a_zone_that_is_read_alone_changes_the_list_and_the_counts() {
    let mut server = Server::new(&["a", "b.example"]);
    server.write("a", &signed("20200102000000"));
    server.write("b.example", GOOD);
    server.read();
    let signed_zones = |server: &Server| {
        let counts = server.inventory.by_signatures();
        counts.map(|(_, count)| count).collect::<Vec<_>>()
    };
    let expired = signed_zones(&server);
    server.write("a", &signed("20991231000000"));
    server.read_one(0);
    let valid = signed_zones(&server);
    assert!(expired != valid && expired.iter().sum::<u64>() == 1 && valid.iter().sum::<u64>() == 1);
    server.write("b.example", &GOOD.replace(" 7 ", " 8 "));
    server.read_one(1);
    let (rows, _) = server.list(&["b.example"]);
    assert_eq!(rows[0]["serial"].as_u64(), Some(8));
    assert_eq!(signed_zones(&server), valid);
}
