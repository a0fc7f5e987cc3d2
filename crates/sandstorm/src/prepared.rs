//! Replies of an application that are made once and sent often.

use tcpip::{ContentError, ContentId, Contents, Slot};

use crate::date::SLOT_LEN;
use crate::fields::Fields;
use crate::reply::ETag;
use crate::response::Response;
use crate::status::{Status, StatusCode};

/// Names a reply that was [made before](Replies::add). It is sent from prepared
/// packets, as a file is.
#[derive(Clone, Copy, Debug)]
pub struct PreparedId {
    pub(crate) content: ContentId,
    pub(crate) status: StatusCode,
    pub(crate) head_len: u32,
    pub(crate) slot_at: u32,
    pub(crate) unchanged: Option<Unchanged>,
}

/// What is sent to a client that has the reply already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unchanged {
    pub(crate) tag: ETag,
    pub(crate) content: ContentId,
    pub(crate) slot_at: u32,
}

/// Where replies are made that are sent often: when the application is made, or in any
/// of its callbacks.
#[derive(Debug)]
pub struct Replies<'a> {
    contents: &'a mut Contents,
    common: &'a Fields,
}

impl<'a> Replies<'a> {
    pub(crate) fn new(contents: &'a mut Contents, common: &'a Fields) -> Self {
        Self { contents, common }
    }

    /// Makes a reply for GET and for HEAD. One with status 200 gets an `ETag`, if it
    /// has none: a client that has the reply is told so.
    ///
    /// # Errors
    /// When it is longer than the TCP stack takes, or there are too many.
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
        // They fit, as there are no more than before.
        let _ = unchanged.add_fields(&response.lines_without_body());
        let mut bytes = Vec::new();
        let head = unchanged.write_head(self.common, line, true, &mut bytes);
        let content = self.contents.add(bytes.into(), Some(slot(head.slot_at)))?;
        Ok(Unchanged {
            tag,
            content,
            slot_at: head.slot_at as u32,
        })
    }

    /// Removes a reply. Responses on their way keep its bytes. `false` when it was
    /// removed before.
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
