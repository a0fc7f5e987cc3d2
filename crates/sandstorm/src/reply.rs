//! Prepared responses, each with status line, fields and body in one buffer.

mod file;
mod pages;
mod partial;

use std::borrow::Cow;
use std::fmt::{Display, Write as _};
use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use crate::date::{SLOT_FIELD, SLOT_LEN};
use crate::disk::DiskFile;
use crate::fields::Fields;
use crate::rules::is_list;
pub use crate::status::Status;
pub(crate) use file::{CodedContent, FileFields, FileReplies};
pub(crate) use pages::{HTML, challenge, error_page, open_redirect, page, redirect, status_page};
pub(crate) use partial::PartialHead;

/// The text before the value of a redirect's `Location` field.
const LOCATION: &[u8] = b"\r\nLocation: ";

/// The methods that files support.
const ALLOWED: &str = "GET, HEAD, OPTIONS";

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

    /// Appends the head with `more` lines, and without those that are replaced, by their name and the whole
    /// line. A client or a cache needs all fields `Vary`, so none of them is replaced. Fields with lists have
    /// no line twice.
    pub(crate) fn write_changed_head<'l>(
        &self,
        is_replaced: impl Fn(&str, &[u8]) -> bool,
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
            if is_vary(name) || !is_replaced(name, line) {
                out.extend_from_slice(line);
            }
        }
        for line in more {
            let is_twice = || {
                let mut lines = out[from..].split_inclusive(|b| *b == b'\n');
                lines.any(|other| other == line.as_bytes())
            };
            if !(is_list(line.split(':').next().unwrap_or(line)) && is_twice()) {
                out.extend_from_slice(line.as_bytes());
            }
        }
        out.extend_from_slice(b"\r\n");
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

/// A response head under construction.
struct HeadBuilder {
    text: String,
    slot_at: u32,
}

impl HeadBuilder {
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
