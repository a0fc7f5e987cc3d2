//! Checks the signatures of a signed zone.

use std::time::{SystemTime, UNIX_EPOCH};

use super::problems::Problems;
use crate::dnssec;
use crate::name::{self, Shown};
use crate::report::Report;
use crate::rtype::{self, DS, RRSIG};
use crate::zone::{NameRef, NameStatus, RrsetRef, Zone};

/// Warns of RRsets without signatures, and of signatures that are not valid now. Reports the first of each
/// kind with the number of all, because a zone often has many.
pub(super) fn check(zone: &Zone, report: &mut Report) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs() as u32);
    let (mut unsigned, mut invalid) = (Found::default(), Found::default());
    for name in zone.names() {
        for rrset in name
            .rrsets()
            .filter(|rrset| must_be_signed(name, rrset.rtype()))
        {
            if dnssec::signatures(name, rrset.rtype()).next().is_none() {
                unsigned.add((name, rrset));
            }
            let is_invalid = |data: &[u8]| !dnssec::is_valid_at(data, now);
            let mut of_rrset = dnssec::signatures(name, rrset.rtype()).peekable();
            if of_rrset.peek().is_some() && of_rrset.all(is_invalid) {
                invalid.add((name, rrset));
            }
        }
    }
    unsigned.warn("have no signature", report);
    invalid.warn("have no signature that is valid now", report);
    check_fields(zone, report);
}

/// Warns of signatures that are not by the zone, or not for their owner. Reports the first of each kind
/// with the number of all.
fn check_fields(zone: &Zone, report: &mut Report) {
    let (mut foreign, mut misplaced) = (Problems::default(), Problems::default());
    for name in zone.names() {
        if !matches!(name.status(), NameStatus::Authoritative | NameStatus::Cut) {
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
        NameStatus::BelowCut | NameStatus::BelowDname => false,
    }
}

/// The first RRset with a problem, and the number of all.
#[derive(Default)]
struct Found<'z> {
    first: Option<(NameRef<'z>, RrsetRef<'z>)>,
    count: usize,
}

impl<'z> Found<'z> {
    fn add(&mut self, found: (NameRef<'z>, RrsetRef<'z>)) {
        self.first.get_or_insert(found);
        self.count += 1;
    }

    fn warn(&self, what: &str, report: &mut Report) {
        let Some((name, rrset)) = self.first else {
            return;
        };
        let others = match self.count - 1 {
            0 => String::new(),
            1 => " (and those of another RRset)".to_owned(),
            others => format!(" (and those of {others} other RRsets)"),
        };
        let (shown, rtype) = (Shown(name.owner()), rtype::show(rrset.rtype()));
        let message = format!(
            "the {rtype} records of {shown}{others} {what}, so resolvers refuse them: sign the zone \
             again"
        );
        report.warning(rrset.place(), message);
    }
}
