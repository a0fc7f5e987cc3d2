//! Files with keys, as `tsig-keygen` writes them and BIND and dig read them.

use std::io;
use std::path::Path;

use control::Mistakes;
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
        "have {0}; write keys as tsig-keygen does, such as key \"NAME\" {{ algorithm hmac-sha256; \
         secret \"BASE64\"; }};"
    )]
    Syntax(Mistakes),
    /// There are no keys.
    #[error("have no key: write one with tsig-keygen NAME")]
    Empty,
    /// There are too many keys or bytes.
    #[error("have more than {MAX_KEYS} keys, or more than {MAX_FILE_LEN} bytes: remove old ones")]
    Long,
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
    let mut words = Words {
        text,
        at: 0,
        faults: Vec::new(),
    };
    let mut keys: Vec<Key> = Vec::new();
    loop {
        let key = match words.next_key() {
            Ok(None) => break,
            Ok(Some(key)) => key,
            Err(fault) => {
                // The wrong word may be the semicolon before the next key.
                words.at = fault.at;
                words.faults.push(fault);
                words.skip_to_key();
                continue;
            }
        };
        let Some((name, key)) = key else { continue };
        if keys.iter().any(|other| other.name() == key.name()) {
            let why = "another key has this name: remove one of them".to_owned();
            words.faults.push(Fault { at: name.at, why });
        } else if keys.len() == MAX_KEYS {
            return Err(KeyFileError::Long);
        } else {
            keys.push(key);
        }
    }
    if !words.faults.is_empty() {
        return Err(KeyFileError::Syntax(words.mistakes()));
    }
    if keys.is_empty() {
        return Err(KeyFileError::Empty);
    }
    Ok(keys)
}

/// What is wrong at an offset of the file.
struct Fault {
    at: usize,
    why: String,
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
    /// What was wrong so far.
    faults: Vec<Fault>,
}

/// A key and its name, if both are right.
type Found<'t> = Option<(Word<'t>, Key)>;

impl<'t> Words<'t> {
    /// Reads a key, if another one follows.
    ///
    /// # Errors
    /// If nothing that follows can be understood, up to the next key. Other faults are noted.
    fn next_key(&mut self) -> Result<Option<Found<'t>>, Fault> {
        match self.next()? {
            None => Ok(None),
            Some(word) if word.text == "key" => self.key().map(Some),
            Some(word) => Err(Self::fault(&word, "the word key")),
        }
    }

    /// Reads a key behind its first word, up to the semicolon.
    fn key(&mut self) -> Result<Found<'t>, Fault> {
        let before = self.faults.len();
        let name = self.value("the name of a key")?;
        let parsed = name.text.parse::<Name>().ok();
        if parsed.is_none() {
            self.note(&name, "the name of a key");
        }
        self.expect("{")?;
        let (mut algorithm, mut secret) = (None, None);
        let mut is_whole = true;
        loop {
            let word = self.some("algorithm, secret or }")?;
            match word.text {
                "}" if !word.is_quoted => break,
                "algorithm" if algorithm.is_none() => {
                    algorithm = Some(self.value("the name of an algorithm")?);
                }
                "secret" if secret.is_none() => secret = Some(self.value("a secret in base64")?),
                _ => {
                    self.note(&word, "algorithm, secret or }");
                    self.skip_statement()?;
                    is_whole = false;
                    continue;
                }
            }
            self.expect(";")?;
        }
        let end = self.expect(";")?;
        let missing = [
            (algorithm.is_none(), "an algorithm before the end"),
            (secret.is_none(), "a secret before the end"),
        ];
        for (_, wanted) in missing.into_iter().filter(|one| is_whole && one.0) {
            self.note(&end, wanted);
        }
        let bytes = secret.and_then(|secret| self.secret(&secret));
        if let Some(algorithm) = algorithm {
            self.check_algorithm(&algorithm);
        }
        let algorithm = algorithm.map(|word| word.text.trim_end_matches('.'));
        Ok(match (parsed, algorithm, bytes) {
            (Some(parsed), Some(algorithm), Some(bytes)) if self.faults.len() == before => {
                Key::new(&parsed, algorithm, &bytes).map(|key| (name, key))
            }
            _ => None,
        })
    }

    /// Returns the bytes of a secret.
    fn secret(&mut self, secret: &Word<'t>) -> Option<Vec<u8>> {
        let bytes = BASE64.decode(secret.text.as_bytes()).ok();
        let bytes = bytes.filter(|bytes| !bytes.is_empty());
        if bytes.is_none() {
            self.note(secret, "a secret in base64");
        }
        bytes
    }

    /// Notes if there is no such algorithm.
    fn check_algorithm(&mut self, algorithm: &Word<'t>) {
        let text = algorithm.text;
        if Key::has_algorithm(text.trim_end_matches('.')) {
            return;
        }
        let is_one = text.starts_with("hmac-") && text.len() < 20;
        let found = if is_one { text } else { "another word" };
        let (found, wanted) = (found.escape_debug(), Key::algorithms());
        let why = format!("{found} stands where one of {wanted} must be");
        let at = algorithm.at;
        self.faults.push(Fault { at, why });
    }

    /// Skips a statement inside of a key, which has an unknown first word.
    fn skip_statement(&mut self) -> Result<(), Fault> {
        loop {
            let word = self.some(";")?;
            match word.text {
                ";" if !word.is_quoted => return Ok(()),
                "}" if !word.is_quoted => {
                    self.at = word.at;
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    /// Skips everything before a `key` that follows a semicolon.
    fn skip_to_key(&mut self) {
        let mut is_behind_end = false;
        while let Ok(Some(word)) = self.next() {
            if is_behind_end && word.text == "key" && !word.is_quoted {
                self.at = word.at;
                return;
            }
            is_behind_end = word.text == ";" && !word.is_quoted;
        }
        self.at = self.text.len();
    }

    /// Returns the next word, which must not be a single character like `;`.
    fn value(&mut self, wanted: &str) -> Result<Word<'t>, Fault> {
        let word = self.some(wanted)?;
        let is_value = word.is_quoted || !["{", "}", ";"].contains(&word.text);
        if is_value {
            Ok(word)
        } else {
            Err(Self::fault(&word, wanted))
        }
    }

    /// Reads this character.
    fn expect(&mut self, wanted: &str) -> Result<Word<'t>, Fault> {
        let word = self.some(wanted)?;
        let is_it = word.text == wanted && !word.is_quoted;
        if is_it {
            Ok(word)
        } else {
            Err(Self::fault(&word, wanted))
        }
    }

    fn some(&mut self, wanted: &str) -> Result<Word<'t>, Fault> {
        self.next()?.ok_or_else(|| self.at_end(wanted))
    }

    fn next(&mut self) -> Result<Option<Word<'t>>, Fault> {
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
    fn skip_blanks(&mut self) -> Result<(), Fault> {
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

    /// Notes that something else is in the place of a word.
    fn note(&mut self, word: &Word<'_>, wanted: &str) {
        let fault = Self::fault(word, wanted);
        self.faults.push(fault);
    }

    /// Returns the fault that something else is in the place of a word. Words are not shown, because each may
    /// be a secret that must not get into a log.
    fn fault(word: &Word<'_>, wanted: &str) -> Fault {
        let found = match word.text {
            "{" | "}" | ";" if !word.is_quoted => word.text,
            _ => "another word",
        };
        let why = format!("{found} stands where {wanted} must be");
        Fault { at: word.at, why }
    }

    fn at_end(&self, wanted: &str) -> Fault {
        Fault {
            at: self.text.len(),
            why: format!("the file ends where {wanted} must be"),
        }
    }

    /// Returns all faults in the order of their places.
    fn mistakes(&mut self) -> Mistakes {
        self.faults.sort_by_key(|fault| fault.at);
        let (mut mistakes, mut line, mut start) = (Mistakes::default(), 1, 0);
        for Fault { at, why } in &self.faults {
            let skipped = &self.text[start..*at];
            line += skipped.matches('\n').count();
            start += skipped.rfind('\n').map_or(0, |end| end + 1);
            let column = self.text[start..*at].chars().count() + 1;
            mistakes.add((line, column), why);
        }
        mistakes
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
            (
                "/* open",
                "line 1, column 8: the file ends where */ must be",
            ),
            ("/*/", "line 1, column 4: the file ends where */"),
            (
                "options { };",
                "line 1, column 1: another word stands where the word key must be",
            ),
            (
                "\n key { ",
                "line 2, column 6: { stands where the name of a key must be",
            ),
            (
                "key a..b {secret AAAA;algorithm hmac-sha1;};",
                "line 1, column 5: another word stands where the name",
            ),
            (
                "key a \"{\"",
                "line 1, column 7: another word stands where { must be",
            ),
            (
                "key a { \"8jd/Ieo=\"; };",
                "line 1, column 9: another word stands where algorithm, secret or }",
            ),
            (
                "key a { secret AA==; secret AA==; };",
                "line 1, column 22: another word stands where algorithm",
            ),
            (
                "key a { secret AAAA; };",
                "line 1, column 23: ; stands where an algorithm",
            ),
            (
                "key a { algorithm hmac-sha1; };",
                "line 1, column 31: ; stands where a secret",
            ),
            (
                "key a { algorithm hmac-md5; secret AA==; };",
                "line 1, column 19: hmac-md5 stands where one of hmac-sha1, ",
            ),
            (
                "key a { algorithm hmac-sha1; secret \"\"; };",
                "line 1, column 37: another word stands where a secret in base64",
            ),
            (
                &secret,
                "line 3, column 9: another word stands where a secret in base64",
            ),
            (
                "key a { secret AA==",
                "line 1, column 20: the file ends where ; must",
            ),
            (
                "key a { lifetime 3 };",
                "line 1, column 9: another word stands where algorithm, secret or }",
            ),
            (
                &KEY.repeat(2),
                "line 5, column 5: another key has this name: ",
            ),
        ] {
            let found = parse(text).unwrap_err().to_string();
            let error = format!("have a mistake in {error}");
            assert!(found.starts_with(&error), "{text}: {found}");
            assert!(!found.contains("8jd"), "{found}");
        }
        let many = |number: usize| {
            let key = |n| format!("key k{n} {{ algorithm hmac-sha1; secret AA==; }};\n");
            parse(&(0..number).map(key).collect::<String>())
        };
        assert_eq!(many(MAX_KEYS).unwrap().len(), MAX_KEYS);
        assert!(matches!(many(MAX_KEYS + 1), Err(KeyFileError::Long)));
        assert!(matches!(parse(""), Err(KeyFileError::Empty)));
        let missing = read(Path::new("/none")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot be read: "), "{missing}");
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let text = "options { directory \"x\"; };\n\
                    key a { lifetime 3; algorithm hmac-md5; secret \"8jd!\"; };\n\
                    key b algorithm hmac-sha1; secret AAAA; };\n\
                    key c { algorithm hmac-sha1; secret AAAA; };\n\
                    key C { algorithm hmac-sha1 secret AAAA; };\n\
                    key C. { algorithm hmac-sha1; secret AAAA; };\n/* open";
        let found = parse(text).unwrap_err().to_string();
        let places = [
            (1, 1),
            (2, 9),
            (2, 31),
            (2, 48),
            (3, 7),
            (5, 29),
            (6, 5),
            (7, 8),
        ];
        let expected = places.map(|(line, column)| format!("  line {line}, column {column}"));
        let lines: Vec<_> = found.lines().skip(1).collect();
        let starts: Vec<_> = lines.iter().map(|line| line.split(": ").next()).collect();
        assert_eq!(
            starts,
            expected.each_ref().map(|one| Some(&**one)),
            "{found}"
        );
        assert!(found.starts_with("have 8 mistakes\n"), "{found}");
    }

    #[test]
    fn a_key_behind_a_wrong_semicolon_is_checked() {
        let text = "key a;\nkey b { algorithm md5; secret AAAA; };";
        let found = parse(text).unwrap_err().to_string();
        assert!(found.contains("line 1, column 6: "), "{found}");
        assert!(found.contains("line 2, column 19: "), "{found}");
    }
}
