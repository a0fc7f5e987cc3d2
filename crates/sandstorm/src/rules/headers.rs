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
        } else if let Err(why) = reader.path((line, whole), text) {
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
        /// The line and the column of the path.
        place: (usize, usize),
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

    /// Takes a line that is not indented by spaces or tabs, with its number. `text` is the line without the
    /// space around it.
    fn path(&mut self, (line, whole): (usize, &str), text: &str) -> Result<(), RuleError> {
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
        let indentation = whole.len() - whole.trim_ascii_start().len();
        self.block = Block::Rule {
            place: (line, indentation + 1),
            rule: HeaderRule::new(pattern),
            has_lines: false,
        };
        Ok(())
    }

    /// Adds the current rule to the finished ones.
    fn finish_rule(&mut self) {
        if let Block::Rule {
            place: (line, column),
            rule,
            has_lines,
        } = std::mem::take(&mut self.block)
        {
            if !has_lines {
                let why = RuleError::NoFields;
                self.errors.push(LineError { line, column, why });
            } else if !rule.is_empty() {
                self.rules.push(rule);
            }
        }
    }
}

#[cfg(test)]
mod tests;
