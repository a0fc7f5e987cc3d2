//! Entity tags.

use std::fmt::{self, Display};
use std::num::NonZeroU64;

use xxhash_rust::xxh3::xxh3_64;

/// A strong entity tag (RFC 9110, section 8.8.1). It depends only on the content, so all servers
/// produce the same tag for the same content, even after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ETag(NonZeroU64);

impl ETag {
    /// A placeholder tag, for computing the length of a head.
    pub(crate) const BLANK: Self = Self(NonZeroU64::MIN);
    /// The length of a tag with its quotes, in bytes.
    pub(crate) const LEN: usize = 18;

    pub(crate) fn of(content: &[u8]) -> Self {
        Self::of_hash(xxh3_64(content))
    }

    /// Returns the tag of the content with this xxh3 hash.
    pub(crate) fn of_hash(hash: u64) -> Self {
        Self(NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN))
    }

    /// Returns true if `text`, including its quotes, equals this tag.
    pub(crate) fn is(self, text: &[u8]) -> bool {
        let [b'"', digits @ .., b'"'] = text else {
            return false;
        };
        // Accept only the exact form that `Display` writes.
        let lower = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        digits.len() == 16
            && digits.iter().all(lower)
            && std::str::from_utf8(digits)
                .is_ok_and(|digits| u64::from_str_radix(digits, 16) == Ok(self.0.get()))
    }
}

impl Display for ETag {
    /// Writes the tag with its quotes. The length is always [`LEN`](Self::LEN).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{:016x}\"", self.0)
    }
}
