//! The query of a rule: parameters that a request must have.

use arrayvec::ArrayVec;

use super::pattern::{Captures, MAX_CAPTURES, Pattern, is_in_name};
use super::{RuleError, excerpt};
use crate::head::HEAD_LIMIT;
use crate::percent;

/// Maximum number of parameters of a request that are compared with rules.
const MAX_PARAMETERS: usize = 64;

/// The parameters that a rule asks for, in any order. A request may have others too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueryPattern(Box<[Parameter]>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parameter {
    /// Decoded bytes.
    name: Box<[u8]>,
    value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    /// Decoded bytes.
    Literal(Box<[u8]>),
    /// Any value, with the name of its placeholder.
    Placeholder(Box<str>),
}

impl QueryPattern {
    /// Parses parameters, each `NAME=VALUE` or `NAME=:PLACEHOLDER`. `path` is the rule's path.
    pub(crate) fn parse(words: &[&str], path: &Pattern) -> Result<Self, RuleError> {
        let mut parameters: Vec<Parameter> = Vec::new();
        let mut captures = path.captures_len();
        for word in words {
            let wrong = || {
                let word = excerpt(word);
                RuleError::QueryParameter { word }
            };
            let (name, value) = word.split_once('=').ok_or_else(wrong)?;
            let name: Box<[u8]> = decoded(name.as_bytes()).ok_or_else(wrong)?.into();
            let value = match value.strip_prefix(':') {
                Some(placeholder)
                    if placeholder.bytes().all(is_in_name) && !placeholder.is_empty() =>
                {
                    captures += 1;
                    let is_known = |one: &Parameter| one.placeholder() == Some(placeholder);
                    if path.index_of(placeholder).is_some() || parameters.iter().any(is_known) {
                        let name = excerpt(placeholder);
                        return Err(RuleError::DuplicateName { name });
                    }
                    Value::Placeholder(placeholder.into())
                }
                Some(_) => return Err(wrong()),
                None => Value::Literal(decoded(value.as_bytes()).ok_or_else(wrong)?.into()),
            };
            if parameters.iter().any(|one| one.name == name) {
                return Err(wrong());
            }
            parameters.push(Parameter { name, value });
        }
        if captures > MAX_CAPTURES || parameters.len() > MAX_CAPTURES {
            return Err(RuleError::TooManyPlaceholders);
        }
        Ok(Self(parameters.into()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The index of a capture by its name. Those of the path come first.
    pub(crate) fn index_of(&self, name: &str, path: &Pattern) -> Option<usize> {
        let own = || {
            let mut names = self.0.iter().filter_map(Parameter::placeholder);
            Some(path.captures_len() + names.position(|one| one == name)?)
        };
        path.index_of(name).or_else(own)
    }

    /// Adds the values of a request's parameters to the captures of its path. Returns `None` if a
    /// parameter is missing or has another value.
    pub(crate) fn captures<'q>(
        &self,
        query: &'q Query,
        mut captures: Captures<'q>,
    ) -> Option<Captures<'q>> {
        for parameter in &self.0 {
            let value = query.get(&parameter.name)?;
            match &parameter.value {
                Value::Literal(literal) if **literal == *value => {}
                Value::Placeholder(_) if !value.is_empty() => captures.push_value(value)?,
                _ => return None,
            }
        }
        Some(captures)
    }
}

impl Parameter {
    fn placeholder(&self) -> Option<&str> {
        match &self.value {
            Value::Placeholder(name) => Some(name),
            Value::Literal(_) => None,
        }
    }
}

/// The decoded query of a request.
pub(crate) struct Query {
    bytes: ArrayVec<u8, HEAD_LIMIT>,
    /// For each parameter, where its name begins, where its value begins, and where that ends.
    parameters: ArrayVec<[u16; 3], MAX_PARAMETERS>,
}

const _: () = assert!(HEAD_LIMIT <= u16::MAX as usize);

impl Query {
    /// Decodes a query, in which a plus sign stands for a space. Parameters with an invalid encoding, and
    /// those behind the 64th, are left out.
    pub(crate) fn decode(query: &[u8]) -> Self {
        let mut decoded = Self {
            bytes: ArrayVec::new(),
            parameters: ArrayVec::new(),
        };
        for parameter in query.split(|byte| *byte == b'&').take(MAX_PARAMETERS) {
            let from = decoded.bytes.len();
            let mut parts = parameter.splitn(2, |byte| *byte == b'=');
            let mut ends = [from as u16; 3];
            let mut is_valid = true;
            for end in &mut ends[1..] {
                is_valid &= decoded.add(parts.next().unwrap_or_default());
                *end = decoded.bytes.len() as u16;
            }
            if is_valid {
                decoded.parameters.push(ends);
            } else {
                decoded.bytes.truncate(from);
            }
        }
        decoded
    }

    /// Adds decoded text. Returns false if it is not valid.
    fn add(&mut self, text: &[u8]) -> bool {
        let mut bytes = percent::decode(text).map(|byte| match byte {
            Ok((b'+', false)) => Some(b' '),
            byte => byte.ok().map(|(byte, _)| byte),
        });
        bytes.all(|byte| byte.is_some_and(|byte| self.bytes.try_push(byte).is_ok()))
    }

    /// Returns the value of the first parameter with this name.
    fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let slice = |from: u16, end: u16| &self.bytes[usize::from(from)..usize::from(end)];
        let mut all = self.parameters.iter();
        let found = all.find(|[from, end, _]| slice(*from, *end) == name);
        found.map(|[_, from, end]| slice(*from, *end))
    }
}

/// Decodes text of a rule.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut query = Query::decode(b"");
    query.add(text).then(|| query.bytes.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(path: &str, words: &[&str]) -> Result<(Pattern, QueryPattern), RuleError> {
        let path = Pattern::parse(path).unwrap();
        let query = QueryPattern::parse(words, &path)?;
        Ok((path, query))
    }

    /// Returns the captures of a request for `/a/x` with this query.
    fn captures(words: &[&str], query: &str) -> Option<Vec<String>> {
        let (path, pattern) = pattern("/a/:b", words).unwrap();
        let query = Query::decode(query.as_bytes());
        let captures = pattern.captures(&query, path.captures(b"/a/x")?)?;
        let text = |index| String::from_utf8_lossy(captures.get(index)).into_owned();
        Some(
            (0..=words.len())
                .map(text)
                .filter(|one| !one.is_empty())
                .collect(),
        )
    }

    #[test]
    fn parameters_match_in_any_order() {
        let words = ["id=:id", "kind=big box", "n%61me=:n"];
        for (query, expected) in [
            ("id=7&kind=big+box&name=a", Some("x 7 a")),
            (
                "x&name=%26%3d&&kind=big%20box&id=a=b&id=c",
                Some("x a=b &="),
            ),
            ("id=7&kind=big box&n%61me=+", Some("x 7  ")),
            ("id=7&kind=small&name=a", None),
            ("id=&kind=big+box&name=a", None),
            ("id&kind=big+box&name=a", None),
            ("id=%zz&kind=big+box&name=a", None),
            ("ID=7&kind=big+box&name=a", None),
            ("", None),
        ] {
            let found = captures(&words, query).map(|all| all.join(" "));
            assert_eq!(found.as_deref(), expected, "{query}");
        }
        assert_eq!(captures(&["a="], "a&b=%zz").unwrap(), ["x"]);
        let far = "b&".repeat(MAX_PARAMETERS) + "a=";
        assert_eq!(captures(&["a="], &far), None);
    }

    #[test]
    fn placeholders_of_path_and_query_have_different_names() {
        let (path, query) = pattern("/:a/*", &["x=:b", "y=1", "z=:c"]).unwrap();
        let index = |name: &str| query.index_of(name, &path);
        let all = ["a", "splat", "b", "c", "x"].map(index);
        assert_eq!(all, [Some(0), Some(1), Some(2), Some(3), None]);
        let duplicate = |name: &str| RuleError::DuplicateName { name: name.into() };
        assert_eq!(pattern("/:a", &["x=:a"]), Err(duplicate("a")));
        assert_eq!(pattern("/", &["x=:a", "y=:a"]), Err(duplicate("a")));
        for wrong in ["x=:", "x=:a-b", "x=%zz", "%x=a", "x"] {
            let word = wrong.into();
            assert_eq!(
                pattern("/", &[wrong]),
                Err(RuleError::QueryParameter { word })
            );
        }
        let twice = pattern("/", &["x=1", "x=2"]).unwrap_err();
        assert!(matches!(twice, RuleError::QueryParameter { .. }));
        let many: Vec<_> = (0..=MAX_CAPTURES).map(|n| format!("p{n}=:p{n}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(pattern("/", &many), Err(RuleError::TooManyPlaceholders));
        assert!(pattern("/", &many[1..]).is_ok());
        assert!(pattern("/:a", &many[1..]).is_err());
    }
}
