//! Hints of the kernel about zone files that have changed (inotify).
//!
//! A reload looks at all files, which takes long if there are very many. With a hint, it reads a changed zone
//! before that. Nothing depends on a hint: the kernel does not see each change of each file system, and it
//! forgets changes if there are too many.

#[cfg(target_os = "linux")]
mod inotify;

#[cfg(target_os = "linux")]
pub(crate) use self::inotify::Hints;

/// No hints, because no content can be reloaded on other systems.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) struct Hints;

#[cfg(not(target_os = "linux"))]
impl Hints {
    /// Returns no hints.
    pub(crate) fn about<'f>(_: impl Iterator<Item = &'f std::path::Path>) -> Self {
        Self
    }

    /// Returns nothing.
    pub(crate) fn take(&self) -> std::collections::HashSet<std::path::PathBuf> {
        std::collections::HashSet::new()
    }
}
