//! Why data in wire format is not valid.

use std::fmt;

use crate::fields::LIST;

/// Why data is not valid for its type. Each `word` names a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The data ends before the end of a field.
    Short { word: &'static str },
    /// A field breaks a rule.
    Rule {
        word: &'static str,
        rule: &'static str,
    },
    /// A digest does not have the length that its algorithm demands.
    Digest {
        word: &'static str,
        expected: usize,
        found: usize,
    },
    /// Bytes follow the last field.
    Trailing { bytes: usize },
}

impl Fault {
    /// Returns the word of the wrong field, if it is one.
    pub(crate) fn word(&self) -> Option<&'static str> {
        match self {
            Self::Short { word } | Self::Rule { word, .. } | Self::Digest { word, .. } => {
                Some(word)
            }
            Self::Trailing { .. } => None,
        }
    }
}

/// Shows the word of a field. The word of a list stands for one of its items.
struct Shown(&'static str);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.strip_suffix(LIST) {
            Some(item) => write!(f, "the list of {item}"),
            None => f.write_str(self.0),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { word } => write!(f, "it ends before the end of {}", Shown(word)),
            Self::Rule { word, rule } => write!(f, "{} {rule}", Shown(word)),
            Self::Digest {
                word,
                expected,
                found,
            } => write!(
                f,
                "{word} must have {expected} bytes for this algorithm, not {found}"
            ),
            Self::Trailing { bytes } => write!(f, "{bytes} bytes follow its last field"),
        }
    }
}
