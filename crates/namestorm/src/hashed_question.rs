//! A parsed question with the hash for its lookup.

use crate::answers::{Answer, Answers, Foreseen, ZoneAnswers, ZoneNumber};
use crate::key::Key;
use crate::query::{Malformed, NameBuf, RawQuestion, parse_question};

/// A parsed question, with the key of its name, and the zone to search for its answer.
#[derive(Clone, Debug)]
pub(crate) struct HashedQuestion {
    pub(crate) question: RawQuestion,
    /// The number of the zone to search, if there is one. If the server has only one zone, the name may
    /// be outside it.
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

    /// Parses the question of `message`, computes its key, and finds the zone to search. A compressed
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

    /// Finds the zone to search for the answer to a parsed question.
    #[inline(always)]
    pub(crate) fn find_zone(&mut self, answers: &Answers) {
        self.zone = answers.zone_to_search(self.question.qtype, &self.key);
    }

    /// Returns the hash of the type and the name.
    #[inline(always)]
    pub(crate) fn hash(&self) -> u64 {
        self.key.hash_with(self.question.qtype)
    }

    /// Returns the answer that was prepared for the type and the name.
    #[inline(always)]
    pub(crate) fn find_answer<'a>(&self, answers: &'a Answers) -> Option<Answer<'a>> {
        let zone = answers.zone(self.zone)?;
        zone.find(self.question.qtype, &self.key)
    }

    /// Returns the zone. Sets it to [`NONE`](ZoneNumber::NONE) if the name is outside it.
    pub(crate) fn check_zone<'a>(&mut self, answers: &'a Answers) -> Option<&'a ZoneAnswers> {
        self.zone = answers.if_within(self.zone, &self.key);
        answers.zone(self.zone)
    }
}
