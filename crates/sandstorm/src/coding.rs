//! Content codings: the compressed forms in which a response may carry a file (RFC 9110, section
//! 8.4.1).

/// A content coding that the server can produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Coding {
    /// gzip (RFC 1952).
    Gzip,
    /// Brotli (RFC 7932).
    Brotli,
    /// Zstandard (RFC 8878), with a window of at most 8 MB (RFC 9659).
    Zstd,
}

impl Coding {
    /// All codings, in the order of the variants.
    pub(crate) const ALL: [Self; 3] = [Self::Gzip, Self::Brotli, Self::Zstd];

    /// Returns the token of `Accept-Encoding` and `Content-Encoding`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }

    /// Returns the usual end of the names of files in this coding.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Self::Gzip => ".gz",
            Self::Brotli => ".br",
            Self::Zstd => ".zst",
        }
    }

    /// Splits the path of a file in this or another coding into the path without the usual end, and
    /// the coding.
    pub(crate) fn of_path(path: &[u8]) -> Option<(&[u8], Self)> {
        Self::ALL.into_iter().find_map(|coding| {
            let plain = path.strip_suffix(coding.suffix().as_bytes())?;
            let is_file = plain.last().is_some_and(|byte| *byte != b'/');
            is_file.then_some((plain, coding))
        })
    }

    /// Number of first bytes that [`may_have_made`](Self::may_have_made) looks at.
    pub(crate) const MARK_LEN: usize = 4;

    /// Returns true if content can be in this coding, as far as its first bytes tell.
    pub(crate) fn may_have_made(self, content: &[u8]) -> bool {
        match self {
            Self::Gzip => content.starts_with(&[0x1f, 0x8b]),
            Self::Zstd => content.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]),
            // Brotli has no mark.
            Self::Brotli => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_path_tells_the_coding() {
        for coding in Coding::ALL {
            let path = format!("/a.css{}", coding.suffix());
            assert_eq!(
                Coding::of_path(path.as_bytes()),
                Some((&b"/a.css"[..], coding))
            );
        }
        let others: [&[u8]; 7] = [
            b"",
            b"/a",
            b"/a.css",
            b"/gz",
            b"/.gz",
            b"/a.gz.css",
            b"/a.GZ",
        ];
        for path in others {
            assert_eq!(Coding::of_path(path), None, "{path:?}");
        }
        let twice = Coding::of_path(b"/a.br.zst");
        assert_eq!(twice, Some((&b"/a.br"[..], Coding::Zstd)));
    }

    #[test]
    fn names_are_tokens() {
        assert_eq!(Coding::ALL.map(Coding::name), ["gzip", "br", "zstd"]);
    }
}
