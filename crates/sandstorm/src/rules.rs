//! Rules of the site's owner: redirects, rewrites, error pages, and response fields by path.
//!
//! The rules are in the formats of Netlify and Cloudflare Pages, the files `_redirects` and
//! `_headers`. The operator can give the same rules as options, one rule in each string. A rule is
//! parsed when the site is loaded. A match of a path allocates nothing, and its time is linear in the
//! length of the request's path.
//!
//! | deliberately absent | why |
//! |---|---|
//! | rules for a domain, by country, language, role or cookie | only the path and the query decide |
//! | rewrites to another site | the server is no proxy |
//! | several placeholders within a segment, and several stars | a match needs no search |
//! | text behind the star of a redirect | the star stands for the rest of the path |
//! | placeholders in the host of a target | a client could choose where a redirect leads |

mod field_pattern;
mod hashed;
mod headers;
mod pattern;
mod query;
mod redirects;
mod template;

pub(crate) use hashed::is_hashed;
pub(crate) use headers::{
    HeaderRule, HeaderRules, MAX_HEADER_RULES, is_about_caches, is_for_errors, is_list,
    parse_headers,
};
pub(crate) use pattern::{Captures, MAX_CAPTURES, MAX_PATH_LEN, Pattern};
pub(crate) use query::{Query, QueryPattern};
pub(crate) use redirects::{Action, MAX_EXACT_RULES, MAX_PATTERN_RULES, Redirect, parse_redirects};
pub(crate) use template::Template;

use control::WrongWords;

use crate::fields::FieldError;

/// A line of a file with rules that is left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {why}")]
pub(crate) struct LineError {
    /// The number of the line. The first line has the number 1.
    pub(crate) line: usize,
    /// The column of the wrong part, in characters from 1.
    pub(crate) column: usize,
    /// The reason.
    pub(crate) why: RuleError,
}

impl LineError {
    /// Finds the places of the wrong words of a rule in this line. The rule's text has `before` bytes of the
    /// line before it.
    fn of_line(
        (line, whole): (usize, &str),
        before: usize,
        wrong: &WrongWords<RuleError>,
    ) -> Vec<Self> {
        let error = |(at, why): (usize, &RuleError)| {
            let before = whole.get(..before + at).unwrap_or_default();
            Self {
                line,
                column: before.chars().count() + 1,
                why: why.clone(),
            }
        };
        wrong.iter().map(error).collect()
    }

    /// Whether the place is in the file's text. A missing word may be at the end of its line.
    #[cfg(test)]
    fn is_in(&self, text: &str) -> bool {
        let line = lines(text).find(|(number, _)| *number == self.line);
        line.is_some_and(|(_, line)| (1..=line.chars().count() + 1).contains(&self.column))
    }
}

/// Why a rule is refused. The message completes a sentence that begins with the place of the rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The path of a rule does not begin with a slash.
    #[error("{text:?} is no path; begin it with a slash")]
    NotAPath {
        /// The start of the text.
        text: String,
    },
    /// The path of a rule begins with a host.
    #[error("{text:?} names a host, and rules for a domain are not supported; write only the path")]
    Domain {
        /// The start of the text.
        text: String,
    },
    /// The path of a rule is longer than 2,048 bytes.
    #[error(
        "the path has {len} bytes, more than {MAX_PATH_LEN}; shorten it, or end it with a star"
    )]
    PathTooLong {
        /// The length of the path, in bytes.
        len: usize,
    },
    /// The path of a rule contains white space or a control character.
    #[error("the path has white space or a control character; write a space as %20")]
    BadByte,
    /// The path of a rule contains a query or a fragment.
    #[error("the path has a query or a fragment, which no rule can match; write only the path")]
    Query,
    /// A percent sign is not followed by two hexadecimal digits.
    #[error("a percent sign is not followed by two hexadecimal digits; write the sign as %25")]
    BadEncoding,
    /// The path of a rule contains an encoded slash, which no served path contains.
    #[error(
        "the path has an encoded slash, which no file has; write a slash, or a star or a placeholder in \
         place of the name"
    )]
    EncodedSlash,
    /// A star stands before the end of the path.
    #[error("a star stands before the end of the path; write it only at the end, or as %2A")]
    StarInside,
    /// The path of a rule for fields has several stars.
    #[error("the path has several stars; write only one, and the others as %2A")]
    SeveralStars,
    /// A placeholder stands behind the star.
    #[error("{segment:?} stands behind the star; write no placeholder there, or a colon as %3A")]
    PlaceholderBehindStar {
        /// The segment.
        segment: String,
    },
    /// A segment begins with a colon and is no placeholder.
    #[error(
        "{segment:?} is no placeholder; write only letters, digits and underscores after the \
         colon, and an extension behind them, or write the colon as %3A"
    )]
    BadPlaceholder {
        /// The segment.
        segment: String,
    },
    /// The path has more than 8 placeholders.
    #[error("the path has more than {MAX_CAPTURES} placeholders; replace the last ones by a star")]
    TooManyPlaceholders,
    /// Two placeholders have the same name.
    #[error("the path has two placeholders :{name}; rename one of them")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// A redirect has no target.
    #[error("the target is missing; write the path, white space, and the target")]
    NoTarget,
    /// The target is neither a path nor a URL for HTTP.
    #[error("the target {text:?} is neither a path nor a URL; begin it with a slash or https://")]
    NotATarget {
        /// The start of the text.
        text: String,
    },
    /// The target begins with two slashes, or with a slash and a backslash.
    #[error("the target begins with two slashes; begin it with one, or with https:// for a host")]
    TwoSlashes,
    /// The target is too long.
    #[error("the target has {len} bytes, more than {MAX_PATH_LEN}; shorten it")]
    TargetTooLong {
        /// The length of the target, in bytes.
        len: usize,
    },
    /// The host of the target is invalid, or contains a user or a placeholder.
    #[error("the target has the host {host:?}; write one without user and placeholders")]
    BadHost {
        /// The host.
        host: String,
    },
    /// The target contains a name that the path does not contain.
    #[error(
        "the target has :{name}, but the path has not; add it there, or write the colon as %3A"
    )]
    UnknownName {
        /// The name.
        name: String,
    },
    /// The status is not one that a rule can have.
    #[error(
        "{status:?} is no status of a rule; write 301, 302, 303, 307 or 308 for a redirect, 200 \
         for a rewrite, or 403, 404 or 410"
    )]
    BadStatus {
        /// The text in the place of the status.
        status: String,
    },
    /// A rule with this status has a URL as its target.
    #[error("a rule with {status} needs a path as its target, because the server is no proxy")]
    Proxy {
        /// The status of the rule.
        status: u16,
    },
    /// A parameter of a rule's query is wrong, or occurs twice.
    #[error("{word:?} is no parameter of a query; write each as in id=:id or id=5, once")]
    QueryParameter {
        /// The word.
        word: String,
    },
    /// A rule with query parameters is no redirect.
    #[error("a rule with query parameters can only redirect; give it 301, 302, 303, 307 or 308")]
    NoRedirect,
    /// The rule depends on something other than the path.
    #[error("rules with conditions such as {word:?} are not supported; leave it out")]
    Condition {
        /// The word.
        word: String,
    },
    /// Text follows the status.
    #[error("{word:?} follows the status; leave it out, or begin a comment with #")]
    ExtraWord {
        /// The word.
        word: String,
    },
    /// The target of a redirect matches the same rule again.
    #[error("the target leads to the same rule again, without end; write another target")]
    Endless,
    /// There are more than 10,000 rules for single paths.
    #[error(
        "there are more than {MAX_EXACT_RULES} redirects; join some by a placeholder or a star"
    )]
    TooManyExact,
    /// There are more than 1,000 rules with a placeholder or a star.
    #[error(
        "there are more than {MAX_PATTERN_RULES} redirects with a placeholder or a star; join some"
    )]
    TooManyPatterns,
    /// An indented line has no path above it.
    #[error("the field belongs to no path; write a path above it, without indentation")]
    NoPath,
    /// A line with a field is not indented.
    #[error("the line is no path, and fields are indented; begin it with a space or a slash")]
    NotIndented,
    /// A line is neither a field nor the removal of a field.
    #[error("{text:?} is no field; write a name, a colon and a value, or ! and a name")]
    NotAField {
        /// The start of the text.
        text: String,
    },
    /// A path has no fields.
    #[error("the path has no fields; write them below it, indented")]
    NoFields,
    /// The responses of files have this field themselves.
    #[error("the responses of files have their own {name}; leave it out")]
    OfFiles {
        /// The name.
        name: String,
    },
    /// The value of a field contains a placeholder of the path.
    #[error(
        "the value has :{placeholder}, and placeholders in values are not supported; write the value itself"
    )]
    PlaceholderInValue {
        /// The name of the placeholder.
        placeholder: String,
    },
    /// The field is a password that clients would have to give.
    #[error("passwords are not supported, so these files are for everybody; move them elsewhere")]
    Password,
    /// The field is refused.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// There are more than 1,000 rules for fields.
    #[error("there are more than {MAX_HEADER_RULES} paths with fields; join some by a star")]
    TooManyHeaderRules,
}

/// Maximum length of a text in a message, in characters.
const EXCERPT_LEN: usize = 64;

/// Returns the beginning of a text for a message. Lines of a file can be long.
fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_LEN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns each line of a file with its number. The mark that some editors write at the start of a
/// file is no part of the first line.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
}

/// Cuts off a comment. A comment begins with `#` at the start of the line or after white space.
fn without_comment(line: &str) -> &str {
    let bytes = line.as_bytes();
    let begins = |at: &usize| *at == 0 || bytes[at - 1].is_ascii_whitespace();
    let at = memchr::memchr_iter(b'#', bytes).find(begins);
    &line[..at.unwrap_or(line.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_begins_after_white_space() {
        for (line, rest) in [
            ("# all", ""),
            ("/a /b # rest", "/a /b "),
            ("/a /b#c", "/a /b#c"),
            ("/a /b#c\t#d", "/a /b#c\t"),
            ("\u{e4}#", "\u{e4}#"),
            ("", ""),
        ] {
            assert_eq!(without_comment(line), rest);
        }
    }

    #[test]
    fn a_message_contains_only_the_beginning_of_a_long_text() {
        let text = "\u{e4}".repeat(EXCERPT_LEN + 1);
        let error = Pattern::parse(&text).unwrap_err();
        let message = LineError {
            line: 12,
            column: 3,
            why: error,
        }
        .to_string();
        assert!(message.starts_with("12:3: \"\u{e4}\u{e4}"));
        assert!(message.ends_with("\u{e4}...\" is no path; begin it with a slash"));
        assert_eq!(excerpt(&text[2..]), text[2..]);
    }
}
