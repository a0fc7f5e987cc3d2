//! Makes the coded forms of file contents, and keeps them.
//!
//! A file is encoded once, not for each response. [`is_worthwhile`] tells by the media type and the
//! length whether to try at all. [`Coder::make`] encodes a content. [`Coder::get`] returns a form that
//! was made before, by this server or by another one that shares the folder.
//!
//! The module lacks a queue and threads. A caller runs [`Coder::make`] on a thread of low priority.
//! Only Linux has encoders, because only there a server can change its site while it runs. `Cargo.toml`
//! leaves out their crates elsewhere, so their module needs the same condition.

#[cfg_attr(not(target_os = "linux"), path = "coder/no_codecs.rs")]
mod codecs;
mod effort;
mod folder;
mod form;
mod store;

use std::io;
use std::path::PathBuf;

use crate::coding::Coding;
pub(crate) use codecs::is_form_of;
pub(crate) use effort::Effort;
use form::Key;
pub(crate) use store::Made;
use store::Store;

/// Minimum length of a content that is encoded, in bytes. One packet holds what is shorter, so its
/// coded form would not arrive earlier.
pub(crate) const MIN_LEN: usize = 860;
/// Maximum length of a content that is encoded, in bytes. Encoders hold the whole content and its
/// coded form in memory.
pub(crate) const MAX_LEN: usize = 64 << 20;

/// Maximum length of a content that is encoded with [`Effort::Best`], in bytes. A reload waits for the
/// file that is being encoded.
const MAX_BEST_LEN: usize = 4 << 20;

/// Media types other than `text/*`, `*+json` and `*+xml` whose contents are not compressed already.
const COMPRESSIBLE: [&str; 19] = [
    "application/font-sfnt",
    "application/javascript",
    "application/json",
    "application/manifest",
    "application/sql",
    "application/toml",
    "application/vnd.apple.mpegurl",
    "application/vnd.ms-fontobject",
    "application/wasm",
    "application/x-font-otf",
    "application/x-font-ttf",
    "application/x-javascript",
    "application/xml",
    "application/yaml",
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

/// Makes the coded forms of a site's files, with the effort that the operator has chosen.
#[derive(Debug)]
pub(crate) struct Coder {
    store: Store,
    effort: Effort,
    folder: Option<PathBuf>,
    max_bytes: u64,
}

/// A coder equals only itself. A site keeps the coder of its start.
impl PartialEq for Coder {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Coder {
    /// Creates a coder, which keeps what it makes in `folder`, or else in memory. A site gets no further
    /// coded forms when its responses have `max_bytes`.
    ///
    /// # Errors
    /// If the folder cannot be opened.
    pub(crate) fn open(
        effort: Effort,
        folder: Option<PathBuf>,
        max_bytes: u64,
    ) -> io::Result<Self> {
        Ok(Self {
            store: Store::open(folder.clone())?,
            effort,
            folder,
            max_bytes,
        })
    }

    /// Returns true if a site may get further coded forms. `bytes` is the length of its responses.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        bytes < self.max_bytes
    }

    /// The folder with coded forms, if there is one.
    pub(crate) fn folder(&self) -> Option<&PathBuf> {
        self.folder.as_ref()
    }

    /// Returns the coded form of a content, if it was made before.
    pub(crate) fn get(&self, content: &[u8], coding: Coding) -> Option<Made> {
        let effort = self.effort_for(content);
        self.store.get(Key::of(content), coding, effort)
    }

    fn effort_for(&self, content: &[u8]) -> Effort {
        if content.len() > MAX_BEST_LEN {
            Effort::Fast
        } else {
            self.effort
        }
    }

    /// Makes the coded form of a content, unless it was made before.
    pub(crate) fn make(&self, content: &[u8], coding: Coding) -> Made {
        let (key, effort) = (Key::of(content), self.effort_for(content));
        let known = self.store.get(key, coding, effort);
        known.unwrap_or_else(|| self.store.make(key, coding, effort, content))
    }

    /// Frees the memory of the coded forms of a content, because the site has them now.
    pub(crate) fn forget_memory(&self, content: &[u8]) {
        self.store.forget_memory(Key::of(content));
    }
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
            "application/yaml",
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
