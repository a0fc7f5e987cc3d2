//! A model of one client's connection. It checks each segment that the server sends to the client.

use std::collections::{HashSet, VecDeque};

use tcpip::{DEFAULT_MSS_V4, DEFAULT_MSS_V6, MIN_MSS};
use testkit::{ACK, CWR, ECE, FIN, Layout, Opt, RST, Ranges, Received, SYN, Segment, read_options};

use super::app::Call;
use super::client::{add, is_syn};

/// Initial window in segments (RFC 6928).
const INITIAL_WINDOW: u32 = 10;
/// The largest shift count of a window scale option (RFC 7323, section 2.3).
const MAX_SHIFT: u8 = 14;

/// What a SYN-ACK from the server has negotiated.
#[derive(Clone, Copy, Debug)]
struct Agreed {
    irs: u32,
    iss: u32,
    /// Maximum number of bytes that options and data may occupy in a segment to the client.
    mss: u32,
    /// Window shift count of the client.
    shift: u8,
    /// Window shift count of the server.
    own_shift: u8,
    stamps: bool,
    sack: bool,
    ecn: bool,
    /// Window of the SYN.
    window: u16,
}

/// What one client has sent, what the application has written, and what the server has sent.
/// Offsets are relative to the sequence number after the SYN.
#[derive(Default)]
pub(super) struct Stream {
    /// MSS of a client whose SYN has no MSS option.
    default_mss: u16,
    /// The client's SYNs.
    offered: Vec<Segment>,
    agreed: Vec<Agreed>,
    /// What was negotiated for this client's connection: the open one, or the most recent one if
    /// none is open.
    current: Option<Agreed>,
    pub(super) is_open: bool,
    /// Whether the application has closed or aborted the connection.
    pub(super) closed: bool,
    /// All bytes that the application has written.
    pub(super) written: Vec<u8>,
    /// Pending calls of the application.
    pub(super) calls: VecDeque<Call>,
    /// Ranges that the client has sent.
    pub(super) sent: Ranges,
    /// Offset after all data that the server has sent.
    pub(super) seen_end: u32,
    /// The highest right edge of the client's window so far.
    edge: u32,
    /// Whether the client has acknowledged data.
    acked: bool,
    /// Number of the client's acknowledgements.
    acks: u32,
    /// The highest right edge of the server's window so far.
    advertised: u32,
    /// All TSvals that the client has sent.
    client_tsvals: HashSet<u32>,
    /// The server's last TSval. Retransmissions do not count.
    tsval: Option<u32>,
    /// End offset and TSval of each of the server's segments with new data. A retransmission must
    /// not have an older TSval than the first transmission.
    first_tsvals: Vec<(u32, u32)>,
    /// The client's segment that the server is handling.
    arriving: Segment,
    /// Number of segments that the server has sent.
    pub(super) segments: u32,
    /// Number of the server's flights without new data.
    pub(super) repeated: u32,
    /// Sequence number after the last of these flights.
    repeated_to: u32,
}

impl Stream {
    pub(super) fn new(v6: bool) -> Self {
        Self {
            default_mss: [DEFAULT_MSS_V4, DEFAULT_MSS_V6][usize::from(v6)],
            ..Self::default()
        }
    }

    /// Returns the sequence number of the client's first byte.
    pub(super) fn start(&self) -> u32 {
        self.current
            .map_or(0, |current| current.irs.wrapping_add(1))
    }

    /// Records the client's segment before the server handles it.
    pub(super) fn arrives(&mut self, segment: &Segment) {
        let (options, _) = read_options(&Layout::Dense.write(&segment.options));
        self.arriving = Segment {
            options,
            ..segment.clone()
        };
        for option in &self.arriving.options {
            if let Opt::Timestamps(value, _) = option {
                self.client_tsvals.insert(*value);
            }
        }
        if is_syn(segment) {
            self.offered.push(self.arriving.clone());
        }
        self.note_sent();
    }

    fn note_sent(&mut self) {
        let len = self.arriving.span();
        let offset = self.arriving.seq.wrapping_sub(self.start());
        add(&mut self.sent, offset, len);
        if offset.cast_signed() < 0 {
            // The segment starts before the stream.
            let before = offset.wrapping_neg();
            add(&mut self.sent, 0, len.saturating_sub(before));
        }
    }

    /// Records that the server has handled the client's segment. If the TX ring is `stalled`, the
    /// server may have sent data that the model has not seen yet.
    pub(super) fn has_arrived(&mut self, stalled: bool) {
        let Some(current) = self.current else {
            return;
        };
        let segment = &self.arriving;
        if segment.bits & (ACK | SYN | RST) != ACK {
            return;
        }
        let offset = |seq: u32| seq.wrapping_sub(current.iss).wrapping_sub(1);
        let ack = offset(segment.ack);
        let sent = if stalled {
            self.written.len() as u32 + 1
        } else {
            self.seen_end
        };
        if ack <= sent {
            self.acks += 1;
            let mut blocks = segment.sack().into_iter();
            self.acked |= ack > 0 || blocks.any(|(from, to)| from != to && offset(from) < sent);
            let window = u32::from(segment.window) << current.shift;
            self.edge = self.edge.max(ack + window);
        }
    }

    /// Records that a connection of the client opens. `iss` is the server's initial sequence
    /// number.
    pub(super) fn open(&mut self, iss: u32) {
        assert!(!self.is_open, "on_accept comes twice");
        let agreed = self.agreed.iter().rev().find(|agreed| agreed.iss == iss);
        let agreed = *agreed.expect("a connection opens without a SYN-ACK");
        self.current = Some(agreed);
        self.written.clear();
        self.closed = false;
        self.sent = Ranges::default();
        self.note_sent();
        self.seen_end = 0;
        self.edge = u32::from(agreed.window);
        self.acked = false;
        self.acks = 0;
        self.advertised = 0;
        self.tsval = None;
        self.first_tsvals.clear();
    }

    /// Checks and counts a segment that the server has sent.
    pub(super) fn server_sent(&mut self, received: &Received) {
        let (sent, before) = (&received.segment, self.seen_end);
        self.check(sent, received.header_len);
        self.segments += 1;
        if self.seen_end == before {
            // A segment that continues the previous segment belongs to the same flight.
            let continues = !sent.is_empty() && sent.seq == self.repeated_to;
            self.repeated += u32::from(!continues);
            self.repeated_to = sent.seq.wrapping_add(sent.len());
        }
    }

    fn check(&mut self, sent: &Segment, header_len: usize) {
        assert!(sent.bits <= 0xff && sent.urgent == 0, "{sent}");
        if sent.has(RST) {
            assert!(sent.is_empty() && !sent.has(SYN | FIN));
            assert_eq!(sent.ecn, 0);
            return;
        }
        assert!(sent.has(ACK));
        if let Some((_, tsecr)) = sent.timestamps() {
            let is_known = self.client_tsvals.contains(&tsecr);
            assert!(is_known, "a TSecr that the client never sent as TSval");
        }
        if sent.has(SYN) {
            self.agree(sent);
        } else {
            assert_eq!((sent.mss(), sent.scale()), (None, None));
            assert!(!sent.sack_permitted());
            if !self.is_of_handshake(sent) {
                self.check_in_connection(sent, header_len);
            }
        }
    }

    /// Checks that a SYN-ACK contains only what a SYN has offered, and records the result.
    fn agree(&mut self, sent: &Segment) {
        let irs = sent.ack.wrapping_sub(1);
        assert_eq!(sent.bits & !(SYN | ACK | ECE), 0);
        assert!(sent.is_empty() && sent.sack().is_empty());
        assert_eq!(sent.ecn, 0);
        let offers = self.offered.iter().filter(|offer| offer.seq == irs);
        let offers: Vec<_> = offers.collect();
        assert!(!offers.is_empty(), "a SYN-ACK without a SYN");
        let default = self.default_mss;
        let mss = offers.iter().map(|offer| offer.mss().unwrap_or(default));
        let mss = mss.max().unwrap_or(default).max(MIN_MSS);
        let shift = offers.iter().filter_map(|offer| offer.scale()).max();
        let (scaled, stamps) = (sent.scale().is_some(), sent.timestamps().is_some());
        assert!(!scaled || shift.is_some(), "a scale without an offer");
        assert!(!sent.sack_permitted() || offers.iter().any(|offer| offer.sack_permitted()));
        assert!(!stamps || offers.iter().any(|offer| offer.timestamps().is_some()));
        let with_ecn = |offer: &&Segment| offer.bits & (ECE | CWR) == ECE | CWR;
        assert!(!sent.has(ECE) || offers.iter().any(with_ecn));
        // A retransmitted SYN-ACK without ECE withdraws ECN (RFC 3168, section 6.1.1).
        let same = |agreed: &&Agreed| (agreed.irs, agreed.iss) == (irs, sent.seq);
        let had_ecn = self.agreed.iter().filter(same).all(|agreed| agreed.ecn);
        let own_shift = sent.scale().unwrap_or(0);
        assert!(own_shift <= MAX_SHIFT);
        self.agreed.push(Agreed {
            irs,
            iss: sent.seq,
            mss: mss.into(),
            shift: shift.filter(|_| scaled).unwrap_or(0).min(MAX_SHIFT),
            own_shift,
            stamps,
            sack: sent.sack_permitted(),
            ecn: sent.has(ECE) && had_ecn,
            window: offers.iter().map(|offer| offer.window).max().unwrap_or(0),
        });
    }

    /// Returns true if `sent` is an ACK of a connection that is not open yet. The SYN-ACK of that
    /// connection may still wait for room in the TX ring.
    fn is_of_handshake(&self, sent: &Segment) -> bool {
        let irs = sent.ack.wrapping_sub(1);
        let is_other = |iss| {
            let known = self.current.filter(|_| self.is_open);
            known.is_none_or(|known| (known.irs, known.iss) != (irs, iss))
        };
        let is_start =
            |agreed: &Agreed| agreed.irs == irs && agreed.iss.wrapping_add(1) == sent.seq;
        sent.span() == 0
            && self.offered.iter().any(|offer| offer.seq == irs)
            && is_other(sent.seq.wrapping_sub(1))
            && (!self.is_open || self.agreed.iter().any(is_start))
    }

    fn check_in_connection(&mut self, sent: &Segment, header_len: usize) {
        let current = self.current.expect("data before a handshake");
        let start = sent.seq.wrapping_sub(current.iss).wrapping_sub(1);
        let end = start.wrapping_add(sent.span());
        let is_new = sent.span() == 0 || end > self.seen_end;
        if sent.span() == 0 {
            let limit = self.written.len() as u32 + 1;
            assert!(start <= limit, "a sequence number after all data");
            assert_eq!(sent.ecn, 0, "an ECN mark without data");
        } else {
            self.check_data(sent, &current, start, header_len);
        }
        self.check_acknowledgement(sent, &current);
        assert_eq!(sent.timestamps().is_some(), current.stamps);
        if let Some((tsval, _)) = sent.timestamps() {
            self.check_tsval(tsval, start, end, is_new);
        }
    }

    /// Checks the TSval of a segment. A retransmission may have an older TSval than other segments,
    /// but not an older TSval than its first transmission. Otherwise the retransmission could look
    /// like a segment of an earlier connection.
    fn check_tsval(&mut self, tsval: u32, start: u32, end: u32, is_new: bool) {
        let first = self.first_tsvals.partition_point(|&(end, _)| end <= start);
        let min_tsval = match self.first_tsvals.get(first) {
            Some(&(_, first)) if !is_new => first,
            _ => self.tsval.unwrap_or(tsval),
        };
        let ahead = tsval.wrapping_sub(min_tsval);
        assert!(ahead.cast_signed() >= 0, "the server's TSval goes back");
        if is_new {
            self.tsval = Some(tsval);
            if start != end {
                self.first_tsvals.push((end, tsval));
            }
        }
    }

    /// Checks a segment with data or a FIN.
    fn check_data(&mut self, sent: &Segment, current: &Agreed, start: u32, header_len: usize) {
        let end = start.wrapping_add(sent.span());
        let data = start as usize..start as usize + sent.data.len();
        let is_last = data.end == self.written.len();
        let written = self.written.get(data);
        assert!(written == Some(&sent.data), "wrong data");
        assert!(
            !sent.has(FIN) || is_last,
            "a FIN before the end of the data"
        );
        assert!(start <= self.seen_end, "a gap before the data");
        assert!(
            end <= self.edge || sent.span() == 1,
            "{} bytes beyond the window",
            end - self.edge
        );
        let segment_len = header_len as u32 - 20 + sent.len();
        assert!(
            segment_len <= current.mss,
            "{segment_len} bytes, MSS {}",
            current.mss
        );
        let first_flight = (INITIAL_WINDOW + self.acks) * current.mss;
        assert!(
            self.acked || end <= first_flight + 1,
            "{end} bytes in the initial window"
        );
        let may_mark = current.ecn && !sent.is_empty() && end > self.seen_end;
        assert!(sent.ecn == 0 || may_mark, "a forbidden ECN mark");
        self.seen_end = self.seen_end.max(end);
    }

    fn check_acknowledgement(&mut self, sent: &Segment, current: &Agreed) {
        let ack = sent.ack.wrapping_sub(self.start());
        let in_order = self.sent.next();
        assert!(u64::from(ack) <= in_order, "an ACK of data never sent");
        let blocks = sent.sack();
        assert!(current.sack || blocks.is_empty());
        for (at, (from, to)) in blocks.into_iter().enumerate() {
            if at == 0 && sent.ack.wrapping_sub(to).cast_signed() >= 0 {
                // A duplicate SACK (RFC 2883), perhaps of data before the SYN.
                assert_ne!(from, to, "an empty SACK block");
                continue;
            }
            let from = from.wrapping_sub(self.start());
            let to = to.wrapping_sub(self.start());
            assert!(from < to, "an empty SACK block");
            let block = from.into()..to.into();
            assert!(self.sent.contains(&block), "a SACK of data never sent");
        }
        let slack = (1 << current.own_shift) - 1;
        let edge = ack + (u32::from(sent.window) << current.own_shift);
        assert!(edge + slack >= self.advertised, "the window shrinks");
        self.advertised = self.advertised.max(edge);
    }
}
