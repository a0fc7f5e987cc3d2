//! Checks the signatures of a signed zone.

use std::time::{SystemTime, UNIX_EPOCH};

use super::problems::Problems;
use crate::dnssec;
use crate::name::{self, Shown};
use crate::report::Report;
use crate::rtype::{self, DS, NSEC3, RRSIG};
use crate::zone::{NameRef, NameStatus, Zone};

/// Warns of RRsets without signatures, and of signatures that are not valid now. Reports the first of each
/// kind with the number of all, because a zone often has many.
pub(super) fn check(zone: &Zone, report: &mut Report) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs() as u32);
    let (mut unsigned, mut invalid) = (Problems::default(), Problems::default());
    for name in zone.names() {
        for rrset in name
            .rrsets()
            .filter(|rrset| must_be_signed(name, rrset.rtype()))
        {
            let message = |what| {
                let (rtype, shown) = (rtype::show(rrset.rtype()), Shown(name.owner()));
                format!("the {rtype} records of {shown} have no signature{what}")
            };
            if dnssec::signatures(name, rrset.rtype()).next().is_none() {
                unsigned.add(rrset.place(), || message(""));
            }
            let is_invalid = |data: &[u8]| !dnssec::is_valid_at(data, now);
            let mut of_rrset = dnssec::signatures(name, rrset.rtype()).peekable();
            if of_rrset.peek().is_some() && of_rrset.all(is_invalid) {
                invalid.add(rrset.place(), || message(" that is valid now"));
            }
        }
    }
    let remedy = "resolvers refuse such records: sign the zone again";
    unsigned.warn(remedy, report);
    invalid.warn(remedy, report);
    check_fields(zone, report);
}

/// Warns of signatures that are not by the zone, or not for their owner. Reports the first of each kind
/// with the number of all.
fn check_fields(zone: &Zone, report: &mut Report) {
    let (mut foreign, mut misplaced) = (Problems::default(), Problems::default());
    for name in zone.names() {
        if name.status() == NameStatus::BelowCut {
            continue;
        }
        let Some(rrset) = name.rrset(RRSIG) else {
            continue;
        };
        // The asterisk of a wildcard does not count (RFC 4034, section 3.1.3).
        let labels = name::labels(name.owner()).count();
        let labels = labels - usize::from(name::is_wildcard(name.owner()));
        for data in rrset.data() {
            let Some((of, signer)) = dnssec::labels_and_signer(data) else {
                continue;
            };
            let message = |what| {
                let covered = data
                    .first_chunk()
                    .map_or(0, |rtype| u16::from_be_bytes(*rtype));
                let (covered, shown) = (rtype::show(covered), Shown(name.owner()));
                format!("a signature of the {covered} records of {shown} {what}")
            };
            if !name::eq(signer, zone.apex()) {
                let what = || format!("is by {}, not by {}", Shown(signer), Shown(zone.apex()));
                foreign.add(rrset.place(), || message(what()));
            }
            if usize::from(of) != labels {
                let what = || format!("is for a name of {of} labels, but the name has {labels}");
                misplaced.add(rrset.place(), || message(what()));
            }
        }
    }
    let remedy = "resolvers refuse such signatures: sign the zone again";
    foreign.warn(remedy, report);
    misplaced.warn(remedy, report);
}

/// Returns true if the RRset of this type at `name` must have a signature: if the zone is authoritative
/// for it.
fn must_be_signed(name: NameRef<'_>, rtype: u16) -> bool {
    match name.status() {
        NameStatus::Authoritative => rtype != RRSIG,
        NameStatus::Cut => rtype == DS,
        NameStatus::BelowCut => false,
        // Only proofs may be there.
        NameStatus::BelowDname => rtype == NSEC3,
    }
}
