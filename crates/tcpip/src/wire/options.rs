//! TCP options: reading what a peer sends, writing what it must be told.
//!
//! Timestamps where nearly all put them are read with the header and written
//! with it; everything else is here.

use arrayvec::ArrayVec;

use super::{HEADER_LEN, Seq, Timestamps};

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// A larger shift is taken as this one (RFC 7323, section 2.3).
const MAX_WINDOW_SCALE: u8 = 14;
/// Blocks that fit one header (RFC 2018, section 3).
pub const MAX_SACK_BLOCKS: usize = 4;
/// Bytes of options that fit one header.
const MAX_OPTIONS_LEN: usize = 40;

/// A stretch of data that has arrived: its first sequence number, and the one
/// behind its last.
pub type Block = (Seq, Seq);

/// What a segment's options say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Of a SYN: the most bytes of data in a segment to its sender.
    pub mss: Option<u16>,
    /// Of a SYN: by how much the windows of its sender are shifted, 0 to 14.
    pub window_scale: Option<u8>,
    /// Of a SYN: its sender takes selective acknowledgements.
    pub sack_permitted: bool,
    /// Wherever they stand.
    pub timestamps: Option<Timestamps>,
    /// What has arrived beyond a gap, and what has arrived twice (RFC 2883).
    pub sack: ArrayVec<Block, MAX_SACK_BLOCKS>,
}

impl Options {
    /// Reads the options of a header, which reaches from its start to the
    /// data, whatever is in it. Unknown ones are skipped by their length (RFC 9293, section
    /// 3.2); after one that makes no sense the rest is not read.
    #[cold]
    pub fn read(header: &[u8]) -> Self {
        let mut options = Self::default();
        let mut rest = header.get(HEADER_LEN..).unwrap_or(&[]);
        while let Some((&kind, behind)) = rest.split_first() {
            if kind == NOP {
                rest = behind;
                continue;
            }
            // The length counts kind and length.
            let Some(len) = behind.first().map(|len| usize::from(*len)) else {
                break;
            };
            if kind == END || len < 2 || len > rest.len() {
                break;
            }
            options.take(kind, &rest[2..len]);
            rest = &rest[len..];
        }
        options
    }

    fn take(&mut self, kind: u8, value: &[u8]) {
        let u32_at = |at: usize| {
            u32::from_be_bytes([value[at], value[at + 1], value[at + 2], value[at + 3]])
        };
        match (kind, value.len()) {
            (MSS, 2) => self.mss = Some(u16::from_be_bytes([value[0], value[1]])),
            (WINDOW_SCALE, 1) => self.window_scale = Some(value[0].min(MAX_WINDOW_SCALE)),
            (SACK_PERMITTED, 0) => self.sack_permitted = true,
            (TIMESTAMPS, 8) => {
                self.timestamps = Some(Timestamps {
                    value: u32_at(0),
                    echo: u32_at(4),
                });
            }
            (SACK, len) if len % 8 == 0 => {
                let blocks = value.chunks_exact(8).enumerate();
                let blocks = blocks.map(|(n, _)| (Seq(u32_at(8 * n)), Seq(u32_at(8 * n + 4))));
                self.sack = blocks.take(MAX_SACK_BLOCKS).collect();
            }
            _ => {}
        }
    }
}

/// Options to be written behind a header, and its timestamps if it has some.
#[derive(Clone, Debug, Default)]
pub struct Written(ArrayVec<u8, MAX_OPTIONS_LEN>);

impl Written {
    /// What a SYN-ACK tells beside timestamps: our MSS, the shift of the
    /// windows that we tell, and whether we take selective acknowledgements.
    pub fn syn_ack(mss: u16, window_scale: Option<u8>, sack_permitted: bool) -> Self {
        let mut bytes = ArrayVec::new();
        let [high, low] = mss.to_be_bytes();
        bytes.extend([MSS, 4, high, low]);
        if sack_permitted {
            bytes.extend([NOP, NOP, SACK_PERMITTED, 2]);
        }
        if let Some(shift) = window_scale {
            bytes.extend([NOP, WINDOW_SCALE, 3, shift]);
        }
        Self(bytes)
    }

    /// Selective acknowledgements, the most important first: as many as fit
    /// beside timestamps.
    pub fn sack(blocks: &[Block], timestamps: bool) -> Self {
        let mut bytes = ArrayVec::new();
        let most = MAX_SACK_BLOCKS - usize::from(timestamps);
        let blocks = &blocks[..blocks.len().min(most)];
        if !blocks.is_empty() {
            bytes.extend([NOP, NOP, SACK, 2 + 8 * blocks.len() as u8]);
        }
        for (left, right) in blocks {
            bytes.extend(left.0.to_be_bytes());
            bytes.extend(right.0.to_be_bytes());
        }
        Self(bytes)
    }

    /// The bytes: a whole number of words.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
