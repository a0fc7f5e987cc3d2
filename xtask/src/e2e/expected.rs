//! The table of what the sample zones must answer; its format stands at the
//! head of `xtask/sample/zones/storm.test.expected`.

use std::path::Path;

use crate::shell::{Context as _, Failure, Result};

/// One question and its right answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) rcode: String,
    pub(crate) authoritative: bool,
    /// Records of the answer section, as dig prints them, without the class.
    pub(crate) answer: Vec<String>,
    /// Records of the authority section; none: the zone's name servers or
    /// nothing.
    pub(crate) authority: Vec<String>,
    /// Records that the additional section must hold.
    pub(crate) additional: Vec<String>,
}

pub(crate) fn read(path: &Path) -> Result<Vec<Entry>> {
    let text = std::fs::read_to_string(path).context(format_args!("reading {}", path.display()))?;
    parse(&text).context(path.display())
}

fn parse(text: &str) -> Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let Some(sign) = line.chars().next().filter(|&sign| sign != '#') else {
            continue;
        };
        let rest = line[sign.len_utf8()..].trim();
        let wrong = || Failure::new(format!("line {}: {line}", number + 1));
        if sign == '?' {
            let (name, kind) = rest.split_once(' ').ok_or_else(wrong)?;
            let entry = Entry {
                name: name.to_owned(),
                kind: kind.trim().to_owned(),
                ..Entry::default()
            };
            entries.push(entry);
            continue;
        }
        let entry = entries.last_mut().ok_or_else(wrong)?;
        match sign {
            '=' => {
                let mut words = rest.split(' ');
                words.next().ok_or_else(wrong)?.clone_into(&mut entry.rcode);
                entry.authoritative = words.next() == Some("aa");
            }
            '!' => entry.authority.push(record(rest)),
            '+' => entry.additional.push(record(rest)),
            _ => entry.answer.push(record(line)),
        }
    }
    Ok(entries)
}

/// A record with one space between its words.
pub(crate) fn record(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn signs_tell_the_sections() {
        let text = "# a table\n\n? a.test. A\n= NOERROR aa\n  a.test.  60 A 192.0.2.1\n\
                    ! test. 60 NS ns.test.\n+ ns.test. 60 A 192.0.2.2\n";
        let entries = parse(text).unwrap();
        let expected = Entry {
            name: "a.test.".into(),
            kind: "A".into(),
            rcode: "NOERROR".into(),
            authoritative: true,
            answer: vec!["a.test. 60 A 192.0.2.1".into()],
            authority: vec!["test. 60 NS ns.test.".into()],
            additional: vec!["ns.test. 60 A 192.0.2.2".into()],
        };
        assert_eq!(entries, [expected]);
        assert!(parse("= NOERROR\n").is_err());
    }

    /// Every name and type of the sample zones is asked for. The zones are
    /// written one record a line, so that no zone parser is needed here.
    #[test]
    fn the_table_asks_for_every_record_of_the_zones() {
        let zones = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample/zones");
        let asked: BTreeSet<(String, String)> = read(&zones.join("storm.test.expected"))
            .unwrap()
            .into_iter()
            .map(|entry| (entry.name.to_lowercase(), entry.kind))
            .collect();
        let mut records = 0;
        for origin in ["storm.test", "2.0.192.in-addr.arpa"] {
            let zone = std::fs::read_to_string(zones.join(format!("{origin}.zone"))).unwrap();
            for line in zone
                .lines()
                .filter(|line| !line.starts_with([';', '$']) && !line.is_empty())
            {
                let words: Vec<&str> = line.split_whitespace().collect();
                let class = words.iter().position(|&word| word == "IN").unwrap();
                let owner = if words[0] == "@" {
                    String::new()
                } else {
                    format!("{}.", words[0])
                };
                let name = format!("{owner}{origin}.").to_lowercase();
                let question = (name, words[class + 1].to_owned());
                assert!(asked.contains(&question), "{question:?} is not asked for");
                records += 1;
            }
        }
        assert_eq!(
            records, 73,
            "the zones have changed: look at the table as well"
        );
    }
}
