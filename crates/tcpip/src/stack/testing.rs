//! Test rig: a stack, a simulated port, and a peer. The test sends the peer's segments one by one.
//!
//! Sequence numbers are relative, as in packet analysers: each side's SYN has number 0, and its
//! first byte of data has number 1. Control bits are written as the letters S, F, R, P, E, W and A.
//! `testkit` builds and parses all segments.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use eth::{Mac, Station};
use ip::{Addresses, Host, IcmpError, Input};
use nmio::{Instant, Port};
use testkit::{
    ACK, LETTERS, Layout, Opt, Outbox, Received, Route, SERVER, SERVER_MAC, SYN, Segment,
    read_segment,
};

use crate::{
    Application, CloseReason, Config, CongestionControl, Connection, ConnectionId, Connections,
    ContentId, Deadline, Info, NewReno, Slot, Stack, Timer, WriteError,
};

pub(crate) const OWN_PORT: u16 = 80;
const PEER_PORT: u16 = 40_000;
/// The peer's initial sequence number. It is so large that the peer's sequence numbers wrap at the
/// start of most tests.
const PEER_ISN: u32 = u32::MAX - 2;
/// MTU of a link on which an IPv4 segment carries up to 1,460 bytes of data in addition to
/// timestamps.
pub(crate) const MTU: usize = 1512;
/// IPv4 MSS for [`MTU`], including 12 bytes for timestamps.
pub(crate) const MSS: u16 = 1472;
const SECRET: [u64; 4] = [1, 2, 3, 4];

/// What a test's application does with received data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Consumes everything and sends no data.
    Silent,
    /// Consumes nothing.
    Lazy,
    /// Writes back the data it receives.
    Echo,
    /// Answers each received byte with the content item [`App::content`].
    Serve,
    /// Answers the first received byte with the content item, and closes our side.
    ServeOnce,
    /// Aborts the connection.
    Abort,
    /// Claims to consume more bytes than it was offered.
    Boast,
    /// Consumes two bytes at a time.
    Sip,
    /// Consumes two bytes at a time, and asks to be offered the remaining bytes immediately.
    SipOn,
    /// Consumes nothing, and asks to be offered the data again immediately.
    LazyOn,
    /// Consumes two bytes, and parks the connection.
    Park,
    /// Adds the data it receives as a content item, writes that item and removes it.
    Store,
    /// Writes back the data it receives, and closes our side even if the write fails.
    EchoAndClose,
    /// Writes [`App::parts`], and consumes everything when all parts are written.
    Parts,
}

/// A part of a response: plain bytes, or a slice of a content item with its parameters.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Slice(ContentId, Range<u32>, u64),
    Bytes(Vec<u8>),
}

/// An application that logs its callbacks.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) habit: Habit,
    pub(crate) refuse: bool,
    pub(crate) greeting: bool,
    /// Whether the application closes our side when the peer's FIN arrives.
    pub(crate) close_back: bool,
    pub(crate) content: Option<ContentId>,
    /// Data to write at the next deadline or call of `on_sent`, whichever comes first.
    pub(crate) later: Option<&'static [u8]>,
    /// Whether to resume the connection when the peer has acknowledged all data.
    pub(crate) resumes: bool,
    /// Last data to write on a connection when the drain begins.
    pub(crate) farewell: Option<&'static [u8]>,
    pub(crate) log: String,
    pub(crate) accepted: Option<(ConnectionId, Instant)>,
    pub(crate) params: u64,
    /// Parts of the response that are still to be written.
    pub(crate) parts: VecDeque<Part>,
    /// Number of parts that the application writes together, after it has checked that there is
    /// room for all of them.
    pub(crate) at_once: usize,
    /// Deadline that the application sets when data arrives, if this value has changed since data
    /// last arrived. `None` clears the deadline.
    pub(crate) deadline: Option<Duration>,
    deadline_before: Option<Duration>,
    /// If set, the application restarts each expired timer to expire after this time.
    pub(crate) timer_again: Option<Duration>,
}

impl App {
    fn note(&mut self, event: std::fmt::Arguments<'_>) {
        if !self.log.is_empty() {
            self.log.push(' ');
        }
        self.log.write_fmt(event).unwrap();
    }

    fn write_later(&mut self, conn: &mut Connection<'_, u32>) {
        self.later = self.later.filter(|bytes| conn.write_bytes(bytes).is_err());
    }

    fn write_parts(&mut self, conn: &mut Connection<'_, u32>) -> Result<(), WriteError> {
        while !self.parts.is_empty() {
            let at_once = self.at_once.min(self.parts.len());
            conn.ensure_room(at_once)?;
            for _ in 0..at_once {
                match &self.parts[0] {
                    Part::Slice(content, range, params) => {
                        conn.write_slice(*content, range.clone(), *params)?;
                    }
                    Part::Bytes(bytes) => conn.write_bytes(bytes)?,
                }
                self.parts.pop_front();
            }
        }
        Ok(())
    }

    fn answer(
        &mut self,
        conn: &mut Connection<'_, u32>,
        data: &[u8],
    ) -> Result<usize, (usize, WriteError)> {
        let mut done = 0;
        for _ in data {
            let content = self.content.expect("a content to serve");
            conn.write(content, self.params).map_err(|e| (done, e))?;
            self.params += 1;
            done += 1;
            if self.habit == Habit::ServeOnce {
                conn.close();
                break;
            }
        }
        Ok(done)
    }
}

impl Application for App {
    /// Number of bytes consumed so far on the connection.
    type State = u32;
    /// Bytes to write to the connection with this id.
    type Message = (ConnectionId, &'static [u8]);

    fn on_accept(&mut self, conn: &mut Connection<'_, u32>) -> bool {
        assert_eq!(*conn.state(), 0, "a new connection has a new state");
        if self.greeting {
            conn.write_bytes(b"hello").unwrap();
        }
        self.note(format_args!("accept"));
        self.accepted = Some((conn.id(), conn.now()));
        !self.refuse
    }

    fn on_receive(&mut self, conn: &mut Connection<'_, u32>, data: &[u8]) -> usize {
        self.note(format_args!("receive({})", data.len()));
        let consumed = match self.habit {
            Habit::Silent => data.len(),
            Habit::Lazy => 0,
            Habit::Boast => usize::MAX,
            Habit::Echo => match conn.write_bytes(data) {
                Ok(()) => data.len(),
                Err(_) => 0,
            },
            Habit::Serve | Habit::ServeOnce => {
                self.answer(conn, data).unwrap_or_else(|(done, _)| done)
            }
            Habit::Abort => {
                conn.abort();
                data.len()
            }
            Habit::Parts => {
                let written = self.write_parts(conn);
                written.map_or(0, |()| data.len())
            }
            Habit::Sip => 2.min(data.len()),
            Habit::SipOn => {
                conn.offer_again();
                2.min(data.len())
            }
            Habit::Park => {
                conn.park();
                2.min(data.len())
            }
            Habit::LazyOn => {
                conn.offer_again();
                0
            }
            Habit::Store => {
                let content = conn.contents_mut().add(Arc::from(data), None).unwrap();
                conn.write(content, 0).unwrap();
                assert!(conn.contents_mut().remove(content));
                data.len()
            }
            Habit::EchoAndClose => {
                let _ = conn.write_bytes(data);
                conn.close();
                data.len()
            }
        };
        *conn.state() += consumed.min(data.len()) as u32;
        if self.deadline != self.deadline_before {
            self.deadline_before = self.deadline;
            match self.deadline {
                Some(after) => conn.set_deadline(Deadline::Request, after),
                None => conn.clear_deadline(),
            }
        }
        consumed
    }

    fn on_sent(&mut self, conn: &mut Connection<'_, u32>) {
        self.note(format_args!("sent"));
        if self.resumes {
            conn.resume();
        }
        self.write_later(conn);
        let _ = self.write_parts(conn);
    }

    fn on_half_close(&mut self, conn: &mut Connection<'_, u32>) {
        self.note(format_args!("half-close"));
        if self.close_back {
            conn.close();
        }
    }

    fn on_deadline(&mut self, conn: &mut Connection<'_, u32>, deadline: Deadline) {
        self.note(format_args!("deadline({deadline:?})"));
        if self.later.is_some() {
            self.write_later(conn);
        } else {
            conn.close();
        }
    }

    fn on_message<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, u32, C>,
        (id, bytes): Self::Message,
    ) {
        self.note(format_args!("message"));
        if let Some(mut conn) = connections.get(id) {
            conn.write_bytes(bytes).unwrap();
        }
    }

    fn on_timer<C: CongestionControl>(
        &mut self,
        connections: &mut Connections<'_, u32, C>,
        timer: Timer,
    ) {
        self.note(format_args!("timer({})", timer.number()));
        if let Some(again) = self.timer_again {
            connections.set_timer(timer, again);
        }
    }

    fn on_drain(&mut self, conn: &mut Connection<'_, u32>) {
        if let Some(bytes) = self.farewell.take() {
            conn.write_bytes(bytes).unwrap();
            conn.close();
        } else if conn.is_idle() {
            conn.close();
        }
    }

    fn on_close(&mut self, _: ConnectionId, _state: &mut u32, reason: CloseReason) {
        self.note(format_args!("close({reason:?})"));
    }

    fn render(&mut self, params: u64, slot: &mut [u8]) {
        let text = format!("{params:0width$}", width = slot.len());
        slot.copy_from_slice(text.as_bytes());
    }
}

/// A segment that the stack sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Out {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) control: String,
    pub(crate) data: Vec<u8>,
    pub(crate) window: u16,
    pub(crate) mss: Option<u16>,
}

/// A stack with its simulated port and peer.
pub(crate) struct Rig {
    pub(crate) port: Outbox,
    pub(crate) host: Host,
    pub(crate) stack: Stack<App, NewReno>,
    pub(crate) now: Instant,
    /// Addresses and ports of packets from the peer to us.
    pub(crate) route: Route,
    /// The window field of the peer's segments.
    pub(crate) window: u16,
    /// The window scale option of the peer's SYN. A SYN without an MSS option has no scale either.
    pub(crate) window_scale: Option<u8>,
    /// Our initial sequence number, from the last SYN-ACK that the test has read.
    pub(crate) iss: u32,
    /// The peer's initial sequence number.
    pub(crate) irs: u32,
    frames: u32,
}

/// Returns test data whose pattern differs from segment to segment, so that misplaced segments are
/// detected.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i * 7 + i / 251 + i / 65_521) as u8)
        .collect()
}

impl Rig {
    /// Makes a rig whose full segments carry 1,460 bytes of data: [`MSS`] minus the 12 bytes for
    /// timestamps.
    pub(crate) fn new(config: &Config) -> Self {
        Self::with_mtu(config, MTU)
    }

    fn with_mtu(config: &Config, mtu: usize) -> Self {
        Self::with_secret(config, mtu, SECRET)
    }

    pub(crate) fn with_secret(config: &Config, mtu: usize, secret: [u64; 4]) -> Self {
        let port = Outbox::new(mtu, 64, ip::write_segment);
        let app = App {
            habit: Habit::Silent,
            refuse: false,
            greeting: false,
            close_back: true,
            content: None,
            later: None,
            resumes: false,
            farewell: None,
            log: String::new(),
            accepted: None,
            params: 0,
            parts: VecDeque::new(),
            at_once: 1,
            deadline: None,
            deadline_before: None,
            timer_again: None,
        };
        let now = Instant::from_millis(1_000_000);
        let mut config = config.clone();
        config.ports.push(OWN_PORT);
        let capabilities = port.capabilities();
        let stack = Stack::with_congestion_control(&config, app, &capabilities, secret, now);
        let frames = port.pool().available();
        Self {
            port,
            host: Host::own(
                Station::new(Mac(SERVER_MAC), &SERVER).with_vlans(&[5, 7]),
                [0; 4],
            ),
            stack,
            now,
            route: Route::to_server(false, PEER_PORT, OWN_PORT),
            window: 65_535,
            window_scale: None,
            iss: 0,
            irs: PEER_ISN,
            frames,
        }
    }

    /// Makes a rig with an established connection and an empty log.
    pub(crate) fn established(config: &Config) -> Self {
        let mut rig = Self::new(config);
        rig.open(Some(MSS));
        rig
    }

    pub(crate) fn with_habit(habit: Habit) -> Self {
        let mut rig = Self::established(&Config::default());
        rig.app().habit = habit;
        rig
    }

    /// Makes a rig with an established connection, and an application that serves `content`.
    pub(crate) fn serving(config: &Config, content: &[u8], slot: Option<Slot>) -> Self {
        let mut rig = Self::established(config);
        rig.load(content, slot);
        rig
    }

    pub(crate) fn load(&mut self, content: &[u8], slot: Option<Slot>) {
        let id = self.add(content, slot);
        self.app().content = Some(id);
        self.app().habit = Habit::Serve;
    }

    pub(crate) fn add(&mut self, content: &[u8], slot: Option<Slot>) -> ContentId {
        let contents = self.stack.contents_mut();
        contents.add(Arc::from(content), slot).unwrap()
    }

    /// Runs the three-way handshake.
    pub(crate) fn open(&mut self, mss: Option<u16>) {
        self.syn(mss);
        let syn_ack = self.sent_one();
        assert_eq!(syn_ack.control, "SA");
        self.recv(1, 1, "A", b"");
        self.app().log.clear();
    }

    pub(crate) fn app(&mut self) -> &mut App {
        self.stack.app_mut()
    }

    /// Returns the id of the connection accepted last.
    pub(crate) fn id(&self) -> ConnectionId {
        self.stack.app().accepted.unwrap().0
    }

    /// Calls `act` with a connection while none of its callbacks runs. Returns true if the
    /// connection exists.
    pub(crate) fn reach(
        &mut self,
        id: ConnectionId,
        act: impl FnOnce(&mut App, &mut Connection<'_, u32>),
    ) -> bool {
        let Self {
            stack, port, now, ..
        } = self;
        let is_there = stack.reach(port, *now, |app, connections| {
            let conn = connections.get(id);
            conn.map(|mut conn| act(app, &mut conn)).is_some()
        });
        self.check();
        is_there
    }

    /// Returns the statistics of the connection in the first TCB.
    pub(crate) fn info(&mut self) -> Info {
        self.stack.connection(0).1.info()
    }

    pub(crate) fn take_log(&mut self) -> String {
        std::mem::take(&mut self.app().log)
    }

    /// Passes the peer's SYN to the stack.
    pub(crate) fn syn(&mut self, mss: Option<u16>) {
        self.send_raw(self.irs, 0, "S", b"", mss);
    }

    /// Passes a segment of the peer to the stack. Sequence numbers are relative.
    pub(crate) fn recv(&mut self, seq: u32, ack: u32, control: &str, data: &[u8]) {
        let seq = self.irs.wrapping_add(seq);
        let ack = self.iss.wrapping_add(ack);
        self.send_raw(seq, ack, control, data, None);
    }

    /// Passes a segment of the peer to the stack. Sequence numbers are absolute.
    pub(crate) fn send_raw(
        &mut self,
        seq: u32,
        ack: u32,
        control: &str,
        data: &[u8],
        mss: Option<u16>,
    ) {
        let packet = self.packet(seq, ack, control, data, mss);
        self.input(&packet);
    }

    /// Passes a segment of the peer with the given options to the stack. Sequence numbers are
    /// absolute.
    pub(crate) fn raw(&mut self, seq: u32, ack: u32, bits: u16, options: &[Opt], data: &[u8]) {
        let segment = Segment {
            bits,
            seq,
            ack,
            window: self.window,
            options: options.to_vec(),
            data: data.to_vec(),
            ..Segment::default()
        };
        let packet = self.route.segment(&segment, Layout::Usual);
        self.input(&packet);
    }

    /// Builds a complete frame from the peer.
    pub(crate) fn packet(
        &self,
        seq: u32,
        ack: u32,
        control: &str,
        data: &[u8],
        mss: Option<u16>,
    ) -> Vec<u8> {
        let mss = mss.map(Opt::Mss);
        let scale = self.window_scale.filter(|_| mss.is_some());
        let segment = Segment {
            bits: bits(control),
            seq,
            ack,
            window: self.window,
            options: mss.into_iter().chain(scale.map(Opt::Scale)).collect(),
            data: data.to_vec(),
            ..Segment::default()
        };
        self.route.segment(&segment, Layout::Usual)
    }

    /// Switches the peer to IPv6 or IPv4.
    pub(crate) fn set_v6(&mut self, v6: bool) {
        let (src, dst) = (self.route.src.port, self.route.dst.port);
        self.route = Route::to_server(v6, src, dst);
    }

    /// Returns the addresses of packets from the peer to us.
    pub(crate) fn addresses(&self) -> Addresses {
        match (self.route.src.ip, self.route.dst.ip) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Addresses::V4 { src, dst },
            (IpAddr::V6(src), IpAddr::V6(dst)) => Addresses::V6 { src, dst },
            _ => unreachable!("a route has one family"),
        }
    }

    /// Passes a frame from the peer through the host to the stack. The frame must hold a segment.
    pub(crate) fn input(&mut self, packet: &[u8]) {
        let frame = self.port.frame_from(packet);
        match self.host.receive(frame, self.now) {
            Input::Tcp(packet) => {
                self.stack.handle_segment(&mut self.port, packet, self.now);
            }
            other => panic!("not passed on to TCP: {other:?}"),
        }
        self.check();
    }

    pub(crate) fn icmp(&mut self, error: &IcmpError) {
        self.stack.handle_icmp_error(error, self.now);
        self.timers();
    }

    /// Lets time pass. Like an event loop, calls `handle_timers` by each time that `poll_timeout`
    /// returns.
    pub(crate) fn pass_ms(&mut self, millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        while let Some(due) = self.stack.poll_timeout().filter(|due| *due <= end) {
            self.now = due.max(self.now + Duration::from_micros(100));
            self.timers();
        }
        self.now = end;
        self.timers();
    }

    pub(crate) fn timers(&mut self) {
        self.stack.handle_timers(&mut self.port, self.now);
        self.check();
    }

    /// Checks the stack's invariants, and that no frame has leaked.
    pub(crate) fn check(&mut self) {
        self.stack.check_invariants();
        assert_eq!(
            self.port.pool().available(),
            self.frames,
            "a frame has leaked"
        );
    }

    /// Takes the next segment that the stack sent.
    pub(crate) fn sent_one(&mut self) -> Out {
        let segment = self.reply();
        if segment.has(SYN) {
            self.iss = segment.seq;
        }
        let base = if segment.has(ACK) { self.irs } else { 0 };
        Out {
            seq: segment.seq.wrapping_sub(self.iss),
            ack: segment.ack.wrapping_sub(base),
            control: letters(segment.bits),
            window: segment.window,
            mss: segment.mss(),
            data: segment.data,
        }
    }

    /// Takes the next segment that the stack sent, and checks its fields and data.
    #[track_caller]
    pub(crate) fn sent(&mut self, seq: u32, ack: u32, control: &str, data: &[u8]) -> Out {
        let out = self.sent_one();
        assert_eq!(
            (out.seq, out.ack, out.control.as_str(), out.data.len()),
            (seq, ack, control, data.len()),
            "sequence number, acknowledgement, control bits, bytes of data"
        );
        assert!(out.data == data, "other data of the same length");
        out
    }

    #[track_caller]
    pub(crate) fn sent_nothing(&self) {
        assert!(
            self.port.sent.is_empty(),
            "{} segments",
            self.port.sent.len()
        );
    }

    /// Takes all segments that the stack sent, in order.
    pub(crate) fn sent_all(&mut self) -> Vec<Out> {
        std::iter::from_fn(|| (!self.port.sent.is_empty()).then(|| self.sent_one())).collect()
    }

    /// Takes the next segment that the stack sent, and returns it with absolute sequence numbers.
    pub(crate) fn reply(&mut self) -> Segment {
        let packet = self.port.sent.pop_front().expect("a segment was sent");
        let Received { route, segment, .. } = read_segment(&packet).expect("a valid segment");
        assert_eq!(route, self.route.back(), "to the peer");
        segment
    }
}

/// Converts letters to control bits.
fn bits(letters: &str) -> u16 {
    letters.chars().fold(0, |bits, letter| {
        let letter = if letter == 'A' { '.' } else { letter };
        let known = LETTERS.iter().find(|(name, _)| *name == letter);
        bits | known.expect("a letter of a control bit").1
    })
}

/// Converts control bits to letters.
fn letters(bits: u16) -> String {
    let set = LETTERS.iter().filter(|(_, bit)| bits & bit != 0);
    let letters: String = set.map(|(letter, _)| *letter).collect();
    letters.replace('.', "A")
}
