//! Tests the rate limit on whole frames: who is answered, and with what.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::harness::{Client, FORMS, MODES, PORT, Query, datagram, name, prepare};
use eth::{Mac, Station};
use ip::Host;
use namestorm::{
    Cookies, Dns, DnsOverTcp, IDLE_TIMEOUT, Identity, NoHook, RateLimit, ReplyMode, Server,
    TcpSettings, UdpAndTcp,
};
use nmio::{Handler as _, Instant, Port as _};
use testkit::{SERVER, SERVER_MAC};

const ZONE: &str = "@ 60 SOA ns host 1 7200 3600 1209600 300\n@ 60 NS ns\nns 60 A 192.0.2.1\n";
const START: Instant = Instant::from_millis(10_000);

/// Returns a client of a server with this limit, with a long name, and with cookies.
fn client(limit: &RateLimit, mode: ReplyMode, v6: bool) -> Client {
    let answers = prepare(&[("example.org.", ZONE)], FORMS[0]);
    let mut client = Client::new(&answers, mode, v6);
    let mut dns = Dns::new(Arc::clone(&answers), mode);
    dns.set_rate_limit(limit, [1, 2, 3, 4]);
    let over_tcp = DnsOverTcp::with_hook(answers, IDLE_TIMEOUT, NoHook);
    let capabilities = client.sink.capabilities();
    let config = TcpSettings::default().stack;
    let mut transports =
        UdpAndTcp::with_hook(PORT, dns, over_tcp, &config, &capabilities, [5, 6, 7, 8]);
    let clock = || SystemTime::UNIX_EPOCH + Duration::from_secs(1_559_731_985);
    transports.set_cookies(&Arc::new(Cookies::new(&[[7; 16]], clock)));
    let identity = Identity::new("a".repeat(128).parse().ok().as_ref(), None, None);
    transports.set_identity(&Arc::new(identity));
    let station = Station::new(Mac(SERVER_MAC), &SERVER);
    client.server = Server::new(Host::own(station, [0; 4]), transports);
    client
}

/// Sends a query at this time. Returns the reply, if there is one.
fn ask(client: &mut Client, query: &[u8], now: Instant) -> Option<Vec<u8>> {
    let sent = client.sink.counters().tx_frames;
    let frame = client.sink.frame_from(&datagram(client.v6, query));
    client.server.handle_frame(&mut client.sink, frame, now);
    let has_reply = client.sink.counters().tx_frames > sent;
    has_reply.then(|| crate::harness::payload(client.v6, client.sink.last()))
}

fn limit(rate: u32, slip: u8) -> RateLimit {
    RateLimit {
        rate,
        slip,
        ..RateLimit::default()
    }
}

/// Returns a query for an address, with these EDNS options if there are any.
fn query(options: &[u8]) -> Query {
    Query {
        edns: (!options.is_empty()).then_some((1232, 0, 0)),
        options: options.to_vec(),
        ..Query::new(&name("ns.example.org"), 1)
    }
}

#[test]
fn a_query_over_the_limit_gets_no_reply_or_a_truncated_one() {
    for mode in MODES {
        for v6 in [false, true] {
            let mut client = client(&limit(3, 2), mode, v6);
            let query = query(&[]).bytes();
            let mut replies = (0..9).map(|_| ask(&mut client, &query, START));
            let answer = replies.next().unwrap().unwrap();
            assert_eq!(answer.len(), query.len() + 16);
            assert!(
                replies
                    .by_ref()
                    .take(2)
                    .all(|reply| reply.as_ref() == Some(&answer))
            );
            let mut truncated = query.clone();
            truncated[2] |= 0x82;
            for _ in 0..3 {
                assert_eq!(replies.next().unwrap(), None);
                assert_eq!(replies.next().unwrap().as_ref(), Some(&truncated));
            }
            drop(replies);
            // A third of a second pays for one reply.
            let later = START + Duration::from_millis(334);
            assert_eq!(ask(&mut client, &query, later), Some(answer));
            assert_eq!(ask(&mut client, &query, later), None);
            let counters = client.server.transports.dns().counters();
            let found = (counters.slipped, counters.limited, counters.truncated);
            assert_eq!((counters.queries, found), (11, (3, 4, 3)));
            assert_eq!(counters.drops()[3], ("rate limit", 4));
        }
    }
}

#[test]
fn a_client_with_a_cookie_gets_badcookie_and_comes_again_with_the_right_one() {
    for mode in MODES {
        let mut client = client(&limit(1, 1), mode, false);
        let plain = query(&[]).bytes();
        assert!(ask(&mut client, &plain, START).is_some());
        let only_client = query(b"\0\x0a\0\x08myCookie").bytes();
        let reply = ask(&mut client, &only_client, START).unwrap();
        // BADCOOKIE is 23: the lower four bits are in the header, and the others in the OPT record.
        let question_end = 12 + 16 + 4;
        assert_eq!(reply[..4], [0x12, 0x34, 0x81, 7]);
        assert_eq!(reply[4..12], [0, 1, 0, 0, 0, 0, 0, 1]);
        assert_eq!(reply[12..question_end], plain[12..]);
        let opt = &reply[question_end..];
        assert_eq!(opt[..11], [0, 0, 41, 4, 208, 1, 0, 0, 0, 0, 28]);
        assert_eq!(opt[11..23], *b"\0\x0a\0\x18myCookie");
        let valid = query(&opt[11..]).bytes();
        for _ in 0..10 {
            let reply = ask(&mut client, &valid, START).unwrap();
            assert_eq!((reply[3], reply[7]), (0, 1), "NOERROR with one answer");
        }
        let counters = client.server.transports.dns().counters();
        assert_eq!((counters.new_cookies, counters.good_cookies), (1, 10));
        assert_eq!((counters.slipped, counters.limited), (1, 0));
        let exempt = [("client", 0), ("cookie", 10), ("signature", 0)];
        assert_eq!(counters.exempt(), exempt);
        assert!(counters.by_rcode().contains(&("BADCOOKIE", 1)));
        assert!(counters.by_cookie().contains(&("none", 1)));
    }
}

#[test]
fn clients_with_valid_cookies_take_nothing_from_their_neighbours() {
    let mut client = client(&limit(2, 0), ReplyMode::Turnaround, false);
    let reply = ask(&mut client, &query(b"\0\x0a\0\x08myCookie").bytes(), START).unwrap();
    let valid = query(&reply[reply.len() - 28..]).bytes();
    for _ in 0..20 {
        assert!(ask(&mut client, &valid, START).is_some());
    }
    let plain = query(&[]).bytes();
    assert!(ask(&mut client, &plain, START).is_some());
    assert!(ask(&mut client, &plain, START).is_none());
}

#[test]
fn a_valid_cookie_over_the_limit_earns_no_further_reply() {
    let mut client = client(&limit(1, 0), ReplyMode::Turnaround, false);
    let reply = ask(&mut client, &query(b"\0\x0a\0\x08myCookie").bytes(), START).unwrap();
    let valid = query(&reply[reply.len() - 28..]).bytes();
    for _ in 0..5 {
        assert!(ask(&mut client, &valid, START).is_some());
    }
    assert!(ask(&mut client, &query(&[]).bytes(), START).is_none());
}

#[test]
fn messages_over_the_limit_that_are_no_queries_get_no_reply() {
    let mut client = client(&limit(1, 1), ReplyMode::Turnaround, false);
    let good = query(&[]).bytes();
    assert!(ask(&mut client, &good, START).is_some());
    let mut response = good.clone();
    response[2] |= 0x80;
    let malformed = query(&[0, 10, 0, 1]).bytes();
    let notify = [&good[..2], &[0x20], &good[3..]].concat();
    for message in [&good[..11], &good[..20], &response, &malformed, &notify] {
        assert!(ask(&mut client, message, START).is_none());
    }
    assert!(ask(&mut client, &good, START).is_some(), "truncated");
}

#[test]
fn a_compressed_question_is_expanded_in_a_short_reply() {
    let mut client = client(&limit(1, 1), ReplyMode::Turnaround, false);
    let good = query(&[]).bytes();
    assert!(ask(&mut client, &good, START).is_some());
    // The name ends with a pointer to the ID, whose first byte is the root label.
    let query = b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x02ns\xc0\0\0\x01\0\x01";
    let reply = ask(&mut client, query, START).unwrap();
    let expected = b"\0\x01\x83\0\0\x01\0\0\0\0\0\0\x02ns\0\0\x01\0\x01";
    assert_eq!(reply, expected);
}

#[test]
fn a_short_reply_exceeds_its_query_at_most_by_a_server_cookie() {
    let mut client = client(&limit(1, 1), ReplyMode::Turnaround, false);
    let nsid = query(b"\0\x03\0\0").bytes();
    assert!(ask(&mut client, &nsid, START).unwrap().len() > nsid.len() + 128);
    let reply = ask(&mut client, &nsid, START).unwrap();
    assert_eq!(
        (reply[2] & 2, reply.len()),
        (2, nsid.len() - 4),
        "truncated"
    );
    let both = query(b"\0\x03\0\0\0\x0a\0\x08myCookie").bytes();
    let reply = ask(&mut client, &both, START).unwrap();
    assert_eq!(
        (reply[3], reply.len()),
        (7, both.len() - 4 + 16),
        "BADCOOKIE"
    );
    // The second label begins in the ID, and has the bytes of the first one again.
    let mut grows = b"\0\x3e\x01\0\0\x01\0\0\0\0\0\0\x3e".to_vec();
    grows.extend([b'a'; 62]);
    grows[1 + 63] = 0;
    grows.extend(*b"\xc0\x01\0\x01\0\x01");
    assert_eq!(ask(&mut client, &grows, START), None);
}

#[test]
fn allowed_networks_have_no_limit() {
    let mut limit = limit(1, 1);
    limit.allowed.push("2001:db8::/64".parse().unwrap());
    let query = query(&[]).bytes();
    for v6 in [false, true] {
        let mut client = client(&limit, ReplyMode::Turnaround, v6);
        let whole = (0..10).filter_map(|_| ask(&mut client, &query, START));
        let whole = whole.filter(|reply| reply[2] & 2 == 0).count();
        assert_eq!(whole, if v6 { 10 } else { 1 });
        let counters = client.server.transports.dns().counters();
        let exempt = ("client", if v6 { 9 } else { 0 });
        assert_eq!(counters.exempt(), [exempt, ("cookie", 0), ("signature", 0)]);
    }
}
