//! What passes at the server's end of the link: counted, and written down
//! when asked for.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use nmio::sim::SimClock;
use nmio::{
    Batch, Capabilities, Clock, Frame, Instant, Pool, Port, PortCounters, PortHints, Resident,
};
use nmio::{SendError, SuperSegment};
use tcpip::Counters;

use crate::peer::{ACK, CE, CWR, ECE, FIN, FIRST_PORT, PSH, RST, SYN, Segment, Sums, parse};

/// What the server has sent on one connection.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// Its first sequence number, and the client's.
    irs: Option<u32>,
    iss: u32,
    /// All before this byte of the stream has been sent.
    max: u64,
}

/// A port that looks at what passes.
pub(crate) struct Tap<P> {
    pub(crate) inner: P,
    clock: SimClock,
    connections: Vec<Sent>,
    /// Bytes of data sent again.
    pub(crate) again: u64,
    pub(crate) trace: Option<Rc<RefCell<Trace>>>,
}

impl<P: Port> Tap<P> {
    pub(crate) fn new(inner: P, clock: &SimClock, trace: Option<Rc<RefCell<Trace>>>) -> Self {
        Self {
            inner,
            clock: clock.clone(),
            connections: Vec::new(),
            again: 0,
            trace,
        }
    }

    fn connection(&mut self, client_port: u16) -> &mut Sent {
        let i = usize::from(client_port - FIRST_PORT);
        if self.connections.len() <= i {
            self.connections.resize(i + 1, Sent::default());
        }
        &mut self.connections[i]
    }

    fn see_sent(&mut self, frame: &[u8]) {
        let Some(segment) = parse(frame, Sums::Unchecked) else {
            return;
        };
        let len = segment.data.len() as u64;
        let connection = self.connection(segment.dst_port);
        let irs = *connection.irs.get_or_insert(segment.seq);
        let at = position(segment.seq, irs, connection.max);
        let again = connection.max.saturating_sub(at).min(len);
        connection.max = connection.max.max(at + len);
        let iss = connection.iss;
        self.again += again;
        if let Some(trace) = &self.trace {
            let note = if again > 0 { "again" } else { "" };
            let line = line(&segment, irs, iss, note);
            trace.borrow_mut().add(self.clock.now(), ">", &line, frame);
        }
    }

    fn see_received(&mut self, frame: &[u8]) {
        let Some(segment) = parse(frame, Sums::Unchecked) else {
            return;
        };
        let connection = self.connection(segment.src_port);
        if segment.has(SYN) {
            connection.iss = segment.seq;
        }
        let (irs, iss) = (connection.irs.unwrap_or(0), connection.iss);
        if let Some(trace) = &self.trace {
            let line = line(&segment, iss, irs, "");
            trace.borrow_mut().add(self.clock.now(), "<", &line, frame);
        }
    }
}

/// The place of `seq` in a stream that begins behind `first`, near `near`.
fn position(seq: u32, first: u32, near: u64) -> u64 {
    let expected = first.wrapping_add(1).wrapping_add(near as u32);
    near.saturating_add_signed(i64::from(seq.wrapping_sub(expected).cast_signed()))
}

/// A segment as a line, with relative numbers.
fn line(segment: &Segment<'_>, own: u32, peer: u32, note: &str) -> String {
    let mut text = String::new();
    let relative = |number: u32, first: u32| number.wrapping_sub(first.wrapping_add(1));
    let client = segment.src_port.max(segment.dst_port) - FIRST_PORT;
    let bits = [
        (SYN, 'S'),
        (FIN, 'F'),
        (RST, 'R'),
        (PSH, 'P'),
        (ECE, 'E'),
        (CWR, 'W'),
        (ACK, '.'),
    ];
    let set = bits.iter().filter(|(bit, _)| segment.has(*bit));
    let control: String = set.map(|(_, letter)| letter).collect();
    let _ = write!(text, "#{client} {control:<3}");
    let len = segment.data.len() as u32;
    if len > 0 || segment.has(SYN | FIN | RST) {
        let seq = relative(segment.seq, own).cast_signed();
        let _ = write!(text, " {seq}..{} ({len})", seq + len.cast_signed());
    }
    let _ = write!(text, " ack {}", relative(segment.ack, peer).cast_signed());
    let _ = write!(text, " win {}", segment.window);
    let options = &segment.options;
    if !options.sack.is_empty() {
        text.push_str(" sack");
        for (start, end) in &options.sack {
            let (start, end) = (relative(*start, peer), relative(*end, peer));
            let _ = write!(text, " {}..{}", start.cast_signed(), end.cast_signed());
        }
    }
    if let Some(mss) = options.mss {
        let _ = write!(text, " mss {mss}");
    }
    if let Some(shift) = options.window_scale {
        let _ = write!(text, " ws {shift}");
    }
    if options.sack_permitted {
        text.push_str(" sackOK");
    }
    if let Some((value, echo)) = options.timestamps {
        let _ = write!(text, " ts {value} {echo}");
    }
    if segment.ecn == CE {
        text.push_str(" CE");
    }
    if !note.is_empty() {
        let _ = write!(text, "  {note}");
    }
    text
}

/// A trace of one run: lines for people, and a file for Wireshark.
pub(crate) struct Trace {
    text: BufWriter<File>,
    pcap: BufWriter<File>,
    counters: Counters,
}

/// Counters that move all the time, and tell nothing that the segments do not.
const DULL: [&str; 8] = [
    "resident_fallbacks",
    "segments_received",
    "segments_sent",
    "bytes_sent",
    "sent_resident",
    "sent_copied",
    "retransmits",
    "turned_round",
];

impl Trace {
    /// Begins `base`.txt and `base`.pcap.
    pub(crate) fn create(base: &Path) -> io::Result<Self> {
        let file = |extension: &str| File::create(base.with_extension(extension));
        let mut pcap = BufWriter::new(file("pcap")?);
        // The classic format, with nanoseconds and Ethernet frames.
        for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65_535, 1] {
            pcap.write_all(&word.to_le_bytes())?;
        }
        Ok(Self {
            text: BufWriter::new(file("txt")?),
            pcap,
            counters: Counters::default(),
        })
    }

    fn add(&mut self, now: Instant, arrow: &str, line: &str, frame: &[u8]) {
        let (nanos, len) = (now.as_nanos(), frame.len() as u32);
        let seconds = (nanos / 1_000_000_000) as u32;
        let rest = (nanos % 1_000_000_000) as u32;
        for word in [seconds, rest, len, len] {
            self.pcap.write_all(&word.to_le_bytes()).unwrap();
        }
        self.pcap.write_all(frame).unwrap();
        let millis = nanos as f64 / 1e6;
        writeln!(self.text, "{millis:>12.3} {arrow} {line}").unwrap();
    }

    /// Notes which counters of the stack have moved.
    pub(crate) fn note(&mut self, now: Instant, counters: &Counters) {
        if *counters == self.counters {
            return;
        }
        let names = |counters: &Counters| -> Vec<String> {
            let text = format!("{counters:?}");
            text.split([',', '{', '}']).map(str::to_owned).collect()
        };
        let (old, new) = (names(&self.counters), names(counters));
        let moved = new.iter().zip(&old).filter(|(new, old)| new != old);
        let telling = moved.filter(|(new, _)| !DULL.iter().any(|dull| new.contains(dull)));
        let millis = now.as_nanos() as f64 / 1e6;
        for (counter, _) in telling {
            writeln!(self.text, "{millis:>12.3} *{counter}").unwrap();
        }
        self.counters = *counters;
    }
}

impl<P: Port> Port for Tap<P> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn pool(&self) -> &Pool {
        self.inner.pool()
    }

    fn receive(&mut self, batch: &mut Batch, limit: usize) -> io::Result<()> {
        let seen = batch.len();
        self.inner.receive(batch, limit)?;
        for frame in &batch[seen..] {
            self.see_received(frame);
        }
        Ok(())
    }

    fn send(&mut self, frame: Frame) -> Result<(), SendError> {
        // What the ring refuses has not passed.
        if self.inner.room() > 0 {
            self.see_sent(&frame);
        }
        self.inner.send(frame)
    }

    fn send_resident(&mut self, packet: &mut Resident) -> Result<(), SendError> {
        if self.inner.room() > 0
            && let Some(bytes) = packet.bytes_mut()
        {
            self.see_sent(bytes);
        }
        self.inner.send_resident(packet)
    }

    fn send_super(&mut self, packet: SuperSegment) -> Result<(), SendError> {
        self.inner.send_super(packet.clone())?;
        for index in 0..packet.segments() {
            let mut frame = Vec::new();
            ip::write_segment(&packet, index, &mut frame);
            self.see_sent(&frame);
        }
        Ok(())
    }

    fn room(&mut self) -> usize {
        self.inner.room()
    }

    fn flush(&mut self) -> io::Result<bool> {
        self.inner.flush()
    }

    fn hints(&self) -> PortHints {
        self.inner.hints()
    }

    fn wait(&mut self, timeout: Duration, bell: Option<&nmio::Bell>) -> io::Result<()> {
        self.inner.wait(timeout, bell)
    }

    fn counters(&self) -> PortCounters {
        self.inner.counters()
    }
}
