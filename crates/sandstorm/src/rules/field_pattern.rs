//! The path of a rule for fields, in which text may follow the star.

use super::pattern::{Pattern, check, decode_segment};
use super::{RuleError, excerpt};

/// The paths that a rule for fields is about: a [`Pattern`] whose star may have text behind it.
///
/// So `/*.html` matches `/a.html` and `/b/c.html`, and `/blog/*/feed` matches `/blog/a/b/feed`. A slash
/// at the end of this text is insignificant, unless the text is only a slash: `/docs/*/` matches the
/// paths of folders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldPattern {
    /// The pattern, up to its star.
    start: Pattern,
    /// The decoded text behind the star.
    end: Box<[u8]>,
}

impl FieldPattern {
    /// Parses the path of a rule, which has at most one star.
    pub(crate) fn parse(text: &str) -> Result<Self, RuleError> {
        check(text)?;
        let star = text.find('*').unwrap_or(text.len());
        let (start, end) = text.split_at((star + 1).min(text.len()));
        if end.contains('*') {
            return Err(RuleError::SeveralStars);
        }
        Ok(Self {
            start: Pattern::parse(start)?,
            end: decode_end(end)?.into(),
        })
    }

    /// Returns true if a decoded path matches.
    ///
    /// The time is linear in the length of the path. Nothing is searched: the path must end with the text
    /// behind the star.
    pub(crate) fn matches(&self, path: &[u8]) -> bool {
        let Some(captures) = self.start.captures(path) else {
            return false;
        };
        if self.end.is_empty() {
            return true;
        }
        let of_star = captures.get(self.start.captures_len() - 1);
        let without_slash = of_star.strip_suffix(b"/").unwrap_or(of_star);
        of_star.ends_with(&self.end) || without_slash.ends_with(&self.end)
    }

    /// The decoded path if the pattern has neither placeholders nor a star.
    pub(crate) fn exact(&self) -> Option<&[u8]> {
        self.start.exact()
    }

    /// Returns true if the pattern is `/*`, which matches all paths.
    pub(crate) fn is_everything(&self) -> bool {
        self.end.is_empty() && self.start.is_everything()
    }

    /// Returns the name of a placeholder of this pattern that stands in a text, behind a colon.
    pub(crate) fn placeholder_in<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.start.placeholder_in(text)
    }
}

/// Decodes the text behind a star, without the slash at its end.
fn decode_end(text: &str) -> Result<Vec<u8>, RuleError> {
    let mut end = Vec::new();
    for (index, segment) in text.split('/').enumerate() {
        if index > 0 {
            end.push(b'/');
            if segment.starts_with(':') {
                let segment = excerpt(segment);
                return Err(RuleError::PlaceholderBehindStar { segment });
            }
        }
        decode_segment(segment, &mut end)?;
    }
    if end.len() > 1 && end.ends_with(b"/") {
        end.pop();
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rules::MAX_PATH_LEN;

    fn matches(pattern: &str, path: &str) -> bool {
        FieldPattern::parse(pattern)
            .unwrap()
            .matches(path.as_bytes())
    }

    #[test]
    fn text_may_follow_a_star() {
        for (pattern, yes, no) in [
            (
                "/*.html",
                &[
                    "/a.html",
                    "/b/c.html",
                    "/.html",
                    "/a.html/",
                    "/b//.html.html",
                ][..],
                &["/a.htm", "/a.html.gz", "/ahtml", "/a.HTML", "/", "html", ""][..],
            ),
            (
                "/assets/*.js",
                &["/assets/a.js", "/assets/b/c.js", "/assets/.js"],
                &["/assets", "/a.js", "/other/assets/a.js", "/assets/a.jsx"],
            ),
            (
                "/assets/app-*.js",
                &["/assets/app-.js", "/assets/app-1.js"],
                &["/assets/app.js", "/assets/app-1.css"],
            ),
            (
                "/blog/*/feed",
                &[
                    "/blog/a/feed",
                    "/blog/a/b/feed",
                    "/blog/a/feed/",
                    "/blog//feed",
                ],
                &[
                    "/blog/feed",
                    "/blog/a/feeds",
                    "/blog/a/feed//",
                    "/blogs/a/feed",
                ],
            ),
            ("/a/*/b/", &["/a/x/b", "/a/x/b/"], &["/a/b/"]),
            (
                "/docs/*/",
                &["/docs/a/", "/docs/a/b/"],
                &["/docs/", "/docs/a"],
            ),
            ("/:lang/*.css", &["/de/a.css", "/de/b/c.css"], &["/a.css"]),
            ("/:a.css", &["/a.css", "/b.css/"], &["/a/b.css", "/.css"]),
            ("/*%2A%20", &["/a* "], &["/a*", "/a "]),
            ("/*a/", &["/a", "/a/", "/b/ca"], &["/a/b"]),
            ("/*a:b/c:d", &["/xa:b/c:d"], &["/xa:b/c"]),
            ("/*", &["/", "/a"], &[""]),
            ("/news/*", &["/news", "/news/a"], &["/newsletter"]),
            ("/a/", &["/a", "/a/"], &["/a/b"]),
        ] {
            for path in yes {
                assert!(matches(pattern, path), "{pattern} {path}");
            }
            for path in no {
                assert!(!matches(pattern, path), "{pattern} {path}");
            }
        }
    }

    #[test]
    fn only_one_star_is_for_everything() {
        for (pattern, is_everything) in [("/*", true), ("/*/", false), ("/*.css", false)] {
            let pattern = FieldPattern::parse(pattern).unwrap();
            assert_eq!(pattern.is_everything(), is_everything);
            assert_eq!(pattern.exact(), None);
        }
    }

    #[test]
    fn wrong_paths_are_refused() {
        let behind = |segment: &str| RuleError::PlaceholderBehindStar {
            segment: segment.into(),
        };
        let bad = |segment: &str| RuleError::BadPlaceholder {
            segment: segment.into(),
        };
        let len = MAX_PATH_LEN + 1;
        let long = format!("/*{}", "a".repeat(MAX_PATH_LEN - 1));
        for (pattern, error) in [
            (
                "*.html",
                RuleError::NotAPath {
                    text: "*.html".into(),
                },
            ),
            ("/a**", RuleError::SeveralStars),
            ("/*/*.html", RuleError::SeveralStars),
            ("/*/:name", behind(":name")),
            ("/*.a/:b.c/d", behind(":b.c")),
            ("/:a*.html", bad(":a")),
            ("/:a-b.html", bad(":a-b.html")),
            ("/*%2Fa", RuleError::EncodedSlash),
            ("/*%0da", RuleError::BadByte),
            ("/*%a", RuleError::BadEncoding),
            ("/*.html?a", RuleError::Query),
            (&long, RuleError::PathTooLong { len }),
        ] {
            assert_eq!(FieldPattern::parse(pattern), Err(error), "{pattern}");
        }
    }

    proptest! {
        /// Checks that no text causes a panic, and that a search at each length of the star finds the same
        /// matches.
        #[test]
        fn a_star_matches_as_a_search_does(
            start in "/(a[a/]{0,2})?",
            end in "[a./]{0,3}[a.]",
            path in "/[a./]{0,9}",
            other in "/?[/:*%a2. -é]{0,24}",
        ) {
            let is_match = |path: &str| {
                (0..=path.len()).any(|len| path[..len] == start && path[len..].ends_with(&end))
            };
            let expected = is_match(&path) || path.strip_suffix('/').is_some_and(is_match);
            prop_assert_eq!(matches(&format!("{start}*{end}"), &path), expected);
            if let Ok(pattern) = FieldPattern::parse(&other) {
                pattern.matches(path.as_bytes());
                pattern.matches(other.as_bytes());
            }
        }
    }
}
