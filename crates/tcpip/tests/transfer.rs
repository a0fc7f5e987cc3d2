//! Whole transfers to an independent peer, smoltcp's TCP client, over a
//! simulated link that loses, reorders and duplicates. A failure names its
//! seed; the same seed fails again.

#[path = "peer/smol.rs"]
mod smol;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use eth::{Mac, Station};
use ip::Host;
use nmio::sim::{self, EndConfig, LinkConfig, PathConfig, SimPort};
use nmio::{Frame, Handler, Instant, LoopConfig, Port};
use smol::Smol;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp;
use tcpip::{
    Application, CloseReason, Config, CongestionControl, Connection, ConnectionId, Connections,
    ContentId, Counters, Mode, Server, Slot, Stack, Timer,
};

const SERVER: [&str; 2] = ["10.0.0.1", "fd00::1"];
const PORT: u16 = 80;
/// Bytes of a client's send buffer.
const SEND_BUFFER: usize = 8192;
/// No transfer takes longer, in virtual time.
const LONGEST: Duration = Duration::from_mins(20);

/// One connection of the client: what it has to send, and what it got.
struct Download {
    handle: SocketHandle,
    request: Vec<u8>,
    sent: usize,
    /// Close our side when the request is out.
    close_early: bool,
    got: Vec<u8>,
    finished: bool,
}

/// smoltcp, with any number of connections.
struct Client {
    smol: Smol,
    downloads: Vec<Download>,
    server: IpAddr,
}

impl Client {
    fn new(v6: bool) -> Self {
        Self {
            smol: Smol::new(1500),
            downloads: Vec::new(),
            server: SERVER[usize::from(v6)].parse().unwrap(),
        }
    }

    fn add(&mut self, request: &[u8], close_early: bool, buffer: usize) {
        let local_port = 50_000 + self.downloads.len() as u16;
        let buffers = (buffer, SEND_BUFFER);
        self.downloads.push(Download {
            handle: (self.smol).connect((self.server, PORT), local_port, buffers),
            request: request.to_vec(),
            sent: 0,
            close_early,
            got: Vec::new(),
            finished: false,
        });
    }

    fn done(&self) -> bool {
        self.downloads.iter().all(|download| download.finished)
    }
}

impl Download {
    /// `true` when something was done that smoltcp should look at.
    fn work(&mut self, socket: &mut tcp::Socket<'_>) -> bool {
        let mut busy = false;
        if self.sent < self.request.len() && socket.can_send() {
            self.sent += socket.send_slice(&self.request[self.sent..]).unwrap();
            busy = true;
            if self.sent == self.request.len() && self.close_early {
                socket.close();
            }
        }
        while socket.can_recv() {
            socket
                .recv(|bytes| {
                    self.got.extend_from_slice(bytes);
                    (bytes.len(), ())
                })
                .unwrap();
            busy = true;
        }
        if !socket.may_recv() && self.sent == self.request.len() && socket.is_open() {
            let closing = socket.may_send();
            socket.close();
            busy |= closing;
        }
        let ended = !socket.is_open() || socket.state() == tcp::State::TimeWait;
        if ended && !self.finished {
            self.finished = true;
            busy = true;
        }
        busy
    }
}

impl<P: Port> Handler<P> for Client {
    fn handle_frame(&mut self, _port: &mut P, frame: Frame, now: Instant) {
        self.smol.take(&frame, now);
    }

    fn handle_timers(&mut self, port: &mut P, now: Instant) {
        let downloads = &mut self.downloads;
        self.smol.work(port, now, |smol| {
            let mut busy = false;
            for download in &mut *downloads {
                busy |= download.work(smol.socket(download.handle));
            }
            busy
        });
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.smol.poll_timeout()
    }
}

/// Serves content number `n` for each byte `n`, or echoes.
#[derive(Default)]
struct App {
    contents: Vec<ContentId>,
    echo: bool,
    keep: bool,
    /// Names of the connections that are open.
    open: Vec<ConnectionId>,
    closed: Vec<CloseReason>,
    ticks: u32,
    stamps: u64,
}

impl Application for App {
    type State = ();
    type Message = ();

    fn on_start<C: CongestionControl>(&mut self, connections: &mut Connections<'_, (), C>) {
        connections.for_each(|_| unreachable!("nobody has come yet"));
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
        self.open.swap_remove(at.expect("it was opened"));
        self.closed.push(reason);
    }

    fn render(&mut self, stamp: u64, slot: &mut [u8]) {
        slot.fill(b'0' + (stamp % 10) as u8);
    }
}

fn noise(len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(len as u64);
    std::iter::repeat_with(|| rng.u8(..)).take(len).collect()
}

struct World {
    client: Client,
    client_port: SimPort,
    server: Server<App>,
    server_port: SimPort,
    clock: sim::SimClock,
    frames: u32,
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

/// Everything that can go wrong on the way does, often.
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
        let (client_port, server_port, clock) = sim::link(&link, setup.seed);
        let addresses: Vec<IpAddr> = SERVER.iter().map(|a| a.parse().unwrap()).collect();
        let station = Station::new(Mac([2, 0, 0, 0, 0, 1]), &addresses);
        let stack = Stack::new(
            &setup.config,
            app,
            &server_port.capabilities(),
            [setup.seed, 2, 3, 4],
            Instant::ZERO,
        );
        let frames = server_port.pool().available();
        Self {
            client: Client::new(setup.v6),
            client_port,
            server: Server::new(Host::own(station), stack),
            server_port,
            clock,
            frames,
        }
    }

    /// Runs until the client has all, then until the server has forgotten
    /// it.
    fn run(&mut self) -> Counters {
        let deadline = nmio::Clock::now(&self.clock) + LONGEST;
        let done = sim::run_until(
            &self.clock,
            (&mut self.client_port, &mut self.client),
            (&mut self.server_port, &mut self.server),
            &LoopConfig::default(),
            deadline,
            |client, _| client.done(),
        );
        assert!(done.unwrap(), "the client waits still");
        let deadline = nmio::Clock::now(&self.clock) + LONGEST;
        let done = sim::run_until(
            &self.clock,
            (&mut self.client_port, &mut self.client),
            (&mut self.server_port, &mut self.server),
            &LoopConfig::default(),
            deadline,
            |_, server: &Server<App>| server.transports.connections() == 0,
        );
        assert!(done.unwrap(), "a connection has stayed");
        // What is in the ring or on the wire comes back.
        self.clock.advance(Duration::from_secs(10));
        let mut batch = nmio::Batch::new();
        loop {
            self.server_port
                .receive(&mut batch, nmio::MAX_BATCH)
                .unwrap();
            if batch.is_empty() {
                break;
            }
            batch.clear();
        }
        assert_eq!(self.server_port.pool().available(), self.frames, "a leak");
        let app = self.server.transports.app();
        assert_eq!((app.open.len(), app.ticks), (0, 1));
        *self.server.transports.counters()
    }
}

/// Fetches one content, and gives what has been counted.
fn fetch(setup: &Setup, len: usize) -> Counters {
    let content = noise(len);
    let mut world = World::new(setup, App::default());
    let (app, contents) = world.server.transports.parts_mut();
    app.contents
        .push(contents.add(Arc::from(&content[..]), None).unwrap());
    world.client.add(&[0], false, 65_535);
    let counters = world.run();
    let seed = setup.seed;
    assert!(
        world.client.downloads[0].got == content,
        "seed {seed}, {len} bytes"
    );
    assert_eq!(
        world.server.transports.app().closed,
        [CloseReason::Finished]
    );
    counters
}

const SIZES: [usize; 7] = [0, 1, 1447, 1448, 1449, 65_536, 3_000_000];

#[test]
fn every_size_arrives_by_copying() {
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
            setup.config.mode = Mode::PreCopy;
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
fn every_size_arrives_over_a_rough_link() {
    let mut retransmits = 0;
    for seed in 0..6 {
        for mode in [Mode::MemCopy, Mode::PreCopy] {
            for len in SIZES {
                let mut setup = Setup {
                    path: rough(),
                    seed: seed * 1000 + len as u64,
                    v6: seed % 2 == 1,
                    ..Setup::default()
                };
                setup.config.mode = mode;
                // Fewer residents than packets: some must be copied.
                setup.end.resident_frames = 512;
                let counters = fetch(&setup, len);
                retransmits += counters.retransmits;
            }
        }
    }
    assert!(retransmits > 500, "the link was rough: {retransmits}");
}

#[test]
fn a_slow_line_makes_copies_of_packets_in_flight() {
    // Many clients want the same packet while it is in the ring.
    let mut setup = Setup::default();
    setup.config.mode = Mode::PreCopy;
    setup.path.line_rate = 100_000_000;
    let content = noise(1000);
    let mut world = World::new(&setup, App::default());
    let (app, contents) = world.server.transports.parts_mut();
    let slot = Slot { offset: 10, len: 3 };
    app.contents
        .push(contents.add(Arc::from(&content[..]), Some(slot)).unwrap());
    for _ in 0..50 {
        world.client.add(&[0], false, 4096);
    }
    let counters = world.run();
    let mut stamps = [0; 10];
    for download in &world.client.downloads {
        let got = &download.got;
        assert_eq!((got.len(), &got[..10]), (1000, &content[..10]));
        assert_eq!(got[13..], content[13..]);
        assert_eq!(got[10], got[12]);
        stamps[usize::from(got[10] - b'0')] += 1;
    }
    assert_eq!(stamps, [5; 10], "each has its own");
    assert_eq!(counters.sent_resident, 50);
    assert!(world.server.transports.contents().totals().residents > 1);
}

#[test]
fn a_short_ring_loses_nothing() {
    let mut setup = Setup::default();
    setup.end.tx_ring = 4;
    setup.path.line_rate = 50_000_000;
    let counters = fetch(&setup, 500_000);
    assert_eq!(counters.retransmits, 0);
    assert!(counters.blocked > 10);
}

#[test]
fn a_narrow_bottleneck_is_found_and_shared() {
    let mut setup = Setup::default();
    setup.path.rate = 10_000_000;
    setup.path.queue = 20;
    let counters = fetch(&setup, 3_000_000);
    assert!(counters.fast_retransmits > 0);
    // 2,055 segments, and not many more.
    assert!(counters.retransmits < 200, "{}", counters.retransmits);
}

#[test]
fn a_small_window_of_the_peer_is_kept_to() {
    let content = noise(100_000);
    let setup = Setup::default();
    let mut world = World::new(&setup, App::default());
    let (app, contents) = world.server.transports.parts_mut();
    app.contents
        .push(contents.add(Arc::from(&content[..]), None).unwrap());
    world.client.add(&[0], false, 1000);
    world.run();
    assert!(world.client.downloads[0].got == content);
}

#[test]
fn pipelined_requests_are_all_answered_in_order() {
    for (seed, path) in [(1, PathConfig::default()), (2, rough()), (3, rough())] {
        let setup = Setup {
            path,
            seed,
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
        world.client.add(&requests, true, 65_535);
        world.run();
        let sizes = [1, 100, 5000];
        let expected: Vec<u8> = requests
            .iter()
            .flat_map(|request| noise(sizes[usize::from(*request)]))
            .collect();
        assert!(world.client.downloads[0].got == expected, "seed {seed}");
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
        // A buffer that is often full.
        setup.config.recv_buffer = if seed == 1 { 2000 } else { 16_384 };
        let app = App {
            echo: true,
            ..App::default()
        };
        let mut world = World::new(&setup, app);
        let upload = noise(300_000);
        world.client.add(&upload, true, 65_535);
        world.run();
        assert!(world.client.downloads[0].got == upload, "seed {seed}");
        assert_eq!(
            world.server.transports.app().closed,
            [CloseReason::Finished]
        );
    }
}

#[test]
fn many_connections_at_once_over_a_rough_link() {
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
        world.client.add(&[request], false, 20_000);
    }
    world.run();
    for (len, download) in world.client.downloads.iter().enumerate() {
        assert!(download.got == noise(len * 100), "{len}");
    }
}
