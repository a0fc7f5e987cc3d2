//! Heads of responses with files: their media types and fields, also of files that were loaded before.

use std::sync::Arc;

use super::{Builder, paths_of};
use crate::digest::Digest;
use crate::fields::Fields;
use crate::reply::{FileFields, FileReplies, PartialHead};
use crate::rules::is_hashed;
use crate::site::Site;
use crate::site::media_type::MediaType;
use crate::site::page::FilePage;

/// The field of a file whose name has a hash of its content. A year is the longest time that caches
/// take into account.
const IMMUTABLE: &str = "public, max-age=31536000, immutable";

impl Site {
    /// Returns the media type of the file at `path`, and its other fields.
    pub(super) fn fields_of(&self, path: &[u8]) -> (MediaType, Fields) {
        let settings = &self.settings;
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
        let mut own = self.headers.fields_for(&paths_of(path));
        if settings.immutable && !own.has("cache-control") && is_hashed(name) {
            // If there is no room for the field, caches decide themselves.
            let _ = own.add("Cache-Control", IMMUTABLE);
        }
        let media_type = match own.take("content-type") {
            Some(media_type) => MediaType::given(media_type),
            None => settings.media_types.of(path),
        };
        (media_type, own)
    }

    /// Returns the digest of a file on the disk, if it is known. `is_utf8_needed` tells whether its text may be
    /// valid UTF-8 or not.
    fn digest_of(&self, path: &[u8], page: FilePage, is_utf8_needed: bool) -> Option<Digest> {
        let (media_type, _) = self.fields_of(path);
        let shown = PartialHead::of(self.reply(page.first)).media_type();
        // The old head tells it, if its media type depends on it.
        let is_known = media_type.without_charset.is_some();
        let is_utf8 = is_known && shown == media_type.name;
        let tag = page.tag.filter(|_| is_known || !is_utf8_needed)?;
        Some(Digest { tag, is_utf8 })
    }
}

impl Builder {
    /// Adds a file from the `previous` site with other fields. If they make no difference for it, its replies
    /// are taken over.
    pub(super) fn make_head_again(
        &mut self,
        path: &[u8],
        page: FilePage,
        previous: &Site,
    ) -> FilePage {
        let [whole, not_modified] = page.replies().map(|id| previous.reply(id));
        let has_forms = previous.has_forms(path);
        let make = |fields: &FileFields<'_>| match whole.disk() {
            None => FileReplies::of_same_content(fields, whole, page.tag, has_forms),
            Some(file) => {
                let is_utf8_needed = fields.media_type_if_not_utf8.is_some();
                let digest = previous.digest_of(path, page, is_utf8_needed);
                FileReplies::on_disk(fields, Arc::clone(file), digest)
            }
        };
        let compressible_len = whole.disk().map_or(whole.body_len(), |_| 0);
        let file = self.with_fields_of(path, page.modified, compressible_len, make);
        // What a form adds to the heads of its file is not in the new ones yet.
        let is_equal = whole.has_head(file.replies[0].head(), has_forms)
            && not_modified.has_head(file.replies[1].head(), has_forms);
        if is_equal {
            return self.keep_page(page, previous);
        }
        let first = self.add(file.replies);
        self.made_again.insert(first.0, page.first.0);
        FilePage {
            first,
            tag: file.tag,
            modified: page.modified,
        }
    }
}

#[cfg(test)]
#[path = "heads_tests.rs"]
mod tests;
