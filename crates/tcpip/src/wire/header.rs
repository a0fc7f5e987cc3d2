//! The TCP header (RFC 9293, section 3.1).

use std::ops::{BitAnd, BitOr};

use ip::Sum;

use super::Seq;

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;
/// Where the checksum field lies in the header.
pub const CHECKSUM_AT: usize = 16;

/// Bytes that the timestamps option takes with its padding (RFC 7323,
/// appendix A). Prepared segments keep this place, so that they are the same
/// for clients with the option and without it.
pub const TIMESTAMPS_LEN: usize = 12;
/// Bytes of TCP header in a prepared segment: with place for timestamps.
pub const TIMESTAMPED_HEADER_LEN: usize = HEADER_LEN + TIMESTAMPS_LEN;
/// Two no-operations, kind and length of the option.
const TIMESTAMPS_WORD: u32 = 0x0101_080a;

/// The timestamps option (RFC 7323, section 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timestamps {
    /// The sender's clock.
    pub value: u32,
    /// What the sender has last received of the other's.
    pub echo: u32,
}

impl Timestamps {
    /// Reads options that are the recommended form and nothing else.
    #[inline(always)]
    fn read_aligned(options: &[u8]) -> Option<Self> {
        let option: &[u8; TIMESTAMPS_LEN] = options.first_chunk()?;
        let word = |at: usize| {
            u32::from_be_bytes([option[at], option[at + 1], option[at + 2], option[at + 3]])
        };
        (word(0) == TIMESTAMPS_WORD).then(|| Self {
            value: word(4),
            echo: word(8),
        })
    }
}

/// The control bits, as the header's octet has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Control(pub u8);

impl Control {
    /// No more data from the sender.
    pub const FIN: Self = Self(1);
    /// Sequence numbers are synchronized.
    pub const SYN: Self = Self(2);
    /// The connection is reset.
    pub const RST: Self = Self(4);
    /// The data is for the application at once.
    pub const PSH: Self = Self(8);
    /// The acknowledgement number counts.
    pub const ACK: Self = Self(16);
    /// An echo of congestion (RFC 3168, section 6.1).
    pub const ECE: Self = Self(64);
    /// The congestion window was reduced (RFC 3168, section 6.1).
    pub const CWR: Self = Self(128);
    /// The bits by which segments are told apart.
    pub const KIND: Self = Self(Self::FIN.0 | Self::SYN.0 | Self::RST.0 | Self::ACK.0);

    /// Whether any of `bits` is set.
    #[inline(always)]
    pub const fn has(self, bits: Self) -> bool {
        self.0 & bits.0 != 0
    }
}

impl BitOr for Control {
    type Output = Self;
    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Control {
    type Output = Self;
    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// A received segment, taken apart. Its data lies behind the header in the
/// packet: `payload[data_at..][..len]`. Passed by value, so that the usual case
/// has it in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// Of its first byte of data, or of its SYN.
    pub seq: Seq,
    /// What the sender expects next, if the segment has [`Control::ACK`].
    pub ack: Seq,
    /// Its control bits.
    pub control: Control,
    /// As the field has it: scaled (RFC 7323, section 2.2).
    pub window: u16,
    /// Where the data starts, from the start of the header.
    pub data_at: u16,
    /// Bytes of data.
    pub len: u16,
    /// Of the option, if it is there and stands where nearly all put it;
    /// otherwise [`Options`](super::Options) have it.
    pub timestamps: Option<Timestamps>,
}

impl Segment {
    /// Reads the header at the start of an IP payload, whatever is in it. `None`
    /// when it is cut, when its data offset points outside, or when there is more
    /// than an IP packet holds. The checksum is not looked at.
    #[inline(always)]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_LEN] = payload.first_chunk()?;
        let u16_at = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let u32_at = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let data_at = u16::from(header[12] >> 4) * 4;
        if usize::from(data_at) < HEADER_LEN {
            return None;
        }
        let len = payload.len().checked_sub(usize::from(data_at))?;
        let timestamps = if data_at == TIMESTAMPED_HEADER_LEN as u16 {
            Timestamps::read_aligned(&payload[HEADER_LEN..])
        } else {
            None
        };
        Some(Self {
            src_port: u16_at(0),
            dst_port: u16_at(2),
            seq: Seq(u32_at(4)),
            ack: Seq(u32_at(8)),
            control: Control(header[13]),
            window: u16_at(14),
            data_at,
            len: u16::try_from(len).ok()?,
            timestamps,
        })
    }

    /// Whether there are options beside those that are read already.
    #[inline(always)]
    pub fn has_more_options(&self) -> bool {
        usize::from(self.data_at) > HEADER_LEN && self.timestamps.is_none()
            || usize::from(self.data_at) > TIMESTAMPED_HEADER_LEN
    }

    /// What the segment occupies in sequence space: data, SYN and FIN.
    #[inline(always)]
    pub fn sequence_len(&self) -> u32 {
        u32::from(self.len)
            + u32::from(self.control.has(Control::SYN))
            + u32::from(self.control.has(Control::FIN))
    }
}

/// The fields of a header that we write; ports, checksum and the options of
/// SYNs and selective acknowledgements apart.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Of the first byte of data, or of the SYN.
    pub seq: Seq,
    /// What we expect next.
    pub ack: Seq,
    /// Its control bits.
    pub control: Control,
    /// As the field has it: scaled.
    pub window: u16,
    /// Written behind the fixed part, if there are some.
    pub timestamps: Option<Timestamps>,
}

#[expect(clippy::len_without_is_empty, reason = "no header is empty")]
impl Header {
    /// Bytes of the header without further options.
    #[inline(always)]
    pub const fn len(&self) -> usize {
        if self.timestamps.is_some() {
            TIMESTAMPED_HEADER_LEN
        } else {
            HEADER_LEN
        }
    }

    /// Data offset and control bits, for a header of `len` bytes: its fifth
    /// word.
    #[inline(always)]
    const fn offset_and_control(&self, len: usize) -> u16 {
        ((len / 4) as u16) << 12 | self.control.0 as u16
    }

    /// What the header adds to a checksum, but for the ports; it has `more`
    /// bytes of other options, which are not summed here.
    #[inline(always)]
    pub fn sum(&self, more: usize) -> Sum {
        let sum = Sum::ZERO
            .dword(self.seq.0)
            .dword(self.ack.0)
            .word(self.offset_and_control(self.len() + more))
            .word(self.window);
        match self.timestamps {
            Some(timestamps) => sum
                .dword(TIMESTAMPS_WORD)
                .dword(timestamps.value)
                .dword(timestamps.echo),
            None => sum,
        }
    }

    /// Writes the header to the start of `segment`. `more` bytes of other options
    /// follow it.
    ///
    /// # Panics
    /// If `segment` is shorter than the header.
    #[inline(always)]
    pub fn write(
        &self,
        segment: &mut [u8],
        (own_port, peer_port): (u16, u16),
        checksum: u16,
        more: usize,
    ) {
        let header: &mut [u8; HEADER_LEN] = segment
            .first_chunk_mut()
            .expect("a segment holds its header");
        header[..2].copy_from_slice(&own_port.to_be_bytes());
        header[2..4].copy_from_slice(&peer_port.to_be_bytes());
        header[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        header[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        let offset_and_control = self.offset_and_control(self.len() + more);
        header[12..14].copy_from_slice(&offset_and_control.to_be_bytes());
        header[14..16].copy_from_slice(&self.window.to_be_bytes());
        header[16..18].copy_from_slice(&checksum.to_be_bytes());
        header[18..20].fill(0);
        if let Some(timestamps) = self.timestamps {
            let option: &mut [u8; TIMESTAMPS_LEN] = segment[HEADER_LEN..]
                .first_chunk_mut()
                .expect("a segment holds its header");
            option[..4].copy_from_slice(&TIMESTAMPS_WORD.to_be_bytes());
            option[4..8].copy_from_slice(&timestamps.value.to_be_bytes());
            option[8..].copy_from_slice(&timestamps.echo.to_be_bytes());
        }
    }
}

#[cfg(test)]
#[path = "header_tests.rs"]
mod tests;
