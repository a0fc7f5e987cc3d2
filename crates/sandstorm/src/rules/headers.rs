//! Rules for response fields: the format of `_headers`.

use std::str::FromStr;

use arrayvec::ArrayVec;
use control::WrongWords;

use super::field_pattern::FieldPattern;
use super::{LineError, RuleError, excerpt, lines, without_comment};
use crate::fields::{FieldError, Fields, MAX_FIELDS_LEN};

/// Maximum number of rules in a file. Each file of the site is compared with all of them when the
/// site is loaded.
pub(crate) const MAX_HEADER_RULES: usize = 1_000;

/// Fields that a file's response has itself, with values that no rule knows.
const OF_FILES: [&str; 7] = [
    "accept-ranges",
    "age",
    "allow",
    "content-range",
    "etag",
    "last-modified",
    "location",
];

/// Fields about the content of a file. The server's own pages have other content.
const OF_CONTENT: [&str; 3] = ["content-encoding", "content-language", "content-type"];

/// Fields whose value is a list of independent values. Without `Vary: Origin`, a cache would give one
/// site what is for another (RFC 9110, section 12.5.5).
const LISTS: [&str; 3] = ["link", "server-timing", "vary"];

/// Maximum number of rules about its path that give fields to one error.
const MAX_OF_ERROR: usize = 64;

/// Returns true if a field says how long caches may keep a file, such as `CDN-Cache-Control` (RFC 9213).
/// An error is not to be kept as long.
pub(crate) fn is_about_caches(name: &str) -> bool {
    const CONTROL: &str = "cache-control";
    let end = name.len().checked_sub(CONTROL.len());
    let is_control = end
        .and_then(|at| name.get(at..))
        .is_some_and(|end| end.eq_ignore_ascii_case(CONTROL));
    is_control || is_among(name, &["expires", "surrogate-control"])
}

/// Returns true if errors may have a field with this name from a rule about files.
pub(crate) fn is_for_errors(name: &str) -> bool {
    !is_about_caches(name) && !is_among(name, &OF_CONTENT)
}

/// Returns true if each rule adds its own values to a field with this name, as lines of their own (RFC
/// 9110, section 5.3).
pub(crate) fn is_list(name: &str) -> bool {
    is_among(name, &LISTS)
}

/// The fields for the paths that a pattern matches.
///
/// A rule as an option is parsed from `PATTERN NAME: VALUE`, or from `PATTERN ! NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderRule {
    pattern: FieldPattern,
    /// The names of fields to remove that earlier rules set, or that all responses have.
    removed: Vec<Box<str>>,
    /// Each field replaces the fields of the same name from earlier rules, unless it is a
    /// [list](is_list()).
    fields: Fields,
}

impl HeaderRule {
    fn new(pattern: FieldPattern) -> Self {
        Self {
            pattern,
            removed: Vec::new(),
            fields: Fields::new(),
        }
    }

    /// Returns true if the rule changes nothing.
    fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.fields.is_empty()
    }

    /// Adds a field, `NAME: VALUE`, or the removal of a field, `! NAME`. It is a part of `whole`. If a word
    /// is wrong, only the reason is added.
    fn add(&mut self, whole: &str, text: &str, wrong: &mut WrongWords<RuleError>) {
        if let Some(name) = text.strip_prefix('!') {
            let name = name.trim_ascii();
            // A name that no rule can set cannot be removed either.
            let checked = check_name(name).and_then(|()| Ok(Fields::new().add(name, "")?));
            if wrong.take(whole, name, checked).is_some() {
                self.removed.push(name.into());
            }
            return;
        }
        let Some((name, value)) = text.split_once(':') else {
            let why = RuleError::NotAField {
                text: excerpt(text),
            };
            return wrong.add(whole, text, why);
        };
        let (name, value) = (name.trim_ascii(), value.trim_ascii());
        wrong.take(whole, name, check_name(name));
        // Other hosts insert what the path has there.
        if let Some(placeholder) = self.pattern.placeholder_in(value) {
            let placeholder = excerpt(placeholder);
            wrong.add(whole, value, RuleError::PlaceholderInValue { placeholder });
        }
        let mut left_out = Fields::new();
        let fields = if wrong.is_empty() {
            &mut self.fields
        } else {
            &mut left_out
        };
        if let Err(why) = fields.add(name, value) {
            let is_of_value = matches!(
                why,
                FieldError::BadValue { .. } | FieldError::TooLong { .. }
            );
            let word = if is_of_value { value } else { name };
            wrong.add(whole, word, why.into());
        }
    }

    /// Returns true if the rule is about one of these decoded paths.
    fn matches_any(&self, paths: &[&[u8]]) -> bool {
        paths.iter().any(|path| self.pattern.matches(path))
    }

    /// What the rule says about errors.
    fn for_errors(&self) -> Self {
        let removed = self.removed.iter().filter(|name| is_for_errors(name));
        let fields = self.fields.iter().filter(|(name, _)| is_for_errors(name));
        Self {
            pattern: self.pattern.clone(),
            removed: removed.cloned().collect(),
            fields: Fields::of_lines(fields.map(|(_, line)| line).collect()),
        }
    }

    /// Returns true if the rule removes earlier fields of this name.
    fn removes(&self, name: &str) -> bool {
        is_among(name, &self.removed)
    }

    /// Returns true if the rule removes or replaces the `line` of an earlier field of this name. A list has
    /// the same line only once.
    fn hides(&self, name: &str, line: &str) -> bool {
        let is_again = |(_, own): (&str, &str)| own == line;
        let is_replaced = if is_list(name) {
            self.fields.iter().any(is_again)
        } else {
            self.fields.has(name)
        };
        is_replaced || self.removes(name)
    }
}

impl FromStr for HeaderRule {
    type Err = WrongWords<RuleError>;

    /// Parses a rule with one field.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut wrong = WrongWords::default();
        let words = text.trim_ascii();
        let end = words.find(|c: char| c.is_ascii_whitespace());
        let (pattern, field) = words.split_at(end.unwrap_or(words.len()));
        let found = wrong.take(text, pattern, FieldPattern::parse(pattern));
        // The field behind a wrong path is checked as if it were for the first page.
        let found = found.or_else(|| FieldPattern::parse("/").ok());
        let rule = found.map(|pattern| {
            let mut rule = Self::new(pattern);
            rule.add(text, field.trim_ascii(), &mut wrong);
            rule
        });
        wrong.finish(rule)
    }
}

fn check_name(name: &str) -> Result<(), RuleError> {
    if is_among(name, &OF_FILES) {
        let name = name.into();
        return Err(RuleError::OfFiles { name });
    }
    // Some hosts ask for this password. As a field, all clients would get it.
    if name.eq_ignore_ascii_case("basic-auth") {
        return Err(RuleError::Password);
    }
    Ok(())
}

fn is_among(name: &str, names: &[impl AsRef<str>]) -> bool {
    let is_same = |other: &str| other.eq_ignore_ascii_case(name);
    names.iter().any(|other| is_same(other.as_ref()))
}

/// Rules for response fields, in the order in which they apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeaderRules(Vec<HeaderRule>);

impl FromIterator<HeaderRule> for HeaderRules {
    fn from_iter<T: IntoIterator<Item = HeaderRule>>(rules: T) -> Self {
        Self(rules.into_iter().collect())
    }
}

impl HeaderRules {
    /// Adds a rule, which applies after the others.
    pub(crate) fn push(&mut self, rule: HeaderRule) {
        self.0.push(rule);
    }

    /// Adds the rules of `later`, which apply after these.
    pub(crate) fn extend(&mut self, later: &Self) {
        self.0.extend_from_slice(&later.0);
    }

    /// The fields for a file that the decoded `paths` lead to.
    ///
    /// All rules apply that match one of the paths, in order. A field replaces all fields of the same name
    /// from earlier rules, unless it is a [list](is_list()). The lines together have at most
    /// [`MAX_FIELDS_LEN`] bytes: a field that does not fit behind the earlier ones is left out.
    pub(crate) fn fields_for(&self, paths: &[&[u8]]) -> Fields {
        let rules = self.0.iter().filter(|rule| rule.matches_any(paths));
        merge(rules, &|_| true)
    }

    /// The `common` fields of all responses that a file keeps to which the decoded `paths` lead.
    pub(crate) fn common_for(&self, common: &Fields, paths: &[&[u8]]) -> Fields {
        without_removed(common, &|rule| rule.matches_any(paths), &self.0)
    }

    /// The `common` fields of all responses that those without a file keep.
    pub(crate) fn common_for_everything(&self, common: &Fields) -> Fields {
        without_removed(common, &|rule| rule.pattern.is_everything(), &self.0)
    }

    /// The fields about caches in rules whose path is one of these, and no pattern.
    pub(crate) fn caching_of(&self, paths: &[&[u8]]) -> Fields {
        let is_exact = |rule: &&HeaderRule| {
            let exact = rule.pattern.exact();
            exact.is_some_and(|path| paths.contains(&path))
        };
        merge(self.0.iter().filter(is_exact), &is_about_caches)
    }

    /// The fields for responses without a file, such as the server's own error pages.
    ///
    /// Only the rules for `/*` apply, without the fields about the content of a file. The same
    /// bound holds as for [`fields_for`](Self::fields_for).
    pub(crate) fn for_everything(&self) -> Fields {
        let rules = self.0.iter().filter(|rule| rule.pattern.is_everything());
        merge(rules, &is_for_errors)
    }

    /// What the rules say about errors, without the fields about the content of a file. Nothing, if that is
    /// the same for all paths.
    pub(crate) fn for_errors(&self) -> Self {
        let rules = self.0.iter().map(HeaderRule::for_errors);
        let rules: Vec<_> = rules.filter(|rule| !rule.is_empty()).collect();
        let is_about_path = |rule: &HeaderRule| !rule.pattern.is_everything();
        if rules.iter().any(is_about_path) {
            Self(rules)
        } else {
            Self::default()
        }
    }

    /// Returns true if a rule about all paths sets a field with this name. A [list](is_list()) must have
    /// this line.
    pub(crate) fn set_everywhere(&self, name: &str, line: &[u8]) -> bool {
        let mut rules = self.0.iter().filter(|rule| rule.pattern.is_everything());
        rules.any(|rule| {
            let mut fields = rule.fields.iter();
            fields.any(|(other, own)| {
                other.eq_ignore_ascii_case(name) && (!is_list(name) || own.as_bytes() == line)
            })
        })
    }

    /// Returns true if there are no rules.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first 64 rules that match a decoded path.
    pub(crate) fn matching(&self, path: &[u8]) -> MatchingRules<'_> {
        let matches = |rule: &&HeaderRule| rule.pattern.matches(path);
        MatchingRules(self.0.iter().filter(matches).take(MAX_OF_ERROR).collect())
    }
}

/// The rules that match a path, in the order in which they apply.
#[derive(Debug)]
pub(crate) struct MatchingRules<'r>(ArrayVec<&'r HeaderRule, MAX_OF_ERROR>);

impl MatchingRules<'_> {
    /// The lines of the fields. Together they have at most [`MAX_FIELDS_LEN`] bytes.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        let lines = self.0.iter().enumerate().flat_map(|(index, rule)| {
            let later = &self.0[index + 1..];
            let is_last = |name, line| !later.iter().any(|rule| rule.hides(name, line));
            let fields = rule.fields.iter();
            fields.filter(move |(name, line)| is_last(name, line))
        });
        let mut len = 0;
        let fits = move |line: &&str| {
            let has_room = len + line.len() <= MAX_FIELDS_LEN;
            len += if has_room { line.len() } else { 0 };
            has_room
        };
        lines.map(|(_, line)| line).filter(fits)
    }

    /// Returns true if the rules replace or remove a field with this name.
    pub(crate) fn replaces(&self, name: &str) -> bool {
        let replaces = |rule: &HeaderRule| !is_list(name) && rule.fields.has(name);
        self.0
            .iter()
            .any(|rule| rule.removes(name) || replaces(rule))
    }
}

/// Returns the `common` fields that none of the rules removes for which `holds` is true.
fn without_removed(
    common: &Fields,
    holds: &dyn Fn(&HeaderRule) -> bool,
    rules: &[HeaderRule],
) -> Fields {
    let removes_common = |rule: &&HeaderRule| rule.removed.iter().any(|name| common.has(name));
    let rules = rules.iter().filter(removes_common);
    let rules: Vec<_> = rules.filter(|rule| holds(rule)).collect();
    let is_kept = |name: &str| !rules.iter().any(|rule| rule.removes(name));
    let kept = common.iter().filter(|(name, _)| is_kept(name));
    Fields::of_lines(kept.map(|(_, line)| line).collect())
}

/// Applies rules in order, with the fields whose name `is_kept`.
fn merge<'r>(
    rules: impl Iterator<Item = &'r HeaderRule>,
    is_kept: &dyn Fn(&str) -> bool,
) -> Fields {
    let mut fields = Fields::new();
    for rule in rules {
        let mut merged = String::new();
        let kept = fields.iter().filter(|(name, line)| !rule.hides(name, line));
        let added = rule.fields.iter();
        for (_, line) in kept.chain(added.filter(|(name, _)| is_kept(name))) {
            if merged.len() + line.len() <= MAX_FIELDS_LEN {
                merged.push_str(line);
            }
        }
        fields = Fields::of_lines(merged);
    }
    fields
}

/// Parses the text of `_headers`: lines with a path, each followed by indented lines with fields. A
/// wrong line is left out, and so are the fields below a wrong path.
pub(crate) fn parse_headers(text: &str) -> (Vec<HeaderRule>, Vec<LineError>) {
    let mut reader = Reader::default();
    for (line, whole) in lines(text) {
        let is_indented = whole.starts_with([' ', '\t']);
        let text = whole.trim_ascii();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let mut wrong = WrongWords::default();
        if is_indented {
            reader.field(whole, text, &mut wrong);
        } else if let Err(why) = reader.path(line, text) {
            wrong.add(whole, text, why);
        }
        let errors = LineError::of_line((line, whole), 0, &wrong);
        reader.errors.extend(errors);
    }
    reader.finish_rule();
    (reader.rules, reader.errors)
}

/// The state while `_headers` is parsed.
#[derive(Default)]
struct Reader {
    rules: Vec<HeaderRule>,
    errors: Vec<LineError>,
    block: Block,
}

/// The block that a line with a field belongs to.
#[derive(Default)]
enum Block {
    /// No path has occurred yet.
    #[default]
    None,
    /// The path is wrong.
    Skipped,
    Rule {
        /// The line of the path.
        line: usize,
        rule: HeaderRule,
        /// Set if the path is followed by a line, even by a wrong one.
        has_lines: bool,
    },
}

impl Reader {
    /// Takes an indented line. `text` is the line without the space around it.
    fn field(&mut self, line: &str, text: &str, wrong: &mut WrongWords<RuleError>) {
        match &mut self.block {
            Block::None => wrong.add(line, text, RuleError::NoPath),
            Block::Skipped => {}
            Block::Rule {
                rule, has_lines, ..
            } => {
                *has_lines = true;
                rule.add(line, text, wrong);
            }
        }
    }

    /// Takes a line that is not indented.
    fn path(&mut self, line: usize, text: &str) -> Result<(), RuleError> {
        let text = without_comment(text).trim_ascii();
        // The lines below a field that lacks its indentation still belong to the path above it.
        let is_url = text.contains("://");
        if !text.starts_with('/') && !is_url && text.contains([':', '!']) {
            return Err(RuleError::NotIndented);
        }
        self.finish_rule();
        self.block = Block::Skipped;
        let pattern = FieldPattern::parse(text)?;
        if self.rules.len() == MAX_HEADER_RULES {
            return Err(RuleError::TooManyHeaderRules);
        }
        self.block = Block::Rule {
            line,
            rule: HeaderRule::new(pattern),
            has_lines: false,
        };
        Ok(())
    }

    /// Adds the current rule to the finished ones.
    fn finish_rule(&mut self) {
        if let Block::Rule {
            line,
            rule,
            has_lines,
        } = std::mem::take(&mut self.block)
        {
            if !has_lines {
                // A path is not indented.
                let (column, why) = (1, RuleError::NoFields);
                self.errors.push(LineError { line, column, why });
            } else if !rule.is_empty() {
                self.rules.push(rule);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The rules of a text without wrong lines.
    fn rules(text: &str) -> HeaderRules {
        let (rules, errors) = parse_headers(text);
        assert_eq!(errors, []);
        rules.into_iter().collect()
    }

    const TEXT: &str = "\
# fields of all files
/*
  X-Frame-Options: DENY
  Cache-Control: no-cache
  Content-Type: text/plain

/assets/*  # hashed
\tcache-control:max-age=31536000, immutable # kept
  Link: </a.css>; rel=preload
  Link: </b.css>; rel=preload
  ! X-Frame-Options

/assets/:name
  cache-control: no-store
";

    #[test]
    fn a_placeholder_of_the_path_in_a_value_is_refused() {
        for (pattern, value, placeholder) in [
            ("/a/:name", "</b/:name>", "name"),
            ("/a/*", "https://b.test/:splat", "splat"),
            ("/:a/:b", "x: :b", "b"),
        ] {
            let rule = format!("{pattern} Link: {value}").parse::<HeaderRule>();
            let placeholder = placeholder.to_owned();
            let wrong = rule.unwrap_err();
            let why = RuleError::PlaceholderInValue { placeholder };
            let at = pattern.len() + " Link: ".len();
            assert_eq!(wrong.iter().collect::<Vec<_>>(), [(at, &why)]);
        }
        for rule in [
            "/a/:name Link: https://b.test:8080/:names",
            "/a Link: </:name>",
            "/* Link: https://b.test/: :",
        ] {
            assert!(rule.parse::<HeaderRule>().is_ok(), "{rule}");
        }
    }

    #[test]
    fn later_rules_replace_the_fields_of_earlier_ones() {
        let rules = rules(TEXT);
        for (path, lines) in [
            (
                "/",
                "X-Frame-Options: DENY\r\nCache-Control: no-cache\r\nContent-Type: text/plain\r\n",
            ),
            (
                "/assets/a/b",
                "Content-Type: text/plain\r\n\
                 cache-control: max-age=31536000, immutable # kept\r\n\
                 Link: </a.css>; rel=preload\r\nLink: </b.css>; rel=preload\r\n",
            ),
            (
                "/assets/a",
                "Content-Type: text/plain\r\n\
                 Link: </a.css>; rel=preload\r\nLink: </b.css>; rel=preload\r\n\
                 cache-control: no-store\r\n",
            ),
        ] {
            assert_eq!(
                rules.fields_for(&[path.as_bytes()]).lines(),
                lines,
                "{path}"
            );
        }
        assert_eq!(rules.for_everything().lines(), "X-Frame-Options: DENY\r\n");
        assert!(HeaderRules::default().fields_for(&[b"/"]).is_empty());
    }

    #[test]
    fn a_rule_with_a_star_before_an_extension_narrows_a_wider_one() {
        let text = "/*\n Cache-Control: max-age=31536000\n/*.html\n Cache-Control: no-cache\n";
        let rules = rules(text);
        for (paths, value) in [
            (["/a/b.html", "/a/b"], "no-cache"),
            (["/index.html", "/"], "no-cache"),
            (["/a.css", "/a.css"], "max-age=31536000"),
        ] {
            let lines = format!("Cache-Control: {value}\r\n");
            assert_eq!(rules.fields_for(&paths.map(str::as_bytes)).lines(), lines);
        }
        assert!(rules.for_errors().is_empty());
    }

    #[test]
    fn a_rule_removes_only_fields_of_earlier_rules_and_of_all_responses() {
        let rules = rules("/*\n A: 1\n B: 1\n/x\n A: 2\n ! A\n ! b\n ! C\n/*\n ! E\n");
        assert_eq!(rules.fields_for(&[b"/x"]).lines(), "A: 2\r\n");
        assert_eq!(rules.fields_for(&[b"/y"]).lines(), "A: 1\r\nB: 1\r\n");
        let common = Fields::of_all([("c", "3"), ("D", "3"), ("E", "3")]).unwrap();
        let common_for = |path| rules.common_for(&common, &[b"/z", path]);
        assert_eq!(common_for(b"/x").lines(), "D: 3\r\n");
        assert_eq!(common_for(b"/y").lines(), "c: 3\r\nD: 3\r\n");
        let everywhere = rules.common_for_everything(&common);
        assert_eq!(everywhere.lines(), "c: 3\r\nD: 3\r\n");
        assert!(rules.matching(b"/x").replaces("C"));
        assert!(!rules.matching(b"/y").replaces("C"));
    }

    #[test]
    fn rules_add_to_lists() {
        let text = "/*\n Vary: Origin\n Server-Timing: a\n Link: </a>\n/x/*\n vary: Accept\n Link: </b>\n\
                    /x/y/*\n Vary: Origin\n ! link\n Link: </c>\n Cache-Control: no-cache\n";
        let rules = rules(text);
        for (path, lines) in [
            ("/", "Vary: Origin\r\nServer-Timing: a\r\nLink: </a>\r\n"),
            (
                "/x",
                "Vary: Origin\r\nServer-Timing: a\r\nLink: </a>\r\nvary: Accept\r\nLink: </b>\r\n",
            ),
            (
                "/x/y",
                "Server-Timing: a\r\nvary: Accept\r\nVary: Origin\r\nLink: </c>\r\n\
                 Cache-Control: no-cache\r\n",
            ),
        ] {
            let path = path.as_bytes();
            assert_eq!(rules.fields_for(&[path]).lines(), lines);
            let of_error: String = rules.matching(path).lines().collect();
            assert_eq!(of_error, lines);
        }
        assert!(!rules.matching(b"/x").replaces("Link"));
        assert!(rules.matching(b"/x/y").replaces("Link"));
    }

    #[test]
    fn wrong_lines_are_left_out() {
        let text = "\u{feff} A: early\n/a\nB: bare\n C: 1\n D\n ETag: x\n Date: x\n E: \x01\n! C\n\
                    /none\nhttps://a.test/*\n F: 1\n/a b\n G: 1\n/b\n ! age\n ! \n/c\n";
        let (rules, errors) = parse_headers(text);
        assert_eq!(rules, ["/a C: 1".parse().unwrap()]);
        let name = |name: &str| name.to_owned();
        let expected = [
            (1, 2, RuleError::NoPath),
            (3, 1, RuleError::NotIndented),
            (5, 2, RuleError::NotAField { text: name("D") }),
            (6, 2, RuleError::OfFiles { name: name("ETag") }),
            (7, 2, FieldError::Ours { name: name("Date") }.into()),
            (8, 5, FieldError::BadValue { name: name("E") }.into()),
            (9, 1, RuleError::NotIndented),
            (10, 1, RuleError::NoFields),
            (
                11,
                1,
                RuleError::Domain {
                    text: name("https://a.test/*"),
                },
            ),
            (13, 1, RuleError::BadByte),
            (16, 4, RuleError::OfFiles { name: name("age") }),
            (17, 3, FieldError::BadName { name: name("") }.into()),
            (18, 1, RuleError::NoFields),
        ];
        let error = |(line, column, why)| LineError { line, column, why };
        assert_eq!(errors, expected.map(error));
    }

    #[test]
    fn an_option_is_one_rule_with_one_field() {
        let options = [
            "/*  A: x: y ",
            "/*\tVary: Accept",
            "/b ! a",
            "/b Content-Language: de",
        ];
        let rules: HeaderRules = options
            .map(|text| text.parse().unwrap())
            .into_iter()
            .collect();
        let lines = |path: &[u8]| rules.fields_for(&[path]).lines().to_owned();
        assert_eq!(lines(b"/"), "A: x: y\r\nVary: Accept\r\n");
        assert_eq!(lines(b"/b"), "Vary: Accept\r\nContent-Language: de\r\n");
        let error = |text: &str| {
            let wrong = text.parse::<HeaderRule>().unwrap_err();
            wrong.iter().next().unwrap().1.clone()
        };
        let no_field = |text: &str| RuleError::NotAField { text: text.into() };
        assert_eq!(error("/a"), no_field(""));
        assert_eq!(error("/a b"), no_field("b"));
        assert_eq!(error("A: b"), RuleError::NotAPath { text: "A:".into() });
        let name = "Last-Modified".into();
        assert_eq!(error("/a Last-Modified: x"), RuleError::OfFiles { name });
    }

    #[test]
    fn all_wrong_words_of_a_rule_are_named() {
        let places = |text: &str| {
            let wrong = text.parse::<HeaderRule>().unwrap_err();
            wrong.iter().map(|(at, _)| at).collect::<Vec<_>>()
        };
        assert_eq!(places(" a ETag: \x01"), [1, 3, 9]);
        assert_eq!(places("a b"), [0, 2]);
        let (rules, errors) = parse_headers("/:a\n A: 1\n ETag: x:a\n Age: :a\n");
        // A field with a wrong word is left out.
        assert_eq!(rules, ["/:a A: 1".parse().unwrap()]);
        let columns: Vec<_> = errors.iter().map(|one| (one.line, one.column)).collect();
        assert_eq!(columns, [(3, 2), (3, 8), (4, 2), (4, 7)]);
    }

    #[test]
    fn a_field_that_does_not_fit_is_left_out() {
        let long = "x".repeat(MAX_FIELDS_LEN - 100);
        let text = format!("/*\n A: {long}\n/a\n B: {long}\n C: 1\n/b\n A: 1\n");
        let rules = rules(&text);
        let names = |path: &[u8]| -> Vec<String> {
            let fields = rules.fields_for(&[path]);
            assert!(fields.lines().len() <= MAX_FIELDS_LEN);
            fields.iter().map(|(name, _)| name.to_owned()).collect()
        };
        assert_eq!(names(b"/a"), ["A", "C"]);
        assert_eq!(rules.fields_for(&[b"/b"]).lines(), "A: 1\r\n");
    }

    #[test]
    fn the_number_of_rules_is_limited() {
        let text = "/a\n A: 1\n".repeat(MAX_HEADER_RULES + 1);
        let (rules, errors) = parse_headers(&text);
        assert_eq!(rules.len(), MAX_HEADER_RULES);
        let why = RuleError::TooManyHeaderRules;
        let line = 2 * MAX_HEADER_RULES + 1;
        let column = 1;
        assert_eq!(errors, [LineError { line, column, why }]);
    }

    proptest! {
        /// Checks that no text causes a panic, and that an HTTP parser accepts the fields.
        #[test]
        fn no_text_causes_a_panic(
            text in "(\\PC{0,9}|(/\\*?|\n [A-Ca-c]: ?[a-z#!:\r\t]{0,3}|\n ! ?[A-C])|[\r\n\t #!:é]){0,20}",
        ) {
            let (rules, errors) = parse_headers(&text);
            let mut wrong: Vec<_> = errors.iter().map(|error| error.line).collect();
            wrong.dedup();
            prop_assert!(rules.len() + wrong.len() <= text.lines().count());
            let _ = text.parse::<HeaderRule>();
            let rules: HeaderRules = rules.into_iter().collect();
            for fields in [rules.fields_for(&[b"/"]), rules.for_everything()] {
                let head = format!("HTTP/1.1 200 OK\r\n{}\r\n", fields.lines());
                let mut read = [httparse::EMPTY_HEADER; 64];
                let mut response = httparse::Response::new(&mut read);
                prop_assert!(response.parse(head.as_bytes()).unwrap().is_complete());
                prop_assert_eq!(response.headers.len(), fields.iter().count());
            }
        }
    }
}
