//! Measures one ACK that releases one segment, and one whole short connection, in both modes of
//! sending.
#![allow(missing_docs)]

use benches::workload::Workload;
use benches::workload::tcp::{AckToSegment, ShortConnection};
use criterion::{Criterion, criterion_group, criterion_main};
use tcpip::SendMode;

const MODES: [(&str, SendMode); 2] = [
    ("memcopy", SendMode::MemCopy),
    ("pre-copy", SendMode::PreCopy),
];

fn ack_to_segment(c: &mut Criterion) {
    let mut group = c.benchmark_group("ACK to segment");
    for (name, mode) in MODES {
        let mut work = AckToSegment::new(mode);
        group.bench_function(name, |b| b.iter(|| work.run()));
        work.check();
    }
    group.finish();
}

fn connection(c: &mut Criterion) {
    let mut group = c.benchmark_group("connection");
    for (name, mode) in MODES {
        let mut work = ShortConnection::new(mode);
        group.bench_function(format!("1 KB, {name}"), |b| b.iter(|| work.run()));
        work.check();
    }
    group.finish();
}

criterion_group!(benches, ack_to_segment, connection);
criterion_main!(benches);
