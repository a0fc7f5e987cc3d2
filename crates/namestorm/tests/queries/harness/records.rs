//! Zones as lists of records, for tests with random zones.

use std::fmt::Write as _;

use testkit::dnssec::Record;

/// The name of all zones.
pub(crate) const APEX: &str = "z.";

/// A zone with few distinct names, so that random records often affect each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records(pub(crate) Vec<Record>);

/// Returns `name` and its ancestors, from the apex down. Returns nothing for a name outside the
/// zone.
pub(crate) fn path(name: &str) -> Vec<String> {
    let Some(below) = name.strip_suffix(APEX) else {
        return Vec::new();
    };
    let labels: Vec<_> = below.split('.').filter(|label| !label.is_empty()).collect();
    (0..=labels.len())
        .rev()
        .map(|from| {
            let mut name = String::new();
            for label in &labels[from..] {
                name += label;
                name.push('.');
            }
            name + APEX
        })
        .collect()
}

impl Records {
    /// Returns a zone with an SOA record and a name server.
    pub(crate) fn new() -> Self {
        let mut zone = Self::default();
        zone.add(APEX, "SOA", "ns.z. h.z. 1 2 3 4 9".into());
        zone.add(APEX, "NS", "ns.y.".into());
        zone
    }

    pub(crate) fn at<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Record> {
        self.0.iter().filter(move |record| record.0 == name)
    }

    pub(crate) fn get<'a>(
        &'a self,
        name: &'a str,
        rtype: &'a str,
    ) -> impl Iterator<Item = &'a Record> {
        self.at(name).filter(move |record| record.1 == rtype)
    }

    pub(crate) fn has(&self, name: &str, rtype: &str) -> bool {
        self.get(name, rtype).next().is_some()
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        let below = format!(".{name}");
        let mut owners = self.0.iter().map(|record| &record.0);
        owners.any(|owner| owner == name || owner.ends_with(&below))
    }

    /// Adds a record, unless the record would make the zone invalid.
    pub(crate) fn add(&mut self, owner: &str, rtype: &'static str, data: String) {
        let wildcard = owner.starts_with("*.");
        let refused = match rtype {
            "CNAME" => owner == APEX || self.at(owner).next().is_some(),
            "NS" | "DNAME" if wildcard => true,
            "DNAME" => {
                let below = format!(".{owner}");
                self.has(owner, "DNAME") || self.0.iter().any(|r| r.0.ends_with(&below))
            }
            _ => false,
        };
        let above = path(owner);
        let (_, above) = above.split_last().unwrap();
        let hidden = above.iter().any(|name| self.has(name, "DNAME"));
        let record = (owner.to_owned(), rtype, data);
        if !refused && !hidden && !self.has(owner, "CNAME") && !self.0.contains(&record) {
            self.0.push(record);
        }
    }

    pub(crate) fn text(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, record| {
            writeln!(text, "{}", show(&record.0, record)).unwrap();
            text
        })
    }
}

/// Returns a record as a line of a zone file.
pub(crate) fn show(owner: &str, record: &Record) -> String {
    format!("{owner} 9 IN {} {}", record.1, record.2)
}

/// Returns the data of a record: an address or a text with this number, or else `target`.
pub(crate) fn data(rtype: &str, number: u8, target: String) -> String {
    match rtype {
        "A" => format!("192.0.2.{number}"),
        "TXT" => format!("\"{number}\""),
        _ => target,
    }
}
