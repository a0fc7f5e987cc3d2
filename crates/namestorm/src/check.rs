//! Checks that the records of a zone are consistent.
//!
//! A problem that makes correct answers impossible is an error, and the zone is not served. A
//! problem that is probably a mistake, but does not prevent correct answers, is a warning.

mod ascii;
mod dots;
mod listed;
mod problems;
mod room;
mod signatures;
mod zonemd;

use std::collections::HashMap;

use self::problems::Problems;
use crate::dnssec::{self, Chain};
use crate::name::{self, Shown};
use crate::report::Report;
use crate::rtype::{
    self, A, AAAA, CNAME, DNAME, DNSKEY, DS, MX, NS, NSEC, NSEC3PARAM, RRSIG, SOA, SRV,
};
use crate::zone::{NameRef, NameStatus, Place, RrsetRef, Zone};

/// Checks a whole zone.
pub(crate) fn check(zone: &Zone, report: &mut Report) {
    check_apex(zone, report);
    check_signed(zone, report);
    zonemd::check(zone, report);
    let mut targets = Targets::default();
    let mut not_ascii = Problems::default();
    for name in zone.names() {
        check_types(name, report);
        check_hidden(name, report);
        dots::check(name, report);
        ascii::check(name, &mut not_ascii);
        for rrset in name.rrsets() {
            check_rrset(name, rrset, report);
            check_targets(name, rrset, &mut targets, report);
        }
    }
    not_ascii.warn(ascii::REMEDY, report);
}

/// Checks that the apex has one SOA record and at least one NS record (RFC 1035, section 5.2; RFC
/// 2181, section 6.1).
fn check_apex(zone: &Zone, report: &mut Report) {
    let apex = zone.apex_name();
    let start = Place::default();
    let shown = Shown(zone.apex());
    match apex.and_then(|apex| apex.rrset(SOA)) {
        None => report.error(
            start,
            format!("there is no SOA record for {shown}; is that the zone's name?"),
        ),
        Some(soa) => {
            for place in soa.further_places() {
                report.error(place, format!("{shown} has a second SOA record"));
            }
        }
    }
    if apex.and_then(|apex| apex.rrset(NS)).is_none() {
        report.error(start, format!("there is no NS record for {shown}"));
    }
}

/// Checks that the proofs of a signed zone can be served, and that its signatures are there and valid
/// now.
fn check_signed(zone: &Zone, report: &mut Report) {
    let Some(apex) = zone.apex_name() else {
        return;
    };
    let shown = Shown(zone.apex());
    if !dnssec::is_signed(zone) {
        return check_half_signed(zone, apex, report);
    }
    let chain = dnssec::chain_of(zone);
    if let Ok(Some(Chain::Nsec3(params, _))) = &chain
        && params.iterations > 0
    {
        let place = apex
            .rrset(NSEC3PARAM)
            .map_or(Place::default(), RrsetRef::place);
        let message = format!(
            "{shown} hashes its names with {}; resolvers may ignore its proofs: use 0 (RFC 9276)",
            dnssec::iterations(params.iterations)
        );
        report.warning(place, message);
    }
    match chain {
        Err(fault) => report.error(fault.place, fault.message),
        Ok(Some(chain)) => listed::check(zone, &chain, report),
        Ok(None) => {}
    }
    if apex.rrset(DNSKEY).is_none() {
        let place = apex.rrset(SOA).map_or(Place::default(), RrsetRef::place);
        let message = format!("{shown} is signed, but it has no DNSKEY records");
        report.warning(place, message);
    }
    signatures::check(zone, report);
}

/// Checks a zone whose SOA has no signature. It is an unsigned zone, which may have keys and parameters
/// for its signer, unless it also has other signatures or proofs. Resolvers that have a DS record for
/// such a half-signed zone refuse all its answers.
fn check_half_signed(zone: &Zone, apex: NameRef<'_>, report: &mut Report) {
    let shown = Shown(zone.apex());
    let params = apex.rrset(NSEC3PARAM);
    let signed = apex.rrset(RRSIG).or(apex.rrset(NSEC));
    if let Some(sign) = signed.or(params.filter(|_| dnssec::has_nsec3(zone))) {
        let message = format!(
            "{shown} has {} records, but its SOA has no signature, so its proofs cannot be \
             served: sign the zone again, or remove its RRSIG, NSEC and NSEC3 records",
            rtype::show(sign.rtype())
        );
        report.error(sign.place(), message);
    } else if let Some(params) = params {
        let message = format!(
            "{shown} has NSEC3PARAM records, but its SOA has no signature, so it is served as an \
             unsigned zone"
        );
        report.warning(params.place(), message);
    }
}

/// Checks that each type at a name is allowed at this name, and that the types may exist together.
/// Also checks that there is at most one CNAME or DNAME record.
fn check_types(name: NameRef<'_>, report: &mut Report) {
    let shown = Shown(name.owner());
    let wildcard = name::is_wildcard(name.owner());
    if let Some(cname) = name.rrset(CNAME) {
        // Only DNSSEC records may accompany a CNAME (RFC 1034, section 3.6.2; RFC 4035, section
        // 2.5).
        let other = name
            .rrsets()
            .find(|set| ![CNAME, RRSIG, NSEC].contains(&set.rtype()));
        if let Some(other) = other {
            report.error(
                cname.place().max(other.place()),
                format!(
                    "{shown} has a CNAME record, so it cannot have {} as well",
                    rtype::show(other.rtype())
                ),
            );
        }
        only_one(name, cname, report);
    }
    if let Some(dname) = name.rrset(DNAME) {
        only_one(name, dname, report);
    }
    // A DS record is only of use beside the NS records of a delegation (RFC 4035, section 2.4).
    if let Some(signers) = name.rrset(DS)
        && (name.rrset(NS).is_none() || name.key().is_empty())
    {
        let message = format!(
            "{shown} has DS records, but it is no delegation: add its NS records, or remove the DS \
             records"
        );
        report.warning(signers.place(), message);
    }
    for set in name.rrsets() {
        match set.rtype() {
            SOA if !name.key().is_empty() => report.error(
                set.place(),
                format!("an SOA record is allowed only at the zone's name, not at {shown}"),
            ),
            // A wildcard cannot be a zone cut or a DNAME owner (RFC 4592, sections 4.2 and 4.4).
            NS | DNAME if wildcard => report.error(
                set.place(),
                format!(
                    "a wildcard cannot have {} records: {shown}",
                    rtype::show(set.rtype())
                ),
            ),
            _ => {}
        }
    }
}

/// Reports all records of an RRset but the first. A name may have only one CNAME and one DNAME
/// record (RFC 2181, section 10.1; RFC 6672, section 2.4).
fn only_one(name: NameRef<'_>, rrset: RrsetRef<'_>, report: &mut Report) {
    for place in rrset.further_places() {
        report.error(
            place,
            format!(
                "{} has a second {} record; only one is allowed",
                Shown(name.owner()),
                rtype::show(rrset.rtype())
            ),
        );
    }
}

/// Reports names below a DNAME, and records that are not served because they belong to a delegated
/// zone.
fn check_hidden(name: NameRef<'_>, report: &mut Report) {
    let shown = Shown(name.owner());
    match name.status() {
        NameStatus::Authoritative => {}
        // The proofs of a signed zone are below its apex, which may have a DNAME.
        NameStatus::BelowDname if dnssec::is_hashed(name) && dnssec::is_signed(name.zone()) => {}
        // No other records may exist below a DNAME (RFC 6672, section 2.4).
        NameStatus::BelowDname => {
            for set in name.rrsets().take(1) {
                report.error(set.place(), format!("{shown} lies below a DNAME record"));
            }
        }
        NameStatus::BelowCut => {
            for set in name.rrsets() {
                if ![A, AAAA].contains(&set.rtype()) {
                    hidden(shown, set, report);
                }
            }
        }
        NameStatus::Cut => {
            for set in name.rrsets() {
                if ![NS, DS, NSEC, RRSIG, A, AAAA].contains(&set.rtype()) {
                    hidden(shown, set, report);
                }
            }
        }
    }
}

fn hidden(shown: Shown<'_>, set: RrsetRef<'_>, report: &mut Report) {
    report.warning(
        set.place(),
        format!(
            "the {} of {shown} belongs to a delegated zone, so no query gets it",
            rtype::show(set.rtype())
        ),
    );
}

fn check_rrset(name: NameRef<'_>, rrset: RrsetRef<'_>, report: &mut Report) {
    let shown = Shown(name.owner());
    if let Some((place, ttl)) = rrset.other_ttl()
        // RRSIG records may differ in their TTLs, because each record has the TTL of the RRset that
        // it covers.
        && rrset.rtype() != RRSIG
    {
        report.warning(
            place,
            format!(
                "the {} records of {shown} have different TTLs: using {} s, not {ttl} s \
                 (RFC 2181, section 5.2)",
                rtype::show(rrset.rtype()),
                rrset.ttl()
            ),
        );
    }
    room::check(name, rrset, report);
}

/// Maps each target checked so far to its fault, if it has one. Many records share a target, so
/// each target is checked only once.
type Targets<'z> = HashMap<&'z [u8], Option<Fault>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Alias,
    NoAddress,
}

/// Warns if a target of an NS, MX or SRV record is an alias in this zone (RFC 2181, section 10.3;
/// RFC 2782). Also warns if the target of an NS record is in this zone but has no address.
fn check_targets<'z>(
    name: NameRef<'z>,
    rrset: RrsetRef<'z>,
    targets: &mut Targets<'z>,
    report: &mut Report,
) {
    let rtype = rrset.rtype();
    if ![NS, MX, SRV].contains(&rtype) || name.status() == NameStatus::BelowCut {
        return;
    }
    for target in rrset.data().filter_map(|data| rtype::target(rtype, data)) {
        let zone = name.zone();
        let fault = *targets
            .entry(target)
            .or_insert_with(|| fault_of(zone, target));
        let what = match fault {
            None => continue,
            Some(Fault::Alias) => "is an alias (CNAME), which is not allowed",
            // A missing address is reported only for NS records, because resolvers may be unable to
            // reach the zone's servers without it.
            Some(Fault::NoAddress) if rtype != NS => continue,
            Some(Fault::NoAddress) => "has no address (A or AAAA) in this zone",
        };
        report.warning(
            rrset.place(),
            format!(
                "{} {}: its target {} {what}",
                Shown(name.owner()),
                rtype::show(rtype),
                Shown(target)
            ),
        );
    }
}

fn fault_of(zone: &Zone, target: &[u8]) -> Option<Fault> {
    if !name::is_within(target, zone.apex()) {
        return None;
    }
    let mut key = Vec::new();
    name::append_sort_key(&mut key, target, zone.apex());
    if let Ok(found) = zone.find(&key) {
        if found.rrset(CNAME).is_some() {
            return Some(Fault::Alias);
        }
        let has_address = found.rrset(A).is_some() || found.rrset(AAAA).is_some();
        return (!has_address).then_some(Fault::NoAddress);
    }
    // A wildcard may supply the target's address.
    let has_wildcard = wildcards_above(zone, target).any(|wildcard| {
        matches!(wildcard.status(), NameStatus::BelowCut) || name::is_wildcard(wildcard.owner())
    });
    (!has_wildcard).then_some(Fault::NoAddress)
}

/// Returns the wildcard owners that lie directly below an ancestor of `target`.
fn wildcards_above<'z>(zone: &'z Zone, target: &[u8]) -> impl Iterator<Item = NameRef<'z>> {
    let mut key = Vec::new();
    let starts: Vec<_> = name::label_starts(target).skip(1).collect();
    starts.into_iter().filter_map(move |start| {
        let parent = &target[start..];
        if !name::is_within(parent, zone.apex()) {
            return None;
        }
        key.clear();
        name::append_sort_key(&mut key, parent, zone.apex());
        key.extend(b"*\0");
        zone.find(&key).ok()
    })
}
