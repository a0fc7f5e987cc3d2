//! Keys of the index: lower-case names, either in wire format or as text (FQDN).

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::str::FromStr;

use ahash::RandomState;

use crate::name::{MAX_NAME, WILDCARD, label_starts};

/// The form in which the index stores names (section 2.3 of the paper).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Wire format, as in the query. The name in a query only needs conversion to lower case.
    #[default]
    Wire,
    /// The fully qualified name as text: `www.example.org.`. The conversion to text makes every
    /// lookup slightly slower.
    Fqdn,
}

impl Form {
    /// Returns the offset at which the parent begins of the name that begins at `start` in `key`.
    /// Returns `None` for the root.
    #[inline(always)]
    pub(crate) fn parent(self, key: &[u8], start: usize) -> Option<usize> {
        let rest = key.get(start..)?;
        match self {
            Self::Wire => {
                let len = usize::from(*rest.first()?);
                (len > 0).then_some(start + 1 + len)
            }
            Self::Fqdn => {
                let dot = rest.iter().position(|byte| *byte == b'.')?;
                Some(start + dot + 1)
            }
        }
    }

    /// Returns the number of labels of the name with this key.
    pub(crate) fn labels(self, key: &[u8]) -> usize {
        match self {
            Self::Wire => label_starts(key).count(),
            Self::Fqdn => key.split(|byte| *byte == b'.').count() - 1,
        }
    }
}

impl FromStr for Form {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "wire" => Ok(Self::Wire),
            "fqdn" => Ok(Self::Fqdn),
            _ => Err(format!("'{text}' is not a form of names: use wire or fqdn")),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wire => "wire",
            Self::Fqdn => "fqdn",
        })
    }
}

/// The byte that replaces a dot inside a label when the key is text. Keys are in lower case, so `D`
/// never stands for a letter, and different names have different keys.
const INNER_DOT: u8 = b'D';

/// The index key of one name, and its hash.
///
/// In both forms, the key of an ancestor is a suffix of the name's key, starting at the ancestor's
/// offset in wire format. An ancestor's key thus needs no conversion.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    bytes: [u8; MAX_NAME + 1],
    len: usize,
    hash: u64,
}

/// A name and its key.
pub(crate) type Keyed<'a> = (&'a [u8], &'a Key);

impl Key {
    /// Creates an empty key.
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; MAX_NAME + 1],
            len: 0,
            hash: 0,
        }
    }

    /// Sets `self` to the key of `name`, which must be uncompressed and at most 255 bytes long.
    #[inline(always)]
    pub(crate) fn set(&mut self, hashing: &Hashing, name: &[u8]) {
        match hashing.form {
            Form::Wire => {
                self.len = name.len();
                lower(name, &mut self.bytes[..name.len()]);
            }
            Form::Fqdn => self.set_text(name),
        }
        self.hash = hashing.hash(self.bytes());
    }

    #[inline]
    fn set_text(&mut self, name: &[u8]) {
        // To get the text, drop the first length byte, hide the dots inside labels, and replace each later
        // length byte by a dot.
        let text = &name[1.min(name.len())..];
        self.len = text.len();
        let out = &mut self.bytes[..text.len()];
        copy(text, out, |byte| match byte {
            b'.' => INNER_DOT,
            byte => lower_byte(byte),
        });
        let mut at = 0;
        while let Some(&len) = name.get(at)
            && len != 0
        {
            at += usize::from(len);
            out[at] = b'.';
            at += 1;
        }
    }

    /// Sets `self` to the key of the wildcard directly below an ancestor of a name. `of` is the
    /// name's key, and `start` is the ancestor's offset in the name's wire format.
    pub(crate) fn set_wildcard(&mut self, hashing: &Hashing, of: &Self, start: usize) {
        let prefix: &[u8] = match hashing.form {
            Form::Wire => WILDCARD,
            Form::Fqdn => b"*.",
        };
        let ancestor = of.suffix(start);
        self.len = prefix.len() + ancestor.len();
        let (front, rest) = self.bytes[..self.len].split_at_mut(prefix.len());
        front.copy_from_slice(prefix);
        rest.copy_from_slice(ancestor);
        self.hash = hashing.hash(self.bytes());
    }

    /// Returns the key's bytes.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns the hash of the key.
    #[inline(always)]
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the hash of a type and the key.
    #[inline(always)]
    pub(crate) fn hash_with(&self, qtype: u16) -> u64 {
        mix(self.hash ^ u64::from(qtype))
    }

    /// Returns the key of the ancestor that starts at `start` in the name's wire format.
    #[inline(always)]
    pub(crate) fn suffix(&self, start: usize) -> &[u8] {
        &self.bytes()[start..]
    }
}

impl Default for Key {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the wire-format length of the name whose key is `key_len` bytes long.
#[inline(always)]
pub(crate) const fn wire_len(form: Form, key_len: usize) -> usize {
    match form {
        Form::Wire => key_len,
        Form::Fqdn => key_len + 1,
    }
}

/// How names become keys, and keys become hashes. All zones of a server share it.
#[derive(Clone, Debug)]
pub(crate) struct Hashing {
    form: Form,
    state: RandomState,
}

impl Hashing {
    /// Creates a hash keyed by `seed`, for keys in this form.
    pub(crate) fn new(form: Form, seed: [u64; 4]) -> Self {
        let [a, b, c, d] = seed;
        Self {
            form,
            state: RandomState::with_seeds(a, b, c, d),
        }
    }

    /// Returns the form of the keys.
    #[inline(always)]
    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// Returns an empty map for this number of keys, whose hash is as fast as that of names.
    pub(crate) fn map<K, V>(&self, keys: usize) -> HashMap<K, V, RandomState> {
        HashMap::with_capacity_and_hasher(keys, self.state.clone())
    }

    /// Returns the hash of the key of a name.
    #[inline(always)]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.state.build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    /// Returns the hash of a value that is no key.
    pub(crate) fn hash_of<T: Hash + ?Sized>(&self, value: &T) -> u64 {
        self.state.hash_one(value)
    }
}

/// The factor of [`mix`]: 2^64 divided by the golden ratio.
const MIX_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns a hash of a number that contains a secret hash, or that no client can choose.
#[inline(always)]
pub(crate) fn mix(number: u64) -> u64 {
    // The upper half of the product depends on all bits, so it is combined with the lower one.
    let product = u128::from(number) * u128::from(MIX_FACTOR);
    (product >> 64) as u64 ^ product as u64
}

/// Copies `from` to `to` in lower case (RFC 4343). Both slices must have the same length.
#[inline(always)]
pub(crate) fn lower(from: &[u8], to: &mut [u8]) {
    copy(from, to, lower_byte);
}

/// Sets bit 5 in every byte from `A` to `Z`.
#[inline(always)]
fn lower_byte(byte: u8) -> u8 {
    byte | u8::from(byte.is_ascii_uppercase()) << 5
}

/// Copies what `map` makes of each byte of `from` to `to`. Both slices must have the same length.
///
/// Copies blocks, so that the compiler maps all bytes of a block at once. If the last block is not whole,
/// one more block copies the end and overlaps the block before it. Slices shorter than a block are copied
/// in smaller blocks, or byte by byte.
#[inline(always)]
fn copy(from: &[u8], to: &mut [u8], map: impl Fn(u8) -> u8) {
    if from.len() >= BLOCK {
        copy_blocks::<BLOCK>(from, to, map);
    } else if from.len() >= BLOCK / 2 {
        copy_blocks::<{ BLOCK / 2 }>(from, to, map);
    } else {
        for (byte, out) in from.iter().zip(to) {
            *out = map(*byte);
        }
    }
}

/// Number of bytes that fit a vector register of every x86-64 processor.
const BLOCK: usize = 16;

/// Like [`copy`], for slices of at least `N` bytes.
#[inline(always)]
fn copy_blocks<const N: usize>(from: &[u8], to: &mut [u8], map: impl Fn(u8) -> u8) {
    let (blocks, rest) = from.as_chunks::<N>();
    for (block, out) in blocks.iter().zip(to.as_chunks_mut().0) {
        *out = block.map(&map);
    }
    if !rest.is_empty()
        && let (Some(block), Some(out)) = (from.last_chunk::<N>(), to.last_chunk_mut())
    {
        *out = block.map(&map);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::name;

    fn key(form: Form, name: &[u8]) -> Key {
        let mut key = Key::new();
        key.set(&Hashing::new(form, [1, 2, 3, 4]), name);
        key
    }

    #[test]
    fn displayed_forms_parse_back() {
        for (text, form) in [("wire", Form::Wire), ("fqdn", Form::Fqdn)] {
            assert_eq!(text.parse(), Ok(form));
            assert_eq!(form.to_string(), text);
        }
        let refused = "text".parse::<Form>().unwrap_err();
        assert_eq!(refused, "'text' is not a form of names: use wire or fqdn");
    }

    #[test]
    fn the_hash_depends_on_seed_type_and_name() {
        let of = |seed, qtype, name: &[u8]| {
            let mut key = Key::new();
            key.set(&Hashing::new(Form::Wire, [seed, 2, 3, 4]), name);
            key.hash_with(qtype)
        };
        let all = [
            of(1, 1, b"a"),
            of(2, 1, b"a"),
            of(1, 2, b"a"),
            of(1, 1, b"b"),
            of(1, 1, b"aa"),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(!all[i + 1..].contains(one), "number {i}");
        }
        assert_eq!(of(1, 1, b"a"), all[0]);
    }

    #[test]
    fn both_forms_make_keys_with_ancestors_as_suffixes() {
        let name = name::parse("WWW.Example.org").unwrap();
        assert_eq!(
            key(Form::Wire, &name).bytes(),
            b"\x03www\x07example\x03org\x00"
        );
        assert_eq!(key(Form::Fqdn, &name).bytes(), b"www.example.org.");
        assert_eq!(key(Form::Wire, &[0]).bytes(), [0]);
        assert_eq!(key(Form::Fqdn, &[0]).bytes(), b"");
        for form in [Form::Wire, Form::Fqdn] {
            let (www, parent) = (key(form, &name), key(form, &name[4..]));
            assert_eq!(www.suffix(4), parent.bytes());
            let mut wildcard = Key::new();
            wildcard.set_wildcard(&Hashing::new(form, [1, 2, 3, 4]), &www, 4);
            let expected = key(form, &name::parse("*.example.org").unwrap());
            assert_eq!(wildcard.bytes(), expected.bytes());
            assert_eq!(wildcard.hash(), expected.hash());
            assert_eq!(wire_len(form, www.bytes().len()), name.len());
            let labels =
                [&name[..], &name[4..], &[0]].map(|name| form.labels(key(form, name).bytes()));
            assert_eq!(labels, [3, 2, 0]);
        }
    }

    #[test]
    fn a_dot_inside_a_label_is_not_a_separator() {
        let (one, two) = (b"\x03a.b\x00", b"\x01a\x01b\x00");
        assert_ne!(key(Form::Fqdn, one).bytes(), key(Form::Fqdn, two).bytes());
        let upper = name::parse("aDb").unwrap();
        assert_ne!(
            key(Form::Fqdn, one).bytes(),
            key(Form::Fqdn, &upper).bytes()
        );
    }

    /// Generates names with arbitrary bytes in their labels.
    fn names() -> impl Strategy<Value = Vec<u8>> {
        let label = prop::collection::vec(any::<u8>(), 1..12);
        prop::collection::vec(label, 0..8).prop_map(|labels| {
            let mut name = Vec::new();
            for label in labels {
                name.push(label.len() as u8);
                name.extend(label);
            }
            name.push(0);
            name
        })
    }

    proptest! {
        #[test]
        fn lower_agrees_with_the_standard_library(bytes: Vec<u8>) {
            let mut out = vec![0; bytes.len()];
            lower(&bytes, &mut out);
            prop_assert_eq!(out, bytes.to_ascii_lowercase());
        }

        #[test]
        fn keys_are_equal_if_and_only_if_names_are(a in names(), b in names()) {
            for form in [Form::Wire, Form::Fqdn] {
                let equal = key(form, &a).bytes() == key(form, &b).bytes();
                prop_assert_eq!(equal, name::eq(&a, &b));
                for start in name::label_starts(&a) {
                    let (whole, part) = (key(form, &a), key(form, &a[start..]));
                    prop_assert_eq!(whole.suffix(start), part.bytes());
                }
            }
        }
    }
}
