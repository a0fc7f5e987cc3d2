//! Measures one DNS answer, from the received query to the sent answer. The zones have 1, 10,000
//! and 1,000,000 names. Each zone is measured with both hashes and in all three modes of sending.
#![allow(missing_docs)]

use benches::workload::Workload;
use benches::workload::dns::Zone;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use namestorm::{Form, ReplyMode};

fn dns(c: &mut Criterion) {
    let mut group = c.benchmark_group("DNS answer");
    for names in [1, 10_000, 1_000_000] {
        for (hash, form) in [("wire", Form::Wire), ("fqdn", Form::Fqdn)] {
            let zone = Zone::new(names, form);
            for mode in [
                ReplyMode::Turnaround,
                ReplyMode::MemCopy,
                ReplyMode::PreCopy,
            ] {
                let mut work = zone.answer(mode);
                let id = BenchmarkId::new(format!("{hash}, {mode}"), names);
                group.bench_function(id, |b| b.iter(|| work.run()));
                work.check();
            }
        }
    }
    group.finish();
}

criterion_group!(benches, dns);
criterion_main!(benches);
