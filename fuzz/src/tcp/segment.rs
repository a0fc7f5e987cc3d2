//! Segments as bytes: options as a client writes them, and what the server
//! sends, taken apart without the stack's own code.

use std::fmt;

use ip::Packet;

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const PSH: u8 = 8;
pub(super) const ACK: u8 = 16;
pub(super) const ECE: u8 = 64;
pub(super) const CWR: u8 = 128;

const HEADER_LEN: usize = 20;
/// Bytes of options in a header, at most.
pub(super) const MAX_OPTIONS: usize = 40;
/// The largest shift of a window (RFC 7323, section 2.3).
pub(super) const MAX_SHIFT: u8 = 14;

const KIND_MSS: u8 = 2;
const KIND_SCALE: u8 = 3;
const KIND_SACK_PERMITTED: u8 = 4;
const KIND_SACK: u8 = 5;
const KIND_STAMPS: u8 = 8;

/// The options of a header that mean something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) mss: Option<u16>,
    pub(super) scale: Option<u8>,
    pub(super) sack_permitted: bool,
    /// The sender's clock, and what it has last seen of ours.
    pub(super) stamps: Option<(u32, u32)>,
    pub(super) sack: Vec<(u32, u32)>,
}

impl Options {
    /// Reads `bytes`, and panics unless `lenient` where they make no sense.
    /// Of what is there twice the larger counts.
    pub(super) fn parse(bytes: &[u8], lenient: bool) -> Self {
        let mut options = Self::default();
        let mut rest = bytes;
        loop {
            match rest {
                [] | [0, ..] => return options,
                [1, more @ ..] => rest = more,
                [kind, len, ..] if usize::from(*len) >= 2 && usize::from(*len) <= rest.len() => {
                    let (option, more) = rest.split_at(usize::from(*len));
                    options.take(*kind, &option[2..]);
                    rest = more;
                }
                other => {
                    assert!(lenient, "options that make no sense: {other:?}");
                    return options;
                }
            }
        }
    }

    fn take(&mut self, kind: u8, value: &[u8]) {
        let number = |at: usize| u32::from_be_bytes(value[at..at + 4].try_into().expect("four"));
        match (kind, value.len()) {
            (KIND_MSS, 2) => {
                let mss = u16::from_be_bytes([value[0], value[1]]);
                self.mss = self.mss.max(Some(mss));
            }
            (KIND_SCALE, 1) => self.scale = self.scale.max(Some(value[0])),
            (KIND_SACK_PERMITTED, 0) => self.sack_permitted = true,
            (KIND_STAMPS, 8) => self.stamps = Some((number(0), number(4))),
            (KIND_SACK, len) if len % 8 == 0 => {
                let blocks = (0..len / 8).map(|i| (number(i * 8), number(i * 8 + 4)));
                self.sack.extend(blocks);
            }
            _ => {}
        }
    }

    /// The bytes, as far as there is room for whole options.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(mss) = self.mss {
            bytes.extend([KIND_MSS, 4]);
            bytes.extend(mss.to_be_bytes());
        }
        if let Some(scale) = self.scale {
            bytes.extend([KIND_SCALE, 3, scale]);
        }
        if self.sack_permitted {
            bytes.extend([KIND_SACK_PERMITTED, 2]);
        }
        if let Some((value, echo)) = self.stamps {
            bytes.extend([KIND_STAMPS, 10]);
            bytes.extend(value.to_be_bytes());
            bytes.extend(echo.to_be_bytes());
        }
        let room = MAX_OPTIONS.saturating_sub(bytes.len() + 2) / 8;
        let blocks = &self.sack[..room.min(self.sack.len())];
        if !blocks.is_empty() {
            bytes.extend([KIND_SACK, 2 + 8 * blocks.len() as u8]);
            for (start, end) in blocks {
                bytes.extend(start.to_be_bytes());
                bytes.extend(end.to_be_bytes());
            }
        }
        bytes
    }
}

/// A segment of the server's.
pub(super) struct Sent<'a> {
    pub(super) own_port: u16,
    pub(super) peer_port: u16,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) control: u8,
    pub(super) window: u16,
    pub(super) options: Options,
    /// Bytes that the options take.
    pub(super) options_len: usize,
    pub(super) data: &'a [u8],
    /// The two bits of the IP header (RFC 3168).
    pub(super) ecn: u8,
}

impl fmt::Debug for Sent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = "FSRPAUEC".chars().enumerate();
        let bits: String = bits
            .filter_map(|(at, letter)| (self.control >> at & 1 != 0).then_some(letter))
            .collect();
        let Self {
            seq, ack, window, ..
        } = self;
        write!(f, "{bits} seq {seq} ack {ack} window {window}")?;
        write!(f, " len {} {:?}", self.data.len(), self.options)
    }
}

impl<'a> Sent<'a> {
    /// Takes apart what the server has sent; whatever is not as it must be
    /// in every segment panics.
    pub(super) fn parse(packet: &'a Packet, ecn: u8) -> Self {
        let tcp = packet.payload();
        let word = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let number = |at: usize| u32::from(word(at)) << 16 | u32::from(word(at + 2));
        let data_at = usize::from(tcp[12] >> 4) * 4;
        assert!(data_at >= HEADER_LEN, "a header that is too short");
        assert_eq!(tcp[12] & 0xf, 0, "reserved bits");
        assert_eq!(word(18), 0, "nothing is urgent");
        Self {
            own_port: word(0),
            peer_port: word(2),
            seq: number(4),
            ack: number(8),
            control: tcp[13],
            window: word(14),
            options: Options::parse(&tcp[HEADER_LEN..data_at], false),
            options_len: data_at - HEADER_LEN,
            data: &tcp[data_at..],
            ecn,
        }
    }

    pub(super) fn has(&self, bits: u8) -> bool {
        self.control & bits != 0
    }

    /// What it takes of the sequence space: data, SYN and FIN.
    pub(super) fn len(&self) -> u32 {
        self.data.len() as u32 + u32::from(self.has(SYN)) + u32::from(self.has(FIN))
    }
}

/// Parts of a sequence space, as offsets from its start.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges(Vec<(u32, u32)>);

/// Offsets beyond this are of something else.
const MAX_OFFSET: u32 = 1 << 30;

impl Ranges {
    pub(super) fn insert(&mut self, start: u32, len: u32) {
        if len == 0 || start > MAX_OFFSET {
            return;
        }
        let end = start + len;
        let from = self.0.partition_point(|range| range.1 < start);
        let to = self.0.partition_point(|range| range.0 <= end);
        let touched = &self.0[from..to];
        let first = touched.first().map_or(start, |range| range.0.min(start));
        let last = touched.last().map_or(end, |range| range.1.max(end));
        self.0.splice(from..to, [(first, last)]);
    }

    /// How far it is whole from the start.
    pub(super) fn prefix(&self) -> u32 {
        self.0
            .first()
            .map_or(0, |first| if first.0 == 0 { first.1 } else { 0 })
    }

    pub(super) fn contains(&self, start: u32, end: u32) -> bool {
        let at = self.0.partition_point(|range| range.1 < end);
        self.0
            .get(at)
            .is_some_and(|range| range.0 <= start && end <= range.1)
    }

    /// What lies behind the first gap.
    pub(super) fn islands(&self) -> &[(u32, u32)] {
        &self.0[usize::from(self.prefix() > 0)..]
    }
}
