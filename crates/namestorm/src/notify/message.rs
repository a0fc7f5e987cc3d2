//! The messages of NOTIFY.

use std::sync::Arc;

use crate::answers::ZoneAnswers;
use crate::key::Key;
use crate::rtype::SOA;
use crate::tail::{QUESTION_AT, QUESTION_REST};

/// Maximum length of a message, in bytes (RFC 1035, section 4.2.1).
pub(super) const MAX_MESSAGE: usize = 512;
/// The opcode NOTIFY in the third byte of a message.
const NOTIFY: u8 = 4 << 3;
/// The flag AA in the third byte of a message.
const AUTHORITATIVE: u8 = 0x04;
/// The flag QR and the opcode in the third byte of a message.
const QR_AND_OPCODE: u8 = 0xf8;
const QR: u8 = 0x80;
/// Position of the upper byte of the number of answers.
const ANSWERS_AT: usize = 6;
const CLASS_IN: u16 = 1;

/// Returns the message that tells of a zone's present version. `apex` is the zone's name. The ID is 0.
///
/// The answer section has the SOA record as a hint (RFC 1996, section 3.7). It is the
/// prepared answer to a query for the SOA record, because that is the part of a message after the question.
pub(crate) fn message(apex: &[u8], zone: &ZoneAnswers) -> Arc<[u8]> {
    let mut message = vec![0; QUESTION_AT];
    message[2] = NOTIFY | AUTHORITATIVE;
    message[5] = 1;
    message.extend_from_slice(apex);
    message.extend(SOA.to_be_bytes());
    message.extend(CLASS_IN.to_be_bytes());
    let mut key = Key::new();
    key.set(zone.hashing(), apex);
    let soa = zone.find(SOA, &key);
    let is_short = |len: usize| len <= MAX_MESSAGE - message.len();
    if let Some(soa) = soa.filter(|soa| is_short(soa.tail().bytes.len())) {
        message[ANSWERS_AT..QUESTION_AT].copy_from_slice(&soa.counts());
        message.extend_from_slice(soa.tail().bytes);
    }
    message.into()
}

/// Leaves the hint of a message out if the message would be too long with `more` bytes. `apex_len` is the
/// length of the zone's name, in bytes.
pub(super) fn make_room(message: &mut Vec<u8>, apex_len: usize, more: usize) {
    if message.len() + more > MAX_MESSAGE {
        message[ANSWERS_AT..QUESTION_AT].fill(0);
        message.truncate(QUESTION_AT + apex_len + QUESTION_REST);
    }
}

/// A reply to NOTIFY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) id: u16,
    pub(super) rcode: u8,
}

impl Reply {
    /// Reads the header of a datagram. Returns `None` if it is no reply to NOTIFY.
    pub(super) fn parse(datagram: &[u8]) -> Option<Self> {
        let header: &[u8; QUESTION_AT] = datagram.first_chunk()?;
        let [high, low, flags, codes, ..] = *header;
        (flags & QR_AND_OPCODE == QR | NOTIFY).then_some(Self {
            id: u16::from_be_bytes([high, low]),
            rcode: codes & 0x0f,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use domain::base::iana::{Opcode, Rtype};
    use domain::base::{Message, ToName as _};
    use domain::rdata::Soa;

    use super::*;
    use crate::key::Form;
    use crate::{Answers, prepare_text};

    fn zone_of(answers: &Answers, apex: &[u8]) -> Arc<[u8]> {
        let mut key = Key::new();
        key.set(answers.hashing(), apex);
        let zone = answers.zone(answers.zone_of(SOA, &key)).unwrap();
        message(apex, zone)
    }

    /// Returns a reply to a message, with this response code.
    pub(in crate::notify) fn reply(message: &[u8], rcode: u8) -> Vec<u8> {
        let mut reply = message.to_vec();
        reply[2] |= QR;
        reply[3] = rcode;
        reply
    }

    #[test]
    fn a_message_has_the_soa_record_as_a_hint() {
        let text =
            "$ORIGIN z.test.\n@ 60 SOA ns host 2026 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\n";
        for form in [Form::Wire, Form::Fqdn] {
            let answers = prepare_text(text, form).unwrap();
            let bytes = zone_of(&answers, b"\x01z\x04test\0");
            let message = Message::from_octets(&*bytes).unwrap();
            let header = message.header();
            assert_eq!(header.opcode(), Opcode::NOTIFY);
            assert!(header.aa() && !header.qr() && !header.rd());
            let question = message.sole_question().unwrap();
            assert_eq!(question.qname().to_string(), "z.test");
            assert_eq!(question.qtype(), Rtype::SOA);
            let counts = message.header_counts();
            assert_eq!(
                (counts.ancount(), counts.nscount(), counts.arcount()),
                (1, 0, 0)
            );
            let records = message.answer().unwrap().limit_to::<Soa<_>>();
            let [soa] = records
                .map(Result::unwrap)
                .collect::<Vec<_>>()
                .try_into()
                .unwrap();
            assert!(soa.owner().name_eq(question.qname()));
            assert_eq!(soa.data().serial().into_int(), 2026);
        }
    }

    #[test]
    fn a_message_that_would_be_too_long_has_no_hint() {
        let name = |letter: &str| [letter; 4].map(|letter| letter.repeat(60)).join(".");
        let [server, mailbox] = ["a", "b"].map(name);
        let text = format!("$ORIGIN z.\n@ 60 SOA {server}. {mailbox}. 1 2 3 4 5\n@ 60 NS ns.y.\n");
        let answers = prepare_text(&text, Form::Wire).unwrap();
        assert_eq!(zone_of(&answers, b"\x01z\0")[ANSWERS_AT..].len(), 6 + 3 + 4);
    }

    #[test]
    fn a_message_that_would_be_too_long_with_a_signature_loses_its_hint() {
        let text = "$ORIGIN z.test.\n@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns.y.\n";
        let apex = b"\x01z\x04test\0";
        let message = zone_of(&prepare_text(text, Form::Wire).unwrap(), apex);
        let after = |more| {
            let mut message = message.to_vec();
            make_room(&mut message, apex.len(), more);
            message
        };
        let room = MAX_MESSAGE - message.len();
        assert_eq!(after(room), *message);
        let question = &message[QUESTION_AT..][..apex.len() + QUESTION_REST];
        let header = [0, 0, 0x24, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(after(room + 1), [&header, question].concat());
    }

    #[test]
    fn only_replies_to_notify_are_read() {
        let message = [0x12, 0x34, 0x24, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        let expected = Reply {
            id: 0x1234,
            rcode: 9,
        };
        assert_eq!(Reply::parse(&reply(&message, 9)), Some(expected));
        assert_eq!(Reply::parse(&message), None);
        assert_eq!(Reply::parse(&reply(&message, 0)[..11]), None);
        let mut other = reply(&message, 0);
        other[2] = QR;
        assert_eq!(Reply::parse(&other), None);
    }
}
