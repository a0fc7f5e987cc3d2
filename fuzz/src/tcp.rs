//! Clients that send any segments near the valid ones to a stack on a
//! simulated wire, and what must hold after each: the stack's own invariants,
//! no frame missing, and the right bytes at the right sequence numbers both
//! ways.

mod app;
mod client;

use std::sync::Arc;
use std::time::Duration;

use ip::{Host, Input as Received, PROTOCOL_TCP};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use nmio::sim::{self, EndConfig, LinkConfig, SimPort};
use nmio::{Batch, Frame, Handler, Instant, Port};
use tcpip::{Config, Family, Mode, Server, Stack};

use crate::{OWN, PEER, path, station};
use app::{App, Habit, SLOT, Stream, content};
use client::{ACK, Client, FIN, MAX_DATA, Near, OWN_PORT, PSH, RST, SYN, Segment, near};

const FIRST_PORT: u16 = 40_000;
/// Clients by port, each over IPv4 and over IPv6.
const PORTS: u8 = 4;
const SECRET: [u64; 4] = [1, 2, 3, 4];
/// Steps of one input that are carried out.
const MAX_STEPS: usize = 300;
/// The segment size that a client tells, often.
const SEGMENT: u16 = 536;
/// After this, a connection with a silent peer is over: the idle time, and
/// then as many retransmissions or probes as there are, a minute apart.
const LONGEST: Duration = Duration::from_hours(1);
/// Passes of an event loop without a segment, at most: more than there can be
/// timers in [`LONGEST`], or segments of all windows behind a ring of one.
const MAX_PASSES: usize = 5_000;
/// What each segment takes: time never stands still, and with it our initial
/// sequence numbers.
const STEP: Duration = Duration::from_micros(10);

/// What a client does, or what happens.
#[derive(Arbitrary, Debug)]
pub enum Step {
    /// A SYN with this number and segment size, and the end of the handshake.
    Open(u32, Option<u16>),
    /// The next bytes, in order.
    Request(u16),
    /// All that came is acknowledged.
    Acknowledge,
    /// A part of it, in segments of the usual size.
    AcknowledgePart(u8),
    /// The last acknowledgement comes again, as when a segment is lost.
    Duplicates(u8),
    /// The client's FIN, in order.
    Close,
    Segment(Segment),
    /// Somebody says that a segment was larger than this path MTU.
    TooBig(u16, Near),
    /// Milliseconds go by.
    Pass(u16),
    /// Seconds go by.
    PassLong(u8),
    Habit(Habit),
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
    connections: u8,
    half_open: u8,
    time_wait: u8,
    buffers: u8,
    residents: u8,
    frames: u8,
    tx_ring: u8,
    /// Each with the client that it is about.
    steps: Vec<(u8, Step)>,
}

struct World {
    server: Server<App>,
    port: SimPort,
    wire: SimPort,
    /// Takes what the server sends apart.
    peer: Host,
    clients: Vec<Client>,
    now: Instant,
    max_connections: u32,
    frames: u32,
}

/// Carries out `input`, and panics when something is not as it must be.
pub fn run(input: &Input) {
    let mut world = World::new(input);
    for (client, step) in input.steps.iter().take(MAX_STEPS) {
        let client = usize::from(*client) % world.clients.len();
        world.step(client, step);
    }
    // Nobody says anything any more.
    world.pass(LONGEST);
    let stack = &world.server.stack;
    assert_eq!(stack.connections(), 0, "a connection lives for ever");
    assert_eq!(
        stack.app().accepted,
        stack.app().ended,
        "each connection ends once"
    );
    assert_eq!(stack.poll_timeout(), None, "a timer of nobody's");
}

impl World {
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
        let max_connections = 1 + u32::from(input.connections) % 8;
        let buffers = u32::from(input.buffers);
        let config = Config {
            mode: if input.pre_copy {
                Mode::PreCopy
            } else {
                Mode::MemCopy
            },
            max_connections,
            max_half_open: 1 + u32::from(input.half_open) % 8,
            max_time_wait: u32::from(input.time_wait) % 4,
            recv_buffer: 2048,
            max_recv_buffers: buffers % 4,
            max_write_buffers: buffers / 4 % 4,
            class_budget: 4000,
            ..Config::on_ports(&[OWN_PORT])
        };
        let now = Instant::from_millis(1_000_000);
        let clients: Vec<_> = (0..2 * PORTS)
            .map(|i| Client {
                path: path(i >= PORTS, (i % PORTS == 3).then_some(7)),
                port: FIRST_PORT + u16::from(i % PORTS),
                iss: None,
                irs: 0,
                snd_nxt: 0,
                rcv_nxt: 0,
                acked: 0,
            })
            .collect();
        let app = App {
            habit: Habit::Serve,
            refuse: false,
            greet: false,
            close_back: true,
            content: None,
            bytes: content(5000),
            stamp: 0,
            streams: clients
                .iter()
                .map(|client| (client.key(), Stream::default()))
                .collect(),
            accepted: 0,
            ended: 0,
        };
        let stack = Stack::new(&config, app, &port.capabilities(), SECRET, now);
        let mut server = Server::new(Host::own(station(OWN)), stack);
        let (app, contents) = server.stack.parts_mut();
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
            clients,
            now,
            max_connections,
        }
    }

    fn step(&mut self, client: usize, step: &Step) {
        let Client { acked, rcv_nxt, .. } = self.clients[client];
        match step {
            Step::Open(isn, mss) => {
                let [high, low] = mss.unwrap_or(SEGMENT).to_be_bytes();
                let options = [2, 4, high, low];
                let syn = self.clients[client].frame(*isn, 0, SYN, u16::MAX, &options, 0);
                self.receive(&syn);
                self.in_order(client, self.clients[client].rcv_nxt, ACK, 0);
            }
            Step::Request(len) => self.in_order(client, rcv_nxt, ACK | PSH, len % MAX_DATA),
            Step::Acknowledge => self.in_order(client, rcv_nxt, ACK, 0),
            Step::AcknowledgePart(segments) => {
                let len = u32::from(segments % 32) * u32::from(SEGMENT);
                let part = len.min(rcv_nxt.wrapping_sub(acked));
                self.in_order(client, acked.wrapping_add(part), ACK, 0);
            }
            Step::Duplicates(times) => {
                for _ in 0..=(times % 8) {
                    self.in_order(client, acked, ACK, 0);
                }
            }
            Step::Close => self.in_order(client, rcv_nxt, ACK | FIN, 0),
            Step::Segment(segment) => self.receive(&self.clients[client].segment(segment)),
            Step::TooBig(mtu, seq) => {
                let client = &self.clients[client];
                let seq = near(*seq, client.acked, rcv_nxt);
                self.receive(&client.too_big(*mtu, seq));
            }
            Step::Pass(millis) => self.pass(Duration::from_millis(u64::from(*millis))),
            Step::PassLong(seconds) => self.pass(Duration::from_secs(u64::from(*seconds))),
            Step::Habit(habit) => self.app().habit = *habit,
            Step::Accept { refuse, greet } => {
                self.app().refuse = *refuse;
                self.app().greet = *greet;
            }
            Step::CloseBack(close) => self.app().close_back = *close,
            Step::Reload(len) => {
                let bytes = content(*len);
                let (app, contents) = self.server.stack.parts_mut();
                if let Some(old) = app.content.take() {
                    assert!(contents.remove(old), "removed twice");
                }
                let id = contents.add(Arc::clone(&bytes), Some(SLOT));
                app.content = Some(id.expect("a valid content"));
                app.bytes = bytes;
            }
        }
    }

    fn app(&mut self) -> &mut App {
        self.server.stack.app_mut()
    }

    /// A segment with the next bytes of a client's.
    fn in_order(&mut self, client: usize, ack: u32, control: u8, len: u16) {
        let client = &mut self.clients[client];
        client.acked = ack;
        let segment = client.frame(client.snd_nxt, ack, control, u16::MAX, &[], len);
        self.receive(&segment);
    }

    /// A frame of a client's arrives.
    fn receive(&mut self, bytes: &[u8]) {
        self.now = self.now + STEP;
        let mut frame = self.port.pool().take().expect("all frames are free");
        frame.set_len(bytes.len());
        frame.copy_from_slice(bytes);
        self.server.handle_frame(&mut self.port, frame, self.now);
        self.settle();
    }

    /// Time passes, and timers run as an event loop would run them.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        let mut passes = 0;
        while let Some(due) = self.server.stack.poll_timeout().filter(|due| *due <= end) {
            self.now = due.max(self.now + STEP);
            self.server.stack.handle_timers(&mut self.port, self.now);
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
        loop {
            self.port.flush().expect("a simulated port");
            let mut batch = Batch::new();
            self.wire
                .receive(&mut batch, 256)
                .expect("a simulated port");
            for frame in batch {
                self.arrive(frame);
            }
            // Whoever waits for the ring, and has room now.
            let due = self.server.stack.poll_timeout();
            if due.is_none_or(|due| due > self.now) {
                break;
            }
            self.server.stack.handle_timers(&mut self.port, self.now);
            passes += 1;
            assert!(passes < MAX_PASSES, "a ring that never empties");
        }
        let stack = &self.server.stack;
        assert!(stack.connections() <= self.max_connections);
        #[cfg(fuzzing)]
        stack.check_invariants();
        let _ = self.port.room();
        assert_eq!(
            self.port.pool().available(),
            self.frames,
            "a frame has leaked"
        );
        assert_eq!(self.wire.counters().rx_lost, 0);
    }

    /// A segment reaches its client.
    fn arrive(&mut self, frame: Frame) {
        let packet = match self.peer.receive(frame) {
            Received::Tcp(packet) => packet,
            other => panic!("the peer refuses it: {other:?}"),
        };
        assert!(
            packet.checksum_ok(PROTOCOL_TCP, 16, false),
            "a wrong checksum"
        );
        let tcp = packet.payload();
        let word = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let number = |at: usize| u32::from(word(at)) << 16 | u32::from(word(at + 2));
        let (seq, ack, control) = (number(4), number(8), tcp[13]);
        let data = &tcp[usize::from(tcp[12] >> 4) * 4..];
        let key = (word(2), packet.addresses().src().is_ipv6());
        let client = self.clients.iter_mut().find(|client| client.key() == key);
        let client = client.expect("a known client");
        assert_eq!(word(0), OWN_PORT);
        assert_eq!(packet.path_back().link, client.path.link);
        if control & RST != 0 {
            assert!(data.is_empty());
            return;
        }
        let stream = self.server.stack.app_mut().streams.get_mut(&key);
        let stream = stream.expect("a known client");
        if control & SYN != 0 {
            assert_eq!((control, data.len()), (SYN | ACK, 0));
            if (client.iss, client.snd_nxt) != (Some(seq), ack) {
                client.iss = Some(seq);
                client.irs = ack.wrapping_sub(1);
                client.rcv_nxt = seq.wrapping_add(1);
                *stream = Stream {
                    irs: client.irs,
                    ..Stream::default()
                };
            }
            client.snd_nxt = ack;
            return;
        }
        let iss = client.iss.expect("a handshake comes first");
        assert_eq!(control & ACK, ACK);
        let start = seq.wrapping_sub(iss).wrapping_sub(1) as usize;
        let end = start + data.len();
        let fin = control & FIN != 0;
        if !data.is_empty() || fin {
            assert_eq!(stream.written.get(start..end), Some(data), "other data");
            assert!(!fin || end == stream.written.len(), "a FIN before the end");
        } else {
            assert!(
                start <= stream.written.len() + 1,
                "a number that nobody has sent"
            );
        }
        client.snd_nxt = ack;
        let end = seq.wrapping_add(data.len() as u32 + u32::from(fin));
        if end.wrapping_sub(client.rcv_nxt).cast_signed() > 0 {
            client.rcv_nxt = end;
        }
    }
}
