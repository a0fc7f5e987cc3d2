//! One datagram turned round: the least that a server of answers can do.
#![allow(missing_docs)]

use criterion::{Criterion, criterion_group, criterion_main};
use nmio::sim::Sink;
use nmio::{Handler, Instant, Port};
use udpip::{Datagram, Server, Service, Tail};

struct Reflect;

impl Service for Reflect {
    #[inline(always)]
    fn on_datagram<P: Port>(&mut self, datagram: Datagram<'_, P>, _now: Instant) {
        let len = datagram.payload().len();
        datagram.turn_round(len, Tail::EMPTY, &[]);
    }
}

fn reflect(c: &mut Criterion) {
    let mut group = c.benchmark_group("reflect");
    for len in [22, 1400] {
        let mut sink = Sink::new(1500, 64, 0);
        let mut server = Server::new(benches::host(), 7, Reflect);
        let request = benches::datagram(4096, 7, &vec![b'x'; len]);
        group.bench_function(format!("{} B", request.len()), |b| {
            b.iter(|| {
                let frame = sink.frame_from(&request);
                server.handle_frame(&mut sink, frame, Instant::ZERO);
            });
        });
        assert_eq!(
            server.udp().counters().answered,
            server.udp().counters().received
        );
    }
    group.finish();
}

criterion_group!(benches, reflect);
criterion_main!(benches);
