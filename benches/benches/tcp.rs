//! One ACK that releases one segment, and one whole short connection, in the
//! modes of sending.
#![allow(missing_docs)]

use std::sync::Arc;

use benches::{Client, Segment, flags, numbers};
use criterion::{Criterion, criterion_group, criterion_main};
use nmio::sim::Sink;
use nmio::{Handler, Instant, Port};
use tcpip::{Application, Config, Connection, ContentId, Family, Mode, Server, Stack};

const MSS: u32 = 1460;
/// Segments of the content that is streamed; small enough to stay in cache.
const SEGMENTS: u32 = 64;
/// Segments in flight; each ACK of one releases one.
const IN_FLIGHT: u32 = 8;

/// Streams one content again and again.
struct Stream {
    content: Option<ContentId>,
    once: bool,
}

impl Application for Stream {
    type State = ();

    fn on_receive(&mut self, conn: &mut Connection<'_, ()>, data: &[u8]) -> usize {
        self.on_sent(conn);
        if self.once {
            conn.close();
        }
        data.len()
    }

    fn on_sent(&mut self, conn: &mut Connection<'_, ()>) {
        let Some(content) = self.content else { return };
        while conn.write(content, 0).is_ok() && !self.once {}
    }
}

fn server(mode: Mode, len: usize, once: bool) -> (Sink, Server<Stream>) {
    let mut sink = Sink::new(1500, 64, 4 * SEGMENTS);
    sink.copy_residents(true);
    let config = Config {
        mode,
        max_time_wait: 0,
        ..Config::on_ports(&[80])
    };
    let app = Stream {
        content: None,
        once,
    };
    let secret = [1, 2, 3, 4];
    let mut stack = Stack::new(&config, app, &sink.capabilities(), secret, Instant::ZERO);
    let (app, contents) = stack.parts_mut();
    let id = contents
        .add(Arc::from(vec![b'x'; len]), None)
        .expect("the content is added");
    contents.prepare(id, sink.pool(), Family::V4);
    app.content = Some(id);
    (sink, Server::new(benches::host(), stack))
}

fn ack_to_segment(c: &mut Criterion) {
    let mut group = c.benchmark_group("ACK to segment");
    for (name, mode) in [("memcopy", Mode::MemCopy), ("pre-copy", Mode::PreCopy)] {
        let (mut sink, mut server) = server(mode, (SEGMENTS * MSS) as usize, false);
        let window = (IN_FLIGHT * MSS) as u16;
        let mut client = Client::open(&mut sink, &mut server, 4096, window);
        client.send(&mut sink, &mut server, flags::ACK | flags::PSH, b"go");
        assert_eq!(numbers(sink.last()).2, MSS);
        sink.copy_residents(false);
        let ack = Segment {
            port: client.port,
            seq: client.seq,
            ack: client.ack,
            flags: flags::ACK,
            window,
        };
        let mut ack = (ack.frame(&[]), client.ack);
        let before = sink.counters().tx_frames;
        let mut acked = 0;
        group.bench_function(name, |b| {
            b.iter(|| {
                acked += 1;
                ack.1 = ack.1.wrapping_add(MSS);
                Segment::patch(&mut ack.0, client.seq, ack.1);
                let frame = sink.frame_from(&ack.0);
                server.handle_frame(&mut sink, frame, Instant::ZERO);
            });
        });
        let sent = sink.counters().tx_frames - before;
        assert!(
            sent.abs_diff(acked) < 64,
            "{sent} segments for {acked} ACKs"
        );
    }
    group.finish();
}

fn connection(c: &mut Criterion) {
    let mut group = c.benchmark_group("connection");
    for (name, mode) in [("memcopy", Mode::MemCopy), ("pre-copy", Mode::PreCopy)] {
        let (mut sink, mut server) = server(mode, 1024, true);
        group.bench_function(format!("1 KB, {name}"), |b| {
            b.iter(|| {
                let mut client = Client::open(&mut sink, &mut server, 4096, 65_535);
                client.send(&mut sink, &mut server, flags::ACK | flags::PSH, b"GET");
                client.ack = client.ack.wrapping_add(1025);
                client.send(&mut sink, &mut server, flags::FIN | flags::ACK, &[]);
            });
        });
        assert_eq!(server.stack.connections(), 0, "each connection has ended");
    }
    group.finish();
}

criterion_group!(benches, ack_to_segment, connection);
criterion_main!(benches);
