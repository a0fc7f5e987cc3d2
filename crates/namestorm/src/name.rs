//! Domain names in wire format (RFC 1035, section 3.1). The keys of all tables in this crate are
//! derived from this format.
//!
//! A name is a sequence of labels. Each label is preceded by its length byte, and the empty root
//! label ends the name. Length bytes are at most 63, below `A` (65), so a whole name can be
//! converted to lower case byte by byte.

use std::fmt;
use std::str::FromStr;

/// Maximum length of a name in bytes, including the root label (RFC 1035, section 2.3.4).
pub(crate) const MAX_NAME: usize = 255;
/// Maximum length of a label in bytes (RFC 1035, section 2.3.4).
pub(crate) const MAX_LABEL: usize = 63;
/// Maximum number of labels in a name, not counting the root label.
pub(crate) const MAX_LABELS: usize = 127;
/// Maximum length of a sort key in bytes. Each byte of a name may take two bytes.
pub(crate) const MAX_SORT_KEY: usize = 2 * MAX_NAME;
/// The root name.
pub(crate) const ROOT: &[u8] = &[0];
/// The label `*` with its length byte.
pub(crate) const WILDCARD: &[u8] = b"\x01*";

/// Returns true if `bytes` is exactly one uncompressed name.
pub(crate) fn is_name(bytes: &[u8]) -> bool {
    prefix_len(bytes) == Some(bytes.len())
}

/// Returns the length in bytes of the uncompressed name at the start of `bytes`. Returns `None` if
/// `bytes` does not start with an uncompressed name.
pub(crate) fn prefix_len(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let len = usize::from(*bytes.get(at)?);
        at += 1 + len;
        if len > MAX_LABEL || at > MAX_NAME {
            return None;
        }
        if len == 0 {
            return Some(at);
        }
    }
}

/// Returns the offset of each label in `name`, except the root label.
pub(crate) fn label_starts(name: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at;
        let len = usize::from(*name.get(start)?);
        at += 1 + len;
        (len > 0).then_some(start)
    })
}

/// Returns the name without its first label, or `None` for the root.
pub(crate) fn parent(name: &[u8]) -> Option<&[u8]> {
    let len = usize::from(*name.first()?);
    if len == 0 { None } else { name.get(1 + len..) }
}

/// Returns the labels of `name`, leftmost first, except the root label.
pub(crate) fn labels(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    label_starts(name).map(move |at| &name[at + 1..][..usize::from(name[at])])
}

/// Returns true if two names are equal, ignoring case (RFC 4343).
pub(crate) fn eq(a: &[u8], b: &[u8]) -> bool {
    a.eq_ignore_ascii_case(b)
}

/// Returns true if `name` is `apex` or below it.
pub(crate) fn is_within(name: &[u8], apex: &[u8]) -> bool {
    let Some(cut) = name.len().checked_sub(apex.len()) else {
        return false;
    };
    let at_boundary = cut == 0 || apex == ROOT || label_starts(name).any(|start| start == cut);
    at_boundary && eq(&name[cut..], apex)
}

/// Returns true if the first label is `*` (RFC 4592, section 2.1.1).
pub(crate) fn is_wildcard(name: &[u8]) -> bool {
    name.starts_with(WILDCARD)
}

/// Appends the sort key of `name`, which must be within `apex`. Comparing sort keys gives the
/// canonical order of names (RFC 4034, section 6.1).
///
/// A key holds the labels below the apex in lower case, rightmost first, each followed by a zero
/// byte. The key of a name is a prefix of the keys of all names below it. The apex has the empty
/// key.
///
/// To keep the separator unique, the bytes 0 and 1 inside a label are escaped as (1, 1) and (1, 2).
pub(crate) fn append_sort_key(key: &mut Vec<u8>, name: &[u8], apex: &[u8]) {
    let below = name.len() - apex.len();
    let mut starts = [0u8; MAX_LABELS];
    let mut count = 0;
    for start in label_starts(name).take_while(|start| *start < below) {
        starts[count] = start as u8;
        count += 1;
    }
    for start in starts[..count]
        .iter()
        .rev()
        .map(|start| usize::from(*start))
    {
        for byte in &name[start + 1..][..usize::from(name[start])] {
            match byte {
                0 => key.extend([1, 1]),
                1 => key.extend([1, 2]),
                _ => key.push(byte.to_ascii_lowercase()),
            }
        }
        key.push(0);
    }
}

/// Parses a name in presentation format, with or without the final dot. Returns `None` if the text
/// is not a name.
pub(crate) fn parse(text: &str) -> Option<Vec<u8>> {
    let name = domain::base::Name::<Vec<u8>>::from_str(text)
        .ok()?
        .into_octets();
    is_name(&name).then_some(name)
}

/// A domain name, at most 255 bytes long.
///
/// ```
/// let name: namestorm::Name = "www.Example.org".parse()?;
/// assert_eq!(name.as_wire(), b"\x03www\x07Example\x03org\x00");
/// assert_eq!(name.to_string(), "www.Example.org.");
/// # Ok::<(), namestorm::NameError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Name(Box<[u8]>);

/// The text is not a domain name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a domain name: use labels of 1 to 63 bytes separated by dots, and at most 255 \
     bytes in total"
)]
pub struct NameError(pub String);

impl Name {
    /// Returns the name in uncompressed wire format (RFC 1035, section 3.1).
    pub fn as_wire(&self) -> &[u8] {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;

    /// Parses a name in presentation format, with or without the final dot.
    fn from_str(text: &str) -> Result<Self, NameError> {
        let name = parse(text).ok_or_else(|| NameError(text.to_owned()))?;
        Ok(Self(name.into()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown(&self.0).fmt(f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Displays a name in presentation format, with the final dot.
#[derive(Clone, Copy)]
pub(crate) struct Shown<'a>(pub &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == ROOT {
            return f.write_str(".");
        }
        for label in labels(self.0) {
            for &byte in label {
                match byte {
                    b'.' | b'\\' | b'"' | b';' | b'(' | b')' | b'@' | b'$' => {
                        write!(f, "\\{}", char::from(byte))?;
                    }
                    0x21..=0x7e => write!(f, "{}", char::from(byte))?,
                    _ => write!(f, "\\{byte:03}")?,
                }
            }
            f.write_str(".")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Vec<u8> {
        parse(text).unwrap()
    }

    #[test]
    fn prefix_len_returns_the_length_of_a_name() {
        assert_eq!(prefix_len(b"\x03www\x00rest"), Some(5));
        assert_eq!(prefix_len(b"\x03www"), None, "no root label");
        assert_eq!(prefix_len(b"\x40"), None, "a label of 64");
        assert_eq!(prefix_len(b"\xc0\x0c"), None, "a pointer");
        let longest = [[1, b'a'].repeat(MAX_LABELS), vec![0]].concat();
        assert_eq!(longest.len(), MAX_NAME);
        assert!(is_name(&longest));
        assert_eq!(label_starts(&longest).count(), MAX_LABELS);
        assert!(!is_name(&[&[1, b'a'][..], &longest].concat()));
        assert!(parse("a..b").is_none());
    }

    #[test]
    fn is_within_respects_label_boundaries() {
        let apex = name("Example.org");
        assert!(is_within(&name("example.ORG."), &apex));
        assert!(is_within(&name("a.b.example.org"), &apex));
        assert!(!is_within(&name("badexample.org"), &apex));
        assert!(!is_within(&name("org"), &apex));
        assert!(is_within(&apex, ROOT));
        // The name ends with the apex's bytes, but those bytes start inside a label.
        assert!(!is_within(
            b"\x0cx\x07example\x03org\x00",
            b"\x07example\x03org\x00"
        ));
    }

    #[test]
    fn the_parent_of_a_name_lacks_its_first_label() {
        assert_eq!(parent(b"\x03www\x03org\x00"), Some(&b"\x03org\x00"[..]));
        assert_eq!(parent(b"\x03org\x00"), Some(ROOT));
        assert_eq!(parent(ROOT), None);
        assert_eq!(parent(b""), None);
    }

    #[test]
    fn sort_keys_escape_the_bytes_0_and_1() {
        let mut key = vec![b'k'];
        append_sort_key(
            &mut key,
            b"\x05\x00\x01\x02A\xff\x01b\x03org\x00",
            b"\x03org\x00",
        );
        assert_eq!(key, [b'k', b'b', 0, 1, 1, 1, 2, 2, b'a', 0xff, 0]);
    }

    /// Checks the example of RFC 4034, section 6.1.
    #[test]
    fn keys_sort_in_canonical_order() {
        let apex = name("example");
        let mut names = vec![apex.clone()];
        for text in [
            "a.example",
            "yljkjljk.a.example",
            "Z.a.example",
            "zABC.a.EXAMPLE",
            "z.example",
            "\\001.z.example",
            "*.z.example",
            "\\200.z.example",
        ] {
            names.push(name(text));
        }
        let keys: Vec<_> = names
            .iter()
            .map(|name| {
                let mut key = Vec::new();
                append_sort_key(&mut key, name, &apex);
                key
            })
            .collect();
        assert!(keys.is_sorted(), "{keys:?}");
        assert_eq!(keys[0], b"");
        assert!(keys[2].starts_with(&keys[1]));
    }

    #[test]
    fn parsed_names_are_displayed_as_written() {
        for text in [".", "www.example.org.", "a\\.b.c.", "\\000\\255.x."] {
            assert_eq!(Shown(&name(text)).to_string(), text);
        }
    }
}
