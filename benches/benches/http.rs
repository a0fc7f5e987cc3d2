//! One GET of a page of 1 KB: on a connection that is kept alive, and with a
//! connection of its own.
#![allow(missing_docs)]

use std::sync::Arc;
use std::time::SystemTime;

use benches::{Client, Segment, flags, numbers};
use criterion::{Criterion, criterion_group, criterion_main};
use nmio::sim::Sink;
use nmio::{Handler, Instant};
use sandstorm::{Builder, Server};
use tcpip::{Config, Mode};

const KEEP_ALIVE: &[u8] =
    b"GET /page HTTP/1.1\r\nHost: storm.test\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n";
const CLOSE: &[u8] =
    b"GET /page HTTP/1.1\r\nHost: storm.test\r\nUser-Agent: bench\r\nConnection: close\r\n\r\n";
const MODES: [(&str, Mode); 2] = [("memcopy", Mode::MemCopy), ("pre-copy", Mode::PreCopy)];

fn server(mode: Mode) -> (Sink, Server) {
    let site = Builder::new(SystemTime::now())
        .file(b"/page", SystemTime::UNIX_EPOCH, &[b'x'; 1024])
        .build();
    let sink = Sink::new(1500, 64, 256);
    let config = Config {
        mode,
        max_time_wait: 0,
        ..Config::on_ports(&[80])
    };
    let secret = [1, 2, 3, 4];
    let server = Server::new(
        Arc::new(site),
        benches::host(),
        &config,
        &sink,
        secret,
        Instant::ZERO,
    )
    .expect("the site fits");
    (sink, server)
}

/// The length of the response to `request`, all of it in one segment.
fn response_len(sink: &mut Sink, server: &mut Server, request: &[u8]) -> u32 {
    sink.copy_residents(true);
    let mut client = Client::open(sink, server, 5000, 65_535);
    client.send(sink, server, flags::ACK | flags::PSH, request);
    let len = numbers(sink.last()).2;
    assert!((1100..1460).contains(&len), "a head and 1,024 bytes: {len}");
    sink.copy_residents(false);
    len
}

fn keep_alive(c: &mut Criterion) {
    let mut group = c.benchmark_group("GET 1 KB, keep-alive");
    for (name, mode) in MODES {
        let (mut sink, mut server) = server(mode);
        let len = response_len(&mut sink, &mut server, KEEP_ALIVE);
        let mut client = Client::open(&mut sink, &mut server, 4096, 65_535);
        let mut request = client.segment(flags::ACK | flags::PSH, KEEP_ALIVE);
        let before = server.stack().counters().segments_sent;
        let mut asked = 0;
        group.bench_function(name, |b| {
            b.iter(|| {
                Segment::patch(&mut request, client.seq, client.ack);
                let frame = sink.frame_from(&request);
                server.handle_frame(&mut sink, frame, Instant::ZERO);
                client.seq = client.seq.wrapping_add(KEEP_ALIVE.len() as u32);
                client.ack = client.ack.wrapping_add(len);
                asked += 1;
            });
        });
        let sent = server.stack().counters().segments_sent - before;
        assert_eq!(sent, asked, "one segment a request");
    }
    group.finish();
}

fn connection(c: &mut Criterion) {
    let mut group = c.benchmark_group("GET 1 KB, own connection");
    for (name, mode) in MODES {
        let (mut sink, mut server) = server(mode);
        let len = response_len(&mut sink, &mut server, CLOSE);
        let open = server.stack().connections();
        group.bench_function(name, |b| {
            b.iter(|| {
                // The handshake's answer must be read, so it is not resident.
                let mut client = Client::open(&mut sink, &mut server, 4096, 65_535);
                client.send(&mut sink, &mut server, flags::ACK | flags::PSH, CLOSE);
                client.ack = client.ack.wrapping_add(len + 1);
                client.send(&mut sink, &mut server, flags::FIN | flags::ACK, &[]);
            });
        });
        assert_eq!(
            server.stack().connections(),
            open,
            "each connection has ended"
        );
    }
    group.finish();
}

criterion_group!(benches, keep_alive, connection);
criterion_main!(benches);
