//! Runs clients that send valid and nearly valid segments to a stack on a simulated link. After
//! each segment, checks the stack's own invariants, that no frame has leaked, and what the server
//! has sent. The rules for what the server may send are in `fuzz/README.md`.

mod app;
mod client;
mod stream;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arbitrary::Arbitrary;
use ip::Host;
use nmio::sim::{self, EndConfig, LinkConfig, SimPort};
use nmio::{Batch, Handler, Instant, Port};
use tcpip::{
    Bbr, Config, CongestionControl, Cubic, Family, NewReno, Reno, SendMode, Server, Stack,
    SynCookies, WhenFull,
};
use testkit::{ACK, CWR, ECE, FIN, Layout, PSH, Route, Segment, read_segment};

use crate::{CLIENT_PORT, station};
use app::{App, Call, Habit, SLOT, content};
use client::{Client, Complaint, Draft, MAX_DATA, Near, Offer};
use stream::Stream;

const OWN_PORT: u16 = 80;
/// Number of client ports. Each is used over IPv4 and over IPv6.
const PORTS: u16 = 4;
const SECRET: [u64; 4] = [1, 2, 3, 4];
/// Maximum number of steps of an input.
const MAX_STEPS: usize = 300;
/// Number of segments from the server after which the remaining steps are skipped.
const MAX_SEGMENTS: u32 = 4_000;
/// Unit of [`Step::AcknowledgePart`] in bytes.
const SEGMENT: u32 = 536;
/// A connection with a silent peer closes within this time. It covers the idle timeout, and then
/// all retransmissions or probes at intervals of up to a minute.
const LONGEST: Duration = Duration::from_hours(1);
/// Maximum number of passes of the event loop without a received segment. It exceeds the number of
/// timers in [`LONGEST`]. It also exceeds the number of segments in all windows, because a TX ring
/// of one slot needs one pass per segment.
const MAX_PASSES: usize = 5_000;
/// Time that passes per segment, so that the clock behind the initial sequence numbers advances.
const STEP: Duration = Duration::from_micros(10);
/// Maximum time for which the TX ring may stay full.
const LONGEST_STALL: Duration = Duration::from_millis(50);
/// Within this time after the last step, everything that waits for the TX ring is sent.
const LAST_FLIGHT: Duration = Duration::from_millis(100);
/// Maximum number of flights without new data that a connection may send to a silent peer. Such
/// flights are retransmissions and probes.
const MAX_LAST_FLIGHTS: u32 = 64;
/// Maximum number of received segments that a client acknowledges individually in a round trip.
const MAX_ROUND: u32 = 40;
/// Start times of stacks in milliseconds. Two of them are just before a 32-bit counter of
/// microseconds or of milliseconds wraps.
const EPOCHS: [u64; 4] = [
    1_000_000,
    0,
    (u32::MAX / 1000) as u64 - 100,
    u32::MAX as u64 - 100,
];

/// Whether to print each step and segment.
static TRACE: LazyLock<bool> = LazyLock::new(|| std::env::var_os("FUZZ_TRACE").is_some());

/// An action of a client, the network or the application. Most numbers are reduced to a useful
/// range.
#[derive(Arbitrary, Debug)]
pub enum Step {
    /// Opens a connection with this initial sequence number and offer.
    Open(u32, Offer),
    /// Sends this many bytes in order.
    Request(u16),
    /// Acknowledges all received data.
    Acknowledge,
    /// Acknowledges this number of units of [`SEGMENT`] bytes.
    AcknowledgePart(u8),
    /// Repeats the last acknowledgement one to eight times, as after a loss. The value determines
    /// the number.
    Duplicates(u8),
    /// Lets round trips pass. The values are the number of round trips, their length in
    /// milliseconds, and whether the client acknowledges only every second segment.
    Transfer(u8, u8, bool),
    /// Sends the client's FIN in order.
    Close,
    /// Sends a segment that this draft describes.
    Segment(Draft),
    /// Sets which of every eight segments to this client the network loses, as a bit mask.
    Lose(u8),
    /// Sets the client's window.
    Window(u16),
    /// Sets the ECN bits of the client's packets, and the ECE and CWR bits of its segments.
    Mark(u8, bool, bool),
    /// Sets by how many milliseconds the client's TSval is ahead of virtual time.
    Clock(u32),
    /// Sends an ICMP error about the server's segment at this sequence number.
    Complain(Complaint, Near),
    /// Advances the clock by this many milliseconds.
    Pass(u16),
    /// Advances the clock by this many seconds.
    PassLong(u8),
    /// Advances the clock by this many milliseconds, and only then runs the timers, once.
    Late(u16),
    /// Blocks the TX ring for this many steps.
    Stall(u8),
    /// Sets how the application handles received data.
    Habit(Habit),
    /// Adds calls to the script for this client's connection.
    Calls(Vec<Call>),
    /// Sets whether the application refuses new connections, and whether it greets them.
    Accept(bool, bool),
    /// Sets whether the application closes when the peer does.
    CloseBack(bool),
    /// Replaces the content item. The value determines the new length.
    Reload(u16),
}

/// The configuration of a stack and all steps.
#[derive(Arbitrary, Debug)]
pub struct Input {
    pre_copy: bool,
    epoch: u8,
    congestion: u8,
    /// Bit mask. Bits 0 to 4 disable SACK, timestamps, window scaling, ECN, and resets for unknown
    /// connections. Bit 5 makes a full stack refuse new connections. Bit 6 sets a minimum RTO of
    /// 1 ms. Bit 7 enlarges the receive buffer.
    switches: u8,
    connections: u8,
    half_open: u8,
    time_wait: u8,
    buffers: u8,
    recv_buffer: u16,
    retries: u8,
    residents: u8,
    frames: u8,
    tx_ring: u8,
    /// Steps, each with the index of its client.
    steps: Vec<(u8, Step)>,
}

struct World<C> {
    server: Server<App, C>,
    port: SimPort,
    wire: SimPort,
    clients: Vec<Client>,
    now: Instant,
    max_connections: u32,
    frames: u32,
    /// Number of steps for which the TX ring stays blocked.
    stalled: u8,
}

/// Runs `input`. Panics if a check fails.
pub fn run(input: &Input) {
    match input.congestion % 4 {
        0 => run_with::<Reno>(input),
        1 => run_with::<NewReno>(input),
        2 => run_with::<Bbr>(input),
        _ => run_with::<Cubic>(input),
    }
}

fn run_with<C: CongestionControl>(input: &Input) {
    let mut world = World::<C>::new(input);
    for (client, step) in input.steps.iter().take(MAX_STEPS) {
        let client = usize::from(*client) % world.clients.len();
        let streams = world.app().streams.values();
        if streams.map(|stream| stream.segments).sum::<u32>() > MAX_SEGMENTS {
            break;
        }
        if *TRACE {
            eprintln!("{:?} client {client}: {step:?}", world.now);
        }
        world.step(client, step);
        world.stalled = world.stalled.saturating_sub(1);
        world.settle();
    }
    // The clients are silent from now on.
    world.pass(LAST_FLIGHT);
    for stream in world.app().streams.values_mut() {
        stream.repeated = 0;
    }
    world.pass(LONGEST);
    let stack = &world.server.transports;
    assert_eq!(stack.connections(), 0, "a connection stays open");
    let app = stack.app();
    assert_eq!(app.accepted, app.ended, "accepted and closed");
    for stream in app.streams.values() {
        assert!(!stream.is_open && stream.repeated <= MAX_LAST_FLIGHTS);
    }
    assert_eq!(stack.poll_timeout(), None, "a timer without a connection");
}

impl<C: CongestionControl> World<C> {
    fn new(input: &Input) -> Self {
        let end = EndConfig {
            io_frames: 2 + u32::from(input.frames) % 64,
            resident_frames: u32::from(input.residents) % 16,
            tx_ring: 1 + usize::from(input.tx_ring) % 64,
            ..EndConfig::default()
        };
        let config = LinkConfig {
            a: end,
            b: EndConfig {
                io_frames: 80,
                resident_frames: 0,
                ..EndConfig::default()
            },
            ..LinkConfig::default()
        };
        let (mut port, wire, _) = sim::link(&config, 0);
        let config = stack_config(input);
        let now = Instant::from_millis(EPOCHS[usize::from(input.epoch) % EPOCHS.len()]);
        let clients: Vec<_> = (0..2 * PORTS)
            .map(|i| {
                let port = CLIENT_PORT + i % PORTS;
                let vlan = (i % PORTS == 3).then_some(2);
                let route = Route::to_server(i >= PORTS, port, OWN_PORT);
                Client::new(Route { vlan, ..route })
            })
            .collect();
        let streams = clients.iter().map(|client| {
            let (_, v6) = client.key();
            (client.key(), Stream::new(v6))
        });
        let app = App::new(streams.collect());
        let stack = Stack::with_congestion_control(&config, app, &port.capabilities(), SECRET, now);
        let mut server = Server::new(Host::own(station(), [0; 4]), stack);
        let (app, contents) = server.transports.parts_mut();
        let id = contents.add(Arc::clone(&app.bytes), Some(SLOT)).unwrap();
        app.content = Some(id);
        contents.prepare(id, port.pool(), Family::V4);
        let _ = port.room();
        Self {
            server,
            frames: port.pool().available(),
            port,
            wire,
            now,
            max_connections: config.max_connections,
            stalled: 0,
            clients,
        }
    }

    fn step(&mut self, index: usize, step: &Step) {
        let client = &mut self.clients[index];
        client.set_clock(self.now);
        let (acked, rcv_nxt) = (client.acked, client.rcv_nxt());
        match step {
            Step::Open(isn, offer) => {
                let syn = client.syn(*isn, *offer);
                self.receive(index, &syn);
                self.in_order(index, self.clients[index].rcv_nxt(), ACK, 0);
            }
            Step::Request(len) => self.in_order(index, rcv_nxt, ACK | PSH, len % MAX_DATA),
            Step::Acknowledge => self.in_order(index, rcv_nxt, ACK, 0),
            Step::AcknowledgePart(segments) => {
                let len = u32::from(segments % 32) * SEGMENT;
                let part = len.min(rcv_nxt.wrapping_sub(acked));
                self.in_order(index, acked.wrapping_add(part), ACK, 0);
            }
            Step::Duplicates(times) => {
                for _ in 0..=(times % 8) {
                    self.in_order(index, acked, ACK, 0);
                }
            }
            Step::Transfer(rounds, millis, every_second) => {
                for _ in 0..=(rounds % 8) {
                    self.pass(Duration::from_millis(u64::from(*millis)));
                    self.acknowledge_each(index, 1 + u32::from(*every_second));
                }
            }
            Step::Close => self.in_order(index, rcv_nxt, ACK | FIN, 0),
            Step::Segment(draft) => {
                let segment = client.segment(draft);
                self.receive(index, &segment);
            }
            Step::Lose(which) => client.loss = *which,
            Step::Window(window) => client.window = *window,
            Step::Mark(ecn, ece, cwr) => {
                client.ecn = ecn & 3;
                client.control = (u16::from(*ece) * ECE) | (u16::from(*cwr) * CWR);
            }
            Step::Clock(ahead) => client.ahead = *ahead,
            Step::Complain(complaint, seq) => {
                let frame = client.complaint(*complaint, seq.of(acked, rcv_nxt));
                self.handle(&frame);
                self.settle();
            }
            Step::Pass(millis) => self.pass(Duration::from_millis(u64::from(*millis))),
            Step::PassLong(seconds) => self.pass(Duration::from_secs(u64::from(*seconds))),
            Step::Late(millis) => {
                self.now = self.now + Duration::from_millis(u64::from(*millis));
                self.server.handle_timers(&mut self.port, self.now);
                self.settle();
            }
            Step::Stall(steps) => self.stalled = steps % 16,
            Step::Habit(habit) => self.app().habit = *habit,
            Step::Calls(calls) => {
                let key = client.key();
                self.app().instruct(key, calls);
            }
            Step::Accept(refuse, greet) => {
                (self.app().refuse, self.app().greet) = (*refuse, *greet);
            }
            Step::CloseBack(close) => self.app().close_back = *close,
            Step::Reload(len) => self.reload(*len),
        }
    }

    fn reload(&mut self, len: u16) {
        let bytes = content(len);
        let (app, contents) = self.server.transports.parts_mut();
        if let Some(old) = app.content.take() {
            assert!(contents.remove(old), "the content is unknown");
            app.removed = Some(old);
        }
        let id = contents.add(Arc::clone(&bytes), Some(SLOT));
        app.content = Some(id.expect("a valid content"));
        app.bytes = bytes;
    }

    fn app(&mut self) -> &mut App {
        self.server.transports.app_mut()
    }

    /// Sends a client's next `len` bytes in order, with the acknowledgement number `ack`.
    fn in_order(&mut self, index: usize, ack: u32, bits: u16, len: u16) {
        let client = &mut self.clients[index];
        client.set_clock(self.now);
        client.acked = ack;
        client.unacknowledged = 0;
        let segment = client.in_order(ack, bits, len);
        self.receive(index, &segment);
    }

    /// Acknowledges every `nth` received segment. The client does not record where each segment
    /// ends, so the acknowledgements divide the data evenly.
    fn acknowledge_each(&mut self, index: usize, nth: u32) {
        let client = &self.clients[index];
        let segments = client.unacknowledged.min(MAX_ROUND);
        let (from, to) = (client.acked, client.rcv_nxt());
        let all = to.wrapping_sub(from);
        let mut left = segments.div_ceil(nth);
        while left > 0 {
            left -= 1;
            let part = all - all / segments.max(1) * nth.min(segments) * left;
            let ack = if all > 1 << 30 {
                to
            } else {
                from.wrapping_add(part.min(all))
            };
            self.in_order(index, ack, ACK, 0);
        }
    }

    /// Delivers a client's segment to the server.
    fn receive(&mut self, index: usize, segment: &Segment) {
        let client = &self.clients[index];
        let frame = client.route.segment(segment, Layout::Dense);
        let key = client.key();
        let stalled = self.stalled > 0;
        let stream = self.app().stream(key);
        let (was_open, before) = (stream.is_open, stream.segments);
        stream.arrives(segment);
        self.app().ack = segment.ack;
        self.handle(&frame);
        let stream = self.app().stream(key);
        stream.has_arrived(stalled);
        let is_open = stream.is_open;
        self.settle();
        if !was_open && !is_open && !stalled {
            let answers = self.app().stream(key).segments - before;
            assert!(answers <= 1, "{answers} answers to one segment");
        }
    }

    fn handle(&mut self, bytes: &[u8]) {
        self.now = self.now + STEP;
        let Some(mut frame) = self.port.pool().take() else {
            assert!(self.stalled > 0, "no free frame");
            return;
        };
        frame.set_len(bytes.len());
        frame.copy_from_slice(bytes);
        self.server.handle_frame(&mut self.port, frame, self.now);
        self.check_invariants();
    }

    /// Checks the stack's own invariants.
    fn check_invariants(&mut self) {
        self.server.transports.check_invariants();
    }

    /// Advances the time, and runs the timers as an event loop does.
    fn pass(&mut self, time: Duration) {
        if time > LONGEST_STALL {
            self.stalled = 0;
            self.settle();
        }
        let end = self.now + time;
        let mut passes = 0;
        let due =
            |server: &Server<App, C>| server.transports.poll_timeout().filter(|due| *due <= end);
        while let Some(due) = due(&self.server) {
            self.now = due.max(self.now + STEP);
            self.server.handle_timers(&mut self.port, self.now);
            self.settle();
            passes += 1;
            assert!(passes < MAX_PASSES, "the timers never stop");
        }
        self.now = end.max(self.now);
        self.settle();
    }

    /// Delivers all queued segments to their clients and checks for leaks, unless the TX ring is
    /// stalled.
    fn settle(&mut self) {
        let mut passes = 0;
        while self.stalled == 0 {
            self.port.flush().expect("a simulated port does not fail");
            let mut batch = Batch::new();
            let received = self.wire.receive(&mut batch, 256);
            received.expect("a simulated port does not fail");
            for frame in batch {
                self.arrive(&frame);
            }
            // Connections may have waited for room in the TX ring. If so, their timers are due now.
            let due = self.server.transports.poll_timeout();
            if due.is_none_or(|due| due > self.now) {
                break;
            }
            self.server.handle_timers(&mut self.port, self.now);
            self.check_invariants();
            passes += 1;
            assert!(passes < MAX_PASSES, "the ring never empties");
        }
        assert!(self.server.transports.connections() <= self.max_connections);
        self.check_invariants();
        if self.stalled == 0 {
            let _ = self.port.room();
            let free = self.port.pool().available();
            assert_eq!(free, self.frames, "a frame has leaked");
        }
        assert_eq!(self.wire.counters().rx_lost, 0);
    }

    /// Delivers a frame from the server to the client to which it is addressed.
    fn arrive(&mut self, frame: &[u8]) {
        let received = read_segment(frame).expect("a valid segment");
        let sent = &received.segment;
        let mut clients = self.clients.iter();
        let index = clients.position(|client| client.route == received.route.back());
        let index = index.expect("a known client");
        if *TRACE {
            eprintln!("{:?} to client {index}: {sent}", self.now);
        }
        let key = self.clients[index].key();
        self.app().stream(key).server_sent(&received);
        self.clients[index].take(sent);
    }
}

fn stack_config(input: &Input) -> Config {
    let buffers = u32::from(input.buffers);
    let is_off = |bit: u8| input.switches >> bit & 1 != 0;
    let recv_buffer = usize::from(input.recv_buffer) % 4096;
    Config {
        mode: [SendMode::MemCopy, SendMode::PreCopy][usize::from(input.pre_copy)],
        max_connections: 1 + u32::from(input.connections) % 8,
        max_half_open: 1 + u32::from(input.half_open) % 8,
        max_time_wait: u32::from(input.time_wait) % 4,
        syn_cookies: match input.time_wait / 4 % 4 {
            0 => SynCookies::Never,
            1 => SynCookies::Always,
            _ => SynCookies::Auto,
        },
        when_full: [WhenFull::Evict, WhenFull::Refuse][usize::from(is_off(5))],
        max_per_address: Some(u32::from(input.connections) / 8 % 8).filter(|most| *most > 0),
        recv_buffer: recv_buffer * if is_off(7) { 64 } else { 1 },
        max_recv_buffers: buffers % 4,
        max_write_buffers: buffers / 4 % 4,
        class_budget: 4000,
        retries: 1 + input.retries % 10,
        probes: 1 + input.retries / 16 % 10,
        min_rto: Duration::from_millis(if is_off(6) { 1 } else { 200 }),
        sack: !is_off(0),
        timestamps: !is_off(1),
        window_scaling: !is_off(2),
        ecn: !is_off(3),
        reset_unknown: !is_off(4),
        ..Config::on_ports(&[OWN_PORT])
    }
}
