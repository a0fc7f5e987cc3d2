//! One connection of the client.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use nmio::Instant;
use testkit::{
    ACK, CE, CWR, ECE, FIN, Layout, Opt, PSH, RST, Ranges, Received, Route, SYN, Segment,
};

use super::{Behaviour, Reader, Task};

/// The RTO before a round trip is known (RFC 6298, section 2.1).
const INITIAL_RTO: Duration = Duration::from_secs(1);
const MIN_RTO: Duration = Duration::from_millis(200);
const MAX_RTO: Duration = Duration::from_mins(1);
/// Interval at which a slow reader reads.
const READ_INTERVAL: Duration = Duration::from_millis(10);
/// The MSS that the server must assume if the client sends no MSS option, over IPv4 and IPv6 (RFC
/// 9293, section 3.7.1).
const DEFAULT_MSS: [u16; 2] = [536, 1220];
/// Maximum number of SACK blocks in a header (RFC 2018, section 3).
const MAX_SACK_BLOCKS: usize = 4;
/// The TSval at time zero, chosen so that TSvals soon wrap.
const FIRST_TIMESTAMP: u32 = u32::MAX - 1_000;

/// What a client has observed on one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Observations {
    pub(crate) first_byte: Option<Instant>,
    pub(crate) last_byte: Option<Instant>,
    /// Number of bytes that arrived although the client already had them. Frames that the path
    /// duplicated do not count.
    pub(crate) spurious: u64,
    /// Number of segments that PAWS has refused (RFC 7323, section 5).
    pub(crate) old_timestamps: u64,
    /// Number of frames that arrived with a CE mark.
    pub(crate) marks: u64,
    /// Number of times that the client discarded data beyond a gap.
    pub(crate) reneged: u64,
    /// Whether the server has reset the connection.
    pub(crate) reset: bool,
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The connection has not been opened yet.
    Closed,
    SynSent,
    Open,
}

/// The client's side of one connection: the handshake, the requests, and a record of the received
/// data.
#[derive(Debug)]
pub(crate) struct Connection {
    route: Route,
    behaviour: Behaviour,
    task: Task,
    state: State,
    pub(crate) seen: Observations,

    /// Initial sequence numbers of the client and of the server.
    iss: u32,
    irs: u32,
    /// Number of requests sent, and number of requests acknowledged. Each request is one byte.
    sent: u64,
    acked: u64,
    fin_sent: bool,
    fin_acked: bool,
    /// Whether the server's FIN has arrived, perhaps ahead of missing data.
    fin_seen: bool,
    /// Whether all data and the FIN have arrived.
    fin_received: bool,
    syn_at: Instant,
    rto: Duration,
    resend_at: Option<Instant>,
    request_at: Option<Instant>,

    /// Options that both sides use: the client's shift count, and whether the others are in use.
    window_shift: u8,
    sack: bool,
    timestamps: bool,
    ecn: bool,

    received: Ranges,
    /// Number of bytes that the application has read.
    read: u64,
    read_at: Instant,
    resume_at: Option<Instant>,
    /// Whether the reader's pause is over, and the window update that follows it has not been sent
    /// yet.
    resumed: bool,
    /// Right edge of the advertised window, as an offset in the server's stream.
    edge: u64,
    /// Offset in the server's stream up to which the client has acknowledged data.
    acked_to: u64,
    /// Number of in-order segments that the client has not acknowledged yet.
    unacknowledged: u32,
    ack_at: Option<Instant>,
    duplicate: Option<Range<u64>>,
    out_of_order: u32,
    recent_timestamp: u32,
    congested: bool,
    /// The last segment with data, and its arrival time.
    last_segment: (Instant, Segment),
}

impl Connection {
    pub(crate) fn new(route: Route, iss: u32, behaviour: &Behaviour, task: &Task) -> Self {
        Self {
            route,
            behaviour: behaviour.clone(),
            task: task.clone(),
            state: State::Closed,
            seen: Observations::default(),
            iss,
            irs: 0,
            sent: 0,
            acked: 0,
            fin_sent: false,
            fin_acked: false,
            fin_seen: false,
            fin_received: false,
            syn_at: Instant::ZERO,
            rto: INITIAL_RTO,
            resend_at: None,
            request_at: None,
            window_shift: 0,
            sack: false,
            timestamps: false,
            ecn: false,
            received: Ranges::default(),
            read: 0,
            read_at: Instant::ZERO,
            resume_at: None,
            resumed: false,
            edge: 0,
            acked_to: 0,
            unacknowledged: 0,
            ack_at: None,
            duplicate: None,
            out_of_order: 0,
            recent_timestamp: 0,
            congested: false,
            last_segment: (Instant::ZERO, Segment::default()),
        }
    }

    /// Returns true if both sides have closed, or the server has reset the connection.
    pub(crate) fn done(&self) -> bool {
        self.seen.reset || (self.fin_acked && self.fin_received)
    }

    /// Returns true if every byte of the stream has arrived.
    pub(crate) fn complete(&self) -> bool {
        self.received.next() == self.stream_len()
    }

    /// Returns the time at which the client opens the connection.
    pub(crate) fn start(&self) -> Instant {
        self.task.start
    }

    fn stream_len(&self) -> u64 {
        self.task.content.len() as u64 * self.task.times
    }

    /// Returns the MSS that limits the server's segments, in bytes.
    fn mss(&self) -> usize {
        let default = DEFAULT_MSS[usize::from(self.route.is_v6())];
        usize::from(self.behaviour.mss.unwrap_or(default))
    }

    /// Returns the size of the receive buffer in bytes, limited to what the scaled window field can
    /// express.
    fn buffer(&self) -> u64 {
        self.behaviour.buffer.min(65_535 << self.window_shift)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.done() {
            return None;
        }
        let start = (self.state == State::Closed).then_some(self.task.start);
        let reading = match self.behaviour.reader {
            Reader::Slow(_) if self.read < self.received.next() => {
                Some(self.read_at + READ_INTERVAL)
            }
            _ => None,
        };
        let timers = [
            start,
            reading,
            self.resend_at,
            self.request_at,
            self.ack_at,
            self.resume_at,
        ];
        timers.into_iter().flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, out: &mut VecDeque<Vec<u8>>) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if self.done() {
            return;
        }
        if self.state == State::Closed && self.task.start <= now {
            self.state = State::SynSent;
            self.syn_at = now;
            self.send_syn(now, out);
            self.resend_at = Some(now + self.rto);
        }
        if due(self.resend_at) {
            self.rto = (2 * self.rto).min(MAX_RTO);
            self.resend_at = Some(now + self.rto);
            match self.state {
                State::Open => self.send_from(self.acked, now, out),
                _ => self.send_syn(now, out),
            }
        }
        if due(self.request_at) {
            self.request_at = None;
            self.send_request(now, out);
        }
        self.read(now);
        if due(self.ack_at) || self.window_opens() {
            self.acknowledge(now, out);
        }
    }

    /// Lets the application read data that has arrived in order, as its [`Reader`] allows.
    fn read(&mut self, now: Instant) {
        let next = self.received.next();
        match self.behaviour.reader {
            Reader::Prompt => self.read = next,
            Reader::Slow(_) if next == self.read => self.read_at = now,
            Reader::Slow(rate) => {
                if now.since(self.read_at) < READ_INTERVAL {
                    return;
                }
                let max_bytes = u128::from(rate) * now.since(self.read_at).as_micros() / 1_000_000;
                self.read = next.min(self.read + max_bytes as u64);
                self.read_at = now;
            }
            Reader::Pause { at, lasting } => {
                self.read = next.min(at);
                if self.read < at {
                    return;
                }
                let resume_at = *self.resume_at.get_or_insert(now + lasting);
                if resume_at <= now {
                    self.behaviour.reader = Reader::Prompt;
                    self.resume_at = None;
                    self.resumed = true;
                    self.read = next;
                }
            }
        }
    }

    /// Returns true if the window has opened far enough for a window update (RFC 9293, section
    /// 3.8.6.2.2).
    fn window_opens(&self) -> bool {
        let step = (self.buffer() / 2).min(2 * self.mss() as u64);
        let left = self.edge.saturating_sub(self.received.next());
        self.state == State::Open
            && !self.fin_received
            && (self.resumed || matches!(self.behaviour.reader, Reader::Slow(_)))
            && left < self.buffer() / 2
            && self.read + self.buffer() >= self.edge + step
    }

    pub(crate) fn handle_segment(
        &mut self,
        received: &Received,
        now: Instant,
        out: &mut VecDeque<Vec<u8>>,
    ) {
        assert_eq!(
            received.route,
            self.route.back(),
            "the addresses are the connection's"
        );
        let (header_len, segment) = (received.header_len, &received.segment);
        if self.seen.reset || self.state == State::Closed {
            return;
        }
        if segment.has(RST) {
            self.seen.reset = true;
            return;
        }
        assert!(segment.has(ACK), "a segment without ACK");
        if segment.has(SYN) {
            self.handle_syn_ack(segment, now, out);
            return;
        }
        if self.state != State::Open {
            return;
        }
        self.check(segment, header_len);
        self.handle_ecn(segment);
        let offset = self.offset(segment.seq);
        let len = segment.data.len() as u64;
        if let Some((value, _)) = segment.timestamps() {
            // The timestamp is checked as RFC 7323, section 5.3, R1 to R3, requires.
            if value.wrapping_sub(self.recent_timestamp).cast_signed() < 0 {
                // Usually the segment's retransmission has overtaken the original. Like current
                // systems, the client reports the segment as a duplicate.
                if let Some(start) = u64::try_from(offset).ok().filter(|_| len > 0) {
                    self.note_duplicate(&(start..start + len), segment, now);
                }
                self.seen.old_timestamps += 1;
                self.acknowledge(now, out);
                return;
            }
            let is_old = offset + len.cast_signed() < self.received.next().cast_signed();
            if offset <= self.acked_to.cast_signed() && !is_old {
                self.recent_timestamp = value;
            }
        }
        self.handle_ack(segment.ack, now);
        if !segment.data.is_empty() {
            self.handle_data(offset, segment, now, out);
        }
        if segment.has(FIN) {
            self.handle_fin(offset + len.cast_signed(), now, out);
        }
        if self.fin_seen && self.complete() && !self.fin_received {
            self.fin_received = true;
            if self.fin_sent {
                self.acknowledge(now, out);
            } else {
                self.close(now, out);
            }
        }
        self.read(now);
        if self.window_opens() {
            self.acknowledge(now, out);
        }
    }

    /// Returns the offset of `seq` in the server's stream. The offset is negative if `seq` lies
    /// before the stream.
    fn offset(&self, seq: u32) -> i64 {
        let next = self.received.next();
        let expected = self.irs.wrapping_add(1).wrapping_add(next as u32);
        next.cast_signed() + i64::from(seq.wrapping_sub(expected).cast_signed())
    }

    fn handle_syn_ack(&mut self, segment: &Segment, now: Instant, out: &mut VecDeque<Vec<u8>>) {
        if self.state == State::Open {
            // The SYN-ACK has arrived again, for example because our ACK of the first one was lost.
            self.acknowledge(now, out);
            return;
        }
        assert_eq!(segment.ack, self.iss.wrapping_add(1), "the SYN-ACK's ACK");
        let behaviour = &self.behaviour;
        assert!(segment.mss().is_some(), "the server sends its MSS");
        let offered = |name: &str, by_us: bool, by_server: bool| {
            assert!(
                by_us || !by_server,
                "the server uses {name}, which we did not offer"
            );
            by_us && by_server
        };
        let scale = segment.scale().is_some();
        if offered("a window scale", behaviour.window_scale.is_some(), scale) {
            self.window_shift = behaviour.window_scale.unwrap_or(0);
        }
        self.sack = offered("SACK", behaviour.sack, segment.sack_permitted());
        let stamps = segment.timestamps().is_some();
        self.timestamps = offered("timestamps", behaviour.timestamps, stamps);
        self.ecn = offered("ECN", behaviour.ecn, segment.has(ECE));
        self.recent_timestamp = segment.timestamps().map_or(0, |(value, _)| value);
        self.irs = segment.seq;
        self.state = State::Open;
        if self.rto == INITIAL_RTO {
            let round_trip = now.since(self.syn_at);
            self.rto = (3 * round_trip).clamp(MIN_RTO, MAX_RTO);
        }
        self.resend_at = None;
        // The SYN's window is never scaled (RFC 7323, section 2.2).
        self.edge = self.behaviour.buffer.min(65_535);
        self.acknowledge(now, out);
        self.send_request(now, out);
    }

    /// Panics if a segment violates a rule that holds for every segment.
    fn check(&self, segment: &Segment, header_len: usize) {
        assert_eq!(
            segment.timestamps().is_some(),
            self.timestamps,
            "timestamps are in every segment or in none"
        );
        let size = segment.data.len() + header_len - 20;
        let mss = self.mss();
        assert!(size <= mss, "{size} bytes in a segment, the MSS is {mss}");
        let ect = segment.ecn != 0;
        assert!(self.ecn || !ect, "ECT without an agreement on ECN");
        let sent = self.sent as u32 + 1 + u32::from(self.fin_sent);
        let acked = segment.ack.wrapping_sub(self.iss);
        assert!(acked <= sent, "{acked} acknowledged of {sent} sent");
    }

    /// Processes the CWR bit and the CE mark (RFC 3168, section 6.1.3).
    fn handle_ecn(&mut self, segment: &Segment) {
        if self.ecn && segment.has(CWR) {
            self.congested = false;
        }
        if segment.ecn == CE {
            self.seen.marks += 1;
            self.congested = true;
        }
    }

    fn handle_ack(&mut self, ack: u32, now: Instant) {
        let acked = u64::from(ack.wrapping_sub(self.iss.wrapping_add(1)));
        let all = self.sent + u64::from(self.fin_sent);
        if acked > all || acked <= self.acked {
            return;
        }
        self.acked = acked.min(self.sent);
        self.fin_acked = self.fin_sent && acked == all;
        let open = acked < all;
        self.resend_at = open.then(|| now + self.rto);
    }

    fn handle_data(
        &mut self,
        offset: i64,
        segment: &Segment,
        now: Instant,
        out: &mut VecDeque<Vec<u8>>,
    ) {
        let start = u64::try_from(offset).expect("data lies in the stream");
        let mut bytes = start..start + segment.data.len() as u64;
        assert!(
            bytes.end <= self.stream_len(),
            "more data than was requested"
        );
        self.check_bytes(start, &segment.data);

        let next = self.received.next();
        if bytes.end > self.edge {
            let probe = bytes.start == self.edge && bytes.end == self.edge + 1;
            assert!(probe, "{bytes:?} beyond the window's edge {}", self.edge);
            bytes.end = self.edge;
        }
        self.note_duplicate(&bytes, segment, now);
        self.seen.first_byte.get_or_insert(now);
        let in_order = bytes.start == next && !bytes.is_empty() && !self.received.has_holes();
        if !bytes.is_empty() {
            self.received.add(bytes);
        }
        self.renege();
        if self.complete() {
            self.seen.last_byte.get_or_insert(now);
        }
        let next = self.received.next();
        let answered = next / self.task.content.len() as u64;
        if answered == self.sent {
            if answered < self.task.times {
                self.request_at.get_or_insert(now + self.task.think);
            } else if self.task.times > 1 && !self.fin_sent {
                self.close(now, out);
                return;
            }
        }
        self.unacknowledged += 1;
        if !in_order || self.unacknowledged >= self.behaviour.acks.every {
            self.acknowledge(now, out);
        } else {
            let at = now + self.behaviour.acks.after;
            self.ack_at.get_or_insert(at);
        }
    }

    /// Records which bytes of a segment had already arrived.
    fn note_duplicate(&mut self, bytes: &Range<u64>, segment: &Segment, now: Instant) {
        let current = (now, segment.clone());
        if self.last_segment != current {
            self.seen.spurious += self.received.overlap(bytes);
        }
        self.last_segment = current;
        self.duplicate = self.received.duplicate(bytes);
    }

    /// Compares data with the expected bytes at `offset` of the stream.
    fn check_bytes(&self, offset: u64, mut data: &[u8]) {
        let content = &self.task.content[..];
        let mut at = offset as usize % content.len();
        while !data.is_empty() {
            let (now, rest) = data.split_at(data.len().min(content.len() - at));
            let right = *now == content[at..at + now.len()];
            assert!(right, "wrong bytes in the segment at {offset}");
            (data, at) = (rest, 0);
        }
    }

    fn renege(&mut self) {
        if self.received.has_holes() && self.behaviour.renege_every != 0 {
            self.out_of_order += 1;
            if self.out_of_order == self.behaviour.renege_every {
                self.out_of_order = 0;
                self.received.renege();
                self.seen.reneged += 1;
            }
        }
    }

    fn handle_fin(&mut self, offset: i64, now: Instant, out: &mut VecDeque<Vec<u8>>) {
        assert_eq!(
            offset,
            self.stream_len().cast_signed(),
            "the FIN's place in the stream"
        );
        self.fin_seen = true;
        if !self.complete() || self.fin_received {
            self.acknowledge(now, out);
        }
    }

    /// Sends our FIN.
    fn close(&mut self, now: Instant, out: &mut VecDeque<Vec<u8>>) {
        self.fin_sent = true;
        self.send_from(self.sent, now, out);
        self.resend_at = Some(now + self.rto);
    }

    fn send_request(&mut self, now: Instant, out: &mut VecDeque<Vec<u8>>) {
        self.sent += 1;
        self.send_from(self.sent - 1, now, out);
        self.resend_at = Some(now + self.rto);
    }

    fn send_syn(&mut self, now: Instant, out: &mut VecDeque<Vec<u8>>) {
        let behaviour = &self.behaviour;
        let options = [
            behaviour.mss.map(Opt::Mss),
            behaviour.window_scale.map(Opt::Scale),
            behaviour.sack.then_some(Opt::SackPermitted),
            (behaviour.timestamps).then(|| Opt::Timestamps(timestamp(now), 0)),
        ];
        let syn = Segment {
            seq: self.iss,
            bits: if behaviour.ecn { SYN | ECE | CWR } else { SYN },
            window: behaviour.buffer.min(65_535) as u16,
            options: options.into_iter().flatten().collect(),
            ..Segment::default()
        };
        out.push_back(self.frame(&syn));
    }

    /// Sends all requests from number `from` on, and the FIN if the client has closed its side.
    fn send_from(&mut self, from: u64, now: Instant, out: &mut VecDeque<Vec<u8>>) {
        let mut segment = self.header(now);
        segment.seq = self.iss.wrapping_add(1).wrapping_add(from as u32);
        segment.bits |= PSH;
        if self.fin_sent {
            segment.bits |= FIN;
        }
        segment.data = vec![self.task.request; (self.sent - from) as usize];
        out.push_back(self.frame(&segment));
    }

    fn acknowledge(&mut self, now: Instant, out: &mut VecDeque<Vec<u8>>) {
        let before = self.acked_to;
        let segment = self.header(now);
        for part in 1..u64::from(self.behaviour.acks.divided) {
            let mut partial = segment.clone();
            let step = (self.acked_to - before) * part / u64::from(self.behaviour.acks.divided);
            partial.ack = self.number_of(before + step);
            out.push_back(self.frame(&partial));
        }
        out.push_back(self.frame(&segment));
    }

    /// Returns the sequence number of the byte at `offset` in the server's stream.
    fn number_of(&self, offset: u64) -> u32 {
        self.irs.wrapping_add(1).wrapping_add(offset as u32)
    }

    /// Returns a segment without data, with the current ACK, window, timestamps and SACK blocks.
    fn header(&mut self, now: Instant) -> Segment {
        let next = self.received.next();
        self.acked_to = next;
        if next > 0 && !self.received.has_holes() {
            self.acked_to = (next + self.behaviour.acks.ahead).min(self.stream_len());
        }
        self.unacknowledged = 0;
        self.ack_at = None;
        let mut segment = Segment {
            bits: ACK,
            ..Segment::default()
        };
        let sent = self.sent as u32 + u32::from(self.fin_sent);
        segment.seq = self.iss.wrapping_add(1).wrapping_add(sent);
        segment.ack = (self.number_of(self.acked_to)).wrapping_add(u32::from(self.fin_received));
        if self.ecn && self.congested {
            segment.bits |= ECE;
        }
        segment.window = self.window();
        if self.timestamps {
            let stamps = Opt::Timestamps(timestamp(now), self.recent_timestamp);
            segment.options.push(stamps);
        }
        if self.sack {
            let blocks = self.blocks();
            segment
                .options
                .extend((!blocks.is_empty()).then_some(Opt::Sack(blocks)));
        }
        segment
    }

    /// Returns the SACK blocks to send (RFC 2018, section 4, and RFC 2883, section 4).
    fn blocks(&mut self) -> Vec<(u32, u32)> {
        let room = MAX_SACK_BLOCKS - usize::from(self.timestamps);
        let mut blocks = Vec::new();
        if let Some(duplicate) = self.duplicate.take().filter(|_| self.behaviour.dsack) {
            let around = self.received.around(duplicate.start);
            blocks.push(duplicate);
            blocks.extend(around);
        }
        for range in self.received.by_age() {
            if !blocks.contains(&range) {
                blocks.push(range);
            }
        }
        let block = |range: Range<u64>| {
            let fin = self.fin_seen && range.end == self.stream_len();
            let end = self.number_of(range.end).wrapping_add(u32::from(fin));
            (self.number_of(range.start), end)
        };
        blocks.into_iter().take(room).map(block).collect()
    }

    fn frame(&self, segment: &Segment) -> Vec<u8> {
        self.route.segment(segment, Layout::Usual)
    }

    /// Returns the window to advertise. Its right edge never moves back, and does not advance in
    /// small steps (RFC 9293, section 3.8.6.2.2).
    fn window(&mut self) -> u16 {
        let buffer = self.buffer();
        let edge = self.read + buffer;
        let step = (buffer / 2).min(self.mss() as u64);
        let unit = 1 << self.window_shift;
        let edge = if edge >= self.edge + step {
            edge
        } else {
            self.edge
        };
        // The window is rounded up: rounding down could move its right edge back.
        let window = edge.saturating_sub(self.acked_to).div_ceil(unit);
        self.edge = self.edge.max(self.acked_to + window * unit);
        self.resumed = false;
        u16::try_from(window).expect("the window fits into the field")
    }
}

fn timestamp(now: Instant) -> u32 {
    FIRST_TIMESTAMP.wrapping_add((now.as_micros() / 1_000) as u32)
}
