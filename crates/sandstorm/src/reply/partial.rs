//! The heads of responses that differ from a file's prepared response.

use std::io::Write as _;
use std::ops::Range;

use crate::coding::Coding;
use crate::date::{DATE_LEN, SLOT_FIELD, SLOT_LEN};
use crate::etag::ETag;
use crate::rules::{is_about_caches, is_for_errors};
use crate::status::Status;

use super::{ALLOWED, Reply};

/// The field that tells caches that a file has several codings (RFC 9110, section 12.5.5).
pub(super) const VARY: &str = "Vary: Accept-Encoding\r\n";

/// The end of a file's head, after the tag.
const AFTER_TAG: &str = "\r\nAccept-Ranges: bytes\r\n\r\n";

/// The start of the line with the time of the last change.
const LAST_MODIFIED: &str = "Last-Modified: ";

/// Length of the lines that follow `Content-Length` in the head of a file, and of the empty line.
const LAST_LINES_LEN: usize = LAST_MODIFIED.len() + DATE_LEN + AFTER_TAG.len();
/// Length of the line with the tag, which is one of them if the file has a tag.
const TAG_LINE_LEN: usize = "\r\nETag: ".len() + ETag::LEN;

/// Start of the line with the length of the body.
const CONTENT_LENGTH: &[u8] = b"Content-Length: ";

/// The head of a file's response, from which the head of a response with parts of the file is made
/// (RFC 9110, section 15.3.7).
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartialHead<'a> {
    head_len: usize,
    /// The lines between the status line and the line `Content-Length`. The slot is in the first of
    /// them, and the last one is `Content-Type`.
    lines: &'a [u8],
    /// Length of the whole file in bytes, in decimal digits.
    file_len: &'a [u8],
    /// The lines after the line `Content-Length`, and the empty line.
    last_lines: &'a [u8],
}

impl<'a> PartialHead<'a> {
    /// Takes the head of a file's reply apart.
    #[inline(always)]
    pub(crate) fn of(file: &'a Reply) -> Self {
        let head = file.head();
        let last_len = LAST_LINES_LEN + if file.is_tagged { TAG_LINE_LEN } else { 0 };
        let (rest, last_lines) = head.split_at(head.len().saturating_sub(last_len));
        let rest = rest.strip_suffix(b"\r\n").unwrap_or_default();
        let digits = rest.iter().rev().take_while(|b| b.is_ascii_digit());
        let (rest, file_len) = rest.split_at(rest.len() - digits.count());
        let lines = rest.strip_suffix(CONTENT_LENGTH).unwrap_or_default();
        let first_at = file.slot_at as usize - SLOT_FIELD.len();
        Self {
            head_len: file.head_len.into(),
            lines: lines.get(first_at..).unwrap_or_default(),
            file_len,
            last_lines,
        }
    }

    /// The lines between the status line and the line `Content-Type`, and that line.
    fn first_lines_and_type(&self) -> (&'a [u8], &'a [u8]) {
        let before = self.lines.strip_suffix(b"\r\n").unwrap_or_default();
        let type_at = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
        self.lines.split_at(type_at)
    }

    /// The lines of fields that rules have set, and those of `Vary` and `Content-Encoding`.
    pub(super) fn own_lines(&self) -> &'a [u8] {
        let first_lines = self.first_lines_and_type().0;
        let slot_len = SLOT_FIELD.len() + SLOT_LEN + "\r\n".len();
        first_lines.get(slot_len..).unwrap_or_default()
    }

    /// Writes the head of a response with `len` bytes of coded content, which has its own tag or none
    /// yet. Returns the offset of its slot.
    pub(super) fn write_coded(
        &self,
        coding: Coding,
        len: usize,
        tag: Option<ETag>,
        out: &mut Vec<u8>,
    ) -> usize {
        const STATUS_LINE: &[u8] = b"HTTP/1.1 200 OK\r\n";
        let (first_lines, content_type) = self.first_lines_and_type();
        out.extend_from_slice(STATUS_LINE);
        out.extend_from_slice(first_lines);
        if memchr::memmem::find(first_lines, VARY.as_bytes()).is_none() {
            out.extend_from_slice(VARY.as_bytes());
        }
        // Writing to a vector does not fail.
        let _ = write!(out, "Content-Encoding: {}\r\n", coding.name());
        out.extend_from_slice(content_type);
        let _ = write!(out, "Content-Length: {len}\r\n");
        out.extend_from_slice(self.last_modified());
        if let Some(tag) = tag {
            let _ = write!(out, "\r\nETag: {tag}");
        }
        out.extend_from_slice(AFTER_TAG.as_bytes());
        STATUS_LINE.len() + SLOT_FIELD.len()
    }

    /// The line with the time of the last change, without its end.
    pub(super) fn last_modified(&self) -> &'a [u8] {
        let len = LAST_MODIFIED.len() + DATE_LEN;
        self.last_lines.get(..len).unwrap_or_default()
    }

    /// Writes the head of a response about an error, with the file as its page. It lacks the file's fields
    /// about caches. `more` has further lines. Returns the offset of the slot.
    pub(super) fn write_error(
        &self,
        status: Status,
        more: &str,
        len: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        // Writing to a vector does not fail.
        let _ = write!(out, "HTTP/1.1 {status}\r\n");
        let slot_at = out.len() + SLOT_FIELD.len();
        let (first_lines, content_type) = self.first_lines_and_type();
        for line in first_lines.split_inclusive(|b| *b == b'\n') {
            let name = line.split(|b| *b == b':').next().unwrap_or(line);
            if !std::str::from_utf8(name).is_ok_and(is_about_caches) {
                out.extend_from_slice(line);
            }
        }
        out.extend_from_slice(more.as_bytes());
        out.extend_from_slice(content_type);
        let _ = write!(out, "Content-Length: {len}\r\n\r\n");
        slot_at
    }

    /// Writes a response with the methods for the file, and with its fields that are not about its
    /// content. Returns the offset of the slot.
    pub(crate) fn write_options(&self, out: &mut Vec<u8>) -> usize {
        const STATUS_LINE: &[u8] = b"HTTP/1.1 204 No Content\r\n";
        out.extend_from_slice(STATUS_LINE);
        out.extend_from_slice(self.first_lines_and_type().0);
        // Writing to a vector does not fail.
        let _ = write!(out, "Allow: {ALLOWED}\r\n\r\n");
        STATUS_LINE.len() + SLOT_FIELD.len()
    }

    /// The media type of the file.
    pub(crate) fn media_type(&self) -> &'a str {
        let line = std::str::from_utf8(self.first_lines_and_type().1).unwrap_or_default();
        line.split_once(':').map_or("", |(_, value)| value.trim())
    }

    /// Returns the range of the file's reply that contains a part of the file.
    pub(crate) fn slice(&self, part: &Range<usize>) -> Range<usize> {
        self.head_len + part.start..self.head_len + part.end
    }

    /// Writes the head of a response with one part of the file. Returns the offset of its slot.
    #[inline(always)]
    pub(crate) fn write_single(&self, part: &Range<usize>, out: &mut Vec<u8>) -> usize {
        let slot_at = begin(self.lines, out);
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
        let slot_at = begin(self.first_lines_and_type().0, out);
        // Writing to a vector does not fail.
        let _ = write!(
            out,
            "Content-Type: multipart/byteranges; boundary={boundary:016x}\r\n"
        );
        self.finish(body_len, out);
        slot_at
    }

    /// Writes what precedes a part of a multipart body (RFC 9110, section 14.6).
    pub(crate) fn write_part(&self, boundary: u64, part: &Range<usize>, out: &mut Vec<u8>) {
        let _ = write!(out, "\r\n--{boundary:016x}\r\n");
        out.extend_from_slice(self.first_lines_and_type().1);
        self.write_content_range(part, out);
        out.extend_from_slice(b"\r\n");
    }

    /// Writes the end of a multipart body.
    pub(crate) fn write_end(boundary: u64, out: &mut Vec<u8>) {
        let _ = write!(out, "\r\n--{boundary:016x}--\r\n");
    }

    #[inline(always)]
    fn write_content_range(&self, part: &Range<usize>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"Content-Range: bytes ");
        write_number(part.start, out);
        out.push(b'-');
        write_number(part.end - 1, out);
        out.push(b'/');
        out.extend_from_slice(self.file_len);
        out.extend_from_slice(b"\r\n");
    }

    #[inline(always)]
    fn finish(&self, body_len: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(CONTENT_LENGTH);
        write_number(body_len, out);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(self.last_lines);
    }
}

impl Reply {
    /// Writes the response with one part of the file. Returns the offset of its slot.
    #[inline]
    pub(crate) fn write_with_part(&self, part: &Range<usize>, out: &mut Vec<u8>) -> usize {
        let head = PartialHead::of(self);
        let slot_at = head.write_single(part, out);
        out.extend_from_slice(&self.bytes[head.slice(part)]);
        slot_at
    }

    /// Makes the reply with one part of the file. Uses `buffer` for it.
    pub(crate) fn with_part(&self, part: &Range<usize>, buffer: &mut Vec<u8>) -> Self {
        buffer.clear();
        let slot_at = self.write_with_part(part, buffer);
        Self {
            bytes: buffer.as_slice().into(),
            slot_at: slot_at as u32,
            head_len: (buffer.len() - part.len()) as u16,
            status: Status::PartialContent,
            ..self.clone()
        }
    }

    /// The lines of a file's head whose fields an error about this file has too.
    pub(crate) fn lines_for_errors(&self) -> impl Iterator<Item = (&str, &str)> {
        let lines = std::str::from_utf8(PartialHead::of(self).own_lines()).unwrap_or_default();
        let lines = lines.split_inclusive("\r\n");
        let lines = lines.map(|line| (line.split(':').next().unwrap_or(line), line));
        lines.filter(|(name, line)| is_for_errors(name) && *line != VARY)
    }
}

/// Begins the head of a response with parts of a file: writes the status line, and `lines` after it.
/// Returns the offset of the slot, which is in the first of these lines.
fn begin(lines: &[u8], out: &mut Vec<u8>) -> usize {
    const STATUS_LINE: &[u8] = b"HTTP/1.1 206 Partial Content\r\n";
    out.extend_from_slice(STATUS_LINE);
    out.extend_from_slice(lines);
    STATUS_LINE.len() + SLOT_FIELD.len()
}

/// Writes a number in decimal digits. It costs less than formatting.
fn write_number(number: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
