//! Answers of the endpoints.

use hyper::body::{Bytes, Frame};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};
use tokio::sync::mpsc;

use super::body::ReplyBody;

pub(super) type Reply = Response<ReplyBody>;

pub(super) fn not_allowed(methods: &'static str) -> Reply {
    let mut reply = text(StatusCode::METHOD_NOT_ALLOWED, format!("use {methods}\n"));
    set(&mut reply, ALLOW, methods);
    reply
}

pub(super) fn json(code: StatusCode, value: &impl serde::Serialize) -> Reply {
    // These values have no map whose keys are not texts, so they can always be written.
    let body = serde_json::to_string(value).unwrap_or_default();
    of_type(code, "application/json", body + "\n")
}

pub(super) fn text(code: StatusCode, body: String) -> Reply {
    of_type(code, "text/plain; charset=utf-8", body)
}

pub(super) fn of_type(code: StatusCode, content_type: &'static str, body: String) -> Reply {
    with_body(code, content_type, body.into())
}

/// Answers with the frames that arrive in a channel, until it is closed.
pub(super) fn stream(content_type: &'static str, frames: mpsc::Receiver<Frame<Bytes>>) -> Reply {
    with_body(StatusCode::OK, content_type, ReplyBody::Stream(frames))
}

fn with_body(code: StatusCode, content_type: &'static str, body: ReplyBody) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = code;
    set(&mut reply, CONTENT_TYPE, content_type);
    set(&mut reply, CACHE_CONTROL, "no-store");
    set(&mut reply, X_CONTENT_TYPE_OPTIONS, "nosniff");
    reply
}

pub(super) fn set(reply: &mut Reply, name: HeaderName, value: &'static str) {
    reply
        .headers_mut()
        .insert(name, HeaderValue::from_static(value));
}
