//! The TCP header (RFC 9293, section 3.1).

use std::ops::{BitAnd, BitOr};

use ip::Sum;

use super::Seq;

/// Length of a header without options, in bytes.
pub const HEADER_LEN: usize = 20;
/// Offset of the checksum field in the header.
pub const CHECKSUM_AT: usize = 16;

/// Length of the timestamps option with its padding, in bytes (RFC 7323, appendix A). Prepared
/// segments reserve this space, so clients with and without timestamps share the same segments.
pub const TIMESTAMPS_LEN: usize = 12;
/// Length of the TCP header in a prepared segment, including the space for timestamps, in bytes.
pub const TIMESTAMPED_HEADER_LEN: usize = HEADER_LEN + TIMESTAMPS_LEN;
/// First word of the padded timestamps option: two no-operations, then the option's kind and
/// length.
const TIMESTAMPS_WORD: u32 = 0x0101_080a;

/// The timestamps option (RFC 7323, section 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timestamps {
    /// The sender's timestamp (`TSval`).
    pub tsval: u32,
    /// The most recent TSval that the sender has accepted from the other side (`TSecr`).
    pub tsecr: u32,
}

impl Timestamps {
    /// Reads timestamps at the start of the options, in the layout that RFC 7323, appendix A,
    /// recommends. Returns `None` for any other layout.
    #[inline(always)]
    fn read_aligned(options: &[u8]) -> Option<Self> {
        let option: &[u8; TIMESTAMPS_LEN] = options.first_chunk()?;
        let word = |at: usize| {
            u32::from_be_bytes([option[at], option[at + 1], option[at + 2], option[at + 3]])
        };
        (word(0) == TIMESTAMPS_WORD).then(|| Self {
            tsval: word(4),
            tsecr: word(8),
        })
    }
}

/// The control bits, as in octet 13 of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Control(pub u8);

impl Control {
    /// The sender has no more data.
    pub const FIN: Self = Self(1);
    /// The segment carries the sender's initial sequence number.
    pub const SYN: Self = Self(2);
    /// The sender resets the connection.
    pub const RST: Self = Self(4);
    /// The receiver should pass the data to the application immediately.
    pub const PSH: Self = Self(8);
    /// The acknowledgement number is valid.
    pub const ACK: Self = Self(16);
    /// The sender has received a packet with a congestion mark (RFC 3168, section 6.1).
    pub const ECE: Self = Self(64);
    /// The sender has reduced its congestion window (RFC 3168, section 6.1).
    pub const CWR: Self = Self(128);
    /// FIN, SYN, RST and ACK: the bits that determine the kind of a segment.
    pub const KIND: Self = Self(Self::FIN.0 | Self::SYN.0 | Self::RST.0 | Self::ACK.0);

    /// Returns true if any of `bits` is set.
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

/// The header fields of a received segment. Its data follows the header in the IP payload, at
/// `payload[data_at..][..len]`. The struct is passed by value, so that it normally stays in
/// registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// Sequence number of the segment's first byte of data, SYN or FIN.
    pub seq: Seq,
    /// Next sequence number that the sender expects. It is valid only if [`Control::ACK`] is set.
    pub ack: Seq,
    /// The control bits.
    pub control: Control,
    /// The window field, not yet scaled (RFC 7323, section 2.2).
    pub window: u16,
    /// Offset of the data from the start of the TCP header, in bytes.
    pub data_at: u16,
    /// Length of the data in bytes.
    pub len: u16,
    /// The timestamps option. [`parse`](Self::parse) reads it only if it is the only option and has the
    /// layout of RFC 7323, appendix A. [`Options::read`](super::Options::read) reads it in all other
    /// cases.
    pub timestamps: Option<Timestamps>,
}

impl Segment {
    /// Parses the TCP header at the start of an IP payload, without verifying the checksum. Returns
    /// `None` if the header is truncated, the data offset is invalid, or the payload is longer than
    /// an IP packet allows.
    #[inline(always)]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        if !(HEADER_LEN..=usize::from(u16::MAX)).contains(&payload.len()) {
            return None;
        }
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
            len: len as u16,
            timestamps,
        })
    }

    /// Returns true if the header contains options that [`parse`](Self::parse) has not read.
    #[inline(always)]
    pub fn has_more_options(&self) -> bool {
        usize::from(self.data_at) > HEADER_LEN && self.timestamps.is_none()
            || usize::from(self.data_at) > TIMESTAMPED_HEADER_LEN
    }

    /// Returns how many sequence numbers the segment occupies: one for each byte of data, one for a
    /// SYN and one for a FIN.
    #[inline(always)]
    pub fn sequence_len(&self) -> u32 {
        u32::from(self.len)
            + u32::from(self.control.has(Control::SYN))
            + u32::from(self.control.has(Control::FIN))
    }
}

/// A TCP header to send. The ports, the checksum and all options except timestamps are supplied
/// separately.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Sequence number of the segment's first byte of data, SYN or FIN.
    pub seq: Seq,
    /// Next sequence number that we expect.
    pub ack: Seq,
    /// The control bits.
    pub control: Control,
    /// The window field, already scaled.
    pub window: u16,
    /// The timestamps option, which is written after the fixed header.
    pub timestamps: Option<Timestamps>,
}

#[expect(clippy::len_without_is_empty, reason = "no header is empty")]
impl Header {
    /// Returns the length of the header in bytes, including timestamps but no other options.
    #[inline(always)]
    pub const fn len(&self) -> usize {
        if self.timestamps.is_some() {
            TIMESTAMPED_HEADER_LEN
        } else {
            HEADER_LEN
        }
    }

    /// Returns octets 12 and 13 for a header of `len` bytes: the data offset and the control bits.
    #[inline(always)]
    const fn offset_and_control(&self, len: usize) -> u16 {
        ((len / 4) as u16) << 12 | self.control.0 as u16
    }

    /// Returns the header's contribution to the checksum, without the ports. `options_len` is the
    /// length in bytes of all options except timestamps. The caller adds the sum of those options.
    #[inline(always)]
    pub fn sum(&self, options_len: usize) -> Sum {
        let sum = Sum::ZERO
            .dword(self.seq.0)
            .dword(self.ack.0)
            .word(self.offset_and_control(self.len() + options_len))
            .word(self.window);
        match self.timestamps {
            Some(timestamps) => sum
                .dword(TIMESTAMPS_WORD)
                .dword(timestamps.tsval)
                .dword(timestamps.tsecr),
            None => sum,
        }
    }

    /// Writes the header to the start of `segment`. `options_len` is the length in bytes of the
    /// options that the caller writes after the header.
    ///
    /// # Panics
    ///
    /// If `segment` is shorter than the header.
    #[inline(always)]
    pub fn write(
        &self,
        segment: &mut [u8],
        (own_port, peer_port): (u16, u16),
        checksum: u16,
        options_len: usize,
    ) {
        let header: &mut [u8; HEADER_LEN] = segment
            .first_chunk_mut()
            .expect("a segment holds its header");
        header[..2].copy_from_slice(&own_port.to_be_bytes());
        header[2..4].copy_from_slice(&peer_port.to_be_bytes());
        header[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        header[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        let offset_and_control = self.offset_and_control(self.len() + options_len);
        header[12..14].copy_from_slice(&offset_and_control.to_be_bytes());
        header[14..16].copy_from_slice(&self.window.to_be_bytes());
        header[16..18].copy_from_slice(&checksum.to_be_bytes());
        header[18..20].fill(0);
        if let Some(timestamps) = self.timestamps {
            let option: &mut [u8; TIMESTAMPS_LEN] = segment[HEADER_LEN..]
                .first_chunk_mut()
                .expect("a segment holds its header");
            option[..4].copy_from_slice(&TIMESTAMPS_WORD.to_be_bytes());
            option[4..8].copy_from_slice(&timestamps.tsval.to_be_bytes());
            option[8..].copy_from_slice(&timestamps.tsecr.to_be_bytes());
        }
    }
}

#[cfg(test)]
#[path = "header_tests.rs"]
mod tests;
