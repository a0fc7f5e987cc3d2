//! Prepared responses, each with status line, fields and body in one buffer.

use std::fmt::{self, Display, Write as _};
use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use xxhash_rust::xxh3::xxh3_64;

use crate::date::{DATE_LEN, SLOT_FIELD, SLOT_LEN};
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
    head_len: u16,
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

    /// The head, with its empty line.
    pub(crate) fn head(&self) -> &[u8] {
        &self.bytes[..usize::from(self.head_len)]
    }

    /// The length of the body in bytes.
    #[inline(always)]
    pub(crate) fn body_len(&self) -> usize {
        self.bytes.len() - usize::from(self.head_len)
    }

    /// The status.
    #[inline(always)]
    pub fn status(&self) -> Status {
        self.status
    }

    /// Appends the response, which must be a redirect, with a query added to its location.
    pub(crate) fn write_with_query(&self, query: &[u8], out: &mut Vec<u8>) {
        let (before, tail) = self.bytes.split_at(self.location_end());
        out.extend_from_slice(before);
        out.push(b'?');
        for piece in percent_encode(query, NOT_IN_QUERY) {
            out.extend_from_slice(piece.as_bytes());
        }
        out.extend_from_slice(tail);
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
    /// The length of a tag with its quotes, in bytes.
    const LEN: usize = 18;

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
    /// Writes the tag with its quotes. The length is always [`LEN`](Self::LEN).
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

    /// Makes a response of this finished head and a body.
    fn reply(self, status: Status, body: &str) -> Reply {
        let head_len = self.text.len() as u16;
        Reply {
            bytes: (self.text + body).into_bytes().into(),
            slot_at: self.slot_at,
            head_len,
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
    [head().reply(status, body), head().reply(status, "")]
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

/// The methods that files support.
const ALLOWED: &str = "GET, HEAD, OPTIONS";

/// Makes the responses with the page about a status: one for GET and one for HEAD.
pub(crate) fn status_page(status: Status, common: &Fields) -> [Reply; 2] {
    let head = || match status {
        // A 405 must list the allowed methods (RFC 9110, section 15.5.6).
        Status::MethodNotAllowed | Status::NoContent => {
            Head::new(status, common).field("Allow", ALLOWED)
        }
        _ => Head::new(status, common),
    };
    if status == Status::NoContent {
        return [(); 2].map(|()| head().finish().reply(status, ""));
    }
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
            head_len: head.text.len() as u16,
            status: Status::Ok,
        };
        let not_modified = Head::new(Status::NotModified, fields.common).field("ETag", tag);
        let not_modified = not_modified.finish().reply(Status::NotModified, "");
        Ok(Self {
            replies: [whole, head.reply(Status::Ok, ""), not_modified],
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
        .field("Accept-Ranges", "bytes")
}

/// Length of the lines that follow `Content-Length` in the head of a file, and of the empty line.
const LAST_LINES_LEN: usize =
    "Last-Modified: \r\nETag: \r\nAccept-Ranges: bytes\r\n\r\n".len() + DATE_LEN + ETag::LEN;

/// The head of a file's response, from which the head of a response with parts of the file is made
/// (RFC 9110, section 15.3.7).
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartialHead<'a> {
    slot_at: usize,
    head_len: u32,
    /// Length of the whole file in bytes.
    file_len: usize,
    /// The lines between the status line and the line `Content-Type`.
    first_lines: &'a [u8],
    /// The line `Content-Type`.
    content_type: &'a [u8],
    /// The lines after the line `Content-Length`, and the empty line.
    last_lines: &'a [u8],
}

impl<'a> PartialHead<'a> {
    /// Takes the head of a file's reply apart.
    pub(crate) fn of(file: &'a Reply) -> Self {
        let (head, file_len) = (file.head(), file.body_len());
        let (rest, last_lines) = head.split_at(head.len().saturating_sub(LAST_LINES_LEN));
        let line_before = |end: usize| {
            let before = rest[..end].strip_suffix(b"\r\n").unwrap_or_default();
            memchr::memrchr(b'\n', before).map_or(0, |at| at + 1)
        };
        let length_at = line_before(rest.len());
        let type_at = line_before(length_at);
        let first_at = memchr::memchr(b'\n', rest).map_or(0, |at| at + 1);
        Self {
            slot_at: file.slot_at as usize - first_at,
            head_len: file.head_len.into(),
            file_len,
            first_lines: &rest[first_at..type_at],
            content_type: &rest[type_at..length_at],
            last_lines,
        }
    }

    /// Returns the range of the file's reply that contains a part of the file.
    pub(crate) fn slice(&self, part: &Range<u32>) -> Range<u32> {
        self.head_len + part.start..self.head_len + part.end
    }

    /// Writes the head of a response with one part of the file. Returns the offset of its slot.
    pub(crate) fn write_single(&self, part: &Range<u32>, out: &mut Vec<u8>) -> usize {
        let slot_at = self.begin(out);
        out.extend_from_slice(self.content_type);
        self.write_content_range(part, out);
        self.finish(part.len(), out);
        slot_at
    }

    /// Writes the head of a response with several parts of the file and a body of `body_len` bytes.
    /// Returns the offset of its slot.
    pub(crate) fn write_multipart(
        &self,
        boundary: u64,
        body_len: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        let slot_at = self.begin(out);
        // Writing to a vector does not fail.
        let _ = write!(
            out,
            "Content-Type: multipart/byteranges; boundary={boundary:016x}\r\n"
        );
        self.finish(body_len, out);
        slot_at
    }

    /// Writes what precedes a part of a multipart body (RFC 9110, section 14.6).
    pub(crate) fn write_part(&self, boundary: u64, part: &Range<u32>, out: &mut Vec<u8>) {
        let _ = write!(out, "\r\n--{boundary:016x}\r\n");
        out.extend_from_slice(self.content_type);
        self.write_content_range(part, out);
        out.extend_from_slice(b"\r\n");
    }

    /// Writes the end of a multipart body.
    pub(crate) fn write_end(boundary: u64, out: &mut Vec<u8>) {
        let _ = write!(out, "\r\n--{boundary:016x}--\r\n");
    }

    fn begin(&self, out: &mut Vec<u8>) -> usize {
        const STATUS_LINE: &[u8] = b"HTTP/1.1 206 Partial Content\r\n";
        out.extend_from_slice(STATUS_LINE);
        out.extend_from_slice(self.first_lines);
        STATUS_LINE.len() + self.slot_at
    }

    fn write_content_range(&self, part: &Range<u32>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"Content-Range: bytes ");
        write_number(part.start as usize, out);
        out.push(b'-');
        write_number(part.end as usize - 1, out);
        out.push(b'/');
        write_number(self.file_len, out);
        out.extend_from_slice(b"\r\n");
    }

    fn finish(&self, body_len: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(b"Content-Length: ");
        write_number(body_len, out);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(self.last_lines);
    }
}

/// Writes a number in decimal digits. It costs less than formatting.
fn write_number(number: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
