//! Signatures of messages with a shared secret (TSIG, RFC 8945).
//!
//! The signature is taken off a query before anything else looks at it, and the query is then answered
//! like any other. The reply is signed when it is complete. Queries without a signature pay nothing for
//! this.

mod key;
mod key_file;
mod record;

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrayvec::ArrayVec;

use self::key::{Key, MAX_MAC, Mac};
pub use self::key_file::{KeyFileError, MAX_KEYS};
use self::record::{CLASS_AND_TTL, Names, Record};
use crate::cookie::WallClock;
use crate::name::MAX_NAME;
use crate::query::HEADER_LEN;
use crate::rcode;
use crate::rtype::TSIG;
use crate::tail::{FIELDS, set_data_len};

/// How far the clock of a client may differ from ours, in seconds (RFC 8945, section 10).
const FUDGE: u16 = 300;
/// Length of the data of a TSIG record without its names, its code and other data, in bytes.
const FIXED_DATA: usize = 6 + 2 + 2 + 2 + 2 + 2;
/// Length of a time of day, in bytes.
const TIME: usize = 6;
/// Length of the longest name of an algorithm, in bytes.
const MAX_ALGORITHM: usize = 13;
/// Maximum length of the signature of a valid key, in bytes.
pub(crate) const MAX_SIGNATURE: usize =
    MAX_NAME + FIELDS + MAX_ALGORITHM + FIXED_DATA + MAX_MAC + TIME;
/// The shortest code that may be verified, in bytes, unless half of the whole code is longer (RFC 8945,
/// section 5.2.2.1).
const MIN_MAC: usize = 10;
/// Offset of the number of additional records in a message.
const ADDITIONAL_AT: usize = HEADER_LEN - 2;

/// What is wrong with a signature (RFC 8945, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
enum Fault {
    Signature = 16,
    Key = 17,
    Time = 18,
    /// The code is shorter than we accept.
    Truncation = 22,
}

/// The keys that a server shares with its clients.
#[derive(Clone, Debug)]
pub struct TsigKeys {
    keys: Vec<Arc<Key>>,
    clock: WallClock,
}

/// No keys.
impl Default for TsigKeys {
    fn default() -> Self {
        Self::new(Vec::new(), SystemTime::now)
    }
}

impl TsigKeys {
    fn new(keys: Vec<Key>, clock: WallClock) -> Self {
        Self {
            keys: keys.into_iter().map(Arc::new).collect(),
            clock,
        }
    }

    /// Reads the keys of a file in the form of BIND's configuration, as `tsig-keygen` writes it.
    ///
    /// # Errors
    /// If the file cannot be read, or is not such a file.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        Ok(Self::new(key_file::read(path)?, SystemTime::now))
    }

    /// Reads keys from a text in the same form.
    ///
    /// # Errors
    /// If it is not such a text.
    pub fn parse(text: &str) -> Result<Self, KeyFileError> {
        Ok(Self::new(key_file::parse(text)?, SystemTime::now))
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Asks `clock` for the time of day.
    #[must_use]
    pub fn with_clock(self, clock: WallClock) -> Self {
        Self { clock, ..self }
    }

    /// Returns the key with this name in wire format and lower case, if there is one.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<Key>> {
        self.keys.iter().find(|key| key.name() == name)
    }
}

/// Returns true if a message has additional records, of which one may be a signature.
pub(crate) fn may_be_signed(message: &[u8]) -> bool {
    message
        .get(ADDITIONAL_AT..HEADER_LEN)
        .is_some_and(|count| count != [0; 2])
}

/// The result of the check of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Valid,
    /// The reply must have this response code, and no records of zones.
    Refused(u16),
}

/// Verifies the signature of a query, and signs the messages of the reply.
#[derive(Clone, Debug)]
pub(crate) struct Signer {
    names: Names,
    /// The key of the query, if we have it.
    key: Option<Arc<Key>>,
    /// The code of the message before.
    before: Mac,
    /// Whether the next message is the first of the reply.
    is_first: bool,
    /// Whether the reply has a TSIG record.
    signs: bool,
    fault: Option<Fault>,
    /// The time of the query's signature, in seconds since 1970.
    query_time: u64,
    clock: WallClock,
}

impl Signer {
    pub(crate) fn new() -> Self {
        Self {
            names: Names::default(),
            key: None,
            before: Mac::new(),
            is_first: true,
            signs: false,
            fault: None,
            query_time: 0,
            clock: SystemTime::now,
        }
    }

    /// Verifies the signature of a message, and takes it off: the message is then as long as is returned,
    /// and has one additional record less. Returns `None` if there is no signature.
    #[cold]
    #[inline(never)]
    pub(crate) fn receive(
        &mut self,
        keys: &TsigKeys,
        message: &mut [u8],
    ) -> Option<(usize, Verdict)> {
        let found = record::find(message, &mut self.names).transpose()?;
        self.signs = false;
        self.fault = None;
        let Ok(record) = found else {
            return Some((message.len(), Verdict::Refused(rcode::FORMERR)));
        };
        let key = keys.get(self.names.key.bytes());
        let key = key.filter(|key| key.algorithm() == self.names.algorithm.bytes());
        self.key = key.cloned();
        self.clock = keys.clock;
        self.is_first = true;
        (self.query_time, _) = record.times();
        self.before.clear();
        let at = record.at;
        let additional = u16::from_be_bytes([message[ADDITIONAL_AT], message[ADDITIONAL_AT + 1]]);
        let additional = (additional - 1).to_be_bytes();
        let checked = match &self.key {
            Some(key) => check(key, &self.names, &record, message, additional),
            None => Ok(Some(Fault::Key)),
        };
        let Ok(fault) = checked else {
            return Some((message.len(), Verdict::Refused(rcode::FORMERR)));
        };
        self.signs = true;
        if !matches!(fault, Some(Fault::Key | Fault::Signature)) {
            self.before.extend(record.mac.iter().copied());
        }
        self.fault = fault.or_else(|| self.untimely(&record));
        message[ADDITIONAL_AT..HEADER_LEN].copy_from_slice(&additional);
        let verdict = match self.fault {
            None => Verdict::Valid,
            Some(_) => Verdict::Refused(rcode::NOTAUTH),
        };
        Some((at, verdict))
    }

    /// Returns the fault of a signature that is too old, or from the future.
    fn untimely(&self, record: &Record<'_>) -> Option<Fault> {
        let (time, fudge) = record.times();
        (self.now().abs_diff(time) > fudge.into()).then_some(Fault::Time)
    }

    /// Returns the name of the key of a valid signature, in wire format and lower case.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        let key = self.key.as_ref().filter(|_| self.fault.is_none())?;
        Some(key.name())
    }

    /// Returns the length of the signature of each message, in bytes, or more if that of the query is wrong.
    pub(crate) fn room(&self) -> usize {
        let [key, algorithm] = [&self.names.key, &self.names.algorithm].map(|it| it.bytes().len());
        let code = match (&self.key, self.fault) {
            (Some(key), None) => key.mac_len(),
            _ => MAX_MAC + TIME,
        };
        key + FIELDS + algorithm + FIXED_DATA + code
    }

    /// Signs the message that begins at `start`.
    pub(crate) fn sign(&mut self, out: &mut Vec<u8>, start: usize) {
        if !self.signs {
            return;
        }
        let now = self.now();
        let [_, _, now @ ..] = now.to_be_bytes();
        let [_, _, query_time @ ..] = self.query_time.to_be_bytes();
        // The client needs its own time to verify the reply, and learns ours (RFC 8945, section 5.2.3).
        let (time, other): ([u8; TIME], &[u8]) = match self.fault {
            Some(Fault::Time) => (query_time, &now),
            _ => (now, &[]),
        };
        let error = self.fault.map_or(0, |fault| fault as u16).to_be_bytes();
        let [timers, end] = [
            [&time[..], &FUDGE.to_be_bytes(), &[]],
            [&error, &(other.len() as u16).to_be_bytes(), other],
        ]
        .map(joined);
        let mac = match (&self.key, self.fault) {
            (None, _) | (_, Some(Fault::Key | Fault::Signature)) => Mac::new(),
            (Some(key), _) => self.mac(key, &out[start..], &timers, &end),
        };
        let original_id = [out[start], out[start + 1]];
        out.extend_from_slice(self.names.key.bytes());
        out.extend(TSIG.to_be_bytes());
        out.extend(CLASS_AND_TTL);
        out.extend([0; 2]);
        let data_at = out.len();
        out.extend_from_slice(self.names.algorithm.bytes());
        out.extend_from_slice(&timers);
        out.extend((mac.len() as u16).to_be_bytes());
        out.extend_from_slice(&mac);
        out.extend(original_id);
        out.extend_from_slice(&end);
        set_data_len(out, data_at);
        let additional = &mut out[start + ADDITIONAL_AT..start + HEADER_LEN];
        let count = u16::from_be_bytes([additional[0], additional[1]]) + 1;
        additional.copy_from_slice(&count.to_be_bytes());
        self.before = mac;
        self.is_first = false;
    }

    /// Returns the code of the next message (RFC 8945, sections 4.3 and 5.3.1).
    fn mac(&self, key: &Key, message: &[u8], timers: &[u8], end: &[u8]) -> Mac {
        let len = (self.before.len() as u16).to_be_bytes();
        if !self.is_first {
            return key.mac(&[&len, &self.before, message, timers]);
        }
        key.mac(&[
            &len,
            &self.before,
            message,
            self.names.key.bytes(),
            &CLASS_AND_TTL,
            self.names.algorithm.bytes(),
            timers,
            end,
        ])
    }

    /// Returns the time of day, in seconds since 1970.
    fn now(&self) -> u64 {
        let since_1970 = (self.clock)().duration_since(UNIX_EPOCH);
        since_1970.map_or(0, |time| time.as_secs())
    }
}

/// Returns the concatenation of short parts, without an allocation.
fn joined(parts: [&[u8]; 3]) -> ArrayVec<u8, 16> {
    parts.into_iter().flatten().copied().collect()
}

/// Verifies the code in the TSIG record of a message, and says what is wrong with it. `additional` is the
/// number of additional records without that record.
///
/// # Errors
///
/// Returns an error if a code cannot have this length.
fn check(
    key: &Key,
    names: &Names,
    record: &Record<'_>,
    message: &[u8],
    additional: [u8; 2],
) -> Result<Option<Fault>, ()> {
    let whole = key.mac_len();
    if !(MIN_MAC.max(whole.div_ceil(2))..=whole).contains(&record.mac.len()) {
        return Err(());
    }
    let parts: [&[u8]; 9] = [
        &record.original_id,
        &message[2..ADDITIONAL_AT],
        &additional,
        &message[HEADER_LEN..record.at],
        names.key.bytes(),
        &CLASS_AND_TTL,
        names.algorithm.bytes(),
        record.timers,
        record.end,
    ];
    Ok(if !key.verifies(&parts, record.mac) {
        Some(Fault::Signature)
    } else if record.mac.len() < whole {
        Some(Fault::Truncation)
    } else {
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8945, section 5.3.1: the code of each message covers that of the message before.
    #[test]
    fn the_messages_of_a_reply_are_signed_in_a_chain() {
        let keys = TsigKeys::parse("key k { algorithm hmac-sha384; secret AAAA; };").unwrap();
        let keys = keys.with_clock(|| UNIX_EPOCH);
        let (name, algorithm) = (b"\x01k\0", b"\x0bhmac-sha384\0");
        let key = keys.get(name).unwrap();
        let message = [0, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let timers = [0, 0, 0, 0, 0, 0, 1, 44];
        let record = |mac: &[u8]| {
            let start = [&name[..], &[0, 250], &CLASS_AND_TTL, &[0, 77], algorithm].concat();
            [&start[..], &timers, &[0, 48], mac, &[0, 7], &[0; 4]].concat()
        };
        let first = [&name[..], &CLASS_AND_TTL, algorithm, &timers, &[0; 4]].concat();
        let mut mac = key.mac(&[&message, &first]);
        let mut query = [&message[..], &record(&mac)].concat();
        query[11] = 1;
        let mut signer = Signer::new();
        assert_eq!(
            signer.receive(&keys, &mut query),
            Some((12, Verdict::Valid))
        );
        assert_eq!(
            (&query[..12], signer.key()),
            (&message[..], Some(&name[..]))
        );
        let mut out = vec![9; 5];
        for variables in [&first[..], &timers, &timers] {
            let start = out.len();
            out.extend(message);
            signer.sign(&mut out, start);
            mac = key.mac(&[&[0, 48], &mac, &message, variables]);
            assert_eq!(out[start + 12..], record(&mac));
            assert_eq!(out[start + 11], 1);
            assert_eq!(out.len() - start - message.len(), signer.room());
        }
        assert!(signer.room() <= MAX_SIGNATURE);
    }
}
