//! Reads the text form of data of the types that the `domain` crate lacks. For the other types, it
//! finds the word that the crate refuses.
//!
//! Words come from [`words`], and the `domain` crate reads names, escapes, hexadecimal and base64.

mod address;
mod key;
mod location;
mod params;

use std::fmt;

use data_encoding::BASE32HEX_NOPAD;
use domain::base::iana::SecurityAlgorithm;
use domain::base::name::UncertainName;
use domain::base::scan::{Symbol, Symbols};
use domain::rdata::dnssec::Timestamp;
use domain::utils::{base16, base64};

use crate::fields::{self, Form, Kind, LIST};
use crate::name;
use crate::words;

/// Maximum length of a character-string, in bytes (RFC 1035, section 3.3).
const MAX_STRING: usize = 255;
/// Mnemonics of the types of certificates (RFC 4398, section 2.1).
const CERTIFICATES: [(&str, u16); 10] = [
    ("PKIX", 1),
    ("SPKI", 2),
    ("PGP", 3),
    ("IPKIX", 4),
    ("ISPKI", 5),
    ("IPGP", 6),
    ("ACPKIX", 7),
    ("IACPKIX", 8),
    ("URI", 253),
    ("OID", 254),
];

/// Names of the schemes of a DSYNC record (RFC 9859, section 2.1).
const SCHEMES: [(&str, u16); 1] = [("NOTIFY", 1)];

/// Why a text is not valid data. Each `index` is the index of a word of the data, from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TextFault {
    /// Words are missing at the end.
    Missing,
    /// There are more words than fields.
    Extra { index: usize },
    /// A relative name is used without an origin.
    NoOrigin { index: usize },
    /// An escape is neither a backslash with three digits nor one with another character.
    Escape { index: usize },
    /// A control character is not written as an escape.
    Control { index: usize },
    /// The string is too long.
    LongString { index: usize },
    /// The data is too long.
    LongData,
    /// A parameter of a service breaks this rule.
    Param { index: usize, rule: &'static str },
    /// The field cannot be read here, but no fault was found in it.
    Unread,
    /// A word is not what the field needs.
    Wrong {
        index: usize,
        field: &'static str,
        need: &'static str,
    },
}

impl fmt::Display for TextFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("fields are missing at the end"),
            Self::Extra { .. } => f.write_str("more fields than the record type has"),
            Self::NoOrigin { .. } => f.write_str(
                "a relative name without an origin: give ORIGIN=FILE, or an $ORIGIN",
            ),
            Self::Escape { .. } => f.write_str(
                "an escape is \\ and three digits, \\000 to \\255, or \\ before any other character",
            ),
            Self::Control { .. } => f.write_str(
                "a control character is allowed only as an escape, \\ and three digits",
            ),
            Self::LongString { .. } => f.write_str(
                "a string has at most 255 bytes; write a longer text as several quoted strings",
            ),
            Self::LongData => f.write_str("data has at most 65535 bytes"),
            Self::Param { rule, .. } => f.write_str(rule),
            Self::Unread => f.write_str("the data is not valid"),
            Self::Wrong { field, need, .. } => match field.strip_suffix(LIST) {
                Some(item) => write!(f, "each {item} must be {need}"),
                None => write!(f, "{field} must be {need}"),
            },
        }
    }
}

impl TextFault {
    /// Returns true if the form of the data helps to correct the fault.
    pub(crate) fn is_about_form(&self) -> bool {
        matches!(
            self,
            Self::Missing | Self::Extra { .. } | Self::Wrong { .. }
        )
    }

    /// Returns the index of the word with the fault. Returns `None` if no single word is wrong.
    pub(crate) fn index(&self) -> Option<usize> {
        match self {
            Self::Missing | Self::LongData | Self::Unread => None,
            Self::Extra { index }
            | Self::NoOrigin { index }
            | Self::Escape { index }
            | Self::Control { index }
            | Self::LongString { index }
            | Self::Param { index, .. }
            | Self::Wrong { index, .. } => Some(*index),
        }
    }
}

/// Reads the words of one record's data.
struct Reader<'w> {
    words: &'w [&'w str],
    index: usize,
    /// The origin in wire format.
    origin: Option<&'w [u8]>,
    /// The word of the present field.
    field: &'static str,
    out: Vec<u8>,
}

/// Reads data whose words are `words`, with their quotes. `origin` is in wire format. Returns the
/// data in wire format.
///
/// # Errors
///
/// Returns the first fault.
pub(crate) fn parse(
    form: &Form,
    words: &[&str],
    origin: Option<&[u8]>,
) -> Result<Vec<u8>, TextFault> {
    let mut reader = Reader {
        words,
        index: 0,
        origin,
        field: "",
        out: Vec::new(),
    };
    for (field, kind) in form.fields() {
        reader.field = field;
        reader.field(*kind)?;
    }
    let index = reader.index;
    if index < words.len() {
        return Err(TextFault::Extra { index });
    }
    if reader.out.len() > usize::from(u16::MAX) {
        return Err(TextFault::LongData);
    }
    Ok(reader.out)
}

impl<'w> Reader<'w> {
    /// Reads the words of one field.
    fn field(&mut self, kind: Kind) -> Result<(), TextFault> {
        match kind {
            Kind::U8 => {
                let number = self.number(u64::from(u8::MAX), "a number from 0 to 255")?;
                self.out.push(number as u8);
            }
            Kind::U16 => self.u16()?,
            Kind::U32 => {
                let number = self.number(u64::from(u32::MAX), "a number from 0 to 4294967295")?;
                self.out.extend((number as u32).to_be_bytes());
            }
            Kind::U64 => {
                let number = self.number(u64::MAX, "a number below 2^64")?;
                self.out.extend(number.to_be_bytes());
            }
            Kind::Seconds | Kind::Date => self.time(kind)?,
            Kind::Type => {
                let rtype = fields::number(self.word()?);
                let rtype = self.some(rtype, "a record type, such as A or TYPE65280")?;
                self.out.extend(rtype.to_be_bytes());
            }
            Kind::KeyFlags => self.key_flags()?,
            Kind::KeyProtocol => self.key_protocol()?,
            Kind::Algorithm => self.algorithm()?,
            Kind::Certificate => self.certificate()?,
            Kind::Scheme => self.scheme()?,
            Kind::Name => self.name()?,
            Kind::OptionalStr | Kind::OptionalBase64 if self.rest().is_empty() => {}
            Kind::Str | Kind::OptionalStr => self.string()?,
            Kind::Strs => {
                self.string()?;
                while !self.rest().is_empty() {
                    self.string()?;
                }
            }
            Kind::Text | Kind::OptionalText => {
                let text = self.octets()?;
                let text = Some(text).filter(|text| kind == Kind::OptionalText || !text.is_empty());
                let text = self.some(text, "a text that is not empty")?;
                self.out.extend(text);
            }
            Kind::Hex => self.hex()?,
            Kind::OptionalBase64 if *self.rest() == ["-"] => self.index += 1,
            Kind::Base64 | Kind::OptionalBase64 => self.base64()?,
            Kind::Types => self.types()?,
            Kind::OldTypes => self.old_types()?,
            Kind::Locator => self.locator()?,
            Kind::Eui(len) => self.eui(len)?,
            Kind::Location => self.location()?,
            Kind::Ipv4 => self.ipv4()?,
            Kind::Ipv6 => self.ipv6()?,
            Kind::Relay => self.relay()?,
            Kind::Prefixes => self.prefixes()?,
            Kind::Ports => self.ports()?,
            Kind::Nsap => self.nsap()?,
            Kind::Atm => self.atm()?,
            Kind::Host => self.host()?,
            Kind::Suffix => self.suffix()?,
            Kind::Gateway => self.gateway()?,
            Kind::Salt => self.salt()?,
            Kind::Hash => self.hash()?,
            // Only the `domain` crate reads parameters.
            Kind::Params => {
                self.params()?;
                return Err(TextFault::Unread);
            }
        }
        Ok(())
    }

    /// Returns the words that are not read yet.
    fn rest(&self) -> &'w [&'w str] {
        &self.words[self.index..]
    }

    /// Takes the next word, with its quotes.
    fn raw(&mut self) -> Result<&'w str, TextFault> {
        let word = self.words.get(self.index).ok_or(TextFault::Missing)?;
        self.index += 1;
        Ok(word)
    }

    /// Takes the next word, without its quotes.
    fn word(&mut self) -> Result<&'w str, TextFault> {
        self.raw().map(words::content)
    }

    /// The fault that the word just taken is not what the field needs.
    fn wrong(&self, need: &'static str) -> TextFault {
        TextFault::Wrong {
            index: self.index.saturating_sub(1),
            field: self.field,
            need,
        }
    }

    fn some<T>(&self, value: Option<T>, need: &'static str) -> Result<T, TextFault> {
        value.ok_or_else(|| self.wrong(need))
    }

    fn number(&mut self, max: u64, need: &'static str) -> Result<u64, TextFault> {
        let number = decimal(self.word()?).filter(|number| *number <= max);
        self.some(number, need)
    }

    fn u16(&mut self) -> Result<(), TextFault> {
        let number = self.number(u64::from(u16::MAX), "a number from 0 to 65535")?;
        self.out.extend((number as u16).to_be_bytes());
        Ok(())
    }

    fn time(&mut self, kind: Kind) -> Result<(), TextFault> {
        let time = if kind == Kind::Date {
            let time = self.word()?.parse().ok();
            let time = time.map(|time: Timestamp| time.into_int());
            self.some(time, "a time as YYYYMMDDHHMMSS, or in seconds since 1970")?
        } else {
            self.number(u64::from(u32::MAX), "a number of seconds")? as u32
        };
        self.out.extend(time.to_be_bytes());
        Ok(())
    }

    fn algorithm(&mut self) -> Result<(), TextFault> {
        let word = self.word()?;
        let number = decimal(word).and_then(|number| u8::try_from(number).ok());
        let upper = word.to_ascii_uppercase();
        let known = || SecurityAlgorithm::from_mnemonic(upper.as_bytes());
        let number = number.or_else(|| known().map(SecurityAlgorithm::to_int));
        let number = self.some(
            number,
            "a number from 0 to 255, or a name such as RSASHA256",
        )?;
        self.out.push(number);
        Ok(())
    }

    /// Reads a number up to `max`, or one of the names of numbers.
    fn numbered(
        &mut self,
        names: &[(&str, u16)],
        max: u16,
        need: &'static str,
    ) -> Result<u16, TextFault> {
        let word = self.word()?;
        let number = decimal(word).and_then(|number| u16::try_from(number).ok());
        let named = names
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(word));
        let number = number.or(named.map(|(_, number)| *number));
        self.some(number.filter(|number| *number <= max), need)
    }

    fn certificate(&mut self) -> Result<(), TextFault> {
        const NEED: &str = "a number from 0 to 65535, or a name such as PKIX";
        let number = self.numbered(&CERTIFICATES, u16::MAX, NEED)?;
        self.out.extend(number.to_be_bytes());
        Ok(())
    }

    fn scheme(&mut self) -> Result<(), TextFault> {
        let number = self.numbered(&SCHEMES, 255, "a number from 0 to 255, or NOTIFY")?;
        self.out.push(number as u8);
        Ok(())
    }

    fn name(&mut self) -> Result<(), TextFault> {
        const NEED: &str = "a domain name with labels of 1 to 63 bytes, at most 255 bytes long";
        let word = self.raw()?;
        let index = self.index - 1;
        let start = self.out.len();
        if word == "@" || word == "\"\"" {
            let origin = self.origin.ok_or(TextFault::NoOrigin { index })?;
            self.out.extend(origin);
            return Ok(());
        }
        if word == "." {
            self.out.extend(name::ROOT);
            return Ok(());
        }
        match UncertainName::<Vec<u8>>::from_chars(words::content(word).chars()) {
            Ok(UncertainName::Absolute(name)) => self.out.extend(name.as_slice()),
            Ok(UncertainName::Relative(name)) => {
                let origin = self.origin.ok_or(TextFault::NoOrigin { index })?;
                self.out.extend(name.as_slice());
                self.out.extend(origin);
            }
            Err(_) => return Err(self.wrong(NEED)),
        }
        let is_valid = name::is_name(&self.out[start..]);
        self.some(is_valid.then_some(()), NEED)
    }

    /// Takes the next word and decodes its escapes.
    fn octets(&mut self) -> Result<Vec<u8>, TextFault> {
        let word = self.word()?;
        let index = self.index - 1;
        let mut symbols = Symbols::new(word.chars());
        let octets: Result<Vec<u8>, _> = symbols.by_ref().map(Symbol::into_octet).collect();
        match (octets, symbols.ok()) {
            (Ok(octets), Ok(())) => Ok(octets),
            (Err(_), _) => Err(TextFault::Control { index }),
            (_, Err(_)) => Err(TextFault::Escape { index }),
        }
    }

    fn string(&mut self) -> Result<(), TextFault> {
        let octets = self.octets()?;
        let index = self.index - 1;
        if octets.len() > MAX_STRING {
            return Err(TextFault::LongString { index });
        }
        self.out.push(octets.len() as u8);
        self.out.extend(octets);
        Ok(())
    }

    /// Takes all remaining words, which must be at least one, and joins them.
    fn joined(&mut self) -> Result<String, TextFault> {
        let mut joined = self.word()?.to_owned();
        while !self.rest().is_empty() {
            joined.push_str(self.word()?);
        }
        Ok(joined)
    }

    fn hex(&mut self) -> Result<(), TextFault> {
        let digits = self.joined()?;
        let bytes = base16::decode_vec(&digits).ok();
        let bytes = bytes.filter(|bytes| !bytes.is_empty());
        let bytes = self.some(bytes, "an even number of hexadecimal digits")?;
        self.out.extend(bytes);
        Ok(())
    }

    /// Reads a salt: a hyphen, or hexadecimal digits (RFC 5155, section 3.3).
    fn salt(&mut self) -> Result<(), TextFault> {
        let word = self.word()?;
        let bytes = if word == "-" {
            Some(Vec::new())
        } else {
            base16::decode_vec(word).ok()
        };
        let bytes = bytes.filter(|bytes| bytes.len() <= MAX_STRING);
        let bytes = self.some(bytes, "-, or an even number of hexadecimal digits")?;
        self.out.push(bytes.len() as u8);
        self.out.extend(bytes);
        Ok(())
    }

    /// Reads the hash of the next owner (RFC 5155, section 3.3).
    fn hash(&mut self) -> Result<(), TextFault> {
        let word = self.word()?.to_ascii_uppercase();
        let bytes = BASE32HEX_NOPAD.decode(word.as_bytes()).ok();
        let bytes = bytes.filter(|bytes| (1..=MAX_STRING).contains(&bytes.len()));
        let bytes = self.some(
            bytes,
            "a hash in base 32, with the digits 0 to 9 and A to V",
        )?;
        self.out.push(bytes.len() as u8);
        self.out.extend(bytes);
        Ok(())
    }

    fn base64(&mut self) -> Result<(), TextFault> {
        let digits = self.joined()?;
        let bytes: Option<Vec<u8>> = base64::decode(&digits).ok();
        let bytes = bytes.filter(|bytes| !bytes.is_empty());
        let bytes = self.some(bytes, "whole groups of 4 characters in base64")?;
        self.out.extend(bytes);
        Ok(())
    }

    /// Reads types up to the end, and sorts them.
    fn type_list(&mut self, max: u16, need: &'static str) -> Result<Vec<u16>, TextFault> {
        let mut types = Vec::new();
        while !self.rest().is_empty() {
            let rtype = fields::number(self.word()?).filter(|rtype| (1..=max).contains(rtype));
            types.push(self.some(rtype, need)?);
        }
        types.sort_unstable();
        Ok(types)
    }

    fn types(&mut self) -> Result<(), TextFault> {
        let types = self.type_list(u16::MAX, "a record type, such as A, NS or TYPE65280")?;
        for block in types.chunk_by(|a, b| a >> 8 == b >> 8) {
            let start = self.out.len() + 2;
            let last = usize::from(block[block.len() - 1] & 0xff);
            self.out
                .extend([(block[0] >> 8) as u8, (last / 8 + 1) as u8]);
            self.bitmap(start, block);
        }
        Ok(())
    }

    fn old_types(&mut self) -> Result<(), TextFault> {
        let types = self.type_list(127, "a record type below 128, such as A or NS")?;
        let start = self.out.len();
        if types.is_empty() {
            return Err(TextFault::Missing);
        }
        self.bitmap(start, &types);
        Ok(())
    }

    /// Sets a bit for each number in `bits`, which are sorted. Only their lowest 8 bits count.
    fn bitmap(&mut self, start: usize, bits: &[u16]) {
        for bit in bits.iter().map(|bit| usize::from(bit & 0xff)) {
            self.out.resize(start + bit / 8 + 1, 0);
            self.out[start + bit / 8] |= 0x80 >> (bit % 8);
        }
    }

    fn locator(&mut self) -> Result<(), TextFault> {
        let word = self.word()?;
        let group = |digits: &str| {
            let is_valid = digits.len() <= 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            u16::from_str_radix(digits, 16).ok().filter(|_| is_valid)
        };
        let groups: Option<Vec<u16>> = word.split(':').map(group).collect();
        let groups = groups.filter(|groups| groups.len() == 4);
        let groups = self.some(groups, "four hexadecimal groups such as 14:4fff:ff20:ee64")?;
        self.out
            .extend(groups.into_iter().flat_map(u16::to_be_bytes));
        Ok(())
    }

    fn eui(&mut self, len: usize) -> Result<(), TextFault> {
        let word = self.word()?;
        let pair = |digits: &str| {
            let is_valid = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            u8::from_str_radix(digits, 16).ok().filter(|_| is_valid)
        };
        let pairs: Option<Vec<u8>> = word.split('-').map(pair).collect();
        let pairs = pairs.filter(|pairs| pairs.len() == len);
        let need = if len == 6 {
            "six pairs of hexadecimal digits such as 00-00-5e-00-53-2a"
        } else {
            "eight pairs of hexadecimal digits such as 00-00-5e-ef-10-00-00-2a"
        };
        let pairs = self.some(pairs, need)?;
        self.out.extend(pairs);
        Ok(())
    }
}

/// Reads a number that consists of digits only.
fn decimal(text: &str) -> Option<u64> {
    let is_valid = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_valid)
}
