//! Names the files that content was read from.

use std::path::PathBuf;

/// Files that content was read from. The server's user should be able to read them again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentFiles {
    /// Files that are served.
    pub served: Vec<PathBuf>,
    /// Files that are not served, but that each reload must read again, such as a file with keys.
    pub to_reload: Vec<PathBuf>,
}

impl ContentFiles {
    /// Adds the files of other content.
    pub fn add(&mut self, other: Self) {
        self.served.extend(other.served);
        self.to_reload.extend(other.to_reload);
    }
}
