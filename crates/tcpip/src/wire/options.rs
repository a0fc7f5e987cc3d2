//! TCP options: decodes a peer's options and encodes ours.
//!
//! Our timestamps are written together with the header, and so are not encoded here.

use arrayvec::ArrayVec;
use nmio::checksum::Sum;

use super::{HEADER_LEN, Seq, Timestamps};

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// Maximum shift count in the window scale option. Larger values are treated as 14 (RFC 7323,
/// section 2.3).
const MAX_WINDOW_SCALE: u8 = 14;
/// Maximum number of SACK blocks in one header (RFC 2018, section 3).
pub const MAX_SACK_BLOCKS: usize = 4;
/// Maximum number of 32-bit words of options in one header. The whole header has at most 15 words.
const MAX_OPTION_WORDS: usize = 10;

/// A SACK block: a range of received data, as its first sequence number and the one after its last.
pub type Block = (Seq, Seq);

/// The options of a received segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// In a SYN: the maximum segment size that the sender accepts, in bytes of data.
    pub mss: Option<u16>,
    /// In a SYN: the shift count of the sender's window field, 0 to 14.
    pub window_scale: Option<u8>,
    /// In a SYN: whether the sender accepts selective acknowledgements.
    pub sack_permitted: bool,
    /// The timestamps option, at any position in the header.
    pub timestamps: Option<Timestamps>,
    /// SACK blocks: ranges received out of order, and duplicates (RFC 2883).
    pub sack: ArrayVec<Block, MAX_SACK_BLOCKS>,
}

impl Options {
    /// Reads the options of `header`, a whole TCP header without the data. Skips options of unknown
    /// kind, or of the wrong length for their kind (RFC 9293, section 3.2). Stops at the option
    /// that marks the end, or at a length that is less than 2 or extends beyond the header.
    #[inline(always)]
    pub fn read(header: &[u8]) -> Self {
        let mut options = Self::default();
        options.set_all(header);
        options
    }

    /// Not inlined, so that the options are written where the caller of [`read`](Self::read) wants them.
    #[inline(never)]
    fn set_all(&mut self, header: &[u8]) {
        let mut rest = header.get(HEADER_LEN..).unwrap_or(&[]);
        while let Some((&kind, tail)) = rest.split_first() {
            if kind == NOP {
                rest = tail;
                continue;
            }
            // The length field counts the kind and length octets too.
            let Some(len) = tail.first().map(|len| usize::from(*len)) else {
                break;
            };
            if kind == END || len < 2 || len > rest.len() {
                break;
            }
            self.set(kind, &rest[2..len]);
            rest = &rest[len..];
        }
    }

    fn set(&mut self, kind: u8, value: &[u8]) {
        match (kind, value.len()) {
            (MSS, 2) => self.mss = Some(u16::from_be_bytes([value[0], value[1]])),
            (WINDOW_SCALE, 1) => self.window_scale = Some(value[0].min(MAX_WINDOW_SCALE)),
            (SACK_PERMITTED, 0) => self.sack_permitted = true,
            (TIMESTAMPS, 8) => {
                self.timestamps = Some(Timestamps {
                    tsval: u32_at(value, 0),
                    tsecr: u32_at(value, 4),
                });
            }
            (SACK, len) if len % 8 == 0 => self.set_sack(value),
            _ => {}
        }
    }

    /// Reads the blocks of a SACK option. It is not inlined because a SYN, which needs all options,
    /// has none.
    #[inline(never)]
    fn set_sack(&mut self, value: &[u8]) {
        let edge = |n: usize| Seq(u32_at(value, 4 * n));
        let blocks = (0..value.len() / 8).map(|n| (edge(2 * n), edge(2 * n + 1)));
        self.sack = blocks.take(MAX_SACK_BLOCKS).collect();
    }
}

fn u32_at(value: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([value[at], value[at + 1], value[at + 2], value[at + 3]])
}

/// Encoded options, to be sent after a header and its timestamps. They are padded to whole words of
/// 32 bits.
#[derive(Clone, Debug, Default)]
pub struct Written(ArrayVec<u32, MAX_OPTION_WORDS>);

impl Written {
    /// Encodes the options of a SYN-ACK other than timestamps: our MSS, our window scale, and
    /// whether we accept selective acknowledgements.
    #[inline(always)]
    pub fn syn_ack(mss: u16, window_scale: Option<u8>, sack_permitted: bool) -> Self {
        let mut words = ArrayVec::new();
        let [high, low] = mss.to_be_bytes();
        words.push(u32::from_be_bytes([MSS, 4, high, low]));
        if sack_permitted {
            words.push(u32::from_be_bytes([NOP, NOP, SACK_PERMITTED, 2]));
        }
        if let Some(shift) = window_scale {
            words.push(u32::from_be_bytes([NOP, WINDOW_SCALE, 3, shift]));
        }
        Self(words)
    }

    /// Encodes a SACK option with as many of `blocks` as fit, beginning with the first one.
    /// `timestamps` tells whether the header also carries timestamps.
    pub fn sack(blocks: &[Block], timestamps: bool) -> Self {
        let mut words = ArrayVec::new();
        let max_blocks = MAX_SACK_BLOCKS - usize::from(timestamps);
        let blocks = &blocks[..blocks.len().min(max_blocks)];
        if !blocks.is_empty() {
            let len = 2 + 8 * blocks.len() as u8;
            words.push(u32::from_be_bytes([NOP, NOP, SACK, len]));
        }
        for (left, right) in blocks {
            words.extend([left.0, right.0]);
        }
        Self(words)
    }

    /// Returns the length of the encoded options in bytes, a multiple of 4.
    #[inline(always)]
    pub fn len(&self) -> usize {
        4 * self.0.len()
    }

    /// Returns true if there are no options.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes the options to the start of `bytes`, as far as they fit. Returns their contribution to
    /// the checksum.
    #[inline(always)]
    pub fn write(&self, bytes: &mut [u8]) -> Sum {
        let mut sum = Sum::ZERO;
        for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(&self.0) {
            *place = word.to_be_bytes();
            sum = sum.dword(*word);
        }
        sum
    }
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
