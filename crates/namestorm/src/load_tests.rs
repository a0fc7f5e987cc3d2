//! Tests that errors are reported with file, line and cause, and that valid zones are loaded
//! correctly.

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::check_files::check;
use crate::compile::compile;
use crate::key::{Form, Key};
use crate::report::{Finding, Severity};
use crate::zone::{NameRef, RrsetRef};
use crate::zones::Zones;

pub(super) const START: &str =
    "@ 60 IN SOA ns host 1 2 3 4 60\n@ 60 IN NS ns\nns 60 IN A 192.0.2.1\n";

/// Appends `text` to a valid zone of three lines. Returns the zone's errors and warnings, without
/// columns.
fn findings(text: &str) -> Vec<String> {
    let text = format!("{START}{text}");
    let report = match load_text("f", Some("example.org"), &text) {
        Ok(loaded) => loaded.report,
        Err(report) => {
            assert!(report.errors() > 0);
            report
        }
    };
    let without_column = |finding: &Finding| Finding {
        column: 0,
        ..finding.clone()
    };
    let findings = report.findings().iter().map(without_column);
    findings.map(|finding| finding.to_string()).collect()
}

#[track_caller]
pub(super) fn finds(text: &str, expected: &[&str]) {
    let found = findings(text);
    assert_eq!(found.len(), expected.len(), "{text:?}: {found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            found.starts_with(expected),
            "{text:?}: {found:?}, not {expected:?}"
        );
    }
}

#[test]
fn an_empty_string_is_no_name() {
    finds("\"\" A 192.0.2.1\n", &["f:4"]);
    finds("w CNAME \"\"\n", &["f:4: TARGET-NAME must be"]);
    finds("w TXT \"\"\n", &[]);
}

/// The `domain` crate accepts such an origin, and no record may follow that uses it.
#[test]
fn an_origin_has_no_empty_label() {
    let found = |text: &str| load_text("f", None, text).unwrap_err().to_string();
    let message = "a name has an empty label; write one dot between two labels";
    for origin in ["a..b.", "a..b", ".a.", "a.."] {
        let line = format!("$ORIGIN {origin}");
        let expected = format!("f:1:9: {message}: \"{line}\"");
        assert_eq!(found(&line), expected);
    }
    let include = "$ORIGIN b.\n$INCLUDE f a..b.\n";
    assert_eq!(
        found(include),
        format!("f:2:12: {message}: \"$INCLUDE f a..b.\"")
    );
    finds("$ORIGIN .\n", &[]);
    finds(r"$ORIGIN a\.\.b.", &[]);
}

#[test]
fn errors_have_their_line_numbers() {
    finds(
        "www A\n",
        &["f:4: fields are missing at the end; write A ADDRESS: \"www A\""],
    );
    finds("\nwww A 1.2.3.4.5\n", &["f:5: "]);
    finds(
        "www A 1.2.3.4 5\n",
        &["f:4: more fields than the record type has; write A ADDRESS: \"www A 1.2.3.4 5\""],
    );
    finds(
        "www NOTYPE x\n",
        &["f:4: NOTYPE is not a known record type; a type without a name is written as TYPE and"],
    );
    finds("www IN\n", &["f:4: "]);
    finds(
        "www TYPE65280 x\n",
        &["f:4: data of this record type must be written"],
    );
    finds(
        "www CH A 1.2.3.4\n",
        &["f:4: class CH is not supported; write IN, or omit the class: \"www CH"],
    );
    finds("www TXT \"open\n", &["f:4: a quoted string is not closed"]);
    finds(
        "www TXT ( \"a\"\n\"b\"\n",
        &["f:4: a parenthesis is not closed"],
    );
    finds(
        "www TXT a )\n",
        &["f:4: a closing parenthesis has no opening one; remove it"],
    );
    finds(
        "$NONSENSE x\n",
        &["f:4: $NONSENSE is not known; the directives are "],
    );
    finds(
        "$INCLUDE missing\n",
        &["f:4: cannot read missing: No such file"],
    );
    let empty = ["f:4: a name has an empty label; write one dot between two labels"];
    finds("a..b 60 A 1.2.3.4\n", &empty);
    finds("www NS a..b\n", &["f:4: SERVER-NAME must be a domain name"]);
    finds(
        "www 2147483648 A 1.2.3.4\n",
        &["f:4: '2147483648' is not a TTL: write 0 to 2147483647 seconds, or a time such as"],
    );
    // After an invalid `$TTL`, the next entry causes no warning about a missing TTL.
    finds(
        "$TTL 99999w\nwww A 1.2.3.4\n",
        &["f:4: '99999w' is not a TTL: "],
    );
    finds(
        "@ SOA ns host 1 4294967296 3 4 5\n",
        &["f:4: REFRESH must be a number of seconds; write SOA "],
    );
    for escape in ["\\999", "\\256x", "\\12", "\\1x2"] {
        finds(
            &format!("www 60 TXT \"{escape}\"\nx{escape} 60 A 1.2.3.4\n"),
            &[
                "f:4: an escape is \\ and three digits, ",
                "f:5: an escape is ",
            ],
        );
    }
    finds(
        "www \u{1b}[31m A\n",
        &[
            "f:4: a control character is allowed only as an escape, \\ and three digits: \"www \u{fffd}[31m A\"",
        ],
    );
    finds(
        "www A \\# 3 010203\n",
        &["f:4: the data is not valid for type A"],
    );
    finds(
        "www MX \\# 4 000ac000\n",
        &["f:4: the data is not valid for type MX"],
    );
    finds(
        "www TYPE255 \\# 0\n",
        &["f:4: ANY records cannot be in a zone"],
    );
}

#[test]
fn faults_before_the_data_are_named() {
    finds(
        "www TYPE41 \\# 0\n. 60 OPT 1\nwww AXFR\n",
        &[
            "f:4: OPT records cannot be in a zone; remove this entry: ",
            "f:5: OPT records cannot be in a zone; ",
            "f:6: AXFR records cannot be in a zone; ",
        ],
    );
    finds(
        "$TTL\n$ttl ; nothing\n$ORIGIN\n$INCLUDE\n$ORIGIN a. b\n\
         www IN 60 60 A 1.2.3.4\nwww IN 60 IN A 1.2.3.4\n",
        &[
            "f:4: $TTL has no time; write $TTL and a time such as 1h: \"$TTL\"",
            "f:5: $TTL has no time; ",
            "f:6: $ORIGIN has no name; write $ORIGIN NAME: ",
            "f:7: $INCLUDE has no file; write $INCLUDE FILE: ",
            "f:8: more words than the directive takes: ",
            "f:9: the TTL is stated twice; write it once: ",
            "f:10: the class is stated twice; write it once: ",
        ],
    );
    let [label, long] = ["x".repeat(64), "abcdefgh.".repeat(28)];
    finds(
        &format!(
            "{label} 60 A 1.2.3.4\na.\\120{label} 60 A 1.2.3.4\n$ORIGIN {label}.org.\n{long}a 60 A 1.2.3.4\n"
        ),
        &[
            "f:4: a label has 64 bytes, but at most 63 are allowed: ",
            "f:5: a label has 65 bytes, ",
            "f:6: a label has 64 bytes, ",
            "f:7: the name with its origin has more than 255 bytes; ",
        ],
    );
}

#[test]
fn errors_name_the_fields_of_the_type() {
    finds(
        "www mx host\n",
        &[
            "f:4: PREFERENCE must be a number from 0 to 65535; write MX PREFERENCE HOST-NAME: \"www mx ",
        ],
    );
    finds(
        "www SRV 0 0 host\n",
        &["f:4: PORT must be a number from 0 to 65535; write SRV PRIORITY WEIGHT PORT HOST-NAME: "],
    );
    finds(
        "www CAA 0 issue\n",
        &["f:4: fields are missing at the end; write CAA FLAGS TAG \"VALUE\": "],
    );
    let long = "x".repeat(256);
    finds(
        &format!("www 60 TXT a \"{long}\"\nwww 60 TXT {long}\nwww 60 HINFO a {long}\n"),
        &[
            "f:4: a string has at most 255 bytes; write a longer text as several quoted strings: ",
            "f:5: a string has at most 255 bytes; ",
            "f:6: a string has at most 255 bytes; ",
        ],
    );
    let long = "x".repeat(255);
    finds(&format!("www 60 TXT \"{long}\" \"{long}\"\n"), &[]);
}

#[test]
fn one_error_does_not_hide_the_next() {
    finds(
        "$TTL 60\na A 1.2.3\nb A 1.2.3.4\n  TXT (\n \"x\" y z\n w )\n  A nonsense\nc MX\n\nd A 1.2.3.4 ; good\n",
        &["f:5: ", "f:10: ", "f:11: "],
    );
    // After an error, an entry without an owner still takes the owner of the entry before the
    // error.
    finds(
        "$TTL 60\na A 1.2.3.4\n  A bad\n  TXT fine\n CNAME b\n",
        &["f:6: "],
    );
    let many = "x A bad\n".repeat(200);
    let text = format!("{START}{many}");
    let report = load_text("f", Some("example.org"), &text).unwrap_err();
    assert_eq!(report.findings().len(), 50, "findings are limited");
    assert!(report.to_string().contains("and 1 more errors"), "{report}");
}

#[test]
fn inconsistent_zones_are_refused() {
    let wrong = |text| {
        let report = load_text("f", Some("example.org"), text).unwrap_err();
        report.to_string()
    };
    assert!(wrong("").contains("f: the file has no records"));
    assert!(wrong("@ 60 NS ns\n").contains("there is no SOA record for example.org."));
    assert!(
        wrong("@ 60 SOA ns h 1 2 3 4 5\nns 60 A 192.0.2.1\n")
            .contains("no NS record for example.org.")
    );
    finds(
        "@ 60 SOA ns host 2 2 3 4 60\n",
        &["f:4: example.org. has a second SOA record"],
    );
    finds(
        "www 60 SOA ns host 2 2 3 4 60\n",
        &["f:4: an SOA record is allowed only at the zone's name, not at www.example.org."],
    );
    finds(
        "www 60 CNAME ns\nwww 60 A 192.0.2.1\n",
        &["f:5: www.example.org. has a CNAME record, so it cannot have A as well"],
    );
    finds(
        "www 60 CNAME ns\nwww 60 CNAME nss\n",
        &["f:5: www.example.org. has a second CNAME record; only one is allowed"],
    );
    finds(
        "www 60 DNAME a.\nwww 60 DNAME b.\n",
        &["f:5: www.example.org. has a second DNAME record"],
    );
    finds(
        "www 60 DNAME a.\na.www 60 A 192.0.2.1\n",
        &["f:5: a.www.example.org. lies below a DNAME record"],
    );
    finds(
        "*.w 60 NS ns\n*.v 60 DNAME a.\n",
        &[
            "f:4: a wildcard cannot have NS records",
            "f:5: a wildcard cannot have DNAME records",
        ],
    );
    finds(
        "www.example.net. 60 A 192.0.2.1\nbadexample.org. 60 A 192.0.2.1\n",
        &[
            "f:4: www.example.net. does not lie in the zone example.org.",
            "f:5: badexample.org. does not lie in the zone example.org.",
        ],
    );
    let text = "x".repeat(250);
    let big = (0..300).fold(String::new(), |big, i| {
        big + &format!("big 60 TXT {i} \"{text}\"\n")
    });
    finds(
        &big,
        &["f:4: the TXT records of big.example.org. do not fit one message"],
    );
    // DNSSEC records may accompany a CNAME.
    finds(
        "www 60 CNAME ns\nwww 60 NSEC x.example.org. CNAME NSEC\n",
        &[],
    );
}

#[test]
fn suspicious_records_cause_warnings() {
    finds(
        "a 60 A 192.0.2.1\na 30 A 192.0.2.2\n",
        &[
            "f:4: warning: the A records of a.example.org. have different TTLs: using 30 s, not 60 s",
        ],
    );
    finds(
        "a 60 A 192.0.2.1\na 60 A 192.0.2.1\n",
        &["f:5: warning: duplicate record: dropped"],
    );
    // Names in data of old types are compared without regard to case. Those of later types are not.
    finds(
        "a 60 MX 1 X.test.\na 60 MX 1 x.test.\n",
        &["f:5: warning: duplicate record: dropped"],
    );
    finds("a 60 LP 1 X.test.\na 60 LP 1 x.test.\n", &[]);
    finds(
        "sub 60 NS ns.sub\n",
        &["f:4: warning: sub.example.org. NS: its target ns.sub.example.org. has no address"],
    );
    finds(
        "@ 60 NS other\n",
        &["f:2: warning: example.org. NS: its target other.example.org. has no address"],
    );
    finds(
        "al 60 CNAME ns\n@ 60 MX 5 al\n",
        &["f:5: warning: example.org. MX: its target al.example.org. is an alias (CNAME)"],
    );
    finds(
        "sub 60 NS ns\nsub 60 TXT x\nx.sub 60 TXT y\n",
        &[
            "f:5: warning: the TXT of sub.example.org. belongs to a delegated zone",
            "f:6: warning: the TXT of x.sub.example.org. belongs to a delegated zone",
        ],
    );
    finds(
        "@ 60 NS a.w\n*.w 60 A 192.0.2.1\n@ 60 NS ns.example.net.\n",
        &[],
    );
    let text = "@ IN SOA ns host 1 2 3 4 60\n@ IN NS ns.example.net.\n";
    let report = load_text("f", Some("example.org"), text).unwrap().report;
    let lines: Vec<_> = report
        .findings()
        .iter()
        .map(|f| (f.severity, f.line))
        .collect();
    assert_eq!(
        lines,
        [(Severity::Warning, 1), (Severity::Warning, 2)],
        "no TTL"
    );
}

#[test]
fn names_without_their_final_dot_cause_warnings() {
    finds(
        "www.example.org 60 A 192.0.2.1\nmail 60 MX 1 mx.Example.org\n",
        &[
            "f:4: warning: www.example.org.example.org. looks as if its final dot is \
             missing; if www.example.org. is meant, add the dot",
            "f:5: warning: mx.Example.org.example.org. looks as if",
        ],
    );
    finds(
        "a 60 CNAME www.example.net\nb 60 SRV 0 0 53 ns.example.com\nc 60 DNAME example.com\n",
        &[
            "f:4: warning: www.example.net.example.org. looks as if",
            "f:5: warning: ns.example.com.example.org. looks as if",
            "f:6: warning: example.com.example.org. looks as if",
        ],
    );
    // Only the first suspicious name of an RRset causes a warning.
    finds(
        "a 60 MX 1 x.net\na 60 MX 2 y.net\n",
        &["f:4: warning: x.net.example.org. looks as if"],
    );
    // Names that exist, or that contain a top-level domain only as part of a label, cause no
    // warning.
    finds(
        "x.net 60 A 192.0.2.1\na 60 CNAME x.net\nb 60 CNAME network\nc 60 MX 1 example.org.\n",
        &[],
    );
    let reverse = "@ 60 SOA ns.a. h.a. 1 2 3 4 5\n@ 60 NS ns.a.\n1 60 PTR host.example\n\
                   2 60 PTR host.example.\n3 60 CNAME 3.sub\n";
    let report = load_text("f", Some("2.0.192.in-addr.arpa"), reverse)
        .unwrap()
        .report;
    let expected = "f:3:1: warning: host.example.2.0.192.in-addr.arpa. looks as if";
    assert!(report.to_string().starts_with(expected), "{report}");
    assert_eq!(report.findings().len(), 1);
    // In the root zone, a name without its final dot means the same as with the dot.
    let root = "@ 60 SOA a b 1 2 3 4 5\n@ 60 NS ns.net\norg 60 NS ns.org\n";
    let report = load_text("f", Some("."), root).unwrap().report;
    assert!(!report.to_string().contains("looks as if"), "{report}");
}

/// Loads a zone. Returns its name and number of records.
fn loaded(file: &str, origin: Option<&str>, text: &str) -> Result<(String, usize), String> {
    let loaded = load_text(file, origin, text).map_err(|report| report.to_string())?;
    let apex = name::Shown(loaded.zone.apex()).to_string();
    Ok((apex, loaded.zone.record_count()))
}

#[test]
fn the_origin_comes_from_the_caller_the_text_or_the_file_name() {
    let zone = |apex: &str| Ok((apex.to_owned(), 3));
    assert_eq!(
        loaded("any", Some("example.org"), START),
        zone("example.org.")
    );
    assert_eq!(
        loaded("any", Some("Example.Org."), START),
        zone("Example.Org.")
    );
    for file in [
        "example.org",
        "dir/example.org.zone",
        "db.example.org",
        "example.org.db",
    ] {
        assert_eq!(loaded(file, None, START), zone("example.org."), "{file}");
    }
    let with_origin = format!("; first\n$TTL 60\n$ORIGIN example.net. ; this\n{START}");
    assert_eq!(
        loaded("example.org", None, &with_origin),
        zone("example.net.")
    );
    // If the zone's name is given, `$ORIGIN` only sets the origin of the records that follow.
    let below = format!("{START}$ORIGIN below.example.org.\nx 60 A 192.0.2.1\n");
    assert_eq!(
        loaded("x", Some("example.org"), &below),
        Ok(("example.org.".into(), 4))
    );
    // `$ORIGIN` without its final dot, or for the root zone, is accepted.
    let undotted = format!("$ORIGIN example.net\n{START}");
    assert_eq!(loaded("x", None, &undotted), zone("example.net."));
    let dumped = "$ORIGIN .\nexample.com 60 SOA a.b c.d 1 2 3 4 5\n\t60 NS ns.example.net\n";
    assert_eq!(loaded("x", None, dumped), Ok(("example.com.".into(), 2)));
    // If all names in a file are absolute, no origin is needed.
    let absolute = "example.com. 60 SOA a. b. 1 2 3 4 5\nexample.com. 60 NS ns.example.net.\n";
    assert_eq!(
        loaded("not..a name", None, absolute),
        Ok(("example.com.".into(), 2))
    );
    // The zone's name must be the owner of the SOA record.
    let error = loaded("x", Some("example.net"), absolute).unwrap_err();
    assert!(error.contains("x:1:1: example.com. does not lie in the zone example.net."));
    let error = loaded("x..y", None, START).unwrap_err();
    assert!(error.contains("give ORIGIN=FILE"), "{error}");
}

#[test]
fn times_with_units_and_entries_in_any_layout_are_read() {
    let text = "$TTL 1h\n@ 1D IN SOA ns host (\n 2026112101 ; serial\n 2h 15m\n 4w 1h30m )\n\tNS\tns\r\n\
                ns IN 5m A 192.0.2.1\nwww A 192.0.2.2\n   AAAA 2001:db8::1 ; the same name\n";
    let loaded = load_text("f", Some("example.org"), text).unwrap();
    assert!(loaded.report.findings().is_empty(), "{}", loaded.report);
    let zones = Zones::new(vec![loaded.zone]).unwrap();
    let answers = compile(&zones, Form::Wire, [1; 4], &mut |_| {}).unwrap();
    assert_eq!(answers.size().records, 5);
    let ttl = |qname: &[u8], qtype| {
        let mut key = Key::new();
        key.set(answers.hashing(), qname);
        let zone = answers.zone(answers.zone_of(qtype, &key)).unwrap();
        let tail = zone.find(qtype, &key).unwrap().tail().bytes;
        u32::from_be_bytes(tail[6..10].try_into().unwrap())
    };
    assert_eq!(ttl(b"\x07example\x03org\x00", 6), 86_400);
    assert_eq!(ttl(b"\x07example\x03org\x00", 2), 3_600);
    assert_eq!(ttl(b"\x02ns\x07example\x03org\x00", 1), 300);
    assert_eq!(ttl(b"\x03www\x07example\x03org\x00", 28), 3_600);
}

/// The `domain` crate refuses the names of algorithms, so such a record is read by a new parser.
#[test]
fn the_ttl_stated_last_holds_until_the_next_one() {
    let start = "@ 86400 SOA ns host 1 2 3 4 60\n@ NS ns.x.\nsub NS ns.x.\n";
    let last = "sub DS 1 ECDSAP256SHA256 2 00112233445566778899AABBCCDDEEFF00112233445566778899AABBCCDDEEFF\n \
                DS 2 ECDSAP256SHA256 2 00112233445566778899AABBCCDDEEFF00112233445566778899AABBCCDDEEFF\n\
                www A 192.0.2.1\n5 30 A 192.0.2.2\n  TXT x\n";
    let ttls = |text: &str| {
        let loaded = load_text("f", Some("example.org"), text).unwrap();
        assert!(loaded.report.findings().is_empty(), "{}", loaded.report);
        let rrsets = loaded.zone.names().flat_map(NameRef::rrsets);
        rrsets.map(RrsetRef::ttl).collect::<Vec<_>>()
    };
    // The names in their order: the apex, "5" with two types, "sub" with two types, and "www".
    assert_eq!(
        ttls(&format!("{start}{last}")),
        [86_400, 86_400, 30, 30, 86_400, 86_400, 86_400]
    );
    // A `$TTL` holds instead, also before records with a TTL of their own.
    assert_eq!(
        ttls(&format!("{start}$TTL 60\n{last}")),
        [86_400, 86_400, 30, 60, 86_400, 60, 60]
    );
}

/// Checks that two texts load as the same zone.
#[track_caller]
fn same(text: &str, written_out: &str) {
    let zone = |text: &str| {
        let loaded = load_text("f", Some("example.org"), text);
        format!(
            "{:?}",
            loaded
                .unwrap_or_else(|report| panic!("{text}: {report}"))
                .zone
        )
    };
    assert_eq!(zone(text), zone(written_out), "{text}");
}

#[test]
fn an_at_sign_as_a_name_is_the_origin() {
    let sub = "$ORIGIN sub.example.org.\n";
    for data in [
        "NS @",
        "MX 10 @",
        "mx 10 @ ; not @ here",
        "TYPE15 10 @",
        "PTR @",
        "MB @",
        "MD @",
        "MF @",
        "MG @",
        "MR @",
        "MINFO @ @",
        "RP @ @",
        "SRV 0 0 80 @",
        "SRV (0 0\n 80 ; @\n @)",
        "SRV (0 0 80 @) ; (",
        "NAPTR 1 2 \"u\" \"E2U+sip\" \"\" @",
        "DNAME @",
        "NSEC @ A MX",
        "RRSIG A 8 2 60 20300101000000 20290101000000 7 @ AAAA",
        "IPSECKEY 10 3 2 @ AQNR",
        "SVCB 1 @ alpn=h2",
        "HTTPS 0 @",
    ] {
        let named = data.replace(" @", " sub.example.org.");
        let text = |data: &str| format!("{START}{sub}a 60 {data}\n");
        same(&text(data), &text(&named));
    }
    // CNAME and SOA need separate texts, because a CNAME excludes other types at its owner, and the
    // SOA must come first.
    same(
        &format!("{START}{sub}a 60 CNAME @\n60 CNAME (@)\n"),
        &format!("{START}{sub}a 60 CNAME sub.example.org.\n60 CNAME sub.example.org.\n"),
    );
    same(
        "@ 60 SOA @ @ (1 2h 3 4 5)\n@ 60 NS @\n@ 60 A 192.0.2.1\n",
        "@ 60 SOA example.org. example.org. 1 7200 3 4 5\n@ 60 NS example.org.\n@ 60 A 192.0.2.1\n",
    );
    same(
        "@ 60 SOA 1h @ 1 2 3 4 5\n@ 60 NS 1h\n1h 60 A 192.0.2.1\n",
        "@ 60 SOA 1h.example.org. example.org. 1 2 3 4 5\n@ 60 NS 1h\n1h 60 A 192.0.2.1\n",
    );
    // `$ORIGIN @` leaves the origin unchanged. After an error, `@` still stands for the origin.
    let text = |data| format!("$ORIGIN @\n{START}{sub}$ORIGIN @\na 60 NS {data}\n");
    same(&text("@"), &text("sub.example.org."));
    finds(&format!("{sub}a 60 A bad\nb 60 NS @\n"), &["f:5: "]);
    let report = load_text("..", None, "a. 60 NS @\n")
        .unwrap_err()
        .to_string();
    assert!(
        report.contains("a relative name without an origin"),
        "{report}"
    );
}

#[test]
fn an_at_sign_elsewhere_is_an_ordinary_character() {
    for (data, written_out) in [
        ("TXT @", "TXT \"\\064\""),
        ("TXT a @ \"@\"", "TXT a \\064 \"\\064\""),
        ("HINFO @ @", "HINFO \"\\064\" \"\\064\""),
        ("CAA 0 issue @", "CAA 0 issue \"\\064\""),
        (
            "NAPTR 1 2 @ @ @ @",
            "NAPTR 1 2 \\064 \\064 \\064 example.org.",
        ),
        ("MX 1 \\@", "MX 1 \\064"),
        ("MX 1 @a", "MX 1 \\064a"),
        ("MX 1 a@", "MX 1 a\\064"),
        ("MX 1 @.example.org.", "MX 1 \\064.example.org."),
        ("SVCB 1 @ key65000=@", "SVCB 1 example.org. key65000=\\064"),
    ] {
        let text = |data: &str| format!("{START}a 60 {data}\n");
        same(&text(data), &text(written_out));
    }
}

#[test]
fn zone_arguments_are_parsed() {
    let parse = |text: &str| {
        text.parse::<ZoneSpec>()
            .map(|spec| (spec.origin, spec.file))
    };
    let file = |file: &str| Path::new(file).to_owned();
    let org = b"\x03org\x00".to_vec();
    assert_eq!(
        parse("org=zones/a=b"),
        Ok((Some(org.clone()), file("zones/a=b")))
    );
    assert_eq!(parse("org.=f"), Ok((Some(org), file("f"))));
    assert_eq!(parse(".=root.zone"), Ok((Some(vec![0]), file("root.zone"))));
    assert_eq!(parse("zones/f"), Ok((None, file("zones/f"))));
    assert_eq!(parse("./a=b"), Ok((None, file("./a=b"))));
    assert_eq!(parse("/a=b"), Ok((None, file("/a=b"))));
    for wrong in ["org=", "a..b=f", ""] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
    assert_eq!("org=f".parse::<ZoneSpec>().unwrap().to_string(), "org.=f");
}

#[test]
fn check_prints_one_line_per_good_zone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("example.org");
    fs::write(&file, START).unwrap();
    let spec: ZoneSpec = file.to_str().unwrap().parse().unwrap();
    let checked = |specs: &[ZoneSpec]| {
        let (mut messages, mut printed) = (Vec::new(), Vec::new());
        let mut say = |line| messages.push(line);
        let mut print = |zone, size| printed.push(format!("{zone}: {size}"));
        let outcome = check(specs, false, &mut say, &mut print);
        let error = outcome.err().map(|error| error.to_string());
        (error, messages.join("\n"), printed.join("\n"))
    };
    let (error, messages, printed) = checked(std::slice::from_ref(&spec));
    assert!(error.is_none() && messages.is_empty(), "{messages}");
    assert!(
        printed.starts_with("example.org.: 2 names, 3 records, 5 packets, "),
        "{printed}"
    );
    // Another file holds the same zone, so the zone is given twice.
    let again = folder.path().join("again");
    fs::write(&again, START).unwrap();
    let again = ZoneSpec {
        origin: name::parse("EXAMPLE.org"),
        file: again,
        group: None,
    };
    let (error, messages, printed) = checked(&[spec.clone(), again]);
    let expected =
        |lost, all| format!("{lost} of {all} zones cannot be served: correct the errors above");
    assert_eq!(error, Some(expected(1, 2)));
    assert_eq!(printed.lines().count(), 1);
    assert!(
        messages.contains("/again: not loaded; ") && messages.ends_with("too: give it only once"),
        "{messages}"
    );
    fs::write(&file, "nonsense").unwrap();
    let (error, messages, _) = checked(&[spec]);
    assert_eq!(error, Some(expected(1, 1)));
    assert!(messages.contains("example.org:1:1: "), "{messages}");
    assert_eq!(messages.lines().count(), 1, "{messages}");
}

proptest! {
    /// Loading any text either succeeds or returns errors, but never panics.
    #[test]
    fn arbitrary_zone_text_causes_no_panic(
        text in "([a-c.*@\\\\\"();$ \t\n0-9]|\n[a-c] |IN |A |NS |SOA |TXT |MX |CNAME |\\$TTL |\\$ORIGIN |\\\\# |192\\.0\\.2\\.1|\\\\[0-9]{0,3}|ü){0,60}",
        start: bool,
    ) {
        let text = if start { format!("{START}{text}\n") } else { text };
        if let Ok(loaded) = load_text("f", Some("a"), &text) {
            let zones = Zones::new(vec![loaded.zone]).unwrap();
            compile(&zones, Form::Fqdn, [1; 4], &mut |_| {}).unwrap();
        }
    }
}
