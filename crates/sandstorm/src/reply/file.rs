//! The replies for one file, in all of its forms.

use std::sync::Arc;

use crate::coding::Coding;
use crate::digest::Digest;
use crate::disk::DiskFile;
use crate::etag::ETag;
use crate::fields::Fields;
use crate::status::Status;
use crate::tag_key::TagKey;

use super::partial::{PartialHead, VARY};
use super::{HeadBuilder, Reply};

/// The values of the fields in a file's response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileFields<'a> {
    pub(crate) media_type: &'a str,
    /// The media type to use if the content is not valid UTF-8. `None` means that `media_type` is
    /// used in any case.
    pub(crate) media_type_if_not_utf8: Option<&'a str>,
    /// The modification time, as an HTTP date.
    pub(crate) last_modified: &'a str,
    /// The fields common to all responses.
    pub(crate) common: &'a Fields,
    /// The fields of this file. They replace common fields of the same name.
    pub(crate) own: &'a Fields,
    pub(crate) tag_key: &'a TagKey,
}

impl<'a> FileFields<'a> {
    /// Returns the media type of a file. `is_utf8` tells whether its content is valid UTF-8, and is called only
    /// if that matters.
    fn media_type_of(&self, is_utf8: impl FnOnce() -> bool) -> &'a str {
        match self.media_type_if_not_utf8 {
            Some(other) if !is_utf8() => other,
            _ => self.media_type,
        }
    }
}

impl HeadBuilder {
    /// Makes the response with a whole file in memory. `bytes` have this head, with this tag, and the file.
    fn whole(&self, bytes: Arc<[u8]>, tag: Option<ETag>) -> Reply {
        Reply {
            bytes,
            slot_at: self.slot_at,
            head_len: self.text.len() as u16,
            status: Status::Ok,
            is_tagged: tag.is_some(),
            disk: None,
        }
    }
}

fn is_utf8(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok()
}

/// The responses for one form of a file: the whole file, and the 304 response. The response to HEAD is
/// the head of the whole file.
#[derive(Debug)]
pub(crate) struct FileReplies {
    pub(crate) replies: [Reply; 2],
    /// The tag, or `None` if the content is not known yet.
    pub(crate) tag: Option<ETag>,
}

impl FileReplies {
    /// Makes the responses for a file of `len` bytes. `read` writes the content directly after the
    /// head. The content is copied only if it turns out that it needs another media type.
    pub(crate) fn new<E>(
        fields: &FileFields<'_>,
        len: usize,
        read: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        // All tags have the same length, so the head's length is known before the tag is computed
        // from the content.
        let head_len = file_head(fields.media_type, fields, len, Some(ETag::BLANK))
            .finish()
            .text
            .len();
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, head_len + len).collect();
        read(&mut unshared(&mut bytes)[head_len..])?;
        let tag = Some(fields.tag_key.tag_of(&bytes[head_len..]));

        let media_type = fields.media_type_of(|| is_utf8(&bytes[head_len..]));
        let head = file_head(media_type, fields, len, tag).finish();
        if head.text.len() != head_len {
            let body = bytes[head_len..].iter().copied();
            bytes = std::iter::repeat_n(0, head.text.len())
                .chain(body)
                .collect();
        }
        unshared(&mut bytes)[..head.text.len()].copy_from_slice(head.text.as_bytes());

        Ok(Self {
            replies: [head.whole(bytes, tag), not_modified(fields, tag)],
            tag,
        })
    }

    /// Makes the responses for a file in memory whose content and tag are those of another response. The
    /// content is not even copied if that response has the [same head](Reply::has_head).
    pub(crate) fn of_same_content(
        fields: &FileFields<'_>,
        old: &Reply,
        tag: Option<ETag>,
        has_forms: bool,
    ) -> Self {
        let body = old.body();
        let media_type = fields.media_type_of(|| is_utf8(body));
        let head = file_head(media_type, fields, body.len(), tag).finish();
        let head_len = head.text.len();
        let whole = if old.has_head(head.text.as_bytes(), has_forms) {
            old.clone()
        } else {
            let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, head_len + body.len()).collect();
            let (start, rest) = unshared(&mut bytes).split_at_mut(head_len);
            start.copy_from_slice(head.text.as_bytes());
            rest.copy_from_slice(body);
            head.whole(bytes, tag)
        };
        Self {
            replies: [whole, not_modified(fields, tag)],
            tag,
        }
    }

    /// Makes the responses for a file that is not kept in memory. If nothing has read it yet, it has no
    /// tag, and its text may have any charset.
    pub(crate) fn on_disk(
        fields: &FileFields<'_>,
        file: Arc<DiskFile>,
        digest: Option<Digest>,
    ) -> Self {
        let tag = digest.map(|digest| digest.tag);
        let media_type = fields.media_type_of(|| digest.is_some_and(|digest| digest.is_utf8));
        let head = file_head(media_type, fields, file.len(), tag).finish();
        let whole = Reply {
            is_tagged: tag.is_some(),
            disk: Some(file),
            ..head.reply(Status::Ok, "")
        };
        Self {
            replies: [whole, not_modified(fields, tag)],
            tag,
        }
    }

    /// Makes the responses for a coded form of a file whose responses without a coding are `whole` and
    /// `not_modified`.
    pub(crate) fn of_coding(
        whole: &Reply,
        not_modified: &Reply,
        coding: Coding,
        form: &CodedContent<'_>,
    ) -> Self {
        let plain = PartialHead::of(whole);
        let (mut head, tag) = (Vec::new(), form.tag);
        let slot_at = plain.write_coded(coding, form.len(), tag, &mut head);
        let head_len = head.len() as u16;
        head.extend_from_slice(form.bytes);
        let whole = Reply {
            bytes: head.into(),
            slot_at: slot_at as u32,
            head_len,
            status: Status::Ok,
            is_tagged: tag.is_some(),
            disk: form.disk.cloned(),
        };
        // The last field is the tag, or else the time of the last change.
        let lines = not_modified.bytes().strip_suffix(b"\r\n\r\n");
        let lines = lines.unwrap_or_default();
        let last_at = memchr::memrchr(b'\n', lines).map_or(0, |at| at + 1);
        let last = match tag {
            Some(tag) => format!("ETag: {tag}").into_bytes(),
            None => plain.last_modified().to_vec(),
        };
        let bytes = [&lines[..last_at], &last, b"\r\n\r\n"].concat();
        let not_modified = Reply {
            head_len: bytes.len() as u16,
            bytes: bytes.into(),
            ..not_modified.clone()
        };
        Self {
            replies: [whole, not_modified],
            tag,
        }
    }
}

/// The content of a coded form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodedContent<'a> {
    /// The content, or nothing if it is on the disk.
    bytes: &'a [u8],
    disk: Option<&'a Arc<DiskFile>>,
    /// The tag, or `None` if nothing has read the content yet.
    tag: Option<ETag>,
}

impl<'a> CodedContent<'a> {
    /// A content that the server has made. Its tag has this key.
    pub(crate) fn made(bytes: &'a [u8], key: &TagKey) -> Self {
        Self {
            bytes,
            disk: None,
            tag: Some(key.tag_of(bytes)),
        }
    }

    /// The content of a reply, with the tag of this content.
    pub(crate) fn of(reply: &'a Reply, tag: Option<ETag>) -> Self {
        Self {
            bytes: reply.body(),
            disk: reply.disk(),
            tag,
        }
    }

    fn len(&self) -> usize {
        self.disk.map_or(self.bytes.len(), |file| file.len())
    }
}

impl Reply {
    /// Returns the reply with the field `Vary`, if it lacks the field.
    pub(crate) fn with_vary(&self) -> Option<Self> {
        let at = self.slot_end();
        let (start, rest) = self.bytes.split_at(at);
        let has_vary = memchr::memmem::find(self.head(), VARY.as_bytes()).is_some();
        (!has_vary).then(|| Self {
            bytes: [start, VARY.as_bytes(), rest].concat().into(),
            head_len: self.head_len + VARY.len() as u16,
            ..self.clone()
        })
    }

    /// Whether the reply has this head. If its file `has_forms`, it may have had it before
    /// [`with_vary`](Self::with_vary).
    pub(crate) fn has_head(&self, head: &[u8], has_forms: bool) -> bool {
        let (start, rest) = self.head().split_at(self.slot_end());
        let without_vary = rest.strip_prefix(VARY.as_bytes()).filter(|_| has_forms);
        head == self.head()
            || without_vary.is_some_and(|rest| head.strip_prefix(start) == Some(rest))
    }
}

/// Gives mutable access to bytes that were just created.
fn unshared(bytes: &mut Arc<[u8]>) -> &mut [u8] {
    Arc::get_mut(bytes).expect("the Arc is not shared yet")
}

/// Makes the 304 response. Without a tag, it has the time of the last change (RFC 9110, section
/// 15.4.5).
fn not_modified(fields: &FileFields<'_>, tag: Option<ETag>) -> Reply {
    let status = Status::NotModified;
    let head = HeadBuilder::with_own(status, fields.common, &fields.own.without_body());
    let head = match tag {
        Some(tag) => head.field("ETag", tag),
        None => head.field("Last-Modified", fields.last_modified),
    };
    head.finish().reply(status, "")
}

fn file_head(
    media_type: &str,
    fields: &FileFields<'_>,
    len: usize,
    tag: Option<ETag>,
) -> HeadBuilder {
    let head = HeadBuilder::with_own(Status::Ok, fields.common, fields.own)
        .field("Content-Type", media_type)
        .field("Content-Length", len)
        .field("Last-Modified", fields.last_modified);
    let head = match tag {
        Some(tag) => head.field("ETag", tag),
        None => head,
    };
    head.field("Accept-Ranges", "bytes")
}
