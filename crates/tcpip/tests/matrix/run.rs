//! Runs a cell: transfers its content over a simulated link, and measures the result.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use eth::{Mac, Station};
use ip::Host;
use nmio::sim::{self, EndConfig, LinkConfig, Segmentation, SimPort};
use nmio::{Clock, Frame, Handler, Instant, Port};
use tcpip::{
    Application, CloseReason, Config, Connection, ConnectionId, ContentId, Counters, SendMode,
};
use tcpip::{Bbr, CongestionControl, Cubic, NewReno, Reno, Server, Stack};
use testkit::smol::{self, Talk};
use testkit::{Link, Observed, SERVER, SERVER_MAC, noise};

use crate::cell::{Cell, Control, End, Peer};
use crate::peer::{self, Client, Observations, Task};
use crate::router::Router;
use crate::tap::{Tap, Trace};

const PORT: u16 = 80;
/// Size of smoltcp's send buffer in bytes.
const SEND_BUFFER: usize = 1024;
/// Time limit of the transfer, and then of the closing of all connections, in virtual time.
const LONGEST: Duration = Duration::from_mins(30);

/// Result of a cell.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) seed: u64,
    /// Whether every byte has arrived, and all closed connections were closed normally.
    pub(crate) finished: bool,
    /// Time from a connection's SYN to its first byte, and to its last byte. Each is the maximum
    /// over all connections.
    pub(crate) first_byte: Duration,
    pub(crate) last_byte: Duration,
    /// Mean time from the SYN to the last byte, over all connections.
    pub(crate) mean: Duration,
    /// Time from the first SYN to the last byte of all connections.
    pub(crate) all: Duration,
    /// Number of retransmitted bytes.
    pub(crate) retransmitted: u64,
    /// Number of bytes that the client received although it already had them.
    pub(crate) spurious: u64,
    pub(crate) counters: Counters,
}

/// An application that serves the content. If each connection makes only one request, the
/// application closes after the response.
#[derive(Default)]
struct App {
    content: Option<ContentId>,
    times: u64,
    closed: Vec<CloseReason>,
}

impl Application for App {
    type State = ();
    type Message = ();

    fn on_receive(&mut self, conn: &mut Connection<'_, ()>, data: &[u8]) -> usize {
        for consumed in 0..data.len() {
            let content = self.content.expect("the content was set before the run");
            if conn.write(content, 0).is_err() {
                return consumed;
            }
            if self.times == 1 {
                conn.close();
            }
        }
        data.len()
    }

    fn on_close(&mut self, _: ConnectionId, (): &mut (), reason: CloseReason) {
        self.closed.push(reason);
    }
}

/// The client of a cell: our test client or that of smoltcp.
enum Asker {
    Ours(Client),
    Smoltcp(Box<smol::Client>, Rc<[u8]>),
}

impl Asker {
    fn new(cell: &Cell, seed: u64, content: &Rc<[u8]>) -> Self {
        let task = |i: u16| Task {
            request: b'?',
            content: Rc::clone(content),
            times: cell.times,
            think: cell.think,
            start: Instant::ZERO + cell.apart * u32::from(i),
        };
        match &cell.peer {
            Peer::Ours(behaviour) => {
                let mut client = Client::new(cell.v6, PORT, seed);
                for i in 0..cell.connections {
                    client.connect(behaviour, &task(i));
                }
                Self::Ours(client)
            }
            Peer::Smoltcp(buffer) => {
                let mut client = smol::Client::new(1500);
                for i in 0..cell.connections {
                    let task = task(i);
                    let all = task.content.len() * task.times as usize;
                    let talk = Talk {
                        server: SERVER[usize::from(cell.v6)],
                        start: task.start,
                        bytes: vec![task.request; task.times as usize],
                        piece: 1,
                        answer: task.content.len(),
                        think: task.think,
                        expected: if task.times > 1 { all } else { usize::MAX },
                        buffers: (*buffer, SEND_BUFFER),
                        ..Talk::default()
                    };
                    client.connect(PORT, talk);
                }
                Self::Smoltcp(Box::new(client), content.repeat(cell.times as usize).into())
            }
        }
    }

    /// Returns true if all connections are closed or reset.
    fn done(&self) -> bool {
        match self {
            Self::Ours(client) => client.done(),
            Self::Smoltcp(client, _) => client.done(),
        }
    }

    /// Returns true if every byte of all connections has arrived.
    fn complete(&self) -> bool {
        match self {
            Self::Ours(client) => client.connections.iter().all(peer::Connection::complete),
            Self::Smoltcp(client, stream) => {
                let mut connections = client.connections.iter();
                connections.all(|one| one.received == stream[..])
            }
        }
    }

    /// Returns the start of each connection, and what the client has observed on it.
    fn seen(&self) -> Vec<(Instant, Observations)> {
        match self {
            Self::Ours(client) => {
                let connections = client.connections.iter();
                connections.map(|one| (one.start(), one.seen)).collect()
            }
            Self::Smoltcp(client, stream) => {
                let seen = |one: &smol::Connection| {
                    let last = one.arrived.filter(|_| one.received.len() == stream.len());
                    let seen = Observations {
                        first_byte: one.arrived.map(|(first, _)| first),
                        last_byte: last.map(|(_, last)| last),
                        ..Observations::default()
                    };
                    (one.start(), seen)
                };
                client.connections.iter().map(seen).collect()
            }
        }
    }
}

impl<P: Port> Handler<P> for Asker {
    fn handle_frame(&mut self, port: &mut P, frame: Frame, now: Instant) {
        match self {
            Self::Ours(client) => client.handle_frame(port, frame, now),
            Self::Smoltcp(client, _) => client.handle_frame(port, frame, now),
        }
    }

    fn handle_timers(&mut self, port: &mut P, now: Instant) {
        match self {
            Self::Ours(client) => client.handle_timers(port, now),
            Self::Smoltcp(client, _) => client.handle_timers(port, now),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Ours(client) => Handler::<P>::poll_timeout(client),
            Self::Smoltcp(client, _) => Handler::<P>::poll_timeout(&**client),
        }
    }
}

/// Both hosts and the link between them.
struct World<C> {
    link: Link<Observed<SimPort, Router>, Observed<SimPort, Tap>>,
    client: Asker,
    server: Server<App, C>,
}

impl<C: CongestionControl> World<C> {
    fn new(cell: &Cell, seed: u64, sends: Sends, trace: Option<Rc<RefCell<Trace>>>) -> Self {
        let link = LinkConfig {
            // The client's ring and pool are so large that they do not limit the transfer.
            a: EndConfig {
                rx_ring: 8192,
                io_frames: 16_384,
                ..EndConfig::default()
            },
            b: EndConfig {
                resident_frames: 4096,
                // The ring must have room for all segments of a super-segment together.
                tx_ring: if sends == Sends::Frames { 512 } else { 8192 },
                io_frames: if sends == Sends::Frames { 2048 } else { 16_384 },
                segmentation: match sends {
                    Sends::Frames | Sends::Copies => None,
                    Sends::Supers => Some(Segmentation {
                        largest: 256 << 10,
                        write_segment: ip::write_segment,
                    }),
                },
                ..EndConfig::default()
            },
            a_to_b: cell.up,
            b_to_a: cell.down,
        };
        let (client_port, server_port, clock) = sim::link(&link, seed);
        let content: Rc<[u8]> = noise(0, cell.len).into();
        let config = Config {
            mode: match sends {
                Sends::Frames => [SendMode::MemCopy, SendMode::PreCopy][seed as usize % 2],
                Sends::Copies | Sends::Supers => SendMode::MemCopy,
            },
            pacing: cell.is_paced,
            ..Config::on_ports(&[PORT])
        };
        let app = App {
            times: cell.times,
            ..App::default()
        };
        let capabilities = server_port.capabilities();
        let secret = [seed, 2, 3, 4];
        let mut stack = Stack::<App, C>::with_congestion_control(
            &config,
            app,
            &capabilities,
            secret,
            Instant::ZERO,
        );
        let (app, contents) = stack.parts_mut();
        app.content = Some(contents.add(Arc::from(&content[..]), None).unwrap());
        let station = Station::new(Mac(SERVER_MAC), &SERVER);
        let router = Router {
            clock: clock.clone(),
            narrow: cell.narrow,
        };
        let tap = Tap::new(&clock, trace);
        Self {
            client: Asker::new(cell, seed, &content),
            server: Server::new(Host::own(station, [0; 4]), stack),
            link: Link::of(
                Observed::new(client_port, router),
                Observed::new(server_port, tap),
                clock,
            ),
        }
    }

    /// Runs until `done` returns `true`. Returns `false` if that takes longer than [`LONGEST`].
    fn drive(&mut self, done: impl Fn(&Asker, &Server<App, C>) -> bool) -> bool {
        let (clock, trace) = (
            self.link.clock.clone(),
            self.link.server.observer.trace.clone(),
        );
        let (client, server) = (&mut self.client, &mut self.server);
        self.link.run(client, server, LONGEST, |client, server| {
            if let Some(trace) = &trace {
                let counters = server.transports.counters();
                trace.borrow_mut().note(clock.now(), counters);
            }
            done(client, server)
        })
    }
}

/// How the server sends segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sends {
    /// As single frames, by memcopy or pre-copy depending on the seed.
    Frames,
    /// As single frames, always by memcopy.
    Copies,
    /// As super-segments, which the port splits. The results must equal those of `Copies`. They may
    /// differ from those of `Frames`, because resident packets always reserve space for timestamps.
    Supers,
}

/// Runs a cell with a seed. If `trace` is given, writes a trace to the files `trace`.txt and
/// `trace`.pcap.
///
/// # Panics
///
/// Panics if the server or the client breaks a rule that holds on every path.
pub(crate) fn run(cell: &Cell, seed: u64, sends: Sends, trace: Option<&Path>) -> Outcome {
    match cell.control {
        Control::Cubic => run_with::<Cubic>(cell, seed, sends, trace),
        Control::NewReno => run_with::<NewReno>(cell, seed, sends, trace),
        Control::Reno => run_with::<Reno>(cell, seed, sends, trace),
        Control::Bbr => run_with::<Bbr>(cell, seed, sends, trace),
    }
}

fn run_with<C: CongestionControl>(
    cell: &Cell,
    seed: u64,
    sends: Sends,
    trace: Option<&Path>,
) -> Outcome {
    let trace = trace.map(|base| Rc::new(RefCell::new(Trace::create(base).unwrap())));
    let mut world = World::<C>::new(cell, seed, sends, trace);
    let failed = |server: &Server<App, C>| {
        let mut closed = server.transports.app().closed.iter();
        closed.any(|reason| *reason != CloseReason::Finished)
    };
    world.drive(|client, server| client.done() || failed(server));
    let finished = world.client.complete() && !failed(&world.server);
    let counters = *world.server.transports.counters();
    let ended = world.drive(|_, server| server.transports.connections() == 0);
    let waits = cell.end == End::Waits;
    assert_eq!(
        ended, !waits,
        "connections stay open exactly if the server waits"
    );
    world.link.drain();

    let seen = world.client.seen();
    let times = |moment: fn(&Observations) -> Option<Instant>| -> Vec<Duration> {
        let all = seen.iter();
        all.filter_map(|(start, seen)| Some(moment(seen)?.since(*start)))
            .collect()
    };
    let longest = |times: &[Duration]| times.iter().max().copied().unwrap_or_default();
    let last = times(|seen| seen.last_byte);
    let all = seen.iter().filter_map(|(_, seen)| seen.last_byte).max();
    Outcome {
        seed,
        finished,
        first_byte: longest(&times(|seen| seen.first_byte)),
        last_byte: longest(&last),
        mean: last.iter().sum::<Duration>() / seen.len() as u32,
        all: all.map_or(Duration::ZERO, |at| at.since(Instant::ZERO)),
        retransmitted: world.link.server.observer.retransmitted,
        spurious: seen.iter().map(|(_, seen)| seen.spurious).sum(),
        counters,
    }
}
