//! Reads the text of a configuration file.

use std::io::{self, Read as _};
use std::path::Path;

use crate::config::position::TextLines;
use crate::ordinary_file::open_ordinary;

/// Maximum size of a configuration file in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// Returns the text of a file, or a message for the operator.
pub(super) fn text_of(path: &Path) -> Result<String, String> {
    let name = path.display().to_string();
    let name = name.escape_debug();
    let unreadable = |error: io::Error| format!("cannot read {name}: {error}{}", remedy(&error));
    let mut bytes = Vec::new();
    let file = open_ordinary(path).map_err(unreadable)?;
    let mut file = file.take(MAX_BYTES + 1);
    file.read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        let most = MAX_BYTES >> 20;
        return Err(format!("{name} has more than {most} MiB; shorten it"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let text = String::from_utf8_lossy(error.as_bytes());
        let position = TextLines::new(&text).position(error.utf8_error().valid_up_to());
        format!("{name}:{position}: this character is not UTF-8; save the file as UTF-8")
    })
}

/// Returns what helps against an error of reading the file, behind the error.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; let this user read it",
        // Something that is not a file is of the kind `Other`.
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::Other => {
            "; --config takes the path of a TOML file"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_for_an_unreadable_file_fits_the_error() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path(), &folder.path().join("none")] {
            let error = text_of(path).unwrap_err();
            assert!(error.ends_with("; --config takes the path of a TOML file"));
        }
        let denied = remedy(&io::ErrorKind::PermissionDenied.into());
        assert_eq!(denied, "; let this user read it");
    }
}
