//! Verifies the digest of a zone that its publisher has put into the zone (ZONEMD, RFC 8976).

use sha2::{Digest, Sha384, Sha512};

use crate::name::{self, Shown};
use crate::rdata;
use crate::report::Report;
use crate::rtype::{RRSIG, SOA, ZONEMD};
use crate::zone::{NameRef, RrsetRef, Zone};

/// The scheme that digests all records of a zone (RFC 8976, section 5.2).
const SIMPLE: u8 = 1;
/// Hash algorithms (RFC 8976, section 5.3).
const SHA384: u8 = 1;
const SHA512: u8 = 2;
/// The class IN (RFC 1035, section 3.2.4).
const IN: u16 = 1;

/// The fields of a ZONEMD record (RFC 8976, section 2.2).
#[derive(Clone, Copy, PartialEq, Eq)]
struct Fields<'z> {
    serial: [u8; 4],
    scheme: u8,
    algorithm: u8,
    digest: &'z [u8],
}

impl<'z> Fields<'z> {
    fn parse(data: &'z [u8]) -> Option<Self> {
        let (&serial, rest) = data.split_first_chunk()?;
        let (&[scheme, algorithm], digest) = rest.split_first_chunk()?;
        Some(Self {
            serial,
            scheme,
            algorithm,
            digest,
        })
    }

    fn is_same_kind(&self, other: &Self) -> bool {
        (self.scheme, self.algorithm) == (other.scheme, other.algorithm)
    }
}

/// Verifies the digests of a zone. One right digest is enough. Reports an error if all that can be
/// verified are wrong, and a warning if none can be verified (RFC 8976, section 4).
pub(super) fn check(zone: &Zone, report: &mut Report) {
    let Some(apex) = zone.apex_name() else {
        return;
    };
    let Some(rrset) = apex.rrset(ZONEMD) else {
        return;
    };
    let records: Vec<_> = rrset.data().filter_map(Fields::parse).collect();
    let is_single =
        |one: &&Fields<'_>| records.iter().filter(|it| it.is_same_kind(one)).count() == 1;
    let is_known =
        |one: &&Fields<'_>| one.scheme == SIMPLE && [SHA384, SHA512].contains(&one.algorithm);
    let usable: Vec<_> = records.iter().filter(is_single).filter(is_known).collect();
    let shown = Shown(zone.apex());
    if usable.is_empty() {
        let message = format!(
            "the ZONEMD record of {shown} cannot be verified: use scheme 1 with algorithm 1 or 2, once \
             each"
        );
        return report.warning(rrset.place(), message);
    }
    let serial = serial(apex);
    let of_this_version = usable.iter().filter(|one| Some(one.serial) == serial);
    let mut of_this_version = of_this_version.peekable();
    if of_this_version.peek().is_none() {
        let message = format!(
            "the ZONEMD record of {shown} is for another serial than the SOA record: make it again \
             after each change, or remove it"
        );
        return report.error(rrset.place(), message);
    }
    let is_right = |one: &&Fields<'_>| match one.algorithm {
        SHA384 => digest::<Sha384>(zone) == one.digest,
        _ => digest::<Sha512>(zone) == one.digest,
    };
    if !of_this_version.any(is_right) {
        let message = format!(
            "the records of {shown} are not those of its ZONEMD record: get the zone again, or make \
             the ZONEMD record again if you changed the zone"
        );
        report.error(rrset.place(), message);
    }
}

/// Returns the serial of the SOA record.
fn serial(apex: NameRef<'_>) -> Option<[u8; 4]> {
    let data = apex.rrset(SOA)?.data().next()?;
    // The serial is the first of five numbers after two names (RFC 1035, section 3.3.13).
    let numbers = data.get(data.len().checked_sub(20)?..)?;
    numbers.first_chunk().copied()
}

/// Returns the digest of all records in their canonical form and order (RFC 8976, section 3).
fn digest<D: Digest>(zone: &Zone) -> Vec<u8> {
    let mut hasher = D::new();
    let mut record = Vec::new();
    for name in zone.names() {
        let owner = name.owner().to_ascii_lowercase();
        for rrset in name.rrsets() {
            let mut all: Vec<_> = rrset
                .records_with_ttl()
                .map(|(data, ttl)| (rdata::canonical(rrset.rtype(), data), ttl))
                .filter(|(data, _)| is_digested(name, rrset, data))
                .collect();
            all.sort_unstable();
            for (data, ttl) in all {
                record.clear();
                record.extend_from_slice(&owner);
                record.extend(rrset.rtype().to_be_bytes());
                record.extend(IN.to_be_bytes());
                record.extend(ttl.to_be_bytes());
                record.extend((data.len() as u16).to_be_bytes());
                record.extend_from_slice(&data);
                hasher.update(&record);
            }
        }
    }
    hasher.finalize().to_vec()
}

/// Returns false for the ZONEMD records at the apex and their signatures (RFC 8976, section 3.3.1).
fn is_digested(name: NameRef<'_>, rrset: RrsetRef<'_>, data: &[u8]) -> bool {
    let is_apex = name::eq(name.owner(), name.zone().apex());
    let is_signature = rrset.rtype() == RRSIG && data.starts_with(&ZONEMD.to_be_bytes());
    !(is_apex && (rrset.rtype() == ZONEMD || is_signature))
}

#[cfg(test)]
mod tests {
    use crate::load::load_text;

    /// Digest of [`zone`]: the example of RFC 8976, appendix A.1.
    const DIGEST: &str = "c68090d90a7aed716bc459f9340e3d7c1370d4d24b7e2fc3a1ddc0b9a87153b9a9713b3c9ae5cc27\
                          777f98b8e730044c";

    fn zone(zonemd: &str) -> String {
        format!(
            "$ORIGIN example.\n@ 86400 SOA ns1 admin 2018031900 1800 900 604800 86400\n\
             @ 86400 NS ns1\n@ 86400 NS ns2\n{zonemd}\nns1 3600 A 203.0.113.63\n\
             ns2 3600 AAAA 2001:db8::63\n"
        )
    }

    /// Returns the messages about a zone, or an empty text.
    fn messages(text: &str) -> String {
        match load_text("zone", None, text) {
            Ok(loaded) => loaded.report.to_string(),
            Err(report) => report.to_string(),
        }
    }

    #[test]
    fn the_example_of_the_rfc_is_verified_in_any_case_and_order() {
        let right = zone(&format!("@ 86400 ZONEMD 2018031900 1 1 {DIGEST}"));
        assert_eq!(messages(&right), "");
        let mut lines: Vec<_> = right.lines().map(str::to_uppercase).collect();
        lines[1..].reverse();
        assert_eq!(
            messages(&lines.join("\n").replace("$ORIGIN", "\n$ORIGIN")),
            ""
        );
    }

    #[test]
    fn a_changed_record_is_found() {
        let right = zone(&format!("@ 86400 ZONEMD 2018031900 1 1 {DIGEST}"));
        for (from, to) in [
            ("203.0.113.63", "203.0.113.64"),
            ("ns1 3600 A", "ns1 3601 A"),
            ("ns2 3600 AAAA 2001:db8::63\n", ""),
            ("c680", "c681"),
        ] {
            let changed = right.replace(from, to);
            let messages = messages(&changed);
            assert!(
                messages.contains("are not those of its ZONEMD record"),
                "{messages}"
            );
        }
    }

    #[test]
    fn a_digest_of_another_version_is_refused_and_an_unknown_one_is_named() {
        let of = |records: &str| messages(&zone(records));
        let old = of(&format!("@ 86400 ZONEMD 2018031899 1 1 {DIGEST}"));
        assert!(old.contains("is for another serial"), "{old}");
        let unknown = "@ 86400 ZONEMD 2018031900 1 241 e2d523f654b9422a96c5a8f4";
        assert!(of(unknown).contains("cannot be verified"));
        let right = format!("@ 86400 ZONEMD 2018031900 1 1 {DIGEST}");
        assert_eq!(of(&format!("{unknown}\n{right}")), "");
        // Two digests of one kind are not used (RFC 8976, section 4).
        let twice = format!("{right}\n{}", right.replace("c680", "c681"));
        assert!(of(&twice).contains("cannot be verified"));
    }
}
