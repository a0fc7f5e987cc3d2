//! Clients that send any segments near the valid ones to a stack on a
//! simulated wire, and what must hold after each: the stack's own invariants,
//! no frame missing, nothing sent that the client has not allowed, and the
//! right bytes at the right sequence numbers both ways.

mod app;
mod client;
mod segment;
mod stream;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ip::{Host, Input as Received, PROTOCOL_TCP};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use nmio::sim::{self, EndConfig, LinkConfig, SimPort};
use nmio::{Batch, Frame, Handler, Instant, Port};
use tcpip::{
    Bbr, Config, CongestionControl, Cubic, Family, NewReno, Reno, SendMode, Server, Stack,
    SynCookies, WhenFull,
};

use crate::{OWN, PEER, ecn_of, path, station};
use app::{App, Call, Habit, SLOT, content};
use client::{Client, Complaint, Header, MAX_DATA, Near, OWN_PORT, Offer, Segment};
use segment::{ACK, FIN, PSH, Sent};
use stream::Stream;

const FIRST_PORT: u16 = 40_000;
/// Clients by port, each over IPv4 and over IPv6.
const PORTS: u8 = 4;
const SECRET: [u64; 4] = [1, 2, 3, 4];
/// Steps of one input that are carried out.
const MAX_STEPS: usize = 300;
/// The segment size that a client acknowledges parts by.
const SEGMENT: u32 = 536;
/// After this, a connection with a silent peer is over: the idle time, and
/// then as many retransmissions or probes as there are, a minute apart.
const LONGEST: Duration = Duration::from_hours(1);
/// Passes of an event loop without a segment, at most: more than there can be
/// timers in [`LONGEST`], or segments of all windows behind a ring of one.
const MAX_PASSES: usize = 5_000;
/// What each segment takes: time never stands still, and with it our initial
/// sequence numbers.
const STEP: Duration = Duration::from_micros(10);
/// The longest pass that a ring may stay full for.
const LONGEST_STALL: Duration = Duration::from_millis(50);
/// In this time everything leaves that waits for the ring.
const LAST_FLIGHT: Duration = Duration::from_millis(100);
/// What a connection may send when nobody answers, besides new data in its
/// window: flights of retransmissions, and probes.
const MAX_LAST_WORDS: u32 = 64;
/// Segments that a client acknowledges in one round trip, one by one.
const MAX_ROUND: u32 = 40;
/// When stacks begin, in milliseconds: also just before the clocks that they
/// keep in 32 bits wrap.
const EPOCHS: [u64; 4] = [
    1_000_000,
    0,
    (u32::MAX / 1000) as u64 - 100,
    u32::MAX as u64 - 100,
];

/// Whether steps and segments are told as they come.
static TRACE: LazyLock<bool> = LazyLock::new(|| std::env::var_os("FUZZ_TRACE").is_some());

/// What a client does, or what happens.
#[derive(Arbitrary, Debug)]
pub enum Step {
    /// A SYN with this number and offer, and the end of the handshake.
    Open(u32, Offer),
    /// The next bytes, in order.
    Request(u16),
    /// All that came is acknowledged.
    Acknowledge,
    /// A part of it, in segments of the usual size.
    AcknowledgePart(u8),
    /// The last acknowledgement comes again, as when a segment is lost.
    Duplicates(u8),
    /// Round trips of so many milliseconds, in which the client acknowledges
    /// every segment, or every second.
    Transfer {
        rounds: u8,
        millis: u8,
        every_second: bool,
    },
    /// The client's FIN, in order.
    Close,
    Segment(Segment),
    /// Of the segments to this client these are lost from now on.
    Lose(u8),
    /// The client's window from now on.
    Window(u16),
    /// The ECN bits of the client's packets, and its ECE and CWR bits, from
    /// now on.
    Mark(u8, bool, bool),
    /// The client's clock is ahead by so much from now on.
    Clock(u32),
    Complain(Complaint, Near),
    /// Milliseconds go by.
    Pass(u16),
    /// Seconds go by.
    PassLong(u8),
    /// Milliseconds go by without a look at the timers.
    Late(u16),
    /// Nothing leaves the ring during as many steps.
    Stall(u8),
    Habit(Habit),
    Calls(Vec<Call>),
    /// The application refuses connections, or greets them.
    Accept {
        refuse: bool,
        greet: bool,
    },
    /// The peer's FIN closes our side too.
    CloseBack(bool),
    /// The content is removed, and another of this length served.
    Reload(u16),
}

/// A whole life of a stack.
#[derive(Arbitrary, Debug)]
pub struct Input {
    pre_copy: bool,
    epoch: u8,
    congestion: u8,
    /// Bits: what is switched off, and a large receive buffer.
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
    /// Each with the client that it is about.
    steps: Vec<(u8, Step)>,
}

struct World<C> {
    server: Server<App, C>,
    port: SimPort,
    wire: SimPort,
    /// Takes what the server sends apart.
    peer: Host,
    clients: Vec<Client>,
    now: Instant,
    max_connections: u32,
    frames: u32,
    /// Steps for which the ring stays as it is.
    stalled: u8,
    /// Segments that the server has sent to each client.
    sent: Vec<u32>,
    /// Flights of them that brought no new data, …
    again: Vec<u32>,
    /// … and where the last of these ended.
    again_to: Vec<u32>,
}

/// Carries out `input`, and panics when something is not as it must be.
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
        if *TRACE {
            eprintln!("{:?} client {client}: {step:?}", world.now);
        }
        world.step(client, step);
        world.stalled = world.stalled.saturating_sub(1);
        world.settle();
    }
    // Nobody says anything any more.
    world.pass(LAST_FLIGHT);
    let before = world.again.clone();
    world.pass(LONGEST);
    for (again, before) in world.again.iter().zip(before) {
        assert!(again - before <= MAX_LAST_WORDS, "a server that talks on");
    }
    let stack = &world.server.transports;
    assert_eq!(stack.connections(), 0, "a connection lives for ever");
    let app = stack.app();
    assert_eq!(app.accepted, app.ended, "each connection ends once");
    assert!(app.streams.values().all(|stream| !stream.is_open));
    assert_eq!(stack.poll_timeout(), None, "a timer of nobody's");
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
                let path = path(i >= PORTS, (i % PORTS == 3).then_some(7));
                Client::new(path, FIRST_PORT + u16::from(i % PORTS))
            })
            .collect();
        let streams = clients.iter().map(|client| {
            let (_, v6) = client.key();
            (client.key(), Stream::new(v6))
        });
        let app = App::new(streams.collect());
        let stack = Stack::with_congestion_control(&config, app, &port.capabilities(), SECRET, now);
        let mut server = Server::new(Host::own(station(OWN)), stack);
        let (app, contents) = server.transports.parts_mut();
        let id = contents.add(Arc::clone(&app.bytes), Some(SLOT));
        let id = id.expect("a valid content");
        app.content = Some(id);
        contents.prepare(id, port.pool(), Family::V4);
        let _ = port.room();
        Self {
            server,
            frames: port.pool().available(),
            port,
            wire,
            peer: Host::own(station(PEER)),
            now,
            max_connections: config.max_connections,
            stalled: 0,
            sent: vec![0; clients.len()],
            again: vec![0; clients.len()],
            again_to: vec![0; clients.len()],
            clients,
        }
    }

    fn step(&mut self, index: usize, step: &Step) {
        let client = &mut self.clients[index];
        client.tick(self.now);
        let (acked, rcv_nxt) = (client.acked, client.rcv_nxt());
        match step {
            Step::Open(isn, offer) => {
                let syn = client.syn(*isn, *offer, client.window);
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
            Step::Transfer {
                rounds,
                millis,
                every_second,
            } => {
                for _ in 0..=(rounds % 8) {
                    self.pass(Duration::from_millis(u64::from(*millis)));
                    self.acknowledge_each(index, 1 + u32::from(*every_second));
                }
            }
            Step::Close => self.in_order(index, rcv_nxt, ACK | FIN, 0),
            Step::Segment(segment) => {
                let header = client.segment(segment);
                self.receive(index, &header);
            }
            Step::Lose(which) => client.loss = *which,
            Step::Window(window) => client.window = *window,
            Step::Mark(ecn, ece, cwr) => {
                client.ecn = ecn & 3;
                client.control =
                    if *ece { segment::ECE } else { 0 } | if *cwr { segment::CWR } else { 0 };
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
                self.server
                    .transports
                    .handle_timers(&mut self.port, self.now);
                self.settle();
            }
            Step::Stall(steps) => self.stalled = steps % 16,
            Step::Habit(habit) => self.app().habit = *habit,
            Step::Calls(calls) => {
                let key = client.key();
                self.app().instruct(key, calls);
            }
            Step::Accept { refuse, greet } => {
                self.app().refuse = *refuse;
                self.app().greet = *greet;
            }
            Step::CloseBack(close) => self.app().close_back = *close,
            Step::Reload(len) => self.reload(*len),
        }
    }

    fn reload(&mut self, len: u16) {
        let bytes = content(len);
        let (app, contents) = self.server.transports.parts_mut();
        if let Some(old) = app.content.take() {
            assert!(contents.remove(old), "removed twice");
            app.removed = Some(old);
        }
        let id = contents.add(Arc::clone(&bytes), Some(SLOT));
        app.content = Some(id.expect("a valid content"));
        app.bytes = bytes;
    }

    fn app(&mut self) -> &mut App {
        self.server.transports.app_mut()
    }

    /// A segment with the next bytes of a client's.
    fn in_order(&mut self, index: usize, ack: u32, control: u8, len: u16) {
        let client = &mut self.clients[index];
        client.tick(self.now);
        client.acked = ack;
        client.unacknowledged = 0;
        let header = client.in_order(ack, control, len);
        self.receive(index, &header);
    }

    /// An acknowledgement for every `nth` of the segments that have come,
    /// behind the data that was in order then, as far as that is known.
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

    /// A segment of a client's arrives.
    fn receive(&mut self, index: usize, header: &Header) {
        let client = &self.clients[index];
        let frame = client.frame(header);
        let key = client.key();
        let stalled = self.stalled > 0;
        let stream = self.app().streams.get_mut(&key).expect("a known client");
        let was_open = stream.is_open;
        stream.arrives(header);
        self.app().ack = header.ack;
        let before = self.sent[index];
        self.handle(&frame);
        let stream = self.app().streams.get_mut(&key).expect("a known client");
        stream.has_arrived(header, stalled);
        let is_open = stream.is_open;
        self.settle();
        if !was_open && !is_open && !stalled {
            let answers = self.sent[index] - before;
            assert!(answers <= 1, "{answers} answers to one segment");
        }
    }

    fn handle(&mut self, bytes: &[u8]) {
        self.now = self.now + STEP;
        let Some(mut frame) = self.port.pool().take() else {
            assert!(self.stalled > 0, "all frames are free");
            return;
        };
        frame.set_len(bytes.len());
        frame.copy_from_slice(bytes);
        self.server.handle_frame(&mut self.port, frame, self.now);
        self.check_invariants();
    }

    /// What must hold after each call.
    fn check_invariants(&mut self) {
        #[cfg(fuzzing)]
        self.server.transports.check_invariants();
    }

    /// Time passes, and timers run as an event loop would run them.
    fn pass(&mut self, time: Duration) {
        if time > LONGEST_STALL {
            self.stalled = 0;
            self.settle();
        }
        let end = self.now + time;
        let mut passes = 0;
        while let Some(due) = self
            .server
            .transports
            .poll_timeout()
            .filter(|due| *due <= end)
        {
            self.now = due.max(self.now + STEP);
            self.server
                .transports
                .handle_timers(&mut self.port, self.now);
            self.settle();
            passes += 1;
            assert!(passes < MAX_PASSES, "timers without end");
        }
        self.now = end.max(self.now);
        self.settle();
    }

    /// All that is queued goes out and arrives; then everything is where it
    /// belongs.
    fn settle(&mut self) {
        let mut passes = 0;
        while self.stalled == 0 {
            self.port.flush().expect("a simulated port");
            let mut batch = Batch::new();
            self.wire
                .receive(&mut batch, 256)
                .expect("a simulated port");
            for frame in batch {
                self.arrive(frame);
            }
            // Whoever waits for the ring, and has room now.
            let due = self.server.transports.poll_timeout();
            if due.is_none_or(|due| due > self.now) {
                break;
            }
            self.server
                .transports
                .handle_timers(&mut self.port, self.now);
            self.check_invariants();
            passes += 1;
            assert!(passes < MAX_PASSES, "a ring that never empties");
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

    /// A segment reaches its client.
    fn arrive(&mut self, frame: Frame) {
        let ecn = ecn_of(&frame);
        let packet = match self.peer.receive(frame, Instant::ZERO) {
            Received::Tcp(packet) => packet,
            other => panic!("the peer refuses it: {other:?}"),
        };
        assert!(packet.checksum_ok(PROTOCOL_TCP, 16), "a wrong checksum");
        let sent = Sent::parse(&packet, ecn);
        assert_eq!(sent.own_port, OWN_PORT);
        let key = (sent.peer_port, packet.addresses().src().is_ipv6());
        let index = self.clients.iter().position(|client| client.key() == key);
        let index = index.expect("a known client");
        assert_eq!(packet.path_back().link, self.clients[index].path.link);
        self.sent[index] += 1;
        if *TRACE {
            eprintln!("{:?} to client {index}: {sent:?}", self.now);
        }
        let stream = self.server.transports.app_mut().streams.get_mut(&key);
        let stream = stream.expect("a known client");
        let before = stream.seen_end;
        stream.server_sent(&sent);
        if stream.seen_end == before {
            // Short segments, one behind the other, are one flight.
            let goes_on = !sent.data.is_empty() && sent.seq == self.again_to[index];
            self.again[index] += u32::from(!goes_on);
            self.again_to[index] = sent.seq.wrapping_add(sent.data.len() as u32);
        }
        self.clients[index].take(&sent);
    }
}

fn stack_config(input: &Input) -> Config {
    let buffers = u32::from(input.buffers);
    let is_off = |bit: u8| input.switches >> bit & 1 != 0;
    let recv_buffer = usize::from(input.recv_buffer) % 4096;
    Config {
        mode: if input.pre_copy {
            SendMode::PreCopy
        } else {
            SendMode::MemCopy
        },
        max_connections: 1 + u32::from(input.connections) % 8,
        max_half_open: 1 + u32::from(input.half_open) % 8,
        max_time_wait: u32::from(input.time_wait) % 4,
        syn_cookies: match input.time_wait / 4 % 4 {
            0 => SynCookies::Never,
            1 => SynCookies::Always,
            _ => SynCookies::Auto,
        },
        when_full: if is_off(5) {
            WhenFull::Refuse
        } else {
            WhenFull::Evict
        },
        max_per_address: Some(u32::from(input.connections) / 8 % 8).filter(|most| *most > 0),
        recv_buffer: if is_off(7) {
            recv_buffer * 64
        } else {
            recv_buffer
        },
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
