//! Percent-encoding of paths (RFC 3986, section 2.1).

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

/// Bytes to encode in a name: all except the unreserved characters (RFC 3986, section 2.3).
pub(crate) const NAME: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// Bytes to encode in a path: the same, except the slash.
pub(crate) const PATH: &AsciiSet = &NAME.remove(b'/');

/// Stands for an encoded slash in a decoded path, so that it never separates names. Neither the name of
/// a file nor the path of a rule contains this byte.
pub(crate) const ENCODED_SLASH: u8 = 0;

/// A percent sign is not followed by two hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadEncoding;

/// Decodes text. Returns each byte, and whether it was encoded.
pub(crate) fn decode(text: &[u8]) -> impl Iterator<Item = Result<(u8, bool), BadEncoding>> {
    let mut rest = text.iter();
    std::iter::from_fn(move || {
        let first = *rest.next()?;
        if first != b'%' {
            return Some(Ok((first, false)));
        }
        let mut digit = || char::from(*rest.next()?).to_digit(16);
        let byte = digit().and_then(|high| Some((high << 4) | digit()?));
        Some(byte.map_or(Err(BadEncoding), |byte| Ok((byte as u8, true))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_decoded_once_and_strictly() {
        let decoded = |text: &str| decode(text.as_bytes()).collect::<Result<Vec<_>, _>>();
        let expected = vec![(b'a', false), (b'/', true), (b'%', true), (b'2', false)];
        assert_eq!(decoded("a%2f%252"), Ok(expected));
        assert_eq!(decoded("%C3%bc"), Ok(vec![(0xc3, true), (0xbc, true)]));
        for wrong in ["%", "%2", "a%zz", "%2g", "%%41"] {
            assert_eq!(decoded(wrong), Err(BadEncoding), "{wrong}");
        }
    }
}
