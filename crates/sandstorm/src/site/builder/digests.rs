//! Gives files on the disk what was found out about their content.

use std::collections::HashMap;
use std::sync::Arc;

use super::Builder;
use super::codings::Forms;
use crate::digest::Digest;
use crate::disk::DiskFile;
use crate::etag::ETag;
use crate::reply::{FileFields, FileReplies};
use crate::site::page::{FilePage, Page, ReplyId};
use crate::site::{NextSite, Site};

impl Site {
    /// The files on the disk without a tag.
    pub(crate) fn untagged(&self) -> impl Iterator<Item = Arc<DiskFile>> {
        let files = self.untagged_pages();
        files.map(|(_, _, file)| Arc::clone(file))
    }

    /// The paths of these files, with their pages. The content of a coded form has a path too.
    fn untagged_pages(&self) -> impl Iterator<Item = (&[u8], FilePage, &Arc<DiskFile>)> {
        let paths = self.pages.keys().filter(|path| !path.ends_with(b"/"));
        let pages = paths.filter_map(|path| Some((&**path, self.file_at(path)?)));
        let pages = pages.filter(|(_, page)| page.tag.is_none());
        pages.filter_map(|(path, page)| Some((path, page, self.reply(page.first).disk()?)))
    }

    /// Returns the site with the digests of files, by their numbers.
    pub(crate) fn with_digests(&self, digests: &HashMap<u32, Digest>) -> NextSite {
        let mut builder = Builder::of(self.clone());
        let mut forms = builder.take_forms();
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
        builder.give_digests_to_forms(&mut forms, &tagged, digests);
        builder.set_forms(forms);
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

    /// Makes the replies of coded forms again, if their own content or that of their file has a digest.
    fn give_digests_to_forms(
        &mut self,
        forms: &mut Forms,
        tagged: &HashMap<ReplyId, ETag>,
        digests: &HashMap<u32, Digest>,
    ) {
        for variants in forms.values_mut() {
            let tag = tagged.get(&variants.plain.first);
            if tag.is_some() {
                variants.plain.tag = tag.copied();
                self.add_vary(variants.plain);
            }
            for one in &mut variants.coded {
                let file = self.site.reply(one.page.first).disk();
                let digest = file.and_then(|file| digests.get(&file.number()));
                if let Some(digest) = digest {
                    one.page.tag = Some(digest.tag);
                }
                if tag.is_some() || digest.is_some() {
                    self.make_form_again(variants.plain, one);
                }
            }
        }
    }
}
