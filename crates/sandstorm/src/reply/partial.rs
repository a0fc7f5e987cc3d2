//! The heads of responses that differ from a file's prepared response.

use std::io::Write as _;
use std::ops::Range;

use crate::coding::Coding;
use crate::date::DATE_LEN;
use crate::status::Status;

use super::{ETag, Reply};

/// The field that tells caches that a file has several codings (RFC 9110, section 12.5.5).
pub(super) const VARY: &str = "Vary: Accept-Encoding\r\n";

/// The end of a file's head, after the tag.
const AFTER_TAG: &str = "\r\nAccept-Ranges: bytes\r\n\r\n";

/// Length of the lines that follow `Content-Length` in the head of a file, and of the empty line.
const LAST_LINES_LEN: usize =
    "Last-Modified: \r\nETag: ".len() + DATE_LEN + ETag::LEN + AFTER_TAG.len();

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

    /// Writes the head of a response with `len` bytes of coded content. Returns the offset of its slot.
    pub(super) fn write_coded(
        &self,
        coding: Coding,
        len: usize,
        tag: ETag,
        out: &mut Vec<u8>,
    ) -> usize {
        const STATUS_LINE: &[u8] = b"HTTP/1.1 200 OK\r\n";
        out.extend_from_slice(STATUS_LINE);
        out.extend_from_slice(self.first_lines);
        if memchr::memmem::find(self.first_lines, VARY.as_bytes()).is_none() {
            out.extend_from_slice(VARY.as_bytes());
        }
        // Writing to a vector does not fail.
        let _ = write!(out, "Content-Encoding: {}\r\n", coding.name());
        out.extend_from_slice(self.content_type);
        self.finish(len, out);
        let tag_end = out.len() - AFTER_TAG.len();
        out[tag_end - ETag::LEN..tag_end].copy_from_slice(tag.to_string().as_bytes());
        STATUS_LINE.len() + self.slot_at
    }

    /// Writes the head of a response about an error, with the file as its page. `more` has further
    /// lines. Returns the offset of the slot.
    pub(super) fn write_error(
        &self,
        status: Status,
        more: &str,
        len: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        // Writing to a vector does not fail.
        let _ = write!(out, "HTTP/1.1 {status}\r\n");
        let slot_at = out.len() + self.slot_at;
        out.extend_from_slice(self.first_lines);
        out.extend_from_slice(more.as_bytes());
        out.extend_from_slice(self.content_type);
        let _ = write!(out, "Content-Length: {len}\r\n\r\n");
        slot_at
    }

    /// The media type of the file.
    pub(crate) fn media_type(&self) -> &'a str {
        let line = std::str::from_utf8(self.content_type).unwrap_or_default();
        line.split_once(':').map_or("", |(_, value)| value.trim())
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
