//! A test bench for one connection, without a port or an application. The bench does what the stack
//! does between the calls to a [`Conn`].
//!
//! As in packet analysers, sequence numbers are relative: a side's SYN is 0, and its first byte of
//! data is 1. A sent segment is shown as `"1:1001 A retransmitted"`: sequence numbers, control
//! bits, and the purpose, unless the segment is new data. The letters are S, F, R, P, A, E (ECE)
//! and W (CWR).

use std::ops::Range;
use std::time::Duration;

use ip::Ecn;
use nmio::Instant;

use super::{Conn, Context, DeadlineKind, Flags, NONE, Plan, SegmentKind};
use super::{Record, Tcb};
use crate::clock::Moment;
use crate::config::Config;
use crate::congestion::{CongestionControl, NewReno};
use crate::connection::Opening;
use crate::counters::Counters;
use crate::negotiated::Negotiated;
use crate::outcome::{ControlSegment, Expiry};
use crate::outcome::{Route, Verdict};
use crate::pools::Owner;
use crate::stream::{Slice, Source};
use crate::wire::{Block, Control, HEADER_LEN, Header, Segment, Seq, Timestamps, Written};

/// Our initial sequence number, chosen so that the numbers wrap around within the third segment of
/// 1,000 bytes.
const ISS: Seq = Seq(u32::MAX - 2_500);
/// The peer's initial sequence number, chosen so that the numbers wrap around after two bytes of
/// data.
const IRS: Seq = Seq(u32::MAX - 2);
/// Default round-trip time of the handshake, in milliseconds.
pub(super) const RTT_MS: u64 = 100;
/// Time at which a connection opens, in milliseconds.
const START_MS: u64 = 1_000_000;
/// Number of free slots in the TX ring when [`Bench::send`] or [`Bench::plans`] is called.
const ROOM: usize = 64;
const PORTS: (u16, u16) = (80, 40_000);
const NOBODY: Owner = Owner {
    id: NONE,
    peer: NONE,
};
/// Letters of the control bits, in the order in which they appear in a shown segment.
const LETTERS: [(char, Control); 7] = [
    ('S', Control::SYN),
    ('F', Control::FIN),
    ('R', Control::RST),
    ('P', Control::PSH),
    ('A', Control::ACK),
    ('E', Control::ECE),
    ('W', Control::CWR),
];

/// Parameters of a connection under test.
pub(super) struct Offer {
    pub(super) config: Config,
    pub(super) negotiated: Negotiated,
    pub(super) mss: u16,
    /// The window that the peer advertises, in bytes.
    pub(super) window: u16,
}

impl Default for Offer {
    /// Segments of 1,000 bytes, SACK as the only option, and the default configuration.
    fn default() -> Self {
        Self {
            config: Config::default(),
            negotiated: Negotiated::new(true, false, None, false),
            mss: 1_000,
            window: 65_535,
        }
    }
}

impl Offer {
    /// Parameters without any TCP options.
    pub(super) fn plain() -> Self {
        Self {
            negotiated: Negotiated::default(),
            ..Self::default()
        }
    }

    /// Parameters with timestamps as the only option.
    pub(super) fn stamped() -> Self {
        Self {
            negotiated: Negotiated::new(false, true, None, false),
            ..Self::default()
        }
    }

    /// Parameters with SACK and ECN.
    pub(super) fn marked() -> Self {
        Self {
            negotiated: Negotiated::new(true, false, None, true),
            ..Self::default()
        }
    }

    /// Returns a connection in SYN-RECEIVED whose SYN-ACK was sent.
    pub(super) fn half_open(self) -> Bench {
        Bench::half_open(self)
    }

    /// Returns an established connection whose handshake took a round trip of [`RTT_MS`].
    pub(super) fn open(self) -> Bench {
        let mut bench = self.half_open();
        bench.establish(RTT_MS);
        bench
    }
}

/// A connection under test, with everything that a [`Conn`] borrows.
pub(super) struct Bench {
    record: Record<NewReno>,
    cx: Context<NewReno>,
    /// Window field of the peer's next segments.
    pub(super) window: u16,
    /// Timestamps of the peer's next segments.
    pub(super) stamps: Option<Timestamps>,
    /// Maximum size in bytes of a super-segment that the port accepts, or 0 if the port accepts
    /// none.
    pub(super) segmentation: usize,
    /// Whether the application leaves arriving data unread.
    pub(super) leaves_unread: bool,
    now: Instant,
}

impl Bench {
    fn half_open(offer: Offer) -> Self {
        let config = Config {
            max_connections: 1,
            ..offer.config
        };
        let stamps = offer.negotiated.timestamps();
        let mut bench = Self {
            record: Record::default(),
            cx: Context::new(&config, 1_500),
            window: offer.window,
            stamps: stamps.then(Timestamps::default),
            segmentation: 0,
            leaves_unread: false,
            now: Instant::from_millis(START_MS),
        };
        let now = bench.moment();
        let syn = bench.segment(0, 0, "S", 0);
        let opening = Opening {
            negotiated: offer.negotiated,
            mss: offer.mss,
            iss: ISS,
            ts_offset: 0,
        };
        let mut tcb = Tcb::half_open(syn, Tcb::default().path, opening, now);
        tcb.class = 0;
        bench.conn().open(tcb, now);
        bench.send_syn_ack();
        bench
    }

    fn send_syn_ack(&mut self) -> String {
        let now = self.moment();
        let mut conn = self.conn();
        let (header, _) = conn.control_segment(ControlSegment::SynAck, now);
        conn.has_sent_control(ControlSegment::SynAck, &header);
        shown(&header, 1)
    }

    /// Completes the handshake after a round trip of `rtt_ms` milliseconds.
    pub(super) fn establish(&mut self, rtt_ms: u64) {
        self.pass_ms(rtt_ms);
        let verdict = self.recv(1, 1, "A", 0);
        assert!(matches!(verdict, Verdict::Establish), "{verdict:?}");
    }

    /// Returns the connection under test.
    pub(super) fn conn(&mut self) -> Conn<'_, NewReno> {
        Conn::new(&mut self.record, &mut self.cx)
    }

    pub(super) fn tcb(&self) -> &Tcb {
        &self.record.tcb
    }

    pub(super) fn tcb_mut(&mut self) -> &mut Tcb {
        &mut self.record.tcb
    }

    /// Returns the congestion window that applies outside recovery, in bytes.
    pub(super) fn cwnd(&self) -> u32 {
        self.record.congestion.window()
    }

    pub(super) fn ssthresh(&self) -> u32 {
        self.record.congestion.ssthresh()
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.cx.counters
    }

    pub(super) fn moment(&self) -> Moment {
        Moment::from(self.now)
    }

    pub(super) fn pass_ms(&mut self, millis: u64) {
        self.now = self.now + Duration::from_millis(millis);
    }

    /// Returns the time since the connection was opened, in milliseconds.
    pub(super) fn elapsed_ms(&self) -> u64 {
        self.now.as_micros() / 1_000 - START_MS
    }

    /// Returns the kind of the deadline, and the time until it expires, in milliseconds.
    pub(super) fn deadline(&self) -> (DeadlineKind, u32) {
        let left = self.tcb().deadline.wrapping_sub(self.moment().millis);
        (self.tcb().deadline_kind, left)
    }

    /// The application writes a whole content item of `len` bytes.
    pub(super) fn write(&mut self, len: u32) {
        self.write_slice(0..len, len);
    }

    /// The application writes the slice `range` of a content item of `len` bytes.
    pub(super) fn write_slice(&mut self, range: Range<u32>, len: u32) {
        let source = Source::content(0, range.end < len);
        let bytes = range.end - range.start;
        self.push(Slice {
            source,
            from: range.start,
            len: bytes,
            params: [0; 2],
        });
    }

    /// The application writes `len` bytes that belong to no content item.
    pub(super) fn write_bytes(&mut self, len: u32) {
        self.push(Slice {
            source: Source::write_buffer(0),
            from: 0,
            len,
            params: [0; 2],
        });
    }

    fn push(&mut self, slice: Slice) {
        let stream = &mut self.record.tcb.stream;
        let pushed = stream.push(slice, &mut self.cx.lists, NOBODY, &mut self.cx.peers);
        pushed.expect("the stream has room");
    }

    /// The application closes its side.
    pub(super) fn close(&mut self) {
        self.record.tcb.flags |= Flags::CLOSE;
    }

    /// Returns a segment from the peer with `len` bytes of data. `seq` and `ack` are relative
    /// sequence numbers, and `control` holds the letters of the control bits.
    pub(super) fn segment(&self, seq: u32, ack: u32, control: &str, len: u16) -> Segment {
        let bits = control.chars().map(|letter| {
            let known = LETTERS.iter().find(|(known, _)| *known == letter);
            known.expect("a letter stands for a control bit").1
        });
        Segment {
            src_port: PORTS.1,
            dst_port: PORTS.0,
            seq: IRS + seq,
            ack: ISS + ack,
            control: bits.fold(Control(0), |all, bit| all | bit),
            window: self.window,
            data_at: HEADER_LEN as u16,
            len,
            timestamps: self.stamps,
        }
    }

    /// Checks a segment without processing it, and returns the verdict. The segment must not be
    /// trimmed.
    pub(super) fn check(&mut self, seq: u32, ack: u32, control: &str, len: u16) -> Verdict {
        let segment = self.segment(seq, ack, control, len);
        let now = self.moment();
        let mut trimmed = segment;
        let verdict = self.conn().check(&mut trimmed, now);
        assert_eq!(trimmed, segment);
        verdict
    }

    /// Receives a segment from the peer.
    fn recv(&mut self, seq: u32, ack: u32, control: &str, len: u16) -> Verdict {
        self.take(self.segment(seq, ack, control, len), &[])
    }

    /// Receives an ACK for everything before `ack`.
    pub(super) fn ack(&mut self, ack: u32) {
        self.ack_and_sack(ack, &[]);
    }

    /// Receives an ACK with SACK blocks.
    pub(super) fn ack_and_sack(&mut self, ack: u32, sack: &[(u32, u32)]) {
        let block = |(start, end): &(u32, u32)| (ISS + *start, ISS + *end);
        let blocks: Vec<Block> = sack.iter().map(block).collect();
        let seq = self.tcb().rcv_nxt.since(IRS);
        let verdict = self.take(self.segment(seq, ack, "A", 0), &blocks);
        assert!(matches!(verdict, Verdict::Process), "{verdict:?}");
    }

    /// Receives an ACK with ECE.
    pub(super) fn ack_ece(&mut self, ack: u32) {
        let seq = self.tcb().rcv_nxt.since(IRS);
        self.recv(seq, ack, "AE", 0);
    }

    /// Receives `len` bytes in order.
    pub(super) fn data(&mut self, len: u16) {
        let tcb = self.tcb();
        let (seq, ack) = (tcb.rcv_nxt.since(IRS), tcb.snd_una.since(ISS));
        let verdict = self.recv(seq, ack, "PA", len);
        assert!(matches!(verdict, Verdict::Process), "{verdict:?}");
    }

    fn take(&mut self, mut segment: Segment, sack: &[Block]) -> Verdict {
        let now = self.moment();
        self.cx.dsack = None;
        let mut conn = self.conn();
        let verdict = if conn.expects(segment) {
            Verdict::Process
        } else {
            conn.check(&mut segment, now)
        };
        if let Verdict::Process | Verdict::Establish = verdict {
            self.process(segment, sack, now);
            self.conn().check_invariants();
        }
        verdict
    }

    /// Processes a segment that has passed the checks, as the stack does.
    fn process(&mut self, segment: Segment, sack: &[Block], now: Moment) {
        let marks = (None, || Ecn::NotEct);
        let acked = self.conn().on_segment(segment, sack, marks, now);
        self.settle();
        if acked > 0 {
            let una = self.tcb().snd_una;
            let Context { lists, peers, .. } = &mut self.cx;
            let stream = &mut self.record.tcb.stream;
            while stream.retire(una, lists, peers).is_some() {}
            if self.tcb().flags.intersects(Flags::CLOSE) {
                self.conn().on_fin_acked(now);
            }
        }
        if segment.len > 0 || segment.control.has(Control::FIN) {
            self.receive(segment, now);
        }
    }

    fn receive(&mut self, segment: Segment, now: Moment) {
        let data = vec![0; usize::from(segment.len)];
        let mut conn = self.conn();
        let is_fin_next = match conn.on_data(segment, now) {
            Route::Dropped => false,
            Route::Offered => {
                if self.leaves_unread {
                    let mut conn = self.conn();
                    assert!(conn.take_buffer(NOBODY) && conn.store_unconsumed(&data));
                }
                segment.control.has(Control::FIN)
            }
            Route::Buffered => {
                conn.take_buffer(NOBODY);
                let (has_more, is_fin_next) =
                    conn.store(&data, segment.seq, segment.control.has(Control::FIN));
                if has_more && !self.leaves_unread {
                    self.consume(usize::MAX);
                }
                is_fin_next
            }
        };
        if is_fin_next {
            self.conn().on_fin(now);
        }
    }

    /// The application consumes `len` bytes of unread data.
    pub(super) fn consume(&mut self, len: usize) {
        let mut conn = self.conn();
        if let Some((bytes, _)) = conn.lend_bytes() {
            conn.return_bytes(bytes, len);
        }
    }

    /// Releases memory that loss recovery no longer needs, and sets a new class if the segment size
    /// has changed.
    fn settle(&mut self) {
        if let Some(left) = self.conn().release_unused() {
            self.record.tcb.class = left + 1;
        }
    }

    /// Receives a router's report that the segment at `seq` exceeds `mtu`. Returns true if the
    /// report is accepted.
    pub(super) fn too_big(&mut self, mtu: u32, seq: u32) -> bool {
        let now = self.moment();
        let believed = self.conn().on_too_big(mtu, (ISS + seq).0, now);
        self.settle();
        believed
    }

    /// Sends all segments that may be sent now, and returns them as strings.
    pub(super) fn send(&mut self) -> Vec<String> {
        self.plans().iter().map(Plan::shown).collect()
    }

    /// Sends all segments that may be sent now, and returns their plans.
    pub(super) fn plans(&mut self) -> Vec<Plan> {
        let now = self.moment();
        let (mut room, segmentation) = (ROOM, self.segmentation);
        let mut conn = self.conn();
        let mut plans = Vec::new();
        while let Some(plan) = conn.next_lost(now) {
            conn.has_sent(&plan, now);
            plans.push(plan);
        }
        if !conn.has_new() {
            return plans;
        }
        if let Some(plan) = conn.next_mtu_probe(now) {
            conn.has_sent(&plan, now);
            plans.push(plan);
        }
        let mut burst = conn.begin_burst(segmentation, 0, now);
        while let Some(plan) = conn.next_segment(&mut burst, room, now) {
            conn.has_sent_segment(&mut burst, plan, now);
            plans.push(plan);
            room -= 1;
        }
        if conn.end_burst(&burst, false, now) {
            conn.cx.counters.sends_delayed += 1;
        }
        plans
    }

    /// Advances the time to the deadline, and processes it. Returns the segment that is then sent,
    /// or the name of the [`Expiry`].
    pub(super) fn fire(&mut self) -> String {
        self.now = self.moment().instant(self.tcb().deadline);
        let now = self.moment();
        let expiry = self.conn().on_deadline(now);
        self.settle();
        match expiry {
            Expiry::Send(plan) => {
                self.conn().has_sent(&plan, now);
                plan.shown()
            }
            Expiry::ProbeWindow(plan) => {
                self.conn().has_sent(&plan, now);
                self.conn().arm_window_probe(true, now);
                plan.shown()
            }
            Expiry::SynAck => self.send_syn_ack(),
            Expiry::KeepAlive => {
                let mut conn = self.conn();
                let (header, _) = conn.control_segment(ControlSegment::KeepAlive, now);
                conn.has_sent_control(ControlSegment::KeepAlive, &header);
                shown(&header, 0) + " keep-alive"
            }
            other => format!("{other:?}"),
        }
    }

    /// Returns SND.UNA as a relative sequence number.
    pub(super) fn una(&self) -> u32 {
        self.tcb().snd_una.since(ISS)
    }

    /// Sends an ACK, and returns its header and options.
    pub(super) fn acknowledge(&mut self) -> (Header, Written) {
        let now = self.moment();
        let mut conn = self.conn();
        let (header, options) = conn.control_segment(ControlSegment::Ack, now);
        conn.has_sent_control(ControlSegment::Ack, &header);
        (header, options)
    }
}

impl Plan {
    fn shown(&self) -> String {
        let (start, end) = self.range();
        let why = match self.kind {
            SegmentKind::New => "",
            SegmentKind::Retransmission => " retransmitted",
            SegmentKind::TailProbe {
                is_retransmission: true,
            } => " retransmits tail",
            SegmentKind::TailProbe {
                is_retransmission: false,
            } => " probes tail",
            SegmentKind::WindowProbe => " probes window",
            SegmentKind::MtuProbe => " probes path MTU",
        };
        shown(&self.header, end.since(start)) + why
    }
}

/// Formats a segment that occupies `len` sequence numbers.
pub(super) fn shown(header: &Header, len: u32) -> String {
    let seq = header.seq.since(ISS);
    let set = LETTERS.iter().filter(|(_, bit)| header.control.has(*bit));
    let letters: String = set.map(|(letter, _)| letter).collect();
    format!("{seq}:{} {letters}", seq.wrapping_add(len))
}
