//! Response header fields, validated as they are added.

use std::fmt::{Display, Write as _};

/// Maximum total length of the fields in one [`Fields`], in bytes, including line endings.
pub const MAX_FIELDS_LEN: usize = 8_192;

/// Fields that only the server may write: those for message framing and the connection, and the
/// date.
const OURS: [&str; 7] = [
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Fields that the site's own responses may contain.
const OF_FILES: [&str; 6] = [
    "accept-ranges",
    "allow",
    "content-type",
    "etag",
    "last-modified",
    "location",
];

/// Why a field was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// The name is empty or contains a byte that is not allowed in field names.
    #[error("{name:?} is not a field name; use letters, digits and hyphens")]
    BadName {
        /// The refused name.
        name: String,
    },
    /// The value contains a line break or another control character, or begins or ends with white
    /// space.
    #[error(
        "the value of {name} has a control character, or white space at an end; leave these out"
    )]
    BadValue {
        /// The field's name.
        name: String,
    },
    /// Only the server may write this field.
    #[error("the server writes {name} itself; leave it out")]
    Ours {
        /// The field's name.
        name: String,
    },
    /// The site's own responses may contain a field of this name, so it cannot be a field of all
    /// responses.
    #[error("the responses of files already have {name}; add it only to other responses")]
    OfFiles {
        /// The field's name.
        name: String,
    },
    /// With this field, the total length would exceed [`MAX_FIELDS_LEN`].
    #[error(
        "with {name} the fields have more than {MAX_FIELDS_LEN} bytes; add fewer or shorter ones"
    )]
    TooLong {
        /// The field's name.
        name: String,
    },
}

/// Response fields, in order. Each field is validated when it is added, so that no name or value
/// can inject a line.
///
/// ```
/// use sandstorm::Fields;
///
/// let mut fields = Fields::new();
/// fields.add("Cache-Control", "no-store")?;
/// assert!(fields.add("X-User", "a\r\nSet-Cookie: b").is_err());
/// assert_eq!(fields.lines(), "Cache-Control: no-store\r\n");
/// # Ok::<(), sandstorm::FieldError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(String);

impl Fields {
    /// Creates an empty list of fields.
    pub const fn new() -> Self {
        Self(String::new())
    }

    /// Makes the fields that all responses of a server contain.
    ///
    /// # Errors
    /// The errors of [`add`](Self::add), and [`FieldError::OfFiles`].
    pub fn of_all<'a>(
        fields: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, FieldError> {
        let mut all = Self::new();
        for (name, value) in fields {
            if is_among(name, &OF_FILES) {
                return Err(FieldError::OfFiles { name: name.into() });
            }
            all.add(name, value)?;
        }
        Ok(all)
    }

    /// Adds a field. Existing fields of the same name are kept.
    ///
    /// # Errors
    /// [`FieldError`] if the field is refused. Nothing is added in that case.
    pub fn add(&mut self, name: &str, value: impl Display) -> Result<(), FieldError> {
        let name_of = || name.to_owned();
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(FieldError::BadName { name: name_of() });
        }
        if is_among(name, &OURS) {
            return Err(FieldError::Ours { name: name_of() });
        }
        let start = self.0.len();
        self.0.push_str(name);
        self.0.push_str(": ");
        let value_at = self.0.len();
        let is_written = write!(self.0, "{value}").is_ok();
        let value = &self.0[value_at..];
        let is_valid = is_written
            && !value.bytes().any(|b| b.is_ascii_control() && b != b'\t')
            && value.trim_matches([' ', '\t']).len() == value.len();
        let len = self.0.len() + 2;
        if is_valid && len <= MAX_FIELDS_LEN {
            self.0.push_str("\r\n");
            return Ok(());
        }
        self.0.truncate(start);
        Err(if is_valid {
            FieldError::TooLong { name: name_of() }
        } else {
            FieldError::BadValue { name: name_of() }
        })
    }

    /// Appends the fields of `other`.
    ///
    /// # Errors
    /// [`FieldError::TooLong`] if there is no room for the fields. Nothing is added in that case.
    pub fn extend(&mut self, other: &Self) -> Result<(), FieldError> {
        if self.0.len() + other.0.len() > MAX_FIELDS_LEN {
            let name = other.iter().next().map_or("", |line| line.0).to_owned();
            return Err(FieldError::TooLong { name });
        }
        self.0.push_str(&other.0);
        Ok(())
    }

    /// The lines in wire format, each with its line ending.
    pub fn lines(&self) -> &str {
        &self.0
    }

    /// Returns true if there are no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if there is a field of this name, compared without regard to case.
    pub fn has(&self, name: &str) -> bool {
        self.iter()
            .any(|(other, _)| other.eq_ignore_ascii_case(name))
    }

    /// Wraps lines that have already been checked.
    pub(crate) fn of_lines(lines: String) -> Self {
        Self(lines)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the name and the complete line of each field, including the line ending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .split_inclusive("\r\n")
            .map(|line| (line.split(':').next().unwrap_or(line), line))
    }

    /// Removes the fields with this name, and returns the value of the last one.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let is_named = |other: &str| other.eq_ignore_ascii_case(name);
        let (_, line) = self.iter().filter(|(other, _)| is_named(other)).last()?;
        let value = line.split_once(':')?.1.trim().to_owned();
        let others = self.iter().filter(|(other, _)| !is_named(other));
        self.0 = others.map(|(_, line)| line).collect();
        Some(value)
    }

    /// Returns the lines of the fields whose names do not occur in `own`.
    pub(crate) fn missing_in(&self, own: &Self) -> impl Iterator<Item = &str> {
        let is_missing = move |name| own.is_empty() || !own.has(name);
        let fields = self.iter().filter(move |(name, _)| is_missing(name));
        fields.map(|(_, line)| line)
    }

    /// Returns these fields and those of `own`, which replace fields of the same name.
    pub(crate) fn replaced_by(&self, own: &Self) -> Self {
        let kept = self.missing_in(own);
        Self(kept.chain([own.lines()]).collect())
    }

    /// Returns the fields for a 304 response (RFC 9110, section 15.4.5). Omits fields that describe
    /// the body.
    pub(crate) fn without_body(&self) -> Self {
        let kept = self.iter().filter(|(name, _)| !describes_body(name));
        Self(kept.map(|(_, line)| line).collect())
    }
}

/// Returns true if a token, such as a field name, may contain this byte (RFC 9110, section 5.6.2).
pub(crate) const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

/// Returns true if a field describes the body of its response: `Content-Type` and most other fields
/// whose names begin with `Content-`.
fn describes_body(name: &str) -> bool {
    const OTHERS: [&str; 3] = [
        "content-location",
        "content-security-policy",
        "content-security-policy-report-only",
    ];
    let name = name.to_ascii_lowercase();
    name.starts_with("content-") && !OTHERS.contains(&&*name)
}

fn is_among(name: &str, names: &[&str]) -> bool {
    names.iter().any(|other| other.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_and_values_that_would_break_the_head_are_refused() {
        let mut fields = Fields::new();
        let add = |fields: &mut Fields, name: &str, value: &str| fields.add(name, value);
        let bad_name = |name: &str| FieldError::BadName { name: name.into() };
        for name in ["", "a b", "a:", "a\r\n", "\u{fc}"] {
            assert_eq!(add(&mut fields, name, "x"), Err(bad_name(name)));
        }
        let bad_value = Err(FieldError::BadValue { name: "A".into() });
        for value in ["\r", "\n", "x\r\nB: y", "\0", "\x7f", " x", "x\t"] {
            assert_eq!(add(&mut fields, "A", value), bad_value, "{value:?}");
        }
        for name in ["Connection", "content-length", "DATE", "Transfer-Encoding"] {
            let ours = FieldError::Ours { name: name.into() };
            assert_eq!(add(&mut fields, name, "x"), Err(ours));
        }
        assert!(fields.is_empty());
        add(&mut fields, "A", "x\ty \u{fc}").unwrap();
        add(&mut fields, "A", "").unwrap();
        assert_eq!(fields.lines(), "A: x\ty \u{fc}\r\nA: \r\n");
        assert!(fields.has("a") && !fields.has("b"));
    }

    #[test]
    fn the_length_of_all_lines_is_limited() {
        let mut fields = Fields::new();
        fields.add("A", "x".repeat(MAX_FIELDS_LEN - 5)).unwrap();
        assert_eq!(fields.lines().len(), MAX_FIELDS_LEN);
        let before = fields.clone();
        let too_long = FieldError::TooLong { name: "B".into() };
        assert_eq!(fields.add("B", ""), Err(too_long.clone()));
        let mut other = Fields::new();
        other.add("B", "").unwrap();
        assert_eq!(fields.extend(&other), Err(too_long));
        assert_eq!(fields, before);
    }

    #[test]
    fn fields_for_all_responses_must_not_repeat_those_of_files() {
        let of_all = Fields::of_all([("Server", "storm"), ("X", "1")]).unwrap();
        assert_eq!(of_all.lines(), "Server: storm\r\nX: 1\r\n");
        let error = Fields::of_all([("Etag", "\"x\"")]).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("the responses of files already have Etag")
        );
    }

    proptest! {
        /// Checks that a parser finds all added fields and no others.
        #[test]
        fn an_http_parser_finds_all_added_fields(
            pairs in prop::collection::vec(("[A-Za-z-]{1,8}", "[ -~\r\n\t]{0,8}"), 0..5),
        ) {
            let mut fields = Fields::new();
            let mut added = Vec::new();
            for (name, value) in &pairs {
                if fields.add(name, value).is_ok() {
                    added.push((name.as_str(), value.as_bytes()));
                }
            }
            let head = format!("HTTP/1.1 200 OK\r\n{}\r\n", fields.lines());
            let mut read = [httparse::EMPTY_HEADER; 8];
            let mut response = httparse::Response::new(&mut read);
            prop_assert!(response.parse(head.as_bytes()).unwrap().is_complete());
            let read: Vec<_> = response.headers.iter().map(|h| (h.name, h.value)).collect();
            prop_assert_eq!(read, added);
        }
    }
}
