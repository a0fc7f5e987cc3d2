//! Requests as passed to an application.

use crate::body::BodyLength;
use crate::framing::Framing;
use crate::head::{Head, Method};

/// A request: its head, and its body if the body was collected.
#[derive(Debug)]
pub struct Request<'a> {
    head: Head<'a>,
    method: &'a str,
    /// The head as it was received.
    received: &'a [u8],
    body: &'a [u8],
    body_len: BodyLength,
    expects_continue: bool,
    /// Whether the client allows the connection to stay open.
    persistent: bool,
}

impl<'a> Request<'a> {
    /// Makes a request from the head at the start of `bytes`. The request has no body yet.
    pub(crate) fn new(head: Head<'a>, bytes: &'a [u8]) -> Self {
        let end = bytes.iter().position(|byte| *byte == b' ');
        let method = std::str::from_utf8(&bytes[..end.unwrap_or(0)]).unwrap_or_default();
        // Cannot fail: the head has already been parsed successfully.
        let framing = Framing::of(head.fields, head.minor).ok();
        let framing = framing.unwrap_or(Framing::NOTHING);
        Self {
            received: &bytes[..head.len.min(bytes.len())],
            head,
            method,
            body: &[],
            body_len: framing.body,
            expects_continue: framing.expects_continue,
            persistent: framing.persistent,
        }
    }

    /// The method, such as `GET`.
    pub fn method(&self) -> &'a str {
        self.method
    }

    /// The target as received, including the query.
    pub fn target(&self) -> &'a str {
        self.head.target
    }

    /// The path of the target as received, with its leading slash, not decoded. For the target `*`
    /// the path is `*`.
    pub fn path(&self) -> &'a str {
        let page = self.head.page();
        page.map_or(self.head.target, |target| target.path)
    }

    /// The part of the target after the question mark, if there is one.
    pub fn query(&self) -> Option<&'a str> {
        self.head.page()?.query
    }

    /// The value of the first field with this name. The name is compared without regard to case.
    pub fn field(&self, name: &str) -> Option<&'a [u8]> {
        self.head.values(name).next()
    }

    /// The names and values of all fields, in order. Trailer fields are not included.
    pub fn fields(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let fields = self.head.fields.iter();
        fields.map(|field| (field.name, field.value))
    }

    /// The body. It is empty if the request has no body, if the body has not been read, or if the
    /// application receives the body in [pieces](crate::Intake::Pieces).
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The length of the body as announced by the client, or 0 if there is no body. `None` for a
    /// chunked body, which has no announced length.
    pub fn announced_len(&self) -> Option<u64> {
        match self.body_len {
            BodyLength::Known(len) => Some(len),
            BodyLength::Chunked => None,
        }
    }

    pub(crate) fn body_len(&self) -> BodyLength {
        self.body_len
    }

    /// Returns true if the client waits for `100 Continue` before sending the body.
    pub(crate) fn expects_continue(&self) -> bool {
        self.expects_continue
    }

    pub(crate) fn is_head(&self) -> bool {
        self.head.method == Method::Head
    }

    pub(crate) fn is_get_or_head(&self) -> bool {
        matches!(self.head.method, Method::Get | Method::Head)
    }

    /// Returns true if the connection stays open after the response.
    pub(crate) fn keep_alive(&self) -> bool {
        self.head.keep_alive
    }

    /// The head, for look-ups in the site.
    pub(crate) fn head(&self) -> &Head<'a> {
        &self.head
    }

    /// The head as it was received.
    pub(crate) fn received(&self) -> &'a [u8] {
        self.received
    }

    /// The length of the head, in bytes.
    pub(crate) fn head_len(&self) -> usize {
        self.head.len
    }

    /// Adds the body. `is_read` is true if the entire body was read, or if its rest will be
    /// discarded. Otherwise the start of the next request is unknown, so the connection cannot stay
    /// open.
    pub(crate) fn with_body(mut self, body: &'a [u8], is_read: bool) -> Self {
        self.body = body;
        self.head.keep_alive = self.persistent && is_read;
        self
    }

    /// Records that the body will be discarded. The start of the next request is therefore known,
    /// and the connection can stay open.
    pub(crate) fn with_body_discarded(mut self) -> Self {
        self.head.keep_alive = self.persistent;
        self
    }

    /// Returns true if the application may answer the request. The target must contain a path or,
    /// for OPTIONS, may be `*` (RFC 9112, section 3.2.4). CONNECT is never passed to the
    /// application.
    pub(crate) fn is_for_application(&self) -> bool {
        let of_all = self.head.target == "*" && self.method == "OPTIONS";
        self.method != "CONNECT" && (of_all || self.head.page().is_some())
    }
}
