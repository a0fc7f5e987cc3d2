//! Encodes contents.

use std::num::NonZeroU64;

use libdeflater::{CompressionLvl, Compressor};

use crate::coder::effort::Effort;
use crate::coding::Coding;

/// Maximum length of a coded form, in percent of the content's length. A form that saves less does
/// not pay for its memory and for the client's decoding.
const MAX_PERCENT: u64 = 95;

/// The level of gzip at [`Effort::Fast`], of 12.
const GZIP_FAST_LEVEL: i32 = 9;
/// The quality of Brotli at [`Effort::Fast`], of 11.
const BROTLI_FAST_QUALITY: i32 = 5;
const BROTLI_BEST_QUALITY: i32 = 11;
/// Binary logarithm of Brotli's window in bytes, the encoder's own default. A smaller window for
/// short contents makes them longer, because the encoder then chooses another search.
const BROTLI_WINDOW_LOG: i32 = 22;
/// The level of zstd at [`Effort::Fast`], of 22.
const ZSTD_FAST_LEVEL: i32 = 9;
/// The highest level whose window has at most 8 MB. Clients need not accept longer windows
/// (RFC 9659).
const ZSTD_BEST_LEVEL: i32 = 19;

/// Zopfli's passes over a content of at most [`ZOPFLI_SHORT_LEN`] bytes.
const ZOPFLI_SHORT_PASSES: NonZeroU64 = NonZeroU64::new(15).unwrap();
/// Zopfli's passes over a longer content. Its documentation recommends this number, because more
/// would take too long.
const ZOPFLI_LONG_PASSES: NonZeroU64 = NonZeroU64::new(5).unwrap();
const ZOPFLI_SHORT_LEN: usize = 2 << 20;

/// Encodes `content`. The same arguments always give the same bytes.
///
/// Returns `None` if the coded form would be longer than 95 % of the content, or if the encoder
/// fails for lack of memory.
pub(in crate::coder) fn encode(coding: Coding, effort: Effort, content: &[u8]) -> Option<Vec<u8>> {
    let coded = match (coding, effort) {
        (Coding::Gzip, Effort::Fast) => gzip(content),
        (Coding::Gzip, Effort::Best) => zopfli(content),
        (Coding::Brotli, Effort::Fast) => brotli(content, BROTLI_FAST_QUALITY),
        (Coding::Brotli, Effort::Best) => brotli(content, BROTLI_BEST_QUALITY),
        (Coding::Zstd, Effort::Fast) => zstd(content, ZSTD_FAST_LEVEL),
        (Coding::Zstd, Effort::Best) => zstd(content, ZSTD_BEST_LEVEL),
    }?;
    let is_short = coded.len() as u64 * 100 <= content.len() as u64 * MAX_PERCENT;
    is_short.then_some(coded)
}

/// Encodes with libdeflate, which writes a header without time.
fn gzip(content: &[u8]) -> Option<Vec<u8>> {
    let level = CompressionLvl::new(GZIP_FAST_LEVEL).ok()?;
    let mut compressor = Compressor::new(level);
    let mut coded = vec![0; compressor.gzip_compress_bound(content.len())];
    let len = compressor.gzip_compress(content, &mut coded).ok()?;
    coded.truncate(len);
    Some(coded)
}

/// Encodes to gzip with Zopfli, which writes a header without time.
fn zopfli(content: &[u8]) -> Option<Vec<u8>> {
    let options = zopfli::Options {
        iteration_count: if content.len() <= ZOPFLI_SHORT_LEN {
            ZOPFLI_SHORT_PASSES
        } else {
            ZOPFLI_LONG_PASSES
        },
        ..zopfli::Options::default()
    };
    let mut coded = Vec::new();
    zopfli::compress(options, zopfli::Format::Gzip, content, &mut coded).ok()?;
    Some(coded)
}

fn brotli(mut content: &[u8], quality: i32) -> Option<Vec<u8>> {
    let params = brotli::enc::BrotliEncoderParams {
        quality,
        lgwin: BROTLI_WINDOW_LOG,
        size_hint: content.len(),
        ..Default::default()
    };
    let mut coded = Vec::new();
    brotli::BrotliCompress(&mut content, &mut coded, &params).ok()?;
    Some(coded)
}

fn zstd(content: &[u8], level: i32) -> Option<Vec<u8>> {
    zstd::bulk::compress(content, level).ok()
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
