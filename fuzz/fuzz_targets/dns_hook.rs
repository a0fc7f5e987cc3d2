//! Any queries to a hook that answers with any records, over UDP, and over TCP cut
//! anywhere: each reply is whole, and over TCP the same as that to its message alone.
#![no_main]

use std::net::SocketAddr;
use std::sync::Arc;

use fuzz::dns::{Query, ZONE, answers, labels};
use fuzz::talk::{cut, talk};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use namestorm::{
    Answers, DnsOverTcp, Form, Hook, IDLE_TIMEOUT, MAX_TCP_MESSAGE, MAX_TCP_QUERY, MAX_UDP_MESSAGE,
    MIN_UDP_MESSAGE, Name, Question, RecordError, Records, Responder, Section, TcpSettings,
    Transport, Verdict, Zones, compile, load_text,
};
use nmio::{Instant, Port};
use tcpip::{Config, Stack};

const PORT: u16 = 53;
const CLIENT: ([u8; 4], u16) = ([10, 0, 0, 9], 40_000);
/// What the hook answers for.
const HOOKED: [&str; 3] = ["www.storm.test", "new.deep.storm.test", "*.dyn.storm.test"];
/// Labels in front of the zone's name, beside those that it has.
const LABELS: [&str; 6] = ["www", "new", "deep", "dyn", "x", "WWW"];
const OWNERS: [&str; 4] = ["storm.test", "x.storm.test", "other.test", "."];
/// Bytes of the length in front of a message over TCP.
const LENGTH: usize = 2;

/// One record that the hook adds.
#[derive(Arbitrary, Clone, Debug)]
struct Record<'a> {
    section: u8,
    owner: Option<u8>,
    rtype: u16,
    ttl: u32,
    data: &'a [u8],
}

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    by_fqdn: bool,
    /// Chooses the verdict, with the question's type.
    verdict: u8,
    /// A record that is not taken is no error.
    is_forgiving: bool,
    records: Vec<Record<'a>>,
    cuts: [u16; 6],
    ends: bool,
    /// Messages as they are, with their lengths in front.
    messages: Vec<Message<'a>>,
    /// Behind them.
    bytes: &'a [u8],
}

#[derive(Arbitrary, Debug)]
struct Message<'a> {
    query: Option<Query>,
    bytes: &'a [u8],
    edits: Vec<(u8, u8)>,
}

impl Message<'_> {
    fn bytes(&self) -> Vec<u8> {
        let mut message = Vec::new();
        if let Some(query) = &self.query {
            NAMES.with(|labels| query.write(&mut message, labels));
        }
        message.extend_from_slice(self.bytes);
        for (at, byte) in &self.edits {
            if let Some(place) = message.get_mut(usize::from(*at)) {
                *place = *byte;
            }
        }
        message.truncate(MAX_TCP_QUERY);
        message
    }
}

/// What is added: section, owner, type, TTL and data.
type Made = (Section, Option<Name>, u16, u32, Vec<u8>);

/// Does as the input says, the same for the same question.
#[derive(Clone)]
struct Told {
    verdict: u8,
    is_forgiving: bool,
    records: Vec<Made>,
}

impl Told {
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

impl Hook for Told {
    type Message = ();

    fn answer(
        &mut self,
        question: &Question<'_>,
        records: &mut Records<'_>,
        _now: Instant,
    ) -> Result<Verdict, RecordError> {
        assert_eq!(question.peer(), SocketAddr::from(CLIENT));
        assert!(question.labels().count() >= 3, "a name of the hook's");
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

/// The reply to one message, checked by an independent reader.
fn reply(
    responder: &mut Responder,
    hook: &mut Told,
    query: &[u8],
    transport: Transport,
) -> Option<Vec<u8>> {
    let mut message = query.to_vec();
    let peer = CLIENT.into();
    let reply = responder.respond_with(&mut message, transport, hook, peer, Instant::ZERO)?;
    let head = reply.rewritten.map(<[u8]>::to_vec);
    let head = head.unwrap_or_else(|| message[..reply.head_len].to_vec());
    assert_eq!(
        reply.tail.sum.fold(),
        udpip::Tail::new(reply.tail.bytes).sum.fold()
    );
    let bytes = [&head, reply.tail.bytes, reply.trail].concat();
    let limit = match (transport, reply.trail.is_empty()) {
        (Transport::Tcp, _) => MAX_TCP_MESSAGE,
        (Transport::Udp { .. }, true) => MIN_UDP_MESSAGE,
        (Transport::Udp { .. }, false) => MAX_UDP_MESSAGE,
    };
    assert!(bytes.len() <= limit, "{} bytes", bytes.len());
    answers(query, &bytes);
    Some(bytes)
}

/// What a client gets over TCP for `sent`, and whether its connection is closed.
fn expected(responder: &mut Responder, hook: &mut Told, mut sent: &[u8]) -> (Vec<u8>, bool) {
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

fuzz_target!(|input: Input| {
    let mut hook = Told::new(&input);
    let all = ANSWERS.with(|answers| Arc::clone(&answers[usize::from(input.by_fqdn)]));
    let mut responder = Responder::new(Arc::clone(&all));
    let mut sent = Vec::new();
    for message in &input.messages {
        let message = message.bytes();
        let link = 1_472;
        reply(&mut responder, &mut hook, &message, Transport::Udp { link });
        sent.extend((message.len() as u16).to_be_bytes());
        sent.extend(message);
    }
    sent.extend_from_slice(input.bytes);
    let (bytes, closes) = expected(&mut responder, &mut hook, &sent);
    let config = Config {
        ports: vec![PORT],
        max_connections: 2,
        ..TcpSettings::default().stack
    };
    let make = |port: &nmio::sim::SimPort| -> Stack<DnsOverTcp<Told>> {
        let dns = DnsOverTcp::with_hook(all, IDLE_TIMEOUT, hook);
        Stack::new(
            &config,
            dns,
            &port.capabilities(),
            [1, 2, 3, 4],
            Instant::ZERO,
        )
    };
    let got = talk(PORT, make, &cut(&sent, &input.cuts), input.ends);
    assert_eq!(got.bytes, bytes);
    assert_eq!(got.is_closed, closes || input.ends);
});
