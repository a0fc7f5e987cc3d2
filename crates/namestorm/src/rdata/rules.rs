//! Rules about several fields of a type's data, or about the content of one.

use super::fault::Fault;
use crate::rtype::{CAA, CDNSKEY, CDS, DNSKEY, DS, ZONEMD};

const GPOS: u16 = 27;
const X25: u16 = 19;
const ISDN: u16 = 20;
const KEY: u16 = 25;
const SSHFP: u16 = 44;
const DHCID: u16 = 49;
const TLSA: u16 = 52;
const SMIMEA: u16 = 53;
const TA: u16 = 32_768;
const DLV: u16 = 32_769;

/// Checks data whose fields are complete.
pub(super) fn check(rtype: u16, data: &[u8]) -> Result<(), Fault> {
    match rtype {
        DS | CDS | TA | DLV => {
            // A CDS record with algorithm 0 asks to delete the DS records (RFC 8078, section 4).
            if rtype == CDS && data == [0, 0, 0, 0, 0] {
                return Ok(());
            }
            // RFC 4509, section 2; RFC 5933 and 9558, section 4; RFC 6605, section 2; RFC 9563.
            let expected = match data[3] {
                1 => 20,
                2 | 3 | 5 | 6 => 32,
                4 => 48,
                _ => return Ok(()),
            };
            digest("DIGEST", expected, &data[4..])
        }
        SSHFP => {
            let expected = match data[1] {
                1 => 20,
                2 => 32,
                _ => return Ok(()),
            };
            digest("FINGERPRINT", expected, &data[2..])
        }
        TLSA | SMIMEA => {
            let expected = match data[2] {
                1 => 32,
                2 => 64,
                _ => return Ok(()),
            };
            digest("DATA", expected, &data[3..])
        }
        ZONEMD => match (data[5], data[6..].len()) {
            (1, _) => digest("DIGEST", 48, &data[6..]),
            (2, _) => digest("DIGEST", 64, &data[6..]),
            // RFC 8976, section 2.2.4.
            (_, found) => rule(found >= 12, "DIGEST", "must have at least 12 bytes"),
        },
        // RFC 2535, section 3.1.2. The first two flags are NOKEY.
        KEY => {
            let has_key = data.len() > 4;
            let rule_of_flags = "must be missing with the flags NOKEY, and only then";
            rule(has_key != (data[0] >= 0xc0), "KEY", rule_of_flags)
        }
        // RFC 4034, section 2.1.2.
        DNSKEY | CDNSKEY => rule(data[2] == 3, "PROTOCOL", "must be 3"),
        // RFC 8659, section 4.1.
        CAA => {
            let tag = string(&data[1..]).0;
            let is_valid = !tag.is_empty() && tag.iter().all(u8::is_ascii_alphanumeric);
            rule(is_valid, "TAG", "must consist of letters and digits")
        }
        // RFC 1183, sections 3.1 and 3.2.
        X25 => {
            let is_valid = data.len() >= 5 && data[1..].iter().all(u8::is_ascii_digit);
            rule(
                is_valid,
                "NUMBER",
                "must have at least 4 digits, and no other characters",
            )
        }
        ISDN => rule(!string(data).0.is_empty(), "NUMBER", "must not be empty"),
        GPOS => position(data),
        // RFC 4701, section 3.1.
        DHCID => rule(data.len() > 3, "BASE64", "must hold at least 4 bytes"),
        _ => Ok(()),
    }
}

fn rule(holds: bool, word: &'static str, rule: &'static str) -> Result<(), Fault> {
    holds.then_some(()).ok_or(Fault::Rule { word, rule })
}

fn digest(word: &'static str, expected: usize, digest: &[u8]) -> Result<(), Fault> {
    let found = digest.len();
    if found == expected {
        return Ok(());
    }
    Err(Fault::Digest {
        word,
        expected,
        found,
    })
}

/// Returns the character-string at the start of `data`, and the data after it. The string must be
/// complete.
fn string(data: &[u8]) -> (&[u8], &[u8]) {
    match data.split_first() {
        Some((len, rest)) => rest.split_at(usize::from(*len)),
        None => (&[], &[]),
    }
}

/// Checks the three numbers of a geographical position (RFC 1712, section 3). Its text and its
/// example disagree about the order of longitude and latitude, so each may have 180 degrees.
fn position(data: &[u8]) -> Result<(), Fault> {
    let mut rest = data;
    for (word, max) in [
        ("LONGITUDE", 180.0),
        ("LATITUDE", 180.0),
        ("ALTITUDE", f64::MAX),
    ] {
        let (text, after) = string(rest);
        let is_decimal = |byte: &u8| byte.is_ascii_digit() || b"+-.".contains(byte);
        let number = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        let is_valid =
            text.iter().all(is_decimal) && number.is_some_and(|number: f64| number.abs() <= max);
        rule(is_valid, word, "must be a decimal number in its range")?;
        rest = after;
    }
    Ok(())
}
