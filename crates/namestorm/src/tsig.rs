//! Signatures of messages with a shared secret (TSIG, RFC 8945).
//!
//! [`Signer`] is the server's side, and [`RequestSignature`] the client's side. The signature is taken
//! off a query before anything else looks at it, and the query is then answered like any other. The
//! reply is signed when it is complete. Queries without a signature pay nothing for this.

mod key;
mod key_file;
mod record;
mod request;

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use control::WrongWords;

pub(crate) use self::key::Key;
use self::key::{FIXED_DATA, MAX_MAC, Mac};
pub use self::key_file::{KeyFileError, MAX_KEYS};
pub(crate) use self::record::FUDGE;
use self::record::{ADDITIONAL_AT, CLASS_AND_TTL, Fault, Names, Record, TIME};
pub(crate) use self::request::{ReplyFault, RequestSignature};
use crate::cookie::WallClock;
use crate::name::{MAX_NAME, Name};
use crate::query::HEADER_LEN;
use crate::rcode;
use crate::tail::FIELDS;

/// Length of the longest name of an algorithm, in bytes.
const MAX_ALGORITHM: usize = 13;
/// Maximum length of the signature of a valid key, in bytes.
pub(crate) const MAX_SIGNATURE: usize =
    MAX_NAME + FIELDS + MAX_ALGORITHM + FIXED_DATA + MAX_MAC + TIME;
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

    /// Returns the key with this name, if there is one.
    pub(crate) fn find(&self, name: &Name) -> Option<&Arc<Key>> {
        self.get(&name.as_wire().to_ascii_lowercase())
    }
}

/// Splits the value of an option into its first word, which is called `what`, and the name of a key that may
/// follow. Adds a message for the operator if more follows, or no name.
pub(crate) fn split_key<'t>(
    text: &'t str,
    what: &str,
    wrong: &mut WrongWords<String>,
) -> (&'t str, Option<Name>) {
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or_default();
    let key = words.next().and_then(|word| {
        let key = word.parse::<Name>().map_err(|error| error.to_string());
        wrong.take(text, word, key)
    });
    if let Some(word) = words.next() {
        wrong.add(text, word, format!("give at most one key after the {what}"));
    }
    (first, key)
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
        let (len, verdict) = self.check(keys, message)?;
        take_off(message, len);
        Some((len, verdict))
    }

    /// Same as [`receive`](Self::receive), but leaves the signature in the message. [`take_off`] takes it off.
    #[cold]
    #[inline(never)]
    pub(crate) fn check(&mut self, keys: &TsigKeys, message: &[u8]) -> Option<(usize, Verdict)> {
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
        let additional = record::additional_without(message);
        let checked = match &self.key {
            Some(key) => record.check(key, &self.names, [&[]; 2], message, additional),
            // A forged message must not get a long reply by names of its own.
            None if record.grows => Err(()),
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
        let verdict = match self.fault {
            None => Verdict::Valid,
            Some(_) => Verdict::Refused(rcode::NOTAUTH),
        };
        Some((record.at, verdict))
    }

    /// Returns a number that distinguishes the signature of the query from others. A message that is sent
    /// again has the same one.
    pub(crate) fn number(&self) -> u64 {
        let start = self.before.first_chunk();
        start.map_or(0, |start| u64::from_ne_bytes(*start))
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

    /// Returns the length of the signature of each message, in bytes. It is longer if the query's signature
    /// is wrong.
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
        let [_, _, our_time @ ..] = now.to_be_bytes();
        // The client needs its own time to verify the reply, and learns ours (RFC 8945, section 5.2.3).
        let (time, other): (u64, &[u8]) = match self.fault {
            Some(Fault::Time) => (self.query_time, &our_time),
            _ => (now, &[]),
        };
        let timers = record::timers(time);
        let end = record::end(self.fault.map_or(0, |fault| fault as u16), other);
        let mac = match (&self.key, self.fault) {
            (None, _) | (_, Some(Fault::Key | Fault::Signature)) => Mac::new(),
            (Some(key), _) => self.mac(key, &out[start..], &timers, &end),
        };
        let names = [self.names.key.bytes(), self.names.algorithm.bytes()];
        record::push(out, start, names, timers, &mac, &end);
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
        seconds((self.clock)())
    }
}

/// Takes the signature off a message that [`Signer::check`] has returned this length for.
pub(crate) fn take_off(message: &mut [u8], len: usize) {
    if len < message.len() {
        let additional = record::additional_without(message);
        message[ADDITIONAL_AT..HEADER_LEN].copy_from_slice(&additional);
    }
}

/// Returns a time of day in seconds since 1970. A time before 1970 is 0.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    let since_1970 = time.duration_since(UNIX_EPOCH);
    since_1970.map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8945, section 5.3.1: the code of each message covers the previous message's code.
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
