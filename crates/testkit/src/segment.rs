//! TCP segments as plain values, shown as packetdrill writes them.

use std::fmt;

use etherparse::TcpSlice;

use crate::packet::{HOP_LIMIT, Route, TCP, read};

/// Control bit: the sender has no more data.
pub const FIN: u16 = 1;
/// Control bit: a connection begins.
pub const SYN: u16 = 1 << 1;
/// Control bit: a connection is reset.
pub const RST: u16 = 1 << 2;
/// Control bit: the data goes to the application at once.
pub const PSH: u16 = 1 << 3;
/// Control bit: the acknowledgement number counts.
pub const ACK: u16 = 1 << 4;
/// Control bit: an echo of congestion (RFC 3168).
pub const ECE: u16 = 1 << 6;
/// Control bit: the congestion window was reduced (RFC 3168).
pub const CWR: u16 = 1 << 7;
/// ECN field of a packet that has met congestion (RFC 3168).
pub const CE: u8 = 3;

/// Control bits and their letters. `N` is the nonce sum of RFC 3540; `X` stands
/// for a bit without a meaning yet.
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
/// Bits that nobody may set yet.
const RESERVED: u16 = 0x0e00;

const HEADER_LEN: usize = 20;
/// Bytes of options in a header, at most.
pub const MAX_OPTIONS: usize = 40;
const NO_OPERATION: u8 = 1;

/// An option of a header.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Opt {
    /// Maximum segment size.
    Mss(u16),
    /// Window scale (RFC 7323).
    Scale(u8),
    /// SACK permitted (RFC 2018).
    SackPermitted,
    /// SACK blocks, each with its first number and the one behind it.
    Sack(Vec<(u32, u32)>),
    /// The sender's clock, and the one that it echoes (RFC 7323).
    Timestamps(u32, u32),
    /// Any other kind, and its data.
    Other(u8, Vec<u8>),
    /// Bytes for a header; never read from one.
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

    fn read(kind: u8, data: &[u8]) -> Result<Self, String> {
        let word = |at: usize| u32::from_be_bytes(data[at..at + 4].try_into().expect("4 bytes"));
        Ok(match (kind, data.len()) {
            (2, 2) => Self::Mss(u16::from_be_bytes([data[0], data[1]])),
            (3, 1) => Self::Scale(data[0]),
            (4, 0) => Self::SackPermitted,
            (5, 8 | 16 | 24 | 32) => {
                let block = |at: usize| (word(at), word(at + 4));
                Self::Sack((0..data.len()).step_by(8).map(block).collect())
            }
            (8, 8) => Self::Timestamps(word(0), word(4)),
            (2..=5 | 8, len) => return Err(format!("option {kind} with {len} bytes of data")),
            _ => Self::Other(kind, data.to_vec()),
        })
    }
}

/// Reads options as RFC 9293, section 3.1, has them: those before the first
/// that makes no sense, sorted, and what is wrong with that one.
pub fn read_options(mut bytes: &[u8]) -> (Vec<Opt>, Option<String>) {
    let mut options = Vec::new();
    let mut error = None;
    while let Some((&kind, rest)) = bytes.split_first() {
        if kind == 0 {
            let padded = rest.iter().all(|byte| *byte == 0);
            error = (!padded).then(|| "padding behind the end of the options".into());
            break;
        }
        let len = match (kind, rest.first()) {
            (NO_OPERATION, _) => 1,
            (_, len) => usize::from(len.copied().unwrap_or(0)),
        };
        if kind != NO_OPERATION {
            let data = bytes.get(2..len).ok_or_else(|| "a cut option".to_owned());
            match data.and_then(|data| Opt::read(kind, data)) {
                Ok(option) => options.push(option),
                Err(what) => {
                    error = Some(what);
                    break;
                }
            }
        }
        bytes = &bytes[len..];
    }
    options.sort();
    (options, error)
}

/// How a sender lays out its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One behind the other, in their order.
    Dense,
    /// In the order and at the places that Linux and the BSDs give them, with
    /// no-operations between. Raw bytes are always dense.
    Usual,
}

impl Layout {
    /// The bytes of a header's options, padded.
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

/// A segment, and the ECN field of its IP header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Control bits, reserved ones too.
    pub bits: u16,
    /// Sequence number of the first byte, or of the SYN.
    pub seq: u32,
    /// Acknowledgement number; it counts with [`ACK`].
    pub ack: u32,
    /// The window as it is in the header.
    pub window: u16,
    /// The urgent pointer.
    pub urgent: u16,
    /// The two ECN bits of the IP header.
    pub ecn: u8,
    /// Sorted in a segment that was read.
    pub options: Vec<Opt>,
    /// The payload.
    pub data: Vec<u8>,
}

impl Segment {
    /// Whether any of `bits` is set.
    pub fn has(&self, bits: u16) -> bool {
        self.bits & bits != 0
    }

    /// Bytes of data.
    pub fn len(&self) -> u32 {
        self.data.len() as u32
    }

    /// Whether it has no data.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Numbers of the sequence space: data, SYN and FIN.
    pub fn span(&self) -> u32 {
        self.len() + u32::from(self.has(SYN)) + u32::from(self.has(FIN))
    }

    /// The maximum segment size: the largest, if there are several.
    pub fn mss(&self) -> Option<u16> {
        let mss = |option: &Opt| match option {
            Opt::Mss(mss) => Some(*mss),
            _ => None,
        };
        self.options.iter().filter_map(mss).max()
    }

    /// The window scale: the largest, if there are several.
    pub fn scale(&self) -> Option<u8> {
        let scale = |option: &Opt| match option {
            Opt::Scale(shift) => Some(*shift),
            _ => None,
        };
        self.options.iter().filter_map(scale).max()
    }

    /// Whether the sender takes SACK blocks.
    pub fn sack_permitted(&self) -> bool {
        self.options.contains(&Opt::SackPermitted)
    }

    /// The sender's clock, and the one that it echoes.
    pub fn timestamps(&self) -> Option<(u32, u32)> {
        self.options.iter().find_map(|option| match option {
            Opt::Timestamps(value, echo) => Some((*value, *echo)),
            _ => None,
        })
    }

    /// All SACK blocks.
    pub fn sack(&self) -> Vec<(u32, u32)> {
        let blocks = |option: &Opt| match option {
            Opt::Sack(blocks) => blocks.clone(),
            _ => Vec::new(),
        };
        self.options.iter().flat_map(blocks).collect()
    }
}

/// A line of packetdrill's, without its time: `P. 1:1001(1000) ack 1 win 65535`.
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
    /// A frame with this segment.
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

/// A segment that was sent, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Who has sent it, and to whom.
    pub route: Route,
    /// Bytes of the TCP header.
    pub header_len: usize,
    /// The segment, its options sorted.
    pub segment: Segment,
}

/// Reads a frame with a TCP segment, see [`read`].
///
/// # Errors
/// What is wrong.
pub fn read_segment(frame: &[u8]) -> Result<Received, String> {
    let packet = read(frame)?;
    if packet.protocol != TCP || packet.hop_limit != HOP_LIMIT {
        return Err(format!("no TCP of ours: {packet:?}"));
    }
    let tcp = TcpSlice::from_slice(packet.payload).map_err(|error| error.to_string())?;
    let bits = u16::from_be_bytes([packet.payload[12], packet.payload[13]]) & 0xfff;
    if bits & RESERVED != 0 {
        return Err("reserved bits are set".into());
    }
    let (options, error) = read_options(tcp.options());
    match error {
        Some(what) => Err(what),
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
