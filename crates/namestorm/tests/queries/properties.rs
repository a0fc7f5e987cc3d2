//! Tests properties with random queries and zones. No input may cause a panic. The prepared answers
//! must match those of a reference implementation in this file, which applies the algorithm of RFC
//! 1034 directly to the records.

use std::collections::BTreeSet;

use crate::harness::records::{APEX, Records, data, path, show};
use crate::harness::{Client, FORMS, MODES, Query, datagram, name, prepare, rtype};
use domain::base::iana::Rtype;
use domain::base::{Message, ParsedName};
use domain::rdata::AllRecordData;
use namestorm::ReplyMode;
use proptest::prelude::*;

const SOA: &str = "z. 9 IN SOA ns.z. h.z. 1 2 3 4 9";
/// Maximum number of characters of a name with its final dot (RFC 1035, section 2.3.4).
const LONGEST_NAME: usize = 254;
/// Maximum number of aliases followed in one answer.
const MAX_STEPS: usize = 16;
const TYPES: [&str; 7] = ["A", "TXT", "CNAME", "DNAME", "NS", "DS", "ANY"];

impl Records {
    /// Answers a query by the algorithm of RFC 1034, section 4.3.2, as updated by RFC 2308, RFC 4592
    /// and RFC 6672. Returns `None` if aliases loop or make a name too long.
    fn answer(&self, qname: &str, qtype: &str) -> Option<Reply> {
        let mut reply = Reply::default();
        let mut name = qname.to_owned();
        let mut seen = BTreeSet::new();
        loop {
            let first = seen.is_empty();
            if name.len() > LONGEST_NAME || !seen.insert(name.clone()) {
                return None;
            }
            let path = path(&name);
            if path.is_empty() {
                if first {
                    reply.rcode = 5;
                    reply.authoritative = false;
                }
                return Some(reply);
            }
            // Walk down from the apex to a zone cut (step 3b).
            for above in &path[1..] {
                if self.has(above, "NS") {
                    // DS belongs to the parent side of the cut. This zone has no DS records, so the
                    // answer is NODATA.
                    if qtype == "DS" && *above == name {
                        return Some(Self::none(reply, 0));
                    }
                    reply.authoritative &= !first;
                    let servers = self.get(above, "NS");
                    reply.authority.extend(servers.map(|r| show(above, r)));
                    return Some(reply);
                }
            }
            let dname = path.iter().find(|n| **n != name && self.has(n, "DNAME"));
            if let Some(dname) = dname {
                if seen.len() > MAX_STEPS {
                    return Some(reply);
                }
                let record = self.get(dname, "DNAME").next().unwrap();
                let target = format!("{}{}", name.strip_suffix(&**dname).unwrap(), record.2);
                reply.answer.insert(show(dname, record));
                let cname = (name.clone(), "CNAME", target.clone());
                reply.answer.insert(show(&name, &cname));
                if ["CNAME", "ANY"].contains(&qtype) {
                    return Some(reply);
                }
                name = target;
                continue;
            }
            let owner = if self.exists(&name) {
                name.clone()
            } else {
                // In step 3c, the wildcard of the closest encloser is used.
                let encloser = path.iter().rev().find(|n| self.exists(n)).unwrap();
                let wildcard = format!("*.{encloser}");
                if !self.exists(&wildcard) {
                    return Some(Self::none(reply, 3));
                }
                wildcard
            };
            if let Some(cname) = self.get(&owner, "CNAME").next()
                && !["CNAME", "ANY"].contains(&qtype)
            {
                if seen.len() > MAX_STEPS {
                    return Some(reply);
                }
                reply.answer.insert(show(&name, cname));
                name.clone_from(&cname.2);
                continue;
            }
            let found = self.at(&owner).filter(|r| qtype == "ANY" || r.1 == qtype);
            let found: Vec<_> = found.map(|record| show(&name, record)).collect();
            if found.is_empty() {
                return Some(Self::none(reply, 0));
            }
            reply.answer.extend(found);
            return Some(reply);
        }
    }

    fn none(mut reply: Reply, rcode: u8) -> Reply {
        reply.rcode = rcode;
        reply.authority.insert(SOA.to_owned());
        reply
    }
}

/// The parts of a reply that are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reply {
    rcode: u8,
    authoritative: bool,
    answer: BTreeSet<String>,
    authority: BTreeSet<String>,
}

impl Default for Reply {
    fn default() -> Self {
        Self {
            rcode: 0,
            authoritative: true,
            answer: BTreeSet::new(),
            authority: BTreeSet::new(),
        }
    }
}

impl Reply {
    /// Removes the RRsets that `reply` leaves out. A reply to ANY over UDP has one RRset of the name
    /// (RFC 8482, section 4.1). Below a DNAME, it has the DNAME and the synthesized CNAME.
    fn keep_rrset(&mut self, reply: &Self) {
        let rtype = |record: &String| record.split(' ').nth(3).unwrap().to_owned();
        let kept: BTreeSet<_> = reply.answer.iter().map(rtype).collect();
        let is_chain = kept.iter().eq(["CNAME", "DNAME"]);
        assert!(is_chain || kept.len() == usize::from(!self.answer.is_empty()));
        self.answer.retain(|record| kept.contains(&rtype(record)));
    }
}

fn decode(bytes: &[u8]) -> Reply {
    let message = Message::from_octets(bytes).unwrap();
    let section = |records: domain::base::message::RecordSection<'_, [u8]>| {
        let records = records.map(|record| {
            let record = record.unwrap();
            assert_ne!(record.rtype(), Rtype::OPT);
            let any = record.to_any_record::<AllRecordData<_, ParsedName<_>>>();
            any.unwrap().to_string()
        });
        records.collect()
    };
    let message = message.for_slice();
    Reply {
        rcode: message.header().rcode().to_int(),
        authoritative: message.header().aa(),
        answer: section(message.answer().unwrap()),
        authority: section(message.authority().unwrap()),
    }
}

/// Generates names inside and outside the zone.
fn names(labels: &'static [&'static str]) -> impl Strategy<Value = String> {
    let label = prop::sample::select(labels);
    let below = prop::collection::vec(label, 0..4);
    (below, prop::bool::weighted(0.93)).prop_map(|(labels, inside)| {
        let labels = labels.iter().map(|label| format!("{label}."));
        labels.collect::<String>() + if inside { APEX } else { "y." }
    })
}

fn zones() -> impl Strategy<Value = Records> {
    let rtype = prop::sample::select(vec!["A", "A", "TXT", "CNAME", "NS", "DNAME"]);
    let owner = names(&["a", "b", "*"]);
    let record = (owner, rtype, names(&["a", "b", "c"]), 0..4u8);
    prop::collection::vec(record, 0..14).prop_map(|list| {
        let mut zone = Records::new();
        for (owner, rtype, target, number) in list {
            if owner.ends_with(APEX) {
                zone.add(&owner, rtype, data(rtype, number, target));
            }
        }
        zone
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn prepared_answers_match_the_algorithm_of_rfc_1034(
        zone in zones(),
        questions in prop::collection::vec((names(&["a", "b", "c", "*"]), 0..TYPES.len()), 30),
    ) {
        let text = zone.text();
        let answers = FORMS.map(|form| prepare(&[(APEX, &text)], form));
        let mut clients = answers.map(|answers| Client::new(&answers, ReplyMode::Turnaround, false));
        for (qname, qtype) in questions {
            let qtype = TYPES[qtype];
            let mut query = Query::new(&name(&qname), rtype(qtype));
            query.edns = Some((1232, 0, 0));
            let query = query.bytes();
            let [wire, fqdn] = clients.each_mut().map(|client| client.ask(&query).unwrap());
            prop_assert_eq!(&wire, &fqdn);
            let message = Message::from_octets(&wire).unwrap();
            if message.header().tc() {
                continue;
            }
            let reply = decode(&wire);
            let answers = usize::from(message.header_counts().ancount());
            prop_assert_eq!(
                answers,
                reply.answer.len(),
                "a duplicate record for {} {} in\n{}",
                qname,
                qtype,
                text
            );
            if let Some(mut expected) = zone.answer(&qname, qtype) {
                if qtype == "ANY" {
                    expected.keep_rrset(&reply);
                }
                prop_assert_eq!(reply, expected, "{} {} in\n{}", qname, qtype, text);
            } else {
                prop_assert_eq!(reply.rcode, 0);
            }
        }
    }
}

/// Generates nearly valid queries: some are truncated, and up to three bytes are changed.
fn nearly_right() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>());
    (
        names(&["a", "b", "www"]),
        any::<u16>(),
        prop::option::of((any::<u16>(), 0..2u8, any::<u16>())),
        prop::collection::vec(change, 0..4),
        prop::option::of(any::<prop::sample::Index>()),
    )
        .prop_map(|(qname, qtype, edns, changes, cut)| {
            let mut query = Query::new(&name(&qname), qtype % 300);
            query.edns = edns;
            let mut bytes = query.bytes();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len() + 1));
            }
            bytes
        })
}

/// Checks the properties that every reply has, whatever the query is.
fn check_reply(query: &[u8], reply: &[u8]) -> Result<(), TestCaseError> {
    prop_assert!(reply.len() >= 12 && reply.len() <= 1232);
    prop_assert_eq!(&reply[..2], &query[..2], "the ID is copied");
    prop_assert!(reply[2] & 0x80 != 0, "it is a response");
    prop_assert_eq!((reply[2] ^ query[2]) & 0x79, 0, "opcode and RD are copied");
    let message = Message::from_octets(reply).unwrap();
    for record in &message {
        let (record, _) = record.unwrap();
        record
            .to_any_record::<AllRecordData<_, ParsedName<_>>>()
            .unwrap();
    }
    let mut sections = message.additional().unwrap();
    prop_assert!(sections.by_ref().all(|record| record.is_ok()));
    if message.header_counts().qdcount() == 1 {
        let question = Message::from_octets(query)
            .unwrap()
            .first_question()
            .unwrap();
        let echoed = message.first_question().unwrap();
        prop_assert_eq!(echoed.to_string(), question.to_string());
        prop_assert_eq!(echoed.qname().to_string(), question.qname().to_string());
    }
    Ok(())
}

const ZONE: &str = "@ 60 SOA ns host 1 2 3 4 60\n@ 60 NS ns\nns 60 A 192.0.2.1\n\
    a 60 NS ns.a\nns.a 60 A 192.0.2.2\n*.b 60 CNAME ns\nwww 60 DNAME b.z.\nb 60 MX 1 ns\n";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_bytes_cause_no_panic(
        bytes in prop_oneof![prop::collection::vec(any::<u8>(), 0..100), nearly_right()],
        v6: bool,
    ) {
        let mut first: Option<Option<Vec<u8>>> = None;
        for form in FORMS {
            let answers = prepare(&[(APEX, ZONE)], form);
            for mode in MODES {
                let reply = Client::new(&answers, mode, v6).ask(&bytes);
                if let Some(reply) = &reply {
                    check_reply(&bytes, reply)?;
                }
                let first = first.get_or_insert_with(|| reply.clone());
                prop_assert_eq!(&reply, first, "{:?} {:?}", form, mode);
            }
        }
    }
}

/// Each datagram is either answered or dropped, and is counted exactly once.
#[test]
fn every_datagram_is_counted() {
    let answers = prepare(&[(APEX, ZONE)], FORMS[0]);
    let mut client = Client::new(&answers, ReplyMode::Turnaround, false);
    let good = Query::new(&name("ns.z."), 1).bytes();
    let mut response = good.clone();
    response[2] |= 0x80;
    let dropped: [&[u8]; 4] = [b"", b"short", &good[..11], &response];
    for bytes in dropped {
        assert!(client.handle(&datagram(false, bytes)).is_none());
    }
    assert!(client.ask(&good).is_some());
    assert!(client.ask(&good[..12]).is_some(), "FORMERR");
    let mut unknown = Query::new(&name("nowhere.z."), 1);
    unknown.edns = Some((1232, 0, 0));
    assert!(client.ask(&unknown.bytes()).is_some(), "NXDOMAIN");
    let counters = client.server.transports.dns().counters();
    let replies: u64 = counters.replies.iter().sum();
    assert_eq!((counters.queries, replies), (7, 3));
    assert_eq!((counters.edns, counters.assembled), (1, 1));
    let drops = [
        ("shorter than a DNS header", 3),
        ("a response, not a query", 1),
        ("no reply from the hook", 0),
        ("rate limit", 0),
    ];
    assert_eq!(counters.drops(), drops);
    let mut by_rcode = counters.by_rcode().to_vec();
    by_rcode.retain(|(_, count)| *count > 0);
    assert_eq!(by_rcode, [("NOERROR", 1), ("FORMERR", 1), ("NXDOMAIN", 1)]);
}
