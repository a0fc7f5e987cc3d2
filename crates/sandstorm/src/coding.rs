//! Content codings (RFC 9110, section 8.4.1).

/// A content coding in which a file can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Coding {
    /// DEFLATE in the format of gzip (RFC 1952).
    Gzip,
    /// Brotli (RFC 7932).
    Brotli,
    /// Zstandard (RFC 8878).
    Zstd,
}

impl Coding {
    /// All codings. The position of a coding is its number.
    pub(crate) const ALL: [Self; 3] = [Self::Gzip, Self::Brotli, Self::Zstd];

    /// The name in `Content-Encoding` and `Accept-Encoding`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }

    /// The end of the name of a file with coded content.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Self::Gzip => ".gz",
            Self::Brotli => ".br",
            Self::Zstd => ".zst",
        }
    }

    /// Splits the path of a file with coded content into the path without the suffix, and the coding.
    pub(crate) fn of_path(path: &[u8]) -> Option<(&[u8], Self)> {
        Self::ALL.into_iter().find_map(|coding| {
            let plain = path.strip_suffix(coding.suffix().as_bytes())?;
            Some((plain, coding))
        })
    }

    /// Returns true if content can have been made with this coding, as far as its first bytes tell.
    pub(crate) fn may_have_made(self, content: &[u8]) -> bool {
        match self {
            Self::Gzip => content.starts_with(&[0x1f, 0x8b]),
            Self::Zstd => content.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]),
            Self::Brotli => true,
        }
    }
}
