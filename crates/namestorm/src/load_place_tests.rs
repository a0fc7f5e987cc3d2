//! Tests that each error names its line and column.

use super::load_text;
use super::tests::START;

/// Checks that the first finding about a text after [`START`], which has three lines, begins with
/// `expected`.
#[track_caller]
fn begins(text: &str, expected: &str) {
    let text = format!("{START}{text}\n");
    let report = match load_text("f", Some("example.org"), &text) {
        Ok(loaded) => loaded.report,
        Err(report) => report,
    };
    let found = report.to_string();
    assert!(
        found.starts_with(expected),
        "{text}: {found}, not {expected}"
    );
}

#[test]
fn quotes_and_parentheses_have_columns() {
    begins("w 60 TXT a \"b", "f:4:12: a quoted string is not closed; ");
    begins(
        "w 60 TXT (\n a \"b",
        "f:5:4: a quoted string is not closed; ",
    );
    begins(
        "w 60 TXT ( a\n( b )\n",
        "f:4:10: a parenthesis is not closed; ",
    );
    begins(
        "w 60 TXT a )",
        "f:4:12: a closing parenthesis has no opening one; ",
    );
    begins(
        "w 60 TXT ( a\n ; )\n ) )",
        "f:6:4: a closing parenthesis has no ",
    );
}

#[test]
fn data_has_columns() {
    for (text, column) in [
        ("w 60 A \\# 3 c00002", 8),
        ("w 60 MX \\# 4 000a c00c", 9),
        ("w2 60 TXT\t\\# 2 0561", 11),
        ("w 60 DS 1 13 2 00", 16),
        (" 60 IN TLSA 3 1 1 00", 19),
        ("w 60 SSHFP 1 2 00", 16),
        ("w 60 CAA 0 is-sue x", 12),
        ("w 60 GPOS 10 200 10", 14),
        ("@ 60 ZONEMD 1 1 1 00", 19),
    ] {
        let expected = format!("f:4:{column}: the data is not valid for type ");
        begins(text, &expected);
    }
    begins(
        "w 60 DS ( 1 13 2\n 00 )",
        "f:5:2: the data is not valid for type DS: DIGEST",
    );
    begins(
        "w 60 NS a..b",
        "f:4:9: SERVER-NAME must be a domain name with ",
    );
    begins("w 60 AFSDB 1", "f:4:12: fields are missing at the end; ");
}

#[test]
fn owners_have_columns() {
    begins("a..b 60 A 192.0.2.1", "f:4:1: a name has an empty label; ");
    let long = format!("{}.b 60 A 192.0.2.1", "x".repeat(64));
    begins(
        &long,
        "f:4:1: a label has 64 bytes, but at most 63 are allowed",
    );
    let label = "x".repeat(60) + ".";
    let long = label.repeat(4) + " 60 A 192.0.2.1";
    begins(&long, "f:4:1: x");
    begins(
        &format!("{}xxxxxxx 60 A 192.0.2.1", label.repeat(4)),
        "f:4:1: the name with its origin has more than 255",
    );
    begins(
        "a.b. 60 A 192.0.2.1\n",
        "f:4:1: a.b. does not lie in the zone example.org.",
    );
    begins(
        "c 60 CNAME d\n  60 A 192.0.2.1",
        "f:5:3: c.example.org. has a CNAME record, so it cannot have A",
    );
    begins(
        "c 60 CNAME d\n 60 CNAME e",
        "f:5:2: c.example.org. has a second CNAME record",
    );
    begins(
        "c 60 DNAME d\nc 60 DNAME e",
        "f:5:1: c.example.org. has a second DNAME record",
    );
    begins(
        "c 60 DNAME d\nx.c 60 A 192.0.2.1",
        "f:5:1: x.c.example.org. lies below a DNAME record",
    );
}

#[test]
fn directives_have_columns() {
    for (rest, column) in [
        ("", 1),
        ("2-1 a A 192.0.2.$", 11),
        ("1-70000 a A 192.0.2.$", 11),
        ("1-2 a$ A ${0,300}", 20),
        ("1-2 a${-2} A 192.0.2.1", 15),
        ("1-2 a$ A 192.0.2", 15),
        ("1-2 a..b$ A 192.0.2.1", 15),
        ("1-2 a$ DS 1 13 2 00", 15),
    ] {
        begins(&format!("$GENERATE {rest}"), &format!("f:4:{column}: "));
    }
    begins("$INCLUDE missing sub", "f:4:10: cannot read missing: ");
    begins("$INCLUDE", "f:4:1: $INCLUDE has no file; ");
}

#[test]
fn faults_of_the_zone_have_the_place_of_a_record() {
    let digest = "00".repeat(48);
    let zonemd = format!("@ 60 ZONEMD 1 1 1 {digest}");
    begins(
        &zonemd,
        "f:4:1: the records of example.org. are not those of its ZONEMD record",
    );
    begins(
        "@ 60 NSEC x A",
        "f:4:1: example.org. has NSEC records, but ",
    );
    let signature = "RRSIG SOA 13 2 60 20400101000000 20200101000000 1 @ AQID";
    begins(
        &format!("@ 60 {signature}"),
        "f:1:1: example.org. is signed, but it has neither NSEC nor",
    );
}
