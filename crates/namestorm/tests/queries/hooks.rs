//! Tests hooks over UDP and TCP. Most replies are compared byte for byte with the expected ones.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::harness::{CLIENT_PORT, Client, FORMS, MODES, Query, name, prepare_hooked};
use control::{Program as _, Tally};
use domain::base::{Message, ParsedName};
use domain::rdata::AllRecordData;
use namestorm::{
    Answers, Form, Hook, HookNameError, MAX_UDP_MESSAGE, Name, Namestorm, Question, RecordError,
    Records, Responder, Rrset, Section, Transport, Verdict, Zones, load_text, rtype,
};
use nmio::sim::Sink;
use nmio::{Handler, Instant};
use proptest::prelude::*;
use testkit::CLIENT;

const ZONE: &str = "\
@     60 SOA ns host 1 2 3 4 30
@     60 NS  ns
@     60 MX  5 hook
ns    60 A   192.0.2.1
hook  60 TXT \"of the zone\"
hook  60 A   192.0.2.2
alias 60 CNAME hook
*.w   60 TXT \"of the wildcard\"
*.s.w 60 TXT \"of the other\"
cut   60 NS  ns.elsewhere.
d     60 DNAME s.w
";
const HOOKED: [&str; 4] = [
    "HOOK.example.org",
    "one.w.example.org",
    "new.deep.example.org",
    "*.s.w.example.org",
];
/// The data of the SOA record. Each `c0 00` is a placeholder for a pointer to the apex.
const SOA_DATA: &[u8] =
    b"\x02ns\xc0\x00\x04host\xc0\x00\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\x1e";

/// A hook that returns preset answers and logs its questions.
#[derive(Default)]
struct PresetHook {
    verdict: Option<Verdict>,
    /// The records to add: section, owner (`None` for the qname), type and data.
    preset: Vec<(Section, Option<Name>, u16, Vec<u8>)>,
    /// An RRset to add if the question asks for its type.
    prepared: Option<Rrset>,
    /// Whether the hook ignores the error if a record is refused, instead of returning the error.
    is_forgiving: bool,
    /// For each question: the qname and the type.
    questions: Vec<(Vec<u8>, u16)>,
    /// For each question: the client's address, and whether the question came over TCP.
    peers: Vec<(SocketAddr, bool)>,
    due: Option<Instant>,
}

impl Hook for PresetHook {
    type Message = Rrset;

    fn answer(
        &mut self,
        question: &Question<'_>,
        records: &mut Records<'_>,
        _now: Instant,
    ) -> Result<Verdict, RecordError> {
        self.questions
            .push((question.name().to_vec(), question.rtype()));
        self.peers.push((question.peer(), question.is_over_tcp()));
        for (section, owner, rtype, data) in &self.preset {
            let added = match owner {
                Some(owner) => records.add_to(*section, owner, *rtype, 5, data),
                None => records.add(*rtype, 5, data),
            };
            if !self.is_forgiving {
                added?;
            }
        }
        if let Some(rrset) = self
            .prepared
            .as_ref()
            .filter(|set| question.wants(set.rtype()))
        {
            records.add_rrset(rrset)?;
        }
        Ok(self.verdict.unwrap_or(Verdict::Records))
    }

    fn on_message(&mut self, message: Rrset, _now: Instant) {
        self.prepared = Some(message);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    fn on_timer(&mut self, now: Instant) {
        self.prepared = Some(Rrset::new(rtype::TXT, 1, [b"\x05timer"]).unwrap());
        self.due = Some(now + std::time::Duration::from_secs(1));
    }
}

fn with_verdict(verdict: Verdict) -> PresetHook {
    PresetHook {
        verdict: Some(verdict),
        ..PresetHook::default()
    }
}

fn with_text(text: &[u8]) -> PresetHook {
    let data = [&[text.len() as u8], text].concat();
    PresetHook {
        preset: vec![(Section::Answer, None, rtype::TXT, data)],
        ..PresetHook::default()
    }
}

fn answers(form: Form) -> Arc<Answers> {
    prepare_hooked(&[("example.org.", ZONE)], &["broken.org"], &HOOKED, form)
}

fn query(text: &str, qtype: u16) -> Query {
    Query::new(&name(text), qtype)
}

/// Returns the address and port of the client.
fn peer() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 9], 4_000))
}

/// Returns a responder's whole reply. The reply must be the same for both forms of names in the
/// index.
fn ask(hook: &mut PresetHook, query: &Query, transport: Transport) -> Option<Vec<u8>> {
    let [one, other] = FORMS.map(|form| {
        let mut responder = Responder::new(answers(form));
        let mut message = query.bytes();
        let reply = responder.respond_with(&mut message, transport, hook, peer(), Instant::ZERO)?;
        let head = reply.rewritten.map(<[u8]>::to_vec);
        let (head_len, tail, trail) = (reply.head_len, reply.tail.bytes, reply.trail.bytes);
        assert_eq!(reply.tail.sum.fold(), udpip::Tail::new(tail).sum.fold());
        let head = head.unwrap_or_else(|| message[..head_len].to_vec());
        Some([&head[..], tail, trail].concat())
    });
    assert_eq!(one, other);
    one
}

const UDP: Transport = Transport::Udp {
    link: MAX_UDP_MESSAGE,
};

/// Builds a reply's head, which consists of header and question.
fn head(query: &Query, flags: u16, counts: [u16; 3]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let [answer, authority, additional] = counts;
    for word in [query.id, flags, 1, answer, authority, additional] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.extend(&query.name);
    bytes.extend(query.qtype.to_be_bytes());
    bytes.extend(query.qclass.to_be_bytes());
    bytes
}

/// Returns the zone's SOA record as it appears in the reply. `below` is the number of bytes in the
/// qname before the zone's name.
fn soa(below: u16) -> Vec<u8> {
    let apex = (0xc00c + below).to_be_bytes();
    let mut data = SOA_DATA.to_vec();
    data[3..5].copy_from_slice(&apex);
    data[10..12].copy_from_slice(&apex);
    let fields = [0, 6, 0, 1, 0, 0, 0, 30, 0, data.len() as u8];
    [&apex[..], &fields, &data].concat()
}

const AA: u16 = 0x8500;

#[test]
fn hook_records_are_sent_in_every_mode_over_ipv4_and_ipv6() {
    // The reply keeps the qname's case, which clients randomise against spoofing (0x20).
    let query = query("hOOk.ExamplE.org", rtype::TXT);
    let record = b"\xc0\x0c\0\x10\0\x01\0\0\0\x05\0\x06\x05hello";
    let expected = [&head(&query, AA, [1, 0, 0])[..], record].concat();
    for form in FORMS {
        for mode in MODES {
            for v6 in [false, true] {
                let hook = with_text(b"hello");
                let mut client = Client::with_hook(&answers(form), mode, v6, hook);
                for _ in 0..2 {
                    assert_eq!(client.ask(&query.bytes()).unwrap(), expected);
                }
                let hook = client.server.transports.hook();
                assert_eq!(hook.questions, vec![(query.name.clone(), rtype::TXT); 2]);
                let address = CLIENT[usize::from(v6)];
                let peer = SocketAddr::new(address, CLIENT_PORT);
                assert_eq!(hook.peers, [(peer, false); 2]);
                let counters = client.server.transports.dns().counters();
                assert_eq!((counters.hooked, counters.assembled), (2, 0));
                assert_eq!(counters.replies[0], 2);
            }
        }
    }
    let mut hook = with_text(b"hello");
    let over_tcp = ask(&mut hook, &query, Transport::Tcp);
    assert_eq!(over_tcp.unwrap(), expected);
    assert_eq!(hook.peers, [(peer(), true); 2]);
}

#[test]
fn each_verdict_of_a_hook_gives_its_reply_over_udp_and_tcp() {
    for transport in [UDP, Transport::Tcp] {
        let query = query("hook.example.org", rtype::TXT);
        let reply = |verdict| ask(&mut with_verdict(verdict), &query, transport);
        let nothing = |flags| [&head(&query, flags, [0, 1, 0])[..], &soa(5)].concat();
        assert_eq!(reply(Verdict::Records).unwrap(), nothing(AA));
        assert_eq!(reply(Verdict::NoData).unwrap(), nothing(AA));
        assert_eq!(reply(Verdict::NxDomain).unwrap(), nothing(AA | 3));
        let refused = head(&query, 0x8105, [0; 3]);
        assert_eq!(reply(Verdict::Refused).unwrap(), refused);
        assert_eq!(reply(Verdict::Drop), None);
        let zone = b"\xc0\x0c\0\x10\0\x01\0\0\0\x3c\0\x0c\x0bof the zone";
        let zone = [&head(&query, AA, [1, 0, 0])[..], zone].concat();
        assert_eq!(reply(Verdict::Zone).unwrap(), zone);
        // A verdict other than `Records` discards the added records.
        let mut hook = with_text(b"hello");
        hook.verdict = Some(Verdict::NoData);
        assert_eq!(ask(&mut hook, &query, transport).unwrap(), nothing(AA));
        // This record is refused, because its data is not an IPv4 address.
        hook.preset = vec![(Section::Answer, None, rtype::A, vec![1])];
        let failed = head(&query, 0x8102, [0; 3]);
        assert_eq!(ask(&mut hook, &query, transport).unwrap(), failed);
    }
}

impl control::Named for PresetHook {
    const NAME: &'static str = "preset";
    const PORT: u16 = 53;
}

#[test]
fn errors_of_the_hook_are_counted_for_the_summary_and_the_log() {
    let answers = answers(FORMS[0]);
    let hook = with_text(&[b'x'; 300]);
    let mut client = Client::with_hook(&answers, MODES[0], false, hook);
    let query = query("hook.example.org", rtype::TXT);
    let failed = head(&query, 0x8102, [0; 3]);
    for _ in 0..2 {
        assert_eq!(client.ask(&query.bytes()).unwrap(), failed);
    }
    let zone = load_text("zone", Some("example.org."), ZONE).unwrap().zone;
    let mut zones = Zones::new(vec![zone]).unwrap();
    zones.hook(HOOKED[0]).unwrap();
    let program = Namestorm::with_hook(&zones, |_| Ok(PresetHook::default())).unwrap();
    let server = &client.server.transports;
    let mut tally = Tally::default();
    program.tally::<Sink>(server, &mut tally);
    assert_eq!(tally.of("hook errors"), Some(2));
    assert_eq!(tally.of_label("replies", "SERVFAIL"), Some(2));
    assert_eq!(program.counted::<Sink>(server).app_errors, 2);
}

#[test]
fn the_zone_answers_for_a_hooked_name_as_it_does_without_a_hook() {
    let zone = |text: &str, qtype, hooked: &[&str]| {
        let answers = prepare_hooked(&[("example.org.", ZONE)], &[], hooked, FORMS[0]);
        let mut message = query(text, qtype).bytes();
        let mut responder = Responder::new(answers);
        let mut hook = with_verdict(Verdict::Zone);
        let reply = responder.respond_with(&mut message, UDP, &mut hook, peer(), Instant::ZERO);
        let reply = reply.unwrap();
        let bytes = [reply.tail.bytes, reply.trail.bytes].concat();
        let head = message[..reply.head_len].to_vec();
        (hook.questions.len(), head, bytes)
    };
    let every = ["example.org", "*.example.org"];
    for text in [
        "example.org",
        "hook.example.org",
        "alias.example.org",
        "ns.example.org",
        "w.example.org",
        "x.w.example.org",
        "x.s.w.example.org",
        "nx.example.org",
        "x.d.example.org",
        "cut.example.org",
        "x.cut.example.org",
    ] {
        for qtype in [1, 2, 5, 6, 15, 16, 39, 43, 255] {
            let (count, head, bytes) = zone(text, qtype, &every);
            let (plain_count, plain_head, plain) = zone(text, qtype, &[]);
            assert_eq!((count, plain_count), (1, 0), "{text} {qtype}");
            // Aliases that lead to hooked names are not followed, and addresses of hooked names are
            // omitted.
            if ["alias", "x.d", "example"].contains(&text.split('.').next().unwrap())
                || text.starts_with("x.d")
            {
                assert!(bytes.len() <= plain.len());
                continue;
            }
            assert_eq!((head, bytes), (plain_head, plain), "{text} {qtype}");
        }
    }
}

#[test]
fn a_hook_is_asked_only_for_its_names() {
    let mut hook = with_verdict(Verdict::NxDomain);
    for (text, is_questioned) in [
        ("hook.example.org", true),
        ("x.hook.example.org", false),
        ("one.w.example.org", true),
        ("x.one.w.example.org", false),
        ("two.w.example.org", false),
        ("new.deep.example.org", true),
        ("deep.example.org", false),
        ("s.w.example.org", false),
        ("x.s.w.example.org", true),
        ("*.s.w.example.org", true),
        ("y.x.s.w.example.org", true),
        ("example.org", false),
        ("org", false),
        ("nx.example.org", false),
        ("x.broken.org", false),
    ] {
        hook.questions.clear();
        ask(&mut hook, &query(text, rtype::TXT), UDP).unwrap();
        assert_eq!(
            hook.questions.len(),
            2 * usize::from(is_questioned),
            "{text}"
        );
    }
}

#[test]
fn a_hooked_name_and_its_parent_exist() {
    let mut hook = PresetHook::default();
    let mut reply = |text: &str| {
        let query = query(text, rtype::TXT);
        let reply = ask(&mut hook, &query, UDP).unwrap();
        (u16::from_be_bytes([reply[2], reply[3]]), reply[7])
    };
    // The parent of a hooked name also exists. No wildcard matches the parent, a name below the
    // parent, or a name below the hooked name.
    assert_eq!(reply("deep.example.org"), (AA, 0));
    assert_eq!(reply("x.deep.example.org"), (AA | 3, 0));
    assert_eq!(reply("x.one.w.example.org"), (AA | 3, 0));
    assert_eq!(reply("two.w.example.org"), (AA, 1));
    let mut zone = with_verdict(Verdict::Zone);
    let one = ask(&mut zone, &query("one.w.example.org", rtype::TXT), UDP).unwrap();
    assert_eq!(
        (one[3], one[7], one[9]),
        (0, 0, 1),
        "the zone has no records of the name"
    );
    let below = ask(&mut zone, &query("x.s.w.example.org", rtype::TXT), UDP).unwrap();
    assert!(
        below.ends_with(b"\x0cof the other"),
        "the zone's wildcard answers"
    );
}

#[test]
fn references_to_hooked_names_are_not_followed() {
    let mut hook = with_text(b"hello");
    let alias = query("alias.example.org", rtype::TXT);
    let record = b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x07\x04hook\xc0\x12";
    let expected = [&head(&alias, AA, [1, 0, 0])[..], record].concat();
    assert_eq!(ask(&mut hook, &alias, UDP).unwrap(), expected);
    // The address of a hooked mail exchange is omitted.
    let mail = query("example.org", rtype::MX);
    let record = b"\xc0\x0c\0\x0f\0\x01\0\0\0\x3c\0\x09\0\x05\x04hook\xc0\x0c";
    let expected = [&head(&mail, AA, [1, 0, 0])[..], record].concat();
    assert_eq!(ask(&mut hook, &mail, UDP).unwrap(), expected);
    // A chain from a DNAME to a hooked name ends with the DNAME and its synthesized CNAME.
    let below = query("x.d.example.org", rtype::TXT);
    let reply = ask(&mut hook, &below, UDP).unwrap();
    assert_eq!((reply[3], reply[7], reply[9]), (0, 2, 0));
    assert!(hook.questions.is_empty());
}

#[test]
fn replies_of_a_hook_have_edns_like_other_replies() {
    let mut query = query("hook.example.org", rtype::TXT);
    query.edns = Some((1400, 0, 0x8000));
    let opt = b"\0\0\x29\x04\xd0\0\0\x80\0\0\0";
    let record = b"\xc0\x0c\0\x10\0\x01\0\0\0\x05\0\x06\x05hello";
    let expected = [&head(&query, AA, [1, 0, 1])[..], record, opt].concat();
    let reply = ask(&mut with_text(b"hello"), &query, UDP);
    assert_eq!(reply.unwrap(), expected);
    let reply = ask(&mut with_verdict(Verdict::NxDomain), &query, UDP);
    let expected = [&head(&query, AA | 3, [0, 1, 1])[..], &soa(5), opt].concat();
    assert_eq!(reply.unwrap(), expected);
    // Queries with an unsupported EDNS version do not reach the hook.
    let mut hook = with_text(b"hello");
    query.edns = Some((1232, 1, 0));
    let reply = ask(&mut hook, &query, UDP).unwrap();
    assert_eq!((reply[3], reply[reply.len() - 6]), (0, 1), "BADVERS");
    assert!(hook.questions.is_empty());
}

#[test]
fn long_answers_are_truncated_over_udp_and_whole_over_tcp() {
    let text = |len: u8| {
        (
            Section::Answer,
            None,
            rtype::TXT,
            [&[len][..], &vec![b'x'; len.into()]].concat(),
        )
    };
    let additional = (
        Section::Additional,
        Some("ns.example.org".parse().unwrap()),
        rtype::A,
        vec![192, 0, 2, 1],
    );
    let mut query = query("hook.example.org", rtype::TXT);
    let head_len = head(&query, 0, [0; 3]).len();
    // With two records, the message is exactly 512 bytes long, the maximum without EDNS.
    let last = 512 - head_len - (12 + 1 + 200) - (12 + 1);
    let mut hook = PresetHook {
        preset: vec![text(200), text(last as u8)],
        ..PresetHook::default()
    };
    let full = ask(&mut hook, &query, UDP).unwrap();
    assert_eq!((full.len(), full[2] & 2, full[7]), (512, 0, 2));
    // The message is full, so the additional record, which is optional, is left out.
    hook.preset.push(additional);
    assert_eq!(ask(&mut hook, &query, UDP).unwrap(), full);
    let whole = ask(&mut hook, &query, Transport::Tcp).unwrap();
    assert_eq!((whole.len(), whole[7], whole[11]), (512 + 19, 2, 1));
    // With one more byte, the message exceeds the maximum.
    hook.preset[1] = text(last as u8 + 1);
    let truncated = ask(&mut hook, &query, UDP).unwrap();
    assert_eq!(truncated, head(&query, AA | 0x200, [0; 3]));
    query.edns = Some((1232, 0, 0));
    let larger = ask(&mut hook, &query, UDP).unwrap();
    assert_eq!(
        (larger.len(), larger[2] & 2, larger[11]),
        (513 + 19 + 11, 0, 2)
    );
    hook.preset = vec![text(255); 5];
    let truncated = ask(&mut hook, &query, UDP).unwrap();
    assert_eq!(
        (truncated.len(), truncated[2] & 2, truncated[7]),
        (head_len + 11, 2, 0)
    );
    let over_tcp = ask(&mut hook, &query, Transport::Tcp).unwrap();
    assert_eq!((over_tcp[2] & 2, over_tcp[7]), (0, 5));
}

#[test]
fn a_hook_gets_any_queries_but_no_other_classes_or_transfers() {
    let mut hook = PresetHook {
        prepared: Some(Rrset::new(rtype::TXT, 1, [b"\x01a"]).unwrap()),
        ..PresetHook::default()
    };
    let all = ask(&mut hook, &query("hook.example.org", rtype::ANY), UDP).unwrap();
    assert_eq!((all[7], hook.questions.len()), (1, 2));
    // An answer for class ANY is not authoritative (RFC 1035, section 6.2).
    let mut any_class = query("hook.example.org", rtype::TXT);
    any_class.qclass = 255;
    let reply = ask(&mut hook, &any_class, UDP).unwrap();
    assert_eq!((&reply[2..4], reply[7]), (&[0x81, 0][..], 1));
    hook.questions.clear();
    let mut chaos = query("hook.example.org", rtype::TXT);
    chaos.qclass = 3;
    let refused = head(&chaos, 0x8105, [0; 3]);
    assert_eq!(ask(&mut hook, &chaos, UDP).unwrap(), refused);
    let transfer = query("hook.example.org", 252);
    let refused = head(&transfer, 0x8105, [0; 3]);
    assert_eq!(ask(&mut hook, &transfer, UDP).unwrap(), refused);
    assert!(hook.questions.is_empty());
}

#[test]
fn messages_replace_the_hooks_records_and_its_timer_fires() {
    let (sender, mailbox) = nmio::mailbox(2).unwrap();
    let hook = PresetHook {
        due: Some(Instant::from_millis(70)),
        ..PresetHook::default()
    };
    let mut client = Client::with_hook(&answers(FORMS[0]), MODES[0], false, hook);
    client.server = client.server.with_bell(mailbox.bell().clone());
    client.server.transports.set_mailbox(mailbox);
    let query = query("hook.example.org", rtype::A);
    let pass = |client: &mut Client<PresetHook>, millis| {
        let now = Instant::from_millis(millis);
        client.server.handle_messages(&mut client.sink, now);
        client.server.handle_timers(&mut client.sink, now);
        client.ask(&query.bytes()).unwrap()
    };
    assert_eq!(pass(&mut client, 1)[7], 0);
    for addresses in [&[[192, 0, 2, 7], [192, 0, 2, 8]][..], &[[192, 0, 2, 9]]] {
        sender
            .send(Rrset::new(rtype::A, 1, addresses).unwrap())
            .unwrap();
        let bell = Handler::<nmio::sim::Sink>::bell(&client.server).unwrap();
        assert!(bell.silence());
        let reply = pass(&mut client, 2);
        assert_eq!(usize::from(reply[7]), addresses.len());
        assert!(reply.ends_with(addresses.last().unwrap()));
    }
    let due = Handler::<nmio::sim::Sink>::poll_timeout(&client.server);
    assert_eq!(due, Some(Instant::from_millis(70)));
    assert_eq!(pass(&mut client, 69)[7], 1);
    // At 70 ms, the hook's timer replaces the addresses by a TXT record.
    assert_eq!(pass(&mut client, 70)[7], 0);
    let due = Handler::<nmio::sim::Sink>::poll_timeout(&client.server);
    assert_eq!(due, Some(Instant::from_millis(1_070)));
}

#[test]
fn a_name_outside_our_authority_cannot_be_hooked() {
    let zone = load_text("zone", Some("example.org."), ZONE).unwrap().zone;
    let broken = vec![name("broken.org")];
    let mut zones = Zones::with_broken(vec![zone], broken).unwrap();
    let mut hook = |text: &str| zones.hook(text);
    let of = |text: &str| text.parse::<Name>().unwrap();
    assert_eq!(hook("org"), Err(HookNameError::Outside(of("org"))));
    assert_eq!(hook("*.org"), Err(HookNameError::Outside(of("*.org"))));
    let delegated = Err(HookNameError::Delegated(of("cut.example.org")));
    assert_eq!(hook("cut.example.org"), delegated);
    let below = of("x.d.example.org");
    assert_eq!(
        hook("x.d.example.org"),
        Err(HookNameError::Substituted(below))
    );
    assert!(matches!(hook("a..b"), Err(HookNameError::Name(_))));
    assert_eq!(hook("d.example.org"), Ok(()));
    assert_eq!(hook("x.broken.org"), Ok(()));
}

/// Generates records for a hook to add. Most of them are valid.
fn preset_records() -> impl Strategy<Value = Vec<(Section, Option<Name>, u16, Vec<u8>)>> {
    let owners = ["example.org", "X.example.ORG", "other", "."];
    let names = [
        &b"\x02ns\x07example\x03org\0"[..],
        b"\x01x\x05other\0",
        b"\0",
    ];
    let name = prop::sample::select(names.to_vec());
    let soa = [&b"\x01a\x05other\0"[..], b"\x05other\0", &[0; 20]].concat();
    let data = prop_oneof![
        any::<[u8; 4]>().prop_map(|data| (rtype::A, data.to_vec())),
        any::<[u8; 16]>().prop_map(|data| (rtype::AAAA, data.to_vec())),
        prop::collection::vec(any::<u8>(), 0..255)
            .prop_map(|text| (rtype::TXT, [&[text.len() as u8][..], &text].concat())),
        name.clone().prop_map(|name| (rtype::NS, name.to_vec())),
        name.clone().prop_map(|name| (rtype::CNAME, name.to_vec())),
        name.prop_map(|name| (rtype::MX, [b"\0\x05", name].concat())),
        Just((rtype::SOA, soa)),
        (any::<u16>(), prop::collection::vec(any::<u8>(), 0..40)),
    ];
    let sections = [Section::Answer, Section::Authority, Section::Additional];
    let owner = prop::option::of(prop::sample::select(owners.to_vec()));
    let record = (prop::sample::select(sections.to_vec()), owner, data);
    let record = record.prop_map(|(section, owner, (rtype, data))| {
        (
            section,
            owner.map(|owner| owner.parse().unwrap()),
            rtype,
            data,
        )
    });
    prop::collection::vec(record, 0..30)
}

fn verdicts() -> impl Strategy<Value = Verdict> {
    prop::sample::select(vec![
        Verdict::Records,
        Verdict::Records,
        Verdict::Records,
        Verdict::Zone,
        Verdict::NoData,
        Verdict::NxDomain,
        Verdict::Refused,
    ])
}

proptest! {
    /// An independent parser accepts every answer, and no answer exceeds the size limit of its
    /// transport.
    #[test]
    fn hooked_answers_are_well_formed(
        mut preset in preset_records(),
        in_order: bool,
        verdict in verdicts(),
        is_forgiving: bool,
        text in prop::sample::select(vec!["hook.example.org", "a.B.s.w.example.org"]),
        qtype in prop::sample::select(vec![1_u16, 5, 16, 255]),
        edns in prop::option::of(0..2000_u16),
        tcp: bool,
    ) {
        if in_order {
            preset.sort_by_key(|(section, ..)| *section);
        }
        let mut hook = PresetHook { verdict: Some(verdict), preset, is_forgiving, ..PresetHook::default() };
        let mut query = query(text, qtype);
        query.edns = edns.map(|size| (size, 0, 0));
        let transport = if tcp { Transport::Tcp } else { UDP };
        let reply = ask(&mut hook, &query, transport).unwrap();
        let limit = match edns {
            _ if tcp => 65_535,
            None => 512,
            Some(size) => usize::from(size).clamp(512, 1232),
        };
        prop_assert!(reply.len() <= limit);
        let message = Message::from_octets(&reply[..]).unwrap();
        prop_assert!(!(tcp && message.header().tc()));
        prop_assert_eq!(&reply[12..12 + query.name.len()], &query.name[..]);
        prop_assert_eq!(message.opt().is_some(), edns.is_some());
        let mut records = 0;
        for record in &message {
            let (record, _) = record.unwrap();
            record.to_any_record::<AllRecordData<_, ParsedName<_>>>().unwrap();
            records += 1;
        }
        let counts = message.header_counts();
        let counted = counts.ancount() + counts.nscount() + counts.arcount();
        prop_assert_eq!(records, usize::from(counted));
        // If the last byte is removed, parsing fails. The reply thus has no bytes after its last
        // record.
        let truncated = Message::from_octets(&reply[..reply.len() - 1]).unwrap();
        prop_assert!(records == 0 || truncated.iter().any(|record| record.is_err()));
    }
}
