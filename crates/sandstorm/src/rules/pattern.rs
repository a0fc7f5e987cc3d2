//! The path of a rule, with placeholders and a star.

use arrayvec::ArrayVec;
use percent_encoding::{AsciiSet, percent_encode};

use super::{RuleError, excerpt};
use crate::percent::{self, ENCODED_SLASH, NAME, PATH};

/// Maximum number of placeholders in a path, including the star.
pub(crate) const MAX_CAPTURES: usize = 8;
/// Maximum length of the path of a rule, of a target, and of a rewritten path, in bytes.
pub(crate) const MAX_PATH_LEN: usize = 2_048;
/// The name of the text that a star matches.
pub(super) const SPLAT: &str = "splat";

/// The path of a rule, which matches decoded paths of requests.
///
/// A segment `:name` is a placeholder: it matches one segment that is not empty. An extension may follow it:
/// `/:name.html` matches `/a.html`, and `name` is `a`. A star at the end matches all that follows, also
/// nothing. So `/news/*` matches `/news`, `/news/` and `/news/a/b`, and `/assets/app-*` matches
/// `/assets/app-1.js`. Everything else is literal and matches the same bytes. In a pattern without a star, a
/// slash at the end is insignificant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// Literals and placeholders alternate, and a literal is the first. If there is a star, a
    /// literal is also the last. Behind a placeholder, a literal begins with a dot or a slash.
    parts: Box<[PatternPart]>,
    /// The names of the captures, in order. [`SPLAT`] is the last.
    names: Box<[Box<str>]>,
    has_star: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternPart {
    /// Decoded bytes. The first literal begins with a slash.
    Literal(Box<[u8]>),
    Placeholder,
}

/// The parts of a request's path that the placeholders and the star of a [`Pattern`] match, and behind
/// them values of its query. An encoded slash of the path is [`percent::ENCODED_SLASH`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Captures<'p> {
    texts: ArrayVec<&'p [u8], MAX_CAPTURES>,
    /// Number of captures that are values of the query.
    of_query: usize,
}

impl<'p> Captures<'p> {
    /// The text of a capture, by its [index](Pattern::index_of). It is empty if there is no such
    /// capture.
    pub(crate) fn get(&self, index: usize) -> &'p [u8] {
        self.texts.get(index).copied().unwrap_or_default()
    }

    /// Adds a value of the query. Returns `None` if there are too many captures.
    pub(crate) fn push_value(&mut self, value: &'p [u8]) -> Option<()> {
        self.of_query += 1;
        self.texts.try_push(value).ok()
    }

    /// Appends a capture, so that it stays one part of a URL's path. The slashes of a path separate
    /// its names, and those of a value do not.
    pub(super) fn write(&self, index: usize, out: &mut Vec<u8>) {
        let is_of_query = index + self.of_query >= self.texts.len();
        let mut text = self.get(index);
        if is_of_query {
            append_encoded(text, NAME, out);
            return;
        }
        while let Some(at) = memchr::memchr(ENCODED_SLASH, text) {
            append_encoded(&text[..at], PATH, out);
            out.extend_from_slice(b"%2F");
            text = &text[at + 1..];
        }
        append_encoded(text, PATH, out);
    }
}

impl Pattern {
    /// Parses the path of a rule. Percent-encoded bytes are decoded and always literal.
    pub(crate) fn parse(text: &str) -> Result<Self, RuleError> {
        check(text)?;
        let (text, has_star) = match text.strip_suffix('*') {
            Some(before) => (before, true),
            None => (without_slash(text), false),
        };
        if text.contains('*') {
            return Err(RuleError::StarInside);
        }
        let mut names: Vec<Box<str>> = Vec::new();
        let mut parts = Vec::new();
        let mut literal = Vec::new();
        let mut segments = text.split('/').skip(1).peekable();
        while let Some(segment) = segments.next() {
            literal.push(b'/');
            let Some(name) = segment.strip_prefix(':') else {
                decode_segment(segment, &mut literal)?;
                continue;
            };
            let (name, extension) = name.split_at(name.find('.').unwrap_or(name.len()));
            let is_before_star = has_star && segments.peek().is_none();
            let is_name = !name.is_empty() && name.bytes().all(is_in_name);
            // Other hosts know several placeholders in a segment.
            if is_before_star || !is_name || extension.contains(':') {
                let segment = excerpt(segment);
                return Err(RuleError::BadPlaceholder { segment });
            }
            add_name(&mut names, name)?;
            parts.push(PatternPart::Literal(std::mem::take(&mut literal).into()));
            parts.push(PatternPart::Placeholder);
            decode_segment(extension, &mut literal)?;
        }
        if !literal.is_empty() {
            parts.push(PatternPart::Literal(literal.into()));
        }
        if has_star {
            add_name(&mut names, SPLAT)?;
        }
        Ok(Self {
            parts: parts.into(),
            names: names.into(),
            has_star,
        })
    }

    /// The decoded path if the pattern has neither placeholders nor a star. The path is
    /// [canonical](canonical()).
    pub(crate) fn exact(&self) -> Option<&[u8]> {
        match &*self.parts {
            [PatternPart::Literal(path)] if !self.has_star => Some(path),
            _ => None,
        }
    }

    /// The longest path, as far as it ends with a name, below which all matching paths are. It is the
    /// path of [`exact`](Self::exact) if there is one, and empty for the whole site.
    pub(crate) fn base(&self) -> &[u8] {
        match &*self.parts {
            _ if self.exact().is_some() => self.exact().unwrap_or_default(),
            [PatternPart::Literal(path), ..] => {
                &path[..memchr::memrchr(b'/', path).unwrap_or_default()]
            }
            _ => &[],
        }
    }

    /// Returns true if the pattern is `/*`, which matches all paths.
    pub(crate) fn is_everything(&self) -> bool {
        self.has_star && matches!(&*self.parts, [PatternPart::Literal(path)] if **path == *b"/")
    }

    /// The text before the star, if the pattern has nothing else.
    pub(super) fn before_star(&self) -> Option<&[u8]> {
        match &*self.parts {
            [PatternPart::Literal(path)] if self.has_star => Some(path),
            _ => None,
        }
    }

    /// The index of a capture by its name, without the colon. The star has the name `splat`.
    pub(crate) fn index_of(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|other| **other == *name)
    }

    /// Number of captures.
    pub(crate) fn captures_len(&self) -> usize {
        self.names.len()
    }

    /// Returns the name of a placeholder of this pattern that stands in a text, behind a colon.
    pub(crate) fn placeholder_in<'t>(&self, text: &'t str) -> Option<&'t str> {
        let mut names = text.split(':').skip(1).map(|after| {
            let len = after.bytes().take_while(|byte| is_in_name(*byte)).count();
            &after[..len]
        });
        names.find(|name| !name.is_empty() && self.index_of(name).is_some())
    }

    /// Matches a decoded path. Returns `None` if it does not match.
    ///
    /// Nothing is searched: a placeholder ends at the next slash, or before an extension there, and a star
    /// at the end.
    pub(crate) fn captures<'p>(&self, path: &'p [u8]) -> Option<Captures<'p>> {
        let mut captures = Captures::default();
        let mut rest = if self.has_star { path } else { canonical(path) };
        let mut parts = self.parts.iter().peekable();
        while let Some(part) = parts.next() {
            match part {
                PatternPart::Literal(literal) => {
                    rest = match rest.strip_prefix(&**literal) {
                        Some(after) => after,
                        None if self.has_star && parts.peek().is_none() => {
                            match_folder(literal, rest).filter(|_| !path.is_empty())?
                        }
                        None => return None,
                    };
                }
                PatternPart::Placeholder => {
                    let end = memchr::memchr(b'/', rest).unwrap_or(rest.len());
                    let extension = match parts.peek() {
                        Some(PatternPart::Literal(next)) => first_segment(next),
                        _ => &[],
                    };
                    let segment = rest[..end].strip_suffix(extension)?;
                    if segment.is_empty() {
                        return None;
                    }
                    captures.texts.push(segment);
                    rest = &rest[segment.len()..];
                }
            }
        }
        if self.has_star {
            captures.texts.push(rest);
        } else if !rest.is_empty() {
            return None;
        }
        Some(captures)
    }
}

/// Returns the bytes before the first slash.
fn first_segment(text: &[u8]) -> &[u8] {
    &text[..memchr::memchr(b'/', text).unwrap_or(text.len())]
}

/// Matches a folder without its final slash before a star. Returns the rest, which is empty.
fn match_folder<'p>(literal: &[u8], rest: &'p [u8]) -> Option<&'p [u8]> {
    (literal.strip_suffix(b"/")? == rest).then_some(&[])
}

/// Removes the insignificant slash at the end of a path. The path `/` remains as it is, and so does
/// `//`, which is not the root.
pub(crate) fn canonical(path: &[u8]) -> &[u8] {
    match path.strip_suffix(b"/") {
        Some(rest) if rest.len() > 1 => rest,
        _ => path,
    }
}

/// Same as [`canonical`], for text.
fn without_slash(text: &str) -> &str {
    &text[..canonical(text.as_bytes()).len()]
}

/// Checks the path of a rule as a whole.
pub(super) fn check(text: &str) -> Result<(), RuleError> {
    let len = text.len();
    if text.starts_with("//") || (!text.starts_with('/') && text.contains("://")) {
        let text = excerpt(text);
        return Err(RuleError::Domain { text });
    }
    if !text.starts_with('/') {
        let text = excerpt(text);
        return Err(RuleError::NotAPath { text });
    }
    if len > MAX_PATH_LEN {
        return Err(RuleError::PathTooLong { len });
    }
    if text.bytes().any(|b| b == b' ' || b.is_ascii_control()) {
        return Err(RuleError::BadByte);
    }
    if text.contains(['?', '#']) {
        return Err(RuleError::Query);
    }
    Ok(())
}

/// Appends the decoded bytes of a literal segment.
pub(super) fn decode_segment(segment: &str, out: &mut Vec<u8>) -> Result<(), RuleError> {
    let start = out.len();
    decode(segment.as_bytes(), out)?;
    let decoded = &out[start..];
    // An encoded slash of a request is literally in no pattern.
    if decoded.contains(&b'/') {
        return Err(RuleError::EncodedSlash);
    }
    if decoded.iter().any(u8::is_ascii_control) {
        return Err(RuleError::BadByte);
    }
    Ok(())
}

/// Appends percent-decoded text.
pub(super) fn decode(text: &[u8], out: &mut Vec<u8>) -> Result<(), RuleError> {
    for byte in percent::decode(text) {
        let (byte, _) = byte.map_err(|_| RuleError::BadEncoding)?;
        out.push(byte);
    }
    Ok(())
}

fn append_encoded(text: &[u8], set: &'static AsciiSet, out: &mut Vec<u8>) {
    for piece in percent_encode(text, set) {
        out.extend_from_slice(piece.as_bytes());
    }
}

/// Returns true if the name of a placeholder may contain this byte.
pub(super) fn is_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Appends the name of a capture.
fn add_name(names: &mut Vec<Box<str>>, name: &str) -> Result<(), RuleError> {
    if names.iter().any(|other| **other == *name) {
        let name = excerpt(name);
        return Err(RuleError::DuplicateName { name });
    }
    if names.len() == MAX_CAPTURES {
        return Err(RuleError::TooManyPlaceholders);
    }
    names.push(name.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The captures of a path, or `None` if the pattern does not match.
    fn matched<'p>(pattern: &str, path: &'p str) -> Option<Vec<&'p str>> {
        let captures = Pattern::parse(pattern).unwrap().captures(path.as_bytes())?;
        let texts = captures.texts.iter().map(|text| std::str::from_utf8(text));
        Some(texts.collect::<Result<_, _>>().unwrap())
    }

    #[test]
    fn paths_match_as_documented() {
        let none: Option<&[&str]> = None;
        let some = |captures: &'static [&'static str]| Some(captures);
        for (pattern, path, expected) in [
            ("/", "/", some(&[])),
            ("/", "//", none),
            ("/", "", none),
            ("/", "/a", none),
            ("/blog", "/blog", some(&[])),
            ("/blog", "/blog/", some(&[])),
            ("/blog/", "/blog", some(&[])),
            ("/blog", "/blog//", none),
            ("/blog", "/Blog", none),
            ("/blog", "/blogs", none),
            ("/a%20b/%C3%BC", "/a b/\u{fc}", some(&[])),
            ("/\u{fc}", "/\u{fc}", some(&[])),
            ("/%3Ax/%2A", "/:x/*", some(&[])),
            ("/a:b", "/a:b", some(&[])),
            ("/*", "/", some(&[""])),
            ("/*", "/a/b/", some(&["a/b/"])),
            ("/*", "//a", some(&["/a"])),
            ("/*", "", none),
            ("/news/*", "/news", some(&[""])),
            ("/news/*", "/news/", some(&[""])),
            ("/news/*", "/news/a/b", some(&["a/b"])),
            ("/news/*", "/newsletter", none),
            ("/news*", "/newsletter", some(&["letter"])),
            ("/assets/app-*", "/assets/app-", some(&[""])),
            ("/assets/app-*", "/assets/app-1/x.js", some(&["1/x.js"])),
            ("/assets/app-*", "/assets/app", none),
            ("/:a", "/x", some(&["x"])),
            ("/:a", "/x/", some(&["x"])),
            ("/:a/", "/x", some(&["x"])),
            ("/:a", "/", none),
            ("/:a", "//", none),
            ("/:a", "/x/y", none),
            ("/:a/:b", "/x//", none),
            ("/:a/b/:c", "/x/b/z", some(&["x", "z"])),
            ("/:a/b/:c", "/x/c/z", none),
            ("/:a/b", "/x/b/", some(&["x"])),
            ("/:a/b", "/x/bc", none),
            ("/:a.html", "/x.html", some(&["x"])),
            ("/:a.html", "/x.html/", some(&["x"])),
            ("/:a.html", "/x.y.html.html", some(&["x.y.html"])),
            ("/:a.html", "/.html", none),
            ("/:a.html", "/x.htm", none),
            ("/:a.html", "/xhtml", none),
            ("/:a.html", "/x/y.html", none),
            ("/:a.b%20c/:d.e", "/x.b c/y.e", some(&["x", "y"])),
            ("/:a.b/c", "/x.b/c", some(&["x"])),
            ("/:a.b/c", "/x/c", none),
            ("/:a.b/*", "/x.b", some(&["x", ""])),
            ("/:a.b/*", "/x.b/c", some(&["x", "c"])),
            ("/:a.b/*", "/x/c", none),
            ("/:lang/*", "/en", some(&["en", ""])),
            ("/:lang/*", "/en/a/b", some(&["en", "a/b"])),
            ("/:lang/*", "/", none),
            ("/:lang/x/*", "/en/x", some(&["en", ""])),
            ("/:lang/x-*", "/en/x-1", some(&["en", "1"])),
        ] {
            let found = matched(pattern, path);
            assert_eq!(found.as_deref(), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn only_patterns_without_placeholders_are_exact() {
        for (pattern, exact) in [
            ("/", Some("/")),
            ("/blog/", Some("/blog")),
            ("/a%20b", Some("/a b")),
            ("/*", None),
            ("/a*", None),
            ("/:a", None),
        ] {
            let parsed = Pattern::parse(pattern).unwrap();
            assert_eq!(parsed.exact(), exact.map(str::as_bytes), "{pattern}");
            assert_eq!(parsed.is_everything(), pattern == "/*");
        }
        assert_eq!(Pattern::parse("/blog"), Pattern::parse("/blog/"));
    }

    #[test]
    fn captures_are_found_by_name() {
        let pattern = Pattern::parse("/:year/:_m2/*").unwrap();
        let captures = pattern.captures(b"/2026/11/a").unwrap();
        for (name, text) in [("year", "2026"), ("_m2", "11"), ("splat", "a")] {
            let index = pattern.index_of(name).unwrap();
            assert_eq!(captures.get(index), text.as_bytes());
        }
        assert_eq!(pattern.index_of("m2"), None);
        assert_eq!(captures.get(3), b"");
    }

    #[test]
    fn wrong_paths_are_refused() {
        let text = |text: &str| text.to_owned();
        let bad = |segment: &str| RuleError::BadPlaceholder {
            segment: text(segment),
        };
        let domain = |url: &str| RuleError::Domain { text: text(url) };
        for (pattern, error) in [
            ("", RuleError::NotAPath { text: text("") }),
            ("a/b", RuleError::NotAPath { text: text("a/b") }),
            ("*", RuleError::NotAPath { text: text("*") }),
            ("https://a.test/x", domain("https://a.test/x")),
            ("//a.test/x", domain("//a.test/x")),
            ("/a b", RuleError::BadByte),
            ("/a\0", RuleError::BadByte),
            ("/a%0d", RuleError::BadByte),
            ("/a?b=c", RuleError::Query),
            ("/a#b", RuleError::Query),
            ("/a%", RuleError::BadEncoding),
            ("/a%2", RuleError::BadEncoding),
            ("/a%+1", RuleError::BadEncoding),
            ("/a%2Fb", RuleError::EncodedSlash),
            ("/*/a", RuleError::StarInside),
            ("/a/*/", RuleError::StarInside),
            ("/a**", RuleError::StarInside),
            ("/:", bad(":")),
            ("/:a-b", bad(":a-b")),
            ("/:a-b.html", bad(":a-b.html")),
            ("/:.html", bad(":.html")),
            ("/:a.:b", bad(":a.:b")),
            ("/:a.b%2Fc", RuleError::EncodedSlash),
            ("/:a.b%", RuleError::BadEncoding),
            ("/:a*", bad(":a")),
            ("/:a.b*", bad(":a.b")),
        ] {
            assert_eq!(Pattern::parse(pattern), Err(error), "{pattern}");
        }
        let duplicate = |name| Err(RuleError::DuplicateName { name: text(name) });
        assert_eq!(Pattern::parse("/:a/:b/:a"), duplicate("a"));
        assert_eq!(Pattern::parse("/:splat/*"), duplicate("splat"));
    }

    #[test]
    fn paths_and_placeholders_are_limited() {
        let path = |len: usize| format!("/{}", "a".repeat(len - 1));
        assert!(Pattern::parse(&path(MAX_PATH_LEN)).is_ok());
        let len = MAX_PATH_LEN + 1;
        assert_eq!(
            Pattern::parse(&path(len)),
            Err(RuleError::PathTooLong { len })
        );

        let names = |count: usize| -> String {
            [
                "/:a", "/:b", "/:c", "/:d", "/:e", "/:f", "/:g", "/:h", "/:i",
            ][..count]
                .concat()
        };
        let most = Pattern::parse(&names(MAX_CAPTURES)).unwrap();
        assert!(most.captures(&b"/x".repeat(MAX_CAPTURES)).is_some());
        let too_many = Err(RuleError::TooManyPlaceholders);
        assert_eq!(Pattern::parse(&names(MAX_CAPTURES + 1)), too_many);
        assert_eq!(Pattern::parse(&(names(MAX_CAPTURES) + "/*")), too_many);
    }

    proptest! {
        /// Checks that no text and no path makes the parser or a match panic.
        #[test]
        fn no_text_causes_a_panic(text in "/?[/:*%a2. -é]{0,24}", path in "/?[/:*%a2. -é]{0,24}") {
            if let Ok(pattern) = Pattern::parse(&text) {
                pattern.captures(path.as_bytes());
                pattern.captures(text.as_bytes());
            }
        }

        /// Checks that a pattern matches a path that is made from it.
        #[test]
        fn a_pattern_matches_its_own_paths(
            segments in prop::collection::vec(("[a-z]{1,4}", any::<bool>()), 1..=7),
            splat in prop::option::of("[a-z/]{0,6}"),
        ) {
            let (mut pattern, mut path) = (String::new(), String::new());
            let mut expected = Vec::new();
            for (index, (text, is_placeholder)) in segments.iter().enumerate() {
                path = path + "/" + text;
                if *is_placeholder {
                    pattern = format!("{pattern}/:p{index}");
                    expected.push(text.as_str());
                } else {
                    pattern = pattern + "/" + text;
                }
            }
            if let Some(splat) = &splat {
                pattern += "/*";
                path = path + "/" + splat;
                expected.push(splat);
            }
            prop_assert_eq!(matched(&pattern, &path), Some(expected));
        }
    }
}
