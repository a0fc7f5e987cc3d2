//! The target of a rule, into which captures are inserted.

use arrayvec::ArrayVec;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use super::pattern::{Captures, MAX_PATH_LEN, decode, is_in_name};
use super::{RuleError, excerpt};
use crate::host::is_host;
use crate::percent::ENCODED_SLASH;

/// Maximum length of a location, in bytes. A target can repeat a capture, so a short request could
/// otherwise cause a response of any length.
pub(crate) const MAX_LOCATION_LEN: usize = 8_192;

/// Bytes to percent-encode in literal text, because URLs cannot contain them outside the host. The
/// percent sign is not among them, so bytes that are already encoded do not change.
const IN_LITERAL: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The target of a rule: a path or a URL, in which `:name` and `:splat` stand for captures.
///
/// The scheme and the host are always literal, so a client cannot choose the host of a location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    /// The parts of the location. Literals are percent-encoded.
    location: Box<[TemplatePart]>,
    /// The parts of the decoded path without query and fragment, or `None` if the target is a URL.
    path: Option<Box<[TemplatePart]>>,
    has_query: bool,
    /// Whether the path has text of its own, so that no capture is to lead out of it.
    has_own_path: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Literal(Box<[u8]>),
    /// The index of a capture.
    Capture(usize),
}

impl Template {
    /// Parses the target of a rule. `index_of` returns the index of a capture by its name.
    pub(crate) fn parse(
        text: &str,
        index_of: &dyn Fn(&str) -> Option<usize>,
    ) -> Result<Self, RuleError> {
        let len = text.len();
        if len > MAX_PATH_LEN {
            return Err(RuleError::TargetTooLong { len });
        }
        if text.starts_with("//") || text.starts_with("/\\") {
            return Err(RuleError::TwoSlashes);
        }
        let (origin, rest) = split_origin(text)?;
        let rest = with_one_fragment(rest);
        let query_at = rest.find(['?', '#']);
        let mut location = Vec::new();
        if !origin.is_empty() {
            location.push(TemplatePart::Literal(origin.as_bytes().into()));
        }
        add_parts(&rest, index_of, &mut location, |literal| {
            // Only the error matters here: the bytes stay encoded.
            decode(literal.as_bytes(), &mut Vec::new())?;
            let encoded = percent_encode(literal.as_bytes(), IN_LITERAL);
            Ok(encoded.to_string().into_bytes())
        })?;
        let mut path = Vec::new();
        let end = query_at.unwrap_or(rest.len());
        add_parts(&rest[..end], index_of, &mut path, |literal| {
            let mut decoded = Vec::new();
            decode(literal.as_bytes(), &mut decoded)?;
            Ok(decoded)
        })?;
        let is_own = |part: &TemplatePart| match part {
            TemplatePart::Literal(text) => text.iter().any(|byte| *byte != b'/'),
            TemplatePart::Capture(_) => false,
        };
        Ok(Self {
            has_own_path: path.iter().any(is_own),
            location: location.into(),
            path: origin.is_empty().then(|| path.into()),
            has_query: query_at.is_some(),
        })
    }

    /// Returns true if the target is a path of the site, and false if it is a URL.
    pub(crate) fn is_path(&self) -> bool {
        self.path.is_some()
    }

    /// Returns true if the target has its own query or a fragment, so that no query can follow it.
    pub(crate) fn has_query(&self) -> bool {
        self.has_query
    }

    /// Returns true if the target contains no captures, so that it is the same for all requests.
    pub(crate) fn is_fixed(&self) -> bool {
        let is_literal = |part: &TemplatePart| matches!(part, TemplatePart::Literal(_));
        self.location.iter().all(is_literal)
    }

    /// Returns true if a request with these captures can be redirected. The target is fixed, or its
    /// location is certainly not too long, and the captures do not lead out of its path. `len` is the
    /// length of the text that the captures are from.
    pub(crate) fn holds(&self, captures: &Captures<'_>, len: usize) -> bool {
        self.is_fixed() || (self.has_room(len) && !(self.has_own_path && self.has_dots(captures)))
    }

    /// Returns true if a redirect to this target leads to the decoded `path` again. With `or_other`, returns
    /// true also if only a final slash differs.
    pub(crate) fn leads_to(&self, captures: &Captures<'_>, path: &[u8], or_other: bool) -> bool {
        let Some(parts) = &self.path else {
            return false;
        };
        let texts = parts.iter().flat_map(|part| match part {
            TemplatePart::Literal(text) => text,
            TemplatePart::Capture(index) => captures.get(*index),
        });
        // A location begins with one slash.
        let names = texts.skip_while(|byte| **byte == b'/');
        let mut target = std::iter::once(&b'/').chain(names);
        if !or_other {
            return target.eq(path);
        }
        let without_slash = path.strip_suffix(b"/").unwrap_or(path);
        without_slash.iter().all(|byte| target.next() == Some(byte))
            && matches!((target.next(), target.next()), (None | Some(b'/'), None))
    }

    /// Returns true if both targets are the same path of the site.
    pub(super) fn has_path_of(&self, other: &Self) -> bool {
        self.path.is_some() && self.path == other.path
    }

    /// Returns true if all paths of the target begin with `prefix`, and have captures behind it.
    pub(super) fn is_below(&self, prefix: &[u8]) -> bool {
        let is_capture = |part: &TemplatePart| matches!(part, TemplatePart::Capture(_));
        let path = self.path.as_deref().unwrap_or_default();
        match path.first() {
            Some(TemplatePart::Literal(text)) => {
                text.starts_with(prefix) && path.iter().any(is_capture)
            }
            _ => false,
        }
    }

    /// Returns true if the path of the location has a segment `.` or `..`, which would lead to another
    /// path. Some servers and browsers take an encoded slash or a backslash for a slash.
    fn has_dots(&self, captures: &Captures<'_>) -> bool {
        let is_dots = |dots| matches!(dots, Some(1 | 2));
        // The length of the segment so far, if it has only dots.
        let mut dots = Some(0);
        for part in &self.location {
            let (text, is_literal) = match part {
                TemplatePart::Literal(text) => (&**text, true),
                TemplatePart::Capture(index) => (captures.get(*index), false),
            };
            for byte in text {
                dots = match byte {
                    b'?' | b'#' if is_literal => return is_dots(dots),
                    b'/' | b'\\' | &ENCODED_SLASH if is_dots(dots) => return true,
                    b'/' | b'\\' | &ENCODED_SLASH => Some(0),
                    b'.' => dots.map(|dots| dots + 1),
                    _ => None,
                };
            }
        }
        is_dots(dots)
    }

    /// Returns true if the location for a path of `len` bytes is certainly not too long.
    fn has_room(&self, len: usize) -> bool {
        let max_len = |part: &TemplatePart| match part {
            TemplatePart::Literal(text) => text.len(),
            // Percent-encoding triples a byte.
            TemplatePart::Capture(_) => 3 * len,
        };
        self.location.iter().map(max_len).sum::<usize>() <= MAX_LOCATION_LEN
    }

    /// Appends the value of a `Location` field. Returns `None`, and appends nothing, if the value
    /// would be longer than [`MAX_LOCATION_LEN`].
    ///
    /// `captures` must be of the template's pattern. The value consists only of bytes that URLs can
    /// contain. A value that begins with a slash begins with exactly one, so browsers resolve it on
    /// this site (RFC 3986, section 4.2).
    #[must_use]
    pub(crate) fn write(&self, captures: &Captures<'_>, out: &mut Vec<u8>) -> Option<()> {
        let start = out.len();
        for part in &self.location {
            match part {
                TemplatePart::Literal(text) => out.extend_from_slice(text),
                // A capture is encoded, so it can begin neither a query nor a fragment, and no line.
                TemplatePart::Capture(index) => captures.write(*index, out),
            }
            if out.len() - start > MAX_LOCATION_LEN {
                out.truncate(start);
                return None;
            }
        }
        let extra = extra_slashes(&out[start..]);
        out.drain(start..start + extra);
        Some(())
    }

    /// Returns the decoded path for a rewrite, without query and fragment. It lies in `buffer`,
    /// whose previous content is lost.
    ///
    /// Returns `None` if the path does not fit into the buffer, or if the target is a URL. The path
    /// begins with exactly one slash.
    pub(crate) fn path<'b>(
        &self,
        captures: &Captures<'_>,
        buffer: &'b mut ArrayVec<u8, MAX_PATH_LEN>,
    ) -> Option<&'b [u8]> {
        buffer.clear();
        for part in self.path.as_ref()? {
            let bytes = match part {
                TemplatePart::Literal(text) => text,
                TemplatePart::Capture(index) => captures.get(*index),
            };
            buffer.try_extend_from_slice(bytes).ok()?;
        }
        Some(&buffer[extra_slashes(buffer)..])
    }
}

/// The number of slashes at the start, except for the last one.
fn extra_slashes(path: &[u8]) -> usize {
    let slashes = path.iter().take_while(|byte| **byte == b'/').count();
    slashes.saturating_sub(1)
}

/// Splits a target into the scheme with the host, and the rest. The scheme and the host of a path
/// are empty.
fn split_origin(text: &str) -> Result<(&str, &str), RuleError> {
    if text.starts_with('/') {
        return Ok(("", text));
    }
    let scheme = ["http://", "https://"].into_iter().find(|scheme| {
        let start = text.as_bytes().get(..scheme.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(scheme.as_bytes()))
    });
    let Some(scheme) = scheme else {
        let text = excerpt(text);
        return Err(RuleError::NotATarget { text });
    };
    let after_scheme = &text[scheme.len()..];
    let end = after_scheme.find(['/', '?', '#']);
    let host = &after_scheme[..end.unwrap_or(after_scheme.len())];
    if host.is_empty() || !is_host(host.as_bytes()) {
        let host = excerpt(host);
        return Err(RuleError::BadHost { host });
    }
    Ok(text.split_at(scheme.len() + host.len()))
}

/// Percent-encodes each number sign within the fragment (RFC 3986, section 3.5).
fn with_one_fragment(text: &str) -> String {
    match text.split_once('#') {
        Some((before, fragment)) => format!("{before}#{}", fragment.replace('#', "%23")),
        None => text.to_owned(),
    }
}

/// Splits text into literals and captures. `convert` encodes or decodes a literal.
fn add_parts(
    text: &str,
    index_of: &dyn Fn(&str) -> Option<usize>,
    parts: &mut Vec<TemplatePart>,
    convert: impl Fn(&str) -> Result<Vec<u8>, RuleError>,
) -> Result<(), RuleError> {
    let mut literal = String::new();
    let mut pieces = text.split(':');
    literal.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let name_len = piece.bytes().take_while(|byte| is_in_name(*byte)).count();
        let (name, after) = piece.split_at(name_len);
        if name.is_empty() {
            literal.push(':');
        } else {
            let index = index_of(name).ok_or_else(|| {
                let name = excerpt(name);
                RuleError::UnknownName { name }
            })?;
            parts.push(TemplatePart::Literal(convert(&literal)?.into()));
            parts.push(TemplatePart::Capture(index));
            literal.clear();
        }
        literal.push_str(after);
    }
    if !literal.is_empty() {
        parts.push(TemplatePart::Literal(convert(&literal)?.into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::pattern::Pattern;
    use super::*;

    fn template(pattern: &str, target: &str) -> Result<Template, RuleError> {
        let pattern = Pattern::parse(pattern).unwrap();
        Template::parse(target, &|name| pattern.index_of(name))
    }

    /// The location and the rewritten path for a decoded request path, which must match.
    fn expand(pattern: &str, target: &str, path: &str) -> (Option<String>, Option<Vec<u8>>) {
        let pattern = Pattern::parse(pattern).unwrap();
        let template = Template::parse(target, &|name| pattern.index_of(name)).unwrap();
        let captures = pattern.captures(path.as_bytes()).unwrap();
        let mut location = b"kept ".to_vec();
        let is_written = template.write(&captures, &mut location).is_some();
        let location = String::from_utf8(location).unwrap();
        let location = location.strip_prefix("kept ").unwrap().to_owned();
        assert!(is_written || location.is_empty());
        let mut buffer = ArrayVec::from([b'x'; MAX_PATH_LEN]);
        let rewritten = template.path(&captures, &mut buffer);
        (
            is_written.then_some(location),
            rewritten.map(<[u8]>::to_vec),
        )
    }

    #[test]
    fn a_target_holds_unless_captures_make_segments_of_dots() {
        let holds = |target: &str, path: &str| {
            let pattern = Pattern::parse("/:a/:b/*").unwrap();
            let template = Template::parse(target, &|name| pattern.index_of(name)).unwrap();
            template.holds(&pattern.captures(path.as_bytes()).unwrap(), path.len())
        };
        for (target, path) in [
            ("/x/:a", "/../b/c"),
            ("/x/:a", "/./b/c"),
            ("/x/:a/y", "/../b/c"),
            ("/x/.:a", "/./b/c"),
            ("/x/:a:b", "/././c"),
            ("/x/:splat", "/a/b/.."),
            ("/x/:splat?q", "/a/b/c/.."),
            ("/x/:splat", "/a/b/c\\..\\d"),
            ("/x/:splat", "/a/b/c\0..\0d"),
            ("https://a.test/x/:splat", "/a/b/../c"),
            ("https://a.test/:splat/x", "/a/b/../c"),
        ] {
            assert!(!holds(target, path), "{target} {path:?}");
        }
        for (target, path) in [
            ("/x/:a", "/.../b/c"),
            ("/x/..:a", "/y/b/c"),
            ("/x?y=:a", "/../b/c"),
            ("/x#:a", "/../b/c"),
            ("/x/../y", "/../b/c"),
            ("https://a.test?x=:splat", "/a/b/.."),
            ("/:splat", "/a/b/.."),
            ("https://a.test/:splat", "/a/b/../c"),
        ] {
            assert!(holds(target, path), "{target} {path:?}");
        }
    }

    #[test]
    fn a_target_tells_whether_it_leads_to_the_same_path() {
        let leads_to = |(pattern, target), path: &str, or_other| {
            let pattern = Pattern::parse(pattern).unwrap();
            let template = Template::parse(target, &|name| pattern.index_of(name)).unwrap();
            let captures = pattern.captures(path.as_bytes()).unwrap();
            template.leads_to(&captures, path.as_bytes(), or_other)
        };
        for (pattern, target, path, itself, or_other) in [
            ("/a", "/a", "/a", true, true),
            ("/a", "/a?b#c", "/a", true, true),
            ("/a", "/a", "/a/", false, true),
            ("/a", "/a/", "/a", false, true),
            ("/a", "/a/", "/a/", true, true),
            ("/a", "/ab", "/a", false, false),
            ("/a", "/", "/a", false, false),
            ("/*", "/", "/", true, true),
            ("/*", "/:splat", "/a\0b/c", true, true),
            ("/*", "/:splat", "//a", false, false),
            ("/a*", "/:splat", "/aa//", false, false),
            ("/:a/:b", "/:b/:a", "/x/x", true, true),
            ("/:a/:b", "/:b/:a", "/x/y", false, false),
            ("/*", "https://a.test/:splat", "/a", false, false),
        ] {
            let rule = (pattern, target);
            assert_eq!(leads_to(rule, path, false), itself, "{target} {path}");
            assert_eq!(leads_to(rule, path, true), or_other, "{target} {path}");
        }
    }

    #[test]
    fn captures_are_inserted() {
        for (pattern, target, path, location, rewritten) in [
            ("/a", "/b", "/a", "/b", Some("/b")),
            ("/a", "/", "/a", "/", Some("/")),
            ("/a/*", "/b/:splat", "/a/c/d", "/b/c/d", Some("/b/c/d")),
            ("/a/*", "/b/:splat", "/a", "/b/", Some("/b/")),
            (
                "/:y/:m",
                "/:m-:y.html?y=:y#:m",
                "/1/2",
                "/2-1.html?y=1#2",
                Some("/2-1.html"),
            ),
            ("/:a/:ab", "/:ab:a", "/1/2", "/21", Some("/21")),
            (
                "/*",
                "https://a.test/:splat",
                "/x y",
                "https://a.test/x%20y",
                None,
            ),
            (
                "/*",
                "HTTP://a.test:8080/:splat",
                "/x",
                "HTTP://a.test:8080/x",
                None,
            ),
            (
                "/*",
                "https://[::1]:8080?q=:splat",
                "/x",
                "https://[::1]:8080?q=x",
                None,
            ),
            ("/*", "https://a.test", "/x", "https://a.test", None),
            (
                "/a",
                "/b?u=https://a.test/",
                "/a",
                "/b?u=https://a.test/",
                Some("/b"),
            ),
            ("/a", "/b:/c%3Ad", "/a", "/b:/c%3Ad", Some("/b:/c:d")),
            (
                "/a",
                "/%C3%BC\u{fc}",
                "/a",
                "/%C3%BC%C3%BC",
                Some("/\u{fc}\u{fc}"),
            ),
            (
                "/a",
                "/b c\r\n\\[|]",
                "/a",
                "/b%20c%0D%0A%5C%5B%7C%5D",
                Some("/b c\r\n\\[|]"),
            ),
            ("/a", "/b#c#d", "/a", "/b#c%23d", Some("/b")),
            (
                "/*",
                "/b/:splat",
                "/?#%&\r\n\u{fc}",
                "/b/%3F%23%25%26%0D%0A%C3%BC",
                Some("/b/?#%&\r\n\u{fc}"),
            ),
        ] {
            let expected = (Some(location.into()), rewritten.map(Into::into));
            assert_eq!(
                expand(pattern, target, path),
                expected,
                "{pattern} {target}"
            );
        }
    }

    #[test]
    fn a_location_stays_on_this_site() {
        for (pattern, target, path, location) in [
            ("/*", "/:splat", "//evil.test", "/evil.test"),
            ("/*", "/:splat", "////evil.test", "/evil.test"),
            ("/*", "/:splat", "/\\evil.test", "/%5Cevil.test"),
            ("/*", "/:splat", "/\t/evil.test", "/%09/evil.test"),
            ("/a*", "/:splat/evil.test", "/a", "/evil.test"),
            ("/a*", "/:splat:splat/evil.test", "/a/", "/evil.test"),
            (
                "/a*",
                "https://a.test/:splat",
                "/a.evil@",
                "https://a.test/.evil%40",
            ),
        ] {
            let (found, rewritten) = expand(pattern, target, path);
            assert_eq!(found.as_deref(), Some(location), "{target} {path}");
            assert!(rewritten.is_none_or(|path| !path.starts_with(b"//")));
        }
    }

    #[test]
    fn results_are_limited() {
        let path = format!("/{}", "a".repeat(MAX_PATH_LEN - 1));
        let (location, rewritten) = expand("/*", "/:splat", &path);
        assert_eq!(location.as_deref(), Some(&*path));
        assert_eq!(rewritten.as_deref(), Some(path.as_bytes()));
        assert_eq!(expand("/*", "/x:splat", &path).1, None);
        assert!(expand("/*", "/:splat:splat:splat:splat", &path).0.is_some());
        assert_eq!(
            expand("/*", "/:splat:splat:splat:splat:splat", &path).0,
            None
        );
    }

    #[test]
    fn wrong_targets_are_refused() {
        let host = |host: &str| RuleError::BadHost { host: host.into() };
        let unknown = |name: &str| RuleError::UnknownName { name: name.into() };
        let no_target = |text: &str| RuleError::NotATarget { text: text.into() };
        for (pattern, target, error) in [
            ("/a", "", no_target("")),
            ("/a", "b", no_target("b")),
            ("/a", "ftp://a.test/", no_target("ftp://a.test/")),
            ("/a", "javascript:x", no_target("javascript:x")),
            ("/:a", ":a", no_target(":a")),
            (
                "/a",
                "\u{fc}\u{fc}\u{fc}\u{fc}",
                no_target("\u{fc}\u{fc}\u{fc}\u{fc}"),
            ),
            ("/a", "//b.test", RuleError::TwoSlashes),
            ("/a", "/\\b.test", RuleError::TwoSlashes),
            ("/a", "https://", host("")),
            ("/a", "https:///b", host("")),
            ("/a", "https://u@b.test/", host("u@b.test")),
            ("/*", "https://:splat/", host(":splat")),
            ("/*", "https://b.test:splat/", host("b.test:splat")),
            ("/*", "https://b.test\\:splat", host("b.test\\:splat")),
            ("/a", "/:splat", unknown("splat")),
            ("/:a", "/:ab", unknown("ab")),
            ("/*", "/b?t=12:30", unknown("30")),
            ("/a", "/b%", RuleError::BadEncoding),
            ("/:a", "/%4:a", RuleError::BadEncoding),
            ("/:a", "https://b.test?%:a", RuleError::BadEncoding),
        ] {
            assert_eq!(template(pattern, target), Err(error), "{target}");
        }
        let len = MAX_PATH_LEN + 1;
        let long = format!("/{}", "a".repeat(len - 1));
        assert_eq!(template("/a", &long), Err(RuleError::TargetTooLong { len }));
    }

    #[test]
    fn a_template_tells_what_it_contains() {
        for (target, is_path, has_query, is_fixed) in [
            ("/b", true, false, true),
            ("/b?", true, true, true),
            ("/b#:splat", true, true, false),
            ("/b/:splat", true, false, false),
            ("https://b.test", false, false, true),
            ("https://b.test?b", false, true, true),
        ] {
            let template = template("/*", target).unwrap();
            let found = (
                template.is_path(),
                template.has_query(),
                template.is_fixed(),
            );
            assert_eq!(found, (is_path, has_query, is_fixed), "{target}");
        }
    }

    proptest! {
        /// Checks that no target and no request can inject a line or another host.
        #[test]
        fn a_location_is_always_valid(
            target in "(/|https://a\\.test/)[:/\\\\ \r\n\t%25a?#é.]{0,6}(:splat|:a|)[/\\\\a:]{0,3}",
            path in "[/\\\\ \r\n\t%a?#é.]{0,10}",
        ) {
            let pattern = Pattern::parse("/:a/*").unwrap();
            let path = format!("/x{path}");
            if let (Ok(template), Some(captures)) =
                (Template::parse(&target, &|name| pattern.index_of(name)), pattern.captures(path.as_bytes()))
            {
                let mut location = Vec::new();
                prop_assert!(template.write(&captures, &mut location).is_some());
                prop_assert!(location.iter().all(u8::is_ascii_graphic));
                prop_assert!(!location.contains(&b'\\'));
                prop_assert!(!location.starts_with(b"//"));
                let start: &[u8] = if template.is_path() { b"/" } else { b"https://a.test/" };
                prop_assert!(location.starts_with(start));
                let mut buffer = ArrayVec::new();
                if let Some(path) = template.path(&captures, &mut buffer) {
                    prop_assert!(path.starts_with(b"/") && !path.starts_with(b"//"));
                }
            }
        }

        /// Checks that a capture of unreserved characters and slashes is inserted unchanged.
        #[test]
        fn a_splat_is_inserted_unchanged(splat in "[a-zA-Z0-9._~/-]{0,20}") {
            let path = format!("/a/{splat}");
            let expected = (Some(path.clone()), Some(path.clone().into_bytes()));
            prop_assert_eq!(expand("/a/*", "/a/:splat", &path), expected);
        }

        /// Checks that no text makes the parser panic.
        #[test]
        fn no_target_causes_a_panic(target in "\\PC{0,20}|https?://\\PC{0,20}|/\\PC{0,20}") {
            let _ = template("/:a/*", &target);
        }
    }
}
