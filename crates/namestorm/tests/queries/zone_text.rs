//! Tests that data of each type is read as its RFC says, and that errors in it are explained.
//!
//! The cases are in `zone_text/`: a line of text, and below it what becomes of it.

use std::fmt::Write as _;

use namestorm::load_text;

const ORIGIN: &str = "example.org";
/// A zone to which a case adds a record on line 3.
const START: &str = "@ 60 SOA a b 1 2 3 4 5\n@ 60 NS x.\n";

/// Returns the cases of a file: the number of a line, the line, and the line below it without its
/// first character and the blank.
fn cases(text: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    let is_case = |(_, line): &(usize, &str)| !line.is_empty() && !line.starts_with('#');
    let mut lines = text.lines().enumerate().filter(is_case);
    std::iter::from_fn(move || {
        let (at, line) = lines.next()?;
        let expected = lines.next().expect("a line with the result").1;
        Some((at + 1, line, expected[1..].trim()))
    })
}

/// Reads one record. Returns its data in hexadecimal, or the report.
fn read(data: &str) -> Result<String, String> {
    let is_soa = data.starts_with("SOA");
    let zone = if is_soa {
        format!("@ 60 {data}\n@ 60 NS x.\n")
    } else {
        format!("{START}w 60 {data}\n")
    };
    let loaded = load_text("f", Some(ORIGIN), &zone).map_err(|report| report.to_string())?;
    let mut names = loaded.zone.names();
    let name = names.nth(usize::from(!is_soa)).expect("the record's name");
    let sets: Vec<_> = name.rrsets().collect();
    let set = sets.iter().find(|set| !is_soa || set.rtype() == 6);
    let data = set.and_then(|set| set.data().next()).expect("the record");
    Ok(data.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    }))
}

#[test]
fn each_type_has_its_wire_format() {
    for (line, text, expected) in cases(include_str!("zone_text/types.txt")) {
        let found = read(text);
        assert_eq!(found.as_deref(), Ok(expected), "line {line}: {text}");
        // The generic form of the same data is read, too.
        let rtype = text.split(' ').next().unwrap_or_default();
        let generic = format!("{rtype} \\# {} {expected}", expected.len() / 2);
        assert_eq!(read(&generic), found, "line {line}: {generic}");
    }
}

#[test]
fn each_error_is_explained_at_its_place() {
    for (line, text, expected) in cases(include_str!("zone_text/errors.txt")) {
        assert_eq!(read(text), Err(expected.into()), "line {line}: {text}");
    }
}
