//! TCP segments as plain values, displayed in packetdrill's notation.

use std::fmt;

use etherparse::TcpSlice;

use crate::packet::{HOP_LIMIT, Route, TCP, read};

/// Control bit: the sender has no more data.
pub const FIN: u16 = 1;
/// Control bit: opens a connection.
pub const SYN: u16 = 1 << 1;
/// Control bit: resets a connection.
pub const RST: u16 = 1 << 2;
/// Control bit: the receiver must not delay the delivery of the data to its application.
pub const PSH: u16 = 1 << 3;
/// Control bit: the acknowledgement number is valid.
pub const ACK: u16 = 1 << 4;
/// Control bit: echoes a congestion mark (RFC 3168).
pub const ECE: u16 = 1 << 6;
/// Control bit: the sender has reduced its congestion window (RFC 3168).
pub const CWR: u16 = 1 << 7;
/// ECN field of a packet with a congestion mark (RFC 3168).
pub const CE: u8 = 3;

/// The control bits, and the letters that stand for them when a segment is displayed. `N` is the
/// nonce sum of RFC 3540. `X` is a bit that no RFC has assigned.
pub const LETTERS: [(char, u16); 10] = [
    ('S', SYN),
    ('F', FIN),
    ('R', RST),
    ('P', PSH),
    ('U', 1 << 5),
    ('E', ECE),
    ('W', CWR),
    ('N', 1 << 8),
    ('X', 1 << 9),
    ('.', ACK),
];
/// The reserved control bits that [`read_segment`] requires to be zero. The bit of RFC 3540's nonce
/// sum is not among them.
const RESERVED: u16 = 0x0e00;

const HEADER_LEN: usize = 20;
/// Maximum number of option bytes in a header.
pub const MAX_OPTIONS: usize = 40;
const NO_OPERATION: u8 = 1;

/// An option of a TCP header.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Opt {
    /// Maximum segment size in bytes.
    Mss(u16),
    /// Window scale (RFC 7323). The value is the shift count.
    Scale(u8),
    /// SACK permitted (RFC 2018).
    SackPermitted,
    /// SACK blocks (RFC 2018). Each block is given as two edges: its first sequence number, and the
    /// sequence number after its last byte.
    Sack(Vec<(u32, u32)>),
    /// Timestamps (RFC 7323). The values are `TSval` and `TSecr`.
    Timestamps(u32, u32),
    /// An option of another kind, or with a wrong length. The values are its kind and data.
    Other(u8, Vec<u8>),
    /// Arbitrary bytes to write. [`read_options`] never returns this variant.
    Raw(Vec<u8>),
}

impl Opt {
    fn write(&self, out: &mut Vec<u8>) {
        let (kind, data) = match self {
            Self::Mss(mss) => (2, mss.to_be_bytes().to_vec()),
            Self::Scale(shift) => (3, vec![*shift]),
            Self::SackPermitted => (4, Vec::new()),
            Self::Sack(blocks) => {
                let edges = blocks.iter().flat_map(|(left, right)| [left, right]);
                (5, edges.flat_map(|edge| edge.to_be_bytes()).collect())
            }
            Self::Timestamps(value, echo) => {
                (8, [value.to_be_bytes(), echo.to_be_bytes()].concat())
            }
            Self::Other(kind, data) => (*kind, data.clone()),
            Self::Raw(bytes) => return out.extend(bytes),
        };
        out.extend([kind, 2 + data.len() as u8]);
        out.extend(data);
    }

    fn read(kind: u8, data: &[u8]) -> Self {
        let word = |at: usize| u32::from_be_bytes(data[at..at + 4].try_into().expect("4 bytes"));
        match (kind, data.len()) {
            (2, 2) => Self::Mss(u16::from_be_bytes([data[0], data[1]])),
            (3, 1) => Self::Scale(data[0]),
            (4, 0) => Self::SackPermitted,
            (5, 8 | 16 | 24 | 32) => {
                let block = |at: usize| (word(at), word(at + 4));
                Self::Sack((0..data.len()).step_by(8).map(block).collect())
            }
            (8, 8) => Self::Timestamps(word(0), word(4)),
            _ => Self::Other(kind, data.to_vec()),
        }
    }
}

/// Reads the options of a TCP header (RFC 9293, section 3.1). Returns the options before the first
/// error, sorted and without padding. Also returns a description of the error, if there is one.
pub fn read_options(mut bytes: &[u8]) -> (Vec<Opt>, Option<&'static str>) {
    let mut options = Vec::new();
    let error = loop {
        match bytes {
            [] => break None,
            [0, padding @ ..] => {
                let is_zero = padding.iter().all(|byte| *byte == 0);
                break (!is_zero).then_some("padding that is not zero");
            }
            [NO_OPERATION, rest @ ..] => bytes = rest,
            [kind, len, ..] if (2..=bytes.len()).contains(&usize::from(*len)) => {
                let (option, rest) = bytes.split_at(usize::from(*len));
                options.push(Opt::read(*kind, &option[2..]));
                bytes = rest;
            }
            _ => break Some("a truncated option"),
        }
    };
    options.sort();
    (options, error)
}

/// How a sender lays out its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// In the given order, without padding between the options.
    Dense,
    /// In the order that Linux uses in a SYN, with no-operation options that align the options. If
    /// an option is [`Opt::Raw`], the layout is always dense.
    Usual,
}

impl Layout {
    /// Returns the option bytes of a header, padded to a multiple of four bytes.
    pub fn write(self, options: &[Opt]) -> Vec<u8> {
        let mut options: Vec<&Opt> = options.iter().collect();
        let is_raw = |option: &&Opt| matches!(option, Opt::Raw(_));
        let usual = self == Self::Usual && !options.iter().any(is_raw);
        if usual {
            options.sort_by_key(|option| match option {
                Opt::Mss(_) => 0,
                Opt::SackPermitted => 1,
                Opt::Timestamps(..) => 2,
                Opt::Scale(_) => 3,
                _ => 4,
            });
        }
        let mut out = Vec::new();
        for option in options {
            let before = match option {
                _ if !usual => 0,
                Opt::Mss(_) => 0,
                Opt::Scale(_) => 1,
                _ => 2,
            };
            out.extend(std::iter::repeat_n(NO_OPERATION, before));
            option.write(&mut out);
        }
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }
}

/// A TCP segment with the ECN field of its IP header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Control bits, including reserved ones.
    pub bits: u16,
    /// Sequence number of the first byte, or of the SYN.
    pub seq: u32,
    /// Acknowledgement number. It is valid only with [`ACK`].
    pub ack: u32,
    /// Window field of the header, before scaling.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// The two ECN bits of the IP header.
    pub ecn: u8,
    /// Options. [`read_segment`] sorts them.
    pub options: Vec<Opt>,
    /// The payload.
    pub data: Vec<u8>,
}

/// Returns an iterator over the values of those options of a segment that match a pattern.
macro_rules! values {
    ($segment:expr, $pattern:pat => $value:expr) => {
        $segment.options.iter().filter_map(|option| match option {
            $pattern => Some($value),
            _ => None,
        })
    };
}

impl Segment {
    /// A segment from a client with the largest window without scaling. A SYN has an MSS of 1,460
    /// bytes.
    pub fn of_client(bits: u16, seq: u32, ack: u32, data: &[u8]) -> Self {
        Self {
            bits,
            seq,
            ack,
            window: u16::MAX,
            options: vec![Opt::Mss(1460); usize::from(bits == SYN)],
            data: data.to_vec(),
            ..Self::default()
        }
    }

    /// Returns true if any of `bits` is set.
    pub fn has(&self, bits: u16) -> bool {
        self.bits & bits != 0
    }

    /// Returns the number of data bytes.
    pub fn len(&self) -> u32 {
        self.data.len() as u32
    }

    /// Returns true if the segment has no data.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Returns the number of sequence numbers that the data, SYN and FIN occupy.
    pub fn span(&self) -> u32 {
        self.len() + u32::from(self.has(SYN)) + u32::from(self.has(FIN))
    }

    /// Returns the value of the MSS option, or the largest value if the option is repeated.
    pub fn mss(&self) -> Option<u16> {
        values!(self, Opt::Mss(mss) => *mss).max()
    }

    /// Returns the shift count of the window scale option, or the largest if the option is
    /// repeated.
    pub fn scale(&self) -> Option<u8> {
        values!(self, Opt::Scale(shift) => *shift).max()
    }

    /// Returns true if the segment has the option SACK permitted.
    pub fn sack_permitted(&self) -> bool {
        self.options.contains(&Opt::SackPermitted)
    }

    /// Returns `TSval` and `TSecr` of the first timestamps option.
    pub fn timestamps(&self) -> Option<(u32, u32)> {
        values!(self, Opt::Timestamps(value, echo) => (*value, *echo)).next()
    }

    /// Returns the blocks of all SACK options.
    pub fn sack(&self) -> Vec<(u32, u32)> {
        values!(self, Opt::Sack(blocks) => blocks.clone())
            .flatten()
            .collect()
    }
}

/// Writes a packetdrill line without its time, such as `P. 1:1001(1000) ack 1 win 65535`.
impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["", "[ect1] ", "[ect0] ", "[ce] "][usize::from(self.ecn)])?;
        for (letter, _) in LETTERS.iter().filter(|(_, bit)| self.has(*bit)) {
            write!(f, "{letter}")?;
        }
        if self.bits == 0 {
            write!(f, "-")?;
        }
        let (seq, len) = (self.seq.cast_signed(), self.len());
        write!(f, " {seq}:{}({len})", seq.wrapping_add_unsigned(len))?;
        if self.has(ACK) {
            write!(f, " ack {}", self.ack.cast_signed())?;
        }
        write!(f, " win {}", self.window)?;
        if self.urgent != 0 {
            write!(f, " urg {}", self.urgent)?;
        }
        if !self.options.is_empty() {
            let options: Vec<_> = self.options.iter().map(ToString::to_string).collect();
            write!(f, " <{}>", options.join(","))?;
        }
        Ok(())
    }
}

impl fmt::Display for Opt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mss(mss) => write!(f, "mss {mss}"),
            Self::Scale(shift) => write!(f, "wscale {shift}"),
            Self::SackPermitted => write!(f, "sackOK"),
            Self::Timestamps(value, echo) => write!(f, "TS val {value} ecr {echo}"),
            Self::Sack(blocks) => {
                write!(f, "sack")?;
                let mut blocks = blocks.iter();
                blocks.try_for_each(|(left, right)| {
                    write!(f, " {}:{}", left.cast_signed(), right.cast_signed())
                })
            }
            Self::Other(kind, data) => write!(f, "kind {kind} {data:02x?}"),
            Self::Raw(bytes) => write!(f, "raw {bytes:02x?}"),
        }
    }
}

impl Route {
    /// Returns a frame with this segment.
    pub fn segment(&self, segment: &Segment, layout: Layout) -> Vec<u8> {
        let options = layout.write(&segment.options);
        let words = (HEADER_LEN + options.len()) as u16 / 4;
        let mut tcp = Vec::with_capacity(HEADER_LEN + options.len() + segment.data.len());
        tcp.extend(self.src.port.to_be_bytes());
        tcp.extend(self.dst.port.to_be_bytes());
        tcp.extend(segment.seq.to_be_bytes());
        tcp.extend(segment.ack.to_be_bytes());
        for field in [
            words << 12 | segment.bits,
            segment.window,
            0,
            segment.urgent,
        ] {
            tcp.extend(field.to_be_bytes());
        }
        tcp.extend(options);
        tcp.extend_from_slice(&segment.data);
        self.marked_packet(TCP, segment.ecn, &tcp)
    }
}

/// A segment read from a frame, with its sender and receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Sender and receiver.
    pub route: Route,
    /// Length of the TCP header in bytes.
    pub header_len: usize,
    /// The segment. Its options are sorted.
    pub segment: Segment,
}

/// Reads a frame with a TCP segment. Like [`read`], accepts only what our stack sends.
///
/// # Errors
/// The error describes what is wrong with the frame.
pub fn read_segment(frame: &[u8]) -> Result<Received, String> {
    let packet = read(frame)?;
    if packet.protocol != TCP || packet.hop_limit != HOP_LIMIT {
        return Err(format!("not a TCP segment of ours: {packet:?}"));
    }
    let tcp = TcpSlice::from_slice(packet.payload).map_err(|error| error.to_string())?;
    let bits = u16::from_be_bytes([packet.payload[12], packet.payload[13]]) & 0xfff;
    if bits & RESERVED != 0 {
        return Err("reserved bits are set".into());
    }
    let (options, error) = read_options(tcp.options());
    let is_wrong = |option: &&Opt| matches!(option, Opt::Other(2..=5 | 8, _));
    if let Some(option) = options.iter().find(is_wrong) {
        return Err(format!("an option of a wrong length: {option}"));
    }
    match error {
        Some(what) => Err(what.into()),
        None => Ok(Received {
            route: packet.route,
            header_len: tcp.header_slice().len(),
            segment: Segment {
                bits,
                seq: tcp.sequence_number(),
                ack: tcp.acknowledgment_number(),
                window: tcp.window_size(),
                urgent: tcp.urgent_pointer(),
                ecn: packet.ecn,
                options,
                data: tcp.payload().to_vec(),
            },
        }),
    }
}
