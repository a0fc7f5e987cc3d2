//! Requests as an application sees them.

use crate::body::BodyLength;
use crate::framing::Framing;
use crate::head::{Head, Method};

/// A request: its head, and its body where that was read.
#[derive(Debug)]
pub struct Request<'a> {
    head: Head<'a>,
    method: &'a str,
    body: &'a [u8],
    body_len: BodyLength,
    waits_to_go_on: bool,
    /// The client lets the connection go on.
    persistent: bool,
}

impl<'a> Request<'a> {
    /// The request whose head stands at the start of `bytes`; its body is not read.
    pub(crate) fn new(head: Head<'a>, bytes: &'a [u8]) -> Self {
        let end = bytes.iter().position(|byte| *byte == b' ');
        let method = std::str::from_utf8(&bytes[..end.unwrap_or(0)]).unwrap_or_default();
        // It was right when the head was read.
        let framing = Framing::of(head.fields, head.minor).ok();
        let framing = framing.unwrap_or(Framing::NOTHING);
        Self {
            head,
            method,
            body: &[],
            body_len: framing.body,
            waits_to_go_on: framing.continues,
            persistent: framing.persistent,
        }
    }

    /// The method, as in `GET`.
    pub fn method(&self) -> &'a str {
        self.method
    }

    /// The target as it was received, with its query.
    pub fn target(&self) -> &'a str {
        self.head.target
    }

    /// The target's path, which begins with a slash, as it was received: nothing is
    /// decoded. Of `*` it is `*`.
    pub fn path(&self) -> &'a str {
        let page = self.head.page();
        page.map_or(self.head.target, |target| target.path)
    }

    /// What stands behind the target's question mark, if it has one.
    pub fn query(&self) -> Option<&'a str> {
        self.head.page()?.query
    }

    /// The value of the first field of this name, in whatever case.
    pub fn field(&self, name: &str) -> Option<&'a [u8]> {
        self.head.values(name).next()
    }

    /// All fields in their order, without those behind a body in chunks: names and
    /// values.
    pub fn fields(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let fields = self.head.fields.iter();
        fields.map(|field| (field.name, field.value))
    }

    /// The body. Empty where there is none, where the application takes it in
    /// [pieces](crate::Intake::Pieces), and until it was read.
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// How long the body is, as the client says; 0 where there is none. `None` when it
    /// does not say, as it sends the body in chunks.
    pub fn announced_len(&self) -> Option<u64> {
        match self.body_len {
            BodyLength::Known(len) => Some(len),
            BodyLength::Chunked => None,
        }
    }

    pub(crate) fn body_len(&self) -> BodyLength {
        self.body_len
    }

    /// The client waits to be told to send the body.
    pub(crate) fn waits_to_go_on(&self) -> bool {
        self.waits_to_go_on
    }

    pub(crate) fn is_head(&self) -> bool {
        self.head.method == Method::Head
    }

    pub(crate) fn is_get_or_head(&self) -> bool {
        matches!(self.head.method, Method::Get | Method::Head)
    }

    /// The connection goes on after the answer.
    pub(crate) fn keep_alive(&self) -> bool {
        self.head.keep_alive
    }

    /// Its head, as the site is asked about it.
    pub(crate) fn head(&self) -> &Head<'a> {
        &self.head
    }

    /// Bytes of the head.
    pub(crate) fn head_len(&self) -> usize {
        self.head.len
    }

    /// The same with its body. `is_read`: to its end, so that the next request can be
    /// found.
    pub(crate) fn with_body(mut self, body: &'a [u8], is_read: bool) -> Self {
        self.body = body;
        self.head.keep_alive = self.persistent && is_read;
        self
    }

    /// The same when its body is discarded, so that the next request can be found.
    pub(crate) fn with_body_discarded(mut self) -> Self {
        self.head.keep_alive = self.persistent;
        self
    }

    /// Whether an application may answer: the target names a path or, in OPTIONS, the
    /// server as a whole (RFC 9112, section 3.2.4). A tunnel is no answer.
    pub(crate) fn is_for_application(&self) -> bool {
        let of_all = self.head.target == "*" && self.method == "OPTIONS";
        self.method != "CONNECT" && (of_all || self.head.page().is_some())
    }
}
