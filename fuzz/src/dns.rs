//! DNS queries for a test zone, and an independent reader that checks replies.

use arbitrary::Arbitrary;
use domain::base::{Message as Reader, ParsedName};
use domain::rdata::AllRecordData;
use namestorm::{MAX_TCP_MESSAGE, MAX_UDP_MESSAGE, MIN_UDP_MESSAGE, Reply, Transport};

use crate::edit;

/// A zone with many kinds of names and records.
pub const ZONE: &str = include_str!("../../xtask/sample/zones/storm.test.zone");
/// Length of a message header in bytes.
pub const HEADER_LEN: usize = 12;
/// UDP with replies of at most the default length.
pub const UDP: Transport = Transport::Udp {
    link: MAX_UDP_MESSAGE,
};

/// Record types to query.
const TYPES: [u16; 20] = [
    1, 2, 5, 6, 12, 15, 16, 28, 33, 35, 39, 41, 44, 52, 251, 252, 255, 257, 65280, 43,
];

/// Codes of EDNS options: those that the server answers, those that it ignores, and cookies most often.
const OPTIONS: [u16; 8] = [3, 8, 9, 10, 10, 11, 15, 19];
/// Lengths of cookies: those of all valid kinds, and others.
const COOKIES: [usize; 8] = [8, 16, 24, 24, 40, 7, 9, 41];

/// An EDNS option. A cookie has one of a few lengths.
#[derive(Arbitrary, Debug)]
struct EdnsOption<'a> {
    code: u8,
    len: u8,
    data: &'a [u8],
}

impl EdnsOption<'_> {
    fn bytes(&self) -> Vec<u8> {
        let code = OPTIONS[usize::from(self.code) % OPTIONS.len()];
        let mut data = self.data[..self.data.len().min(64)].to_vec();
        if code == 10 {
            data.resize(COOKIES[usize::from(self.len) % COOKIES.len()], self.len);
        }
        let len = (data.len() as u16).to_be_bytes();
        [&code.to_be_bytes()[..], &len, &data].concat()
    }
}

/// A valid query.
#[derive(Arbitrary, Debug)]
struct Query<'a> {
    id: u16,
    /// Whether the question is left out, as in queries that only ask for a cookie.
    is_bare: bool,
    /// Indices of the labels that precede the zone's name.
    labels: Vec<u8>,
    qtype: u8,
    /// The EDNS fields: the UDP payload size, whether the version is 1 instead of 0, and the flags.
    edns: Option<(u16, bool, u16)>,
    options: Vec<EdnsOption<'a>>,
}

impl Query<'_> {
    fn bytes(&self, labels: &[&str]) -> Vec<u8> {
        let id = self.id.to_be_bytes();
        let has_edns = u8::from(self.edns.is_some());
        let questions = u8::from(!self.is_bare);
        let mut message = vec![id[0], id[1], 1, 0, 0, questions, 0, 0, 0, 0, 0, has_edns];
        if !self.is_bare {
            self.write_question(labels, &mut message);
        }
        if let Some((size, version, flags)) = self.edns {
            message.extend([0, 0, 41]);
            message.extend(size.to_be_bytes());
            message.extend([0, u8::from(version)]);
            message.extend(flags.to_be_bytes());
            let options = self.options.iter().take(8).flat_map(EdnsOption::bytes);
            let options: Vec<_> = options.collect();
            message.extend((options.len() as u16).to_be_bytes());
            message.extend(options);
        }
        message
    }

    fn write_question(&self, labels: &[&str], message: &mut Vec<u8>) {
        let own = self.labels.iter().take(8);
        let own = own.map(|i| labels[usize::from(*i) % labels.len()]);
        for label in own.chain(["storm", "test", ""]) {
            message.push(label.len() as u8);
            message.extend(label.bytes());
        }
        let qtype = TYPES[usize::from(self.qtype) % TYPES.len()];
        message.extend(qtype.to_be_bytes());
        message.extend([0, 1]);
    }
}

/// A message: an optional valid query, followed by arbitrary bytes. Edits then overwrite single
/// bytes.
#[derive(Arbitrary, Debug)]
pub struct Message<'a> {
    query: Option<Query<'a>>,
    bytes: &'a [u8],
    edits: Vec<(u8, u8)>,
}

impl Message<'_> {
    /// Returns the message, truncated to `limit` bytes. Before the edits, the queried name consists
    /// of some of `labels` and the zone's name.
    pub fn bytes(&self, labels: &[&str], limit: usize) -> Vec<u8> {
        let query = self.query.as_ref().map(|query| query.bytes(labels));
        let mut message = query.unwrap_or_default();
        message.extend_from_slice(self.bytes);
        edit(&mut message, &self.edits);
        message.truncate(limit);
        without_signatures(&mut message);
        message
    }
}

/// Changes the type of all signatures (TSIG) in these bytes. Replies to them depend on the time, and are for
/// the target `dns_signed`.
pub fn without_signatures(bytes: &mut [u8]) {
    for at in 1..bytes.len() {
        if bytes[at - 1..=at] == [0, 250] {
            bytes[at] = 249;
        }
    }
}

/// Returns the distinct labels of up to 19 bytes in the zone's names.
pub fn labels() -> Vec<&'static str> {
    let owners = ZONE.lines().filter_map(|line| line.split(' ').next());
    let mut labels: Vec<_> = owners.flat_map(|owner| owner.split('.')).collect();
    labels.retain(|label| label.len() < 20 && !label.is_empty());
    labels.sort_unstable();
    labels.dedup();
    labels
}

/// Checks a reply to `query`, and returns the bytes of the reply. `rest` is the memory of the query
/// after the responder has changed it.
pub fn checked(query: &[u8], rest: &[u8], reply: &Reply<'_>, transport: Transport) -> Vec<u8> {
    let head = reply.rewritten.unwrap_or_else(|| &rest[..reply.head_len]);
    let bytes = [head, reply.tail.bytes, reply.trail.bytes].concat();
    assert_eq!((head.len(), bytes.len()), (reply.head_len, reply.len()));
    for part in [reply.tail, reply.trail] {
        assert_eq!(part.sum.fold(), udpip::Tail::new(part.bytes).sum.fold());
    }
    let limit = match transport {
        Transport::Tcp => MAX_TCP_MESSAGE,
        Transport::Udp { .. } if reply.trail.bytes.is_empty() => MIN_UDP_MESSAGE,
        Transport::Udp { .. } => MAX_UDP_MESSAGE,
    };
    assert!(bytes.len() <= limit, "{} bytes", bytes.len());
    check_answer(query, &bytes);
    bytes
}

/// Checks with an independent reader that `reply` is a complete answer to `query`.
fn check_answer(query: &[u8], reply: &[u8]) {
    let query = Reader::from_octets(query).expect("a query with a header");
    let reply = Reader::from_octets(reply).expect("a reply with a header");
    let (query_header, header) = (query.header(), reply.header());
    assert_eq!(header.id(), query_header.id());
    assert_eq!(header.opcode(), query_header.opcode());
    assert_eq!(header.rd(), query_header.rd());
    assert!(header.qr() && !header.ra() && !header.z());
    let counts = reply.header_counts();
    if counts.qdcount() != 0 {
        let question = reply.sole_question().expect("one question in the reply");
        let expected = query.first_question().expect("a question in the query");
        assert_eq!(question.qtype(), expected.qtype());
        assert_eq!(question.qclass(), expected.qclass());
        // The reply keeps the upper and lower case of the queried name.
        assert_eq!(question.qname().to_string(), expected.qname().to_string());
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
            data.expect("valid data").expect("a record of a known type");
            *count += 1;
        }
        section = records.next_section().expect("the next section");
    }
    assert_eq!(
        records,
        [counts.ancount(), counts.nscount(), counts.arcount()]
    );
    if header.tc() {
        assert_eq!(records[..2], [0, 0], "a truncated reply with records");
    }
}
