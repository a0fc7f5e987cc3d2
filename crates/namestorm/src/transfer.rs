//! Zone transfers (RFC 5936): all records of a zone, in as many messages as they need.

mod clients;
mod message;

use std::sync::Arc;

use tcpip::MAX_WRITE_LEN;

pub use self::clients::{TransferClients, TransferRule};
use self::message::Message;
pub(crate) use self::message::{LENGTH, set_length};
use crate::query::{AA, HEADER_LEN, QR, RD};
use crate::tail::{MAX_POINTER, MAX_TCP_MESSAGE, QUESTION_REST};
use crate::tsig::Signer;
use crate::zone_records::{Cursor, ZoneRecords};

/// A message holds no more bytes than this, unless it has a single long record. Pointers reach all
/// owners.
const USUAL_MESSAGE: usize = MAX_POINTER;

/// What remains to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// All records, and the SOA record at the end.
    Records,
    /// The SOA record at the end.
    LastSoa,
    Nothing,
}

/// A transfer in progress. It continues with the records of the zone as they were at its start, even
/// if the zone is reloaded.
#[derive(Debug)]
pub struct Transfer {
    records: Arc<ZoneRecords>,
    cursor: Cursor,
    stage: Stage,
    /// The number of the group in which the transfer is counted, unless it is only the SOA record.
    group: Option<u8>,
    /// The header and the question of the next message. The count of answers is 0.
    head: Box<[u8]>,
    /// The OPT record of each message. It is empty if the query has none.
    opt: Box<[u8]>,
    /// Signs the messages, if the query is signed.
    signer: Option<Box<Signer>>,
}

impl Transfer {
    /// Starts the transfer of all records. `query` is the message that asks for it up to the end of the
    /// question, whose name is not compressed. `opt` is the OPT record of the reply.
    pub(crate) fn new(records: &Arc<ZoneRecords>, group: u8, query: &[u8], opt: &[u8]) -> Self {
        let mut head: Box<[u8]> = query.into();
        let flags = u16::from_be_bytes([head[2], head[3]]);
        let flags = QR | AA | flags & RD;
        head[2..4].copy_from_slice(&flags.to_be_bytes());
        head[4..HEADER_LEN].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
        Self {
            cursor: records.start(),
            records: Arc::clone(records),
            stage: Stage::Records,
            group: Some(group),
            head,
            opt: opt.into(),
            signer: None,
        }
    }

    /// Sends only the SOA record, because the client's zone is not older (RFC 1995, section 2).
    #[must_use]
    pub(crate) fn only_soa(self) -> Self {
        Self {
            stage: Stage::LastSoa,
            group: None,
            ..self
        }
    }

    /// Signs the messages as `signer` does, which has verified the query.
    pub(crate) fn sign(&mut self, signer: &Signer) {
        self.signer = Some(signer.clone().into());
    }

    /// Returns the length of the signature of a message, in bytes.
    fn signature_len(&self) -> usize {
        self.signer.as_ref().map_or(0, |signer| signer.room())
    }

    /// Returns true if all messages were written.
    pub(crate) fn is_finished(&self) -> bool {
        self.stage == Stage::Nothing
    }

    /// Returns the group in which the transfer is counted.
    pub(crate) fn group(&self) -> Option<u8> {
        self.group
    }

    /// Returns the name of the zone, in wire format.
    pub(crate) fn zone(&self) -> &[u8] {
        &self.head[HEADER_LEN..self.head.len() - QUESTION_REST]
    }

    /// Returns the lengths of three parts of each message, in bytes: the header with the question, the OPT
    /// record, and the signature.
    pub(crate) fn ends(&self) -> [usize; 3] {
        [self.head.len(), self.opt.len(), self.signature_len()]
    }

    /// Appends as many messages to the empty buffer as one write takes, each with its length field.
    pub(crate) fn fill(&mut self, out: &mut Vec<u8>) {
        while !self.is_finished() && out.len() + LENGTH + self.next_len() <= MAX_WRITE_LEN {
            self.message(out);
        }
    }

    /// Returns a bound of the length of the next message, in bytes.
    fn next_len(&self) -> usize {
        let first = self.cursor.next_len(&self.records).unwrap_or(0);
        let len = self.head.len() + self.opt.len() + self.signature_len() + first;
        len.clamp(USUAL_MESSAGE, MAX_TCP_MESSAGE)
    }

    /// Appends the next message.
    fn message(&mut self, out: &mut Vec<u8>) {
        let (start, signature) = (out.len(), self.signature_len());
        let room = USUAL_MESSAGE - self.opt.len() - signature;
        let mut message = Message::new(out, &self.head, room);
        while self.stage == Stage::Records {
            let Some(len) = self.cursor.next_len(&self.records) else {
                self.stage = Stage::LastSoa;
                break;
            };
            if !message.has_room_for(len) {
                break;
            }
            if let Some(record) = self.cursor.next(&self.records) {
                message.push(self.cursor.owner(), record);
            }
        }
        let mut first = self.records.start();
        let soa_len = first.next_len(&self.records).unwrap_or(0);
        if self.stage == Stage::LastSoa && message.has_room_for(soa_len) {
            if let Some(soa) = first.next(&self.records) {
                message.push_first(first.owner(), soa);
            }
            self.stage = Stage::Nothing;
        }
        message.finish(&self.opt, MAX_TCP_MESSAGE - signature);
        if let Some(signer) = &mut self.signer {
            signer.sign(out, start + LENGTH);
        }
        set_length(out, start);
    }
}

#[cfg(test)]
mod tests {
    use domain::base::Message as Parsed;

    use super::*;
    use crate::load_text;

    /// Returns the records of the zone `z.` with a record of each of these lengths.
    fn records(lengths: &[usize]) -> Option<Arc<ZoneRecords>> {
        let lines = lengths.iter().enumerate().map(|(number, len)| {
            let data = "ab".repeat(*len);
            format!("x{number} TYPE65280 \\# {len} {data}\n")
        });
        let lines: Vec<_> = lines.collect();
        let start = "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns.y.\n";
        let text = format!("{start}{}", lines.concat());
        let zone = load_text("zone", Some("z."), &text).unwrap().zone;
        ZoneRecords::new(&zone).ok().map(Arc::new)
    }

    /// Returns the lengths of all messages in each write.
    fn writes(records: &Arc<ZoneRecords>, opt: &[u8]) -> Vec<Vec<usize>> {
        let query = [
            &[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..],
            b"\x01z\0\0\xfc\0\x01",
        ]
        .concat();
        let mut transfer = Transfer::new(records, 3, &query, opt);
        let (mut writes, mut answers) = (Vec::new(), 0);
        while !transfer.is_finished() {
            let mut out = Vec::new();
            transfer.fill(&mut out);
            assert!(out.len() <= MAX_WRITE_LEN);
            let (mut rest, mut lengths) = (&out[..], Vec::new());
            while let Some((len, after)) = rest.split_first_chunk() {
                let (message, after) = after.split_at(u16::from_be_bytes(*len).into());
                let parsed = Parsed::from_octets(message).unwrap();
                answers += parsed.answer().unwrap().map(Result::unwrap).count();
                let has_room = message.len() + opt.len() <= MAX_TCP_MESSAGE;
                assert_eq!(parsed.opt().is_some(), !opt.is_empty() && has_room);
                lengths.push(message.len());
                rest = after;
            }
            writes.push(lengths);
        }
        assert_eq!(transfer.group(), Some(3));
        let mut all = records.start();
        let count = std::iter::from_fn(|| all.next(records).map(drop)).count();
        assert_eq!(answers, count + 1);
        writes
    }

    #[test]
    fn a_message_ends_before_a_record_that_does_not_fit() {
        const OPT: &[u8] = &[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0];
        /// Lengths of the question with the header, and of the SOA, NS and first other record without data.
        const HEAD: usize = 19;
        const SOA: usize = 41;
        const NS: usize = 18;
        const OTHER: usize = 15;
        let of = |lengths: &[usize], opt| writes(&records(lengths).unwrap(), opt);
        assert_eq!(of(&[], b""), [[HEAD + 2 * SOA + NS]]);
        assert_eq!(of(&[], OPT), [[HEAD + 2 * SOA + NS + OPT.len()]]);
        // A name counts in full, and this one would take one byte more without a pointer.
        let fits = USUAL_MESSAGE - HEAD - SOA - NS - OTHER - 1;
        let full = USUAL_MESSAGE - 1;
        assert_eq!(of(&[fits], b""), [[full, HEAD + SOA]]);
        let second = HEAD + OTHER + SOA + fits;
        assert_eq!(of(&[fits + 1], b""), [[HEAD + SOA + NS, second + 1]]);
        let opt = OPT.len();
        let expected = [[HEAD + SOA + NS + opt, second - 10 + opt]];
        assert_eq!(of(&[fits - 10], OPT), expected);
        // The longest record fills a message that is longer than usual, and the next one needs a write of
        // its own. An OPT record may find no room beside it.
        let longest = 65_535 - 271 - 10 - 364 - 6;
        let long = HEAD + OTHER + longest;
        let expected = [vec![HEAD + SOA + NS, long], vec![HEAD + SOA]];
        assert_eq!(of(&[longest], b""), expected);
        let long_opt = [&OPT[..9], &[2, 192], &[0, 12, 2, 188], &[0; 700]].concat();
        let opt = long_opt.len();
        let expected = [[HEAD + SOA + NS + opt], [long], [HEAD + SOA + opt]];
        assert_eq!(of(&[longest], &long_opt), expected);
        assert!(records(&[longest + 1]).is_none());
    }
}
