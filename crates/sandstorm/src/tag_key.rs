//! The key of entity tags, which the servers of a fleet share.

use std::fmt;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use blake2::Blake2bMac;
use blake2::digest::consts::U8;
use blake2::digest::{FixedOutput as _, KeyInit as _, Update as _};
use control::open_ordinary;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::etag::ETag;

/// Minimum length of a key in bytes. Nobody can guess a random key of this length.
const MIN_LEN: usize = 16;
/// Maximum length of a key in bytes (RFC 7693, section 2.1).
const MAX_LEN: usize = 64;

/// `BLAKE2b` with a key and an output of 8 bytes (RFC 7693).
type Keyed = Blake2bMac<U8>;

/// The key of entity tags, or the default: no key. Without a key, everybody can compute the tag of a
/// content, and make contents with the same tag.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct TagKey(Option<Arc<[u8]>>);

/// Why a file cannot be the key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TagKeyError {
    #[error("cannot be read: {0}; name a file that the server's user can read")]
    Unreadable(#[from] io::Error),
    #[error(
        "has {len} bytes, and a key has {MIN_LEN} to {MAX_LEN}; make one with openssl rand -hex 32"
    )]
    Short { len: usize },
    #[error(
        "has more than {MAX_LEN} bytes, the most for a key; make one with openssl rand -hex 32"
    )]
    Long,
}

impl TagKey {
    /// Reads a key. White space at its ends does not count.
    pub(crate) fn load(path: &Path) -> Result<Self, TagKeyError> {
        // White space can add a few bytes.
        const MAX_FILE_LEN: usize = MAX_LEN + 8;
        let mut text = Vec::new();
        let file = open_ordinary(path)?;
        file.take(MAX_FILE_LEN as u64 + 1).read_to_end(&mut text)?;
        let key = text.trim_ascii();
        match key.len() {
            _ if text.len() > MAX_FILE_LEN => Err(TagKeyError::Long),
            len if len < MIN_LEN => Err(TagKeyError::Short { len }),
            len if len > MAX_LEN => Err(TagKeyError::Long),
            _ => Ok(Self(Some(key.into()))),
        }
    }

    /// Returns the tag of a content.
    pub(crate) fn tag_of(&self, content: &[u8]) -> ETag {
        match self.keyed() {
            None => ETag::of_hash(xxh3_64(content)),
            Some(mut hash) => {
                hash.update(content);
                tag_of(hash)
            }
        }
    }

    /// Begins the tag of a content that is read piece by piece.
    pub(crate) fn begin(&self) -> TagHash {
        match self.keyed() {
            None => TagHash::Xxh3(Box::default()),
            Some(hash) => TagHash::Keyed(Box::new(hash)),
        }
    }

    fn keyed(&self) -> Option<Keyed> {
        Keyed::new_from_slice(self.0.as_ref()?).ok()
    }
}

/// Does not show the key.
impl fmt::Debug for TagKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TagKey").field(&self.0.is_some()).finish()
    }
}

fn tag_of(hash: Keyed) -> ETag {
    ETag::of_hash(u64::from_be_bytes(hash.finalize_fixed().into()))
}

/// The hash of a part of a content.
pub(crate) enum TagHash {
    Xxh3(Box<Xxh3>),
    Keyed(Box<Keyed>),
}

impl TagHash {
    pub(crate) fn add(&mut self, piece: &[u8]) {
        match self {
            Self::Xxh3(hash) => hash.update(piece),
            Self::Keyed(hash) => hash.update(piece),
        }
    }

    /// Returns the tag of all pieces.
    pub(crate) fn finish(self) -> ETag {
        match self {
            Self::Xxh3(hash) => ETag::of_hash(hash.digest()),
            Self::Keyed(hash) => tag_of(*hash),
        }
    }
}

#[cfg(test)]
impl TagKey {
    pub(crate) fn of(key: &[u8]) -> Self {
        Self(Some(key.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_16_to_64_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let load = |len: usize, end: &str| {
            std::fs::write(&path, ["k".repeat(len), end.to_owned()].concat()).unwrap();
            TagKey::load(&path).map_err(|error| error.to_string())
        };
        for len in [16, 17, 64] {
            let key = TagKey::of("k".repeat(len).as_bytes());
            assert_eq!(load(len, ""), Ok(key.clone()));
            assert_eq!(load(len, "\r\n"), Ok(key));
        }
        for len in [0, 15] {
            let error = load(len, "\n").unwrap_err();
            assert!(error.starts_with(&format!("has {len} bytes, ")), "{error}");
        }
        for len in [65, 1_000] {
            let error = load(len, "").unwrap_err();
            assert!(error.starts_with("has more than 64 bytes"), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(TagKey::load(&path).is_err());
        assert_eq!(format!("{:?}", TagKey::of(b"secret")), "TagKey(true)");
    }

    /// The expected tags are of Python: `hashlib.blake2b(content, digest_size=8, key=key)`.
    #[test]
    fn a_tag_is_a_keyed_hash_by_blake2b() {
        let key = TagKey::of(b"0123456789abcdef");
        for (content, tag) in [
            (&b""[..], "45de45efb669a82a"),
            (b"sand and storm", "da5110a223fca180"),
        ] {
            assert_eq!(key.tag_of(content).to_string(), format!("\"{tag}\""));
            let mut hash = key.begin();
            content.chunks(3).for_each(|piece| hash.add(piece));
            assert_eq!(hash.finish(), key.tag_of(content));
            assert_ne!(
                TagKey::of(b"0123456789abcdeg").tag_of(content),
                key.tag_of(content)
            );
            assert_ne!(TagKey::default().tag_of(content), key.tag_of(content));
        }
    }
}
