//! Tests with random sequences of segments, delays and calls. They check that the invariants hold
//! (`check_invariants`), no frame leaks, every connection closes, and the data sent is the data
//! written.

use std::time::Duration;

use ip::{ErrorKind, IcmpError, PROTOCOL_TCP};
use proptest::prelude::*;

use crate::connection::{State, Tcb};
use crate::stack::testing::{Habit, Rig, noise};
use crate::{Config, SendMode};

const CONTENT_LEN: usize = 5_003;

/// A random event. Sequence numbers are offsets from the values that the connection expects, so
/// that most segments are acceptable.
#[derive(Clone, Copy, Debug)]
enum Step {
    Segment {
        client: u8,
        control: &'static str,
        seq: i32,
        /// Whether `ack` is an offset from `snd_una`, rather than from `snd_nxt`.
        is_from_una: bool,
        ack: i32,
        len: usize,
        window: u16,
    },
    /// This client sends a request. If it has no connection, it first performs a handshake.
    Open(u8),
    /// This client sends duplicate ACKs. The second value is the number of ACKs.
    Duplicates(u8, usize),
    Pass(u64),
    Room(usize),
    Habit(Habit),
    TooBig {
        client: u8,
        mtu: u32,
        at: u32,
    },
    Reload,
    /// The application accesses the last accepted connection outside its callbacks, even if the
    /// connection is already closed.
    Reach(Act),
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Write,
    OfferAgain,
    Park,
    Resume,
    Close,
    Abort,
}

fn small_offset() -> impl Strategy<Value = i32> {
    prop_oneof![
        20 => Just(0),
        4 => -2000..2000i32,
        1 => any::<i32>(),
    ]
}

fn segment() -> impl Strategy<Value = Step> {
    let control = prop_oneof![
        16 => Just("A"),
        6 => Just("PA"),
        3 => Just("S"),
        2 => Just("FA"),
        1 => Just("R"),
        1 => Just("RA"),
        1 => prop::sample::select(vec!["", "F", "SA", "SF", "P", "FR", "SFRPA"]),
    ];
    let len = prop_oneof![4 => Just(0), 2 => 1..4usize, 1 => 1..1460usize];
    let window = prop::sample::select(vec![0, 1, 100, 1000, 5000, 65_535, 65_535, 65_535]);
    let is_from_una = prop::bool::weighted(0.4);
    (
        0u8..4,
        control,
        small_offset(),
        is_from_una,
        small_offset(),
        len,
        window,
    )
        .prop_map(
            |(client, control, seq, is_from_una, ack, len, window)| Step::Segment {
                client,
                control,
                seq,
                is_from_una,
                ack,
                len,
                window,
            },
        )
}

fn step() -> impl Strategy<Value = Step> {
    let habits = vec![
        Habit::Serve,
        Habit::Serve,
        Habit::ServeOnce,
        Habit::Silent,
        Habit::Lazy,
        Habit::Sip,
        Habit::SipOn,
        Habit::LazyOn,
        Habit::Park,
        Habit::Abort,
    ];
    prop_oneof![
        30 => segment(),
        4 => (0u8..4).prop_map(Step::Open),
        3 => (0u8..4, 1..6usize).prop_map(|(client, n)| Step::Duplicates(client, n)),
        4 => (0u64..3000).prop_map(Step::Pass),
        2 => prop_oneof![Just(0), 1..4usize, Just(1000)].prop_map(Step::Room),
        2 => prop::sample::select(habits).prop_map(Step::Habit),
        1 => (0u8..4, 0u32..2000, 0u32..3000).prop_map(|(client, mtu, at)| {
            Step::TooBig { client, mtu, at }
        }),
        1 => Just(Step::Reload),
        3 => prop_oneof![
            4 => Just(Act::Write),
            3 => Just(Act::OfferAgain),
            1 => Just(Act::Park),
            3 => Just(Act::Resume),
            1 => Just(Act::Close),
            1 => Just(Act::Abort),
        ].prop_map(Step::Reach),
    ]
}

/// Settings with small limits, so that random events often reach a limit.
fn config(mode: SendMode) -> Config {
    Config {
        mode,
        max_connections: 3,
        max_half_open: 2,
        max_time_wait: 1,
        recv_buffer: 3000,
        max_recv_buffers: 2,
        class_budget: 30,
        retries: 3,
        probes: 3,
        syn_ack_retries: 1,
        time_wait: Duration::from_secs(1),
        fin_wait: Duration::from_secs(1),
        idle_timeout: Duration::from_secs(2),
        ..Config::default()
    }
}

/// Returns the TCB of the client with this port.
fn tcb_of(rig: &Rig, port: u16) -> Option<&Tcb> {
    let records = rig.stack.table.records.iter().map(|record| &record.tcb);
    records
        .filter(|tcb| tcb.state != State::Closed)
        .find(|tcb| tcb.view().peer_port == port)
}

/// Returns `rcv_nxt`, `snd_nxt` and `snd_una` for the client with this port.
fn expected(rig: &Rig, port: u16) -> Option<(u32, u32, u32)> {
    let tcb = tcb_of(rig, port)?;
    Some((
        tcb.view().rcv_nxt.0,
        tcb.view().snd_nxt.0,
        tcb.view().snd_una.0,
    ))
}

struct World {
    rig: Rig,
    content: Vec<u8>,
    /// Sequence number of the first byte of data to each client.
    starts: [Option<u32>; 4],
    /// For each client, the highest right window edge that it has advertised.
    edges: [u32; 4],
    /// Our initial sequence number in the last SYN-ACK to each client, which may be a cookie.
    cookies: [u32; 4],
}

impl World {
    fn select(&mut self, client: u8) -> u16 {
        let port = 1000 + u16::from(client);
        self.rig.route.src.port = port;
        self.rig.set_v6(!client.is_multiple_of(2));
        port
    }

    fn note_start(&mut self, client: u8) {
        if let Some(tcb) = tcb_of(&self.rig, self.rig.route.src.port)
            && tcb.state == State::SynReceived
        {
            let start = tcb.view().snd_nxt.0;
            self.starts[usize::from(client)] = Some(start);
            self.edges[usize::from(client)] = start;
        }
    }

    /// Updates `edges` from the send windows of all connections.
    fn note_edges(&mut self) {
        for record in &self.rig.stack.table.records {
            let tcb = &record.tcb;
            if tcb.state != State::Closed {
                let send_edge = (tcb.view().snd_una + tcb.view().snd_wnd).0;
                let edge = &mut self.edges[usize::from(tcb.view().peer_port - 1000)];
                if send_edge.wrapping_sub(*edge).cast_signed() > 0 {
                    *edge = send_edge;
                }
            }
        }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Segment {
                client,
                control,
                seq,
                is_from_una,
                ack,
                len,
                window,
            } => {
                let port = self.select(client);
                let (nxt, max, una) = expected(&self.rig, port).unwrap_or((9, 9, 9));
                self.rig.window = window;
                let seq = nxt.wrapping_add_signed(seq);
                let ack = if is_from_una { una } else { max }.wrapping_add_signed(ack);
                let mss = [Some(1472), Some(100), Some(1000), None][usize::from(client)];
                let mss = mss.filter(|_| control == "S");
                self.rig.send_raw(seq, ack, control, &vec![b'g'; len], mss);
                self.note_start(client);
            }
            Step::Open(client) => {
                let port = self.select(client);
                self.rig.window = 65_535;
                if tcb_of(&self.rig, port).is_none() {
                    self.rig.send_raw(9, 9, "S", b"", Some(1472));
                    self.note_start(client);
                    self.check_sent();
                    self.select(client);
                }
                let start = self.cookies[usize::from(client)].wrapping_add(1);
                let known = expected(&self.rig, port);
                let (nxt, max, _) = known.unwrap_or((10, start, start));
                self.rig.send_raw(nxt, max, "A", b"g", None);
                if known.is_none() && tcb_of(&self.rig, port).is_some() {
                    self.starts[usize::from(client)] = Some(start);
                    self.edges[usize::from(client)] = start;
                }
            }
            Step::Duplicates(client, n) => {
                let port = self.select(client);
                let (nxt, _, una) = expected(&self.rig, port).unwrap_or((9, 9, 9));
                for _ in 0..n {
                    self.rig.send_raw(nxt, una, "A", b"", None);
                }
            }
            Step::Pass(millis) => self.rig.pass_ms(millis),
            Step::Room(room) => {
                self.rig.port.room = room;
                self.rig.timers();
            }
            Step::Habit(habit) => self.rig.app().habit = habit,
            Step::TooBig { client, mtu, at } => {
                let port = self.select(client);
                let (_, _, una) = expected(&self.rig, port).unwrap_or((9, 9, 9));
                let error = IcmpError {
                    kind: ErrorKind::TooBig { mtu },
                    addresses: self.rig.addresses().reversed(),
                    protocol: PROTOCOL_TCP,
                    src_port: self.rig.route.dst.port,
                    dst_port: port,
                    sequence: una.wrapping_add(at),
                };
                self.rig.icmp(&error);
            }
            Step::Reload => {
                // Load the same bytes as a new content item, so that a stream may refer to the old
                // and the new item.
                let old = self.rig.app().content.unwrap();
                let habit = self.rig.app().habit;
                let content = self.content.clone();
                self.rig.load(&content, None);
                self.rig.app().habit = habit;
                self.rig.stack.contents_mut().remove(old);
            }
            Step::Reach(act) => self.reach(act),
        }
        self.check_sent();
    }

    fn reach(&mut self, act: Act) {
        let Some((id, _)) = self.rig.app().accepted else {
            return;
        };
        self.rig.reach(id, |app, conn| match act {
            // The write fails if the stream is full or our side is closed. Random steps may cause
            // both, so the result is ignored.
            Act::Write => drop(conn.write(app.content.unwrap(), 0)),
            Act::OfferAgain => conn.offer_again(),
            Act::Park => conn.park(),
            Act::Resume => conn.resume(),
            Act::Close => conn.close(),
            Act::Abort => conn.abort(),
        });
    }

    /// Checks that all data sent matches the content, and that only window probes exceed the peer's
    /// window.
    fn check_sent(&mut self) {
        self.note_edges();
        while let Some(packet) = self.rig.port.sent.front() {
            let v6 = packet[12] == 0x86;
            let at = if v6 { 54 + 2 } else { 34 + 2 };
            let port = u16::from_be_bytes([packet[at], packet[at + 1]]);
            let client = (port - 1000) as u8;
            self.select(client);
            self.rig.iss = 0;
            self.rig.irs = 0;
            let out = self.rig.sent_one();
            if out.control.contains('S') {
                self.cookies[usize::from(client)] = self.rig.iss;
            }
            if !out.data.is_empty() {
                let start = self.starts[usize::from(client)];
                let start = start.expect("data comes after a SYN");
                let offset = out.seq.wrapping_sub(start) as usize % CONTENT_LEN;
                let len = out.data.len() as u32;
                let edge = self.edges[usize::from(client)];
                let beyond = out.seq.wrapping_add(len).wrapping_sub(edge).cast_signed();
                assert!(beyond <= 0 || len == 1, "{beyond} bytes beyond the window");
                let cycle = self.content.iter().cycle().skip(offset);
                assert!(out.data.iter().eq(cycle.take(out.data.len())));
            }
        }
    }
}

fn run(mode: SendMode, steps: Vec<Step>) {
    let content = noise(CONTENT_LEN);
    let mut rig = Rig::new(&config(mode));
    rig.load(&content, None);
    let mut world = World {
        rig,
        content,
        starts: [None; 4],
        edges: [0; 4],
        cookies: [0; 4],
    };
    for step in steps {
        world.apply(step);
    }
    // Now all clients are silent, so every connection must close.
    world.apply(Step::Room(1 << 20));
    world.apply(Step::Pass(400_000));
    assert_eq!(world.rig.stack.connections(), 0, "every connection ends");
    assert_eq!(world.rig.stack.poll_timeout(), None);
    let content = world.rig.app().content.unwrap();
    assert!(world.rig.stack.contents_mut().remove(content));
    let totals = world.rig.stack.contents().totals();
    assert_eq!(
        (totals.contents, totals.memory),
        (0, 0),
        "no stream refers to the content"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_sequence_of_events_is_handled_with_copied_segments(
        steps in prop::collection::vec(step(), 1..150),
    ) {
        run(SendMode::MemCopy, steps);
    }

    #[test]
    fn any_sequence_of_events_is_handled_with_resident_packets(
        steps in prop::collection::vec(step(), 1..150),
    ) {
        run(SendMode::PreCopy, steps);
    }

    #[test]
    fn any_bytes_after_an_ip_header_are_handled(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        valid: bool,
        offset in 5u8..16,
    ) {
        let mut rig = Rig::established(&Config::default());
        if bytes.len() >= 20 && valid {
            // Use valid ports and sequence numbers, and a header length of at least 20 bytes, so
            // that the segment reaches the stack's later checks.
            bytes[..2].copy_from_slice(&rig.route.src.port.to_be_bytes());
            bytes[2..4].copy_from_slice(&rig.route.dst.port.to_be_bytes());
            bytes[4..8].copy_from_slice(&rig.irs.wrapping_add(1).to_be_bytes());
            bytes[8..12].copy_from_slice(&rig.iss.wrapping_add(1).to_be_bytes());
            bytes[12] = offset << 4;
        }
        // `Route::packet` fills in a valid checksum.
        rig.input(&rig.route.packet(PROTOCOL_TCP, &bytes));
    }
}
