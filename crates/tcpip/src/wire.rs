//! The TCP header (RFC 9293, section 3.1).

use std::ops::{Add, BitAnd, BitOr};

use ip::Sum;

/// Bytes of a header without options.
pub(crate) const HEADER_LEN: usize = 20;
/// Where the checksum field lies in the header.
pub(crate) const CHECKSUM_AT: usize = 16;
/// Bytes of the one option that we send: the maximum segment size.
pub(crate) const MSS_OPTION_LEN: usize = 4;

const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_MSS: u8 = 2;

/// A sequence number: a point on a circle of 2^32 (RFC 9293, section 3.4).
/// Two of them can be compared as long as they are less than half a turn
/// apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seq(pub(crate) u32);

impl Seq {
    /// How far `self` lies behind `earlier`, going forward round the circle.
    #[inline(always)]
    pub(crate) const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    #[inline(always)]
    pub(crate) const fn before(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() < 0
    }

    #[inline(always)]
    pub(crate) const fn after(self, other: Self) -> bool {
        other.before(self)
    }
}

impl Add<u32> for Seq {
    type Output = Self;
    #[inline(always)]
    fn add(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }
}

/// The control bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Control(pub(crate) u8);

impl Control {
    pub(crate) const FIN: Self = Self(1);
    pub(crate) const SYN: Self = Self(2);
    pub(crate) const RST: Self = Self(4);
    pub(crate) const PSH: Self = Self(8);
    pub(crate) const ACK: Self = Self(16);

    #[inline(always)]
    pub(crate) const fn has(self, bits: Self) -> bool {
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
/// packet: `payload[data_at..][..len]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) src_port: u16,
    pub(crate) dst_port: u16,
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) control: Control,
    pub(crate) window: u16,
    /// Where the data starts, from the start of the header.
    pub(crate) data_at: u16,
    /// Bytes of data.
    pub(crate) len: u16,
}

impl Segment {
    /// Reads the header at the start of an IP payload. `None` when it is cut
    /// or its data offset points outside.
    #[inline(always)]
    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_LEN] = payload.first_chunk()?;
        let u16_at = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let u32_at = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let data_at = u16::from(header[12] >> 4) * 4;
        if usize::from(data_at) < HEADER_LEN {
            return None;
        }
        // An IP payload has at most 65,535 bytes.
        let len = u16::try_from(payload.len().checked_sub(usize::from(data_at))?).ok()?;
        Some(Self {
            src_port: u16_at(0),
            dst_port: u16_at(2),
            seq: Seq(u32_at(4)),
            ack: Seq(u32_at(8)),
            control: Control(header[13]),
            window: u16_at(14),
            data_at,
            len,
        })
    }

    /// What the segment occupies in sequence space: data, SYN and FIN.
    #[inline(always)]
    pub(crate) fn sequence_len(&self) -> u32 {
        u32::from(self.len)
            + u32::from(self.control.has(Control::SYN))
            + u32::from(self.control.has(Control::FIN))
    }
}

/// The maximum segment size that a SYN's header tells, if it does; `header`
/// reaches from the header's start to the data. Other options are skipped
/// (RFC 9293, section 3.2: an unknown one has a length); after one that makes
/// no sense the rest is not read.
pub(crate) fn max_segment_size(header: &[u8]) -> Option<u16> {
    let mut options = header.get(HEADER_LEN..)?;
    loop {
        match *options.first()? {
            OPTION_END => return None,
            OPTION_NOP => options = &options[1..],
            kind => {
                let len = usize::from(*options.get(1)?);
                let option = options.get(..len)?;
                if kind == OPTION_MSS && len == MSS_OPTION_LEN {
                    return Some(u16::from_be_bytes([option[2], option[3]]));
                }
                if len < 2 {
                    return None;
                }
                options = &options[len..];
            }
        }
    }
}

/// The fields of a header that we write; ports and checksum apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) control: Control,
    pub(crate) window: u16,
    /// Told in a SYN.
    pub(crate) mss: Option<u16>,
}

impl Header {
    /// Bytes of the header.
    #[inline(always)]
    pub(crate) const fn len(&self) -> usize {
        if self.mss.is_some() {
            HEADER_LEN + MSS_OPTION_LEN
        } else {
            HEADER_LEN
        }
    }

    /// Data offset and control bits: the header's fifth word.
    #[inline(always)]
    const fn offset_and_control(&self) -> u16 {
        ((self.len() / 4) as u16) << 12 | self.control.0 as u16
    }

    /// What the header adds to a checksum, but for the ports.
    #[inline(always)]
    pub(crate) fn sum(&self) -> Sum {
        let sum = Sum::ZERO
            .dword(self.seq.0)
            .dword(self.ack.0)
            .word(self.offset_and_control())
            .word(self.window);
        match self.mss {
            Some(mss) => sum.word(Self::MSS_KIND_AND_LEN).word(mss),
            None => sum,
        }
    }

    const MSS_KIND_AND_LEN: u16 = (OPTION_MSS as u16) << 8 | MSS_OPTION_LEN as u16;

    /// Writes the header to the start of `segment`, which holds it.
    #[inline(always)]
    pub(crate) fn write(&self, segment: &mut [u8], own_port: u16, peer_port: u16, checksum: u16) {
        let header: &mut [u8; HEADER_LEN] = segment
            .first_chunk_mut()
            .expect("a segment holds its header");
        header[..2].copy_from_slice(&own_port.to_be_bytes());
        header[2..4].copy_from_slice(&peer_port.to_be_bytes());
        header[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        header[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        header[12..14].copy_from_slice(&self.offset_and_control().to_be_bytes());
        header[14..16].copy_from_slice(&self.window.to_be_bytes());
        header[16..18].copy_from_slice(&checksum.to_be_bytes());
        header[18..20].fill(0);
        if let Some(mss) = self.mss {
            segment[HEADER_LEN..HEADER_LEN + 2]
                .copy_from_slice(&Self::MSS_KIND_AND_LEN.to_be_bytes());
            segment[HEADER_LEN + 2..HEADER_LEN + 4].copy_from_slice(&mss.to_be_bytes());
        }
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
