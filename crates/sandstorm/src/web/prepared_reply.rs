//! The replies of a site as contents of the TCP stack.

use std::sync::Arc;

use tcpip::{ContentError, ContentId, Contents, Slot};

use crate::date::SLOT_LEN;
use crate::known_sites::HostedId;
use crate::reply::Reply;
use crate::status::Status;

/// One of the site's prepared replies, stored in the TCP stack as a content item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreparedReply {
    pub(crate) content: ContentId,
    pub(super) status: Status,
    /// Whether the body is on the disk.
    pub(super) is_on_disk: bool,
    /// The hosted site that the reply belongs to.
    pub(super) site: HostedId,
    /// Length of the body in bytes, if it is in memory.
    pub(super) body_len: u32,
}

// A site with many files has many of them.
const _: () = assert!(size_of::<PreparedReply>() == 16);

impl PreparedReply {
    /// Returns the reply as one of this hosted site.
    pub(crate) fn of(self, site: HostedId) -> Self {
        Self { site, ..self }
    }

    /// Adds a reply of a hosted site to the stack's content items.
    pub(crate) fn add(
        reply: &Reply,
        site: HostedId,
        contents: &mut Contents,
    ) -> Result<Self, ContentError> {
        let slot = Slot {
            offset: reply.slot_at(),
            len: SLOT_LEN as u32,
        };
        let bytes = reply.bytes();
        Ok(Self {
            content: contents.add(Arc::clone(bytes), Some(slot))?,
            status: reply.status(),
            is_on_disk: reply.disk().is_some(),
            site,
            body_len: reply.body_len() as u32,
        })
    }
}
