//! Recognition of file names that contain a hash of the file's content.

/// Length of a hash in base64url or base32, in characters.
const SHORT_LEN: usize = 8;
/// Minimum length of a hash in hexadecimal digits.
const MIN_HEX_LEN: usize = 8;
/// Minimum length of hexadecimal digits that are a hash regardless of their mixture.
const LONG_HEX_LEN: usize = 20;

/// Extensions of HTML files. The address of a page stays the same when the page changes.
const HTML: [&[u8]; 3] = [b"html", b"htm", b"xhtml"];
/// Extensions of compressed copies of a file.
const COMPRESSED: [&[u8]; 3] = [b"gz", b"br", b"zst"];

/// Returns true if a file's name contains a content hash, as bundlers write it. So the content
/// under this name never changes.
///
/// `name` is the name of the file, or a path that ends with it. A hash lies between dots, hyphens
/// or underscores, before the last extension. It is one of these:
///
/// - at least 8 hexadecimal digits, with letters and digits mixed.
/// - at least 20 hexadecimal digits.
/// - exactly 8 letters and digits, with both cases and digits mixed, but not at the start.
/// - exactly 8 digits of base32 (RFC 4648, section 6), with letters and digits mixed, but not at the
///   start.
///
/// Letters and digits are mixed if they alternate at least twice. So neither `Chapter1` nor
/// `20240131b` is a hash. The function prefers to miss a hash, because a cache never asks again for
/// a file that has one. For the same reason, a hash in base64url that contains a hyphen or an
/// underscore is missed.
pub(crate) fn is_hashed(name: &[u8]) -> bool {
    let start = memchr::memrchr(b'/', name).map_or(0, |at| at + 1);
    let Some((mut stem, mut extension)) = split_extension(&name[start..]) else {
        return false;
    };
    if is_among(extension, &COMPRESSED)
        && let Some(parts) = split_extension(stem)
    {
        (stem, extension) = parts;
    }
    if is_among(extension, &HTML) {
        return false;
    }
    let is_separator = |byte: &u8| matches!(byte, b'.' | b'-' | b'_');
    let mut parts = stem.split(is_separator).enumerate();
    parts.any(|(index, part)| is_hex_hash(part) || (index > 0 && is_short_hash(part)))
}

/// Splits a name at its last dot.
fn split_extension(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let dot = memchr::memrchr(b'.', name)?;
    Some((&name[..dot], &name[dot + 1..]))
}

fn is_among(extension: &[u8], extensions: &[&[u8]]) -> bool {
    let is_same = |other: &&[u8]| other.eq_ignore_ascii_case(extension);
    extensions.iter().any(is_same)
}

fn is_hex_hash(part: &[u8]) -> bool {
    part.len() >= MIN_HEX_LEN
        && part.iter().all(u8::is_ascii_hexdigit)
        && (part.len() >= LONG_HEX_LEN || is_mixed(part))
}

fn is_short_hash(part: &[u8]) -> bool {
    let is_base32 = part
        .iter()
        .all(|byte| matches!(byte, b'A'..=b'Z' | b'2'..=b'7'));
    let has_both_cases =
        part.iter().any(u8::is_ascii_lowercase) && part.iter().any(u8::is_ascii_uppercase);
    part.len() == SHORT_LEN
        && part.iter().all(u8::is_ascii_alphanumeric)
        && (has_both_cases || is_base32)
        && is_mixed(part)
}

/// Returns true if letters and digits alternate at least twice.
fn is_mixed(part: &[u8]) -> bool {
    let alternates = |pair: &&[u8]| pair[0].is_ascii_digit() != pair[1].is_ascii_digit();
    part.windows(2).filter(alternates).count() >= 2
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_from_bundlers_contain_a_hash() {
        for name in [
            "app.3f9a1b2c.js",
            "app.3F9A1B2C.js",
            "main-BfX3k2Qd.js",
            "chunk-7QHJ5PLR.js",
            "main_BfX3k2Qd.css",
            "index.a1b2c3d4e5f6.chunk.css",
            "logo-5f8d9c7b6a.svg",
            "logo-5f8d9c7b6a.min.svg",
            "3f9a1b2c.png",
            "0123456789abcdefabcd.png",
            "x.01234567890123456789.woff2",
            "x-abcdefabcdefabcdefab.js",
            "app.3f9a1b2c.js.map",
            "app.3f9a1b2c.js.gz",
            "/assets/app.3f9a1b2c.js",
        ] {
            assert!(is_hashed(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn other_names_contain_none() {
        for name in [
            "",
            ".",
            "a",
            "jquery-3.6.0.min.js",
            "report-20240131.pdf",
            "report-20240131b.pdf",
            "bootstrap.min.css",
            "IMG_20240131.jpg",
            "IMG_20240131_123456789.jpg",
            "document-library.js",
            "defaced-deadbeef.js",
            "facade2024.jpg",
            "book-Chapter1.pdf",
            "book-3Columns.css",
            "BfX3k2Qd.js",
            "main-BfX3k2Qd9.js",
            "main-REPORT24.js",
            "app.3f9a1b2.js",
            "app.3f9a1b2c",
            "app-3f9a1b2c",
            "app.js.3f9a1b2c",
            "page.3f9a1b2c.html",
            "page.3f9a1b2c.HTM",
            "page.3f9a1b2c.html.gz",
            "3f9a1b2c.d/app.js",
        ] {
            assert!(!is_hashed(name.as_bytes()), "{name}");
        }
    }

    proptest! {
        /// Checks that no name causes a panic, and that the folder does not matter.
        #[test]
        fn the_folder_does_not_matter(name in "[a-fA-F0-9._-]{0,24}") {
            let path = format!("/3f9a1b2c.d/{name}");
            prop_assert_eq!(is_hashed(path.as_bytes()), is_hashed(name.as_bytes()));
        }
    }
}
