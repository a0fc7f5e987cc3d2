//! Measures one GET of a page of 1 KB, on a persistent connection and with a new connection for
//! each request.
#![allow(missing_docs)]

use benches::workload::Workload;
use benches::workload::http::{KeepAlive, OwnConnection};
use criterion::{Criterion, criterion_group, criterion_main};
use tcpip::SendMode;

const MODES: [(&str, SendMode); 2] = [
    ("memcopy", SendMode::MemCopy),
    ("pre-copy", SendMode::PreCopy),
];

fn keep_alive(c: &mut Criterion) {
    let mut group = c.benchmark_group("GET 1 KB, keep-alive");
    for (name, mode) in MODES {
        let mut work = KeepAlive::page(mode);
        group.bench_function(name, |b| b.iter(|| work.run()));
        work.check();
    }
    group.finish();
}

fn connection(c: &mut Criterion) {
    let mut group = c.benchmark_group("GET 1 KB, own connection");
    for (name, mode) in MODES {
        let mut work = OwnConnection::new(mode);
        group.bench_function(name, |b| b.iter(|| work.run()));
        work.check();
    }
    group.finish();
}

criterion_group!(benches, keep_alive, connection);
criterion_main!(benches);
