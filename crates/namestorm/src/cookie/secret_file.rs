//! Files with server secrets.

use std::io;
use std::path::Path;

use super::{SECRET_LEN, Secret};
use crate::secret_text::{self, NoText};

/// Maximum number of secrets in a file. An exchange needs two of them at a time.
pub const MAX_SECRETS: usize = 4;
/// Maximum length of a file, in bytes, comments included.
const MAX_FILE_LEN: u64 = 16_384;

/// Why a file has no secrets for cookies. The message follows "the cookie secrets" and the name of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CookieFileError {
    /// The file cannot be read.
    #[error("cannot be read: {0}; name a file that the server's user can read")]
    Unreadable(#[from] io::Error),
    /// The file has changed while it was read.
    #[error("changed while they were read; try again when the file is complete")]
    Changed,
    /// A line is not a secret.
    #[error(
        "have a mistake in line {line}: write 32 hexadecimal digits, such as openssl rand -hex 16 prints"
    )]
    Line {
        /// Number of the line, from 1.
        line: usize,
    },
    /// There are no secrets.
    #[error("hold no secret: write one with openssl rand -hex 16")]
    Empty,
    /// There are too many secrets or bytes.
    #[error(
        "are more than {MAX_SECRETS}, or the file has more than {MAX_FILE_LEN} bytes: remove old ones"
    )]
    Long,
}

impl From<NoText> for CookieFileError {
    fn from(why: NoText) -> Self {
        match why {
            NoText::Unreadable(error) => Self::Unreadable(error),
            NoText::Long => Self::Long,
            NoText::Changed => Self::Changed,
        }
    }
}

/// Reads a file with one secret in each line, in hexadecimal. Empty lines and lines that begin with
/// `#` do not count.
///
/// # Errors
/// If the file cannot be read, or is not such a file.
pub(crate) fn read(path: &Path) -> Result<Vec<Secret>, CookieFileError> {
    let text = secret_text::read(path, MAX_FILE_LEN)?;
    let mut secrets = Vec::new();
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line[0] == b'#' {
            continue;
        }
        let secret = parse(line).ok_or(CookieFileError::Line { line: number + 1 })?;
        secrets.push(secret);
    }
    match secrets.len() {
        0 => Err(CookieFileError::Empty),
        1..=MAX_SECRETS => Ok(secrets),
        _ => Err(CookieFileError::Long),
    }
}

/// Returns the secret that hexadecimal digits stand for.
fn parse(digits: &[u8]) -> Option<Secret> {
    let mut secret = [0; SECRET_LEN];
    if digits.len() != 2 * SECRET_LEN {
        return None;
    }
    let digit = |digit: u8| char::from(digit).to_digit(16);
    for (byte, pair) in secret.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &[u8]) -> Result<Vec<Secret>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secrets");
        std::fs::write(&path, text).unwrap();
        read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_has_one_secret_in_each_line() {
        let text =
            b"# new\nE5e973e5a6b2a43f48e7dc849e37bfcf \r\n\n000102030405060708090a0b0c0d0e0f";
        let secrets = read_text(text).unwrap();
        assert_eq!(secrets.len(), 2);
        assert_eq!(secrets[0][..3], [0xe5, 0xe9, 0x73]);
        assert_eq!(secrets[1], std::array::from_fn(|at| at as u8));
        let most = "00".repeat(16) + "\n";
        assert_eq!(read_text(most.repeat(4).as_bytes()).unwrap().len(), 4);
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let secret = "0".repeat(32);
        for (text, error) in [
            (String::new(), "hold no secret: "),
            ("# only a comment\n".into(), "hold no secret: "),
            (
                format!("{secret}\n{secret}0\n"),
                "have a mistake in line 2: ",
            ),
            (format!("{}g", &secret[1..]), "have a mistake in line 1: "),
            (format!("{}+1", &secret[2..]), "have a mistake in line 1: "),
            (
                format!("{secret}\n").repeat(5),
                "are more than 4, or the file ",
            ),
            ("#".repeat(16_385), "are more than 4, or the file "),
        ] {
            let found = read_text(text.as_bytes()).unwrap_err();
            assert!(found.starts_with(error), "{text}: {found}");
        }
        let folder = read(Path::new("/")).unwrap_err().to_string();
        assert!(folder.starts_with("cannot be read: it is a folder, not a file; "));
        let missing = read(Path::new("/none")).unwrap_err().to_string();
        assert!(
            missing.starts_with("cannot be read: ")
                && missing.ends_with("; name a file that the server's user can read"),
            "{missing}"
        );
    }
}
