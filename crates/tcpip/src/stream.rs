//! What a connection's send stream consists of.

use crate::wire::Seq;

/// Entries of a connection's send stream: what can be written before
/// something is acknowledged.
pub const STREAM_ENTRIES: usize = 4;

/// Where a stream entry's bytes are: a content, or a write buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Source(u32);

impl Source {
    const BUFFER: u32 = 1 << 31;

    pub(crate) const fn content(index: u32) -> Self {
        Self(index)
    }

    pub(crate) const fn write_buffer(index: u32) -> Self {
        Self(index | Self::BUFFER)
    }

    /// The write buffer, if it is one.
    #[inline(always)]
    pub(crate) const fn buffer(self) -> Option<u32> {
        if self.0 & Self::BUFFER == 0 {
            None
        } else {
            Some(self.0 & !Self::BUFFER)
        }
    }

    /// The content, where it is no buffer.
    #[inline(always)]
    pub(crate) const fn index(self) -> u32 {
        self.0
    }
}

const _: () = assert!(crate::content::MAX_CONTENTS < 1 << 31);

/// One entry of the send stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Entry {
    /// Of its first byte.
    pub(crate) start: Seq,
    pub(crate) source: Source,
    /// For [`Application::render`](crate::Application::render).
    pub(crate) stamp: u32,
}

impl Entry {
    /// The place of an entry that is not in use.
    pub(crate) const NONE: Self = Self {
        start: Seq(0),
        source: Source(0),
        stamp: 0,
    };
}

/// A place in the send stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) source: Source,
    pub(crate) stamp: u32,
    /// From the source's start.
    pub(crate) offset: u32,
    /// Bytes from here to the entry's end.
    pub(crate) left: u32,
}
