//! Rates in 32 bits.

/// Bytes a second of 1: rates reach 34 GB/s.
pub(super) const UNIT: u64 = 8;
const MICROS: u64 = 1_000_000;
/// Longer spans are cut to this, a minute, to keep products in 64 bits.
const MAX_SPAN: u32 = 1 << 26;

/// The rate of `bytes` in `micros`.
pub(super) fn of(bytes: u32, micros: u32) -> u32 {
    let rate = u64::from(bytes) * (MICROS / UNIT) / u64::from(micros.max(1));
    rate.min(u64::from(u32::MAX - 1)) as u32
}

/// The bytes that `rate` makes in `micros`.
pub(super) fn bytes(rate: u32, micros: u32) -> u64 {
    u64::from(rate) * UNIT * u64::from(micros.min(MAX_SPAN)) / MICROS
}

/// `percent` of `value`.
pub(super) fn percent(value: u32, percent: u32) -> u32 {
    let part = u64::from(value) * u64::from(percent) / 100;
    part.min(u64::from(u32::MAX - 1)) as u32
}
