//! What the head of a file's response says of its content.

use crate::etag::ETag;
use crate::tag_key::{TagHash, TagKey};

/// The entity tag of a content, and whether it is valid UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest {
    pub(crate) tag: ETag,
    pub(crate) is_utf8: bool,
}

/// Computes a [`Digest`] from a content that is read piece by piece.
pub(crate) struct Digester {
    hash: TagHash,
    utf8: Utf8,
}

impl Digester {
    /// Begins a digest whose tag has this key.
    pub(crate) fn new(key: &TagKey) -> Self {
        Self {
            hash: key.begin(),
            utf8: Utf8::default(),
        }
    }

    pub(crate) fn add(&mut self, piece: &[u8]) {
        self.hash.add(piece);
        self.utf8.add(piece);
    }

    pub(crate) fn finish(self) -> Digest {
        Digest {
            tag: self.hash.finish(),
            is_utf8: self.utf8.is_valid(),
        }
    }
}

/// Checks whether bytes are UTF-8. A character may be in two pieces.
#[derive(Default)]
struct Utf8 {
    is_wrong: bool,
    /// The first bytes of a character whose rest is in the next piece. There are at most 3.
    open: Vec<u8>,
}

impl Utf8 {
    fn add(&mut self, mut piece: &[u8]) {
        while !self.is_wrong
            && !self.open.is_empty()
            && let [next, rest @ ..] = piece
        {
            self.open.push(*next);
            piece = rest;
            match std::str::from_utf8(&self.open) {
                Ok(_) => self.open.clear(),
                Err(error) => self.is_wrong = error.error_len().is_some(),
            }
        }
        if self.is_wrong || !self.open.is_empty() {
            return;
        }
        if let Err(error) = std::str::from_utf8(piece) {
            self.is_wrong = error.error_len().is_some();
            self.open.extend_from_slice(&piece[error.valid_up_to()..]);
        }
        if self.is_wrong {
            self.open.clear();
        }
    }

    fn is_valid(&self) -> bool {
        !self.is_wrong && self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_digest_of_pieces_is_that_of_the_whole(
            text in prop_oneof![
                "[a\u{e4}\u{20ac}\u{1f600}]{0,20}".prop_map(String::into_bytes),
                prop::collection::vec(any::<u8>(), 0..20),
                ("[a\u{1f600}]{0,4}", 0..4_usize).prop_map(|(text, cut)| {
                    let len = text.len().saturating_sub(cut);
                    text.as_bytes()[..len].to_vec()
                }),
            ],
            len in 1..8_usize,
        ) {
            let mut digester = Digester::new(&TagKey::default());
            text.chunks(len).for_each(|piece| digester.add(piece));
            let digest = digester.finish();
            prop_assert_eq!(digest.tag, ETag::of(&text));
            prop_assert_eq!(digest.is_utf8, std::str::from_utf8(&text).is_ok());
        }
    }
}
