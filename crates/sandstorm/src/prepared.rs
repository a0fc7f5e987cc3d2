//! Replies that an application prepares once and sends many times.

use tcpip::{ContentError, ContentId, Contents, Slot};

use crate::date::SLOT_LEN;
use crate::etag::ETag;
use crate::fields::Fields;
use crate::response::Response;
use crate::status::{Status, StatusCode};

/// Identifies a [prepared](Replies::add) reply. The reply is sent from prepared packets, like a
/// file.
#[derive(Clone, Copy, Debug)]
pub struct PreparedId {
    pub(crate) content: ContentId,
    pub(crate) status: StatusCode,
    pub(crate) head_len: u32,
    pub(crate) slot_at: u32,
    pub(crate) unchanged: Option<Unchanged>,
}

/// The 304 response to a client that already has the reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unchanged {
    pub(crate) tag: ETag,
    pub(crate) content: ContentId,
    pub(crate) slot_at: u32,
}

/// Prepares replies that will be sent many times, and removes them. It is available when the
/// application is created, and in all callbacks except [`App::on_close`](crate::App::on_close).
#[derive(Debug)]
pub struct Replies<'a> {
    contents: &'a mut Contents,
    common: &'a Fields,
}

impl<'a> Replies<'a> {
    pub(crate) fn new(contents: &'a mut Contents, common: &'a Fields) -> Self {
        Self { contents, common }
    }

    /// Prepares a reply for GET and HEAD. A 200 reply without an `ETag` gets one, so that a client
    /// that already has the reply receives 304.
    ///
    /// # Errors
    /// [`ContentError`] if the reply is longer than the TCP stack accepts, or if the stack cannot
    /// store another content item.
    pub fn add(&mut self, response: &Response) -> Result<PreparedId, ContentError> {
        let status = response.status();
        let is_tagged = status == StatusCode::OK && !response.fields().has("etag");
        let tag = is_tagged.then(|| ETag::of(response.body()));
        let line = tag.map_or_else(String::new, |tag| format!("ETag: {tag}\r\n"));
        let mut bytes = Vec::new();
        let head = response.write_head(self.common, &line, true, &mut bytes);
        if !status.is_bodiless() {
            bytes.extend_from_slice(response.body());
        }
        let content = self.contents.add(bytes.into(), Some(slot(head.slot_at)))?;
        let unchanged = match tag {
            Some(tag) => {
                let unchanged = self.add_unchanged(response, tag, &line);
                if unchanged.is_err() {
                    self.contents.remove(content);
                }
                Some(unchanged?)
            }
            None => None,
        };
        Ok(PreparedId {
            content,
            status,
            head_len: head.len as u32,
            slot_at: head.slot_at as u32,
            unchanged,
        })
    }

    fn add_unchanged(
        &mut self,
        response: &Response,
        tag: ETag,
        line: &str,
    ) -> Result<Unchanged, ContentError> {
        let mut unchanged = Response::new();
        unchanged.set_status(Status::NotModified.into());
        // Cannot fail: these fields are a subset of fields that already fitted.
        let _ = unchanged.add_fields(&response.fields().without_body());
        let mut bytes = Vec::new();
        let head = unchanged.write_head(self.common, line, true, &mut bytes);
        let content = self.contents.add(bytes.into(), Some(slot(head.slot_at)))?;
        Ok(Unchanged {
            tag,
            content,
            slot_at: head.slot_at as u32,
        })
    }

    /// Removes a reply. Responses in flight are not affected. Returns `false` if the reply was
    /// already removed.
    pub fn remove(&mut self, prepared: PreparedId) -> bool {
        if let Some(unchanged) = prepared.unchanged {
            self.contents.remove(unchanged.content);
        }
        self.contents.remove(prepared.content)
    }
}

fn slot(at: usize) -> Slot {
    Slot {
        offset: at as u32,
        len: SLOT_LEN as u32,
    }
}
