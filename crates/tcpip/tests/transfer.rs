//! Whole transfers to an independent peer, smoltcp's TCP client, over a simulated link. In some
//! tests, the link loses, reorders and duplicates packets. These faults depend only on a seed, so
//! failures can be reproduced.

use std::sync::Arc;
use std::time::Duration;

use eth::{Mac, Station};
use ip::Host;
use nmio::sim::{EndConfig, LinkConfig, PathConfig, Segmentation};
use nmio::{Instant, Port};
use tcpip::{
    Application, CloseReason, Config, CongestionControl, Connection, ConnectionId, Connections,
    ContentId, Counters, SendMode, Server, Slot, Stack, Timer,
};
use testkit::smol::{Client, Talk};
use testkit::{Link, SERVER, SERVER_MAC};

const PORT: u16 = 80;
/// Size of a client's send buffer in bytes.
const SEND_BUFFER: usize = 8192;
/// Time limit of a transfer, and then of the closing of all connections, in virtual time.
const LONGEST: Duration = Duration::from_mins(20);

/// An application that answers each byte `n` with content number `n`, or echoes what it receives.
#[derive(Default)]
struct App {
    contents: Vec<ContentId>,
    echo: bool,
    keep: bool,
    /// Identifiers of the open connections.
    open: Vec<ConnectionId>,
    closed: Vec<CloseReason>,
    ticks: u32,
    stamps: u64,
}

impl Application for App {
    type State = ();
    type Message = ();

    fn on_start<C: CongestionControl>(&mut self, connections: &mut Connections<'_, (), C>) {
        connections.for_each(|_| unreachable!("no client has connected yet"));
        connections.set_timer(Timer::new(0), Duration::ZERO);
    }

    fn on_timer<C: CongestionControl>(&mut self, _: &mut Connections<'_, (), C>, timer: Timer) {
        assert_eq!((timer, self.open.len()), (Timer::new(0), 0));
        self.ticks += 1;
    }

    fn on_accept(&mut self, conn: &mut Connection<'_, ()>) -> bool {
        self.open.push(conn.id());
        true
    }

    fn on_receive(&mut self, conn: &mut Connection<'_, ()>, data: &[u8]) -> usize {
        if self.echo {
            return match conn.write_bytes(data) {
                Ok(()) => data.len(),
                Err(_) => 0,
            };
        }
        let mut consumed = 0;
        for request in data {
            let content = self.contents[usize::from(*request)];
            if conn.write(content, self.stamps).is_err() {
                break;
            }
            self.stamps += 1;
            consumed += 1;
            if !self.keep {
                conn.close();
                return data.len();
            }
        }
        consumed
    }

    fn on_close(&mut self, id: ConnectionId, (): &mut (), reason: CloseReason) {
        let at = self.open.iter().position(|open| *open == id);
        self.open
            .swap_remove(at.expect("the connection was opened"));
        self.closed.push(reason);
    }

    fn render(&mut self, stamp: u64, slot: &mut [u8]) {
        slot.fill(b'0' + (stamp % 10) as u8);
    }
}

fn noise(len: usize) -> Vec<u8> {
    testkit::noise(len as u64, len)
}

struct World {
    client: Client,
    v6: bool,
    link: Link,
    server: Server<App>,
}

struct Setup {
    config: Config,
    path: PathConfig,
    end: EndConfig,
    v6: bool,
    seed: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            config: Config::on_ports(&[PORT]),
            path: PathConfig {
                delay: Duration::from_millis(5),
                ..PathConfig::default()
            },
            end: EndConfig::default(),
            v6: false,
            seed: 1,
        }
    }
}

/// A path that often loses, reorders and duplicates packets.
fn rough() -> PathConfig {
    PathConfig {
        delay: Duration::from_millis(5),
        loss: 0.02,
        reorder: 0.05,
        reorder_delay: Duration::from_millis(3),
        duplicate: 0.02,
        ..PathConfig::default()
    }
}

impl World {
    fn new(setup: &Setup, app: App) -> Self {
        let link = LinkConfig {
            a: EndConfig::default(),
            b: setup.end,
            a_to_b: setup.path,
            b_to_a: setup.path,
        };
        let link = Link::new(&link, setup.seed);
        let station = Station::new(Mac(SERVER_MAC), &SERVER);
        let stack = Stack::new(
            &setup.config,
            app,
            &link.server.capabilities(),
            [setup.seed, 2, 3, 4],
            Instant::ZERO,
        );
        Self {
            client: Client::new(1500),
            v6: setup.v6,
            link,
            server: Server::new(Host::own(station, [0; 4]), stack),
        }
    }

    /// Adds a connection that sends `bytes`.
    fn connect(&mut self, bytes: &[u8], half_close: bool, buffer: usize) {
        let talk = Talk {
            server: SERVER[usize::from(self.v6)],
            bytes: bytes.to_vec(),
            half_close,
            buffers: (buffer, SEND_BUFFER),
            ..Talk::default()
        };
        self.client.connect(PORT, talk);
    }

    fn received(&self, connection: usize) -> &[u8] {
        &self.client.connections[connection].received
    }

    /// Runs until the client is done, and then until the server has no connection left. Returns the
    /// server's counters.
    fn run(&mut self) -> Counters {
        let (client, server) = (&mut self.client, &mut self.server);
        let done = (self.link).run(client, server, LONGEST, |client, _| client.done());
        assert!(done, "the client is still waiting");
        let done = self.link.run(client, server, LONGEST, |_, server| {
            server.transports.connections() == 0
        });
        assert!(done, "a connection is still open");
        self.link.drain();
        let app = self.server.transports.app();
        assert_eq!((app.open.len(), app.ticks), (0, 1));
        *self.server.transports.counters()
    }
}

/// Fetches one content item of `len` bytes, and returns the server's counters.
fn fetch(setup: &Setup, len: usize) -> Counters {
    let content = noise(len);
    let mut world = World::new(setup, App::default());
    let (app, contents) = world.server.transports.parts_mut();
    app.contents
        .push(contents.add(Arc::from(&content[..]), None).unwrap());
    world.connect(&[0], false, 65_535);
    let counters = world.run();
    let seed = setup.seed;
    assert!(world.received(0) == content, "seed {seed}, {len} bytes");
    assert_eq!(
        world.server.transports.app().closed,
        [CloseReason::Finished]
    );
    counters
}

const SIZES: [usize; 7] = [0, 1, 1447, 1448, 1449, 65_536, 3_000_000];

#[test]
fn every_size_arrives_from_copied_packets() {
    for v6 in [false, true] {
        for len in SIZES {
            let counters = fetch(
                &Setup {
                    v6,
                    ..Setup::default()
                },
                len,
            );
            assert_eq!(counters.retransmits, 0, "{len} bytes {counters:?}");
            assert_eq!(counters.sent_assembled, 0, "{len} bytes");
        }
    }
}

#[test]
fn every_size_arrives_from_resident_packets() {
    for v6 in [false, true] {
        for len in SIZES {
            let mut setup = Setup {
                v6,
                ..Setup::default()
            };
            setup.config.mode = SendMode::PreCopy;
            setup.end.resident_frames = 4096;
            let counters = fetch(&setup, len);
            assert_eq!(counters.retransmits, 0, "{len} bytes");
            assert_eq!(counters.sent_copied, 0, "{len} bytes");
            assert_eq!(
                counters.sent_resident as usize,
                len.div_ceil(1448 - 20 * usize::from(v6))
            );
        }
    }
}

#[test]
fn every_size_arrives_over_an_impaired_link() {
    let mut retransmits = 0;
    for seed in 0..6 {
        for mode in [SendMode::MemCopy, SendMode::PreCopy] {
            for len in SIZES {
                let mut setup = Setup {
                    path: rough(),
                    seed: seed * 1000 + len as u64,
                    v6: seed % 2 == 1,
                    ..Setup::default()
                };
                setup.config.mode = mode;
                // For the largest size, there are fewer resident frames than packets, so some
                // packets must be copied.
                setup.end.resident_frames = 512;
                let counters = fetch(&setup, len);
                retransmits += counters.retransmits;
            }
        }
    }
    assert!(retransmits > 500, "the link was rough: {retransmits}");
}

#[test]
fn a_resident_packet_in_flight_is_copied_for_other_connections() {
    // Many clients need the same packet while it is still in the TX ring.
    let mut setup = Setup::default();
    setup.config.mode = SendMode::PreCopy;
    setup.path.line_rate = 100_000_000;
    let content = noise(1000);
    let mut world = World::new(&setup, App::default());
    let (app, contents) = world.server.transports.parts_mut();
    let slot = Slot { offset: 10, len: 3 };
    app.contents
        .push(contents.add(Arc::from(&content[..]), Some(slot)).unwrap());
    for _ in 0..50 {
        world.connect(&[0], false, 4096);
    }
    let counters = world.run();
    let mut stamps = [0; 10];
    for connection in &world.client.connections {
        let got = &connection.received;
        assert_eq!((got.len(), &got[..10]), (1000, &content[..10]));
        assert_eq!(got[13..], content[13..]);
        assert_eq!(got[10], got[12]);
        stamps[usize::from(got[10] - b'0')] += 1;
    }
    assert_eq!(stamps, [5; 10], "each response has its own stamp");
    assert_eq!(counters.sent_resident, 50);
    assert!(world.server.transports.contents().totals().residents > 1);
}

#[test]
fn a_short_tx_ring_loses_no_segments() {
    let mut setup = Setup::default();
    setup.end.tx_ring = 4;
    setup.path.line_rate = 50_000_000;
    let counters = fetch(&setup, 500_000);
    assert_eq!(counters.retransmits, 0);
    assert!(counters.sends_delayed > 10);
}

#[test]
fn a_narrow_bottleneck_is_found_and_shared() {
    let mut setup = Setup::default();
    setup.path.rate = 10_000_000;
    setup.path.queue = 20;
    let counters = fetch(&setup, 3_000_000);
    assert!(counters.fast_recoveries > 0);
    // The content has 2,072 segments, and few of them are retransmitted.
    assert!(counters.retransmits < 200, "{}", counters.retransmits);
}

#[test]
fn a_small_window_of_the_peer_is_respected() {
    let content = noise(100_000);
    let setup = Setup::default();
    let mut world = World::new(&setup, App::default());
    let (app, contents) = world.server.transports.parts_mut();
    app.contents
        .push(contents.add(Arc::from(&content[..]), None).unwrap());
    world.connect(&[0], false, 1000);
    world.run();
    assert!(world.received(0) == content);
}

#[test]
fn pipelined_requests_are_all_answered_in_order() {
    let supers = Some(Segmentation {
        largest: 65_535,
        write_segment: ip::write_segment,
    });
    let paths = [(1, PathConfig::default()), (2, rough()), (3, rough())];
    let all = [None, supers].map(|segmentation| paths.map(|path| (segmentation, path)));
    for (segmentation, (seed, path)) in all.into_iter().flatten() {
        let setup = Setup {
            path,
            seed,
            end: EndConfig {
                segmentation,
                ..EndConfig::default()
            },
            ..Setup::default()
        };
        let app = App {
            keep: true,
            ..App::default()
        };
        let mut world = World::new(&setup, app);
        let (app, contents) = world.server.transports.parts_mut();
        for len in [1, 100, 5000] {
            let content = contents.add(Arc::from(&noise(len)[..]), None).unwrap();
            app.contents.push(content);
        }
        let requests: Vec<u8> = (0..500u32).map(|i| (i % 3) as u8).collect();
        world.connect(&requests, true, 65_535);
        world.run();
        let sizes = [1, 100, 5000];
        let expected: Vec<u8> = requests
            .iter()
            .flat_map(|request| noise(sizes[usize::from(*request)]))
            .collect();
        assert!(world.received(0) == expected, "seed {seed}");
    }
}

#[test]
fn an_upload_comes_back_byte_for_byte() {
    for seed in 0..4 {
        let mut setup = Setup {
            path: if seed == 0 {
                Setup::default().path
            } else {
                rough()
            },
            seed,
            ..Setup::default()
        };
        // A receive buffer of 2,000 bytes is often full.
        setup.config.recv_buffer = if seed == 1 { 2000 } else { 16_384 };
        let app = App {
            echo: true,
            ..App::default()
        };
        let mut world = World::new(&setup, app);
        let upload = noise(300_000);
        world.connect(&upload, true, 65_535);
        world.run();
        assert!(world.received(0) == upload, "seed {seed}");
        assert_eq!(
            world.server.transports.app().closed,
            [CloseReason::Finished]
        );
    }
}

#[test]
fn many_connections_are_served_over_an_impaired_link() {
    let setup = Setup {
        path: rough(),
        ..Setup::default()
    };
    let mut world = World::new(&setup, App::default());
    let (app, contents) = world.server.transports.parts_mut();
    for len in 0..200 {
        let content = contents
            .add(Arc::from(&noise(len * 100)[..]), None)
            .unwrap();
        app.contents.push(content);
    }
    for request in 0..200 {
        world.connect(&[request], false, 20_000);
    }
    world.run();
    for (len, connection) in world.client.connections.iter().enumerate() {
        assert!(connection.received == noise(len * 100), "{len}");
    }
}
