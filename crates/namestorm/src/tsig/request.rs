//! Signatures of requests that the server makes, and of the replies to them.

use std::sync::Arc;

use super::key::{Key, Mac};
use super::record::{self, CLASS_AND_TTL, Names};

/// Maximum age of a signature that is used again, in seconds. It is much less than the clocks may differ.
const MAX_AGE: u64 = 60;

/// The signature of a request. The signature of the reply covers it.
#[derive(Clone, Debug)]
pub(crate) struct RequestSignature {
    key: Arc<Key>,
    /// Seconds since 1970.
    time: u64,
    mac: Mac,
}

/// Why a reply to a signed request does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyFault {
    /// It has no signature.
    Unsigned,
    /// The server has found this error in the signature of the request. Its reply need not have a signature,
    /// so anybody may have sent it.
    Refused(u16),
    /// The signature is malformed, shortened, or by another key, or does not fit the messages and the secret.
    Invalid,
    /// The time of the signature is too far from ours.
    Untimely,
}

impl RequestSignature {
    /// Signs a message with this key at this time, in seconds since 1970.
    pub(crate) fn sign(key: &Arc<Key>, time: u64, message: &mut Vec<u8>) -> Self {
        let names = [key.name(), key.algorithm()];
        let (timers, end) = (record::timers(time), record::end(0, &[]));
        let [name, algorithm] = names;
        let parts: [&[u8]; 6] = [message, name, &CLASS_AND_TTL, algorithm, &timers, &end];
        let mac = key.mac(&parts);
        record::push(message, 0, names, timers, &mac, &end);
        Self {
            key: Arc::clone(key),
            time,
            mac,
        }
    }

    /// Returns the time of this signature if the same request may be sent again with it. Then a reply to any
    /// of them counts.
    pub(crate) fn time_again(&self, key: &Arc<Key>, now: u64) -> Option<u64> {
        let is_usable = Arc::ptr_eq(&self.key, key) && self.time.abs_diff(now) <= MAX_AGE;
        is_usable.then_some(self.time)
    }

    /// Verifies the signature of a reply that has come at this time, in seconds since 1970 (RFC 8945,
    /// section 5.3). A shortened one is not valid.
    pub(crate) fn verify(&self, reply: &[u8], now: u64) -> Result<(), ReplyFault> {
        let mut names = Names::default();
        let found = record::find(reply, &mut names).map_err(|_| ReplyFault::Invalid)?;
        let record = found.ok_or(ReplyFault::Unsigned)?;
        if record.error() != 0 {
            return Err(ReplyFault::Refused(record.error()));
        }
        let [name, algorithm] = [names.key.bytes(), names.algorithm.bytes()];
        if (name, algorithm) != (self.key.name(), self.key.algorithm()) {
            return Err(ReplyFault::Invalid);
        }
        let len = (self.mac.len() as u16).to_be_bytes();
        let additional = record::additional_without(reply);
        match record.check(&self.key, &names, [&len, &self.mac], reply, additional) {
            Ok(None) => {}
            Ok(Some(_)) | Err(()) => return Err(ReplyFault::Invalid),
        }
        let (time, fudge) = record.times();
        if now.abs_diff(time) > fudge.into() {
            return Err(ReplyFault::Untimely);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use testkit::tsig::{KEY_FILE, NAME, NO_ERROR, SECRET, Signature, code_of, take_off};

    use super::*;
    use crate::tsig::TsigKeys;

    const NOW: u64 = 0x1_2345_6789;
    /// A request, and a reply to it with an OPT record.
    const REQUEST: &[u8] = b"\x12\x34\x24\0\0\x01\0\0\0\0\0\0\x01z\0\0\x06\0\x01";
    const REPLY: &[u8] =
        b"\x12\x34\xa4\0\0\x01\0\0\0\0\0\x01\x01z\0\0\x06\0\x01\0\0\x29\x04\xd0\0\0\0\0\0\0";

    fn keys() -> TsigKeys {
        TsigKeys::parse(KEY_FILE).unwrap()
    }

    fn key() -> Arc<Key> {
        Arc::clone(keys().get(NAME).unwrap())
    }

    /// Signs the request. Returns its signature, and its code.
    fn signed() -> (RequestSignature, Vec<u8>) {
        let mut message = REQUEST.to_vec();
        let signature = RequestSignature::sign(&key(), NOW, &mut message);
        let (_, [_, mac, _]) = take_off(&message);
        (signature, mac)
    }

    #[test]
    fn an_independent_reader_verifies_a_request() {
        let mut message = REQUEST.to_vec();
        RequestSignature::sign(&key(), NOW, &mut message);
        let (rest, [timers, mac, end]) = take_off(&message);
        assert_eq!(rest, REQUEST);
        assert_eq!(timers, Signature::at(NOW).timers());
        assert_eq!(end, NO_ERROR);
        assert_eq!(mac, code_of(&[], &rest, NAME, &timers, &end));
    }

    #[test]
    fn a_reply_of_an_independent_writer_is_verified_within_the_fudge() {
        let (signature, mac) = signed();
        for (time, expected) in [
            (NOW, Ok(())),
            (NOW - 300, Ok(())),
            (NOW + 300, Ok(())),
            (NOW - 301, Err(ReplyFault::Untimely)),
            (NOW + 301, Err(ReplyFault::Untimely)),
        ] {
            let reply = Signature::at(time).sign_reply(&mac, REPLY);
            assert_eq!(signature.verify(&reply, NOW), expected);
        }
    }

    #[test]
    fn a_reply_with_any_bit_changed_does_not_count() {
        let (signature, mac) = signed();
        let reply = Signature::at(NOW).sign_reply(&mac, REPLY);
        // The names of the key and of the algorithm, with the fields between them.
        let names = REPLY.len()..REPLY.len() + 30;
        for bit in 0..8 * reply.len() {
            let (at, mut changed) = (bit / 8, reply.clone());
            changed[at] ^= 1 << (bit % 8);
            // The TSIG record has an ID of its own, and the case of names does not matter.
            let is_case = changed[at].eq_ignore_ascii_case(&reply[at]);
            let is_free = at < 2 || (names.contains(&at) && is_case);
            assert_eq!(signature.verify(&changed, NOW).is_ok(), is_free, "{bit}");
        }
        for len in 0..reply.len() {
            assert!(signature.verify(&reply[..len], NOW).is_err(), "{len}");
        }
    }

    #[test]
    fn a_reply_without_a_whole_signature_of_the_key_to_this_request_does_not_count() {
        let (signature, mac) = signed();
        let verify = |reply: &[u8]| signature.verify(reply, NOW).unwrap_err();
        let of = |signature: Signature, mac: &[u8]| verify(&signature.sign_reply(mac, REPLY));
        let right = Signature::at(NOW);
        assert_eq!(verify(REPLY), ReplyFault::Unsigned);
        assert_eq!(verify(b""), ReplyFault::Unsigned);
        for mac_len in [0, 9, 16, 31, 33, 64] {
            let right = right.clone();
            let cut = Signature { mac_len, ..right };
            assert_eq!(of(cut, &mac), ReplyFault::Invalid, "{mac_len}");
        }
        let mut other_mac = mac.clone();
        other_mac[31] ^= 1;
        assert_eq!(of(right.clone(), &other_mac), ReplyFault::Invalid);
        assert_eq!(of(right.clone(), &[]), ReplyFault::Invalid);
        let key = b"\x05other\0".to_vec();
        let other = Signature {
            key,
            ..right.clone()
        };
        assert_eq!(of(other, &mac), ReplyFault::Invalid);
        // A signature must be the last record.
        let mut middle = right.sign_reply(&mac, REPLY);
        middle.extend_from_slice(&REPLY[REPLY.len() - 11..]);
        middle[11] += 1;
        assert_eq!(verify(&middle), ReplyFault::Invalid);
    }

    /// The reply to one request is sent again as that to another one. The other ID is first in the header only,
    /// and then in the TSIG record, too.
    #[test]
    fn a_reply_to_another_request_does_not_count() {
        let (_, other_mac) = signed();
        let mut request = REQUEST.to_vec();
        request[1] ^= 1;
        let signature = RequestSignature::sign(&key(), NOW, &mut request);
        let mut replayed = Signature::at(NOW).sign_reply(&other_mac, REPLY);
        let original_id = replayed.len() - 6..replayed.len() - 4;
        assert_eq!(replayed[original_id.clone()], REPLY[..2]);
        for at in [0..2, original_id] {
            replayed[at].copy_from_slice(&request[..2]);
            let found = signature.verify(&replayed, NOW);
            assert_eq!(found, Err(ReplyFault::Invalid));
        }
    }

    #[test]
    fn an_error_in_the_record_is_found_with_a_code_and_without_one() {
        let (signature, mac) = signed();
        for (error, mac_len) in [(16, 0), (17, 0), (18, 32), (18, 0), (22, 32), (999, 0)] {
            let reply = Signature {
                error,
                mac_len,
                ..Signature::at(NOW)
            };
            let reply = reply.sign_reply(&mac, REPLY);
            let found = signature.verify(&reply, NOW);
            assert_eq!(found, Err(ReplyFault::Refused(error)));
        }
    }

    #[test]
    fn a_signature_serves_again_for_a_minute_while_the_key_is_the_same() {
        let (key, mut message) = (key(), REQUEST.to_vec());
        let signature = RequestSignature::sign(&key, NOW, &mut message);
        for (now, expected) in [
            (NOW - 61, None),
            (NOW - 60, Some(NOW)),
            (NOW + 60, Some(NOW)),
            (NOW + 61, None),
        ] {
            assert_eq!(signature.time_again(&key, now), expected);
        }
        let read_again = self::key();
        assert_eq!(signature.time_again(&read_again, NOW), None);
        assert!(!format!("{signature:?}").contains(std::str::from_utf8(SECRET).unwrap()));
    }
}
