//! How much time coding may take.

/// How much time the encoder may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Effort {
    /// Tens of megabytes per second.
    Fast,
    /// The shortest form, at about half a megabyte per second for gzip, one for Brotli, and four for
    /// zstd.
    Best,
}

impl Effort {
    /// Both efforts, in ascending order.
    pub(crate) const ALL: [Self; 2] = [Self::Fast, Self::Best];

    /// Returns the word for the effort in file names and settings.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Best => "best",
        }
    }
}
