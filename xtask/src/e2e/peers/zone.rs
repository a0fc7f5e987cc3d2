//! Random zones, and random questions about them.

use std::fmt::Write as _;

use fastrand::Rng;

/// Labels of names. There are few of them, so that names often match, or nearly match.
const LABELS: [&str; 9] = ["a", "b", "c", "www", "*", "*", "_x", "0-1", "m\\.n"];
/// Maximum number of labels below the apex.
const DEPTH: usize = 3;
/// Number of attempts to add records. Some fail, because a name cannot have both.
const ATTEMPTS: usize = 60;
/// Kinds of records that are added. Frequent ones occur several times.
const KINDS: [&str; 28] = [
    "A",
    "A",
    "A",
    "AAAA",
    "AAAA",
    "TXT",
    "TXT",
    "MX",
    "MX",
    "SRV",
    "SRV",
    "CAA",
    "TLSA",
    "SSHFP",
    "NAPTR",
    "HTTPS",
    "LOC",
    "PTR",
    "HINFO",
    "TYPE65280",
    "CNAME",
    "CNAME",
    "CNAME",
    "DNAME",
    "DNAME",
    "NS",
    "NS",
    "NS",
];
/// Types of questions, besides those of [`KINDS`].
const OTHER_TYPES: [&str; 12] = [
    "DS",
    "DS",
    "DNAME",
    "SOA",
    "DNSKEY",
    "NSEC",
    "NSEC3",
    "NSEC3PARAM",
    "RRSIG",
    "ANY",
    "ANY",
    "TYPE65281",
];
/// The digest of all DS records.
const DIGEST: &str = "00112233445566778899AABBCCDDEEFF00112233445566778899AABBCCDDEEFF";

/// A zone. Each record has an owner, a type and data.
pub(crate) struct Zone {
    /// The name of the zone, without its final dot.
    pub(crate) apex: String,
    records: Vec<(String, &'static str, String)>,
}

impl Zone {
    /// Makes a random zone.
    pub(crate) fn random(apex: &str, rng: &mut Rng) -> Self {
        let records = Vec::new();
        let apex = apex.to_owned();
        let mut zone = Self { apex, records };
        let host = zone.apex.clone();
        zone.put(
            &host,
            "SOA",
            format!("ns.{host}. h.{host}. 1 7200 3600 1209600 300"),
        );
        zone.put(&host, "NS", format!("ns.{host}."));
        zone.put(&host, "NS", "ns.example.".to_owned());
        zone.put(&format!("ns.{host}"), "A", "192.0.2.53".to_owned());
        for _ in 0..ATTEMPTS {
            let (owner, kind) = (zone.name(rng), KINDS[rng.usize(..KINDS.len())]);
            zone.add(&owner, kind, rng);
        }
        zone
    }

    fn put(&mut self, owner: &str, rtype: &'static str, data: String) {
        let record = (owner.to_owned(), rtype, data);
        if !self.records.contains(&record) {
            self.records.push(record);
        }
    }

    fn has(&self, owner: &str, rtype: &str) -> bool {
        let mut records = self.records.iter();
        records.any(|record| record.0 == owner && record.1 == rtype)
    }

    /// Adds a record, unless its zone would then be faulty.
    fn add(&mut self, owner: &str, kind: &'static str, rng: &mut Rng) {
        let is_here = |record: &&(String, &str, String)| record.0 == owner;
        let at_owner = self.records.iter().filter(is_here).count();
        let below = format!(".{owner}");
        let has_below = self.records.iter().any(|record| record.0.ends_with(&below));
        let above = || std::iter::successors(parent(owner), |name| parent(name));
        let is_hidden = above()
            .any(|name| self.has(name, "DNAME") || name != self.apex && self.has(name, "NS"));
        let is_wildcard = owner.starts_with('*');
        let refused = match kind {
            "CNAME" => at_owner > 0,
            "DNAME" => is_wildcard || has_below || self.has(owner, "DNAME") || owner == self.apex,
            "NS" => is_wildcard || at_owner > 0 || has_below,
            _ => owner != self.apex && self.has(owner, "NS"),
        };
        if refused || is_hidden || self.has(owner, "CNAME") {
            return;
        }
        if kind == "NS" {
            return self.delegate(owner, rng);
        }
        for _ in 0..if ["CNAME", "DNAME"].contains(&kind) {
            1
        } else {
            rng.usize(1..3)
        } {
            let data = self.data(kind, rng);
            self.put(owner, kind, data);
        }
    }

    /// Adds a delegation, perhaps with DS records and glue.
    fn delegate(&mut self, owner: &str, rng: &mut Rng) {
        let server = format!("ns.{owner}");
        for target in [&server, &self.name(rng)].into_iter().take(rng.usize(1..3)) {
            self.put(owner, "NS", format!("{target}."));
        }
        self.put(&server, "A", format!("192.0.2.{}", rng.u8(..4)));
        if rng.bool() {
            self.put(&server, "AAAA", format!("2001:db8::{}", rng.u8(1..4)));
        }
        if rng.bool() {
            self.put(owner, "DS", format!("{} 13 2 {DIGEST}", rng.u8(1..4)));
        }
    }

    fn data(&self, kind: &str, rng: &mut Rng) -> String {
        let (number, target) = (rng.u8(1..5), self.target(rng));
        match kind {
            "A" => format!("192.0.2.{number}"),
            "AAAA" => format!("2001:db8::{number}"),
            // Two texts of this kind exceed a message over UDP.
            "TXT" if number == 1 => format!("\"{}\" ", "long ".repeat(50)).repeat(rng.usize(2..7)),
            "TXT" => format!("\"{number}\""),
            "MX" => format!("{number} {target}"),
            "SRV" => format!("{number} 0 80 {target}"),
            "CAA" => format!("0 issue \"ca{number}.test\""),
            "TLSA" => format!("3 1 {} {DIGEST}", number % 2 + 1).replace(" 2 ", " 0 "),
            "SSHFP" => format!("{number} 2 {DIGEST}"),
            "NAPTR" => format!("{number} 1 \"s\" \"x\" \"\" {target}"),
            "HTTPS" => format!("{number} . alpn=h2"),
            "LOC" => format!("{number} N 4 E 10m"),
            "HINFO" => format!("\"c{number}\" \"o\""),
            "TYPE65280" => format!("\\# 2 ab{number:02x}"),
            _ => target,
        }
    }

    /// Returns a random name at or below the apex.
    fn name(&self, rng: &mut Rng) -> String {
        let depth = rng.usize(..=DEPTH);
        let labels = std::iter::repeat_with(|| LABELS[rng.usize(..LABELS.len())]);
        let labels: Vec<_> = labels.take(depth).chain([self.apex.as_str()]).collect();
        labels.join(".")
    }

    /// Returns the target of an alias or of another record, with its final dot. Half of them are names
    /// of the zone.
    fn target(&self, rng: &mut Rng) -> String {
        match rng.u8(..20) {
            0 => "www.example.".to_owned(),
            1..10 => self.owner(rng).to_owned() + ".",
            _ => self.name(rng) + ".",
        }
    }

    fn owner(&self, rng: &mut Rng) -> &str {
        &self.records[rng.usize(..self.records.len())].0
    }

    /// Returns the text of the zone's file.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (owner, rtype, data) in &self.records {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{owner}. 3600 IN {rtype} {data}");
        }
        text
    }

    /// Returns a random question, as its name with the final dot and its type. Many names are near to
    /// those of the zone.
    pub(crate) fn question(&self, rng: &mut Rng) -> (String, &'static str) {
        let owner = self.owner(rng);
        let label = LABELS[rng.usize(..LABELS.len())];
        let near = owner.split_once('.').map_or(owner, |(_, rest)| rest);
        let name = match rng.u8(..16) {
            0 => self.apex.clone(),
            1..4 => format!("{label}.{owner}"),
            4 => format!("{label}.b.{owner}"),
            5 if near.len() > self.apex.len() => near.to_owned(),
            6 if owner != self.apex => format!("{label}.{near}"),
            7 => owner.to_uppercase(),
            8 => self.name(rng),
            9 => format!("{}.{owner}", "l".repeat(63)),
            10 => format!("\\000{label}.{owner}"),
            _ => owner.replace('*', "star"),
        };
        let of_owner: Vec<_> = self
            .records
            .iter()
            .filter(|record| record.0 == owner)
            .collect();
        let rtype = match rng.u8(..4) {
            0 | 1 => of_owner[rng.usize(..of_owner.len())].1,
            2 => KINDS[rng.usize(..KINDS.len())],
            _ => OTHER_TYPES[rng.usize(..OTHER_TYPES.len())],
        };
        (name + ".", rtype)
    }
}

/// Returns the name without its first label. Labels of these zones have no other escapes than `\.`.
fn parent(name: &str) -> Option<&str> {
    let mut dots = name.match_indices('.').map(|(at, _)| at);
    let end = dots.find(|at| !name[..*at].ends_with('\\'))?;
    Some(&name[end + 1..])
}
