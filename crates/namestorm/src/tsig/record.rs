//! TSIG records (RFC 8945, section 4.2).

use crate::query::{Header, Malformed, NameBuf, additional_at, expand, skip_name, skip_record};
use crate::rtype::{ANY, TSIG};
use crate::tail::FIELDS;

/// Class and TTL of each TSIG record.
pub(super) const CLASS_AND_TTL: [u8; 6] = [0, ANY as u8, 0, 0, 0, 0];

/// A TSIG record. The names are apart, in a [`Names`].
pub(super) struct Record<'m> {
    /// Offset in the message.
    pub(super) at: usize,
    /// Seconds since 1970, and how far the clocks may differ, in seconds. As they are in the message.
    pub(super) timers: &'m [u8; 8],
    pub(super) mac: &'m [u8],
    /// The ID that the message had when it was signed.
    pub(super) original_id: [u8; 2],
    /// Error, and length and bytes of the other data. As they are in the message.
    pub(super) end: &'m [u8],
}

impl Record<'_> {
    /// Returns the time of the signature in seconds since 1970, and how far the clocks may differ, in
    /// seconds.
    pub(super) fn times(&self) -> (u64, u16) {
        let [a, b, c, d, e, f, g, h] = *self.timers;
        let time = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        (time, u16::from_be_bytes([g, h]))
    }
}

/// The names in a TSIG record, in lower case.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) key: NameBuf,
    pub(super) algorithm: NameBuf,
}

/// Returns the TSIG record of a message, and fills `names`. Returns `None` if there is none, or if the
/// records before it are malformed.
///
/// # Errors
///
/// Returns an error if the record is malformed, or not the last one (RFC 8945, section 5.1).
pub(super) fn find<'m>(
    message: &'m [u8],
    names: &mut Names,
) -> Result<Option<Record<'m>>, Malformed> {
    let Some((at, is_last)) = place(message) else {
        return Ok(None);
    };
    if !is_last {
        return Err(Malformed);
    }
    let fields_at = expand(message, at, &mut names.key)?;
    let (fields, data) = split::<FIELDS>(message.get(fields_at..).ok_or(Malformed)?)?;
    if fields[2..8] != CLASS_AND_TTL {
        return Err(Malformed);
    }
    let data_len = usize::from(u16::from_be_bytes([fields[8], fields[9]]));
    let end = fields_at + FIELDS + data_len;
    let names_end = expand(message, fields_at + FIELDS, &mut names.algorithm)?;
    let (timers, rest) = split::<8>(message.get(names_end..end).ok_or(Malformed)?)?;
    let (mac_len, rest) = split::<2>(rest)?;
    let mac_len = usize::from(u16::from_be_bytes(*mac_len));
    let (mac, rest) = rest.split_at_checked(mac_len).ok_or(Malformed)?;
    let (original_id, end) = split::<2>(rest)?;
    let (other_len, other) = split::<2>(end.get(2..).ok_or(Malformed)?)?;
    if data.len() < data_len || other.len() != usize::from(u16::from_be_bytes(*other_len)) {
        return Err(Malformed);
    }
    names.key.make_lower();
    names.algorithm.make_lower();
    Ok(Some(Record {
        at,
        timers,
        mac,
        original_id: *original_id,
        end,
    }))
}

fn split<const N: usize>(bytes: &[u8]) -> Result<(&[u8; N], &[u8]), Malformed> {
    bytes.split_first_chunk().ok_or(Malformed)
}

/// Returns the offset of the first TSIG record among the additional records of a message, and whether it
/// is the last record.
fn place(message: &[u8]) -> Option<(usize, bool)> {
    let header = Header::parse(message)?;
    let [.., additional] = header.counts();
    if additional == 0 {
        return None;
    }
    let mut at = additional_at(message, &header)?;
    for number in 1..=additional {
        let type_at = skip_name(message, at).ok()?;
        if message.get(type_at..)?.starts_with(&TSIG.to_be_bytes()) {
            return Some((at, number == additional));
        }
        at = skip_record(message, at).ok()?;
    }
    None
}
