//! Errors about the words of a text.

use std::error::Error;
use std::fmt::{self, Debug, Display};

/// Why words of one text are wrong, each with the word's offset in the text.
///
/// `Display` writes a single reason as it is, and several reasons on a line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongWords<E>(Vec<(usize, E)>);

impl<E> Default for WrongWords<E> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<E> WrongWords<E> {
    /// Returns the error about a whole text.
    pub fn whole(why: E) -> Self {
        Self(vec![(0, why)])
    }

    /// Adds the reason why `word` is wrong, which is a part of `text`.
    pub fn add(&mut self, text: &str, word: &str, why: E) {
        let at = word.as_ptr().addr().checked_sub(text.as_ptr().addr());
        let at = at.filter(|at| *at <= text.len());
        self.0.push((at.unwrap_or(0), why));
    }

    /// Returns the value of `word`, which is a part of `text`, or adds the reason why it has none.
    pub fn take<T>(&mut self, text: &str, word: &str, found: Result<T, E>) -> Option<T> {
        found.map_err(|why| self.add(text, word, why)).ok()
    }

    /// Returns the value of the text if no word is wrong.
    ///
    /// # Errors
    /// The wrong words, in the order of their places.
    pub fn finish<T>(mut self, value: Option<T>) -> Result<T, Self> {
        self.0.sort_by_key(|(at, _)| *at);
        value.filter(|_| self.is_empty()).ok_or(self)
    }

    /// Returns true if no word is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns each offset, in bytes, with the reason.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &E)> {
        self.0.iter().map(|(at, why)| (*at, why))
    }

    /// Returns the same errors about a text that has `len` bytes more at its start.
    #[must_use]
    pub fn behind(self, len: usize) -> Self {
        Self(
            self.0
                .into_iter()
                .map(|(at, why)| (at + len, why))
                .collect(),
        )
    }

    /// Returns the same places with what `of` makes of each reason.
    pub fn map<O>(self, mut of: impl FnMut(E) -> O) -> WrongWords<O> {
        let mapped = self.0.into_iter().map(|(at, why)| (at, of(why)));
        WrongWords(mapped.collect())
    }
}

impl<E: Display> Display for WrongWords<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (_, why)) in self.0.iter().enumerate() {
            let before = if nth == 0 { "" } else { "\n" };
            write!(f, "{before}{why}")?;
        }
        Ok(())
    }
}

impl<E: Debug + Display> Error for WrongWords<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wrong_word_has_its_place() {
        let text = "a,bc,d";
        let mut wrong = WrongWords::default();
        assert_eq!(wrong.take(text, &text[5..], Err::<u8, _>("no d")), None);
        assert_eq!(wrong.take(text, &text[..1], Ok(7)), Some(7));
        wrong.add(text, &text[2..4], "no bc");
        wrong.add(text, "elsewhere", "not here");
        let wrong = wrong.finish(Some(7)).unwrap_err();
        let places: Vec<_> = wrong.iter().collect();
        assert_eq!(places[1..], [(2, &"no bc"), (5, &"no d")]);
        assert_eq!(wrong.to_string(), "not here\nno bc\nno d");
        let behind = wrong.behind(4).map(str::len);
        let places: Vec<_> = behind.iter().collect();
        assert_eq!(places, [(4, &8), (6, &5), (9, &4)]);
        let right = WrongWords::<&str>::default();
        assert_eq!(right.finish(Some(7)), Ok(7));
    }
}
