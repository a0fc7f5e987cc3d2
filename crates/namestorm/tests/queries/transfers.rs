//! Tests zone transfers through the whole stack: who gets them, their bytes, and what else happens on
//! the connection (RFC 5936, RFC 1995).

use std::sync::Arc;

use crate::harness::tcp::{Connection, end, framed};
use crate::harness::{Client, FORMS, MODES, Query, name};
use namestorm::{
    Dns, DnsOverTcp, IDLE_TIMEOUT, TcpSettings, TransferClients, Zones, compile, load_text, rcode,
};
use nmio::{Handler as _, Instant};
use tcpip::Config;
use testkit::FIN;

const IXFR: u16 = 251;
const AXFR: u16 = 252;
const ZONE: &str = "$TTL 60\n@ SOA ns Host 7 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.1\n\
                    WWW.sub MX 5 mail.Sub\nWWW.sub A 192.0.2.2\nWWW.sub A 192.0.2.3\n";
/// The answers in a transfer of the zone.
const ANSWERS: [&[u8]; 7] = [
    SOA_ANSWER,
    b"\xc0\x0c\0\x02\0\x01\0\0\0\x3c\0\x05\x02ns\xc0\x0c",
    b"\x02ns\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x01",
    b"\x03WWW\x03sub\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x02",
    b"\xc0\x6d\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02\x03",
    b"\xc0\x6d\0\x0f\0\x01\0\0\0\x3c\0\x0d\0\x05\x04mail\x03Sub\xc0\x0c",
    SOA_ANSWER,
];
const SOA_ANSWER: &[u8] =
    b"\xc0\x0c\0\x06\0\x01\0\0\0\x3c\0\x20\x02ns\xc0\x0c\x04Host\xc0\x0c\0\0\0\x07\
      \0\0\x1c\x20\0\0\x0e\x10\0\x12\x75\0\0\0\x01\x2c";

/// Returns a client of a server for `example.org.`, and for a zone that is broken. The clients in
/// `allowed` may ask for transfers.
fn client(zone: &str, allowed: &[&str]) -> Client {
    client_of_stack(&TcpSettings::default().stack, zone, allowed)
}

/// Like [`client`], for a server whose TCP stack has these settings.
fn client_of_stack(tcp: &Config, zone: &str, allowed: &[&str]) -> Client {
    let zone = load_text("zone", Some("example.org."), zone).unwrap().zone;
    let mut zones = Zones::with_broken(vec![zone], vec![name("broken.org")]).unwrap();
    zones.keep_records();
    let answers = Arc::new(compile(&zones, FORMS[0], [1, 2, 3, 4], &mut |_| {}).unwrap());
    let allowed: Vec<_> = allowed.iter().map(|text| text.parse().unwrap()).collect();
    let mut over_tcp = DnsOverTcp::new(Arc::clone(&answers), IDLE_TIMEOUT);
    over_tcp.set_transfer_clients(TransferClients::new(&allowed).unwrap());
    Client::of_stack(tcp, Dns::new(answers, MODES[0]), over_tcp, false)
}

fn transfers(client: &Client) -> u64 {
    client.server.transports.tcp().app().transfers()
}

/// Sends a message, and returns what the server sends in one segment.
fn ask(client: &mut Client, connection: &mut Connection, message: &[u8]) -> Vec<u8> {
    let reply = connection.send(client, &framed(message)).unwrap();
    connection.ack = end(&reply);
    reply.data
}

/// Same as [`ask`], on a new connection of a new client.
fn ask_once(mut client: Client, query: &Query) -> Vec<u8> {
    let mut connection = Connection::open(&mut client);
    ask(&mut client, &mut connection, &query.bytes())
}

/// Returns the message with a question, these answers, and an OPT record.
fn message(query: &Query, flags: u16, answers: &[&[u8]], opt: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let additional = u16::from(!opt.is_empty());
    for word in [query.id, flags, 1, answers.len() as u16, 0, additional] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.extend(&query.name);
    bytes.extend(query.qtype.to_be_bytes());
    bytes.extend([0, 1]);
    framed(&[bytes, answers.concat(), opt.to_vec()].concat())
}

#[test]
fn rfc_5936_2_2_a_transfer_has_all_records_between_two_soa_records() {
    let mut query = Query::new(&name("example.org"), AXFR);
    let mut client = client(ZONE, &["198.51.100.0/24", "192.0.2.9"]);
    let mut connection = Connection::open(&mut client);
    assert_eq!(
        ask(&mut client, &mut connection, &query.bytes()),
        message(&query, 0x8500, &ANSWERS, b"")
    );
    query.edns = Some((1232, 0, 0));
    assert_eq!(
        ask(&mut client, &mut connection, &query.bytes()),
        message(&query, 0x8500, &ANSWERS, b"\0\0\x29\x04\xd0\0\0\0\0\0\0")
    );
    let counters = client.server.transports.tcp().app().counters();
    let replies = counters.replies[usize::from(rcode::NOERROR)];
    assert_eq!((counters.queries, replies, counters.edns), (2, 2, 1));
}

/// RFC 5936, section 3.4: only names with the case of the question are compressed.
#[test]
fn a_transfer_keeps_upper_and_lower_case() {
    let query = Query::new(&name("EXAMPLE.org"), AXFR);
    let sent = ask_once(client(ZONE, &["0.0.0.0/0"]), &query);
    let has = |part: &[u8]| sent.windows(part.len()).any(|window| window == part);
    assert!(has(&name("WWW.sub.example.org")) && has(&name("mail.Sub.example.org")));
    assert!(!has(b"\xc0\x0c"));
}

#[test]
fn others_get_no_transfer() {
    let refused = |query: &Query| message(query, 0x8105, &[], b"");
    let query = Query::new(&name("example.org"), AXFR);
    for allowed in [&[][..], &["192.0.2.8"], &["2001:db8::/32"]] {
        assert_eq!(ask_once(client(ZONE, allowed), &query), refused(&query));
    }
    // Over UDP, nobody gets one.
    let mut client = client(ZONE, &["192.0.2.9"]);
    for qtype in [AXFR, IXFR] {
        let query = Query::new(&name("example.org"), qtype);
        let reply = client.ask(&query.bytes()).unwrap();
        assert_eq!(framed(&reply), refused(&query));
    }
}

#[test]
fn what_cannot_be_transferred_gets_an_error() {
    let mut client = client(ZONE, &["192.0.2.9"]);
    let mut connection = Connection::open(&mut client);
    for (text, qclass, version, code, reason) in [
        ("ns.example.org", 1, 0, rcode::NOTAUTH, Some(20)),
        ("org", 1, 0, rcode::NOTAUTH, Some(20)),
        ("other.net", 1, 0, rcode::NOTAUTH, Some(20)),
        ("broken.org", 1, 0, rcode::SERVFAIL, Some(24)),
        ("sub.broken.org", 1, 0, rcode::NOTAUTH, Some(20)),
        ("example.org", 3, 0, rcode::REFUSED, Some(21)),
        ("example.org", 255, 0, rcode::REFUSED, Some(21)),
        // The extended code is in the OPT record.
        ("example.org", 1, 1, rcode::BADVERS & 15, None),
    ] {
        let mut query = Query::new(&name(text), AXFR);
        (query.qclass, query.edns) = (qclass, Some((1232, version, 0)));
        let sent = ask(&mut client, &mut connection, &query.bytes());
        let flags = u16::from_be_bytes([sent[4], sent[5]]);
        assert_eq!(flags & 0x840f, 0x8000 | code, "{text} {qclass} {version}");
        let option = reason.map_or(vec![0, 0], |reason| vec![0, 6, 0, 15, 0, 2, 0, reason]);
        assert!(sent.ends_with(&option), "{text} {qclass}: {sent:?}");
    }
    let counters = client.server.transports.tcp().app().counters();
    assert_eq!(counters.replies[usize::from(rcode::NOTAUTH)], 4);
    // The question is cut off.
    let cut = &Query::new(&name("example.org"), AXFR).bytes()[..27];
    let sent = ask(&mut client, &mut connection, cut);
    assert_eq!(sent[2..6], [0x12, 0x34, 0x81, 1]);
}

/// RFC 1995, sections 2 and 4: without differences, a client gets the whole zone, or only the SOA record
/// if its own is not older.
#[test]
fn a_client_that_asks_for_differences_gets_the_zone_or_its_soa_record() {
    let mut client = client(ZONE, &["192.0.2.9"]);
    let mut connection = Connection::open(&mut client);
    let mut query = Query::new(&name("example.org"), IXFR);
    let mut expect = |query: &Query, serial: u32, answers| {
        let mut bytes = query.bytes();
        if query.has_soa {
            let at = bytes.len() - 20;
            bytes[at..at + 4].copy_from_slice(&serial.to_be_bytes());
        }
        let sent = ask(&mut client, &mut connection, &bytes);
        assert_eq!(sent, message(query, 0x8500, answers, b""), "{serial}");
    };
    // Without its SOA record, the client gets the zone.
    expect(&query, 0, &ANSWERS[..]);
    query.has_soa = true;
    expect(&query, 6, &ANSWERS[..]);
    expect(&query, 7, &ANSWERS[..1]);
    expect(&query, 8, &ANSWERS[..1]);
    // By the arithmetic of RFC 1982, this serial is older, and the next one is neither older nor newer.
    expect(&query, 0x8000_0010, &ANSWERS[..]);
    expect(&query, 0x8000_0007, &ANSWERS[..]);
    assert_eq!(transfers(&client), 4, "a single SOA record is no transfer");
}

#[test]
fn a_query_for_differences_with_something_else_than_an_soa_record_is_malformed() {
    let mut client = client(ZONE, &["192.0.2.9"]);
    let mut connection = Connection::open(&mut client);
    let query = Query {
        has_soa: true,
        ..Query::new(&name("example.org"), IXFR)
    };
    let bytes = query.bytes();
    let type_at = bytes.len() - 34 + 2;
    for (at, bytes) in [
        (bytes.len(), &bytes[..bytes.len() - 1]),
        (bytes.len(), &bytes[..bytes.len() - 34]),
        (
            type_at,
            &[&bytes[..type_at], &[0, 1], &bytes[type_at + 2..]].concat(),
        ),
        (
            bytes.len(),
            &[
                &bytes[..bytes.len() - 23],
                &[21],
                &bytes[bytes.len() - 22..bytes.len() - 1],
            ]
            .concat(),
        ),
    ] {
        let sent = ask(&mut client, &mut connection, bytes);
        assert_eq!(sent, message(&query, 0x8101, &[], b""), "{at}");
    }
    assert_eq!(transfers(&client), 0);
}

/// Returns a client of a server for a zone that is larger than the send buffer. Its TCP stack has these
/// settings. Also returns the length of the answers in its transfer, in bytes.
fn client_of_large_zone(tcp: &Config) -> (Client, usize) {
    const RECORDS: usize = 30_000;
    let records: Vec<_> = (0..RECORDS)
        .map(|n| format!("h{n} A 192.0.2.1\n"))
        .collect();
    let records = records.concat();
    let labels: usize = (0..RECORDS).map(|n| 2 + n.to_string().len()).sum();
    let len = ANSWERS.concat().len() + labels + RECORDS * (2 + 10 + 4);
    let zone = format!("{ZONE}{records}");
    (client_of_stack(tcp, &zone, &["192.0.2.9"]), len)
}

/// Returns true if a transfer with this many bytes in its answers may have taken so many bytes.
fn is_whole(answers: usize, sent: usize) -> bool {
    // Each message has a length field and a question, and may begin with an owner in full.
    let heads = sent.div_ceil(16_384) * (2 + 12 + 17);
    sent.abs_diff(answers + heads) < 100
}

#[test]
fn queries_behind_a_transfer_are_answered_after_it() {
    // Without lists, a connection has few entries for unacknowledged writes.
    for lists in [4, 0] {
        let tcp = Config {
            max_entry_lists: lists,
            ..TcpSettings::default().stack
        };
        let (mut client, len) = client_of_large_zone(&tcp);
        let transfer = framed(&Query::new(&name("example.org"), AXFR).bytes());
        let query = framed(&Query::new(&name("ns.example.org"), 1).bytes());
        let mut connection = Connection::open(&mut client);
        let start = connection.ack;
        let all = [&query[..], &transfer, &query, &transfer, &query].concat();
        let mut next = connection.send(&mut client, &all);
        let queries = |client: &Client| client.server.transports.tcp().app().counters().queries;
        assert_eq!(queries(&client), 2);
        let in_flight = end(next.as_ref().unwrap()).wrapping_sub(start);
        assert!(in_flight < 300_000, "{in_flight} bytes are in flight");
        // The client acknowledges what it gets.
        while let Some(segment) = next {
            connection.ack = end(&segment);
            next = connection.send(&mut client, b"");
        }
        assert_eq!(queries(&client), 5, "{lists} lists");
        let sent = connection.ack.wrapping_sub(start) as usize;
        assert_eq!(transfers(&client), 2);
        let of_transfers = sent - 3 * (query.len() + 16);
        assert!(is_whole(len, of_transfers / 2), "{len} {of_transfers}");
    }
}

#[test]
fn a_drain_lets_a_transfer_end() {
    let (mut client, len) = client_of_large_zone(&TcpSettings::default().stack);
    let transfer = framed(&Query::new(&name("example.org"), AXFR).bytes());
    let mut connection = Connection::open(&mut client);
    let start = connection.ack;
    let mut segment = connection.send(&mut client, &transfer).unwrap();
    for round in 1.. {
        let at = Instant::from_millis(20 * round);
        client.server.handle_drain(&mut client.sink, at);
        connection.ack = end(&segment);
        if segment.has(FIN) {
            break;
        }
        segment = connection.send(&mut client, b"").unwrap();
    }
    let sent = connection.ack.wrapping_sub(start + 1) as usize;
    assert!(is_whole(len, sent), "{len} {sent}");
}
