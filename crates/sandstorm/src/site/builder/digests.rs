//! Gives files on the disk what was found out about their content.

use std::collections::HashMap;
use std::sync::Arc;

use super::Builder;
use crate::digest::Digest;
use crate::disk::DiskFile;
use crate::reply::{FileFields, FileReplies};
use crate::site::page::{FilePage, Page};
use crate::site::{NextSite, Site};

impl Site {
    /// The files on the disk without a tag.
    pub(crate) fn untagged(&self) -> impl Iterator<Item = Arc<DiskFile>> {
        let files = self.untagged_pages();
        files.map(|(_, _, file)| Arc::clone(file))
    }

    /// The paths of these files, with their pages.
    fn untagged_pages(&self) -> impl Iterator<Item = (&[u8], FilePage, &Arc<DiskFile>)> {
        let pages = self.pages.iter().filter_map(|(path, page)| match page {
            Page::File(file) if file.tag.is_none() && !path.ends_with(b"/") => Some((path, *file)),
            _ => None,
        });
        pages.filter_map(|(path, page)| Some((&**path, page, self.reply(page.first).disk()?)))
    }

    /// Returns the site with the digests of files, by their numbers.
    pub(crate) fn with_digests(&self, digests: &HashMap<u32, Digest>) -> NextSite {
        let mut builder = Builder::of(self.clone());
        let mut tagged = HashMap::new();
        for (path, page, file) in self.untagged_pages() {
            if let Some(digest) = digests.get(&file.number()) {
                builder.give_digest(path, page, file, *digest);
                tagged.insert(page.first, digest.tag);
            }
        }
        for page in builder.all_pages() {
            if let Page::File(file) = page
                && let Some(tag) = tagged.get(&file.first)
            {
                file.tag = Some(*tag);
            }
        }
        builder.into_next(self)
    }
}

impl Builder {
    /// Makes the replies of the file at `path` again.
    fn give_digest(&mut self, path: &[u8], page: FilePage, file: &Arc<DiskFile>, digest: Digest) {
        let make =
            |fields: &FileFields<'_>| FileReplies::on_disk(fields, Arc::clone(file), Some(digest));
        let replies = self.with_fields_of(path, page.modified, 0, make);
        for (id, reply) in page.replies().into_iter().zip(replies.replies) {
            self.replace(id, reply);
        }
    }
}
