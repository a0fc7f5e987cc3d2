//! Files with keys, as `tsig-keygen` writes them and BIND and dig read them.

use std::io;
use std::path::Path;

use data_encoding::BASE64;

use super::key::Key;
use crate::name::Name;
use crate::secret_text::{self, NoText};

/// Maximum number of keys in a file.
pub const MAX_KEYS: usize = 256;
/// Maximum length of a file, in bytes, comments included.
const MAX_FILE_LEN: u64 = 262_144;

/// Why a file has no keys. The message follows the name of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// The file cannot be read.
    #[error("cannot be read: {0}; name a file that the server's user can read")]
    Unreadable(#[from] io::Error),
    /// The file has changed while it was read.
    #[error("changed while they were read; try again when the file is complete")]
    Changed,
    /// The text is not that of keys.
    #[error(
        "have {found} in line {line}, column {column}, where {wanted} must be: write keys as tsig-keygen \
         does, such as key \"NAME\" {{ algorithm hmac-sha256; secret \"BASE64\"; }};"
    )]
    Syntax {
        /// Number of the line, from 1.
        line: usize,
        /// Number of the character in the line, from 1.
        column: usize,
        /// What is there.
        found: String,
        /// What must be there.
        wanted: String,
    },
    /// There are no keys.
    #[error("have no key: write one with tsig-keygen NAME")]
    Empty,
    /// There are too many keys or bytes.
    #[error("have more than {MAX_KEYS} keys, or more than {MAX_FILE_LEN} bytes: remove old ones")]
    Long,
    /// Two keys have the same name.
    #[error("have two keys that are called {0}: remove one of them")]
    Twice(String),
}

impl From<NoText> for KeyFileError {
    fn from(why: NoText) -> Self {
        match why {
            NoText::Unreadable(error) => Self::Unreadable(error),
            NoText::Long => Self::Long,
            NoText::Changed => Self::Changed,
        }
    }
}

/// Reads the keys of a file.
///
/// # Errors
/// If the file cannot be read, or is not such a file.
pub(super) fn read(path: &Path) -> Result<Vec<Key>, KeyFileError> {
    let text = secret_text::read(path, MAX_FILE_LEN)?;
    parse(&String::from_utf8_lossy(&text))
}

/// Reads the keys of the text of a file.
///
/// # Errors
/// If it is not such a text.
pub(super) fn parse(text: &str) -> Result<Vec<Key>, KeyFileError> {
    // Some editors put an invisible mark at the start.
    let text = text.trim_start_matches('\u{feff}');
    let mut words = Words { text, at: 0 };
    let mut keys: Vec<Key> = Vec::new();
    while let Some(word) = words.next()? {
        if word.text != "key" {
            return Err(words.error(&word, "the word key"));
        }
        let (name, key) = words.key()?;
        if keys.iter().any(|other| other.name() == key.name()) {
            return Err(KeyFileError::Twice(name.to_string()));
        }
        if keys.len() == MAX_KEYS {
            return Err(KeyFileError::Long);
        }
        keys.push(key);
    }
    if keys.is_empty() {
        return Err(KeyFileError::Empty);
    }
    Ok(keys)
}

/// A word, or one of the characters `{`, `}` and `;`.
#[derive(Clone, Copy)]
struct Word<'t> {
    /// Without quotation marks.
    text: &'t str,
    /// Offset in the file.
    at: usize,
    is_quoted: bool,
}

/// The words of a file.
struct Words<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Words<'t> {
    /// Reads a key behind its first word, up to the semicolon. Also returns the name as it is written.
    fn key(&mut self) -> Result<(Name, Key), KeyFileError> {
        let name = self.value("the name of a key")?;
        let parsed: Result<Name, _> = name.text.parse();
        let parsed = parsed.map_err(|_| self.error(&name, "the name of a key"))?;
        self.expect("{")?;
        let (mut algorithm, mut secret) = (None, None);
        loop {
            let word = self.some("algorithm, secret or }")?;
            match word.text {
                "}" if !word.is_quoted => break,
                "algorithm" if algorithm.is_none() => {
                    algorithm = Some(self.value("the name of an algorithm")?);
                }
                "secret" if secret.is_none() => secret = Some(self.value("a secret in base64")?),
                _ => return Err(self.error(&word, "algorithm, secret or }")),
            }
            self.expect(";")?;
        }
        let end = self.expect(";")?;
        let algorithm = algorithm.ok_or_else(|| self.error(&end, "an algorithm before the end"))?;
        let secret = secret.ok_or_else(|| self.error(&end, "a secret before the end"))?;
        let bytes = BASE64.decode(secret.text.as_bytes()).ok();
        let bytes = bytes.filter(|bytes| !bytes.is_empty());
        let bytes = bytes.ok_or_else(|| self.error(&secret, "a secret in base64"))?;
        let key = Key::new(&parsed, algorithm.text.trim_end_matches('.'), &bytes);
        let unknown = || {
            let is_one = algorithm.text.starts_with("hmac-") && algorithm.text.len() < 20;
            let found = if is_one {
                algorithm.text
            } else {
                "another word"
            };
            let found = found.escape_debug().to_string();
            self.error_at(
                algorithm.at,
                found,
                &format!("one of {}", Key::algorithms()),
            )
        };
        Ok((parsed, key.ok_or_else(unknown)?))
    }

    /// Returns the next word, which must not be a single character like `;`.
    fn value(&mut self, wanted: &str) -> Result<Word<'t>, KeyFileError> {
        let word = self.some(wanted)?;
        let is_value = word.is_quoted || !["{", "}", ";"].contains(&word.text);
        if is_value {
            Ok(word)
        } else {
            Err(self.error(&word, wanted))
        }
    }

    /// Reads this character.
    fn expect(&mut self, wanted: &str) -> Result<Word<'t>, KeyFileError> {
        let word = self.some(wanted)?;
        let is_it = word.text == wanted && !word.is_quoted;
        if is_it {
            Ok(word)
        } else {
            Err(self.error(&word, wanted))
        }
    }

    fn some(&mut self, wanted: &str) -> Result<Word<'t>, KeyFileError> {
        self.next()?.ok_or_else(|| self.at_end(wanted))
    }

    fn next(&mut self) -> Result<Option<Word<'t>>, KeyFileError> {
        self.skip_blanks()?;
        let (text, at) = (&self.text[self.at..], self.at);
        let Some(first) = text.chars().next() else {
            return Ok(None);
        };
        let is_quoted = first == '"';
        let (inner, len) = if is_quoted {
            let inner = text[1..].split('"').next().unwrap_or_default();
            (inner, (inner.len() + 2).min(text.len()))
        } else if ['{', '}', ';'].contains(&first) {
            (&text[..1], 1)
        } else {
            let ends = |c: char| c.is_whitespace() || ['{', '}', ';', '"'].contains(&c);
            let word = text.split(ends).next().unwrap_or_default();
            (word, word.len())
        };
        self.at += len;
        Ok(Some(Word {
            text: inner,
            at,
            is_quoted,
        }))
    }

    /// Skips white space, and the three kinds of comments of BIND's files.
    fn skip_blanks(&mut self) -> Result<(), KeyFileError> {
        loop {
            let rest = self.text[self.at..].trim_start();
            let comment = if rest.starts_with('#') || rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else if let Some(inside) = rest.strip_prefix("/*") {
                let end = inside.find("*/").map(|end| 2 + end + 2);
                end.ok_or_else(|| self.at_end("*/"))?
            } else {
                0
            };
            self.at = self.text.len() - rest.len() + comment;
            if comment == 0 {
                return Ok(());
            }
        }
    }

    /// Returns the error that something else is in the place of a word. Words are not shown, because each may
    /// be a secret that must not get into a log.
    fn error(&self, word: &Word<'_>, wanted: &str) -> KeyFileError {
        let found = match word.text {
            "{" | "}" | ";" if !word.is_quoted => word.text,
            _ => "another word",
        };
        self.error_at(word.at, found.to_owned(), wanted)
    }

    fn at_end(&self, wanted: &str) -> KeyFileError {
        self.error_at(self.text.len(), "the end of the file".to_owned(), wanted)
    }

    fn error_at(&self, at: usize, found: String, wanted: &str) -> KeyFileError {
        let before = &self.text[..at];
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        KeyFileError::Syntax {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            found,
            wanted: wanted.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "key \"a-key.\" {\n\talgorithm hmac-sha256;\n\tsecret \"8jd/Ieo=\";\n};\n";

    #[test]
    fn keys_are_read_as_they_are_generated_and_written_by_hand() {
        let text = format!(
            "\u{feff}# comment\n// another \"one\n/* and * one */ {KEY}key B{{secret AAAA;algorithm HMAC-SHA512.;}};"
        );
        let keys = parse(&text).unwrap();
        let names: Vec<_> = keys.iter().map(Key::name).collect();
        assert_eq!(names, [&b"\x05a-key\0"[..], b"\x01b\0"]);
        let expected = Key::new(&"b".parse().unwrap(), "hmac-sha512", &[0; 3]).unwrap();
        assert_eq!(keys[1].mac(&[b"x"]), expected.mac(&[b"x"]));
    }

    #[test]
    fn errors_name_the_place_and_never_the_secret() {
        let secret = KEY.replace("8jd/Ieo=", "8jd/Ie!");
        for (text, error) in [
            ("", "have no key: "),
            (
                "/* open",
                "have the end of the file in line 1, column 8, where */ must be",
            ),
            (
                "/*/",
                "have the end of the file in line 1, column 4, where */",
            ),
            (
                "options { };",
                "have another word in line 1, column 1, where the word key must be",
            ),
            (
                "\n key { ",
                "have { in line 2, column 6, where the name of a key must be",
            ),
            (
                "key a..b {};",
                "have another word in line 1, column 5, where the name",
            ),
            (
                "key a \"{\"",
                "have another word in line 1, column 7, where { must be",
            ),
            (
                "key a { \"8jd/Ieo=\"; };",
                "have another word in line 1, column 9, where algorithm, secret or }",
            ),
            (
                "key a { secret AA==; secret AA==; };",
                "have another word in line 1, column 22, where algorithm",
            ),
            (
                "key a { secret AAAA; };",
                "have ; in line 1, column 23, where an algorithm",
            ),
            (
                "key a { algorithm hmac-sha1; };",
                "have ; in line 1, column 31, where a secret",
            ),
            (
                "key a { algorithm hmac-md5; secret AA==; };",
                "have hmac-md5 in line 1, column 19, where one of hmac-sha1, ",
            ),
            (
                "key a { algorithm hmac-sha1; secret \"\"; };",
                "have another word in line 1, column 37, where a secret in base64",
            ),
            (
                &secret,
                "have another word in line 3, column 9, where a secret in base64",
            ),
            (
                "key a { secret AA==",
                "have the end of the file in line 1, column 20, where ; must",
            ),
            (
                "key a { lifetime 3; };",
                "have another word in line 1, column 9, where algorithm, secret or }",
            ),
            (&KEY.repeat(2), "have two keys that are called a-key.: "),
        ] {
            let found = parse(text).unwrap_err().to_string();
            assert!(found.starts_with(error), "{text}: {found}");
            assert!(!found.contains("8jd"), "{found}");
        }
        let many = |number: usize| {
            let key = |n| format!("key k{n} {{ algorithm hmac-sha1; secret AA==; }};\n");
            parse(&(0..number).map(key).collect::<String>())
        };
        assert_eq!(many(MAX_KEYS).unwrap().len(), MAX_KEYS);
        assert!(matches!(many(MAX_KEYS + 1), Err(KeyFileError::Long)));
        let missing = read(Path::new("/none")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot be read: "), "{missing}");
    }
}
