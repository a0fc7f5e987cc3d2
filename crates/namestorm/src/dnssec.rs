//! Signed zones (DNSSEC, RFC 4033 to 4035): the signatures of RRsets, and the chain of records that
//! proves which names and types do not exist.
//!
//! The zone is signed elsewhere. A zone whose chain has a gap is refused, because resolvers would
//! reject the negative answers from it.

use data_encoding::{BASE32HEX_NOPAD, HEXUPPER};

use crate::name::{self, Shown};
use crate::nsec3::{NameHash, Params, SHA1};
use crate::rtype::{DNSKEY, DS, NSEC, NSEC3, NSEC3PARAM, RRSIG, SOA, show};
use crate::zone::{NameRef, NameStatus, Place, RrsetRef, Zone};

/// Maximum number of additional rounds of a hash. More would take too long for each query (RFC 9276,
/// section 3.2).
const MAX_ITERATIONS: u16 = 100;
/// Offset of the number of labels in the data of a signature.
const LABELS_AT: usize = 3;
/// Offset of the signer's name in the data of a signature.
const SIGNER_AT: usize = 18;
/// The flag of an NSEC3 record that may leave out delegations without signers.
const OPT_OUT: u8 = 1;

/// The records that prove what does not exist in a zone.
#[derive(Debug)]
pub(crate) enum Chain<'z> {
    /// The owners of all NSEC records, in canonical order.
    Nsec(Vec<NameRef<'z>>),
    /// The owners of all NSEC3 records, in the order of their hashes.
    Nsec3(Params, Vec<(NameHash, NameRef<'z>)>),
}

impl<'z> Chain<'z> {
    /// Returns the place and the data of the NSEC3 record for this name, if the chain has one.
    pub(crate) fn nsec3_of(&self, name: &[u8]) -> Option<(Place, &'z [u8])> {
        let Self::Nsec3(params, owners) = self else {
            return None;
        };
        let hash = params.hash(name);
        let at = owners.binary_search_by_key(&hash, |(hash, _)| *hash).ok()?;
        let rrset = owners[at].1.rrset(NSEC3)?;
        let mut records = rrset.data();
        let is_of_chain = |data: &&[u8]| Fields::parse(data).is_some_and(|it| it.has(params));
        Some((rrset.place(), records.find(is_of_chain)?))
    }
}

/// Why the proofs of a zone cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) place: Place,
    pub(crate) message: String,
}

/// Returns the data of the signatures over the RRset of type `rtype` at `name`.
pub(crate) fn signatures(name: NameRef<'_>, rtype: u16) -> impl Iterator<Item = &[u8]> {
    let all = name.rrset(RRSIG).into_iter().flat_map(RrsetRef::data);
    all.filter(move |data| data.starts_with(&rtype.to_be_bytes()))
}

/// Returns the RRset at `name` that a signature with this data covers.
pub(crate) fn covered<'z>(name: NameRef<'z>, signature: &[u8]) -> Option<RrsetRef<'z>> {
    name.rrset(u16::from_be_bytes(*signature.first_chunk()?))
}

/// Returns the times from which and until which a signature with this data is valid, in seconds since
/// 1970, modulo 2^32.
fn validity(signature: &[u8]) -> Option<[u32; 2]> {
    let (end, rest) = signature.get(8..)?.split_first_chunk()?;
    let times = [*rest.first_chunk()?, *end];
    Some(times.map(u32::from_be_bytes))
}

/// Compares two times as serial numbers.
fn is_not_after(a: u32, b: u32) -> bool {
    b.wrapping_sub(a).cast_signed() >= 0
}

/// Returns the number of labels in a signature with this data, and the name of its signer.
pub(crate) fn labels_and_signer(signature: &[u8]) -> Option<(u8, &[u8])> {
    let rest = signature.get(SIGNER_AT..)?;
    let signer = rest.get(..name::prefix_len(rest)?)?;
    Some((signature[LABELS_AT], signer))
}

/// Returns true if a signature with this data is valid at a time in seconds since 1970, modulo 2^32.
/// Times are compared as serial numbers (RFC 4034, section 3.1.5).
pub(crate) fn is_valid_at(signature: &[u8], now: u32) -> bool {
    validity(signature).is_some_and(|[from, to]| is_not_after(from, now) && is_not_after(now, to))
}

/// Returns true if the zone is signed: its SOA has a signature.
pub(crate) fn is_signed(zone: &Zone) -> bool {
    let apex = zone.apex_name();
    apex.is_some_and(|apex| signatures(apex, SOA).next().is_some())
}

/// Returns the time at which the first RRset of a signed zone loses its last signature.
pub(crate) fn signed_until(zone: &Zone) -> Option<u32> {
    if !is_signed(zone) {
        return None;
    }
    let is_served = |name: &NameRef<'_>| is_proven(*name) || is_hashed(*name);
    let names = zone.names().filter(is_served);
    let ends = names.flat_map(|name| {
        name.rrsets().filter_map(move |rrset| {
            let times = signatures(name, rrset.rtype()).filter_map(validity);
            let ends = times.map(|[_, end]| end);
            ends.reduce(|a, b| if is_not_after(a, b) { b } else { a })
        })
    });
    ends.reduce(|a, b| if is_not_after(a, b) { a } else { b })
}

/// Returns the chain of a signed zone, or `None` if the zone is not signed.
///
/// # Errors
///
/// Returns the first fault if the zone is signed, but its chain has a gap.
pub(crate) fn chain_of(zone: &Zone) -> Result<Option<Chain<'_>>, Fault> {
    let Some(apex) = zone.apex_name().filter(|_| is_signed(zone)) else {
        return Ok(None);
    };
    let nsec = apex.rrset(NSEC);
    // A zone may have both chains while it changes from one to the other. The NSEC3PARAM record says
    // that the chain of NSEC3 records is complete (RFC 5155, section 7.3).
    let by_hash = apex
        .rrset(NSEC3PARAM)
        .map(|params| nsec3_chain(zone, params));
    match (by_hash, nsec) {
        (Some(Err(_)) | None, Some(_)) => nsec_chain(zone).map(Some),
        (Some(chain), _) => chain.map(Some),
        (None, None) => Err(Fault {
            place: apex
                .rrset(DNSKEY)
                .or(apex.rrset(SOA))
                .map_or(Place::default(), RrsetRef::place),
            message: format!(
                "{} is signed, but it has neither NSEC nor NSEC3PARAM records, so no answer can \
                 prove that a name does not exist: sign the zone again",
                Shown(zone.apex())
            ),
        }),
    }
}

fn fault(place: Place, message: String) -> Fault {
    Fault { place, message }
}

/// Returns the place of a name's first record.
fn place_of(name: NameRef<'_>) -> Place {
    name.rrsets()
        .next()
        .map_or(Place::default(), RrsetRef::place)
}

/// Returns the record of type `rtype` at `name`, which must be single and signed. `rtype` is NSEC or
/// NSEC3.
fn link(name: NameRef<'_>, rtype: u16) -> Result<&[u8], Fault> {
    let (shown, what) = (Shown(name.owner()), show(rtype));
    let rrset = name.rrset(rtype).ok_or_else(|| {
        let message = format!("{shown} has no {what} record: sign the zone again");
        fault(place_of(name), message)
    })?;
    let wrong = |message| Err(fault(rrset.place(), message));
    if rrset.data().len() > 1 {
        return wrong(format!(
            "{shown} has several {what} records; remove the old ones"
        ));
    }
    if signatures(name, rtype).next().is_none() {
        return wrong(format!(
            "the {what} record of {shown} has no signature: sign the zone again"
        ));
    }
    Ok(rrset.data().next().unwrap_or_default())
}

/// Returns the chain of NSEC records (RFC 4034, section 4). Each record must name the next owner.
fn nsec_chain(zone: &Zone) -> Result<Chain<'_>, Fault> {
    let owners: Vec<_> = zone.names().filter(|name| is_proven(*name)).collect();
    let following = owners.iter().skip(1).chain(owners.first());
    for (owner, next) in owners.iter().zip(following) {
        let data = link(*owner, NSEC)?;
        let named = &data[..name::prefix_len(data).unwrap_or(0)];
        if !name::eq(named, next.owner()) {
            let message = format!(
                "the NSEC record of {} says that the next name is {}, but it is {}: sign the zone \
                 again",
                Shown(owner.owner()),
                Shown(named),
                Shown(next.owner())
            );
            return Err(fault(place_of(*owner), message));
        }
    }
    Ok(Chain::Nsec(owners))
}

/// Returns true if the name exists only for an NSEC3 record. Queries for such a name are answered as if
/// it did not exist (RFC 5155, section 7.2.8).
pub(crate) fn is_hashed(name: NameRef<'_>) -> bool {
    name.rrset(NSEC3).is_some()
        && name
            .rrsets()
            .all(|set| [NSEC3, RRSIG].contains(&set.rtype()))
}

/// Returns true if the zone proves which types the name has: if the zone is authoritative for it, or
/// delegates it.
pub(crate) fn is_proven(name: NameRef<'_>) -> bool {
    matches!(name.status(), NameStatus::Authoritative | NameStatus::Cut) && !is_hashed(name)
}

/// Returns the types that a record with this data lists, in order. `kind` is NSEC or NSEC3.
pub(crate) fn listed_types(kind: u16, data: &[u8]) -> Vec<u16> {
    let blocks = if kind == NSEC {
        name::prefix_len(data).and_then(|len| data.get(len..))
    } else {
        Fields::parse(data).and_then(|fields| fields.rest.get(1 + fields.next()?.len()..))
    };
    let mut blocks = blocks.unwrap_or_default();
    let mut types = Vec::new();
    // Each block has a window of 256 types, a length, and a bit for each type (RFC 4034, section 4.1.2).
    while let Some((&[window, len], rest)) = blocks.split_first_chunk() {
        let bits = rest.get(..usize::from(len)).unwrap_or_default();
        for (at, byte) in bits.iter().enumerate() {
            let set = (0..8).filter(|bit| byte & 0x80 >> bit != 0);
            types.extend(set.map(|bit| u16::from(window) << 8 | (8 * at + bit) as u16));
        }
        blocks = rest.get(usize::from(len)..).unwrap_or_default();
    }
    types
}

/// Describes a number of additional rounds of a hash.
pub(crate) fn iterations(number: u16) -> String {
    match number {
        1 => "1 iteration".to_owned(),
        number => format!("{number} iterations"),
    }
}

/// The fields of an NSEC3 or NSEC3PARAM record (RFC 5155, sections 3.2 and 4.2).
struct Fields<'a> {
    algorithm: u8,
    flags: u8,
    iterations: u16,
    salt: &'a [u8],
    /// The fields after the salt.
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn parse(data: &'a [u8]) -> Option<Self> {
        let (&[algorithm, flags, high, low, salt_len], rest) = data.split_first_chunk()?;
        let (salt, rest) = rest.split_at_checked(usize::from(salt_len))?;
        Some(Self {
            algorithm,
            flags,
            iterations: u16::from_be_bytes([high, low]),
            salt,
            rest,
        })
    }

    /// Describes how the record hashes names.
    fn describe(&self) -> String {
        let salt = match self.salt {
            [] => "no salt".to_owned(),
            salt => format!("the salt {}", HEXUPPER.encode(salt)),
        };
        format!("{salt} and {}", iterations(self.iterations))
    }

    /// Returns true if the record hashes names with `params`.
    fn has(&self, params: &Params) -> bool {
        let same = self.iterations == params.iterations && *self.salt == *params.salt;
        same && self.algorithm == SHA1
    }

    /// Returns the hash of the next owner in an NSEC3 record.
    fn next(&self) -> Option<&'a [u8]> {
        let (len, rest) = self.rest.split_first()?;
        rest.get(..usize::from(*len))
    }
}

/// Returns the chain of NSEC3 records for the first NSEC3PARAM record that has a whole chain.
fn nsec3_chain<'z>(zone: &'z Zone, params: RrsetRef<'z>) -> Result<Chain<'z>, Fault> {
    let place = params.place();
    // Records with flags are ignored (RFC 5155, section 4.1.2).
    let usable = |fields: &Fields<'_>| fields.algorithm == SHA1 && fields.flags == 0;
    let usable = params.data().filter_map(Fields::parse).filter(usable);
    let mut first = None;
    for fields in usable {
        let params = Params {
            iterations: fields.iterations,
            salt: fields.salt.into(),
        };
        match nsec3_records(zone, place, params, &fields) {
            Ok(chain) => return Ok(chain),
            Err(fault) => first = first.or(Some(fault)),
        }
    }
    Err(first.unwrap_or_else(|| {
        let message = format!(
            "no NSEC3PARAM record of {} has algorithm 1 and no flags, so no proof can be found",
            Shown(zone.apex())
        );
        fault(place, message)
    }))
}

/// Returns the hash in the owner of an NSEC3 record, whose other labels must be the zone's name.
fn hash_in(owner: &[u8], apex: &[u8]) -> Option<NameHash> {
    let (label, rest) = owner.get(1..)?.split_at_checked(usize::from(owner[0]))?;
    let hash = BASE32HEX_NOPAD.decode(&label.to_ascii_uppercase()).ok()?;
    if !name::eq(rest, apex) {
        return None;
    }
    hash.try_into().ok()
}

/// The NSEC3 records of a zone with the same parameters.
struct Nsec3Records<'z> {
    zone: &'z Zone,
    params: Params,
    /// The hashes in the owners, in order, and the owners.
    owners: Vec<(NameHash, NameRef<'z>)>,
    /// Whether each record has the opt-out flag, and the hash of the next owner in it.
    links: Vec<(bool, &'z [u8])>,
}

/// Returns the chain of the NSEC3 records with these parameters. `place` is that of the parameters, and
/// `fields` are those of their record.
fn nsec3_records<'z>(
    zone: &'z Zone,
    place: Place,
    params: Params,
    fields: &Fields<'_>,
) -> Result<Chain<'z>, Fault> {
    if params.iterations > MAX_ITERATIONS {
        let message = format!(
            "the names of {} are hashed with {}: use 0, and at most {MAX_ITERATIONS} (RFC 9276)",
            Shown(zone.apex()),
            iterations(params.iterations)
        );
        return Err(fault(place, message));
    }
    let records = Nsec3Records::read(zone, params)?;
    if records.owners.is_empty()
        && let Some(others) = any_nsec3(zone)
    {
        let message = format!(
            "the NSEC3PARAM record of {} says that names are hashed with {}, but the NSEC3 records have \
             {}: sign the zone again",
            Shown(zone.apex()),
            fields.describe(),
            others.describe()
        );
        return Err(fault(place, message));
    }
    records.check_links()?;
    records.check_names()?;
    Ok(Chain::Nsec3(records.params, records.owners))
}

/// Returns the fields of the first NSEC3 record of the zone.
fn any_nsec3(zone: &Zone) -> Option<Fields<'_>> {
    let sets = zone.names().filter_map(|name| name.rrset(NSEC3));
    sets.flat_map(RrsetRef::data).find_map(Fields::parse)
}

/// Returns true if the zone has NSEC3 records.
pub(crate) fn has_nsec3(zone: &Zone) -> bool {
    any_nsec3(zone).is_some()
}

impl<'z> Nsec3Records<'z> {
    fn read(zone: &'z Zone, params: Params) -> Result<Self, Fault> {
        let (mut owners, mut links) = (Vec::new(), Vec::new());
        for name in zone.names() {
            let data = name.rrset(NSEC3).into_iter().flat_map(RrsetRef::data);
            let mut records = data.filter_map(Fields::parse);
            let Some(fields) = records.find(|fields| fields.has(&params)) else {
                continue;
            };
            link(name, NSEC3)?;
            let Some(hash) = hash_in(name.owner(), zone.apex()) else {
                let message = format!("{} is not a hashed name of the zone", Shown(name.owner()));
                return Err(fault(place_of(name), message));
            };
            owners.push((hash, name));
            links.push((
                fields.flags & OPT_OUT != 0,
                fields.next().unwrap_or_default(),
            ));
        }
        Ok(Self {
            zone,
            params,
            owners,
            links,
        })
    }

    /// Checks that each record has the hash of the next owner. The canonical order of the owners is the
    /// order of their hashes.
    fn check_links(&self) -> Result<(), Fault> {
        let following = self.owners.iter().skip(1).chain(self.owners.first());
        let records = self.owners.iter().zip(&self.links).zip(following);
        for (((_, name), (_, next)), (following, _)) in records {
            if next != following {
                let message = format!(
                    "the NSEC3 record of {} says that the next hash is {}, but it is {}: sign the \
                     zone again",
                    Shown(name.owner()),
                    BASE32HEX_NOPAD.encode(next),
                    BASE32HEX_NOPAD.encode(following)
                );
                return Err(fault(place_of(*name), message));
            }
        }
        Ok(())
    }

    /// Checks that each name has its record. A delegation without signers, or an empty non-terminal
    /// above only such delegations, may be left out where a record has the opt-out flag.
    fn check_names(&self) -> Result<(), Fault> {
        let mut last_key: &[u8] = &[];
        for name in self.zone.names() {
            if !is_proven(name) {
                continue;
            }
            let is_delegation = name.status() == NameStatus::Cut;
            let may_be_left_out = is_delegation && name.rrset(DS).is_none();
            let empty = name.empty_non_terminals(last_key);
            let mut names = empty
                .map(|(owner, _)| (owner, true))
                .chain([(name.owner(), may_be_left_out)]);
            if let Some((owner, _)) = names.find(|(owner, may)| !self.covers(owner, *may)) {
                let message = format!("{} has no NSEC3 record: sign the zone again", Shown(owner));
                return Err(fault(place_of(name), message));
            }
            last_key = name.key();
        }
        Ok(())
    }

    /// Returns true if a name has its record, or if it may be left out and the record that covers it
    /// has the opt-out flag.
    fn covers(&self, owner: &[u8], may_be_left_out: bool) -> bool {
        let hash = self.params.hash(owner);
        let found = self.owners.binary_search_by_key(&hash, |(hash, _)| *hash);
        let Err(at) = found else {
            return true;
        };
        let covering = at.checked_sub(1).or(self.links.len().checked_sub(1));
        may_be_left_out && covering.is_some_and(|covering| self.links[covering].0)
    }
}
