//! Finds names whose final dot was probably forgotten. If a name has no final dot, the origin is
//! appended to it (RFC 1035, section 5.1).

use crate::name::{self, Shown};
use crate::rdata;
use crate::report::Report;
use crate::rtype::PTR;
use crate::zone::{NameRef, RrsetRef, Zone};

/// Top-level domains that make a name such as `x.com.example.org` suspicious.
const TOP_LEVEL: [&[u8]; 9] = [
    b"com", b"net", b"org", b"edu", b"gov", b"mil", b"int", b"info", b"arpa",
];
/// `arpa.`, which contains the reverse zones.
const ARPA: &[u8] = b"\x04arpa\0";

/// Warns if the final dot of the owner, or of a name in its records' data, was probably forgotten.
/// Warns at most once per RRset.
pub(super) fn check(name: NameRef<'_>, report: &mut Report) {
    let zone = name.zone();
    if zone.apex() == name::ROOT {
        // In the root zone, a name means the same with and without the final dot.
        return;
    }
    let owner = name.owner();
    for (at, rrset) in name.rrsets().enumerate() {
        let owner = (at == 0)
            .then_some(owner)
            .filter(|owner| repeats(zone, owner));
        let target = || names(rrset).find(|target| is_suspect(zone, rrset.rtype(), target));
        if let Some(suspect) = owner.or_else(target) {
            let meant = without_apex(zone, suspect);
            report.warning(
                rrset.place(),
                format!(
                    "{} looks as if its final dot is missing; if {} is meant, add the dot",
                    Shown(suspect),
                    Shown(&meant)
                ),
            );
        }
    }
}

fn is_suspect(zone: &Zone, rtype: u16, target: &[u8]) -> bool {
    if !name::is_within(target, zone.apex()) || target.len() == zone.apex().len() {
        return false;
    }
    let meant = without_apex(zone, target);
    let last = name::labels(&meant).last().unwrap_or_default();
    let suspect = repeats(zone, target)
        || rtype == PTR && name::is_within(zone.apex(), ARPA)
        || TOP_LEVEL.iter().any(|top| last.eq_ignore_ascii_case(top));
    if !suspect {
        return false;
    }
    let mut key = Vec::new();
    name::append_sort_key(&mut key, target, zone.apex());
    !zone.exists(&key)
}

/// Returns true if the zone's name occurs twice at the end of `name`.
fn repeats(zone: &Zone, name: &[u8]) -> bool {
    name::is_within(&without_apex(zone, name), zone.apex())
}

/// Returns `name` without the zone's name at its end, as an absolute name.
fn without_apex(zone: &Zone, name: &[u8]) -> Vec<u8> {
    let below = name.len().saturating_sub(zone.apex().len());
    [&name[..below], name::ROOT].concat()
}

/// Returns the names in the data of an RRset.
fn names(rrset: RrsetRef<'_>) -> impl Iterator<Item = &[u8]> {
    let rtype = rrset.rtype();
    rrset
        .data()
        .flat_map(move |data| rdata::names(rtype, data).map(|name| &data[name]))
}
