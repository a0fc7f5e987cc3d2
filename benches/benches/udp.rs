//! Measures one UDP datagram that the server sends back, which is the least work that a server can
//! do.
#![allow(missing_docs)]

use benches::workload::Workload;
use benches::workload::udp::Reflect;
use criterion::{Criterion, criterion_group, criterion_main};

fn reflect(c: &mut Criterion) {
    let mut group = c.benchmark_group("reflect");
    for payload in [22, 1400] {
        let mut work = Reflect::new(payload);
        let name = format!("{} B", work.frame_len());
        group.bench_function(name, |b| b.iter(|| work.run()));
        work.check();
    }
    group.finish();
}

criterion_group!(benches, reflect);
criterion_main!(benches);
