//! Tests of the client against Sandstorm on simulated links.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use eth::{Mac, Station};
use ip::Host;
use nmio::sim::{EndConfig, LinkConfig, PathConfig};
use nmio::{Batch, Clock, Instant, LoopConfig, LoopState, MAX_BATCH, Port};
use sandstorm::{Builder, Http, Server, packets};
use tcpip::{Config, SendMode};
use testkit::{Link, SERVER, SERVER_MAC};

use super::{Client, Form, NumberedSite, Page, Workload, numbered};
use crate::load::link::{Generator, Place};
use crate::load::meter::{Meter, Phase, Report};
use crate::load::pace::Pace;

/// Lengths of bodies in bytes. Some end near the end of the first segment, and some need several
/// segments.
const SIZES: [usize; 8] = [0, 1, 1100, 1460, 1461, 5000, 65_536, 300_000];

/// Returns a body in which all segments differ.
pub(super) fn body(len: usize) -> Vec<u8> {
    (0..len as u32)
        .flat_map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes())
        .take(len)
        .collect()
}

fn path(len: usize) -> String {
    format!("/{len}.bin")
}

fn pages(sizes: &[usize]) -> Vec<Page> {
    (sizes.iter())
        .map(|len| Page::of(&path(*len), 1.0, &body(*len)))
        .collect()
}

pub(super) fn workload(sizes: &[usize], connections: u32) -> Workload {
    Workload {
        pages: pages(sizes),
        numbered: None,
        in_turn: false,
        connections,
        requests: 0,
        idle: 0,
        pace: None,
        seed: 1,
        epoch: Duration::from_hours(500_000),
    }
}

struct World {
    path: PathConfig,
    mode: SendMode,
    seed: u64,
    measured: Duration,
    /// Number of files of a numbered site that the server also serves.
    numbered: u32,
    /// Changes the served files without the client's knowledge.
    spoil: fn(&mut Vec<u8>),
}

impl World {
    fn new() -> Self {
        Self {
            path: PathConfig {
                delay: Duration::from_micros(50),
                rate: 1_000_000_000,
                ..PathConfig::default()
            },
            mode: SendMode::MemCopy,
            seed: 1,
            measured: Duration::from_secs(2),
            numbered: 0,
            spoil: |_| {},
        }
    }

    fn run(&self, workload: &Workload, sizes: &[usize]) -> (Report, Server, Client) {
        let modified = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let builder = sizes.iter().fold(Builder::new(modified), |site, len| {
            let mut body = body(*len);
            (self.spoil)(&mut body);
            site.file(path(*len).as_bytes(), modified, &body)
        });
        let builder = (0..self.numbered).fold(builder, |site, number| {
            let path = [&numbered::name(number), numbered::EXTENSION.as_bytes()].concat();
            site.file(&path, modified, &numbered::body(number, numbered::LEN))
        });
        let site = Arc::new(builder.build());
        let mut config = LinkConfig::symmetric(self.path);
        let address = SERVER[0];
        config.b = EndConfig {
            resident_frames: packets(&site, &[address], 1500).count as u32 + 512,
            rx_ring: 1024,
            ..EndConfig::default()
        };
        let mut link = Link::new(&config, self.seed);
        let config = Config {
            mode: self.mode,
            ..Config::on_ports(&[80])
        };
        let secret = [1, 2, 3, 4];
        let http = Http::new(
            site,
            &[address],
            &config,
            &link.server,
            secret,
            Instant::ZERO,
        );
        let station = Station::new(Mac(SERVER_MAC), &[address]);
        let mut server = Server::new(Host::own(station, [0; 4]), http.unwrap());
        let meter = Meter::new(Duration::from_millis(10), self.measured);
        let mut client = Client::new(&Place::of_tests(), workload, meter).unwrap();
        // The test does not use `drive`, so it advances the meter itself.
        loop {
            let end = if client.is_ready() {
                client.meter.advance(link.clock.now());
                if client.meter.phase() == Phase::Finished {
                    break;
                }
                client.meter.phase_end()
            } else {
                link.clock.now() + Duration::from_millis(1)
            };
            let longest = end.since(link.clock.now());
            link.run(&mut client, &mut server, longest, |_, _| false);
            link.clock.advance_to(end);
        }
        assert_eq!(link.client.counters().bad_descriptors, 0);
        leave(&mut link, &mut client, &mut server);
        // If no connection was closed normally, no connection is in TIME-WAIT, so none remains.
        if self.path.loss == 0.0 && workload.requests == 0 {
            assert_eq!(
                server.transports.stack().connections(),
                0,
                "all connections are reset"
            );
        }
        (client.report(), server, client)
    }
}

/// Lets the client close its connections while the server keeps running, like `finish` in
/// `link.rs`.
fn leave(link: &mut Link, client: &mut Client, server: &mut Server) {
    let mut batch = Batch::new();
    let mut turn = LoopState::new(&LoopConfig::default(), link.clock.now());
    let mut sent = false;
    for _ in 0..1000 {
        sent = sent || client.finish(&mut link.client);
        link.client.flush().unwrap();
        link.client.receive(&mut batch, MAX_BATCH).unwrap();
        batch.clear();
        while turn
            .pass(&mut link.server, server, link.clock.now())
            .unwrap()
        {}
        link.clock.advance(Duration::from_millis(1));
    }
    assert!(sent);
}

#[test]
fn requests_share_keep_alive_connections() {
    for mode in [SendMode::PreCopy, SendMode::MemCopy] {
        for len in SIZES {
            let world = World {
                mode,
                measured: Duration::from_millis(200),
                ..World::new()
            };
            let (report, server, _) = world.run(&workload(&[len], 8), &SIZES);
            assert!(report.errors.is_empty(), "{len}: {report:?}");
            assert!(report.completed > 20, "{len}: {report:?}");
            assert_eq!(
                server.transports.stack().counters().accepted,
                8,
                "{report:?}"
            );
            assert_eq!(report.slowest_p50_us, None, "a closed loop");
            let [p10, median] = report.connection_rate.unwrap();
            assert!(p10 > 0.0 && p10 <= median, "{report:?}");
        }
    }
}

#[test]
fn each_request_may_use_a_new_connection() {
    let world = World::new();
    let mut workload = workload(&SIZES, 10);
    workload.requests = 1;
    let (report, server, client) = world.run(&workload, &SIZES);
    assert!(report.errors.is_empty(), "{report:?}");
    assert!(report.completed > 1_000, "{report:?}");
    let accepted = server.transports.stack().counters().accepted;
    assert!(accepted.abs_diff(report.completed) < 200, "{report:?}");
    let open = client.connections.len() - client.free.len();
    assert!(open <= 30, "{open} connections linger");
}

#[test]
fn each_connection_may_carry_several_requests() {
    let world = World::new();
    let mut workload = workload(&[1100], 10);
    workload.requests = 3;
    let (report, server, _) = world.run(&workload, &SIZES);
    assert!(report.errors.is_empty(), "{report:?}");
    let accepted = server.transports.stack().counters().accepted;
    let ratio = report.completed as f64 / accepted as f64;
    assert!((2.9..3.1).contains(&ratio), "{ratio}");
}

/// Returns `whole` if all cases are to run (`cargo xtask test --full`), and else `quick`.
pub(super) fn sample(whole: u64, quick: u64) -> u64 {
    if std::env::var("MATRIX").is_ok_and(|matrix| matrix == "full") {
        whole
    } else {
        quick
    }
}

#[test]
fn loss_and_reordering_cause_no_errors() {
    for seed in 0..3 {
        for requests in [0, 1, 5] {
            let mut world = World::new();
            world.seed = seed;
            world.measured = Duration::from_secs(sample(3, 1));
            world.path.loss = 0.02;
            world.path.reorder = 0.02;
            world.path.reorder_delay = Duration::from_millis(1);
            world.path.duplicate = 0.02;
            let mut workload = workload(&SIZES, 12);
            workload.requests = requests;
            let (report, ..) = world.run(&workload, &SIZES);
            assert!(
                report.completed > 100,
                "{requests}, seed {seed}: {report:?}"
            );
            let wrong: u64 = report.errors.values().sum();
            assert_eq!(wrong, 0, "{requests}, seed {seed}: {report:?}");
        }
    }
}

#[test]
fn an_open_loop_keeps_its_rate() {
    for requests in [0, 1, 7] {
        let mut workload = workload(&[1100, 5000], 20);
        workload.requests = requests;
        workload.pace = Some(Pace::new(2_000.0, 1));
        let (report, ..) = World::new().run(&workload, &SIZES);
        assert!(report.errors.is_empty(), "{report:?}");
        assert!(
            (report.rate - 2_000.0).abs() < 20.0,
            "{requests}: {report:?}"
        );
        assert!(report.latency_us[1] < 1_500.0, "{requests}: {report:?}");
        let slowest = report.slowest_p50_us.unwrap();
        assert!(
            slowest >= report.latency_us[0] && slowest <= report.latency_us[3],
            "{requests}: {report:?}"
        );
    }
}

#[test]
fn an_open_loop_that_is_too_fast_shows_in_latency_and_errors() {
    // At 1 Gb/s, responses of 300 KB allow about 400 requests per second.
    let mut workload = workload(&[300_000], 4);
    workload.pace = Some(Pace::new(100_000.0, 1));
    let (report, ..) = World::new().run(&workload, &SIZES);
    assert!(report.rate < 500.0, "{report:?}");
    assert!(report.latency_us[0] > 500_000.0, "{report:?}");
    assert!(report.errors["no free connection"] > 50_000, "{report:?}");
}

#[test]
fn errors_are_counted_by_kind() {
    let spoiled = |spoil: fn(&mut Vec<u8>)| {
        let mut world = World::new();
        world.measured = Duration::from_millis(100);
        world.spoil = spoil;
        let (report, ..) = world.run(&workload(&[5000], 4), &[5000]);
        assert_eq!(report.completed, 0);
        report.errors
    };
    let errors = spoiled(|body| body[4999] ^= 1);
    assert!(errors["wrong checksum"] > 100, "{errors:?}");
    let errors = spoiled(|body| body.truncate(4999));
    assert!(errors["wrong length"] > 100, "{errors:?}");
    let errors = spoiled(|body| body.push(0));
    assert!(errors["wrong length"] > 100, "{errors:?}");
    let mut world = World::new();
    world.measured = Duration::from_millis(100);
    let (report, ..) = world.run(&workload(&[7], 4), &[5000]);
    assert!(report.errors["wrong status"] > 100, "{report:?}");
}

#[test]
fn a_response_may_equal_either_version() {
    let spoil: fn(&mut Vec<u8>) = |body| body[4999] ^= 1;
    let mut other = body(5000);
    spoil(&mut other);
    let mut workload = workload(&[5000], 4);
    workload.pages[0].crcs[1] = Page::of("/", 1.0, &other).crcs[0];
    for spoil in [spoil, |_| {}] {
        let mut world = World::new();
        world.measured = Duration::from_millis(100);
        world.spoil = spoil;
        let (report, ..) = world.run(&workload, &[5000]);
        assert!(
            report.errors.is_empty() && report.completed > 100,
            "{report:?}"
        );
    }
}

#[test]
fn the_form_of_a_response_is_checked() {
    let run = |form, body: &[u8]| {
        let mut world = World::new();
        world.measured = Duration::from_millis(100);
        let mut workload = workload(&[5000], 4);
        let page = Page::of(&path(5000), 1.0, body);
        workload.pages = vec![Page { form, ..page }];
        world.run(&workload, &[5000]).0
    };
    let whole = body(5000);
    let part = |of| Form::Part {
        first: 101,
        last: 1100,
        of,
    };
    let unchanged = Form::NotSince("Tue, 14 Nov 2023 22:13:20 GMT".into());
    let report = run(unchanged, b"");
    assert_eq!(report.validator, Some("Last-Modified"));
    for report in [report, run(part(5000), &whole[101..1101])] {
        assert!(
            report.errors.is_empty() && report.completed > 100,
            "{report:?}"
        );
    }
    for (form, body, error) in [
        (Form::SameTag("\"other\"".into()), &[][..], "wrong status"),
        (part(5001), &whole[101..1101], "wrong field"),
        (part(5000), &whole[100..1100], "wrong checksum"),
        (Form::Coded("gzip".into()), &whole, "wrong field"),
    ] {
        let report = run(form, body);
        assert!(
            report.errors[error] > 100 && report.completed == 0,
            "{error}: {report:?}"
        );
    }
}

#[test]
fn numbered_files_are_requested_and_checked() {
    let run = |served| {
        let mut world = World::new();
        world.numbered = served;
        let mut workload = workload(&[], 8);
        workload.numbered = Some(NumberedSite {
            count: 1100,
            len: numbered::LEN,
        });
        world.run(&workload, &[]).0
    };
    let report = run(1100);
    assert!(
        report.errors.is_empty() && report.completed > 1_000,
        "{report:?}"
    );
    let report = run(1099);
    assert!(
        report.errors["wrong status"] > 0 && report.completed > 1_000,
        "{report:?}"
    );
}

#[test]
fn idle_connections_are_opened_first() {
    let mut workload = workload(&[1100], 4);
    workload.idle = 3000;
    let (report, server, _) = World::new().run(&workload, &SIZES);
    assert!(report.errors.is_empty(), "{report:?}");
    assert!(report.completed > 1000);
    assert_eq!(server.transports.stack().counters().accepted, 3004);
}

#[test]
fn an_impossible_workload_is_refused() {
    let refused = |change: fn(&mut Workload)| {
        let mut workload = workload(&[1], 1);
        change(&mut workload);
        let meter = Meter::new(Duration::ZERO, Duration::ZERO);
        let client = Client::new(&Place::of_tests(), &workload, meter);
        client.err().map(|error| error.to_string()).unwrap()
    };
    assert!(refused(|w| w.connections = 0).contains("0 connections"));
    assert!(refused(|w| w.idle = 129_024).contains("--address"));
    assert!(refused(|w| w.pages.clear()).contains("1 to"));
    assert!(refused(|w| w.pages[0].path = "/x".repeat(300)).contains("too long"));
}
