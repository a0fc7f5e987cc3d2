//! Sends batches of nearly valid queries to signed zones that are large enough for prefetching. Each reply
//! must be the same as if the query had come alone.

use std::sync::Arc;
use std::time::Duration;

use crate::dns::Message;
use crate::{CLIENT_PORT, station};
use arbitrary::Arbitrary;
use ip::Host;
use namestorm::{Answers, Form, ReplyMode, Responder, Server, Transport, UdpAndTcp, prepare_text};
use nmio::sim::{LinkConfig, SimPort};
use nmio::{Frame, Handler, Instant, Port};
use testkit::dnssec::{Denial, large_zone};
use testkit::{Link, Route, send};

const PORT: u16 = 53;
/// Maximum number of queries in a batch.
const MAX_QUERIES: usize = 8;
/// Maximum length of a message. Its datagram fits a packet of the link.
const MAX_MESSAGE: usize = 1400;
/// The UDP payload of the largest packet on the link.
const UDP: Transport = Transport::Udp { link: 1472 };
/// Length in bytes of the Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 42;
/// Labels of queried names. Most combinations lead to one of the zone's names, or next to it.
const LABELS: [&str; 18] = [
    "host7", "HOST7-", "alias9", "loop50", "old", "OLDER", "older", "wild", "b", "a", "child3",
    "child6", "deep", "of50", "tree", "x", "ns", "*",
];

/// What libFuzzer makes.
#[derive(Arbitrary, Debug)]
pub struct Input<'a> {
    zone: u8,
    messages: Vec<Message<'a>>,
}

thread_local! {
    static ZONES: Vec<Arc<Answers>> = [Denial::Nsec, Denial::Nsec3, Denial::OptOut]
        .iter()
        .flat_map(|denial| {
            let text = large_zone("storm.test.", *denial);
            let text = format!("$ORIGIN storm.test.\n{text}");
            [Form::Wire, Form::Fqdn].map(|form| prepare_text(&text, form).expect("a valid zone").into())
        })
        .collect();
}

/// A client that stores all received messages.
#[derive(Default)]
struct Client(Vec<Vec<u8>>);

impl Handler<SimPort> for Client {
    fn handle_frame(&mut self, _port: &mut SimPort, frame: Frame, _now: Instant) {
        self.0.push(frame[HEADERS..].to_vec());
    }

    fn handle_timers(&mut self, _port: &mut SimPort, _now: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// Runs the target.
pub fn run(input: &Input<'_>) {
    let answers = ZONES.with(|zones| Arc::clone(&zones[usize::from(input.zone) % zones.len()]));
    let mut alone = Responder::new(Arc::clone(&answers));
    let mut link = Link::new(&LinkConfig::default(), 1);
    let mut expected = Vec::new();
    for message in input.messages.iter().take(MAX_QUERIES) {
        let mut message = message.bytes(&LABELS, MAX_MESSAGE);
        let route = Route::to_server(false, CLIENT_PORT, PORT);
        send(&mut link.client, &route.datagram(&message));
        if let Some(reply) = alone.respond(&mut message, UDP) {
            let head = reply.rewritten.unwrap_or(&message[..reply.head_len]);
            expected.push([head, reply.tail.bytes, reply.trail.bytes].concat());
        }
    }
    link.client.flush().expect("a simulated port does not fail");
    let capabilities = link.server.capabilities();
    let udp_and_tcp = UdpAndTcp::new(PORT, &answers, ReplyMode::Turnaround, &capabilities, [1; 4]);
    let mut server = Server::new(Host::own(station(), [0; 4]), udp_and_tcp);
    let mut client = Client::default();
    link.run(&mut client, &mut server, Duration::from_secs(1), |_, _| {
        false
    });
    assert_eq!(client.0, expected);
}
