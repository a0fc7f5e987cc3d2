//! What is known of one client's connection from outside, and what must hold
//! for each segment that the server sends on it.

use std::collections::HashSet;

use tcpip::{DEFAULT_MSS_V4, DEFAULT_MSS_V6, MIN_MSS};

use super::app::Calls;
use super::client::Header;
use super::segment::{ACK, CWR, ECE, FIN, MAX_SHIFT, Options, RST, Ranges, SYN, Sent};

/// Segments of the initial window (RFC 6928).
const INITIAL_WINDOW: u32 = 10;

/// A SYN of the client's.
struct Offered {
    irs: u32,
    options: Options,
    ecn: bool,
    window: u16,
}

/// What the server has agreed to with a SYN-ACK.
#[derive(Clone, Copy, Debug)]
struct Agreed {
    irs: u32,
    iss: u32,
    /// Bytes of options and data in a segment to the client, at most.
    mss: u32,
    /// By how much the client's windows are shifted, and the server's.
    shift: u8,
    own_shift: u8,
    stamps: bool,
    sack: bool,
    ecn: bool,
    /// Of the SYN.
    window: u16,
}

/// Of one client: what it has sent, what the application has written, and
/// what came of both. Offsets count from behind the SYN.
#[derive(Default)]
pub(super) struct Stream {
    v6: bool,
    offered: Vec<Offered>,
    agreed: Vec<Agreed>,
    /// Of the connection that the application knows, or knew last.
    current: Option<Agreed>,
    pub(super) is_open: bool,
    /// The application has closed or aborted.
    pub(super) closed: bool,
    /// All that the application has written.
    pub(super) written: Vec<u8>,
    pub(super) calls: Calls,
    /// What the client has sent.
    pub(super) sent: Ranges,
    /// Behind all that the server has sent.
    pub(super) seen_end: u32,
    /// The furthest that the client's windows have reached.
    edge: u32,
    /// What the client has acknowledged, and with how many segments.
    acked: u32,
    acks: u32,
    /// The furthest that the server's windows have reached.
    told: u32,
    /// Clocks that the client has shown.
    clocks: HashSet<u32>,
    /// What the server's clock has shown last.
    clock: Option<u32>,
    /// What it showed with data that was sent for the first time: up to where.
    first_clocks: Vec<(u32, u32)>,
    /// The segment that is being handled: number and length.
    arriving: (u32, u32),
}

impl Stream {
    pub(super) fn new(v6: bool) -> Self {
        Self {
            v6,
            ..Self::default()
        }
    }

    /// The sequence number of the client's first byte.
    pub(super) fn start(&self) -> u32 {
        self.current
            .map_or(0, |current| current.irs.wrapping_add(1))
    }

    /// A segment of the client's is about to arrive.
    pub(super) fn arrives(&mut self, header: &Header) {
        let options = Options::parse(&header.options, true);
        self.clocks.extend(options.stamps.map(|(value, _)| value));
        self.arriving = (header.seq, header.sequence_len());
        if header.is_syn() {
            self.offered.push(Offered {
                irs: header.seq,
                ecn: header.control & (ECE | CWR) == ECE | CWR,
                window: header.window,
                options,
            });
        }
        self.note_sent();
    }

    fn note_sent(&mut self) {
        let (seq, len) = self.arriving;
        let offset = seq.wrapping_sub(self.start());
        self.sent.insert(offset, len);
        if offset.cast_signed() < 0 {
            // The part that lies behind the start.
            let before = offset.wrapping_neg();
            self.sent.insert(0, len.saturating_sub(before));
        }
    }

    /// The segment has been handled. `stalled`: what the server has sent may
    /// not have been seen.
    pub(super) fn has_arrived(&mut self, header: &Header, stalled: bool) {
        let Some(current) = self.current else {
            return;
        };
        if header.control & (ACK | SYN | RST) != ACK {
            return;
        }
        let ack = header.ack.wrapping_sub(current.iss).wrapping_sub(1);
        let sent = if stalled {
            self.written.len() as u32 + 1
        } else {
            self.seen_end
        };
        if ack <= sent {
            self.acks += 1;
            self.acked = self.acked.max(ack);
            let window = u32::from(header.window) << current.shift;
            self.edge = self.edge.max(ack + window);
        }
    }

    /// The application's connection begins, by an acknowledgement of the
    /// SYN-ACK with the number `iss`.
    pub(super) fn open(&mut self, iss: u32) {
        assert!(!self.is_open, "opened twice");
        let agreed = self.agreed.iter().rev().find(|agreed| agreed.iss == iss);
        let agreed = *agreed.expect("nobody opens what was not offered");
        self.current = Some(agreed);
        self.written.clear();
        self.closed = false;
        self.sent = Ranges::default();
        self.note_sent();
        self.seen_end = 0;
        self.edge = u32::from(agreed.window);
        self.acked = 0;
        self.acks = 0;
        self.told = 0;
        self.clock = None;
        self.first_clocks.clear();
    }

    /// The server has sent a segment.
    pub(super) fn server_sent(&mut self, sent: &Sent<'_>) {
        if sent.has(RST) {
            assert!(sent.data.is_empty() && !sent.has(SYN | FIN));
            assert_eq!(sent.ecn, 0);
            return;
        }
        assert!(sent.has(ACK));
        if let Some((_, echo)) = sent.options.stamps {
            assert!(self.clocks.contains(&echo), "a clock that nobody has shown");
        }
        if sent.has(SYN) {
            self.agree(sent);
        } else {
            assert_eq!(sent.options.mss, None);
            assert_eq!(sent.options.scale, None);
            assert!(!sent.options.sack_permitted);
            if !self.is_of_handshake(sent) {
                self.check(sent);
            }
        }
    }

    /// A SYN-ACK: nothing in it that no SYN has offered.
    fn agree(&mut self, sent: &Sent<'_>) {
        let irs = sent.ack.wrapping_sub(1);
        assert_eq!(sent.control & !(SYN | ACK | ECE), 0);
        assert!(sent.data.is_empty() && sent.options.sack.is_empty());
        assert_eq!(sent.ecn, 0);
        let offers = self.offered.iter().filter(|offered| offered.irs == irs);
        let offers: Vec<_> = offers.collect();
        assert!(!offers.is_empty(), "an answer to no SYN");
        let options = || offers.iter().map(|offer| &offer.options);
        let default = if self.v6 {
            DEFAULT_MSS_V6
        } else {
            DEFAULT_MSS_V4
        };
        let mss = options().map(|options| options.mss.unwrap_or(default));
        let mss = mss.max().unwrap_or(default).max(MIN_MSS);
        let scaled = sent.options.scale.is_some();
        let shift = options().filter_map(|options| options.scale).max();
        assert!(!scaled || shift.is_some(), "a shift that nobody offered");
        assert!(!sent.options.sack_permitted || options().any(|options| options.sack_permitted));
        let stamps = sent.options.stamps.is_some();
        assert!(!stamps || options().any(|options| options.stamps.is_some()));
        assert!(!sent.has(ECE) || offers.iter().any(|offer| offer.ecn));
        // RFC 3168, section 6.1.1: one without takes it back.
        let same = |agreed: &&Agreed| (agreed.irs, agreed.iss) == (irs, sent.seq);
        let was = self.agreed.iter().filter(same).all(|agreed| agreed.ecn);
        let own_shift = sent.options.scale.unwrap_or(0);
        assert!(own_shift <= MAX_SHIFT);
        self.agreed.push(Agreed {
            irs,
            iss: sent.seq,
            mss: mss.into(),
            shift: shift.filter(|_| scaled).unwrap_or(0).min(MAX_SHIFT),
            own_shift,
            stamps,
            sack: sent.options.sack_permitted,
            ecn: sent.has(ECE) && was,
            window: offers.iter().map(|offer| offer.window).max().unwrap_or(0),
        });
    }

    /// Whether this is an ACK of a connection that is still being opened. Its
    /// SYN-ACK may have found the ring full.
    fn is_of_handshake(&self, sent: &Sent<'_>) -> bool {
        let irs = sent.ack.wrapping_sub(1);
        let is_other = |iss| {
            let known = self.current.filter(|_| self.is_open);
            known.is_none_or(|known| (known.irs, known.iss) != (irs, iss))
        };
        let is_start =
            |agreed: &Agreed| agreed.irs == irs && agreed.iss.wrapping_add(1) == sent.seq;
        sent.len() == 0
            && self.offered.iter().any(|offered| offered.irs == irs)
            && is_other(sent.seq.wrapping_sub(1))
            && (!self.is_open || self.agreed.iter().any(is_start))
    }

    fn check(&mut self, sent: &Sent<'_>) {
        let current = self.current.expect("a handshake comes first");
        let is_again = sent.len() > 0 && self.is_again(sent, &current);
        self.check_sequence(sent, &current);
        self.check_acknowledgement(sent, &current);
        assert_eq!(sent.options.stamps.is_some(), current.stamps);
        if let Some((clock, _)) = sent.options.stamps {
            self.check_clock(sent, clock, &current, is_again);
        }
    }

    /// What is sent again may lie back, but not to before it was first sent: it
    /// would be taken for another connection's.
    fn check_clock(&mut self, sent: &Sent<'_>, clock: u32, current: &Agreed, is_again: bool) {
        let start = sent.seq.wrapping_sub(current.iss).wrapping_sub(1);
        let first = self.first_clocks.partition_point(|&(end, _)| end <= start);
        let least = match self.first_clocks.get(first) {
            Some(&(_, first)) if is_again => first,
            _ => self.clock.unwrap_or(clock),
        };
        let ahead = clock.wrapping_sub(least);
        assert!(ahead.cast_signed() >= 0, "a clock that goes back");
        if !is_again {
            self.clock = Some(clock);
        }
        if !is_again && sent.len() > 0 {
            self.first_clocks
                .push((start.wrapping_add(sent.len()), clock));
        }
    }

    fn is_again(&self, sent: &Sent<'_>, current: &Agreed) -> bool {
        let start = sent.seq.wrapping_sub(current.iss).wrapping_sub(1);
        start.wrapping_add(sent.len()) <= self.seen_end
    }

    fn check_sequence(&mut self, sent: &Sent<'_>, current: &Agreed) {
        let start = sent.seq.wrapping_sub(current.iss).wrapping_sub(1);
        let end = start.wrapping_add(sent.len());
        if sent.len() == 0 {
            let limit = self.written.len() as u32 + 1;
            assert!(start <= limit, "a number that nobody has sent");
            assert_eq!(sent.ecn, 0, "a segment without data may not be marked");
            return;
        }
        let data = start as usize..start as usize + sent.data.len();
        let is_last = data.end == self.written.len();
        let written = self.written.get(data);
        assert!(written == Some(sent.data), "other data");
        assert!(!sent.has(FIN) || is_last, "a FIN before the end");
        assert!(start <= self.seen_end, "a gap that nobody has filled");
        assert!(
            end <= self.edge || sent.len() == 1,
            "{} bytes beyond the window",
            end - self.edge
        );
        let taken = sent.options_len as u32 + sent.data.len() as u32;
        assert!(taken <= current.mss, "{taken} bytes, of {}", current.mss);
        let first_flight = (INITIAL_WINDOW + self.acks) * current.mss;
        assert!(
            self.acked > 0 || end <= first_flight + 1,
            "{end} bytes before any was acknowledged"
        );
        let may_mark = current.ecn && !sent.data.is_empty() && end > self.seen_end;
        assert!(sent.ecn == 0 || may_mark, "what may not be marked, may be");
        self.seen_end = self.seen_end.max(end);
    }

    fn check_acknowledgement(&mut self, sent: &Sent<'_>, current: &Agreed) {
        let ack = sent.ack.wrapping_sub(self.start());
        assert!(ack <= self.sent.prefix(), "what has not come acknowledged");
        assert!(current.sack || sent.options.sack.is_empty());
        for (at, (from, to)) in sent.options.sack.iter().enumerate() {
            if at == 0 && sent.ack.wrapping_sub(*to).cast_signed() >= 0 {
                // Something old has come again, from before the SYN perhaps
                // (RFC 2883).
                assert_ne!(from, to, "a block of nothing");
                continue;
            }
            let from = from.wrapping_sub(self.start());
            let to = to.wrapping_sub(self.start());
            assert!(from < to, "a block of nothing");
            assert!(self.sent.contains(from, to), "what has not come in a block");
        }
        let slack = (1 << current.own_shift) - 1;
        let edge = ack + (u32::from(sent.window) << current.own_shift);
        assert!(edge + slack >= self.told, "a window that is taken back");
        self.told = self.told.max(edge);
    }
}
