//! Tests signatures with shared secrets (RFC 8945) through the whole stack. The client makes and
//! verifies signatures by itself.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::harness::tcp::{Connection, framed};
use crate::harness::{Client, FORMS, MODES, Query, name};
use namestorm::{
    Cookies, Dns, DnsOverTcp, IDLE_TIMEOUT, RateLimit, TransferClients, TsigKeys, Zones, compile,
    load_text, rcode,
};
use testkit::tsig::{KEY_FILE, NAME, NO_ERROR, Signature, code_of, take_off};

const AXFR: u16 = 252;
const NOW: u64 = 0x1_2345_6789;
const ZONE: &str = "$TTL 60\n@ SOA ns Host 7 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.1\n";
/// A key with another algorithm than that of the signatures.
const OTHER: &str = "key other { algorithm hmac-sha512; secret \"c2VjcmV0\"; };";

fn clock() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW)
}

/// Returns a client of a server for `example.org.` with the keys. The clients in `allowed` may ask for
/// transfers.
fn client(zone: &str, allowed: &[&str]) -> Client {
    client_with(zone, allowed, |_| {})
}

/// Like [`client`], with settings of the service for UDP.
fn client_with(zone: &str, allowed: &[&str], set: impl FnOnce(&mut Dns)) -> Client {
    let zone = load_text("zone", Some("example.org."), zone).unwrap().zone;
    let mut zones = Zones::new(vec![zone]).unwrap();
    zones.keep_records();
    let answers = Arc::new(compile(&zones, FORMS[0], [1, 2, 3, 4], &mut |_| {}).unwrap());
    let rules: Vec<_> = allowed.iter().map(|text| text.parse().unwrap()).collect();
    let mut over_tcp = DnsOverTcp::new(Arc::clone(&answers), IDLE_TIMEOUT);
    over_tcp.set_transfer_clients(TransferClients::new(&rules).unwrap());
    let mut dns = Dns::new(answers, MODES[0]);
    set(&mut dns);
    let mut client = Client::of_services(dns, over_tcp, false);
    let keys = TsigKeys::parse(&format!("{KEY_FILE}{OTHER}"))
        .unwrap()
        .with_clock(clock);
    client.server.transports.set_tsig_keys(Arc::new(keys));
    client
}

/// Returns a client of a server that sends one reply per second to a network, and no short ones.
fn limited_client() -> Client {
    slipping_client(0)
}

/// Like [`limited_client`], with short replies to one of this many queries over the limit.
fn slipping_client(slip: u8) -> Client {
    client_with(ZONE, &[], |dns| {
        let limit = RateLimit {
            rate: 1,
            slip,
            ..RateLimit::default()
        };
        dns.set_rate_limit(&limit, [1, 2, 3, 4]);
    })
}

/// Returns a signature that is as old as it may be.
fn signature() -> Signature {
    Signature::at(NOW - 300)
}

/// Returns the code that the first message of a reply must have.
fn code_of_reply(before: &[u8], rest: &[u8], timers: &[u8], end: &[u8]) -> Vec<u8> {
    code_of(before, rest, NAME, timers, end)
}

/// Verifies a reply without an error, and returns it without its signature.
fn verified(reply: &[u8], query_mac: &[u8]) -> Vec<u8> {
    let (rest, [timers, mac, end]) = take_off(reply);
    assert_eq!(timers, [&NOW.to_be_bytes()[2..], &[1, 44]].concat());
    assert_eq!(end, NO_ERROR);
    assert_eq!(mac, code_of_reply(query_mac, &rest, &timers, &end));
    rest
}

/// Sends a message over TCP, and returns the reply without its length field.
fn ask_over_tcp(client: &mut Client, message: &[u8]) -> Vec<u8> {
    let mut connection = Connection::open(client);
    connection.send(client, &framed(message)).unwrap().data[2..].to_vec()
}

#[test]
fn signed_queries_get_the_same_replies_with_signatures() {
    let mut client = client(ZONE, &[]);
    for text in ["ns.example.org", "none.example.org", "other.net"] {
        for edns in [None, Some((1232, 0, 0)), Some((512, 0, 0x8000))] {
            let query = Query {
                edns,
                ..Query::new(&name(text), 1)
            };
            let (signed, mac) = signature().sign(&query.bytes());
            let plain = client.ask(&query.bytes()).unwrap();
            let over_udp = client.ask(&signed).unwrap();
            assert_eq!(verified(&over_udp, &mac), plain, "{text} {edns:?}");
            let plain = ask_over_tcp(&mut self::client(ZONE, &[]), &query.bytes());
            let over_tcp = ask_over_tcp(&mut self::client(ZONE, &[]), &signed);
            assert_eq!(verified(&over_tcp, &mac), plain, "{text} {edns:?}");
        }
    }
}

#[test]
fn replies_to_other_messages_than_queries_are_signed_too() {
    let mut update = Query::new(&name("example.org"), 6).bytes();
    update[2] = 5 << 3;
    let bare = Query {
        is_bare: true,
        ..Query::new(&name("example.org"), 1)
    };
    for (message, rcode) in [(update, 4), (bare.bytes(), 1)] {
        let (signed, mac) = signature().sign(&message);
        for reply in [
            client(ZONE, &[]).ask(&signed).unwrap(),
            ask_over_tcp(&mut client(ZONE, &[]), &signed),
        ] {
            assert_eq!(verified(&reply, &mac)[3] & 15, rcode);
        }
    }
}

#[test]
fn a_reply_leaves_room_for_its_signature_or_is_truncated() {
    let of = |addresses: usize| {
        let records: Vec<_> = (0..addresses)
            .map(|n| {
                format!(
                    "w A 192.0.2.{n}
"
                )
            })
            .collect();
        let mut client = client(&format!("{ZONE}{}", records.concat()), &[]);
        let query = Query::new(&name("w.example.org"), 1).bytes();
        let (signed, mac) = signature().sign(&query);
        let reply = client.ask(&signed).unwrap();
        let rest = verified(&reply, &mac);
        assert!(reply.len() <= 512);
        (rest[2] & 2 != 0, rest[7])
    };
    assert_eq!(of(20), (false, 20));
    // 28 addresses fit 512 bytes without a signature.
    assert_eq!(of(28), (true, 0));
}

/// Forged queries use up the limit of a network. They must not stop a secondary server of it.
#[test]
fn queries_with_new_signatures_have_no_rate_limit() {
    let mut client = limited_client();
    let query = Query::new(&name("ns.example.org"), 1).bytes();
    let signed = |id: u8| {
        let mut query = query.clone();
        query[1] = id;
        signature().sign(&query)
    };
    // A signed query takes nothing from the limit of its network.
    for id in 0..5 {
        let (signed, mac) = signed(id);
        verified(&client.ask(&signed).unwrap(), &mac);
    }
    assert!(client.ask(&query).is_some());
    for id in 5..8 {
        assert!(client.ask(&query).is_none());
        let (signed, mac) = signed(id);
        verified(&client.ask(&signed).unwrap(), &mac);
    }
    let (signed, _) = signature().sign(&query);
    let mut wrong = signed.clone();
    let len = wrong.len();
    wrong[len - 7] ^= 1;
    let short = Signature {
        mac_len: 16,
        ..signature()
    };
    let late = Signature::at(NOW + 301);
    let unknown = Signature {
        key: name("unknown"),
        ..signature()
    };
    let others = [short, late, unknown].map(|signature| signature.sign(&query).0);
    for message in [wrong].into_iter().chain(others) {
        assert!(client.ask(&message).is_none());
    }
    let counters = client.server.transports.dns().counters();
    assert_eq!(counters.exempt()[2], ("signature", 3));
}

/// Somebody has recorded a signed query, and sends it from the address of a victim.
#[test]
fn a_query_that_is_sent_again_and_again_has_the_limit_of_its_network() {
    let query = Query::new(&name("ns.example.org"), 1).bytes();
    let (signed, mac) = signature().sign(&query);
    let mut client = limited_client();
    let mut replies = (0..20).filter_map(|_| client.ask(&signed));
    for _ in 0..4 {
        verified(&replies.next().unwrap(), &mac);
    }
    assert_eq!(replies.next(), None, "three, and one within the limit");
    // The same if the limit is reached before.
    let mut client = limited_client();
    assert!(client.ask(&query).is_some());
    let replies = (0..20).filter_map(|_| client.ask(&signed));
    assert_eq!(replies.count(), 3);
    let counters = client.server.transports.dns().counters();
    assert_eq!(counters.exempt()[2], ("signature", 3));
    assert_eq!(counters.by_limit()[1], ("dropped", 17));
}

/// RFC 8945, section 5.3: each reply to a valid signature is signed. Clients ignore others.
#[test]
fn short_replies_over_the_rate_limit_to_signed_queries_are_signed() {
    let mut client = slipping_client(1);
    let edns = Query {
        edns: Some((1232, 0, 0)),
        ..Query::new(&name("ns.example.org"), 1)
    };
    for (query, answered) in [(Query::new(&name("ns.example.org"), 1), 4), (edns, 3)] {
        let query = query.bytes();
        let (signed, mac) = signature().sign(&query);
        // The signature is new for three queries, and one more is within the limit.
        for _ in 0..answered {
            assert_eq!(verified(&client.ask(&signed).unwrap(), &mac)[2] & 2, 0);
        }
        for _ in 0..4 {
            let reply = client.ask(&signed).unwrap();
            let mut truncated = query.clone();
            truncated[2] |= 0x82;
            assert_eq!(verified(&reply, &mac), truncated);
            assert_eq!(reply.len(), signed.len());
        }
    }
    let counters = client.server.transports.dns().counters();
    assert_eq!(counters.by_limit(), [("slipped", 8), ("dropped", 0)]);
    // A message that is no query gets no reply.
    let mut update = Query::new(&name("example.org"), 6).bytes();
    update[2] = 5 << 3;
    let (signed, _) = signature().sign(&update);
    let replies = (0..9).filter_map(|_| client.ask(&signed));
    assert_eq!(replies.count(), 3, "those to a new signature");
}

thread_local! {
    static LOOKS: Cell<u32> = const { Cell::new(0) };
}

/// Returns the time of [`clock`], and counts the looks at it.
fn counting_clock() -> SystemTime {
    LOOKS.set(LOOKS.get() + 1);
    clock()
}

#[test]
fn the_signature_of_a_query_with_a_short_reply_is_verified_once() {
    let mut client = slipping_client(1);
    let keys = TsigKeys::parse(KEY_FILE).unwrap();
    let keys = Arc::new(keys.with_clock(counting_clock));
    client.server.transports.set_tsig_keys(keys);
    let query = Query::new(&name("ns.example.org"), 1).bytes();
    let (signed, mac) = signature().sign(&query);
    for _ in 0..4 {
        verified(&client.ask(&signed).unwrap(), &mac);
    }
    let before = LOOKS.get();
    let reply = verified(&client.ask(&signed).unwrap(), &mac);
    assert_eq!(reply[2] & 2, 2, "a short reply");
    // One look is for the signature of the query, and one for that of the reply.
    assert_eq!(LOOKS.get() - before, 2);
}

/// The reply exceeds the query only by the server cookie.
#[test]
fn a_signed_query_with_a_cookie_gets_a_signed_badcookie_over_the_rate_limit() {
    let mut client = slipping_client(1);
    client.set_cookies(&Arc::new(Cookies::new(&[[7; 16]], clock)));
    let query = Query {
        edns: Some((1232, 0, 0)),
        options: b"\0\x0a\0\x08myCookie".to_vec(),
        ..Query::new(&name("ns.example.org"), 1)
    };
    let (signed, mac) = signature().sign(&query.bytes());
    for _ in 0..4 {
        assert_eq!(verified(&client.ask(&signed).unwrap(), &mac)[3] & 15, 0);
    }
    let reply = client.ask(&signed).unwrap();
    assert_eq!(reply.len(), signed.len() + 16);
    // BADCOOKIE is 23. The lower four bits are in the header.
    assert_eq!(verified(&reply, &mac)[3], 7);
}

/// The client asks over TCP, and gets the reason there.
#[test]
fn short_replies_to_wrong_signatures_are_not_signed() {
    let mut client = slipping_client(1);
    let query = Query::new(&name("ns.example.org"), 1).bytes();
    assert!(client.ask(&query).is_some());
    let (mut wrong, _) = signature().sign(&query);
    let len = wrong.len();
    wrong[len - 7] ^= 1;
    let unknown = Signature {
        key: name("unknown"),
        ..signature()
    };
    for message in [wrong, unknown.sign(&query).0] {
        let mut truncated = query.clone();
        truncated[2] |= 0x82;
        assert_eq!(client.ask(&message), Some(truncated));
    }
}

/// Somebody has compressed the names in the signature of a recorded query. The reply would be longer.
#[test]
fn a_signature_with_compressed_names_gets_no_short_reply() {
    let mut client = slipping_client(1);
    let query = Query::new(NAME, 1).bytes();
    let (signed, _) = signature().sign(&query);
    let mut compressed = signed.clone();
    compressed.splice(query.len()..query.len() + NAME.len(), [0xc0, 12]);
    let replies: Vec<_> = (0..9).filter_map(|_| client.ask(&compressed)).collect();
    assert_eq!(replies.len(), 4, "three, and one within the limit");
    assert!(replies.iter().all(|reply| reply[2] & 2 == 0));
    assert!(client.ask(&signed).unwrap()[2] & 2 != 0);
}

#[test]
fn wrong_signatures_get_notauth_with_the_reason() {
    let query = Query::new(&name("ns.example.org"), 1).bytes();
    let known = signature();
    let unknown = Signature {
        key: name("unknown"),
        ..known.clone()
    };
    let other = Signature {
        key: name("other"),
        ..known.clone()
    };
    for (signature, error) in [(unknown, 17), (other, 17)] {
        let (signed, _) = signature.sign(&query);
        for reply in [
            client(ZONE, &[]).ask(&signed).unwrap(),
            ask_over_tcp(&mut client(ZONE, &[]), &signed),
        ] {
            let head = [
                &query[..2],
                &[0x81, 9],
                &[0, 1, 0, 0, 0, 0, 0, 1],
                &query[12..],
            ]
            .concat();
            assert!(reply.starts_with(&head), "{reply:?}");
            // The code is empty.
            let end = [&[0, 0], &query[..2], &[0, error, 0, 0]].concat();
            assert!(reply.ends_with(&end), "{reply:?}");
        }
    }
    // The code is wrong.
    let (mut signed, _) = known.sign(&query);
    let len = signed.len();
    signed[len - 7] ^= 1;
    let (rest, [_, mac, end]) = take_off(&client(ZONE, &[]).ask(&signed).unwrap());
    assert_eq!(
        (rest[3] & 15, &mac[..], &end[..]),
        (9, &[][..], &[0, 16, 0, 0][..])
    );
    // The clock of the client is wrong. It gets its own time, and that of the server.
    for time in [NOW - 301, NOW + 301] {
        let signature = Signature {
            time,
            ..known.clone()
        };
        let (signed, mac) = signature.sign(&query);
        let (rest, [timers, code, end]) = take_off(&client(ZONE, &[]).ask(&signed).unwrap());
        assert_eq!(rest[3] & 15, 9);
        assert_eq!(timers, [&time.to_be_bytes()[2..], &[1, 44]].concat());
        assert_eq!(end, [&[0, 18, 0, 6], &NOW.to_be_bytes()[2..]].concat());
        assert_eq!(code, code_of_reply(&mac, &rest, &timers, &end));
    }
    // The code is truncated.
    let (signed, mac) = Signature {
        mac_len: 16,
        ..known.clone()
    }
    .sign(&query);
    let (rest, [timers, code, end]) = take_off(&client(ZONE, &[]).ask(&signed).unwrap());
    assert_eq!((rest[3] & 15, &end[..]), (9, &[0, 22, 0, 0][..]));
    assert_eq!(code, code_of_reply(&mac, &rest, &timers, &end));
}

#[test]
fn a_signature_that_is_malformed_or_not_the_last_record_gets_formerr() {
    let query = Query::new(&name("ns.example.org"), 1).bytes();
    let known = signature();
    let (signed, _) = known.sign(&query);
    let (short, _) = Signature {
        mac_len: 15,
        ..known.clone()
    }
    .sign(&query);
    let (long, _) = Signature {
        mac_len: 33,
        ..known.clone()
    }
    .sign(&query);
    let (twice, _) = known.sign(&signed);
    let mut with_opt = [&signed[..], &[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]].concat();
    with_opt[11] += 1;
    let mut other_class = signed.clone();
    let class_at = query.len() + name("known").len() + 3;
    other_class[class_at] = 1;
    for message in [short, long, twice, with_opt, other_class] {
        for reply in [
            client(ZONE, &[]).ask(&message),
            Some(ask_over_tcp(&mut client(ZONE, &[]), &message)),
        ] {
            let reply = reply.unwrap();
            assert_eq!(
                (&reply[..2], reply[3] & 15),
                (&query[..2], 1),
                "{message:?}"
            );
            assert_ne!(reply[11], 2, "the reply is not signed");
        }
    }
    // Any end may be missing.
    for len in 0..signed.len() {
        let mut client = client(ZONE, &[]);
        let reply = client.ask(&signed[..len]);
        assert!(reply.is_none_or(|reply| reply[3] & 15 == 1), "{len}");
    }
}

/// The names of an unknown key are in the reply, without compression.
#[test]
fn a_signature_of_an_unknown_key_with_compressed_names_gets_formerr() {
    let label = "x".repeat(61);
    let long = name(&format!("{label}.{label}.{label}.{label}"));
    let query = Query::new(&long, 1).bytes();
    let [qname, root, other]: [&[u8]; 3] = [b"\xc0\x0c", b"\0", b"\x01k\0"];
    let end = [&[0; 6][..], &[1, 44], &[0, 0], &query[..2], &[0; 4]].concat();
    let signed = |key: &[u8], algorithm: &[u8]| {
        let fields = [
            0,
            250,
            0,
            255,
            0,
            0,
            0,
            0,
            0,
            (algorithm.len() + end.len()) as u8,
        ];
        let mut message = [&query[..], key, &fields, algorithm, &end].concat();
        message[11] = 1;
        message
    };
    for (key, algorithm) in [(qname, qname), (qname, root), (other, qname)] {
        let message = signed(key, algorithm);
        for reply in [
            client(ZONE, &[]).ask(&message).unwrap(),
            ask_over_tcp(&mut client(ZONE, &[]), &message),
        ] {
            assert_eq!((reply[3] & 15, reply[11]), (1, 0));
            assert!(reply.len() <= message.len());
        }
    }
    // Without compression, the reply is that to an unknown key.
    let message = signed(other, root);
    let reply = client(ZONE, &[]).ask(&message).unwrap();
    assert_eq!((reply[3] & 15, reply.len()), (9, message.len()));
}

#[test]
fn a_rule_with_a_key_allows_transfers_only_with_a_signature_of_it() {
    let query = Query::new(&name("example.org"), AXFR).bytes();
    let (signed, mac) = signature().sign(&query);
    for (rule, plain_code, signed_code) in [
        ("192.0.2.9", 0, 0),
        ("192.0.2.9 known", 5, 0),
        ("0.0.0.0/0 known.", 5, 0),
        ("192.0.2.9 other", 5, 5),
        ("192.0.2.8 known", 5, 5),
    ] {
        let reply = ask_over_tcp(&mut client(ZONE, &[rule]), &query);
        assert_eq!(reply[3] & 15, plain_code, "{rule}");
        let reply = ask_over_tcp(&mut client(ZONE, &[rule]), &signed);
        let rest = verified(&reply, &mac);
        assert_eq!(rest[3] & 15, signed_code, "{rule}");
        assert_eq!(rest[7], if signed_code == 0 { 4 } else { 0 }, "{rule}");
    }
    let mut client = client(ZONE, &["192.0.2.9 known"]);
    let mut wrong = signed.clone();
    let len = wrong.len();
    wrong[len - 7] ^= 1;
    assert_eq!(ask_over_tcp(&mut client, &wrong)[3] & 15, 9);
    let counters = client.server.transports.tcp().app().counters();
    assert_eq!(counters.replies[usize::from(rcode::NOTAUTH)], 1);
    assert_eq!(counters.by_signature(), [("valid", 0), ("invalid", 1)]);
}
