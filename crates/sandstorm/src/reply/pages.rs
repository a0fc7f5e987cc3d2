//! Responses with pages that the server generates, and with pages of the site about errors.

use std::fmt::Display;

use crate::fields::Fields;
use crate::status::Status;

use super::partial::PartialHead;
use super::{ALLOWED, HeadBuilder, Reply};

/// Makes a response for GET and the matching response for HEAD.
fn with_body(status: Status, head: impl Fn() -> HeadBuilder, body: &str) -> [Reply; 2] {
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

/// Makes the responses with the page about a status: one for GET and one for HEAD.
pub(crate) fn status_page(status: Status, common: &Fields) -> [Reply; 2] {
    let head = || match status {
        // A 405 must list the allowed methods (RFC 9110, section 15.5.6).
        Status::MethodNotAllowed | Status::NoContent => {
            HeadBuilder::new(status, common).field("Allow", ALLOWED)
        }
        _ => HeadBuilder::new(status, common),
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
    let head = || HeadBuilder::new(status, common).field("Location", location);
    with_body(status, head, &page(status, &text))
}

/// Makes the redirects whose location is added for each request: one for GET and one for HEAD.
pub(crate) fn open_redirect(status: Status, common: &Fields) -> [Reply; 2] {
    let head = || HeadBuilder::new(status, common).field("Location", "");
    with_body(status, head, &page(status, "It has moved."))
}

/// Makes the responses that ask for a name and a password: one for GET and one for HEAD. The field
/// `WWW-Authenticate` has this value.
pub(crate) fn challenge(value: &str, common: &Fields) -> [Reply; 2] {
    let status = Status::Unauthorized;
    let head = || HeadBuilder::new(status, common).field("WWW-Authenticate", value);
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
