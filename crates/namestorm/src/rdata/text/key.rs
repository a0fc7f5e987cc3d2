//! The flags and the protocol of a KEY record (RFC 2535, section 7.1).

use super::{Reader, TextFault, decimal};

const FLAGS: [(&str, u16); 15] = [
    ("NOCONF", 0x4000),
    ("NOAUTH", 0x8000),
    ("NOKEY", 0xc000),
    ("FLAG2", 0x2000),
    ("EXTEND", 0x1000),
    ("FLAG4", 0x0800),
    ("FLAG5", 0x0400),
    ("USER", 0),
    ("ZONE", 0x0100),
    ("HOST", 0x0200),
    ("NTYP3", 0x0300),
    ("FLAG8", 0x0080),
    ("FLAG9", 0x0040),
    ("FLAG10", 0x0020),
    ("FLAG11", 0x0010),
];
/// The largest number after `SIG`, the name of the last four flags.
const MAX_SIGNATORY: u64 = 15;
const PROTOCOLS: [(&str, u16); 6] = [
    ("NONE", 0),
    ("TLS", 1),
    ("EMAIL", 2),
    ("DNSSEC", 3),
    ("IPSEC", 4),
    ("ALL", 255),
];

impl Reader<'_> {
    /// Reads flags as a number or as names with `|` between them. As in BIND, the number may be in
    /// hexadecimal.
    pub(super) fn key_flags(&mut self) -> Result<(), TextFault> {
        const NEED: &str =
            "a number from 0 to 65535, 0x and hexadecimal digits, or names such as NOKEY|ZONE";
        let word = self.word()?;
        let number = hexadecimal(word).or_else(|| decimal(word));
        let number = number.and_then(|number| u16::try_from(number).ok());
        let named = || {
            let mut names = word.split('|').map(flag);
            names.try_fold(0, |flags, named| Some(flags | named?))
        };
        let flags = self.some(number.or_else(named), NEED)?;
        self.out.extend(flags.to_be_bytes());
        Ok(())
    }

    pub(super) fn key_protocol(&mut self) -> Result<(), TextFault> {
        const NEED: &str = "a number from 0 to 255, or a name such as DNSSEC";
        let protocol = self.numbered(&PROTOCOLS, 255, NEED)?;
        self.out.push(protocol as u8);
        Ok(())
    }
}

/// Reads a number after `0x`.
fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))?;
    let is_valid = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| is_valid)
}

/// Returns the flags with this name.
fn flag(name: &str) -> Option<u16> {
    let is_named = |(known, _): &&(&str, u16)| known.eq_ignore_ascii_case(name);
    if let Some((_, flags)) = FLAGS.iter().find(is_named) {
        return Some(*flags);
    }
    let (start, digits) = name.split_at_checked(3)?;
    let signatory = decimal(digits).filter(|number| *number <= MAX_SIGNATORY)?;
    start
        .eq_ignore_ascii_case("SIG")
        .then_some(signatory as u16)
}
