//! Record types (RFC 1035, section 3.2.2, and later RFCs) that the server treats specially, or that
//! hooks use most often.

use arrayvec::ArrayVec;

use crate::fields;
use crate::name;

/// An IPv4 address.
pub const A: u16 = 1;
/// A name server.
pub const NS: u16 = 2;
/// An alias.
pub const CNAME: u16 = 5;
/// The start of a zone of authority, with the zone's parameters.
pub const SOA: u16 = 6;
/// A pointer to a name.
pub const PTR: u16 = 12;
/// A mail exchange.
pub const MX: u16 = 15;
/// Free text.
pub const TXT: u16 = 16;
/// An IPv6 address.
pub const AAAA: u16 = 28;
/// The location of a service (RFC 2782).
pub const SRV: u16 = 33;
/// A rule that rewrites a name (RFC 3403).
pub(crate) const NAPTR: u16 = 35;
/// An alias for all names below a name (RFC 6672).
pub const DNAME: u16 = 39;
/// The EDNS pseudo-record (RFC 6891). It is never part of a zone.
pub(crate) const OPT: u16 = 41;
/// A delegation signer (RFC 4034). At a zone cut, it belongs to the parent zone.
pub const DS: u16 = 43;
/// A DNSSEC signature (RFC 4034).
pub(crate) const RRSIG: u16 = 46;
/// Authenticated denial of existence (RFC 4034).
pub(crate) const NSEC: u16 = 47;
/// A DNSSEC key of the zone (RFC 4034).
pub(crate) const DNSKEY: u16 = 48;
/// Hashed authenticated denial of existence (RFC 5155).
pub(crate) const NSEC3: u16 = 50;
/// Parameters of hashed denial of existence (RFC 5155).
pub(crate) const NSEC3PARAM: u16 = 51;
/// A delegation signer that the parent zone should publish (RFC 7344).
pub(crate) const CDS: u16 = 59;
/// A DNSSEC key whose delegation signer the parent zone should publish (RFC 7344).
pub(crate) const CDNSKEY: u16 = 60;
/// A digest of the zone (RFC 8976).
pub(crate) const ZONEMD: u16 = 63;
/// Service binding (RFC 9460).
pub const SVCB: u16 = 64;
/// Service binding for HTTPS (RFC 9460).
pub const HTTPS: u16 = 65;
/// The signature of a message with a shared secret (RFC 8945). It is never part of a zone.
pub(crate) const TSIG: u16 = 250;
/// Incremental zone transfer (RFC 1995).
pub(crate) const IXFR: u16 = 251;
/// Full zone transfer (RFC 5936).
pub(crate) const AXFR: u16 = 252;
/// A query for all types (RFC 8482).
pub const ANY: u16 = 255;
/// Certification authorities that may issue certificates (RFC 8659).
pub const CAA: u16 = 257;
/// The first type that is reserved for questions and metadata (RFC 6895, section 3.1).
pub(crate) const FIRST_META: u16 = 128;
/// The last type that is reserved for questions and metadata (RFC 6895, section 3.1).
pub(crate) const LAST_META: u16 = 255;

/// The layout of the start of a type's data. It determines which names are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Number of bytes before the first compressible name.
    pub fixed: usize,
    /// Number of consecutive names that may be compressed. Only the types of RFC 1035 allow
    /// compression (RFC 3597, section 4).
    pub names: usize,
}

/// Returns the layout of the start of `rtype`'s data.
pub(crate) const fn layout(rtype: u16) -> Layout {
    let (fixed, names) = match rtype {
        // NS, MD, MF, CNAME, MB, MG, MR, PTR.
        NS | 3 | 4 | CNAME | 7 | 8 | 9 | PTR => (0, 1),
        // MINFO.
        SOA | 14 => (0, 2),
        MX => (2, 1),
        _ => (0, 0),
    };
    Layout { fixed, names }
}

/// Splits data of this type: the bytes before the names that may be compressed, these names, and the
/// rest.
pub(crate) fn split_data(rtype: u16, data: &[u8]) -> (&[u8], ArrayVec<&[u8], 2>, &[u8]) {
    let layout = layout(rtype);
    let (fixed, mut rest) = data.split_at(layout.fixed.min(data.len()));
    let mut names = ArrayVec::new();
    while names.len() < layout.names
        && let Some(len) = name::prefix_len(rest)
    {
        let (name, after) = rest.split_at(len);
        names.push(name);
        rest = after;
    }
    (fixed, names, rest)
}

/// Returns true if the canonical form of this type's data has names in lower case. See RFC 4034,
/// section 6.2, and its correction in RFC 6840, section 5.1.
pub(crate) const fn has_canonical_names(rtype: u16) -> bool {
    // Besides the types of RFC 1035: RP, AFSDB, RT, SIG, PX, NXT, KX and A6.
    let is_of_rfc1035 = layout(rtype).names > 0;
    is_of_rfc1035
        || matches!(
            rtype,
            17 | 18 | 21 | 24 | 26 | 30 | SRV | NAPTR | 36 | 38 | DNAME | RRSIG
        )
}

/// Returns the target: the name in a record's data whose addresses belong in the additional
/// section. Returns `None` if the type has no target, or if the target is the root.
///
/// See RFC 1034, section 4.3.2, step 6; RFC 2782; and RFC 9460, section 4.1.
pub(crate) fn target(rtype: u16, data: &[u8]) -> Option<&[u8]> {
    let start = match rtype {
        NS => 0,
        MX | SVCB | HTTPS => 2,
        SRV => 6,
        _ => return None,
    };
    let rest = data.get(start..)?;
    let target = &rest[..name::prefix_len(rest)?];
    (target != name::ROOT).then_some(target)
}

/// Returns true if a zone may hold records of this type.
pub(crate) const fn is_data(rtype: u16) -> bool {
    rtype != 0 && rtype != OPT && !(rtype >= FIRST_META && rtype <= LAST_META)
}

/// Returns the mnemonic of a type, or `TYPEn` (RFC 3597, section 5).
pub(crate) fn show(rtype: u16) -> String {
    match fields::of(rtype) {
        Some(form) => form.mnemonic().to_owned(),
        None => domain::base::iana::Rtype::from_int(rtype).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_returns_the_name_in_the_rdata() {
        assert_eq!(target(MX, b"\0\x0a\x01m\0"), Some(&b"\x01m\0"[..]));
        assert_eq!(
            target(SRV, b"\0\0\0\0\0\x35\0"),
            None,
            "a root target means no service"
        );
        assert_eq!(target(SRV, b"\0\0\0\0\0\x35\x01s\0"), Some(&b"\x01s\0"[..]));
        assert_eq!(target(A, b"\x01m\0\0"), None);
        assert_eq!(target(NS, b"\x05ab"), None, "truncated data");
    }

    #[test]
    fn is_data_excludes_meta_types() {
        assert!(is_data(A) && is_data(DS) && is_data(256) && is_data(65280));
        assert!(!is_data(OPT) && !is_data(ANY) && !is_data(AXFR) && !is_data(0));
    }

    #[test]
    fn only_types_of_zones_have_a_form() {
        let mut others = (0..=u16::MAX).filter(|rtype| !is_data(*rtype));
        assert!(others.all(|rtype| fields::of(rtype).is_none()));
    }
}
