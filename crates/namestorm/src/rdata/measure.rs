//! The length of each kind of field in wire format.

use std::ops::Range;

use crate::fields::Kind;
use crate::name;

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// The data ends within the field.
    Short,
    /// The field breaks this rule.
    Rule(&'static str),
}

/// A length in bytes, or a flaw.
type Measured = Result<usize, Flaw>;

const WHOLE_NAME: Flaw = Flaw::Rule("must be a whole name without compression");
/// The largest distance of a latitude from the equator, in thousandths of a second of arc.
pub(super) const MAX_LATITUDE: u32 = 90 * 3_600_000;
/// The largest distance of a longitude from the prime meridian, in thousandths of a second of arc.
pub(super) const MAX_LONGITUDE: u32 = 180 * 3_600_000;
/// The value of a latitude or longitude of zero (RFC 1876, section 2).
pub(super) const ZERO_ANGLE: u32 = 1 << 31;
/// Maximum length of a protocol and the bitmap of its ports, in bytes.
const MAX_PORTS: usize = 1 + 65_536 / 8;
/// The length of an A6 record's address, in bits.
const ADDRESS_BITS: usize = 128;

/// Returns the length in bytes of the field that starts at `at`.
pub(super) fn measure(kind: Kind, data: &[u8], at: usize) -> Measured {
    let rest = data.get(at..).ok_or(Flaw::Short)?;
    match kind {
        Kind::U8 | Kind::KeyProtocol | Kind::Algorithm | Kind::Scheme => fixed(rest, 1),
        Kind::U16 | Kind::KeyFlags | Kind::Type | Kind::Certificate => fixed(rest, 2),
        Kind::U32 | Kind::Seconds | Kind::Date | Kind::Ipv4 => fixed(rest, 4),
        Kind::U64 | Kind::Locator => fixed(rest, 8),
        Kind::Ipv6 => fixed(rest, 16),
        Kind::Eui(len) => fixed(rest, len),
        Kind::Name => name::prefix_len(rest).ok_or(WHOLE_NAME),
        Kind::Strs => strings(rest),
        Kind::Hash if rest.first() == Some(&0) => Err(Flaw::Rule("must not be empty")),
        Kind::OptionalStr if rest.is_empty() => Ok(0),
        Kind::Str | Kind::OptionalStr | Kind::Salt | Kind::Hash => counted(rest),
        Kind::Text | Kind::Hex | Kind::Base64 | Kind::Nsap | Kind::Ports if rest.is_empty() => {
            Err(Flaw::Short)
        }
        Kind::Ports if rest.len() > MAX_PORTS => Err(Flaw::Rule("has ports above 65535")),
        Kind::Text
        | Kind::OptionalText
        | Kind::Hex
        | Kind::Base64
        | Kind::OptionalBase64
        | Kind::Nsap
        | Kind::Ports => Ok(rest.len()),
        Kind::Types => bitmap(rest),
        Kind::OldTypes => old_bitmap(rest),
        Kind::Gateway => address(rest, *data.get(1).ok_or(Flaw::Short)?),
        Kind::Relay => {
            let (first, rest) = rest.split_first().ok_or(Flaw::Short)?;
            Ok(1 + address(rest, first & 0x7f)?)
        }
        Kind::Location => location(rest),
        Kind::Prefixes => prefixes(rest),
        Kind::Atm => atm(rest),
        Kind::Host => host(rest),
        Kind::Suffix => Ok(suffix(rest)?.end),
        Kind::Params => params(rest),
    }
}

/// Returns the position of the name in a field, if it holds one. The field has `len` bytes from
/// `at` on.
pub(super) fn name_in(kind: Kind, data: &[u8], at: usize, len: usize) -> Option<Range<usize>> {
    match kind {
        Kind::Name => Some(at..at + len),
        Kind::Gateway => (data.get(1) == Some(&3)).then_some(at..at + len),
        Kind::Relay => (data.get(at)? & 0x7f == 3).then_some(at + 1..at + len),
        Kind::Suffix => {
            let name = suffix(data.get(at..)?).ok()?;
            (!name.is_empty()).then_some(at + name.start..at + name.end)
        }
        _ => None,
    }
}

fn fixed(rest: &[u8], len: usize) -> Measured {
    if rest.len() < len {
        return Err(Flaw::Short);
    }
    Ok(len)
}

/// Measures a length byte and that many bytes.
fn counted(rest: &[u8]) -> Measured {
    fixed(rest, 1 + usize::from(*rest.first().ok_or(Flaw::Short)?))
}

fn strings(rest: &[u8]) -> Measured {
    let mut at = counted(rest)?;
    while at < rest.len() {
        at += counted(&rest[at..])?;
    }
    Ok(at)
}

/// Checks the blocks of a type bitmap. Blocks are in order and have no zero byte at their end (RFC
/// 4034, section 4.1.2).
fn bitmap(rest: &[u8]) -> Measured {
    let (mut at, mut last) = (0, None);
    while at < rest.len() {
        let [window, len] = *rest[at..].first_chunk().ok_or(Flaw::Short)?;
        let end = at + 2 + usize::from(len);
        let is_in_order = last.is_none_or(|last| last < window);
        if !is_in_order || !(1..=32).contains(&len) {
            return Err(Flaw::Rule("must be blocks of 1 to 32 bytes in order"));
        }
        if *rest.get(end - 1).ok_or(Flaw::Short)? == 0 {
            return Err(Flaw::Rule("must not end in a zero byte"));
        }
        (at, last) = (end, Some(window));
    }
    Ok(at)
}

/// Checks a bitmap of the types 1 to 127 (RFC 2535, section 5.2).
fn old_bitmap(rest: &[u8]) -> Measured {
    match rest {
        [] => Err(Flaw::Short),
        [.., 0] => Err(Flaw::Rule("must not end in a zero byte")),
        [first, ..] if *first >= 0x80 || rest.len() > 16 => {
            Err(Flaw::Rule("must be a bitmap of the types 1 to 127"))
        }
        _ => Ok(rest.len()),
    }
}

/// Measures the gateway or relay of this kind (RFC 4025, section 2.3; RFC 8777, section 4.2.3).
fn address(rest: &[u8], kind: u8) -> Measured {
    match kind {
        0 => Ok(0),
        1 => fixed(rest, 4),
        2 => fixed(rest, 16),
        3 => name::prefix_len(rest).ok_or(WHOLE_NAME),
        _ => Err(Flaw::Rule(
            "must have the type 0 (none), 1 (IPv4), 2 (IPv6) or 3 (name)",
        )),
    }
}

/// Checks the ranges of a location (RFC 1876, section 2).
fn location(rest: &[u8]) -> Measured {
    let [version, sizes @ .., a, b, c, d, e, f, g, h, _, _, _, _] =
        *rest.first_chunk::<16>().ok_or(Flaw::Short)?;
    if version != 0 {
        return Err(Flaw::Rule("must have version 0"));
    }
    let sizes: [u8; 3] = sizes;
    if sizes.iter().any(|size| size >> 4 > 9 || size & 15 > 9) {
        return Err(Flaw::Rule("has a size or precision that is no number"));
    }
    for (bytes, max) in [([a, b, c, d], MAX_LATITUDE), ([e, f, g, h], MAX_LONGITUDE)] {
        if u32::from_be_bytes(bytes).abs_diff(ZERO_ANGLE) > max {
            return Err(Flaw::Rule("is beyond 90 degrees N or S, or 180 E or W"));
        }
    }
    Ok(16)
}

/// Checks address prefixes (RFC 3123, section 4).
fn prefixes(rest: &[u8]) -> Measured {
    let mut at = 0;
    while at < rest.len() {
        let [family_high, family_low, bits, len] = *rest[at..].first_chunk().ok_or(Flaw::Short)?;
        let len = usize::from(len & 0x7f);
        let address = rest[at + 4..].get(..len).ok_or(Flaw::Short)?;
        let max_len = match u16::from_be_bytes([family_high, family_low]) {
            1 => 4,
            2 => 16,
            _ => 127,
        };
        if len > max_len || max_len < 127 && usize::from(bits) > 8 * max_len {
            return Err(Flaw::Rule("is longer than an address of its family"));
        }
        if address.last() == Some(&0) {
            return Err(Flaw::Rule("must not end in a zero byte"));
        }
        at += 4 + len;
    }
    Ok(at)
}

/// Checks an ATM address: a format byte, and 20 bytes or some digits (AF-DANS-0152, section 5.2).
fn atm(rest: &[u8]) -> Measured {
    match rest {
        [] | [_] => Err(Flaw::Short),
        [0, address @ ..] if address.len() == 20 => Ok(rest.len()),
        [1, digits @ ..] if digits.iter().all(u8::is_ascii_digit) => Ok(rest.len()),
        [0, ..] => Err(Flaw::Rule("must have 20 bytes")),
        _ => Err(Flaw::Rule("must be an AESA of 20 bytes, or + and digits")),
    }
}

/// Checks a host identity, its key and its servers (RFC 8005, section 5).
fn host(rest: &[u8]) -> Measured {
    let [identity, _, key_high, key_low] = *rest.first_chunk().ok_or(Flaw::Short)?;
    let key = u16::from_be_bytes([key_high, key_low]);
    if identity == 0 || key == 0 {
        return Err(Flaw::Rule("must have an identity and a key"));
    }
    let mut at = fixed(rest, 4 + usize::from(identity) + usize::from(key))?;
    while at < rest.len() {
        at += name::prefix_len(&rest[at..]).ok_or(WHOLE_NAME)?;
    }
    Ok(at)
}

/// Returns the position of the name of an A6 record, which is empty if there is none (RFC 2874,
/// section 3.1.1).
fn suffix(rest: &[u8]) -> Result<Range<usize>, Flaw> {
    let bits = usize::from(*rest.first().ok_or(Flaw::Short)?);
    if bits > ADDRESS_BITS {
        return Err(Flaw::Rule("must have a prefix length of 0 to 128"));
    }
    let end = fixed(rest, 1 + (ADDRESS_BITS - bits).div_ceil(8))?;
    if bits == 0 {
        return Ok(end..end);
    }
    let len = name::prefix_len(&rest[end..]).ok_or(WHOLE_NAME)?;
    Ok(end..end + len)
}

/// Checks the parameters of a service (RFC 9460, section 2.2): their keys are in order, and the
/// values of known keys are complete.
fn params(rest: &[u8]) -> Measured {
    let (mut at, mut last) = (0, None);
    let (mut has_alpn, mut needs_alpn) = (false, false);
    // The mandatory keys that have not come yet. They are in the same order as the parameters.
    let mut mandatory: &[u8] = &[];
    while at < rest.len() {
        let [key_high, key_low, len_high, len_low] =
            *rest[at..].first_chunk().ok_or(Flaw::Short)?;
        let key = u16::from_be_bytes([key_high, key_low]);
        let len = usize::from(u16::from_be_bytes([len_high, len_low]));
        let value = rest[at + 4..].get(..len).ok_or(Flaw::Short)?;
        if last.is_some_and(|last| last >= key) {
            return Err(Flaw::Rule("must have each key once, in order"));
        }
        param(key, value)?;
        has_alpn |= key == 1;
        needs_alpn |= key == 2;
        if key == 0 {
            mandatory = value;
        } else if let Some(rest) = mandatory.strip_prefix(&key.to_be_bytes()) {
            mandatory = rest;
        }
        (at, last) = (at + 4 + len, Some(key));
    }
    if needs_alpn && !has_alpn {
        return Err(Flaw::Rule("must have alpn besides no-default-alpn"));
    }
    if !mandatory.is_empty() {
        return Err(Flaw::Rule("lacks a key that mandatory lists"));
    }
    Ok(at)
}

/// Checks the value of one parameter (RFC 9460, sections 7 and 8).
fn param(key: u16, value: &[u8]) -> Result<(), Flaw> {
    let is_valid = match key {
        0 => {
            let (keys, rest) = value.as_chunks::<2>();
            let is_sorted = keys.is_sorted_by(|a, b| a < b);
            !keys.is_empty() && rest.is_empty() && is_sorted && keys[0] != [0, 0]
        }
        1 => strings(value).is_ok() && !has_empty_string(value),
        2 => value.is_empty(),
        3 => value.len() == 2,
        4 => !value.is_empty() && value.len().is_multiple_of(4),
        6 => !value.is_empty() && value.len().is_multiple_of(16),
        _ => true,
    };
    let rule = match key {
        0 => "must list keys once and in order in mandatory",
        1 => "must list protocols in alpn",
        2 => "must not give no-default-alpn a value",
        3 => "must give port one number",
        4 => "must list IPv4 addresses in ipv4hint",
        _ => "must list IPv6 addresses in ipv6hint",
    };
    is_valid.then_some(()).ok_or(Flaw::Rule(rule))
}

/// Returns true if one of the character-strings in `strings` is empty. They must be complete.
fn has_empty_string(strings: &[u8]) -> bool {
    let mut rest = strings;
    while let Some((len, after)) = rest.split_first() {
        if *len == 0 {
            return true;
        }
        rest = &after[usize::from(*len)..];
    }
    false
}
