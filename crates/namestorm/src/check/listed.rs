//! Compares the types that the proofs of a signed zone list with the records of the zone. A resolver
//! refuses a proof that lists a type for which it got no records. It takes a type that is not listed for
//! missing, and answers so without a question (RFC 8198).

use super::problems::Problems;
use crate::dnssec::{self, Chain};
use crate::name::Shown;
use crate::report::Report;
use crate::rtype::{self, DS, NS, NSEC, NSEC3, RRSIG};
use crate::zone::{NameRef, NameStatus, Place, RrsetRef, Zone};

/// Maximum number of types that a warning names.
const NAMED: usize = 4;

/// Warns of proofs that list other types than their names have. Reports the first with the number of all.
pub(super) fn check(zone: &Zone, chain: &Chain<'_>, report: &mut Report) {
    let mut wrong = Problems::default();
    match chain {
        Chain::Nsec(owners) => {
            for owner in owners {
                let rrset = owner.rrset(NSEC);
                let proof = rrset.and_then(|rrset| Some((rrset.place(), rrset.data().next()?)));
                compare(&mut wrong, owner.owner(), NSEC, &types_of(*owner), proof);
            }
        }
        Chain::Nsec3(..) => {
            let mut last_key: &[u8] = &[];
            for name in zone.names().filter(|name| dnssec::is_proven(*name)) {
                for (owner, _) in name.empty_non_terminals(last_key) {
                    compare(&mut wrong, owner, NSEC3, &[], chain.nsec3_of(owner));
                }
                last_key = name.key();
                // A zone that changes its chain may have records of the other one, too.
                let mut types = types_of(name);
                types.retain(|rtype| *rtype != NSEC);
                let (owner, proof) = (name.owner(), chain.nsec3_of(name.owner()));
                compare(&mut wrong, owner, NSEC3, &types, proof);
            }
        }
    }
    let remedy = "resolvers refuse answers or miss records: sign the zone again";
    wrong.warn(remedy, report);
}

/// Returns the types that the proof of a name must list, in order. A delegation has only its own types
/// (RFC 4035, section 2.3).
fn types_of(name: NameRef<'_>) -> Vec<u16> {
    let types = name.rrsets().map(RrsetRef::rtype);
    let is_listed = |rtype: &u16| match name.status() {
        NameStatus::Cut => [NS, DS, RRSIG, NSEC].contains(rtype),
        _ => *rtype != NSEC3,
    };
    types.filter(is_listed).collect()
}

/// Compares the types of a name with those that its proof lists. `kind` is the type of the proof.
fn compare(
    wrong: &mut Problems,
    owner: &[u8],
    kind: u16,
    types: &[u16],
    proof: Option<(Place, &[u8])>,
) {
    let Some((place, data)) = proof else {
        return;
    };
    let mut listed = dnssec::listed_types(kind, data);
    if kind == NSEC3 {
        listed.retain(|rtype| *rtype != NSEC);
    }
    if listed == types {
        return;
    }
    wrong.add(place, || {
        let without = |a: &[u16], b: &[u16]| {
            let types = a.iter().filter(|rtype| !b.contains(rtype));
            types.copied().collect::<Vec<_>>()
        };
        let lists = [
            ("lists", without(&listed, types), "does not have"),
            ("lacks", without(types, &listed), "has"),
        ];
        let lists = lists.iter().filter(|(_, types, _)| !types.is_empty());
        let lists =
            lists.map(|(verb, types, of)| format!("{verb} {}, which the name {of}", shown(types)));
        let lists = lists.collect::<Vec<_>>().join(", and ");
        let (kind, owner) = (rtype::show(kind), Shown(owner));
        format!("the {kind} record of {owner} {lists}")
    });
}

/// Names the first types.
fn shown(types: &[u16]) -> String {
    let names = types.iter().take(NAMED).map(|rtype| rtype::show(*rtype));
    let names = names.collect::<Vec<_>>().join(", ");
    match types.len().saturating_sub(NAMED) {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}
