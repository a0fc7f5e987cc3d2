//! Keys that no peer knows.

use std::fmt;
use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// 256 random bits from the system, which key a worker's hashes, initial
/// sequence numbers and SYN cookies.
///
/// There is one way to make it, so that none is ever constant.
#[derive(Clone)]
pub struct Secret([u64; 4]);

impl Secret {
    /// A new one.
    ///
    /// # Errors
    /// When the system gives no random bytes, or a word of zeros.
    pub fn random() -> io::Result<Self> {
        let mut words = [0; 4];
        for word in &mut words {
            let mut bytes = [0; 8];
            // At most 256 bytes come at once and whole, once the system has any.
            getrandom(&mut bytes, GetRandomFlags::empty())?;
            *word = u64::from_ne_bytes(bytes);
        }
        if words.contains(&0) {
            return Err(io::Error::other("the system's random bytes are zeros"));
        }
        Ok(Self(words))
    }

    /// In words, as the TCP stack takes it.
    pub fn words(&self) -> [u64; 4] {
        self.0
    }
}

/// Says nothing of the value.
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
    fn every_word_of_every_secret_is_another() {
        let secrets: Vec<_> = (0..8).map(|_| Secret::random().unwrap()).collect();
        let words: BTreeSet<u64> = secrets.iter().flat_map(Secret::words).collect();
        assert_eq!(words.len(), 8 * 4);
        assert!(!words.contains(&0));
    }

    #[test]
    fn a_log_does_not_show_it() {
        let secret = Secret::random().unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
    }
}
