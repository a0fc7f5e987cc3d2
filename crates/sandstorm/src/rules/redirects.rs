//! Rules for redirects, rewrites and error pages: the format of `_redirects`.

use std::str::FromStr;

use control::WrongWords;

use super::pattern::{Captures, Pattern, SPLAT};
use super::query::QueryPattern;
use super::template::Template;
use super::{LineError, RuleError, excerpt, lines, without_comment};
use crate::status::{Status, StatusCode};

/// Maximum number of rules without placeholder and star in a file. Each of them takes memory for an
/// entry in an index, and for its prepared response.
pub(crate) const MAX_EXACT_RULES: usize = 10_000;
/// Maximum number of rules with a placeholder or a star in a file. A request for a missing file may
/// be compared with all of them.
pub(crate) const MAX_PATTERN_RULES: usize = 1_000;

/// A rule that leads from a path to a target. The first rule that matches a path holds. Exceptions are a
/// redirect to this very path, or with a location that is too long, and a rewrite to a missing file.
///
/// It is parsed from `FROM [NAME=VALUE ...] TO [STATUS[!]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) from: Pattern,
    /// The parameters that a request must have.
    pub(crate) query: QueryPattern,
    pub(crate) to: Template,
    pub(crate) action: Action,
    /// Set if the rule also holds for a path that has a file.
    pub(crate) forced: bool,
    /// The start of the rule's text, for messages.
    pub(crate) text: Box<str>,
}

/// How a request is answered to which a [`Redirect`] applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The response sends the client to the target. The status is 301, 302, 303, 307 or 308.
    Redirect(StatusCode),
    /// The response comes from the target, which is a path.
    Rewrite,
    /// The response has this status and the content of the target, which is a path. The status is
    /// 403, 404 or 410.
    Error(StatusCode),
}

impl Action {
    fn new(code: u16) -> Option<Self> {
        let status = StatusCode::new(code)?;
        match code {
            200 => Some(Self::Rewrite),
            301 | 302 | 303 | 307 | 308 => Some(Self::Redirect(status)),
            403 | 404 | 410 => Some(Self::Error(status)),
            _ => None,
        }
    }

    /// The status of the response.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Redirect(status) | Self::Error(status) => status,
            Self::Rewrite => StatusCode::OK,
        }
    }
}

impl FromStr for Redirect {
    type Err = WrongWords<RuleError>;

    /// Parses one rule, without a comment.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut wrong = WrongWords::default();
        let rule = Self::read(text, &mut wrong);
        wrong.finish(rule)
    }
}

impl Redirect {
    /// Reads a rule, and adds what is wrong with each word.
    fn read(text: &str, wrong: &mut WrongWords<RuleError>) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let path = words.next().unwrap_or(text);
        let from = wrong.take(text, path, Pattern::parse(path));
        let (mut parameters, mut target) = (Vec::new(), words.next());
        while let Some(word) = target.filter(|word| is_parameter(word)) {
            parameters.push(word);
            target = words.next();
        }
        let status = words.next();
        let action = match status {
            Some(word) => wrong.take(text, word, parse_status(word)),
            None => Some((Action::Redirect(Status::MovedPermanently.into()), false)),
        };
        for word in words {
            wrong.add(text, word, not_supported(word));
        }
        let Some(target) = target else {
            let end = &text[text.trim_ascii_end().len()..];
            wrong.add(text, end, RuleError::NoTarget);
            return None;
        };
        // What follows depends on the path.
        let from = from?;
        let query = QueryPattern::parse(&parameters, &from);
        let is_about = |why: &RuleError| parameter_of(why, &parameters).unwrap_or(path);
        let about = query.as_ref().err().map_or(path, is_about);
        let query = wrong.take(text, about, query)?;
        let to = Template::parse(target, &|name| query.index_of(name, &from));
        let to = wrong.take(text, target, to)?;
        let (action, forced) = action?;
        let rule = Self {
            from,
            query,
            to,
            action,
            forced,
            text: excerpt(text.trim()).into(),
        };
        if let Err(why) = rule.check(path) {
            let is_of_status = why == RuleError::NoRedirect;
            let about = status.filter(|_| is_of_status).unwrap_or(target);
            wrong.add(text, about, why);
        }
        Some(rule)
    }

    /// Checks that the target fits the action. `path` is the text of [`from`](Self::from).
    fn check(&self, path: &str) -> Result<(), RuleError> {
        if matches!(self.action, Action::Redirect(_)) {
            // The target has no query, or one that differs.
            if self.has_query() {
                return Ok(());
            }
            return if self.is_endless(path) {
                Err(RuleError::Endless)
            } else {
                Ok(())
            };
        }
        if self.has_query() {
            return Err(RuleError::NoRedirect);
        }
        if self.to.is_path() {
            return Ok(());
        }
        let status = self.action.status().code();
        Err(RuleError::Proxy { status })
    }

    /// Returns true if the rule holds only for requests with a query.
    pub(crate) fn has_query(&self) -> bool {
        !self.query.is_empty()
    }

    /// Returns true if a redirect certainly leads to itself: its target is spelled as its path.
    fn is_endless(&self, path: &str) -> bool {
        if let Some(exact) = self.from.exact() {
            let slash = if path.ends_with('/') && exact != b"/" {
                "/"
            } else {
                ""
            };
            let spelled = [exact, slash.as_bytes()].concat();
            return self.to.leads_to(&Captures::default(), &spelled, false);
        }
        let target = match path.strip_suffix('*') {
            Some(before) => format!("{before}:{SPLAT}"),
            None => path.to_owned(),
        };
        let same = Template::parse(&target, &|name| self.from.index_of(name));
        same.is_ok_and(|same| self.to.has_path_of(&same))
    }

    /// Returns true if this is a forced redirect of which each location leads on to a longer one, unless
    /// another rule holds there.
    pub(crate) fn grows(&self) -> bool {
        let grows = |prefix| self.forced && self.to.is_below(prefix);
        matches!(self.action, Action::Redirect(_)) && self.from.before_star().is_some_and(grows)
    }
}

/// Parses a status, which an exclamation mark may follow.
fn parse_status(word: &str) -> Result<(Action, bool), RuleError> {
    let (digits, forced) = match word.strip_suffix('!') {
        Some(digits) => (digits, true),
        None => (word, false),
    };
    if is_parameter(word) {
        return Err(not_supported(word));
    }
    let is_code = digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let code = digits.parse().ok().filter(|_| is_code);
    let action = code.and_then(Action::new).ok_or_else(|| {
        let status = excerpt(word);
        RuleError::BadStatus { status }
    })?;
    Ok((action, forced))
}

/// Returns true if a word is a query parameter or a condition: a name, an equals sign and a value.
fn is_parameter(word: &str) -> bool {
    let is_in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.[]".contains(&byte);
    let name = word.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| !name.is_empty() && name.bytes().all(is_in_name))
}

/// The error for a word after the target that is no status.
fn not_supported(word: &str) -> RuleError {
    let is_condition = is_parameter(word);
    let word = excerpt(word);
    if is_condition {
        RuleError::Condition { word }
    } else {
        RuleError::ExtraWord { word }
    }
}

/// Returns the parameter of a query that an error is about.
fn parameter_of<'t>(why: &RuleError, parameters: &[&'t str]) -> Option<&'t str> {
    let RuleError::QueryParameter { word } = why else {
        return None;
    };
    let mut last_first = parameters.iter().rev();
    last_first.find(|one| excerpt(one) == *word).copied()
}

/// Parses the text of `_redirects`: one rule in each line, in the order in which they apply. A
/// wrong line is left out.
pub(crate) fn parse_redirects(text: &str) -> (Vec<Redirect>, Vec<LineError>) {
    let (mut rules, mut errors) = (Vec::new(), Vec::new());
    let (mut exact, mut patterns) = (0, 0);
    for (line, whole) in lines(text) {
        let text = without_comment(whole).trim_ascii();
        if text.is_empty() {
            continue;
        }
        let rule = text.parse::<Redirect>().and_then(|rule| {
            let is_exact = rule.from.exact().is_some() && !rule.has_query();
            let (count, max, too_many) = if is_exact {
                (&mut exact, MAX_EXACT_RULES, RuleError::TooManyExact)
            } else {
                (&mut patterns, MAX_PATTERN_RULES, RuleError::TooManyPatterns)
            };
            if *count == max {
                return Err(WrongWords::whole(too_many));
            }
            *count += 1;
            Ok(rule)
        });
        match rule {
            Ok(rule) => rules.push(rule),
            Err(wrong) => {
                // A comment stands behind the rule.
                let before = whole.len() - whole.trim_ascii_start().len();
                errors.extend(LineError::of_line((line, whole), before, &wrong));
            }
        }
    }
    (rules, errors)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_status_decides_the_action() {
        let code = |code| StatusCode::new(code).unwrap();
        for (line, action, forced) in [
            ("/a /b", Action::Redirect(code(301)), false),
            ("  /a\t/b   302 ", Action::Redirect(code(302)), false),
            ("/a /b 303", Action::Redirect(code(303)), false),
            ("/a /b 307!", Action::Redirect(code(307)), true),
            ("/a https://b.test/ 308", Action::Redirect(code(308)), false),
            ("/* /index.html 200", Action::Rewrite, false),
            ("/* /index.html 200!", Action::Rewrite, true),
            ("/a/* /gone.html 410", Action::Error(code(410)), false),
            ("/a /404.html 404!", Action::Error(code(404)), true),
            ("/a /403.html 403", Action::Error(code(403)), false),
        ] {
            let rule: Redirect = line.parse().unwrap();
            assert_eq!((rule.action, rule.forced), (action, forced), "{line}");
        }
    }

    #[test]
    fn wrong_rules_are_refused() {
        let status = |status: &str| RuleError::BadStatus {
            status: status.into(),
        };
        let condition = |word: &str| RuleError::Condition { word: word.into() };
        let parameter = |word: &str| RuleError::QueryParameter { word: word.into() };
        let word = |word: &str| RuleError::ExtraWord { word: word.into() };
        let path = |text: &str| RuleError::NotAPath { text: text.into() };
        let target = |text: &str| RuleError::NotATarget { text: text.into() };
        for (line, error) in [
            ("# a", path("#")),
            ("/a", RuleError::NoTarget),
            ("/a 301", target("301")),
            ("/a id=:id", RuleError::NoTarget),
            ("/a id=:i-d /b", parameter("id=:i-d")),
            ("/a id=:id /b/:id 200", RuleError::NoRedirect),
            ("/a id=:id /404.html 404", RuleError::NoRedirect),
            ("/a /b Country=de", condition("Country=de")),
            ("/a /b 302 Language=de,fr", condition("Language=de,fr")),
            ("/a /b 200! Role=admin", condition("Role=admin")),
            ("/a /b 301 Cookie=x", condition("Cookie=x")),
            ("/a /b 301 302", word("302")),
            ("/a /b 300", status("300")),
            ("/a /b 304", status("304")),
            ("/a /b 500", status("500")),
            ("/a /b !", status("!")),
            ("/a /b 301!!", status("301!!")),
            ("/a /b +301", status("+301")),
            ("/a /b 0301", status("0301")),
            ("/a https://b.test/ 200", RuleError::Proxy { status: 200 }),
            ("/a https://b.test/ 404", RuleError::Proxy { status: 404 }),
            ("/a /a", RuleError::Endless),
            ("/a /a?b=c 302", RuleError::Endless),
            ("/a/ /a/", RuleError::Endless),
            ("/ /#b", RuleError::Endless),
            ("/a:b /a%3Ab", RuleError::Endless),
            ("/* /:splat", RuleError::Endless),
            ("/* /:splat?a=b 301!", RuleError::Endless),
            ("/a/* /a/:splat 302", RuleError::Endless),
            ("/a* /a:splat", RuleError::Endless),
            ("/:a/b/:c /:a/b/:c", RuleError::Endless),
            ("/:a/ /:a/", RuleError::Endless),
            ("/:a.b /:a.b", RuleError::Endless),
        ] {
            let wrong = line.parse::<Redirect>().unwrap_err();
            let mut wrong = wrong.iter().map(|(_, why)| why);
            assert_eq!(wrong.next(), Some(&error), "{line}");
            assert_eq!(wrong.next(), None, "{line}");
        }
        let wrong = "".parse::<Redirect>().unwrap_err();
        let wrong: Vec<_> = wrong.iter().map(|(_, why)| why).collect();
        assert_eq!(wrong, [&path(""), &RuleError::NoTarget]);
    }

    #[test]
    fn a_redirect_that_may_end_is_accepted() {
        // The target of each rule may be a file, or the rule is no redirect.
        for line in [
            "/a /a/",
            "/a/ /a",
            "/a /a/ 301!",
            "/* /a",
            "/* /a 301!",
            "/* /a?b=:splat 301!",
            "/* /a/:splat",
            "/* /a/:splat 301!",
            "/a/* /a/b/:splat/:splat 301!",
            "/a/* /:splat 301!",
            "/a/* /b/:splat 301!",
            "/:a /:a/",
            "/:a/:b /:b/:a",
            "/* https://a.test/:splat 301!",
            "/* /:splat.html",
            "/a /a 200",
            "/* /a 404!",
            "/a id=:id /b/:id 301",
            "/a tag[]=x id=:id /a 302!",
        ] {
            assert!(line.parse::<Redirect>().is_ok(), "{line}");
        }
    }

    #[test]
    fn a_wrong_line_is_left_out() {
        let text = "\u{feff}# rules\r\n/a /b # moved\r\n\r\n/c\r\n  /d /e#f 302 #g\r\n/h /i x\r\n";
        let (rules, errors) = parse_redirects(text);
        let expected: Vec<Redirect> = ["/a /b", "/d /e#f 302"].map(|r| r.parse().unwrap()).into();
        assert_eq!(rules, expected);
        let messages: Vec<_> = errors.iter().map(LineError::to_string).collect();
        assert_eq!(messages.len(), 2);
        assert_eq!(
            messages[0],
            "4:3: the target is missing; write the path, white space, and the target"
        );
        assert!(messages[1].starts_with("6:7: \"x\" is no status of a rule; write 301"));
    }

    #[test]
    fn an_error_has_the_column_of_the_wrong_word() {
        for (line, columns) in [
            ("a /b", &[1][..]),
            ("  /\u{e4}//*/c /b", &[3]),
            ("/\u{e4} b", &[4]),
            ("/a  ", &[3]),
            ("/a id=1 id=2 /b", &[9]),
            ("/a id=1", &[8]),
            ("/a id=1 /b 200", &[12]),
            ("/a /b 999", &[7]),
            ("/a /b 301 x # y", &[11]),
            ("/a /a", &[4]),
            ("/a https://b.test 200", &[4]),
            ("  \u{e4} /b 999 x # y", &[3, 8, 12]),
            ("/a b 999 Country=de", &[4, 6, 10]),
        ] {
            let (_, errors) = parse_redirects(line);
            let found: Vec<_> = errors.iter().map(|error| error.column).collect();
            assert_eq!(found, columns, "{line}: {errors:?}");
        }
    }

    #[test]
    fn the_number_of_rules_is_limited() {
        let exact = |n: usize| format!("/a{n} /b\n");
        let pattern = |n: usize| format!("/a{n}/* /b\n");
        let text: String = (0..=MAX_PATTERN_RULES)
            .map(pattern)
            .chain((0..=MAX_EXACT_RULES).map(exact))
            .collect();
        let (rules, errors) = parse_redirects(&text);
        assert_eq!(rules.len(), MAX_PATTERN_RULES + MAX_EXACT_RULES);
        let line = |line, why| LineError {
            line,
            column: 1,
            why,
        };
        let expected = [
            line(MAX_PATTERN_RULES + 1, RuleError::TooManyPatterns),
            line(
                MAX_PATTERN_RULES + MAX_EXACT_RULES + 2,
                RuleError::TooManyExact,
            ),
        ];
        assert_eq!(errors, expected);
    }

    proptest! {
        /// Checks that each line becomes a rule or has errors with places in the text, and that no text
        /// causes a panic.
        #[test]
        fn no_text_causes_a_panic(
            text in "(\\PC{0,9}|(/[:*a]{0,3} (/|https://a)[:a]{0,3} ?(301|200!|a=b)?)|[\r\n\t #!é]){0,9}",
        ) {
            let (rules, errors) = parse_redirects(&text);
            let mut wrong: Vec<_> = errors.iter().map(|error| error.line).collect();
            wrong.dedup();
            prop_assert!(rules.len() + wrong.len() <= text.lines().count());
            prop_assert!(errors.iter().all(|error| error.is_in(&text)), "{errors:?}");
            let _ = text.parse::<Redirect>();
        }
    }
}
