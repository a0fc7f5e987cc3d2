//! Tests of `$GENERATE`.

use super::tests::{START, finds};
use super::*;
use crate::zone::{NameRef, RrsetRef};

/// Loads a zone of three lines and `text`. Returns its records.
fn records(text: &str) -> Vec<String> {
    let zone = format!("{START}$TTL 60\n{text}\n");
    let loaded = load_text("f", Some("example.org"), &zone);
    let zone = loaded
        .unwrap_or_else(|report| panic!("{text}: {report}"))
        .zone;
    let sets = zone
        .names()
        .flat_map(|name| name.rrsets().map(move |set| (name, set)));
    let records = sets.flat_map(|(name, set)| {
        let owner = name::Shown(name.owner()).to_string();
        let head = format!("{owner} {} {}", set.ttl(), rtype::show(set.rtype()));
        set.data().map(move |data| format!("{head} {data:02x?}"))
    });
    records.collect()
}

/// Checks that a directive makes the records that are written out.
#[track_caller]
fn makes(directive: &str, written_out: &str) {
    assert_eq!(records(directive), records(written_out), "{directive}");
}

#[test]
fn a_directive_stands_for_its_records() {
    makes(
        "$GENERATE 1-3 host-$ A 192.0.2.$",
        "host-1 A 192.0.2.1\nhost-2 A 192.0.2.2\nhost-3 A 192.0.2.3",
    );
    makes(
        "$generate 0-9/4 $ 30 IN CNAME $.dyn ; x",
        "0 30 CNAME 0.dyn\n4 30 CNAME 4.dyn\n8 30 CNAME 8.dyn",
    );
    makes(
        "$GENERATE 7-7 (\n a$ ; x $\n IN 1h AAAA\n 2001:db8::$ )",
        "a7 3600 AAAA 2001:db8::7",
    );
    // Data of several words is one quoted word in BIND. Without quotes it may be several words.
    makes("$GENERATE 1-1 a$ MX \"10 m$\"", "a1 MX 10 m1");
    makes("$GENERATE 1-1 a$ MX 10 m$", "a1 MX 10 m1");
    makes("$GENERATE 1-1 a$ TXT \"x $\"", "a1 TXT x 1");
    makes("$GENERATE 1-1 a$ TXT \"\\\"x $\\\"\"", "a1 TXT \"x 1\"");
    makes("$GENERATE 1-1 a$ TXT \"x $\" y", "a1 TXT \"x 1\" y");
    // Any type is allowed, and `@` is the origin.
    makes("$GENERATE 2-2 @ LOC \"$ N ${1} E 0m\"", "@ LOC 2 N 3 E 0m");
    makes(
        "$GENERATE 2-2 t TYPE65280 \"\\# 1 0$\"",
        "t TYPE65280 \\# 1 02",
    );
    // As in BIND, a directive changes the last TTL but not the last owner.
    makes(
        "x TXT y\n$GENERATE 1-2 a$ A 192.0.2.$\n  TXT z",
        "x TXT y\nx TXT z\na1 A 192.0.2.1\na2 A 192.0.2.2",
    );
    let loaded = load_text(
        "f",
        Some("example.org"),
        "@ 60 SOA ns h 1 2 3 4 5\n@ NS ns\n$GENERATE 1-1 a$ 30 A 192.0.2.$\n  TXT z\nb TXT z\n",
    );
    let zone = loaded.unwrap_or_else(|report| panic!("{report}")).zone;
    let ttl = |name: NameRef<'_>| name.rrset(rtype::TXT).map(RrsetRef::ttl);
    let ttls: Vec<_> = zone.names().map(ttl).collect();
    assert_eq!(ttls, [Some(30), None, Some(30)]);
    finds("$GENERATE 1-1 a$ A 192.0.2.1\n\tTXT x\n", &[]);
    let first = "$GENERATE 1-1 a$ 60 A 192.0.2.1\n  TXT x\n";
    let report = load_text("f", Some("example.org"), first).unwrap_err();
    let expected = "f:2:3: the record has no owner, and no earlier record has one: \"TXT x\"";
    assert_eq!(report.to_string(), expected);
}

/// These are the results of `named-compilezone` of BIND 9.18.
#[test]
fn numbers_have_offsets_widths_and_bases() {
    for (number, expected) in [
        ("$", "171"),
        ("${0}", "171"),
        ("${3,2}", "174"),
        ("${-1,5}", "00170"),
        ("${0,4,d}", "0171"),
        ("${0,0,o}", "253"),
        ("${0,2,x}", "ab"),
        ("${1,5,X}", "000AC"),
        ("${0,0,n}", "b.a"),
        ("${0,2,n}", "b.a"),
        ("${0,3,n}", "b.a"),
        ("${0,4,n}", "b.a."),
        ("${0,5,N}", "B.A.0"),
        ("${0,8,N}", "B.A.0.0."),
    ] {
        makes(
            &format!("$GENERATE 171-171 a{number}z CNAME ."),
            &format!("a{expected}z CNAME ."),
        );
    }
    makes("$GENERATE 5-5 \\$$$x$ CNAME .", "\\$\\$x5 CNAME .");
    makes("$GENERATE 5-5 a\\.$ CNAME \\\\$", "a\\.5 CNAME \\\\5");
}

#[test]
fn errors_in_directives_say_what_to_write() {
    let start = "$TTL 60\n";
    for (directive, expected) in [
        (
            "",
            "f:5: $GENERATE lacks words; write $GENERATE 1-100 OWNER TYPE DATA, with $ for the",
        ),
        ("1-2 a", "f:5: $GENERATE lacks words; "),
        (
            "1 a A 192.0.2.$",
            "f:5: a range is START-STOP or START-STOP/STEP: numbers up to 2147483647",
        ),
        ("2-1 a A 192.0.2.$", "f:5: a range is "),
        ("1-2/0 a A 192.0.2.$", "f:5: a range is "),
        ("0-2147483648 a A 192.0.2.$", "f:5: a range is "),
        ("1-+2 a A 192.0.2.$", "f:5: a range is "),
        (
            "0-65536 a$ CNAME .",
            "f:5: $GENERATE makes at most 65536 records; divide its range",
        ),
        (
            "1-2 a${ A 192.0.2.$",
            "f:5: write ${OFFSET,WIDTH,BASE}, with a width up to 255 and the base",
        ),
        ("1-2 a${0,256} A 192.0.2.$", "f:5: write ${OFFSET"),
        ("1-2 a${0,2,q} A 192.0.2.$", "f:5: write ${OFFSET"),
        ("1-2 a${0,2,d,d} A 192.0.2.$", "f:5: write ${OFFSET"),
        (
            "1-2 a${-2} A 192.0.2.$",
            "f:5: an offset makes the number -1; numbers must be 0 to",
        ),
        (
            "255-256 a$ A 192.0.2.$",
            "f:5: ADDRESS must be an IPv4 address such as 192.0.2.1; write A ADDRESS: \"a256 A 192.0.2.256\"",
        ),
        ("1-9 a$ NOTYPE x", "f:5: NOTYPE is not a known record type"),
        (
            "1-9 a$ TXT \"x \\\"$\"",
            "f:5: a quoted string is not closed",
        ),
    ] {
        let text = format!("{start}$GENERATE {directive}\n");
        finds(&text, &[expected]);
    }
    // After an error, the other records of a directive are not made, but they count.
    let many = "$GENERATE 0-65535 a$ A x\n".repeat(17);
    let zone = format!("{START}{start}{many}");
    let report = load_text("f", Some("example.org"), &zone).unwrap_err();
    let findings = report.findings();
    assert_eq!(findings.len(), 17);
    let expected = "f:21:11: the $GENERATE directives of a zone make at most 1048576 records";
    assert_eq!(findings[16].to_string(), expected);
    // Only the first record causes a warning about a missing TTL.
    let zone = "@ SOA ns h 1 2 3 4 5\n@ NS ns1\n$GENERATE 1-3 ns$ A 192.0.2.$\n";
    let report = load_text("f", Some("example.org"), zone).unwrap().report;
    let lines: Vec<_> = report.findings().iter().map(|found| found.line).collect();
    assert_eq!(lines, [1, 2, 3], "{report}");
}

#[test]
fn duplicates_of_one_directive_are_counted() {
    finds(
        "a 60 A 192.0.2.1\na 60 A 192.0.2.1\n$GENERATE 0-999 a 60 A 192.0.2.1\n$TTL 60\n",
        &[
            "f:5: warning: duplicate record: dropped",
            "f:6: warning: 1000 duplicate records: dropped",
        ],
    );
}
