//! Signs zones for tests. A signature is the text of the owner and the type that it covers, so that a
//! test can check it without cryptography. It is as long as one of ECDSA P-256.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use data_encoding::{BASE32HEX_NOPAD, BASE64};
use sha1::{Digest as _, Sha1};

/// Length of a signature, in bytes.
const SIGNATURE: usize = 64;
/// The salt of the names that are hashed twice.
const SALT: u8 = 0xab;

/// A record: owner, type, and data as text. Owners are in lower case, with their final dot.
pub type Record = (String, &'static str, String);

/// How a zone proves what does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// With NSEC records (RFC 4034).
    Nsec,
    /// With NSEC3 records (RFC 5155) without salt or additional iterations (RFC 9276).
    Nsec3,
    /// With NSEC3 records that leave out delegations without DS records. They have a salt and one
    /// additional iteration.
    OptOut,
}

impl Denial {
    /// Returns the iterations and the salt, as in a zone file.
    fn params(self) -> &'static str {
        if self == Self::OptOut { "1 ab" } else { "0 -" }
    }

    /// Returns the hash of a name in base 32, as in the owner of an NSEC3 record.
    pub fn hashed(self, name: &str) -> String {
        let mut wire = Vec::new();
        for label in labels(name).into_iter().rev() {
            wire.push(label.len() as u8);
            wire.extend(label.bytes());
        }
        wire.push(0);
        let hash = if self == Self::OptOut {
            wire.push(SALT);
            let first = Sha1::digest(wire);
            Sha1::new()
                .chain_update(first)
                .chain_update([SALT])
                .finalize()
        } else {
            Sha1::digest(wire)
        };
        BASE32HEX_NOPAD.encode(&hash).to_lowercase()
    }
}

/// Returns the labels of a name, from the top.
pub fn labels(name: &str) -> Vec<&str> {
    let labels = name.split('.').filter(|label| !label.is_empty());
    labels.rev().collect()
}

/// Returns the owner and type that a signature covers.
pub fn covered(signature: &str) -> Option<String> {
    let bytes = BASE64.decode(signature.as_bytes()).ok()?;
    Some(String::from_utf8(bytes).ok()?.trim_end().to_owned())
}

/// The types at each name of a zone.
struct Zone<'a> {
    apex: &'a str,
    types: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

impl<'a> Zone<'a> {
    fn has(&self, name: &str, rtype: &str) -> bool {
        self.types
            .get(name)
            .is_some_and(|types| types.contains(rtype))
    }

    fn is_cut(&self, name: &str) -> bool {
        name != self.apex && self.has(name, "NS")
    }

    /// Returns the names above `name`, up to the apex.
    fn above(&self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let apex_len = self.apex.len();
        let parent = move |name: &&'a str| name.split_once('.').map(|(_, parent)| parent);
        std::iter::successors(parent(&name), parent).take_while(move |name| name.len() >= apex_len)
    }

    /// Returns the names that are not below a zone cut, in canonical order.
    fn owners(&self) -> Vec<&'a str> {
        let is_shown = |name: &&'a str| !self.above(name).any(|above| self.is_cut(above));
        let mut owners: Vec<_> = self.types.keys().copied().filter(is_shown).collect();
        owners.sort_by_cached_key(|name| labels(name).join("\0"));
        owners
    }

    /// Returns the types that the zone has at a name. At a cut, these are NS and DS.
    fn types_at(&self, name: &str) -> Vec<&'a str> {
        let types = self.types.get(name).into_iter().flatten().copied();
        let is_cut = self.is_cut(name);
        types
            .filter(|it| !is_cut || ["NS", "DS"].contains(it))
            .collect()
    }

    /// Returns the types at a name that have a signature.
    fn signed_at(&self, name: &str) -> Vec<&'a str> {
        let is_cut = self.is_cut(name);
        let types = self.types_at(name).into_iter();
        types.filter(|it| !is_cut || *it == "DS").collect()
    }

    fn signature(&self, owner: &str, rtype: &str, ttl: u32) -> String {
        let labels = labels(owner).len() - usize::from(owner.starts_with("*."));
        let text = format!("{:SIGNATURE$}", format!("{owner} {rtype}"));
        let text = BASE64.encode(text.as_bytes());
        let apex = self.apex;
        format!(
            "{owner} {ttl} IN RRSIG {rtype} 13 {labels} {ttl} 20400101000000 20200101000000 1 {apex} \
             {text}\n"
        )
    }
}

/// Returns the text of a zone file with these records, their signatures and the proofs of the zone.
pub fn sign(apex: &str, ttl: u32, records: &[Record], denial: Denial) -> String {
    let mut zone = Zone {
        apex,
        types: BTreeMap::new(),
    };
    let mut text = String::new();
    let params = format!("1 0 {}", denial.params());
    let params = (apex.to_owned(), "NSEC3PARAM", params);
    let params = (denial != Denial::Nsec).then_some(&params);
    for (owner, rtype, data) in records.iter().chain(params) {
        writeln!(text, "{owner} {ttl} IN {rtype} {data}").unwrap();
        zone.types.entry(owner).or_default().insert(rtype);
    }
    let owners = zone.owners();
    for owner in &owners {
        for rtype in zone.signed_at(owner) {
            text += &zone.signature(owner, rtype, ttl);
        }
    }
    match denial {
        Denial::Nsec => nsec(&zone, &owners, ttl, &mut text),
        Denial::Nsec3 | Denial::OptOut => nsec3(&zone, &owners, ttl, denial, &mut text),
    }
    text
}

/// Returns the text of a signed zone with names of all kinds, which is large enough for a server to
/// prefetch its answers.
pub fn large_zone(apex: &str, denial: Denial) -> String {
    let mut records = Vec::new();
    let mut add = |labels: &str, rtype, data: &str| {
        records.push((format!("{labels}{apex}"), rtype, data.to_owned()));
    };
    add("", "SOA", "ns host 1 7200 3600 1209600 300");
    add("", "NS", "ns");
    add("ns.", "A", "192.0.2.1");
    add("*.wild.", "A", "192.0.2.2");
    add("a.b.wild.", "TXT", "x");
    add("old.", "DNAME", "wild");
    add("older.", "DNAME", apex);
    add("alias.", "CNAME", "host7.wild");
    for n in 0..2_400 {
        add(&format!("host{n}."), "A", "192.0.2.3");
        add(&format!("alias{n}."), "CNAME", &format!("host{n}.older"));
        if n % 3 == 0 {
            add(&format!("child{n}."), "NS", "ns.example.net.");
        }
        if n % 6 == 0 {
            let digest = "5a".repeat(32);
            add(&format!("child{n}."), "DS", &format!("1 13 2 {digest}"));
        }
        if n % 50 == 0 {
            add(&format!("deep.of{n}.tree."), "A", "192.0.2.4");
            add(&format!("loop{n}."), "CNAME", &format!("loop{n}.older"));
        }
    }
    sign(apex, 300, &records, denial)
}

fn nsec(zone: &Zone<'_>, owners: &[&str], ttl: u32, text: &mut String) {
    for (at, owner) in owners.iter().enumerate() {
        let next = owners[(at + 1) % owners.len()];
        let types = zone.types_at(owner).join(" ");
        writeln!(text, "{owner} {ttl} IN NSEC {next} {types} RRSIG NSEC").unwrap();
        *text += &zone.signature(owner, "NSEC", ttl);
    }
}

fn nsec3(zone: &Zone<'_>, owners: &[&str], ttl: u32, denial: Denial, text: &mut String) {
    let opt_out = denial == Denial::OptOut;
    let is_left_out = |name: &str| opt_out && zone.is_cut(name) && !zone.has(name, "DS");
    let mut chain = BTreeMap::new();
    for owner in owners.iter().filter(|owner| !is_left_out(owner)) {
        let names = std::iter::once(*owner).chain(zone.above(owner));
        chain.extend(names.map(|name| (denial.hashed(name), name)));
    }
    let hashes: Vec<_> = chain.keys().collect();
    for (at, (hash, name)) in chain.iter().enumerate() {
        let next = hashes[(at + 1) % hashes.len()];
        let mut types = zone.types_at(name);
        types.extend((!zone.signed_at(name).is_empty()).then_some("RRSIG"));
        let (types, flags, params) = (types.join(" "), u8::from(opt_out), denial.params());
        let owner = format!("{hash}.{}", zone.apex);
        writeln!(
            text,
            "{owner} {ttl} IN NSEC3 1 {flags} {params} {next} {types}"
        )
        .unwrap();
        *text += &zone.signature(&owner, "NSEC3", ttl);
    }
}
