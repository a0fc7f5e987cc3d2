//! Any bytes as a query to a zone that holds one of each thing: a reply is
//! whole, to the same question, and not longer than it may be.
#![no_main]

use std::sync::Arc;

use domain::base::{Message, ParsedName};
use domain::rdata::AllRecordData;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use namestorm::{Form, MAX_TCP_MESSAGE, MIN_UDP_MESSAGE, Responder, Transport, prepare_text};

const ZONE: &str = include_str!("../../xtask/sample/zones/storm.test.zone");
const HEADER_LEN: usize = 12;

/// Types that are asked for.
const TYPES: [u16; 20] = [
    1, 2, 5, 6, 12, 15, 16, 28, 33, 35, 39, 41, 44, 52, 251, 252, 255, 257, 65280, 43,
];

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    by_fqdn: bool,
    tcp: bool,
    query: Option<Query>,
    /// Behind the query.
    bytes: &'a [u8],
    edits: Vec<(u8, u8)>,
}

/// A query that is right until it is edited.
#[derive(Arbitrary, Debug)]
struct Query {
    id: u16,
    /// Labels of names of the zone, before its own name.
    labels: Vec<u8>,
    qtype: u8,
    /// UDP size, version and flags.
    edns: Option<(u16, bool, u16)>,
}

impl Query {
    fn write(&self, message: &mut Vec<u8>, labels: &[&str]) {
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
fn labels() -> Vec<&'static str> {
    let owners = ZONE.lines().filter_map(|line| line.split(' ').next());
    let mut labels: Vec<_> = owners.flat_map(|owner| owner.split('.')).collect();
    labels.retain(|label| label.len() < 20 && !label.is_empty());
    labels.sort_unstable();
    labels.dedup();
    labels
}

thread_local! {
    static LABELS: Vec<&'static str> = labels();
    static RESPONDERS: [std::cell::RefCell<Responder>; 2] = [Form::Wire, Form::Fqdn].map(|form| {
        let answers = prepare_text(ZONE, form).expect("a valid zone");
        Responder::new(Arc::new(answers)).into()
    });
}

fuzz_target!(|input: Input| {
    let mut message = Vec::new();
    if let Some(query) = &input.query {
        LABELS.with(|labels| query.write(&mut message, labels));
    }
    message.extend_from_slice(input.bytes);
    for (at, byte) in &input.edits {
        if let Some(place) = message.get_mut(usize::from(*at)) {
            *place = *byte;
        }
    }
    message.truncate(MAX_TCP_MESSAGE);
    let query = message.clone();
    // What a link of 1,500 bytes takes over IPv4.
    let link = 1472;
    let (transport, limit) = if input.tcp {
        (Transport::Tcp, MAX_TCP_MESSAGE)
    } else {
        (Transport::Udp { link }, link)
    };
    RESPONDERS.with(|responders| {
        let mut responder = responders[usize::from(input.by_fqdn)].borrow_mut();
        let Some(reply) = responder.respond(&mut message, transport) else {
            assert!(
                query.len() < HEADER_LEN || query[2] & 0x80 != 0,
                "not answered"
            );
            return;
        };
        let head = reply
            .rewritten
            .map_or_else(|| message[..reply.head_len].to_vec(), <[u8]>::to_vec);
        let bytes = [&head, reply.tail.bytes, reply.trail].concat();
        assert_eq!((head.len(), bytes.len()), (reply.head_len, reply.len()));
        let limit = if reply.trail.is_empty() && !input.tcp {
            MIN_UDP_MESSAGE
        } else {
            limit
        };
        assert!(bytes.len() <= limit, "{} bytes", bytes.len());
        answers(&query, &bytes);
    });
});

/// Whether an independent reader takes `reply` for a whole answer to `query`.
fn answers(query: &[u8], reply: &[u8]) {
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
