//! The record types with a text form, and the fields of their data.
//!
//! This table says how data is written in master files, which data is valid, and where the names in
//! it are. The types come from the IANA registry. Types without a text form, and types that the
//! table lacks, are written as RFC 3597 says: `TYPEn \# LENGTH HEX`.

use std::str::FromStr;

use domain::base::iana::Rtype;

/// The kind of a field: its form in text and in wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// A domain name.
    Name,
    /// A number of 8 bits.
    U8,
    /// A number of 16 bits.
    U16,
    /// A number of 32 bits.
    U32,
    /// A number of 64 bits.
    U64,
    /// A number of seconds in 32 bits, in text perhaps with units.
    Seconds,
    /// A moment in 32 bits, in text as `YYYYMMDDHHMMSS` or as seconds since 1970.
    Date,
    /// A record type.
    Type,
    /// The flags of a KEY record in 16 bits, in text perhaps as mnemonics.
    KeyFlags,
    /// The protocol of a KEY record in 8 bits, in text perhaps as a mnemonic.
    KeyProtocol,
    /// An algorithm of DNSSEC in 8 bits, in text perhaps as a mnemonic.
    Algorithm,
    /// A type of certificate in 16 bits, in text perhaps as a mnemonic.
    Certificate,
    /// A scheme of DSYNC in 8 bits, in text perhaps as a mnemonic.
    Scheme,
    /// A character-string: a length byte and at most 255 bytes.
    Str,
    /// A character-string that may be missing.
    OptionalStr,
    /// One or more character-strings up to the end.
    Strs,
    /// At least one byte up to the end, in text one string.
    Text,
    /// Any number of bytes up to the end, in text one string.
    OptionalText,
    /// At least one byte up to the end, in hexadecimal.
    Hex,
    /// At least one byte up to the end, in base64.
    Base64,
    /// Any number of bytes up to the end, in base64. In text, `-` or nothing stands for no bytes.
    OptionalBase64,
    /// A bitmap of types (RFC 4034, section 4.1.2).
    Types,
    /// A bitmap of the types below 128 (RFC 2535, section 5.2).
    OldTypes,
    /// Eight bytes, in text four groups of hexadecimal digits with colons (RFC 6742).
    Locator,
    /// A number of bytes, in text pairs of hexadecimal digits with hyphens (RFC 7043).
    Eui(usize),
    /// A length byte and a salt (RFC 5155).
    Salt,
    /// A length byte and a hash (RFC 5155).
    Hash,
    /// A gateway, whose form depends on the second byte of the data (RFC 4025).
    Gateway,
    /// A flag, the type of a relay and the relay (RFC 8777).
    Relay,
    /// Latitude, longitude, altitude, size and precisions (RFC 1876).
    Location,
    /// Address prefixes (RFC 3123).
    Prefixes,
    /// A protocol and a bitmap of its ports (RFC 1035, section 3.4.2).
    Ports,
    /// An NSAP address (RFC 1706).
    Nsap,
    /// An ATM address (AF-DANS-0152).
    Atm,
    /// A host identity, its key and its rendezvous servers (RFC 8005).
    Host,
    /// The length of a prefix, a suffix of an address, and a name (RFC 2874).
    Suffix,
    /// Parameters of a service (RFC 9460).
    Params,
}

/// The end of the word of a field that is a list.
pub(crate) const LIST: &str = " ...";

/// A field's word, as shown in messages, and its kind. Some kinds have several words, because they
/// consist of several words in text.
pub(crate) type Field = (&'static str, Kind);

/// A record type and the fields of its data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    rtype: u16,
    mnemonic: &'static str,
    fields: &'static [Field],
    is_known_to_domain: bool,
}

impl Form {
    /// A type whose text form the `domain` crate parses.
    const fn known(rtype: Rtype, mnemonic: &'static str, fields: &'static [Field]) -> Self {
        Self {
            rtype: rtype.to_int(),
            mnemonic,
            fields,
            is_known_to_domain: true,
        }
    }

    /// A type whose text form the `domain` crate lacks.
    const fn lacking(rtype: Rtype, mnemonic: &'static str, fields: &'static [Field]) -> Self {
        Self {
            rtype: rtype.to_int(),
            mnemonic,
            fields,
            is_known_to_domain: false,
        }
    }

    /// Returns the type's number.
    pub(crate) fn rtype(&self) -> u16 {
        self.rtype
    }

    /// Returns the type's name.
    pub(crate) fn mnemonic(&self) -> &'static str {
        self.mnemonic
    }

    /// Returns the fields of the type's data, in order.
    pub(crate) fn fields(&self) -> &'static [Field] {
        self.fields
    }

    /// Returns true if the `domain` crate parses the text form of the data.
    pub(crate) fn is_known_to_domain(&self) -> bool {
        self.is_known_to_domain
    }

    /// Returns true if [`crate::rdata::text`] can read all fields.
    pub(crate) fn is_readable(&self) -> bool {
        let is_readable = |(_, kind): &Field| *kind != Kind::Params;
        self.fields.iter().all(is_readable)
    }

    /// Returns true if the field at `index` is a domain name. The first field has index 0.
    pub(crate) fn is_name(&self, index: usize) -> bool {
        let field = self.fields.get(index);
        field.is_some_and(|(_, kind)| matches!(kind, Kind::Name | Kind::Gateway))
    }

    /// Returns true if the field at `index` is a time. The first field has index 0.
    pub(crate) fn is_time(&self, index: usize) -> bool {
        let field = self.fields.get(index);
        field.is_some_and(|(_, kind)| *kind == Kind::Seconds)
    }

    /// Returns the type and the words of its fields, as a person writes them.
    pub(crate) fn usage(&self) -> String {
        let mut usage = self.mnemonic.to_owned();
        for (word, _) in self.fields {
            usage.push(' ');
            usage.push_str(word);
        }
        usage
    }
}

const ADDRESS4: &[Field] = &[("ADDRESS", Kind::Ipv4)];
const ADDRESS6: &[Field] = &[("ADDRESS", Kind::Ipv6)];
const HOST: &[Field] = &[("HOST-NAME", Kind::Name)];
const TARGET: &[Field] = &[("TARGET-NAME", Kind::Name)];
const MAILBOX: &[Field] = &[("MAILBOX-NAME", Kind::Name)];
const PREFERRED: &[Field] = &[("PREFERENCE", Kind::U16), ("HOST-NAME", Kind::Name)];
const LOCATOR: &[Field] = &[("PREFERENCE", Kind::U16), ("LOCATOR", Kind::Locator)];
const TEXTS: &[Field] = &[("\"TEXT\" ...", Kind::Strs)];
const HEX: &[Field] = &[("HEX", Kind::Hex)];
const BASE64: &[Field] = &[("BASE64", Kind::Base64)];
const SOA: &[Field] = &[
    ("SERVER-NAME", Kind::Name),
    ("MAILBOX-NAME", Kind::Name),
    ("SERIAL", Kind::U32),
    ("REFRESH", Kind::Seconds),
    ("RETRY", Kind::Seconds),
    ("EXPIRE", Kind::Seconds),
    ("NEGATIVE-TTL", Kind::Seconds),
];
const SRV: &[Field] = &[
    ("PRIORITY", Kind::U16),
    ("WEIGHT", Kind::U16),
    ("PORT", Kind::U16),
    ("HOST-NAME", Kind::Name),
];
const NAPTR: &[Field] = &[
    ("ORDER", Kind::U16),
    ("PREFERENCE", Kind::U16),
    ("FLAGS", Kind::Str),
    ("SERVICES", Kind::Str),
    ("REGEXP", Kind::Str),
    ("REPLACEMENT-NAME", Kind::Name),
];
const DIGEST: &[Field] = &[
    ("KEY-TAG", Kind::U16),
    ("ALGORITHM", Kind::Algorithm),
    ("DIGEST-TYPE", Kind::U8),
    ("DIGEST", Kind::Hex),
];
const KEY: &[Field] = &[
    ("FLAGS", Kind::U16),
    ("PROTOCOL", Kind::U8),
    ("ALGORITHM", Kind::Algorithm),
    ("KEY", Kind::Base64),
];
const OLD_KEY: &[Field] = &[
    ("FLAGS", Kind::KeyFlags),
    ("PROTOCOL", Kind::KeyProtocol),
    ("ALGORITHM", Kind::Algorithm),
    ("KEY", Kind::OptionalBase64),
];
const SIGNATURE: &[Field] = &[
    ("TYPE", Kind::Type),
    ("ALGORITHM", Kind::Algorithm),
    ("LABELS", Kind::U8),
    ("TTL", Kind::U32),
    ("EXPIRATION", Kind::Date),
    ("INCEPTION", Kind::Date),
    ("KEY-TAG", Kind::U16),
    ("SIGNER-NAME", Kind::Name),
    ("SIGNATURE", Kind::Base64),
];
const CERT: &[Field] = &[
    ("TYPE", Kind::Certificate),
    ("KEY-TAG", Kind::U16),
    ("ALGORITHM", Kind::Algorithm),
    ("CERTIFICATE", Kind::Base64),
];
const SSHFP: &[Field] = &[
    ("ALGORITHM", Kind::U8),
    ("HASH-TYPE", Kind::U8),
    ("FINGERPRINT", Kind::Hex),
];
const IPSECKEY: &[Field] = &[
    ("PRECEDENCE", Kind::U8),
    ("GATEWAY-TYPE", Kind::U8),
    ("ALGORITHM", Kind::U8),
    ("GATEWAY-NAME", Kind::Gateway),
    ("KEY", Kind::OptionalBase64),
];
const NSEC3: &[Field] = &[
    ("ALGORITHM", Kind::U8),
    ("FLAGS", Kind::U8),
    ("ITERATIONS", Kind::U16),
    ("SALT", Kind::Salt),
    ("NEXT-HASH", Kind::Hash),
    ("TYPE ...", Kind::Types),
];
const NSEC3PARAM: &[Field] = &[
    ("ALGORITHM", Kind::U8),
    ("FLAGS", Kind::U8),
    ("ITERATIONS", Kind::U16),
    ("SALT", Kind::Salt),
];
const TLSA: &[Field] = &[
    ("USAGE", Kind::U8),
    ("SELECTOR", Kind::U8),
    ("MATCHING-TYPE", Kind::U8),
    ("DATA", Kind::Hex),
];
const ZONEMD: &[Field] = &[
    ("SERIAL", Kind::U32),
    ("SCHEME", Kind::U8),
    ("ALGORITHM", Kind::U8),
    ("DIGEST", Kind::Hex),
];
const SERVICE: &[Field] = &[
    ("PRIORITY", Kind::U16),
    ("TARGET-NAME", Kind::Name),
    ("KEY=VALUE ...", Kind::Params),
];
const DOA: &[Field] = &[
    ("ENTERPRISE", Kind::U32),
    ("TYPE", Kind::U32),
    ("LOCATION", Kind::U8),
    ("\"MEDIA-TYPE\"", Kind::Str),
    ("BASE64", Kind::OptionalBase64),
];

/// All types with a text form, ordered by number.
static FORMS: &[Form] = &[
    Form::known(Rtype::A, "A", ADDRESS4),
    Form::known(Rtype::NS, "NS", &[("SERVER-NAME", Kind::Name)]),
    Form::known(Rtype::MD, "MD", HOST),
    Form::known(Rtype::MF, "MF", HOST),
    Form::known(Rtype::CNAME, "CNAME", TARGET),
    Form::known(Rtype::SOA, "SOA", SOA),
    Form::known(Rtype::MB, "MB", HOST),
    Form::known(Rtype::MG, "MG", MAILBOX),
    Form::known(Rtype::MR, "MR", MAILBOX),
    Form::lacking(
        Rtype::WKS,
        "WKS",
        &[("ADDRESS", Kind::Ipv4), ("PROTOCOL PORT ...", Kind::Ports)],
    ),
    Form::known(Rtype::PTR, "PTR", HOST),
    Form::known(
        Rtype::HINFO,
        "HINFO",
        &[("CPU", Kind::Str), ("SYSTEM", Kind::Str)],
    ),
    Form::known(
        Rtype::MINFO,
        "MINFO",
        &[
            ("MAILBOX-NAME", Kind::Name),
            ("ERRORS-MAILBOX-NAME", Kind::Name),
        ],
    ),
    Form::known(Rtype::MX, "MX", PREFERRED),
    Form::known(Rtype::TXT, "TXT", TEXTS),
    Form::known(
        Rtype::RP,
        "RP",
        &[("MAILBOX-NAME", Kind::Name), ("TXT-NAME", Kind::Name)],
    ),
    Form::lacking(
        Rtype::AFSDB,
        "AFSDB",
        &[("SUBTYPE", Kind::U16), ("HOST-NAME", Kind::Name)],
    ),
    Form::lacking(Rtype::X25, "X25", &[("NUMBER", Kind::Str)]),
    Form::lacking(
        Rtype::ISDN,
        "ISDN",
        &[("NUMBER", Kind::Str), ("[SUBADDRESS]", Kind::OptionalStr)],
    ),
    Form::lacking(Rtype::RT, "RT", PREFERRED),
    Form::lacking(Rtype::NSAP, "NSAP", &[("ADDRESS", Kind::Nsap)]),
    Form::lacking(Rtype::NSAPPTR, "NSAP-PTR", HOST),
    Form::lacking(Rtype::SIG, "SIG", SIGNATURE),
    Form::lacking(Rtype::KEY, "KEY", OLD_KEY),
    Form::lacking(
        Rtype::PX,
        "PX",
        &[
            ("PREFERENCE", Kind::U16),
            ("RFC822-NAME", Kind::Name),
            ("X400-NAME", Kind::Name),
        ],
    ),
    Form::lacking(
        Rtype::GPOS,
        "GPOS",
        &[
            ("LONGITUDE", Kind::Str),
            ("LATITUDE", Kind::Str),
            ("ALTITUDE", Kind::Str),
        ],
    ),
    Form::known(Rtype::AAAA, "AAAA", ADDRESS6),
    Form::lacking(
        Rtype::LOC,
        "LOC",
        &[(
            "DEGREES [MINUTES [SECONDS]] N|S DEGREES [MINUTES [SECONDS]] E|W ALTITUDE \
             [SIZE [HORIZONTAL-PRECISION [VERTICAL-PRECISION]]]",
            Kind::Location,
        )],
    ),
    Form::lacking(
        Rtype::NXT,
        "NXT",
        &[("NEXT-NAME", Kind::Name), ("TYPE ...", Kind::OldTypes)],
    ),
    Form::lacking(Rtype::EID, "EID", HEX),
    Form::lacking(Rtype::NIMLOC, "NIMLOC", HEX),
    Form::known(Rtype::SRV, "SRV", SRV),
    Form::lacking(Rtype::ATMA, "ATMA", &[("ADDRESS", Kind::Atm)]),
    Form::known(Rtype::NAPTR, "NAPTR", NAPTR),
    Form::lacking(Rtype::KX, "KX", PREFERRED),
    Form::lacking(Rtype::CERT, "CERT", CERT),
    Form::lacking(
        Rtype::A6,
        "A6",
        &[("PREFIX-LENGTH SUFFIX PREFIX-NAME", Kind::Suffix)],
    ),
    Form::known(Rtype::DNAME, "DNAME", TARGET),
    Form::lacking(
        Rtype::SINK,
        "SINK",
        &[
            ("MEANING", Kind::U8),
            ("CODING", Kind::U8),
            ("SUBCODING", Kind::U8),
            ("BASE64", Kind::OptionalBase64),
        ],
    ),
    Form::lacking(Rtype::APL, "APL", &[("PREFIX ...", Kind::Prefixes)]),
    Form::known(Rtype::DS, "DS", DIGEST),
    Form::known(Rtype::SSHFP, "SSHFP", SSHFP),
    Form::known(Rtype::IPSECKEY, "IPSECKEY", IPSECKEY),
    Form::known(Rtype::RRSIG, "RRSIG", SIGNATURE),
    Form::known(
        Rtype::NSEC,
        "NSEC",
        &[("NEXT-NAME", Kind::Name), ("TYPE ...", Kind::Types)],
    ),
    Form::known(Rtype::DNSKEY, "DNSKEY", KEY),
    Form::lacking(Rtype::DHCID, "DHCID", BASE64),
    Form::known(Rtype::NSEC3, "NSEC3", NSEC3),
    Form::known(Rtype::NSEC3PARAM, "NSEC3PARAM", NSEC3PARAM),
    Form::known(Rtype::TLSA, "TLSA", TLSA),
    Form::lacking(Rtype::SMIMEA, "SMIMEA", TLSA),
    Form::lacking(
        Rtype::HIP,
        "HIP",
        &[("ALGORITHM HIT KEY [SERVER-NAME ...]", Kind::Host)],
    ),
    Form::lacking(Rtype::NINFO, "NINFO", TEXTS),
    Form::lacking(Rtype::RKEY, "RKEY", KEY),
    Form::lacking(
        Rtype::TALINK,
        "TALINK",
        &[("PREVIOUS-NAME", Kind::Name), ("NEXT-NAME", Kind::Name)],
    ),
    Form::known(Rtype::CDS, "CDS", DIGEST),
    Form::known(Rtype::CDNSKEY, "CDNSKEY", KEY),
    Form::known(Rtype::OPENPGPKEY, "OPENPGPKEY", BASE64),
    Form::lacking(
        Rtype::CSYNC,
        "CSYNC",
        &[
            ("SERIAL", Kind::U32),
            ("FLAGS", Kind::U16),
            ("TYPE ...", Kind::Types),
        ],
    ),
    Form::known(Rtype::ZONEMD, "ZONEMD", ZONEMD),
    Form::known(Rtype::SVCB, "SVCB", SERVICE),
    Form::known(Rtype::HTTPS, "HTTPS", SERVICE),
    Form::lacking(
        Rtype::DSYNC,
        "DSYNC",
        &[
            ("TYPE", Kind::Type),
            ("SCHEME", Kind::Scheme),
            ("PORT", Kind::U16),
            ("TARGET-NAME", Kind::Name),
        ],
    ),
    Form::lacking(Rtype::HHIT, "HHIT", BASE64),
    Form::lacking(Rtype::BRID, "BRID", BASE64),
    Form::lacking(Rtype::SPF, "SPF", TEXTS),
    Form::lacking(Rtype::NID, "NID", LOCATOR),
    Form::lacking(
        Rtype::L32,
        "L32",
        &[("PREFERENCE", Kind::U16), ("LOCATOR", Kind::Ipv4)],
    ),
    Form::lacking(Rtype::L64, "L64", LOCATOR),
    Form::lacking(Rtype::LP, "LP", PREFERRED),
    Form::lacking(Rtype::EUI48, "EUI48", &[("ADDRESS", Kind::Eui(6))]),
    Form::lacking(Rtype::EUI64, "EUI64", &[("ADDRESS", Kind::Eui(8))]),
    Form::lacking(
        Rtype::URI,
        "URI",
        &[
            ("PRIORITY", Kind::U16),
            ("WEIGHT", Kind::U16),
            ("\"TARGET\"", Kind::Text),
        ],
    ),
    Form::known(
        Rtype::CAA,
        "CAA",
        &[
            ("FLAGS", Kind::U8),
            ("TAG", Kind::Str),
            ("\"VALUE\"", Kind::OptionalText),
        ],
    ),
    Form::lacking(Rtype::AVC, "AVC", TEXTS),
    Form::lacking(Rtype::DOA, "DOA", DOA),
    Form::lacking(
        Rtype::AMTRELAY,
        "AMTRELAY",
        &[
            ("PRECEDENCE", Kind::U8),
            ("DISCOVERY RELAY-TYPE RELAY", Kind::Relay),
        ],
    ),
    Form::lacking(Rtype::RESINFO, "RESINFO", TEXTS),
    Form::lacking(Rtype::WALLET, "WALLET", TEXTS),
    Form::lacking(Rtype::CLA, "CLA", TEXTS),
    Form::lacking(Rtype::IPN, "IPN", &[("NUMBER", Kind::U64)]),
    Form::lacking(Rtype::TA, "TA", DIGEST),
    Form::lacking(Rtype::DLV, "DLV", DIGEST),
];

/// The index in [`FORMS`] of each type below the table's length, or [`NO_FORM`]. Forms are looked
/// up for each record, and a search takes longer.
static INDICES: [u8; 272] = indices();
const NO_FORM: u8 = u8::MAX;

const fn indices<const N: usize>() -> [u8; N] {
    assert!(FORMS.len() < NO_FORM as usize);
    let mut indices = [NO_FORM; N];
    let mut at = 0;
    while at < FORMS.len() {
        let rtype = FORMS[at].rtype as usize;
        if rtype < N {
            indices[rtype] = at as u8;
        }
        at += 1;
    }
    indices
}

/// Returns the form of a type, if the type has one.
pub(crate) fn of(rtype: u16) -> Option<&'static Form> {
    match INDICES.get(usize::from(rtype)) {
        Some(at) => FORMS.get(usize::from(*at)),
        None => FORMS.iter().rfind(|form| form.rtype == rtype),
    }
}

/// Returns the number of a type. `text` is a mnemonic in any case, or `TYPEn`.
pub(crate) fn number(text: &str) -> Option<u16> {
    match of_mnemonic(text) {
        Some(form) => Some(form.rtype),
        None => Rtype::from_str(text).ok().map(Rtype::to_int),
    }
}

/// Returns the form of the type that `text` names, if the type has one.
pub(crate) fn of_text(text: &str) -> Option<&'static Form> {
    of_mnemonic(text).or_else(|| of(number(text)?))
}

fn of_mnemonic(text: &str) -> Option<&'static Form> {
    let is_named = |form: &&Form| form.mnemonic.eq_ignore_ascii_case(text);
    FORMS.iter().find(is_named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtype;

    #[test]
    fn each_type_has_an_example() {
        let examples = include_str!("../tests/queries/zone_text/types.txt");
        for form in FORMS {
            let start = format!("{} ", form.mnemonic);
            let mut lines = examples.lines();
            assert!(lines.any(|line| line.starts_with(&start)), "{start}");
        }
    }

    /// The `domain` crate knows the names of all types in the registry.
    #[test]
    fn each_type_of_the_registry_has_a_form_unless_it_has_no_text() {
        let is_named = |rtype: &u16| Rtype::from_int(*rtype).to_mnemonic().is_some();
        let (data, meta): (Vec<_>, Vec<_>) = (1..=u16::MAX)
            .filter(is_named)
            .partition(|rtype| rtype::is_data(*rtype));
        let names = |types: Vec<u16>| types.into_iter().map(rtype::show).collect::<Vec<_>>();
        let without = data.into_iter().filter(|rtype| of(*rtype).is_none());
        let expected = ["NULL", "UINFO", "UID", "GID", "UNSPEC"];
        assert_eq!(names(without.collect()), expected);
        for (rtype, name) in (100..).zip(&expected[1..]) {
            assert_eq!(number(name), Some(rtype));
        }
        assert_eq!(
            names(meta),
            [
                "OPT", "NXNAME", "TKEY", "TSIG", "IXFR", "AXFR", "MAILB", "MAILA", "ANY"
            ]
        );
    }

    #[test]
    fn types_are_found_by_number_and_name() {
        assert!(FORMS.is_sorted_by(|a, b| a.rtype < b.rtype));
        for form in FORMS {
            assert_eq!(of(form.rtype).unwrap().mnemonic, form.mnemonic);
            let lower = form.mnemonic.to_ascii_lowercase();
            assert_eq!(number(&lower), Some(form.rtype));
            assert_eq!(number(&format!("type{}", form.rtype)), Some(form.rtype));
        }
        assert_eq!(number("TYPE65280"), Some(65_280));
        assert_eq!((number("NOTYPE"), number("TYPE65536")), (None, None));
        assert_eq!(of_text("mx").unwrap().usage(), "MX PREFERENCE HOST-NAME");
    }
}
