//! Sends batches of queries through the event loop. Each query must get its own reply, from a small
//! zone and from a zone large enough for prefetching.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use crate::harness::{FORMS, MODES, PORT, Query, datagram, name, payload, prepare};
use eth::{Mac, Station};
use ip::Host;
use namestorm::{Answers, ReplyMode, Responder, Server, Transport, UdpAndTcp};
use nmio::sim::{LinkConfig, SimPort};
use nmio::{Frame, Handler, Instant, Port};
use testkit::dnssec::{Denial, large_zone};
use testkit::{Link, SERVER, SERVER_MAC, send};

/// A client that stores all received frames.
#[derive(Default)]
struct Client(Vec<Vec<u8>>);

impl Handler<SimPort> for Client {
    fn handle_frame(&mut self, _port: &mut SimPort, frame: Frame, _now: Instant) {
        self.0.push(frame.to_vec());
    }

    fn handle_timers(&mut self, _port: &mut SimPort, _now: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

fn zone(names: usize) -> String {
    let mut zone = String::from("@ 60 SOA ns host 1 7200 3600 1209600 300\n@ 60 NS ns\n");
    zone += "ns 60 A 192.0.2.1\n";
    for i in 0..names {
        writeln!(zone, "host{i} 60 A 10.0.{}.{}", i >> 8 & 255, i & 255).unwrap();
    }
    zone
}

/// Returns a server of UDP and TCP at the link's server end.
fn server(link: &Link, answers: &Arc<Answers>, mode: ReplyMode) -> Server {
    let host = Host::own(Station::new(Mac(SERVER_MAC), &SERVER), [0; 4]);
    let capabilities = link.server.capabilities();
    Server::new(
        host,
        UdpAndTcp::new(PORT, answers, mode, &capabilities, [1; 4]),
    )
}

#[test]
fn every_query_of_a_batch_gets_its_own_reply() {
    for names in [100, 40_000] {
        let zone = zone(names);
        for form in FORMS {
            let answers = prepare(&[("example.org.", &zone)], form);
            assert_eq!(answers.size().memory > 4 << 20, names > 100);
            for mode in MODES {
                let mut link = Link::new(&LinkConfig::default(), 1);
                let mut server = server(&link, &answers, mode);
                let queried: Vec<_> = (0..200).map(|i| i * 197 % names).collect();
                for (id, number) in queried.iter().enumerate() {
                    let mut query = Query::new(&name(&format!("host{number}.example.org")), 1);
                    query.id = id as u16;
                    let v6 = id % 3 == 0;
                    send(&mut link.client, &datagram(v6, &query.bytes()));
                    // A malformed query must not affect the other queries of its batch.
                    send(
                        &mut link.client,
                        &match id % 2 {
                            0 => datagram(v6, &query.bytes()[..id % 20]),
                            _ => truncate(&query.bytes(), 1 + id % 20),
                        },
                    );
                    link.client.flush().unwrap();
                }
                let mut client = Client::default();
                let second = Duration::from_secs(1);
                link.run(&mut client, &mut server, second, |_, _| false);
                // Each query with a complete header got a reply, even if its question was
                // truncated.
                assert_eq!(server.transports.udp().counters().answered, 340);
                check(&client.0, &queried);
            }
        }
    }
}

/// Builds a query whose UDP length field is `missing` bytes too small, so that the question is
/// truncated. The IP packet still holds the whole question.
fn truncate(query: &[u8], missing: usize) -> Vec<u8> {
    let mut frame = datagram(false, query);
    let udp = &mut frame[34..];
    let len = 8 + query.len() - missing;
    udp[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    // A checksum of 0 means that there is no checksum, so the changed length causes no mismatch.
    udp[6..8].fill(0);
    frame
}

fn check(frames: &[Vec<u8>], queried: &[usize]) {
    let mut answered = 0;
    for frame in frames {
        let message = payload(frame[12] == 0x86, frame);
        let id = usize::from(u16::from_be_bytes([message[0], message[1]]));
        if message[7] == 0 {
            continue;
        }
        let number = queried[id];
        let address = [10, 0, (number >> 8) as u8, number as u8];
        assert!(message.ends_with(&address), "{id}: {message:?}");
        answered += 1;
    }
    assert_eq!(answered, queried.len());
}

#[test]
fn what_is_found_in_advance_changes_no_reply() {
    for denial in [Denial::Nsec, Denial::Nsec3, Denial::OptOut] {
        let zone = large_zone("example.org.", denial);
        for form in FORMS {
            let answers = prepare(&[("example.org.", &zone)], form);
            assert!(answers.size().memory > 2 << 20);
            let mut link = Link::new(&LinkConfig::default(), 1);
            let mut server = server(&link, &answers, ReplyMode::Turnaround);
            let mut alone = Responder::new(Arc::clone(&answers));
            let mut expected = Vec::new();
            for id in 0..440u16 {
                let number = usize::from(id);
                let n = number * 197 % 2_400;
                let labels = [
                    format!("HOST{n}"),
                    format!("host{n}-"),
                    format!("x.y.host{n}"),
                    format!("host{n}.wild"),
                    "x.b.wild".to_owned(),
                    format!("host{n}.old"),
                    format!("host{n}.older"),
                    format!("alias{n}"),
                    format!("x.alias{n}.older"),
                    format!("loop{n}"),
                    format!("www.child{n}"),
                    format!("child{n}"),
                    format!("of{n}.tree"),
                    format!("x.of{n}.tree"),
                    "alias".to_owned(),
                ];
                let qname = name(&format!("{}.example.org", labels[number % labels.len()]));
                let mut query = Query::new(&qname, [1, 16, 43][number % 3]);
                query.id = id;
                query.edns = Some((1232, 0, if id % 4 > 0 { 0x8000 } else { 0 }));
                let mut message = query.bytes();
                send(&mut link.client, &datagram(false, &message));
                link.client.flush().unwrap();
                let transport = Transport::Udp { link: 1472 };
                let reply = alone.respond(&mut message, transport).unwrap();
                let (head_len, tail, trail) = (reply.head_len, reply.tail.bytes, reply.trail.bytes);
                expected.push([&message[..head_len], tail, trail].concat());
            }
            let mut client = Client::default();
            link.run(&mut client, &mut server, Duration::from_secs(1), |_, _| {
                false
            });
            assert_eq!(client.0.len(), expected.len());
            for frame in &client.0 {
                let reply = payload(false, frame);
                let id = usize::from(u16::from_be_bytes([reply[0], reply[1]]));
                assert_eq!(reply, expected[id], "{denial:?}, {form}");
            }
        }
    }
}
