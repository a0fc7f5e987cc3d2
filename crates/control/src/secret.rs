//! Random keys that peers cannot predict.

use std::fmt;
use std::io;

/// 256 random bits from the system. They are the key of a worker's hashes, initial sequence numbers
/// and SYN cookies.
///
/// [`random`](Self::random) is the only constructor, so no secret can be a constant.
#[derive(Clone)]
pub struct Secret([u64; 4]);

impl Secret {
    /// Creates a new random secret.
    ///
    /// # Errors
    /// If the system returns no random bytes, or only zeros for one of the four words.
    pub fn random() -> io::Result<Self> {
        let mut words = [0; 4];
        for word in &mut words {
            let mut bytes = [0; 8];
            getrandom::fill(&mut bytes)?;
            *word = u64::from_ne_bytes(bytes);
        }
        if words.contains(&0) {
            return Err(io::Error::other("the system's random bytes are zeros"));
        }
        Ok(Self(words))
    }

    /// Returns the secret as four words, the form that the TCP stack expects.
    pub fn words(&self) -> [u64; 4] {
        self.0
    }
}

/// Hides the value, so that no log can contain it.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn all_words_of_all_secrets_differ() {
        let secrets: Vec<_> = (0..8).map(|_| Secret::random().unwrap()).collect();
        let words: BTreeSet<u64> = secrets.iter().flat_map(Secret::words).collect();
        assert_eq!(words.len(), 8 * 4);
        assert!(!words.contains(&0));
    }

    #[test]
    fn debug_output_hides_the_secret() {
        let secret = Secret::random().unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
    }
}
