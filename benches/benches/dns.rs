//! One DNS answer, from the received frame to the sent one: zones of 1,
//! 10,000 and 1,000,000 names, by both hashes and in the three ways of
//! sending.
#![allow(missing_docs)]

use std::fmt::Write as _;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use namestorm::{Answers, Form, Mode, Server, prepare_text};
use nmio::sim::Sink;
use nmio::{Handler, Instant, Port};

/// Queries asked in turn, of names spread over the zone by a stride that is
/// prime to it, so that no name is asked twice before all have been.
const STRIDE: usize = 7919;
/// Frames of queries kept ready: what a client sends costs the bench little.
const QUERIES: usize = 65_536;
/// Packets that may live in the port's memory.
const RESIDENTS: u32 = 16_384;

fn zone(names: usize) -> String {
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

fn query(name: usize) -> Vec<u8> {
    let label = format!("host{name}");
    let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in [label.as_bytes(), b"bench", b"test"] {
        message.push(label.len() as u8);
        message.extend_from_slice(label);
    }
    message.extend_from_slice(&[0, 0, 1, 0, 1]);
    benches::datagram(4096, 53, &message)
}

fn queries(names: usize) -> Vec<Vec<u8>> {
    (0..names.min(QUERIES))
        .map(|i| query(i * STRIDE % names))
        .collect()
}

fn answer(
    c: &mut Criterion,
    id: BenchmarkId,
    answers: &Arc<Answers>,
    mode: Mode,
    asked: &[Vec<u8>],
) {
    let mut sink = Sink::new(1500, 64, RESIDENTS);
    let capabilities = sink.capabilities();
    let secret = [1, 2, 3, 4];
    let mut server = Server::new(benches::host(), 53, answers, mode, &capabilities, secret);
    let mut next = asked.iter().cycle();
    c.benchmark_group("DNS answer").bench_function(id, |b| {
        b.iter(|| {
            let query = next.next().expect("a cycle has no end");
            let frame = sink.frame_from(query);
            server.handle_frame(&mut sink, frame, Instant::ZERO);
        });
    });
    let counters = server.udp().counters();
    assert_eq!(
        counters.answered, counters.received,
        "every query is answered"
    );
    assert_eq!(
        server.dns().counters().replies[0],
        counters.received,
        "with NOERROR"
    );
}

fn dns(c: &mut Criterion) {
    for names in [1, 10_000, 1_000_000] {
        let zone = zone(names);
        let asked = queries(names);
        for (hash, form) in [("wire", Form::Wire), ("fqdn", Form::Fqdn)] {
            let answers: Arc<Answers> =
                prepare_text(&zone, form).expect("the zone is right").into();
            for mode in [Mode::Turnaround, Mode::MemCopy, Mode::PreCopy] {
                let id = BenchmarkId::new(format!("{hash}, {mode}"), names);
                answer(c, id, &answers, mode, &asked);
            }
        }
    }
}

criterion_group!(benches, dns);
criterion_main!(benches);
