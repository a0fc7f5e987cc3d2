//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).

/// A one's complement sum of big-endian 16-bit words, not yet folded.
///
/// Words are added in the machine's byte order. This changes only the byte order of the result (RFC
/// 1071, section 2B), so only the folded sum is converted.
///
/// A packet's sum is the sum of its parts' sums, if each part starts at an even offset in the
/// packet. For a part that starts at an odd offset, use [`Sum::add_at`].
///
/// A prepared packet stores the sum of its constant bytes. Each time the packet is sent, only the
/// sum of the variable bytes is added. This is equation 3 of RFC 1624 with old field values of
/// zero.
///
/// At least 2^22 words or parts can be added before the sum overflows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The sum of an empty packet.
    pub const ZERO: Self = Self(0);

    /// Returns the sum of `bytes`, padded with a zero byte to an even length.
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        let (blocks, mut tail) = bytes.as_chunks();
        let mut sum = if blocks.is_empty() {
            0
        } else {
            sum_of_blocks(blocks)
        };
        if let Some((half, rest)) = tail.split_first_chunk::<{ BLOCK / 2 }>() {
            sum += half.as_chunks().0.iter().map(word).sum::<u128>();
            tail = rest;
        }
        if let Some((pair, rest)) = tail.split_first_chunk::<{ BLOCK / 4 }>() {
            sum += pair.as_chunks().0.iter().map(word).sum::<u128>();
            tail = rest;
        }
        if let Some((bytes, rest)) = tail.split_first_chunk() {
            sum += word(bytes);
            tail = rest;
        }
        let mut end = 0;
        if let Some((bytes, rest)) = tail.split_first_chunk() {
            end += u64::from(u32::from_ne_bytes(*bytes));
            tail = rest;
        }
        if let Some((bytes, rest)) = tail.split_first_chunk() {
            end += u64::from(u16::from_ne_bytes(*bytes));
            tail = rest;
        }
        if let [last] = *tail {
            end += u64::from(u16::from_ne_bytes([last, 0]));
        }
        // 2^32 and 2^64 are both congruent to 1 modulo 0xffff. So the higher parts of the sum are
        // added to its lowest 32 bits.
        let (carries, sum) = ((sum >> 64) as u64, sum as u64);
        Self((sum >> 32) + u64::from(sum as u32) + carries + end)
    }

    /// Creates a sum from the result of [`Sum::fold`].
    #[inline(always)]
    pub const fn from_folded(folded: u16) -> Self {
        Self(folded.to_be() as u64)
    }

    /// Adds one 16-bit word.
    #[inline(always)]
    #[must_use]
    pub const fn word(self, word: u16) -> Self {
        Self(self.0 + word.to_be() as u64)
    }

    /// Adds a 32-bit word. Folding adds the word's two halves later.
    #[inline(always)]
    #[must_use]
    pub const fn dword(self, dword: u32) -> Self {
        Self(self.0 + dword.to_be() as u64)
    }

    /// Adds the sum of another part that starts at an even offset.
    #[inline(always)]
    #[must_use]
    pub const fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// Adds the sum of another part that starts at `offset`.
    #[inline(always)]
    #[must_use]
    pub const fn add_at(self, other: Self, offset: usize) -> Self {
        // Modulo 0xffff, a shift by one byte has the effect of swapping the bytes of each word.
        let halves = (other.0 as u32 as u64) + (other.0 >> 32);
        Self(self.0 + (halves << (offset % 2 * 8)))
    }

    /// Folds the sum to 16 bits, without the final complement.
    #[inline(always)]
    pub const fn fold(self) -> u16 {
        u16::from_be(fold(self.0))
    }

    /// Returns the value of a checksum field: the complement of the folded sum.
    #[inline(always)]
    pub const fn finish(self) -> u16 {
        !self.fold()
    }

    /// Returns the value of a UDP checksum field. Unlike [`Sum::finish`], this method returns
    /// 0xffff instead of 0, because a UDP checksum field of 0 means that there is no checksum (RFC
    /// 768).
    #[inline(always)]
    pub const fn finish_udp(self) -> u16 {
        let field = self.finish();
        if field == 0 { 0xffff } else { field }
    }

    /// Returns true if the checksum is correct, for a sum that includes the checksum field.
    #[inline(always)]
    pub const fn is_valid(self) -> bool {
        fold(self.0) == 0xffff
    }
}

/// Reads a 64-bit word. The result has 128 bits, so that a sum of words holds the carries in its
/// upper half.
#[inline(always)]
fn word(bytes: &[u8; 8]) -> u128 {
    u128::from(u64::from_ne_bytes(*bytes))
}

/// Number of bytes that [`sum_of_blocks`] sums per iteration.
const BLOCK: usize = 64;

/// Sums 64-bit words. The upper half of the result counts the carries.
///
/// Summing 64-bit words takes fewer instructions than summing vectors of 16-bit words, which would
/// have to be widened first. Two independent sums hide the latency of the additions. Each addition takes the
/// carry of the one before.
#[inline(never)]
fn sum_of_blocks(blocks: &[[u8; BLOCK]]) -> u128 {
    let (mut sums, mut carries) = ([0_u64; 2], 0_u64);
    for block in blocks {
        for (half, sum) in block.as_chunks::<{ BLOCK / 2 }>().0.iter().zip(&mut sums) {
            let mut carry = false;
            for bytes in half.as_chunks().0 {
                (*sum, carry) = sum.carrying_add(u64::from_ne_bytes(*bytes), carry);
            }
            carries += u64::from(carry);
        }
    }
    let [first, second] = sums.map(u128::from);
    first + second + (u128::from(carries) << 64)
}

#[inline(always)]
const fn fold(sum: u64) -> u16 {
    // Add the halves, then the carry (RFC 1071, section 2).
    let (sum, carry) = (sum as u32).overflowing_add((sum >> 32) as u32);
    let sum = sum + carry as u32;
    let (sum, carry) = (sum as u16).overflowing_add((sum >> 16) as u16);
    sum + carry as u16
}

/// Returns the new value of a checksum field after one of the covered words changes from `old` to
/// `new` (RFC 1624, equation 3).
#[inline(always)]
pub const fn update(field: u16, old: u16, new: u16) -> u16 {
    Sum(0).word(!field).word(!old).word(new).finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The algorithm of RFC 1071, section 4.1, in its simplest form, without the final complement.
    fn reference(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn the_sum_of_all_ones_does_not_overflow() {
        let ones = vec![0xff; 65_535];
        assert_eq!(Sum::of(&ones).fold(), reference(&ones));
    }

    /// RFC 1624, section 4, gives this example, in which RFC 1141's equation fails.
    #[test]
    fn update_agrees_with_the_example_of_rfc_1624() {
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    proptest! {
        #[test]
        fn sums_agree_with_the_reference(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(Sum::of(&bytes).fold(), reference(&bytes));
        }

        #[test]
        fn sums_of_parts_add_up_to_that_of_the_whole(bytes: Vec<u8>, cut: prop::sample::Index) {
            let cut = cut.index(bytes.len() + 1);
            let (a, b) = bytes.split_at(cut);
            let whole = Sum::of(a).add_at(Sum::of(b), cut);
            // One's complement has two representations of zero, 0 and 0xffff, so compare modulo
            // 0xffff.
            prop_assert_eq!(whole.fold() % 0xffff, reference(&bytes) % 0xffff);
        }

        #[test]
        fn the_sum_of_a_dword_is_that_of_its_two_words(dwords: Vec<u32>) {
            let sum = dwords.iter().fold(Sum::ZERO, |sum, dword| sum.dword(*dword));
            let bytes: Vec<u8> = dwords.iter().flat_map(|dword| dword.to_be_bytes()).collect();
            prop_assert_eq!(sum.fold(), reference(&bytes));
        }

        #[test]
        fn an_updated_checksum_is_valid(mut words: Vec<u16>, at: prop::sample::Index, new: u16) {
            prop_assume!(words.len() > 1);
            words[0] = 0;
            let sum = |words: &[u16]| words.iter().fold(Sum::ZERO, |s, w| s.word(*w));
            words[0] = sum(&words).finish();
            let at = 1 + at.index(words.len() - 1);
            words[0] = update(words[0], words[at], new);
            words[at] = new;
            prop_assume!(words[1..].iter().any(|w| *w != 0));
            prop_assert!(sum(&words).is_valid());
        }
    }
}
