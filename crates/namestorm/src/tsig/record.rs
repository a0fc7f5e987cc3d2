//! TSIG records (RFC 8945, section 4.2).

use arrayvec::ArrayVec;

use super::key::Key;
use crate::query::{
    HEADER_LEN, Header, Malformed, NameBuf, additional_at, expand, skip_name, skip_record,
};
use crate::rtype::{ANY, TSIG};
use crate::tail::{FIELDS, set_data_len};

/// Class and TTL of each TSIG record.
pub(super) const CLASS_AND_TTL: [u8; 6] = [0, ANY as u8, 0, 0, 0, 0];
/// How far the clock of the other side may differ from ours, in seconds (RFC 8945, section 10).
pub(crate) const FUDGE: u16 = 300;
/// Length of a time of day, in bytes.
pub(super) const TIME: usize = 6;
/// The shortest code that may be verified, in bytes, unless half of the whole code is longer (RFC 8945,
/// section 5.2.2.1).
const MIN_MAC: usize = 10;
/// Offset of the number of additional records in a message.
pub(super) const ADDITIONAL_AT: usize = HEADER_LEN - 2;

/// What is wrong with a signature (RFC 8945, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Fault {
    Signature = 16,
    Key = 17,
    Time = 18,
    /// The code is shorter than we accept.
    Truncation = 22,
}

/// A TSIG record. The names are apart, in a [`Names`].
pub(super) struct Record<'m> {
    /// Offset in the message.
    pub(super) at: usize,
    /// Whether its names are compressed, so that they are longer in a reply.
    pub(super) grows: bool,
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

    /// Returns the error that the sender has found, or 0.
    pub(super) fn error(&self) -> u16 {
        let error = self.end.first_chunk().copied();
        error.map_or(0, u16::from_be_bytes)
    }

    /// Verifies the code in the record of `message`, and says what is wrong with it. `before` is what the
    /// code covers before the message. `additional` is the number of additional records without this one.
    ///
    /// # Errors
    ///
    /// Returns an error if a code cannot have this length.
    pub(super) fn check(
        &self,
        key: &Key,
        names: &Names,
        before: [&[u8]; 2],
        message: &[u8],
        additional: [u8; 2],
    ) -> Result<Option<Fault>, ()> {
        let whole = key.mac_len();
        if !(MIN_MAC.max(whole.div_ceil(2))..=whole).contains(&self.mac.len()) {
            return Err(());
        }
        let [len, mac] = before;
        let parts: [&[u8]; 11] = [
            len,
            mac,
            &self.original_id,
            &message[2..ADDITIONAL_AT],
            &additional,
            &message[HEADER_LEN..self.at],
            names.key.bytes(),
            &CLASS_AND_TTL,
            names.algorithm.bytes(),
            self.timers,
            self.end,
        ];
        Ok(if !key.verifies(&parts, self.mac) {
            Some(Fault::Signature)
        } else if self.mac.len() < whole {
            Some(Fault::Truncation)
        } else {
            None
        })
    }
}

/// Returns the number of additional records of a signed message without its signature.
pub(super) fn additional_without(message: &[u8]) -> [u8; 2] {
    let count = u16::from_be_bytes([message[ADDITIONAL_AT], message[ADDITIONAL_AT + 1]]);
    count.wrapping_sub(1).to_be_bytes()
}

/// Returns a time in seconds since 1970 with the usual fudge, as they are in a record.
pub(super) fn timers(time: u64) -> [u8; 8] {
    let [_, _, a, b, c, d, e, f] = time.to_be_bytes();
    let [g, h] = FUDGE.to_be_bytes();
    [a, b, c, d, e, f, g, h]
}

/// Returns the end of a record: an error or 0, and other data.
pub(super) fn end(error: u16, other: &[u8]) -> ArrayVec<u8, { 4 + TIME }> {
    let (error, len) = (error.to_be_bytes(), (other.len() as u16).to_be_bytes());
    let parts = [&error, &len, other];
    parts.into_iter().flatten().copied().collect()
}

/// Appends a record with this code to the message that begins at `start`. `names` are the names of the key
/// and of the algorithm.
pub(super) fn push(
    out: &mut Vec<u8>,
    start: usize,
    names: [&[u8]; 2],
    timers: [u8; 8],
    mac: &[u8],
    end: &[u8],
) {
    let [key, algorithm] = names;
    let original_id = [out[start], out[start + 1]];
    out.extend_from_slice(key);
    out.extend(TSIG.to_be_bytes());
    out.extend(CLASS_AND_TTL);
    out.extend([0; 2]);
    let data_at = out.len();
    out.extend_from_slice(algorithm);
    out.extend(timers);
    out.extend((mac.len() as u16).to_be_bytes());
    out.extend_from_slice(mac);
    out.extend(original_id);
    out.extend_from_slice(end);
    set_data_len(out, data_at);
    let additional = &mut out[start + ADDITIONAL_AT..start + HEADER_LEN];
    let count = u16::from_be_bytes([additional[0], additional[1]]) + 1;
    additional.copy_from_slice(&count.to_be_bytes());
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
    let key_grows = at + names.key.bytes().len() > fields_at;
    let algorithm_grows = fields_at + FIELDS + names.algorithm.bytes().len() > names_end;
    names.key.make_lower();
    names.algorithm.make_lower();
    Ok(Some(Record {
        at,
        grows: key_grows || algorithm_grows,
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
