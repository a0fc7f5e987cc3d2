//! A parsed question with the hash for its lookup.

use crate::answers::{Answers, Foreseen, ZoneNumber};
use crate::key::Key;
use crate::query::{Malformed, NameBuf, RawQuestion, parse_question};

/// A parsed question, with the key of its name, and the zone that answers it.
#[derive(Clone, Debug)]
pub(crate) struct HashedQuestion {
    pub(crate) question: RawQuestion,
    /// The number of the zone, if the name is in one of our zones.
    pub(crate) zone: ZoneNumber,
    pub(crate) key: Key,
    /// What was found in advance for the answer.
    pub(crate) foreseen: Foreseen,
}

impl HashedQuestion {
    /// Creates an empty value. [`read`](Self::read) fills it.
    pub(crate) const fn new() -> Self {
        Self {
            question: RawQuestion {
                name_len: 0,
                qtype: 0,
                qclass: 0,
                end: 0,
                is_compressed: false,
            },
            zone: ZoneNumber::NONE,
            key: Key::new(),
            foreseen: Foreseen::NONE,
        }
    }

    /// Parses the question of `message`, computes its key, and finds its zone. A compressed
    /// name is decompressed into `expanded`.
    ///
    /// # Errors
    ///
    /// See [`parse_question`].
    #[inline(always)]
    pub(crate) fn read(
        &mut self,
        message: &[u8],
        answers: &Answers,
        expanded: &mut NameBuf,
    ) -> Result<(), Malformed> {
        self.parse(message, answers, expanded)?;
        self.find_zone(answers);
        Ok(())
    }

    /// Like [`read`](Self::read), but does not find the zone.
    #[inline(always)]
    pub(crate) fn parse(
        &mut self,
        message: &[u8],
        answers: &Answers,
        expanded: &mut NameBuf,
    ) -> Result<(), Malformed> {
        self.question = parse_question(message, answers.hashing(), &mut self.key, expanded)?;
        Ok(())
    }

    /// Finds the zone of a parsed question.
    #[inline(always)]
    pub(crate) fn find_zone(&mut self, answers: &Answers) {
        self.zone = answers.zone_of(self.question.qtype, &self.key);
    }

    /// Returns the hash of the type and the name.
    #[inline(always)]
    pub(crate) fn hash(&self) -> u64 {
        self.key.hash_with(self.question.qtype)
    }
}
