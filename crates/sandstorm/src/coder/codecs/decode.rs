//! Checks coded contents.

use std::io::Read as _;

use crate::coding::Coding;

/// Maximum length of a content whose coded form is decoded, in bytes. It is decoded in memory.
const MAX_LEN: usize = 64 << 20;
/// Length of the buffer of the Brotli decoder in bytes, its own default.
const BROTLI_BUFFER_LEN: usize = 4_096;

/// Returns true if `coded` is the coded form of `content`. A content of more than 64 MiB is not
/// checked.
pub(crate) fn is_form_of(coded: &[u8], coding: Coding, content: &[u8]) -> bool {
    let len = content.len();
    if len > MAX_LEN {
        return true;
    }
    let decoded = match coding {
        Coding::Gzip => {
            let mut decoded = vec![0; len];
            let outcome = libdeflater::Decompressor::new().gzip_decompress(coded, &mut decoded);
            outcome.ok().map(|len| decoded[..len].to_vec())
        }
        Coding::Brotli => {
            let mut decoded = Vec::new();
            let reader = brotli::Decompressor::new(coded, BROTLI_BUFFER_LEN);
            // One byte more shows that the content is longer.
            let outcome = reader.take(len as u64 + 1).read_to_end(&mut decoded);
            outcome.ok().map(|_| decoded)
        }
        Coding::Zstd => zstd::bulk::decompress(coded, len).ok(),
    };
    decoded.as_deref() == Some(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coder::Effort;
    use crate::coder::codecs::encode;

    #[test]
    fn only_the_whole_form_of_the_same_content_is_accepted() {
        let content = b"sand and storm ".repeat(100);
        let other = b"sand and dune. ".repeat(100);
        for coding in Coding::ALL {
            let coded = encode(coding, Effort::Fast, &content).unwrap();
            assert!(is_form_of(&coded, coding, &content), "{coding:?}");
            assert!(!is_form_of(&coded, coding, &other), "{coding:?}");
            assert!(!is_form_of(&coded, coding, &content[1..]), "{coding:?}");
            assert!(
                !is_form_of(&coded[..coded.len() / 2], coding, &content),
                "{coding:?}"
            );
            assert!(!is_form_of(b"text", coding, &content), "{coding:?}");
            assert!(!is_form_of(b"", coding, &content), "{coding:?}");
        }
    }
}
