//! Prepared responses, each with status line, fields and body in one buffer.

mod file;
mod partial;

use std::borrow::Cow;
use std::fmt::{self, Display, Write as _};
use std::num::NonZeroU64;
use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use xxhash_rust::xxh3::xxh3_64;

use crate::date::{SLOT_FIELD, SLOT_LEN};
use crate::disk::DiskFile;
use crate::fields::Fields;
use crate::rules::is_for_errors;
pub use crate::status::Status;
pub(crate) use file::{FileFields, FileReplies, Form};
pub(crate) use partial::PartialHead;
use partial::VARY;

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
    /// Whether the head has an entity tag.
    is_tagged: bool,
    /// The file with the body, if the body is not in `bytes`.
    disk: Option<Arc<DiskFile>>,
}

impl Reply {
    /// The bytes of the response, with placeholders in the slot. If the body is a file that is not kept
    /// in memory, they are only the head.
    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// The offset at which the slot of [`SLOT_LEN`] bytes begins.
    pub fn slot_at(&self) -> u32 {
        self.slot_at
    }

    /// The offset of the first line after the slot's.
    fn slot_end(&self) -> usize {
        self.slot_at as usize + SLOT_LEN + "\r\n".len()
    }

    /// Returns true if the head has a field with this name.
    pub(crate) fn has_field(&self, name: &str) -> bool {
        let mut lines = self.head().split(|b| *b == b'\n');
        lines.any(|line| {
            let start = line.get(..name.len()).unwrap_or_default();
            start.eq_ignore_ascii_case(name.as_bytes()) && line.get(name.len()) == Some(&b':')
        })
    }

    /// The file with the body, if the body is not in memory.
    #[inline(always)]
    pub(crate) fn disk(&self) -> Option<&Arc<DiskFile>> {
        self.disk.as_ref()
    }

    /// The length of head and body in bytes.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.head_len) + self.body_len()
    }

    /// The body. A file on the disk is read now, if it has at most `max` bytes. Returns `None` if it is
    /// longer or cannot be read.
    pub(crate) fn read_body(&self, max: usize) -> Option<Cow<'_, [u8]>> {
        match &self.disk {
            None => Some(Cow::Borrowed(self.body())),
            Some(file) if file.len() > max => None,
            Some(file) => file.read_all().ok().map(Cow::Owned),
        }
    }

    /// The body, or nothing if it is not in memory.
    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[usize::from(self.head_len)..]
    }

    /// The head, with its empty line.
    pub(crate) fn head(&self) -> &[u8] {
        &self.bytes[..usize::from(self.head_len)]
    }

    /// The length of the body in bytes.
    #[inline(always)]
    pub(crate) fn body_len(&self) -> usize {
        match &self.disk {
            None => self.bytes.len() - usize::from(self.head_len),
            Some(file) => file.len(),
        }
    }

    /// The status.
    #[inline(always)]
    pub fn status(&self) -> Status {
        self.status
    }

    /// Appends the head with `more` lines, and without those whose name `is_replaced`. A client or a cache
    /// needs all fields `Vary`, so none of them is replaced.
    pub(crate) fn write_changed_head<'l>(
        &self,
        is_replaced: impl Fn(&str) -> bool,
        more: impl Iterator<Item = &'l str>,
        out: &mut Vec<u8>,
    ) {
        let (start, lines) = self.head().split_at(self.slot_end());
        let lines = lines.strip_suffix(b"\r\n").unwrap_or(lines);
        let is_vary = |name: &str| name.eq_ignore_ascii_case("vary");
        out.extend_from_slice(start);
        let from = out.len();
        for line in lines.split_inclusive(|b| *b == b'\n') {
            let name = line.split(|b| *b == b':').next().unwrap_or(line);
            let name = std::str::from_utf8(name).unwrap_or_default();
            if is_vary(name) || !is_replaced(name) {
                out.extend_from_slice(line);
            }
        }
        for line in more {
            let is_twice =
                |line: &str| memchr::memmem::find(&out[from..], line.as_bytes()).is_some();
            if !(is_vary(line.split(':').next().unwrap_or(line)) && is_twice(line)) {
                out.extend_from_slice(line.as_bytes());
            }
        }
        out.extend_from_slice(b"\r\n");
    }

    /// The lines of a file's head whose fields an error about this file has too.
    pub(crate) fn lines_for_errors(&self) -> impl Iterator<Item = (&str, &str)> {
        let lines = std::str::from_utf8(PartialHead::of(self).own_lines()).unwrap_or_default();
        let lines = lines.split_inclusive("\r\n");
        let lines = lines.map(|line| (line.split(':').next().unwrap_or(line), line));
        lines.filter(|(name, line)| is_for_errors(name) && *line != VARY)
    }

    /// Appends the response, which must be a redirect. `write` appends the rest of its location.
    pub(crate) fn write_with_location(&self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        let (before, tail) = self.bytes.split_at(self.location_end());
        out.extend_from_slice(before);
        write(out);
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

/// Appends a query to a location.
pub(crate) fn write_query(query: &[u8], out: &mut Vec<u8>) {
    out.push(b'?');
    for piece in percent_encode(query, NOT_IN_QUERY) {
        out.extend_from_slice(piece.as_bytes());
    }
}

/// A strong entity tag (RFC 9110, section 8.8.1). It depends only on the content, so all servers
/// produce the same tag for the same content, even after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ETag(NonZeroU64);

impl ETag {
    /// A placeholder tag, for computing the length of a head.
    const BLANK: Self = Self(NonZeroU64::MIN);
    /// The length of a tag with its quotes, in bytes.
    const LEN: usize = 18;

    pub(crate) fn of(content: &[u8]) -> Self {
        Self::of_hash(xxh3_64(content))
    }

    /// Returns the tag of the content with this xxh3 hash.
    pub(crate) fn of_hash(hash: u64) -> Self {
        Self(NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN))
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
                .is_ok_and(|digits| u64::from_str_radix(digits, 16) == Ok(self.0.get()))
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
        Self::with_own(status, common, &Fields::new())
    }

    /// Same as [`new`](Self::new), with fields of this response. They replace common ones of the same
    /// name.
    fn with_own(status: Status, common: &Fields, own: &Fields) -> Self {
        let mut text = format!("HTTP/1.1 {status}\r\n{SLOT_FIELD}");
        let slot_at = text.len() as u32;
        text.extend([' '; SLOT_LEN]);
        text.push_str("\r\n");
        text.push_str(common.replaced_by(own).lines());
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
            is_tagged: false,
            disk: None,
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
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>{status}</title>\n<h1>{status}</h1>\n{paragraph}</html>\n"
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
/// percent-encoded. The page links to `location`, without the request's query, for clients that
/// ignore the field `Location`.
pub(crate) fn redirect(status: Status, location: &str, common: &Fields) -> [Reply; 2] {
    // A location with a query may contain this character.
    let escaped = location.replace('&', "&amp;");
    let text = format!("It is <a href=\"{escaped}\">here</a>.");
    let head = || Head::new(status, common).field("Location", location);
    with_body(status, head, &page(status, &text))
}

/// Makes the redirects whose location is added for each request: one for GET and one for HEAD.
pub(crate) fn open_redirect(status: Status, common: &Fields) -> [Reply; 2] {
    let head = || Head::new(status, common).field("Location", "");
    with_body(status, head, &page(status, "It has moved."))
}

/// Makes the responses that ask for a name and a password: one for GET and one for HEAD. The field
/// `WWW-Authenticate` has this value.
pub(crate) fn challenge(value: &str, common: &Fields) -> [Reply; 2] {
    let status = Status::Unauthorized;
    let head = || Head::new(status, common).field("WWW-Authenticate", value);
    with_body(status, head, &page(status, status.explanation()))
}

/// Makes the responses with a page of the site about an error: one for GET and one for HEAD. `more` has
/// further lines of the head.
pub(crate) fn error_page(status: Status, file: &Reply, body: &[u8], more: &str) -> [Reply; 2] {
    let more = match status {
        Status::MethodNotAllowed => format!("{more}Allow: {ALLOWED}\r\n"),
        _ => more.to_owned(),
    };
    let mut head = Vec::new();
    let slot_at = PartialHead::of(file).write_error(status, &more, body.len(), &mut head);
    [body, b""].map(|body| Reply {
        bytes: [&head, body].concat().into(),
        slot_at: slot_at as u32,
        head_len: head.len() as u16,
        status,
        is_tagged: false,
        disk: None,
    })
}
