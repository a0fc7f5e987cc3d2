//! Identifies contents and their coded forms.

use xxhash_rust::xxh3::xxh3_128;

use super::effort::Effort;
use crate::coding::Coding;

/// Identifies a content. Equal contents have equal keys, on every machine.
///
/// The hash is not cryptographic. Someone with write access to the served folder could make two
/// files with the same key. The server would then send the coded form of one for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    hash: u128,
    len: u64,
}

impl Key {
    pub(crate) fn of(content: &[u8]) -> Self {
        Self {
            hash: xxh3_128(content),
            len: content.len() as u64,
        }
    }

    /// The length of the content in bytes.
    pub(crate) fn content_len(self) -> u64 {
        self.len
    }
}

/// Identifies one coded form of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Form {
    pub(super) key: Key,
    pub(super) coding: Coding,
    pub(super) effort: Effort,
}

impl Form {
    /// Returns the name of the form's file, for example `3f…-1234.best.br`. The name begins with
    /// the hash of the content in 32 hexadecimal digits.
    pub(super) fn file_name(self) -> String {
        let Key { hash, len } = self.key;
        let (effort, suffix) = (self.effort.name(), self.coding.suffix());
        format!("{hash:032x}-{len}.{effort}{suffix}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_has_hash_length_effort_and_suffix() {
        let form = Form {
            key: Key { hash: 15, len: 7 },
            coding: Coding::Zstd,
            effort: Effort::Best,
        };
        let name = "0000000000000000000000000000000f-7.best.zst";
        assert_eq!(form.file_name(), name);
    }

    #[test]
    fn a_key_is_the_same_on_every_machine() {
        let expected = Key {
            hash: 0x99aa_06d3_0147_98d8_6001_c324_468d_497f,
            len: 0,
        };
        assert_eq!(Key::of(b""), expected);
        assert_ne!(Key::of(b"a"), Key::of(b"b"));
        assert_eq!(Key::of(b"ab").content_len(), 2);
    }
}
