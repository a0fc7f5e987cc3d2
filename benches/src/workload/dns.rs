//! DNS answers, from the received query to the sent answer.

use std::fmt::Write as _;
use std::sync::Arc;

use namestorm::{
    Answers, Form, ReplyMode, Server, UdpAndTcp, Zones, compile, load_text, prepare_text,
};
use nmio::sim::Sink;
use nmio::{Batch, Frame, Handler, Instant, Port};

use super::{SECRET, Workload};
use crate::load::dns::{request, signed_request, zone};

/// Distance between the names of two successive queries. It is coprime to the number of names, so a
/// name is repeated only after all other queries have been sent.
const STRIDE: usize = 7919;
/// Maximum number of query frames built in advance, so that the client's share of the measured time
/// stays small.
const QUERIES: usize = 65_536;
/// Number of resident packets that fit into the port's memory.
const RESIDENTS: u32 = 16_384;
/// Number of frames for received queries and for replies. The largest batch has 64 queries.
const FRAMES: u32 = 512;
/// Response code of a successful reply (RFC 1035, section 4.1.1).
const NOERROR: usize = 0;
/// Response code for a name that does not exist (RFC 1035, section 4.1.1).
const NXDOMAIN: usize = 3;

/// Prepared zones. The methods create workloads of queries.
#[derive(Clone, Debug)]
pub struct Zone {
    answers: Arc<Answers>,
    names: usize,
}

impl Zone {
    /// Creates a zone of `names` names, beginning with `host0.bench.test`, with one address each.
    ///
    /// # Panics
    /// Panics if the zone's text has an error.
    pub fn new(names: usize, form: Form) -> Self {
        let answers = prepare_text(&zone_text(names), form).expect("the zone has no errors");
        Self {
            answers: answers.into(),
            names,
        }
    }

    /// Creates a signed zone of this form with `names` names, beginning with `host0.bench.test`.
    ///
    /// # Panics
    /// Panics if the zone's text has an error.
    pub fn signed(names: u32, form: zone::Form) -> Self {
        let text = zone::text(form, names);
        let answers = prepare_text(&text, Form::Wire).expect("the zone has no errors");
        Self {
            answers: answers.into(),
            names: names as usize,
        }
    }

    /// Creates `zones` zones, beginning with `host0.bench.test`, with one address each.
    ///
    /// # Panics
    /// Panics if the text of a zone has an error.
    pub fn many(zones: usize, form: Form) -> Self {
        let zone = |number| {
            let text = format!(
                "$ORIGIN host{number}.bench.test.\n$TTL 300\n@ SOA ns host 1 7200 3600 1209600 300\n\
                 @ NS ns\nns A 192.0.2.53\n@ A 192.0.2.80\n"
            );
            load_text("zone", None, &text)
                .expect("the zone has no errors")
                .zone
        };
        let list = Zones::new((0..zones).map(zone).collect()).expect("the names differ");
        let answers = compile(&list, form, SECRET, &mut |_| {}).expect("the answers are small");
        Self {
            answers: answers.into(),
            names: zones,
        }
    }

    /// Creates a workload that queries the zone's names in turn. `mode` says how the server sends
    /// its replies.
    pub fn answer(&self, mode: ReplyMode) -> Answer {
        let queries = (0..self.names.min(QUERIES))
            .map(|i| query(&format!("host{}", i * STRIDE % self.names)))
            .collect();
        Answer(Setup::new(self, mode, queries, NOERROR))
    }

    /// Creates a workload that queries names that are not in the zone.
    pub fn no_such_name(&self, mode: ReplyMode) -> Answer {
        let queries = (0..self.names.min(QUERIES))
            .map(|i| query(&format!("none{i}")))
            .collect();
        Answer(Setup::new(self, mode, queries, NXDOMAIN))
    }

    /// Like [`answer`](Self::answer), for clients that want signatures.
    pub fn answer_signed(&self, mode: ReplyMode) -> Answer {
        let names = (0..self.names).map(|i| format!("host{}", i * STRIDE % self.names));
        let queries = names.map(|name| signed_query(&name)).collect();
        Answer(Setup::new(self, mode, queries, NOERROR))
    }

    /// Like [`no_such_name`](Self::no_such_name), for clients that want signatures.
    pub fn deny(&self, mode: ReplyMode) -> Answer {
        let queries = (0..self.names).map(|i| signed_query(&format!("none{i}")));
        Answer(Setup::new(self, mode, queries.collect(), NXDOMAIN))
    }

    /// Creates a workload that queries names that only a wildcard matches, for clients that want
    /// signatures.
    pub fn match_wildcard(&self, mode: ReplyMode) -> Answer {
        let queries = (0..self.names).map(|i| signed_query(&format!("none{i}.wild")));
        Answer(Setup::new(self, mode, queries.collect(), NOERROR))
    }

    /// Like [`answer`](Self::answer), but the server receives `N` queries in one batch.
    pub fn batch<const N: usize>(&self, mode: ReplyMode) -> AnswerBatch<N> {
        AnswerBatch(self.answer(mode).0)
    }
}

fn zone_text(names: usize) -> String {
    let mut zone = String::from(
        "$ORIGIN bench.test.\n$TTL 300\n@ SOA ns host 1 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.53\n",
    );
    for i in 0..names {
        writeln!(
            zone,
            "host{i} A 10.{}.{}.{}",
            i >> 16 & 255,
            i >> 8 & 255,
            i & 255
        )
        .expect("writing to a string succeeds");
    }
    zone
}

fn query(labels: &str) -> Vec<u8> {
    datagram(&request(labels))
}

fn signed_query(labels: &str) -> Vec<u8> {
    datagram(&signed_request(labels))
}

/// Adds an identifier and the headers to a message.
fn datagram(message: &[u8]) -> Vec<u8> {
    crate::datagram(4096, 53, &[&[0x12, 0x34], message].concat())
}

struct Setup {
    sink: Sink,
    server: Server,
    queries: Vec<Vec<u8>>,
    next: usize,
    rcode: usize,
}

impl Setup {
    fn new(zone: &Zone, mode: ReplyMode, queries: Vec<Vec<u8>>, rcode: usize) -> Self {
        let sink = Sink::new(1500, FRAMES, RESIDENTS);
        let host = crate::host();
        let capabilities = sink.capabilities();
        Self {
            server: Server::new(
                host,
                UdpAndTcp::new(53, &zone.answers, mode, &capabilities, SECRET),
            ),
            sink,
            queries,
            next: 0,
            rcode,
        }
    }

    /// Returns the next query as a received frame.
    #[inline(always)]
    fn query(&mut self) -> Frame {
        let frame = self.sink.frame_from(&self.queries[self.next]);
        self.next += 1;
        if self.next == self.queries.len() {
            self.next = 0;
        }
        frame
    }

    fn check(&self) {
        let counters = self.server.transports.udp().counters();
        assert_eq!(
            counters.answered, counters.received,
            "every query is answered"
        );
        assert_eq!(
            self.server.transports.dns().counters().replies[self.rcode],
            counters.received,
            "every answer has the expected response code"
        );
    }
}

/// A workload of one query and its answer.
pub struct Answer(Setup);

impl Workload for Answer {
    #[inline(always)]
    fn run(&mut self) {
        let frame = self.0.query();
        let Setup { sink, server, .. } = &mut self.0;
        server.handle_frame(sink, frame, Instant::ZERO);
    }

    fn check(&self) {
        self.0.check();
    }
}

/// A workload of `N` queries received in one batch, and their answers.
pub struct AnswerBatch<const N: usize>(Setup);

impl<const N: usize> Workload for AnswerBatch<N> {
    const REQUESTS: u64 = N as u64;

    #[inline(always)]
    fn run(&mut self) {
        let mut batch = Batch::new();
        batch.extend((0..N).map(|_| self.0.query()));
        let Setup { sink, server, .. } = &mut self.0;
        server.handle_batch(sink, &mut batch, Instant::ZERO);
    }

    fn check(&self) {
        self.0.check();
    }
}
