//! Prepared responses, each with status line, fields and body in one buffer.

use std::fmt::{self, Display, Write as _};
use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use xxhash_rust::xxh3::xxh3_64;

use crate::date::{SLOT_FIELD, SLOT_LEN, SlotWriter, Stamp};
use crate::fields::Fields;
pub use crate::status::Status;

/// The text before the value of a redirect's `Location` field.
const LOCATION: &[u8] = b"\r\nLocation: ";

/// Bytes that a redirect percent-encodes in a query because URLs cannot contain them. The percent
/// sign is not among them, so bytes that are already encoded do not change.
const NOT_IN_QUERY: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>');

/// A complete response, except for the content of its slot (see [`crate::date`]).
#[derive(Clone, Debug)]
pub struct Reply {
    bytes: Arc<[u8]>,
    slot_at: u32,
    status: Status,
}

impl Reply {
    /// The bytes of the response, with placeholders in the slot.
    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// The offset at which the slot of [`SLOT_LEN`] bytes begins.
    pub fn slot_at(&self) -> u32 {
        self.slot_at
    }

    /// The status.
    #[inline(always)]
    pub fn status(&self) -> Status {
        self.status
    }

    /// Appends the response to `out`, with `stamp` in its slot. If `query` is not empty, the
    /// response must be a redirect, and the query is added to its location.
    pub(crate) fn write(
        &self,
        query: &[u8],
        stamp: Stamp,
        slots: &mut SlotWriter,
        out: &mut Vec<u8>,
    ) {
        let slot_at = out.len() + self.slot_at as usize;
        if query.is_empty() {
            out.extend_from_slice(&self.bytes);
        } else {
            let (before, tail) = self.bytes.split_at(self.location_end());
            out.extend_from_slice(before);
            out.push(b'?');
            for piece in percent_encode(query, NOT_IN_QUERY) {
                out.extend_from_slice(piece.as_bytes());
            }
            out.extend_from_slice(tail);
        }
        slots.write(stamp, &mut out[slot_at..slot_at + SLOT_LEN]);
    }

    /// Returns the offset at which the value of a redirect's `Location` ends. The offset is not
    /// stored, because redirects with a query are rare.
    fn location_end(&self) -> usize {
        let find = |text: &[u8], from: usize| {
            let rest = &self.bytes[from..];
            let at = rest.windows(text.len()).position(|bytes| bytes == text);
            at.map_or(0, |at| from + at)
        };
        find(b"\r\n", find(LOCATION, 0) + LOCATION.len())
    }
}

/// A strong entity tag (RFC 9110, section 8.8.1). It depends only on the content, so all servers
/// produce the same tag for the same content, even after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ETag(u64);

impl ETag {
    /// A placeholder tag, for computing the length of a head.
    const BLANK: Self = Self(0);

    pub(crate) fn of(content: &[u8]) -> Self {
        Self(xxh3_64(content))
    }

    /// Returns true if `text`, including its quotes, equals this tag.
    pub(crate) fn is(self, text: &[u8]) -> bool {
        let [b'"', digits @ .., b'"'] = text else {
            return false;
        };
        // Accept only the exact form that `Display` writes.
        let lower = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        digits.len() == 16
            && digits.iter().all(lower)
            && std::str::from_utf8(digits)
                .is_ok_and(|digits| u64::from_str_radix(digits, 16) == Ok(self.0))
    }
}

impl Display for ETag {
    /// Writes the tag with its quotes. The length is always 18 bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{:016x}\"", self.0)
    }
}

/// A response head under construction.
struct Head {
    text: String,
    slot_at: u32,
}

impl Head {
    /// Starts a head with the status line, the fields of the slot, and the fields of all responses.
    /// The status line contains the server's HTTP version, not the client's (RFC 9110, section
    /// 2.5).
    fn new(status: Status, common: &Fields) -> Self {
        let mut text = format!("HTTP/1.1 {status}\r\n{SLOT_FIELD}");
        let slot_at = text.len() as u32;
        text.extend([' '; SLOT_LEN]);
        text.push_str("\r\n");
        text.push_str(common.lines());
        Self { text, slot_at }
    }

    fn field(mut self, name: &str, value: impl Display) -> Self {
        // Writing to a string does not fail.
        let _ = write!(self.text, "{name}: {value}\r\n");
        self
    }

    /// Writes the final empty line.
    fn finish(mut self) -> Self {
        self.text.push_str("\r\n");
        self
    }

    fn reply(self, status: Status) -> Reply {
        Reply {
            bytes: self.text.into_bytes().into(),
            slot_at: self.slot_at,
            status,
        }
    }
}

/// Makes a response for GET and the matching response for HEAD.
fn with_body(status: Status, head: impl Fn() -> Head, body: &str) -> [Reply; 2] {
    let head = || {
        head()
            .field("Content-Type", HTML)
            .field("Content-Length", body.len())
            .finish()
    };
    let mut whole = head();
    whole.text.push_str(body);
    [whole.reply(status), head().reply(status)]
}

/// The media type of pages that the server generates.
pub(crate) const HTML: &str = "text/html; charset=utf-8";

/// Makes the page that explains a status to a person.
pub(crate) fn page(status: impl Display, explanation: &str) -> String {
    let paragraph = match explanation {
        "" => String::new(),
        text => format!("<p>{text}</p>\n"),
    };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<title>{status}</title>\n<h1>{status}</h1>\n{paragraph}</html>\n"
    )
}

/// Makes the responses with the page about an error status: one for GET and one for HEAD.
pub(crate) fn status_page(status: Status, common: &Fields) -> [Reply; 2] {
    let head = || match status {
        // A 405 must list the allowed methods (RFC 9110, section 15.5.6).
        Status::MethodNotAllowed => Head::new(status, common).field("Allow", "GET, HEAD"),
        _ => Head::new(status, common),
    };
    with_body(status, head, &page(status, status.explanation()))
}

/// Makes the redirects to `location`: one for GET and one for HEAD. `location` must be
/// percent-encoded, so that it needs no escapes in HTML. The page links to `location`, without the
/// request's query, for clients that ignore the field `Location`.
pub(crate) fn redirect(location: &str, common: &Fields) -> [Reply; 2] {
    let status = Status::MovedPermanently;
    let text = format!("It is <a href=\"{location}\">here</a>.");
    let head = || Head::new(status, common).field("Location", location);
    with_body(status, head, &page(status, &text))
}

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
}

/// The responses for one file: to GET, to HEAD, and the 304 response.
#[derive(Debug)]
pub(crate) struct FileReplies {
    pub(crate) replies: [Reply; 3],
    pub(crate) tag: ETag,
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
        let head_len = file_head(fields.media_type, fields, len, ETag::BLANK)
            .finish()
            .text
            .len();
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, head_len + len).collect();
        read(&mut unshared(&mut bytes)[head_len..])?;
        let tag = ETag::of(&bytes[head_len..]);

        let mut media_type = fields.media_type;
        if let Some(other) = fields.media_type_if_not_utf8
            && std::str::from_utf8(&bytes[head_len..]).is_err()
        {
            media_type = other;
        }
        let head = file_head(media_type, fields, len, tag).finish();
        if head.text.len() != head_len {
            let body = bytes[head_len..].iter().copied();
            bytes = std::iter::repeat_n(0, head.text.len())
                .chain(body)
                .collect();
        }
        unshared(&mut bytes)[..head.text.len()].copy_from_slice(head.text.as_bytes());

        let whole = Reply {
            bytes,
            slot_at: head.slot_at,
            status: Status::Ok,
        };
        let not_modified = Head::new(Status::NotModified, fields.common).field("ETag", tag);
        let not_modified = not_modified.finish().reply(Status::NotModified);
        Ok(Self {
            replies: [whole, head.reply(Status::Ok), not_modified],
            tag,
        })
    }
}

/// Gives mutable access to bytes that were just created.
fn unshared(bytes: &mut Arc<[u8]>) -> &mut [u8] {
    Arc::get_mut(bytes).expect("the Arc is not shared yet")
}

fn file_head(media_type: &str, fields: &FileFields<'_>, len: usize, tag: ETag) -> Head {
    Head::new(Status::Ok, fields.common)
        .field("Content-Type", media_type)
        .field("Content-Length", len)
        .field("Last-Modified", fields.last_modified)
        .field("ETag", tag)
        // This value tells clients not to request ranges (RFC 9110, section 14.3).
        .field("Accept-Ranges", "none")
}
