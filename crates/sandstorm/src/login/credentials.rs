//! The name and the password of a request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The scheme of basic authentication, with the space that follows it. Its case does not matter.
const SCHEME: &[u8] = b"basic ";
/// Maximum length of name and password together, in bytes.
const MAX_LEN: usize = 512;

/// A name and a password, with a colon between (RFC 7617, section 2).
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials(Box<[u8]>);

impl Credentials {
    /// Reads the value of a field `Authorization`. Returns `None` if it is of another scheme, not valid,
    /// or too long.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let (scheme, encoded) = value.split_at_checked(SCHEME.len())?;
        let encoded = encoded.trim_ascii();
        if !scheme.eq_ignore_ascii_case(SCHEME) || encoded.len() > 4 * MAX_LEN.div_ceil(3) {
            return None;
        }
        let decoded = STANDARD.decode(encoded).ok()?;
        let is_valid = decoded.contains(&b':') && decoded.len() <= MAX_LEN;
        is_valid.then(|| Self(decoded.into()))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name.
    pub(crate) fn name(&self) -> &[u8] {
        self.split().0
    }

    /// The name and the password. A name has no colon.
    pub(super) fn split(&self) -> (&[u8], &[u8]) {
        let at = memchr::memchr(b':', &self.0).unwrap_or(self.0.len());
        let (name, rest) = self.0.split_at(at);
        (name, rest.get(1..).unwrap_or_default())
    }
}

impl std::fmt::Debug for Credentials {
    /// Shows no secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_and_password_are_read_and_everything_else_is_refused() {
        let read = |value: &str| Credentials::read(value.as_bytes());
        // The example of RFC 7617, section 2.
        let known = read("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==").unwrap();
        assert_eq!(known.split(), (&b"Aladdin"[..], &b"open sesame"[..]));
        assert_eq!(format!("{known:?}"), "Credentials");
        let split = |text: &str| {
            let value = format!("bAsIc  {}", STANDARD.encode(text));
            read(&value).map(|one| one.split().1.to_vec())
        };
        assert_eq!(split("name:"), Some(b"".to_vec()));
        assert_eq!(split(":a:b"), Some(b"a:b".to_vec()));
        assert_eq!(split("name"), None);
        let long = "x".repeat(MAX_LEN - 1);
        assert_eq!(split(&format!(":{long}")), Some(long.clone().into_bytes()));
        assert_eq!(split(&format!("a:{long}")), None);
        for wrong in [
            "",
            "Basic",
            "Basic ",
            "Basic QQ",
            "Basic QTpi QTpi",
            "Basic A===",
            "Bearer QTpi",
            "BasicQTpi",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert!(read(&format!("Basic {}", "A".repeat(8_000))).is_none());
    }
}
