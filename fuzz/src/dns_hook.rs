//! Sends queries to a zone with a hook that answers with arbitrary records. Each reply must be
//! complete. Over TCP, the replies must not depend on the segmentation.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::dns::{Message, UDP, ZONE, checked, labels, without_signatures};
use crate::talk::talk;
use arbitrary::Arbitrary;
use namestorm::{
    Answers, DnsOverTcp, Form, Hook, IDLE_TIMEOUT, MAX_TCP_QUERY, Name, Question, RecordError,
    Records, Responder, Section, TcpSettings, Transport, Verdict, Zones, compile, load_text,
};
use nmio::sim::SimPort;
use nmio::{Instant, Port};
use tcpip::{Config, Stack};
use testkit::{CLIENT, smol};

const PORT: u16 = 53;
const PEER: SocketAddr = SocketAddr::new(CLIENT[0], smol::FIRST_PORT);
/// Names that the hook answers.
const HOOKED: [&str; 3] = ["www.storm.test", "new.deep.storm.test", "*.dyn.storm.test"];
/// Labels of queried names, in addition to the labels of the zone.
const LABELS: [&str; 6] = ["www", "new", "deep", "dyn", "x", "WWW"];
const OWNERS: [&str; 4] = ["storm.test", "x.storm.test", "other.test", "."];
/// Size in bytes of the length field before each message over TCP.
const LENGTH: usize = 2;

/// A record that the hook tries to add.
#[derive(Arbitrary, Clone, Debug)]
struct Record<'a> {
    section: u8,
    owner: Option<u8>,
    rtype: u16,
    ttl: u32,
    data: &'a [u8],
}

/// What libFuzzer makes.
#[derive(Arbitrary, Debug)]
pub struct Input<'a> {
    by_fqdn: bool,
    /// Selects the hook's verdict, together with the query type.
    verdict: u8,
    /// Whether the hook ignores records that it cannot add.
    is_forgiving: bool,
    records: Vec<Record<'a>>,
    cuts: [u16; 6],
    /// Whether the client closes its direction after the last byte.
    ends: bool,
    /// The client's messages.
    messages: Vec<Message<'a>>,
    /// Bytes to send over TCP after the messages.
    bytes: &'a [u8],
}

/// A record: section, owner, type, TTL and data.
type AddedRecord = (Section, Option<Name>, u16, u32, Vec<u8>);

/// A hook that answers as the input says. Equal questions get equal answers.
#[derive(Clone)]
struct Scripted {
    verdict: u8,
    is_forgiving: bool,
    records: Vec<AddedRecord>,
}

impl Scripted {
    fn new(input: &Input<'_>) -> Self {
        let sections = [Section::Answer, Section::Authority, Section::Additional];
        let records = input.records.iter().map(|record| {
            let owner = record.owner.map(|i| OWNERS[usize::from(i) % OWNERS.len()]);
            let owner = owner.map(|owner| owner.parse().expect("a name"));
            let section = sections[usize::from(record.section) % sections.len()];
            let Record { rtype, ttl, .. } = *record;
            (section, owner, rtype, ttl, record.data.to_vec())
        });
        Self {
            verdict: input.verdict,
            is_forgiving: input.is_forgiving,
            records: records.collect(),
        }
    }
}

impl Hook for Scripted {
    type Message = ();

    fn answer(
        &mut self,
        question: &Question<'_>,
        records: &mut Records<'_>,
        _now: Instant,
    ) -> Result<Verdict, RecordError> {
        assert_eq!(question.peer(), PEER);
        assert!(question.labels().count() >= 3, "a name without a hook");
        for (section, owner, rtype, ttl, data) in &self.records {
            let added = match owner {
                Some(owner) => records.add_to(*section, owner, *rtype, *ttl, data),
                None => records.add(*rtype, *ttl, data),
            };
            if !self.is_forgiving {
                added?;
            }
        }
        let choice = self.verdict.wrapping_add(question.rtype() as u8);
        Ok(match choice % 16 {
            0 => Verdict::Zone,
            1 => Verdict::NoData,
            2 => Verdict::NxDomain,
            3 => Verdict::Refused,
            4 => Verdict::Drop,
            _ => Verdict::Records,
        })
    }
}

thread_local! {
    static NAMES: Vec<&'static str> = [&LABELS[..], &labels()].concat();
    static ANSWERS: [Arc<Answers>; 2] = [Form::Wire, Form::Fqdn].map(|form| {
        let zone = load_text("zone", None, ZONE).expect("a valid zone").zone;
        let mut zones = Zones::new(vec![zone]).expect("one zone");
        for name in HOOKED {
            zones.hook(name).expect("a name of the zone");
        }
        Arc::new(compile(&zones, form, [1, 2, 3, 4], &mut |_| {}).expect("small answers"))
    });
}

/// Answers a query and checks the reply. Returns `None` if there is no reply.
fn reply(
    responder: &mut Responder,
    hook: &mut Scripted,
    query: &[u8],
    transport: Transport,
) -> Option<Vec<u8>> {
    let mut message = query.to_vec();
    let reply = responder.respond_with(&mut message, transport, hook, PEER, Instant::ZERO)?;
    Some(checked(query, &message, &reply, transport))
}

/// Returns the replies that the server must send for `sent` over TCP, and whether it must then
/// close the connection.
fn expected(responder: &mut Responder, hook: &mut Scripted, mut sent: &[u8]) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    while let Some((length, rest)) = sent.split_first_chunk::<LENGTH>() {
        let len = usize::from(u16::from_be_bytes(*length));
        if LENGTH + len > MAX_TCP_QUERY {
            return (bytes, true);
        }
        let Some(message) = rest.get(..len) else {
            break;
        };
        let Some(reply) = reply(responder, hook, message, Transport::Tcp) else {
            return (bytes, true);
        };
        bytes.extend((reply.len() as u16).to_be_bytes());
        bytes.extend(reply);
        sent = &rest[len..];
    }
    (bytes, false)
}

/// Runs the target.
pub fn run(input: &Input<'_>) {
    let mut hook = Scripted::new(&input);
    let all = ANSWERS.with(|answers| Arc::clone(&answers[usize::from(input.by_fqdn)]));
    let mut responder = Responder::new(Arc::clone(&all));
    let mut sent = Vec::new();
    for message in &input.messages {
        let message = NAMES.with(|labels| message.bytes(labels, MAX_TCP_QUERY));
        reply(&mut responder, &mut hook, &message, UDP);
        sent.extend((message.len() as u16).to_be_bytes());
        sent.extend(message);
    }
    sent.extend_from_slice(input.bytes);
    without_signatures(&mut sent);
    let (bytes, closes) = expected(&mut responder, &mut hook, &sent);
    let config = Config {
        ports: vec![PORT],
        max_connections: 2,
        ..TcpSettings::default().stack
    };
    let make = |port: &SimPort| -> Stack<DnsOverTcp<Scripted>> {
        let (dns, secret) = (DnsOverTcp::with_hook(all, IDLE_TIMEOUT, hook), [1, 2, 3, 4]);
        Stack::new(&config, dns, &port.capabilities(), secret, Instant::ZERO)
    };
    let received = talk(PORT, make, &sent, &input.cuts, input.ends);
    assert_eq!(received.bytes, bytes);
    assert_eq!(received.is_closed, closes || input.ends);
}
