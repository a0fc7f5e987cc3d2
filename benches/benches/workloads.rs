//! Measures how long each workload takes: echoed UDP datagrams, ACKs that release segments, whole
//! connections, GET requests, DNS answers, and packets on a netmap port. TCP, HTTP and DNS run with
//! memcopy and with pre-copy. DNS runs with turnaround as well.
#![allow(missing_docs)]

use benches::workload::Workload;
use benches::workload::dns::Zone;
use benches::workload::http::{KeepAlive, OwnConnection};
use benches::workload::netmap::{Get, TurnRound};
use benches::workload::tcp::{AckToSegment, ShortConnection};
use benches::workload::udp::Reflect;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use namestorm::{Form, ReplyMode};
use tcpip::SendMode;

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

fn in_both_modes<W: Workload>(c: &mut Criterion, group: &str, name: &str, new: fn(SendMode) -> W) {
    let mut group = c.benchmark_group(group);
    for (mode, send) in [
        ("memcopy", SendMode::MemCopy),
        ("pre-copy", SendMode::PreCopy),
    ] {
        let mut work = new(send);
        group.bench_function(format!("{name}{mode}"), |b| b.iter(|| work.run()));
        work.check();
    }
    group.finish();
}

fn tcp(c: &mut Criterion) {
    in_both_modes(c, "ACK to segment", "", AckToSegment::new);
    in_both_modes(c, "connection", "1 KB, ", ShortConnection::new);
    in_both_modes(c, "GET 1 KB, keep-alive", "", KeepAlive::page);
    in_both_modes(c, "GET 1 KB, own connection", "", OwnConnection::new);
}

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

/// Each iteration is a batch of 32 packets or requests. Its time includes the simulated kernel, and
/// the client that makes the requests.
fn netmap(c: &mut Criterion) {
    let mut group = c.benchmark_group("netmap, 32 packets");
    let mut work = TurnRound::new(64);
    group.bench_function("turned round, 64 B", |b| b.iter(|| work.run()));
    work.check();
    group.finish();
    in_both_modes(c, "netmap, 32 GETs of 1 KB", "", Get::new);
}

criterion_group!(benches, reflect, tcp, dns, netmap);
criterion_main!(benches);
