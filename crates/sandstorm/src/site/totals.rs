//! Totals of a loaded site.

use control::report;

/// Totals of a loaded site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of files.
    pub files: u64,
    /// Number of folders with an `index.html`.
    pub indexes: u64,
    /// Total length of the files, in bytes.
    pub content_bytes: u64,
    /// Number of files that are not kept in memory. They are among the files.
    pub disk_files: u64,
    /// Total length of these files, in bytes.
    pub disk_bytes: u64,
    /// Number of hidden files and folders, which were left out.
    pub hidden: u64,
    /// Number of entries that were left out because they cannot be served.
    pub skipped: u64,
    /// Number of files that changed while they were read, and keep the content that they had before.
    pub outdated: u64,
    /// Number of replies: two for each form of a file, two for each redirect, and the shared ones.
    pub replies: u64,
    /// Number of coded forms of files, such as gzip.
    pub coded: u64,
    /// Total length of all replies in memory, in bytes.
    pub reply_bytes: u64,
}

/// Memory of the tables for each reply, in bytes, if there is one worker. It was measured with a million
/// short files.
const TABLES_PER_REPLY: u64 = 320;

impl Totals {
    /// The memory for all replies, with their tables, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.reply_bytes + TABLES_PER_REPLY * self.replies
    }

    /// Says how many entries are not served as they are on the disk, for the result of a reload.
    pub(crate) fn deviations(&self) -> String {
        let counts = [
            ("left out, see the log", self.skipped),
            (
                "changed while they were read, so reload again",
                self.outdated,
            ),
        ];
        let counts = counts.iter().filter(|(_, count)| *count > 0);
        let texts = counts.map(|(what, count)| format!("; {what}: {}", report::count(*count)));
        texts.collect::<Vec<_>>().concat()
    }

    /// Adds the totals of another site.
    pub(super) fn add(&mut self, other: &Self) {
        let Self {
            files,
            indexes,
            content_bytes,
            disk_files,
            disk_bytes,
            hidden,
            skipped,
            outdated,
            replies,
            coded,
            reply_bytes,
        } = self;
        *files += other.files;
        *indexes += other.indexes;
        *content_bytes += other.content_bytes;
        *disk_files += other.disk_files;
        *disk_bytes += other.disk_bytes;
        *hidden += other.hidden;
        *skipped += other.skipped;
        *outdated += other.outdated;
        *replies += other.replies;
        *coded += other.coded;
        *reply_bytes += other.reply_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_says_what_is_not_served_as_it_is() {
        let mut totals = Totals::default();
        assert_eq!(totals.deviations(), "");
        totals.outdated = 2;
        let outdated = "; changed while they were read, so reload again: 2";
        assert_eq!(totals.deviations(), outdated);
        totals.skipped = 1_000;
        let left_out = "; left out, see the log: 1,000";
        assert_eq!(totals.deviations(), [left_out, outdated].concat());
    }
}
