//! Media types of files, by the extension of the file name.

use std::collections::HashMap;

/// The media type of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MediaType {
    pub(super) name: String,
    /// The name without a charset, for text types. It is used if the file is not valid UTF-8.
    pub(super) without_charset: Option<String>,
}

/// The media types of extensions. They replace the usual ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MediaTypes(HashMap<String, String>);

impl MediaTypes {
    /// Sets the media type for an extension, which is given without its dot. Its case is ignored.
    pub(crate) fn add(&mut self, extension: &str, media_type: &str) {
        let (extension, media_type) = (extension.to_ascii_lowercase(), media_type.to_owned());
        self.0.insert(extension, media_type);
    }

    /// Returns the type of the file at `path`.
    pub(super) fn of(&self, path: &[u8]) -> MediaType {
        let extension = std::str::from_utf8(path)
            .ok()
            .and_then(|path| path.rsplit('/').next())
            .and_then(|name| name.rsplit_once('.'))
            .map_or("", |(_, extension)| extension);
        match self.0.get(&extension.to_ascii_lowercase()) {
            Some(name) => MediaType::new(name),
            None => MediaType::new(usual(extension)),
        }
    }
}

/// Returns the usual media type for an extension.
fn usual(extension: &str) -> &'static str {
    // These types are missing or wrong in the list, or were registered after it was made, or are meant
    // otherwise on sites. Fonts are in RFC 8081, zstd in RFC 8878, YAML in RFC 9512, SQL in RFC 6922.
    match &*extension.to_ascii_lowercase() {
        "mjs" | "cjs" => "text/javascript",
        "webmanifest" => "application/manifest+json",
        "map" => "application/json",
        "geojson" => "application/geo+json",
        "jxl" => "image/jxl",
        "tsx" => "text/plain",
        "wgsl" => "text/wgsl",
        // Segments of videos (RFC 8216) are more usual on sites than what the list has.
        "ts" => "video/mp2t",
        "tgz" => "application/gzip",
        "zst" => "application/zstd",
        "rpm" => "application/x-rpm",
        "deb" => "application/vnd.debian.binary-package",
        "woff" => "font/woff",
        "otf" => "font/otf",
        "yaml" | "yml" => "application/yaml",
        "toml" => "application/toml",
        "sql" => "application/sql",
        "m3u8" => "application/vnd.apple.mpegurl",
        "m4a" => "audio/mp4",
        _ => mime_guess::from_ext(extension)
            .first_raw()
            .unwrap_or("application/octet-stream"),
    }
}

impl MediaType {
    /// The media type that a rule gives to a file. It holds whatever the file contains.
    pub(super) fn given(name: String) -> Self {
        Self {
            name,
            without_charset: None,
        }
    }

    /// Adds the charset to a text type that has no parameter.
    pub(super) fn new(name: &str) -> Self {
        if name.starts_with("text/") && !name.contains(';') {
            Self {
                name: format!("{name}; charset=utf-8"),
                without_charset: Some(name.to_owned()),
            }
        } else {
            Self {
                name: name.to_owned(),
                without_charset: None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_media_types_replace_the_usual_ones() {
        let mut types = MediaTypes::default();
        types.add("WASM", "application/x-own");
        types.add("conf", "text/plain");
        types.add("old", "text/html; charset=iso-8859-1");
        for (path, name, without_charset) in [
            ("/a.wasm", "application/x-own", None),
            ("/a.CONF", "text/plain; charset=utf-8", Some("text/plain")),
            ("/a.old", "text/html; charset=iso-8859-1", None),
            ("/a.css", "text/css; charset=utf-8", Some("text/css")),
            ("/conf", "application/octet-stream", None),
            ("/a.TS", "video/mp2t", None),
        ] {
            let expected = MediaType {
                name: name.to_owned(),
                without_charset: without_charset.map(str::to_owned),
            };
            assert_eq!(types.of(path.as_bytes()), expected, "{path}");
        }
    }

    #[test]
    fn media_types_are_the_usual_ones() {
        for (extensions, name) in [
            ("7z", "application/x-7z-compressed"),
            ("avif", "image/avif"),
            ("br", "application/octet-stream"),
            ("deb", "application/vnd.debian.binary-package"),
            ("epub", "application/epub+zip"),
            ("gz tgz", "application/gzip"),
            ("ics", "text/calendar"),
            ("m3u8", "application/vnd.apple.mpegurl"),
            ("m4a", "audio/mp4"),
            ("map json", "application/json"),
            ("md", "text/markdown"),
            ("mjs cjs js", "text/javascript"),
            ("otf", "font/otf"),
            ("rpm", "application/x-rpm"),
            ("sql", "application/sql"),
            ("toml", "application/toml"),
            ("ts", "video/mp2t"),
            ("ttf", "font/ttf"),
            ("wasm", "application/wasm"),
            ("webmanifest", "application/manifest+json"),
            ("webp", "image/webp"),
            ("woff WOFF", "font/woff"),
            ("woff2", "font/woff2"),
            ("yaml yml", "application/yaml"),
            ("zst", "application/zstd"),
        ] {
            for extension in extensions.split(' ') {
                assert_eq!(usual(extension), name, "{extension}");
            }
        }
    }
}
