//! Queries for the names of a zone that holds one of each thing, and what an independent
//! reader takes for an answer.

use domain::base::{Message, ParsedName};
use domain::rdata::AllRecordData;
use libfuzzer_sys::arbitrary::{self, Arbitrary};

/// A zone that holds one of each thing.
pub const ZONE: &str = include_str!("../../xtask/sample/zones/storm.test.zone");
/// Bytes of a message's header.
pub const HEADER_LEN: usize = 12;

/// Types that are asked for.
const TYPES: [u16; 20] = [
    1, 2, 5, 6, 12, 15, 16, 28, 33, 35, 39, 41, 44, 52, 251, 252, 255, 257, 65280, 43,
];

/// A query that is right until it is edited.
#[derive(Arbitrary, Debug)]
pub struct Query {
    id: u16,
    /// Labels of names of the zone, before its own name.
    labels: Vec<u8>,
    qtype: u8,
    /// UDP size, version and flags.
    edns: Option<(u16, bool, u16)>,
}

impl Query {
    /// Adds it to `message`; `labels` are those of the names that the zone has.
    pub fn write(&self, message: &mut Vec<u8>, labels: &[&str]) {
        message.extend(self.id.to_be_bytes());
        message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0]);
        message.push(u8::from(self.edns.is_some()));
        let own = self.labels.iter().take(8);
        let own = own.map(|i| labels[usize::from(*i) % labels.len()]);
        for label in own.chain(["storm", "test", ""]) {
            message.push(label.len() as u8);
            message.extend(label.bytes());
        }
        let qtype = TYPES[usize::from(self.qtype) % TYPES.len()];
        message.extend(qtype.to_be_bytes());
        message.extend([0, 1]);
        if let Some((size, version, flags)) = self.edns {
            message.extend([0, 0, 41]);
            message.extend(size.to_be_bytes());
            message.extend([0, u8::from(version)]);
            message.extend(flags.to_be_bytes());
            message.extend([0, 0]);
        }
    }
}

/// The labels in front of the names that the zone's file has.
pub fn labels() -> Vec<&'static str> {
    let owners = ZONE.lines().filter_map(|line| line.split(' ').next());
    let mut labels: Vec<_> = owners.flat_map(|owner| owner.split('.')).collect();
    labels.retain(|label| label.len() < 20 && !label.is_empty());
    labels.sort_unstable();
    labels.dedup();
    labels
}

/// Whether an independent reader takes `reply` for a whole answer to `query`.
pub fn answers(query: &[u8], reply: &[u8]) {
    let query = Message::from_octets(query).expect("it was answered");
    let reply = Message::from_octets(reply).expect("a reply has a header");
    let (asked, header) = (query.header(), reply.header());
    assert_eq!(header.id(), asked.id());
    assert_eq!(header.opcode(), asked.opcode());
    assert_eq!(header.rd(), asked.rd());
    assert!(header.qr() && !header.ra() && !header.z());
    let counts = reply.header_counts();
    if counts.qdcount() != 0 {
        let (question, asked) = (reply.sole_question(), query.first_question());
        let (question, asked) = (question.expect("one question"), asked.expect("a question"));
        assert_eq!(
            (question.qtype(), question.qclass()),
            (asked.qtype(), asked.qclass())
        );
        // Its case is kept.
        assert_eq!(question.qname().to_string(), asked.qname().to_string());
    }
    let mut records = [0_u16; 3];
    let mut section = Some(reply.answer().expect("an answer section"));
    for count in &mut records {
        let Some(mut records) = section.take() else {
            break;
        };
        for record in records.by_ref() {
            let record = record.expect("a record");
            let data = record.into_record::<AllRecordData<_, ParsedName<_>>>();
            data.expect("a record's data").expect("all data is read");
            *count += 1;
        }
        section = records.next_section().expect("the next section");
    }
    assert_eq!(
        records,
        [counts.ancount(), counts.nscount(), counts.arcount()]
    );
    if header.tc() {
        assert_eq!(records[..2], [0, 0], "nothing is better than a part");
    }
}
