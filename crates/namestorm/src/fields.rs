//! The fields of record data in master files.

use std::str::FromStr;

use domain::base::iana::Rtype;

/// The fields of each type's data, in order, as shown in error messages. If the word for a field
/// ends in `NAME`, the field is a domain name.
const FIELDS: [(Rtype, &str); 35] = [
    (Rtype::A, "ADDRESS"),
    (Rtype::NS, "SERVER-NAME"),
    (Rtype::MD, "HOST-NAME"),
    (Rtype::MF, "HOST-NAME"),
    (Rtype::CNAME, "TARGET-NAME"),
    (
        Rtype::SOA,
        "SERVER-NAME MAILBOX-NAME SERIAL REFRESH RETRY EXPIRE NEGATIVE-TTL",
    ),
    (Rtype::MB, "HOST-NAME"),
    (Rtype::MG, "MAILBOX-NAME"),
    (Rtype::MR, "MAILBOX-NAME"),
    (Rtype::PTR, "HOST-NAME"),
    (Rtype::HINFO, "CPU SYSTEM"),
    (Rtype::MINFO, "MAILBOX-NAME ERRORS-MAILBOX-NAME"),
    (Rtype::MX, "PREFERENCE HOST-NAME"),
    (Rtype::TXT, "\"TEXT\" ..."),
    (Rtype::RP, "MAILBOX-NAME TXT-NAME"),
    (Rtype::AAAA, "ADDRESS"),
    (Rtype::SRV, "PRIORITY WEIGHT PORT HOST-NAME"),
    (
        Rtype::NAPTR,
        "ORDER PREFERENCE FLAGS SERVICES REGEXP REPLACEMENT-NAME",
    ),
    (Rtype::DNAME, "TARGET-NAME"),
    (Rtype::DS, "KEY-TAG ALGORITHM DIGEST-TYPE DIGEST"),
    (Rtype::SSHFP, "ALGORITHM HASH-TYPE FINGERPRINT"),
    (
        Rtype::IPSECKEY,
        "PRECEDENCE GATEWAY-TYPE ALGORITHM GATEWAY-NAME KEY",
    ),
    (
        Rtype::RRSIG,
        "TYPE ALGORITHM LABELS TTL EXPIRATION INCEPTION KEY-TAG SIGNER-NAME SIGNATURE",
    ),
    (Rtype::NSEC, "NEXT-NAME TYPE ..."),
    (Rtype::DNSKEY, "FLAGS PROTOCOL ALGORITHM KEY"),
    (
        Rtype::NSEC3,
        "ALGORITHM FLAGS ITERATIONS SALT NEXT-HASH TYPE ...",
    ),
    (Rtype::NSEC3PARAM, "ALGORITHM FLAGS ITERATIONS SALT"),
    (Rtype::TLSA, "USAGE SELECTOR MATCHING-TYPE DATA"),
    (Rtype::CDS, "KEY-TAG ALGORITHM DIGEST-TYPE DIGEST"),
    (Rtype::CDNSKEY, "FLAGS PROTOCOL ALGORITHM KEY"),
    (Rtype::OPENPGPKEY, "KEY"),
    (Rtype::ZONEMD, "SERIAL SCHEME ALGORITHM DIGEST"),
    (Rtype::SVCB, "PRIORITY TARGET-NAME KEY=VALUE ..."),
    (Rtype::HTTPS, "PRIORITY TARGET-NAME KEY=VALUE ..."),
    (Rtype::CAA, "FLAGS TAG \"VALUE\""),
];

/// Returns the data fields of a type. `rtype` is a mnemonic or `TYPEn`. Returns an empty text if
/// [`FIELDS`] has no entry for the type.
pub(crate) fn of(rtype: &str) -> &'static str {
    let Ok(rtype) = Rtype::from_str(rtype) else {
        return "";
    };
    let found = FIELDS.iter().find(|(of, _)| *of == rtype);
    found.map_or("", |(_, fields)| fields)
}

/// Returns true if the field at `index` in `fields` is a domain name. The first field has index 0.
pub(crate) fn is_name(fields: &str, index: usize) -> bool {
    let field = fields.split(' ').nth(index);
    field.is_some_and(|field| field.ends_with("NAME"))
}

/// Returns the fields of a directive other than `$TTL`, or an empty text if the directive is
/// unknown.
pub(crate) fn of_directive(name: &str) -> &'static str {
    if name.eq_ignore_ascii_case("$ORIGIN") {
        "NAME"
    } else if name.eq_ignore_ascii_case("$INCLUDE") {
        "FILE NAME"
    } else {
        ""
    }
}
