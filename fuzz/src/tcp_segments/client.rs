//! A TCP client that builds valid and deliberately invalid segments.

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use nmio::Instant;
use testkit::{
    ACK, CWR, ECE, FIN, IcmpError, Layout, MAX_OPTIONS, Opt, PSH, RST, Ranges, Route, SYN, Segment,
};

/// A client's segment has fewer data bytes than this number.
pub(super) const MAX_DATA: u16 = 1400;
/// Data at a larger offset does not belong to the current connection.
const MAX_OFFSET: u32 = 1 << 30;

/// A sequence number or a timestamp, relative to the connection's state. `By` and `Far` add a small
/// or a large distance to the next value.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Near {
    Next,
    By(i8),
    Far(i16),
    Start,
    Any(u32),
}

impl Near {
    pub(super) fn of(self, start: u32, next: u32) -> u32 {
        match self {
            Self::Next => next,
            Self::By(by) => next.wrapping_add_signed(by.into()),
            Self::Far(by) => next.wrapping_add_signed(by.into()),
            Self::Start => start,
            Self::Any(any) => any,
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Kind {
    Ack,
    Data,
    Syn,
    Fin,
    Reset,
    Any(u8),
}

/// Options of a segment.
#[derive(Arbitrary, Debug)]
pub enum Choice {
    /// The options that the handshake has negotiated.
    Agreed,
    Mss(u16),
    Scale(u8),
    SackPermitted,
    Stamps(Near, Near),
    /// SACK blocks, each with its start and its length.
    Sack(Vec<(Near, u16)>),
    Bytes(Vec<u8>),
}

/// A description of a segment, relative to the client's state.
#[derive(Arbitrary, Debug)]
pub struct Draft {
    kind: Kind,
    seq: Near,
    ack: Near,
    window: Option<u16>,
    len: u16,
    options: Vec<Choice>,
}

/// Options and ECN flags of a SYN.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Offer {
    mss: Option<u16>,
    scale: Option<u8>,
    sack: bool,
    stamps: bool,
    ecn: bool,
}

/// An ICMP error about a segment of the server. `TooBig` holds an MTU. `Unreachable` holds an ICMP
/// code.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Complaint {
    TooBig(u16),
    Unreachable(u8),
    TimeExceeded,
    Parameter,
    Quench,
}

/// Period of all data in bytes. It divides the sequence space, so the sequence number alone
/// determines a byte.
const PERIOD: usize = 1 << 20;

/// Two periods of data. They are computed only once, because loops over bytes are slow with
/// coverage instrumentation.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let bytes = (0..2 * PERIOD as u32).map(|at| at & (PERIOD as u32 - 1));
    bytes
        .map(|at| (at ^ (at >> 8).wrapping_mul(7) ^ (at >> 15)) as u8)
        .collect()
});

/// Returns `len` bytes of the data. A client sends them from sequence number `seq` on.
pub(super) fn bytes_at(seq: u32, len: usize) -> &'static [u8] {
    &BYTES[seq as usize & (PERIOD - 1)..][..len]
}

/// Adds `len` bytes at `offset` to `ranges`, unless the offset exceeds [`MAX_OFFSET`].
pub(super) fn add(ranges: &mut Ranges, offset: u32, len: u32) {
    if len > 0 && offset <= MAX_OFFSET {
        ranges.add(offset.into()..(offset + len).into());
    }
}

/// Returns true if a segment opens a connection.
pub(super) fn is_syn(segment: &Segment) -> bool {
    segment.bits & (FIN | SYN | RST | ACK) == SYN
}

/// The client's view of its connection.
pub(super) struct Client {
    pub(super) route: Route,
    /// The server's last SYN-ACK. Before the first SYN-ACK, this segment has no control bits.
    syn_ack: Segment,
    /// The server's last acknowledgement number, which is the client's next sequence number.
    pub(super) snd_nxt: u32,
    /// Ranges of the server's stream that have arrived.
    pub(super) received: Ranges,
    /// The client's last acknowledgement number.
    pub(super) acked: u32,
    /// The window of all segments except those whose draft has its own window.
    pub(super) window: u16,
    /// The server's last TSval, which the client returns as TSecr.
    pub(super) tsecr: u32,
    /// The client's TSval in milliseconds.
    pub(super) tsval: u32,
    /// Number of milliseconds by which the TSval is ahead of virtual time.
    pub(super) ahead: u32,
    /// The two ECN bits of the client's packets.
    pub(super) ecn: u8,
    /// ECE and CWR of the client's in-order segments.
    pub(super) control: u16,
    /// Number of segments received since the last acknowledgement.
    pub(super) unacknowledged: u32,
    /// Bit mask that selects which of every eight segments to the client are lost.
    pub(super) loss: u8,
    /// Number of segments that the server has sent to the client, including lost segments.
    pub(super) seen: u32,
}

impl Client {
    pub(super) fn new(route: Route) -> Self {
        Self {
            route,
            syn_ack: Segment::default(),
            snd_nxt: 0,
            received: Ranges::default(),
            acked: 0,
            window: u16::MAX,
            tsecr: 0,
            tsval: 0,
            ahead: 0,
            ecn: 0,
            control: 0,
            unacknowledged: 0,
            loss: 0,
            seen: 0,
        }
    }

    /// Returns the key of the client: its port, and whether it uses IPv6.
    pub(super) fn key(&self) -> (u16, bool) {
        (self.route.src.port, self.route.is_v6())
    }

    pub(super) fn set_clock(&mut self, now: Instant) {
        self.tsval = ((now.as_micros() / 1000) as u32).wrapping_add(self.ahead);
    }

    /// Returns the sequence number of the server's first byte.
    fn first(&self) -> u32 {
        self.syn_ack.seq.wrapping_add(1)
    }

    /// Returns the sequence number of the first missing byte.
    pub(super) fn rcv_nxt(&self) -> u32 {
        self.first().wrapping_add(self.received.next() as u32)
    }

    /// Receives a segment, unless the network loses it. Ignores a reset.
    pub(super) fn take(&mut self, sent: &Segment) {
        self.seen = self.seen.wrapping_add(1);
        if self.loss >> (self.seen % 8) & 1 != 0 || sent.has(RST) {
            return;
        }
        if sent.has(SYN) {
            if (self.syn_ack.seq, self.syn_ack.ack) != (sent.seq, sent.ack) {
                self.received = Ranges::default();
            }
            self.syn_ack = sent.clone();
        } else if self.syn_ack.has(SYN) {
            let offset = sent.seq.wrapping_sub(self.first());
            add(&mut self.received, offset, sent.span());
            self.unacknowledged += u32::from(sent.span() > 0);
        }
        self.snd_nxt = sent.ack;
        if let Some((value, _)) = sent.timestamps() {
            self.tsecr = value;
        }
    }

    /// Returns the negotiated options with their current values: timestamps and SACK blocks.
    fn agreed(&self) -> Vec<Opt> {
        let mut options = Vec::new();
        if self.syn_ack.timestamps().is_some() {
            options.push(Opt::Timestamps(self.tsval, self.tsecr));
        }
        if self.syn_ack.sack_permitted() && self.received.has_holes() {
            let edge = |offset: u64| self.first().wrapping_add(offset as u32);
            let blocks = self.received.by_age().into_iter().take(4 - options.len());
            let blocks = blocks.map(|block| (edge(block.start), edge(block.end)));
            options.push(Opt::Sack(blocks.collect()));
        }
        options
    }

    /// Builds a segment. Its data matches its sequence number.
    fn build(&self, bits: u16, seq: u32, ack: u32, options: Vec<Opt>, len: u16) -> Segment {
        let first = seq.wrapping_add(u32::from(bits & SYN != 0));
        Segment {
            bits,
            seq,
            ack,
            window: self.window,
            ecn: self.ecn,
            options,
            data: bytes_at(first, len.into()).to_vec(),
            ..Segment::default()
        }
    }

    /// Builds a SYN.
    pub(super) fn syn(&self, isn: u32, offer: Offer) -> Segment {
        let options = [
            offer.mss.map(Opt::Mss),
            offer.scale.map(Opt::Scale),
            offer.sack.then_some(Opt::SackPermitted),
            offer.stamps.then_some(Opt::Timestamps(self.tsval, 0)),
        ];
        let bits = if offer.ecn { SYN | ECE | CWR } else { SYN };
        self.build(bits, isn, 0, options.into_iter().flatten().collect(), 0)
    }

    /// Builds a segment with the next `len` bytes. It acknowledges all data before `ack`.
    pub(super) fn in_order(&self, ack: u32, bits: u16, len: u16) -> Segment {
        self.build(bits | self.control, self.snd_nxt, ack, self.agreed(), len)
    }

    /// Builds a segment from its draft.
    pub(super) fn segment(&self, draft: &Draft) -> Segment {
        let (bits, len) = match draft.kind {
            Kind::Ack => (ACK, 0),
            Kind::Data => (ACK | PSH, draft.len % MAX_DATA),
            Kind::Syn => (SYN, 0),
            Kind::Fin => (ACK | FIN, draft.len % 4),
            Kind::Reset => (RST | ACK, 0),
            Kind::Any(bits) => (bits.into(), draft.len % MAX_DATA),
        };
        let isn = self.syn_ack.ack.wrapping_sub(1);
        let seq = draft.seq.of(isn, self.snd_nxt);
        let ack = draft.ack.of(self.syn_ack.seq, self.rcv_nxt());
        Segment {
            window: draft.window.unwrap_or(self.window),
            ..self.build(bits, seq, ack, self.chosen(&draft.options), len)
        }
    }

    /// Returns the chosen options, truncated to the maximum length of options in a header.
    fn chosen(&self, choices: &[Choice]) -> Vec<Opt> {
        let mut options = Vec::new();
        for choice in choices {
            options.push(match choice {
                Choice::Agreed => {
                    options.extend(self.agreed());
                    continue;
                }
                Choice::Mss(mss) => Opt::Mss(*mss),
                Choice::Scale(shift) => Opt::Scale(*shift),
                Choice::SackPermitted => Opt::SackPermitted,
                Choice::Stamps(value, tsecr) => {
                    let value = value.of(self.tsval.wrapping_add(1 << 31), self.tsval);
                    Opt::Timestamps(value, tsecr.of(0, self.tsecr))
                }
                Choice::Sack(blocks) => {
                    let blocks = blocks.iter().take(4).map(|(start, len)| {
                        let start = start.of(self.acked, self.rcv_nxt());
                        (start, start.wrapping_add(u32::from(*len)))
                    });
                    Opt::Sack(blocks.collect())
                }
                Choice::Bytes(any) => Opt::Raw(any.clone()),
            });
        }
        let mut bytes = Layout::Dense.write(&options);
        bytes.truncate(MAX_OPTIONS);
        vec![Opt::Raw(bytes)]
    }

    /// Returns a frame with an ICMP error about the server's segment at `seq`.
    pub(super) fn complaint(&self, complaint: Complaint, seq: u32) -> Vec<u8> {
        let error = match complaint {
            Complaint::TooBig(mtu) => IcmpError::TooBig(mtu.into()),
            Complaint::Unreachable(code) => IcmpError::Unreachable(code),
            Complaint::TimeExceeded => IcmpError::TimeExceeded,
            Complaint::Parameter => IcmpError::ParameterProblem,
            Complaint::Quench => IcmpError::SourceQuench,
        };
        let about = Segment {
            seq,
            data: vec![0; 980],
            ..Segment::default()
        };
        let untagged = Route {
            vlan: None,
            ..self.route.back()
        };
        let about = untagged.segment(&about, Layout::Dense);
        self.route.icmp_error(error, &about)
    }
}
