//! Responses made by an application: status, fields and body.

use std::fmt::Arguments;
use std::io::Write as _;

use crate::date::{SLOT_FIELD, SLOT_LEN, SlotWriter, Stamp};
use crate::fields::{FieldError, Fields};
use crate::reply::{HTML, page};
use crate::status::{Status, StatusCode};

/// A response under construction. The server itself writes `Date`, `Connection` and
/// `Content-Length`.
#[derive(Clone, Debug)]
pub struct Response {
    status: StatusCode,
    fields: Fields,
    body: Vec<u8>,
}

impl Response {
    /// Makes a response with status 200, no fields and an empty body.
    pub const fn new() -> Self {
        Self {
            status: StatusCode::OK,
            fields: Fields::new(),
            body: Vec::new(),
        }
    }

    /// Sets the status.
    pub fn set_status(&mut self, status: StatusCode) -> &mut Self {
        self.status = status;
        self
    }

    /// Adds a field. If all responses of the server contain a field of this name, the new one
    /// replaces it.
    ///
    /// # Errors
    /// [`FieldError`] if the field is refused. Nothing is added in that case.
    pub fn add_field(
        &mut self,
        name: &str,
        value: impl std::fmt::Display,
    ) -> Result<(), FieldError> {
        self.fields.add(name, value)
    }

    /// Adds fields that have already been checked.
    ///
    /// # Errors
    /// [`FieldError::TooLong`] if there is no room for the fields. Nothing is added in that case.
    pub fn add_fields(&mut self, fields: &Fields) -> Result<(), FieldError> {
        self.fields.extend(fields)
    }

    /// Sets all fields of this response.
    pub(crate) fn set_fields(&mut self, fields: Fields) {
        self.fields = fields;
    }

    /// Appends bytes to the body.
    pub fn write(&mut self, bytes: &[u8]) -> &mut Self {
        self.body.extend_from_slice(bytes);
        self
    }

    /// Appends text to the body.
    pub fn write_text(&mut self, text: Arguments<'_>) -> &mut Self {
        // Writing to a vector does not fail.
        let _ = self.body.write_fmt(text);
        self
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The fields added to this response. The fields that the server adds to all responses are not
    /// included.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Resets the response and keeps its buffers.
    pub(crate) fn clear(&mut self) {
        self.status = StatusCode::OK;
        self.fields.clear();
        self.body.clear();
    }

    /// Turns the response into a page about a status. Its fields are kept.
    pub(crate) fn set_page(&mut self, status: StatusCode) {
        let own_status = Status::ALL.iter().find(|one| one.code() == status.code());
        self.status = status;
        self.body.clear();
        if !status.is_bodiless() {
            let page = page(status, own_status.map_or("", |status| status.explanation()));
            self.body.extend_from_slice(page.as_bytes());
        }
        if !self.fields.has("content-type") {
            // Without a content type, clients would guess one. If there is no room for the field,
            // the page is sent without it.
            let _ = self.fields.add("Content-Type", HTML);
        }
    }

    /// Writes the head. `common` contains the fields of all responses, and `more` contains further
    /// complete lines. `is_whole` says whether the body is complete, so that its length is known.
    pub(crate) fn write_head(
        &self,
        common: &Fields,
        more: &str,
        is_whole: bool,
        out: &mut Vec<u8>,
    ) -> HeadLayout {
        let from = out.len();
        let _ = write!(out, "HTTP/1.1 {}\r\n{SLOT_FIELD}", self.status);
        let slot_at = out.len();
        out.resize(slot_at + SLOT_LEN, b' ');
        out.extend_from_slice(b"\r\n");
        if self.fields.is_empty() {
            out.extend_from_slice(common.lines().as_bytes());
        } else {
            for line in common.missing_in(&self.fields) {
                out.extend_from_slice(line.as_bytes());
            }
        }
        out.extend_from_slice(self.fields.lines().as_bytes());
        out.extend_from_slice(more.as_bytes());
        // A 204 response must not contain `Content-Length`, and a 304 response need not (RFC 9110,
        // section 8.6).
        if is_whole && !self.status.is_bodiless() {
            let _ = write!(out, "Content-Length: {}\r\n", self.body.len());
        }
        out.extend_from_slice(b"\r\n");
        HeadLayout {
            slot_at,
            len: out.len() - from,
        }
    }

    /// Writes the complete response to a request.
    pub(crate) fn write_to(
        &self,
        common: &Fields,
        head_only: bool,
        stamp: Stamp,
        slots: &mut SlotWriter,
        out: &mut Vec<u8>,
    ) {
        let HeadLayout { slot_at, .. } = self.write_head(common, "", true, out);
        slots.write(stamp, &mut out[slot_at..slot_at + SLOT_LEN]);
        if !head_only && !self.status.is_bodiless() {
            out.extend_from_slice(&self.body);
        }
    }
}

impl Default for Response {
    fn default() -> Self {
        Self::new()
    }
}

/// The position of the slot in a head, and the length of the head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadLayout {
    pub(crate) slot_at: usize,
    pub(crate) len: usize,
}

/// Writes `head` with `stamp` in its slot, which begins at offset `slot_at`. Adds the fields
/// `extra`, which replace fields of the same name in `head`.
pub(crate) fn write_head_with(
    head: &[u8],
    slot_at: usize,
    extra: &Fields,
    stamp: Stamp,
    slots: &mut SlotWriter,
    out: &mut Vec<u8>,
) {
    let from = out.len();
    let slot_end = slot_at + SLOT_LEN;
    let (start, rest) = head.split_at(slot_end + 2);
    out.extend_from_slice(start);
    slots.write(stamp, &mut out[from + slot_at..from + slot_end]);
    // The empty line at the end of the head is written last, after the extra fields.
    let lines = rest.strip_suffix(b"\r\n").unwrap_or(rest);
    for line in lines.split_inclusive(|b| *b == b'\n') {
        let name = line.split(|b| *b == b':').next().unwrap_or(line);
        let name = std::str::from_utf8(name).unwrap_or_default();
        if !extra.has(name) {
            out.extend_from_slice(line);
        }
    }
    out.extend_from_slice(extra.lines().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// The length of the head at the start of `response`, in bytes.
pub(crate) fn head_len(response: &[u8]) -> usize {
    let end = memchr::memmem::find(response, b"\r\n\r\n");
    end.map_or(response.len(), |at| at + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_304_response_keeps_the_fields_that_do_not_describe_the_body() {
        let mut response = Response::new();
        for name in [
            "Content-Type",
            "Content-Location",
            "content-security-policy",
            "Content-Language",
            "Vary",
        ] {
            response.add_field(name, "x").unwrap();
        }
        assert_eq!(
            response.fields().without_body().lines(),
            "Content-Location: x\r\ncontent-security-policy: x\r\nVary: x\r\n"
        );
    }
}
