//! Scenario tests. Each file in `scenarios/` contains zones, and queries with their complete
//! replies.
//!
//! ```text
//! zone NAME             a zone's master file, up to a line "end"
//! broken NAME           a zone that could not be loaded
//! server [WORD…]        what the server says about itself; words: nsid=TEXT,
//!                       version=TEXT, id=TEXT; and cookies=HEX[,HEX], the
//!                       secrets of its cookies. It then serves only IPv4
//! test TITLE            a title, which begins with a section of an RFC
//! ? NAME TYPE [WORD…]   a query; words: edns=SIZE, do, version=N,
//!                       nsid, keepalive, cookie, cookie=HEX, options=HEX
//!                       (the data of OPT), bare (no question), class=NAME, opcode=N, tcp, no-rd, soa (a
//!                       record in the authority section, as in IXFR)
//! = RCODE [WORD…]       the reply's flags: aa, tc; opt (and do) if it has
//!                       an OPT record; its options as CODE:HEX; bare if it
//!                       has no question
//!   RECORD              a record of the answer section, in order
//! ! RECORD              a record of the authority section
//! + RECORD              a record of the additional section, except OPT
//! ```
//!
//! Each query without the word `tcp` is sent as a whole frame over IPv4 and IPv6, with every reply
//! mode and every form of names. A query with the word `tcp` goes directly to one responder for
//! each form of names. All replies to a query must be identical.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::harness::{CLIENT_PORT, Client, FORMS, MODES, Query, name, prepare_beside, rtype};
use domain::base::iana::{Class, OptRcode, Rtype};
use domain::base::message::RecordSection;
use domain::base::opt::UnknownOptData;
use domain::base::{Message, ParsedName, ParsedRecord};
use domain::dep::octseq::Parser;
use domain::rdata::AllRecordData;
use domain::zonefile::inplace::{Entry, Zonefile};
use namestorm::{Answers, Cookies, Form, Identity, NoHook, Responder, Transport};
use nmio::Instant;
use testkit::CLIENT;

#[derive(Clone, Debug)]
struct Case {
    title: String,
    line: usize,
    query: Query,
    tcp: bool,
    expected: Reply,
}

/// A reply as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Reply {
    rcode: String,
    flags: Vec<String>,
    answer: Vec<String>,
    authority: Vec<String>,
    additional: Vec<String>,
}

#[derive(Default)]
struct Scenario {
    zones: Vec<(String, String)>,
    broken: Vec<String>,
    identity: Identity,
    cookies: Option<Arc<Cookies>>,
    cases: Vec<Case>,
}

fn read(text: &str) -> Scenario {
    let mut scenario = Scenario::default();
    let mut title = String::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let line = line.trim();
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let case = scenario.cases.last_mut();
        match word {
            "" | "#" => {}
            "zone" => {
                let text = lines.by_ref().map(|(_, line)| line);
                let text = text.take_while(|line| line.trim() != "end");
                let text = text.fold(String::new(), |all, line| all + line + "\n");
                scenario.zones.push((rest.to_owned(), text));
            }
            "broken" => scenario.broken.push(rest.to_owned()),
            "server" => {
                scenario.identity = server(rest);
                scenario.cookies = server_cookies(rest);
            }
            "test" => {
                assert!(rest.starts_with("RFC "), "line {}: {rest}", at + 1);
                rest.clone_into(&mut title);
            }
            "?" => {
                let (query, tcp) = question(rest);
                scenario.cases.push(Case {
                    title: title.clone(),
                    line: at + 1,
                    query,
                    tcp,
                    expected: Reply::default(),
                });
            }
            "=" => {
                let mut words = rest.split_whitespace().map(str::to_owned);
                let expected = &mut case.unwrap().expected;
                expected.rcode = words.next().unwrap();
                expected.flags = words.collect();
            }
            "!" => case.unwrap().expected.authority.push(record(rest)),
            "+" => case.unwrap().expected.additional.push(record(rest)),
            _ => case.unwrap().expected.answer.push(record(line)),
        }
    }
    scenario
}

fn server(text: &str) -> Identity {
    let value = |of: &str| {
        let mut words = text.split_whitespace();
        words.find_map(|word| word.strip_prefix(of)?.strip_prefix('='))
    };
    Identity::new(
        value("nsid").map(|text| text.parse().unwrap()).as_ref(),
        value("version").map(|text| text.parse().unwrap()).as_ref(),
        value("id").map(|text| text.parse().unwrap()).as_ref(),
    )
}

/// Returns cookies with the secrets of the word `cookies`, at a fixed time.
fn server_cookies(text: &str) -> Option<Arc<Cookies>> {
    let mut words = text.split_whitespace();
    let hex = words.find_map(|word| word.strip_prefix("cookies="))?;
    let secrets = hex.split(',').map(|hex| bytes_of(hex).try_into().unwrap());
    let secrets: Vec<_> = secrets.collect();
    let clock = || SystemTime::UNIX_EPOCH + Duration::from_secs(1_559_731_985);
    Some(Arc::new(Cookies::new(&secrets, clock)))
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let at = (0..hex.len()).step_by(2);
    at.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

fn question(text: &str) -> (Query, bool) {
    let mut words = text.split_whitespace();
    let qname = name(words.next().unwrap());
    let mut query = Query::new(&qname, rtype(words.next().unwrap()));
    let mut tcp = false;
    for word in words {
        let (word, value) = word.split_once('=').unwrap_or((word, ""));
        let mut edns = query.edns.unwrap_or((1232, 0, 0));
        let mut wants_edns = true;
        match word {
            "edns" => edns.0 = value.parse().unwrap(),
            "do" => edns.2 = 0x8000,
            "version" => edns.1 = value.parse().unwrap(),
            "nsid" => query.options.extend([0, 3, 0, 0]),
            "keepalive" => query.options.extend([0, 11, 0, 0]),
            "cookie" if value.is_empty() => query.options.extend(*b"\0\x0a\0\x08myCookie"),
            "cookie" => {
                let cookie = bytes_of(value);
                query.options.extend([0, 10, 0, cookie.len() as u8]);
                query.options.extend(cookie);
            }
            "options" => query.options.extend(bytes_of(value)),
            _ => wants_edns = false,
        }
        if wants_edns {
            query.edns = Some(edns);
            continue;
        }
        match word {
            "class" => query.qclass = value.parse::<Class>().unwrap().to_int(),
            "opcode" => query.flags |= value.parse::<u16>().unwrap() << 11,
            "no-rd" => query.flags &= !0x0100,
            "soa" => query.has_soa = true,
            "bare" => query.is_bare = true,
            "tcp" => tcp = true,
            _ => panic!("unknown word {word}"),
        }
    }
    (query, tcp)
}

/// Formats a record in the same way as the records of replies, for comparison.
fn record(text: &str) -> String {
    // Records in class CHAOS are allowed, too.
    let mut file = Zonefile::new().allow_invalid();
    file.set_default_class(Class::IN);
    file.extend_from_slice(text.as_bytes());
    file.extend_from_slice(b"\n");
    let Ok(Some(Entry::Record(record))) = file.next_entry() else {
        panic!("{text}: not a record");
    };
    let mut wire = Vec::new();
    record.compose(&mut wire).unwrap();
    let parsed = ParsedRecord::parse(&mut Parser::from_ref(&wire[..])).unwrap();
    show(&parsed)
}

fn show(record: &ParsedRecord<'_, [u8]>) -> String {
    let record = record.to_any_record::<AllRecordData<_, ParsedName<_>>>();
    record.unwrap().to_string()
}

/// Parses a reply, and checks the fields that do not depend on the scenario.
fn decode(query: &Query, bytes: &[u8]) -> Reply {
    let message = Message::from_octets(bytes).unwrap();
    let header = message.header();
    assert_eq!(header.id(), query.id);
    assert!(header.qr() && !header.ra() && !header.ad() && !header.cd() && !header.z());
    assert_eq!(header.rd(), query.flags & 0x0100 != 0);
    assert_eq!(header.opcode().to_int(), (query.flags >> 11) as u8 & 15);
    let mut reply = Reply::default();
    let mut flag = |set: bool, name: &str| {
        if set {
            reply.flags.push(name.to_owned());
        }
    };
    flag(header.aa(), "aa");
    flag(header.tc(), "tc");
    if message.header_counts().qdcount() == 0 {
        flag(true, "bare");
    } else {
        let end = 12 + query.name.len();
        assert_eq!(bytes[12..end], query.name, "the question keeps its case");
        assert_eq!(bytes[end..end + 2], query.qtype.to_be_bytes());
        assert_eq!(bytes[end + 2..end + 4], query.qclass.to_be_bytes());
    }
    let opt = message.opt();
    if let Some(opt) = &opt {
        assert_eq!(opt.udp_payload_size(), 1232);
        assert_eq!(opt.version(), 0);
        flag(true, "opt");
        flag(opt.dnssec_ok(), "do");
        for option in opt.opt().iter::<UnknownOptData<_>>() {
            let option = option.unwrap();
            let mut shown = format!("{}:", option.code().to_int());
            for byte in *option.data() {
                write!(shown, "{byte:02x}").unwrap();
            }
            flag(true, &shown);
        }
    }
    reply.rcode = message.opt_rcode().to_string();
    if message.opt_rcode() == OptRcode::BADVERS {
        reply.rcode = "BADVERS".into();
    }
    let section = |records: RecordSection<'_, [u8]>| {
        let records = records.map(Result::unwrap);
        let records = records.filter(|record| record.rtype() != Rtype::OPT);
        records.map(|record| show(&record)).collect()
    };
    let message = message.for_slice();
    reply.answer = section(message.answer().unwrap());
    reply.authority = section(message.authority().unwrap());
    reply.additional = section(message.additional().unwrap());
    reply
}

fn ask_tcp(answers: &Arc<Answers>, scenario: &Scenario, query: &[u8]) -> Vec<u8> {
    let mut responder = Responder::new(Arc::clone(answers));
    responder.set_identity(Arc::new(scenario.identity.clone()));
    if let Some(cookies) = &scenario.cookies {
        responder.set_cookies(Arc::clone(cookies));
    }
    let mut message = query.to_vec();
    let peer = (CLIENT[0], CLIENT_PORT).into();
    let reply = responder
        .respond_with(
            &mut message,
            Transport::Tcp,
            &mut NoHook,
            peer,
            Instant::ZERO,
        )
        .unwrap();
    let head = reply.rewritten.map(<[u8]>::to_vec);
    let (head_len, tail, trail) = (reply.head_len, reply.tail.bytes, reply.trail.bytes);
    let head = head.unwrap_or_else(|| message[..head_len].to_vec());
    let whole = [&head[..], tail, trail].concat();
    assert_eq!((reply.len(), reply.is_empty()), (whole.len(), false));
    whole
}

/// Sends one query to every client, or, with the word `tcp`, to a responder for each form of names.
/// Returns the reply. All replies must be identical.
fn ask_all(
    clients: &mut [Client],
    case: &Case,
    answers: &[Arc<Answers>],
    scenario: &Scenario,
) -> Vec<u8> {
    let query = case.query.bytes();
    if case.tcp {
        let mut replies = answers
            .iter()
            .map(|answers| ask_tcp(answers, scenario, &query));
        let first = replies.next().unwrap();
        assert!(replies.all(|reply| reply == first));
        return first;
    }
    let mut first: Option<Vec<u8>> = None;
    for client in clients {
        // Ask twice, because only the second reply can reuse a resident packet.
        for _ in 0..2 {
            let reply = client
                .ask(&query)
                .unwrap_or_else(|| panic!("line {}: no reply", case.line));
            let first = first.get_or_insert_with(|| reply.clone());
            assert_eq!(reply, *first, "line {}: replies differ", case.line);
        }
    }
    first.unwrap()
}

fn run(file: &str, text: &str) {
    let scenario = read(text);
    assert!(!scenario.cases.is_empty());
    let zones: Vec<_> = scenario
        .zones
        .iter()
        .map(|(origin, text)| (origin.as_str(), text.as_str()))
        .collect();
    let broken: Vec<_> = scenario.broken.iter().map(String::as_str).collect();
    let answers: Vec<_> = FORMS
        .iter()
        .map(|form: &Form| prepare_beside(&zones, &broken, *form))
        .collect();
    let mut clients = Vec::new();
    for answers in &answers {
        for mode in MODES {
            for v6 in [false, true] {
                if v6 && scenario.cookies.is_some() {
                    continue;
                }
                let mut client = Client::of_server(answers, mode, v6, &scenario.identity);
                if let Some(cookies) = &scenario.cookies {
                    client.set_cookies(cookies);
                }
                clients.push(client);
            }
        }
    }
    let mut failures = String::new();
    for case in &scenario.cases {
        let bytes = ask_all(&mut clients, case, &answers, &scenario);
        let reply = decode(&case.query, &bytes);
        if reply != case.expected {
            let Case {
                title,
                line,
                expected,
                ..
            } = case;
            writeln!(
                failures,
                "{file}:{line}: {title}\nexpected {expected:#?}\ngot {reply:#?}"
            )
            .unwrap();
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

macro_rules! scenarios {
    ($($name:ident),+ $(,)?) => {$(
        #[test]
        fn $name() {
            let file = concat!(stringify!($name), ".scenario");
            run(file, include_str!(concat!("scenarios/", stringify!($name), ".scenario")));
        }
    )+};
}

scenarios!(
    answers,
    broken_zones,
    negative,
    wildcards,
    delegations,
    aliases,
    chains,
    edns,
    sizes,
    refusals,
    many_zones,
    identity,
    no_identity,
    signed_nsec,
    signed_nsec3,
    signed_optout,
    cookies
);
