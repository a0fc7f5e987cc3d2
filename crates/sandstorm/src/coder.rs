//! Makes the coded forms of file contents, and keeps them.
//!
//! A file is encoded once, not for each response. [`is_worthwhile`] tells by the media type and the
//! length whether to try at all. [`Store::make`] encodes a content with one [`Coding`] at one
//! [`Effort`]. [`Store::get`] returns a form that was made before, by this server or by another one
//! that shares the folder.
//!
//! The module lacks a queue and threads. A caller runs [`Store::make`] on a thread of low priority.

mod encode;
mod folder;
mod form;
mod store;

#[cfg(doc)]
use crate::coding::Coding;

pub(crate) use encode::{Effort, encode};
pub(crate) use form::Key;
pub(crate) use store::{Made, Store};

/// Minimum length of a content that is encoded, in bytes. One packet holds what is shorter, so its
/// coded form would not arrive earlier.
pub(crate) const MIN_LEN: usize = 860;
/// Maximum length of a content that is encoded, in bytes. Encoders hold the whole content and its
/// coded form in memory. At this length, [`Effort::Best`] needs more than a minute.
pub(crate) const MAX_LEN: usize = 64 << 20;

/// Media types other than `text/*`, `*+json` and `*+xml` whose contents are not compressed already.
const COMPRESSIBLE: [&str; 15] = [
    "application/font-sfnt",
    "application/javascript",
    "application/json",
    "application/manifest",
    "application/vnd.ms-fontobject",
    "application/wasm",
    "application/x-font-otf",
    "application/x-font-ttf",
    "application/x-javascript",
    "application/xml",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/vnd.microsoft.icon",
    "image/x-icon",
];

/// Returns true if a content of this type and length is worth encoding. `media_type` may have
/// parameters, such as a charset.
pub(crate) fn is_worthwhile(media_type: &str, len: usize) -> bool {
    if !(MIN_LEN..=MAX_LEN).contains(&len) {
        return false;
    }
    let essence = media_type.split(';').next().unwrap_or(media_type);
    let essence = essence.trim().to_ascii_lowercase();
    essence.starts_with("text/")
        || essence.ends_with("+json")
        || essence.ends_with("+xml")
        || COMPRESSIBLE.contains(&essence.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_plain_formats_are_worthwhile() {
        for media_type in [
            "text/html; charset=utf-8",
            "TEXT/CSS",
            "application/json",
            "application/javascript ; x=y",
            "application/manifest+json",
            "application/wasm",
            "application/atom+xml",
            "image/svg+xml",
            "image/x-icon",
            "font/ttf",
        ] {
            assert!(is_worthwhile(media_type, 1_000), "{media_type}");
        }
        for media_type in [
            "",
            "text",
            "image/png",
            "image/jpeg",
            "font/woff2",
            "video/mp4",
            "application/zip",
            "application/octet-stream",
            "application/x; a=text/html",
        ] {
            assert!(!is_worthwhile(media_type, 1_000), "{media_type}");
        }
    }

    /// Checks the types that the site guesses from common extensions.
    #[test]
    fn guessed_types_are_known() {
        let is_coded = |extension: &str| {
            let media_type = mime_guess::from_ext(extension).first_raw().unwrap();
            is_worthwhile(media_type, 1_000)
        };
        for extension in [
            "html",
            "css",
            "js",
            "mjs",
            "json",
            "map",
            "xml",
            "svg",
            "wasm",
            "webmanifest",
            "ttf",
            "otf",
            "eot",
            "bmp",
            "ico",
            "txt",
            "md",
            "csv",
            "rss",
        ] {
            assert!(is_coded(extension), "{extension}");
        }
        for extension in [
            "png", "jpg", "webp", "woff", "woff2", "mp4", "gz", "zip", "pdf",
        ] {
            assert!(!is_coded(extension), "{extension}");
        }
    }

    #[test]
    fn short_and_huge_contents_are_not_worthwhile() {
        let lengths = [0, MIN_LEN - 1, MIN_LEN, MAX_LEN, MAX_LEN + 1];
        let expected = [false, false, true, true, false];
        assert_eq!(lengths.map(|len| is_worthwhile("text/css", len)), expected);
    }
}
