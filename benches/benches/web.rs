//! One whole GET on a connection that is kept: request segment in, response
//! segment out; and the HTTP in it alone.
#![allow(missing_docs)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::SystemTime;

use benches::{Segment, flags, host, numbers};
use criterion::{Criterion, criterion_group, criterion_main};
use nmio::sim::Sink;
use nmio::{Handler, Instant, Port};
use sandstorm::{Builder, Server, Session, Site, Step};
use tcpip::{Config, Mode};

/// What load generators send.
const SHORT: &str = "GET /files/1024.bin HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n";
/// What browsers send.
const LONG: &str = "GET /files/1024.bin HTTP/1.1\r\n\
    Host: storm.test\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-GB,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    DNT: 1\r\n\
    Connection: keep-alive\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    Sec-Fetch-Dest: document\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-Site: none\r\n\
    Priority: u=0, i\r\n\r\n";
const REQUESTS: [(&str, &str); 2] = [("short request", SHORT), ("browser's request", LONG)];
const MODES: [(&str, Mode); 2] = [("memcopy", Mode::MemCopy), ("pre-copy", Mode::PreCopy)];

/// A site of `files` files of 1 KB.
fn site(files: u32) -> Arc<Site> {
    let now = SystemTime::now();
    let content = [b'x'; 1024];
    let site = (0..files - 1).fold(Builder::new(now), |site, n| {
        site.file(format!("/files/{n}.html").as_bytes(), now, &content)
    });
    Arc::new(site.file(b"/files/1024.bin", now, &content).build())
}

fn session(c: &mut Criterion) {
    let site = site(1_000);
    let mut group = c.benchmark_group("HTTP alone");
    for (name, request) in REQUESTS {
        let mut session = Session::default();
        group.bench_function(name, |b| {
            b.iter(|| session.next(&site, black_box(request.as_bytes())));
        });
        assert!(matches!(
            session.next(&site, request.as_bytes()),
            Step::Answer(answer) if !answer.close && answer.of(&site).status().code() == 200
        ));
    }
    group.finish();
}

fn keep_alive(c: &mut Criterion) {
    let site = site(1_000);
    let mut group = c.benchmark_group("keep-alive GET of 1 KB");
    for (mode_name, mode) in MODES {
        for (request_name, request) in REQUESTS {
            let mut sink = Sink::new(1500, 64, 8_192);
            sink.copy_residents(true);
            let config = Config {
                mode,
                ..Config::on_ports(&[80])
            };
            let secret = [1, 2, 3, 4];
            let site = Arc::clone(&site);
            let server = Server::new(site, host(), &config, &sink, secret, Instant::ZERO);
            let mut server: Server = server.expect("the site fits the stack");
            let mut segment = Segment {
                port: 4096,
                seq: 1000,
                ack: 0,
                flags: flags::SYN,
                window: 65_535,
            };
            let mut handle = |sink: &mut Sink, frame: &[u8]| {
                let frame = sink.frame_from(frame);
                server.handle_frame(sink, frame, Instant::ZERO);
            };
            handle(&mut sink, &segment.frame(&[]));
            segment.seq += 1;
            segment.ack = numbers(sink.last()).0 + 1;
            segment.flags = flags::ACK | flags::PSH;
            let mut frame = segment.frame(request.as_bytes());
            handle(&mut sink, &frame);
            let response_len = numbers(sink.last()).2;
            assert!(response_len > 1024, "the response is one segment");
            sink.copy_residents(false);

            let before = sink.counters().tx_frames;
            let mut requests = 0;
            group.bench_function(format!("{mode_name}, {request_name}"), |b| {
                b.iter(|| {
                    requests += 1;
                    segment.seq = segment.seq.wrapping_add(request.len() as u32);
                    segment.ack = segment.ack.wrapping_add(response_len);
                    Segment::patch(&mut frame, segment.seq, segment.ack);
                    handle(&mut sink, &frame);
                });
            });
            assert_eq!(sink.counters().tx_frames - before, requests);
        }
    }
    group.finish();
}

criterion_group!(benches, session, keep_alive);
criterion_main!(benches);
