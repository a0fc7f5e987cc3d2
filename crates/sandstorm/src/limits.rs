//! Limits on what is loaded.

use crate::fields::MAX_FIELDS_LEN;

/// Maximum depth of nested folders. The served folder itself counts as one.
pub(crate) const MAX_DEPTH: usize = 64;

/// Maximum length of a file in bytes. A file and its head must fit into one content item of the TCP
/// stack.
pub const MAX_FILE_LEN: u64 = (tcpip::MAX_CONTENT_LEN - MAX_HEAD_LEN) as u64;
/// An upper bound for the length of a file's head, in bytes.
const MAX_HEAD_LEN: usize = 4_096 + 2 * MAX_FIELDS_LEN;

/// Limits on what is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of files; 1,000,000 by default.
    pub files: u64,
    /// Maximum total size of the files in bytes; 16 GiB by default. Further files are left out.
    pub bytes: u64,
    /// Maximum number of folders to search; 1,000,000 by default. A folder counts once per path
    /// that leads to it, because a few links can create a huge number of paths.
    pub folders: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            files: 1_000_000,
            bytes: 16 << 30,
            folders: 1_000_000,
        }
    }
}
