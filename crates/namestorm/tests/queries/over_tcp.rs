//! Tests DNS over TCP through the whole stack, with pipelined and incomplete queries, and with a
//! hook.

use std::net::SocketAddr;

use crate::harness::tcp::{Connection, end, framed};
use crate::harness::{Client, FORMS, MODES, Query, name, prepare, prepare_hooked};
use namestorm::{Hook, Question, RecordError, Records, Verdict, rcode};
use nmio::{Handler, Instant, Port as _};
use testkit::{CLIENT, FIN, RST, Segment, read_segment};

const ZONE: &str = "@ 60 SOA ns host 1 7200 3600 1209600 300\n@ 60 NS ns\nns 60 A 192.0.2.1\n";

impl<H: Hook> Client<H> {
    /// Runs the server's timers at time `now`. No frame arrives before that time.
    fn wait_until(&mut self, now: Instant) {
        self.server.handle_timers(&mut self.sink, now);
    }
}

/// After a message that is too short, too long or not a query, the server closes the connection
/// with a FIN. A reset could destroy replies that the client has not read yet.
#[test]
fn a_broken_message_closes_the_connection_after_the_replies_before_it() {
    let answers = prepare(&[("example.org.", ZONE)], FORMS[0]);
    let mut query = Query::new(&name("ns.example.org"), 1);
    let good = framed(&query.bytes());
    query.flags |= 0x8000;
    let response = framed(&query.bytes());
    let too_long = [0xff, 0xff, 1, 2, 3];
    for broken in [&framed(b"short")[..], &framed(b""), &response, &too_long] {
        let mut client = Client::new(&answers, MODES[0], false);
        let mut connection = Connection::open(&mut client);
        let sent = [&good, &good, broken, &good].concat();
        let reply = connection.send(&mut client, &sent).unwrap();
        assert!(reply.has(FIN) && !reply.has(RST), "{broken:?}");
        // There are two replies. Each consists of the query and one record of 16 bytes.
        assert_eq!(reply.data.len(), 2 * (good.len() + 16), "{broken:?}");
        // Data that the client sends after the server's FIN is acknowledged, and does not cause a
        // reset.
        let last = connection.send(&mut client, &good).unwrap();
        assert!(!last.has(RST) && last.is_empty());
        assert_eq!(last.ack, connection.seq);
    }
}

/// RFC 7828, section 3.4: a server that is about to close its connections says so.
#[test]
fn while_draining_clients_are_told_to_close_their_connections() {
    let answers = prepare(&[("example.org.", ZONE)], FORMS[0]);
    let mut client = Client::new(&answers, MODES[0], false);
    let query = Query {
        edns: Some((1232, 0, 0)),
        options: vec![0, 11, 0, 0],
        ..Query::new(&name("ns.example.org"), 1)
    };
    let query = framed(&query.bytes());
    let timeout = |reply: &Segment| reply.data[reply.data.len() - 6..].to_vec();
    let mut connection = Connection::open(&mut client);
    let reply = connection.send(&mut client, &query).unwrap();
    assert_eq!(timeout(&reply), [0, 11, 0, 2, 0, 100]);
    connection.ack = end(&reply);
    // A connection with an incomplete query is not closed by the drain.
    let (start, rest) = query.split_at(5);
    connection.send(&mut client, start);
    client.server.handle_drain(&mut client.sink, Instant::ZERO);
    let reply = connection.send(&mut client, rest).unwrap();
    assert_eq!(timeout(&reply), [0, 11, 0, 2, 0, 0]);
}

#[test]
fn a_query_whose_reply_has_to_wait_is_counted_once() {
    const SEGMENTS: u32 = 36;
    const AT_ONCE: u32 = 40;
    let text = format!(" {}", "x".repeat(250)).repeat(12);
    let zone = format!("@ 60 SOA ns host 1 7200 3600 1209600 300\n@ 60 NS ns\nns 60 TXT{text}\n");
    let answers = prepare(&[("example.org.", &zone)], FORMS[0]);
    let mut client = Client::new(&answers, MODES[0], false);
    let query = Query::new(&name("ns.example.org"), 16).bytes();
    let queries = framed(&query).repeat(AT_ONCE as usize);
    let mut connection = Connection::open(&mut client);
    // The client acknowledges nothing, so the server's send buffer fills up.
    for _ in 0..SEGMENTS {
        connection.send(&mut client, &queries);
    }
    let queries = u64::from(SEGMENTS * AT_ONCE);
    let counters = |client: &Client| *client.server.transports.tcp().app().counters();
    assert!(
        counters(&client).queries < queries,
        "all replies fit the send buffer at once"
    );
    while let Some(reply) = connection.send(&mut client, b"") {
        connection.ack = end(&reply);
    }
    let counters = counters(&client);
    assert_eq!(counters.queries, queries);
    assert_eq!(counters.replies[usize::from(rcode::NOERROR)], queries);
}

#[test]
fn a_query_must_be_complete_within_ten_seconds_of_its_first_byte() {
    let answers = prepare(&[("example.org.", ZONE)], FORMS[0]);
    for (bytes, is_closed) in [(1, true), (2, true), (20, true), (0, false)] {
        let mut client = Client::new(&answers, MODES[0], false);
        let query = Query::new(&name("ns.example.org"), 1).bytes();
        let mut message = framed(&query);
        let mut connection = Connection::open(&mut client);
        message.extend_from_within(..bytes);
        connection.ack = end(&connection.send(&mut client, &message).unwrap());
        connection.send(&mut client, b"");
        let missed = |client: &Client| client.server.transports.tcp().counters().deadlines_missed;
        client.wait_until(Instant::from_millis(9_998));
        assert_eq!(missed(&client), 0);
        client.wait_until(Instant::from_millis(10_001));
        assert_eq!(missed(&client), u64::from(is_closed), "{bytes} bytes");
    }
}

/// A hook that counts its questions and logs their clients. It does not reply if the name starts
/// with `d`.
#[derive(Default)]
struct Counting(u8, Vec<(SocketAddr, bool)>);

impl Hook for Counting {
    type Message = ();

    fn answer(
        &mut self,
        question: &Question<'_>,
        records: &mut Records<'_>,
        _now: Instant,
    ) -> Result<Verdict, RecordError> {
        self.0 += 1;
        self.1.push((question.peer(), question.is_over_tcp()));
        records.add(1, 1, &[192, 0, 2, self.0])?;
        Ok(match question.labels().next() {
            Some([b'd', ..]) => Verdict::Drop,
            _ => Verdict::Records,
        })
    }
}

#[test]
fn one_hook_answers_over_udp_and_tcp() {
    let zones = [("example.org.", ZONE)];
    let answers = prepare_hooked(&zones, &[], &["*.example.org"], FORMS[0]);
    let mut client = Client::with_hook(&answers, MODES[0], false, Counting::default());
    let query = |text| Query::new(&name(text), 1).bytes();
    let over_udp = client.ask(&query("a.example.org")).unwrap();
    assert!(over_udp.ends_with(&[192, 0, 2, 1]));
    assert_eq!(client.ask(&query("d.example.org")), None);
    let mut connection = Connection::open(&mut client);
    let queries = ["b.example.org", "dropped.example.org", "c.example.org"];
    let sent = queries.map(|text| framed(&query(text))).concat();
    let reply = connection.send(&mut client, &sent).unwrap();
    // The server replies to the first query, and closes the connection at the second, which the
    // hook drops.
    assert!(reply.has(FIN) && !reply.has(RST));
    let expected = framed(&[&over_udp[..over_udp.len() - 1], &[3]].concat());
    let expected = [&expected[..15], b"b", &expected[16..]].concat();
    assert_eq!(reply.data, expected);
    let Counting(count, peers) = client.server.transports.hook();
    let peer = SocketAddr::new(CLIENT[0], 40_000);
    assert_eq!(
        (*count, &peers[..]),
        (4, &[false, false, true, true].map(|tcp| (peer, tcp))[..])
    );
    let drops = client.server.transports.tcp().app().counters().drops();
    assert_eq!(drops[2], ("no reply from the hook", 1));
}

/// A complete query is answered before the FIN, and an incomplete one is awaited. Queries over UDP
/// are answered meanwhile.
#[test]
fn a_drain_awaits_incomplete_queries() {
    let answers = prepare(&[("example.org.", ZONE)], FORMS[0]);
    let query = Query::new(&name("ns.example.org"), 1).bytes();
    let mut client = Client::new(&answers, MODES[0], false);
    let mut connection = Connection::open(&mut client);
    connection.send(&mut client, &framed(&query)[..5]);
    let drain = |client: &mut Client, millis| {
        let sent = client.sink.counters().tx_frames;
        let at = Instant::from_millis(millis);
        let drain = client.server.handle_drain(&mut client.sink, at);
        assert!(matches!(drain, nmio::Drain::Busy(_)));
        client.sink.counters().tx_frames - sent
    };
    assert_eq!(drain(&mut client, 0), 0);
    assert!(client.ask(&query).is_some());
    let reply = connection.send(&mut client, &framed(&query)[5..]).unwrap();
    assert_eq!(reply.data.len(), 2 + query.len() + 16);
    assert!(!reply.has(FIN));
    // The reply is not acknowledged yet.
    assert_eq!(drain(&mut client, 20), 1);
    let last = read_segment(client.sink.last()).unwrap().segment;
    assert!(last.has(FIN) && last.data.is_empty());
    assert_eq!(last.seq, end(&reply));
}

#[test]
fn rfc_7828_3_3_2_a_reply_over_tcp_has_the_idle_timeout_if_the_query_asks() {
    let answers = prepare(&[("example.org.", ZONE)], FORMS[0]);
    let mut query = Query::new(&name("ns.example.org"), 1);
    query.edns = Some((1232, 0, 0));
    for (asked, told) in [
        (&[][..], &[][..]),
        (&[0, 11, 0, 0], &[0, 11, 0, 2, 0, 100]),
        // The option has no timeout in a query. A client's timeout is ignored.
        (&[0, 11, 0, 2, 0, 1], &[0, 11, 0, 2, 0, 100]),
        (&[0, 3, 0, 0, 0, 11, 0, 0], &[0, 11, 0, 2, 0, 100]),
    ] {
        query.options = asked.to_vec();
        let mut client = Client::new(&answers, MODES[0], false);
        let mut connection = Connection::open(&mut client);
        let reply = connection.send(&mut client, &framed(&query.bytes()));
        let question = [&query.name[..], &[0, 1, 0, 1]].concat();
        let message = [
            &[0x12, 0x34, 0x85, 0, 0, 1, 0, 1, 0, 0, 0, 1],
            &question[..],
            &[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1],
            &[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, told.len() as u8],
            told,
        ];
        assert_eq!(reply.unwrap().data, framed(&message.concat()), "{asked:?}");
    }
}
