//! Watches the segments at the server's side of the link. Counts the retransmitted bytes, and
//! writes a trace on request.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::rc::Rc;

use nmio::sim::SimClock;
use nmio::{Clock, Instant, SuperSegment};
use tcpip::Counters;
use testkit::smol::FIRST_PORT;
use testkit::{Observer, Opt, Received, SYN, Segment, Verdict, read_segment};

/// What the server has sent on one connection.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// Initial sequence numbers of the server (`irs`) and of the client (`iss`).
    irs: Option<u32>,
    iss: u32,
    /// End of the data sent so far, as an offset in the stream.
    max: u64,
}

/// Watches the frames that the server's port sends and receives.
pub(crate) struct Tap {
    clock: SimClock,
    connections: Vec<Sent>,
    /// Number of retransmitted bytes.
    pub(crate) retransmitted: u64,
    pub(crate) trace: Option<Rc<RefCell<Trace>>>,
}

impl Tap {
    pub(crate) fn new(clock: &SimClock, trace: Option<Rc<RefCell<Trace>>>) -> Self {
        Self {
            clock: clock.clone(),
            connections: Vec::new(),
            retransmitted: 0,
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
}

impl Observer for Tap {
    fn sent(&mut self, frame: &[u8]) {
        // Other frames, such as ARP replies, are not counted. The client, not this tap, detects
        // invalid segments.
        let Ok(Received { route, segment, .. }) = read_segment(frame) else {
            return;
        };
        let len = u64::from(segment.len());
        let connection = self.connection(route.dst.port);
        let irs = *connection.irs.get_or_insert(segment.seq);
        let at = position(segment.seq, irs, connection.max);
        let retransmitted = connection.max.saturating_sub(at).min(len);
        connection.max = connection.max.max(at + len);
        let iss = connection.iss;
        self.retransmitted += retransmitted;
        if let Some(trace) = &self.trace {
            let note = if retransmitted > 0 {
                "  retransmitted"
            } else {
                ""
            };
            let line = line(route.dst.port, segment, irs, iss, note);
            trace.borrow_mut().add(self.clock.now(), ">", &line, frame);
        }
    }

    fn sent_super(&mut self, packet: &SuperSegment) {
        for index in 0..packet.segments() {
            let mut frame = Vec::new();
            ip::write_segment(packet, index, &mut frame);
            self.sent(&frame);
        }
    }

    fn received(&mut self, frame: &[u8]) -> Verdict {
        // An ICMP error from the router is not a segment.
        if let Ok(Received { route, segment, .. }) = read_segment(frame) {
            let connection = self.connection(route.src.port);
            if segment.has(SYN) {
                connection.iss = segment.seq;
            }
            let (irs, iss) = (connection.irs.unwrap_or(0), connection.iss);
            if let Some(trace) = &self.trace {
                let line = line(route.src.port, segment, iss, irs, "");
                trace.borrow_mut().add(self.clock.now(), "<", &line, frame);
            }
        }
        Verdict::Deliver
    }
}

/// Returns the offset of `seq` in a stream that begins after the sequence number `first`. Possible
/// offsets are 2^32 apart, so the result is the offset closest to `near`.
fn position(seq: u32, first: u32, near: u64) -> u64 {
    let expected = first.wrapping_add(1).wrapping_add(near as u32);
    near.saturating_add_signed(i64::from(seq.wrapping_sub(expected).cast_signed()))
}

/// Formats a segment as a line of the trace, with relative numbers.
fn line(client: u16, mut segment: Segment, own: u32, peer: u32, note: &str) -> String {
    segment.seq = segment.seq.wrapping_sub(own);
    segment.ack = segment.ack.wrapping_sub(peer);
    for option in &mut segment.options {
        if let Opt::Sack(blocks) = option {
            for (left, right) in blocks {
                (*left, *right) = (left.wrapping_sub(peer), right.wrapping_sub(peer));
            }
        }
    }
    format!("#{} {segment}{note}", client - FIRST_PORT)
}

/// A trace of one run: a text file for people, and a pcap file for Wireshark.
pub(crate) struct Trace {
    text: BufWriter<File>,
    pcap: BufWriter<File>,
    counters: Counters,
}

/// Counters that the trace omits, because they change often and tell little that the listed
/// segments do not show.
const DULL: [&str; 8] = [
    "resident_fallbacks",
    "segments_received",
    "segments_sent",
    "bytes_sent",
    "sent_resident",
    "sent_copied",
    "retransmits",
    "turned_around",
];

impl Trace {
    /// Creates the files `base`.txt and `base`.pcap.
    pub(crate) fn create(base: &Path) -> io::Result<Self> {
        let file = |extension: &str| File::create(base.with_extension(extension));
        let mut pcap = BufWriter::new(file("pcap")?);
        // The header of the classic pcap format, with timestamps in nanoseconds and Ethernet
        // frames.
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

    /// Writes a line for each counter of the stack that has changed, except those in [`DULL`].
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
        let is_dull = |new: &str| DULL.iter().any(|dull| new.trim_start().starts_with(dull));
        let telling = moved.filter(|(new, _)| !is_dull(new));
        let millis = now.as_nanos() as f64 / 1e6;
        for (counter, _) in telling {
            writeln!(self.text, "{millis:>12.3} *{counter}").unwrap();
        }
        self.counters = *counters;
    }
}
