//! Files with server secrets.

use std::io;
use std::path::Path;

use control::Mistakes;

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
    /// Some lines are not secrets.
    #[error("have {0}")]
    Lines(Mistakes),
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
    let (mut secrets, mut wrong) = (Vec::new(), Mistakes::default());
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let indent = line.len() - line.trim_ascii_start().len();
        let line = line.trim_ascii();
        if line.is_empty() || line[0] == b'#' {
            continue;
        }
        match parse(line) {
            Ok(secret) => secrets.push(secret),
            Err(at) => wrong.add(
                (number, indent + at + 1),
                "write 32 hexadecimal digits, such as openssl rand -hex 16 prints",
            ),
        }
    }
    if !wrong.is_empty() {
        return Err(CookieFileError::Lines(wrong));
    }
    match secrets.len() {
        0 => Err(CookieFileError::Empty),
        1..=MAX_SECRETS => Ok(secrets),
        _ => Err(CookieFileError::Long),
    }
}

/// Returns the secret that hexadecimal digits stand for.
///
/// # Errors
/// The index of the first character that is wrong or missing.
fn parse(text: &[u8]) -> Result<Secret, usize> {
    let digit = |at: usize| {
        let digit = text.get(at).map(|digit| char::from(*digit));
        digit.and_then(|digit| digit.to_digit(16)).ok_or(at)
    };
    let mut secret = [0; SECRET_LEN];
    for (at, byte) in secret.iter_mut().enumerate() {
        *byte = (digit(2 * at)? << 4 | digit(2 * at + 1)?) as u8;
    }
    if text.len() > 2 * SECRET_LEN {
        return Err(2 * SECRET_LEN);
    }
    Ok(secret)
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
                "have a mistake in line 2, column 33: write 32 hexadecimal digits, ",
            ),
            (
                format!(" {}g", &secret[1..]),
                "have a mistake in line 1, column 33: ",
            ),
            (
                format!("{}+1", &secret[2..]),
                "have a mistake in line 1, column 31: ",
            ),
            (
                format!("x\n{secret}\n{}\n", &secret[1..]),
                "have 2 mistakes\n  line 1, column 1: write 32 hexadecimal digits, such as openssl \
                 rand -hex 16 prints\n  line 3, column 32: write",
            ),
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
