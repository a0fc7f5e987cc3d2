//! Prefetches the memory that the queries of a whole batch will need.
//!
//! With many names, a lookup causes two cache misses: one for the slot of the index, one for the
//! answer. These misses cost more than all other work on a query. In a batch, the misses of
//! different queries overlap: first all slots are prefetched, then all answers. When the queries
//! are handled, the slots and answers are already in the cache.
//!
//! Prefetching never affects the replies. For a datagram that is not a query, the lookup is merely
//! wasted. The parsed questions are kept, so that they need not be parsed again when their queries
//! are handled.

use ip::Input;
use nmio::MAX_BATCH;

use crate::answers::{Answers, ZoneAnswers};
use crate::hashed_question::HashedQuestion;
use crate::query::NameBuf;

/// Minimum total size in bytes of the answers and their index for which prefetching pays off.
/// Smaller data stays in the core's private caches.
const MIN_PREFETCHED: usize = 2 << 20;

/// The prefetcher of one worker, with the questions of the current batch.
#[derive(Debug)]
pub(crate) struct Prefetcher {
    is_worthwhile: bool,
    expanded: NameBuf,
    /// The parsed questions, indexed by the packet's position in the batch.
    questions: Box<[ParsedQuestion]>,
}

/// The parsed question of one packet of a batch.
#[derive(Clone, Debug)]
struct ParsedQuestion {
    /// Whether `question` holds a complete question. A question with a compressed name does not
    /// count, because the batch has only one buffer for a decompressed name.
    is_complete: bool,
    question: HashedQuestion,
}

impl ParsedQuestion {
    /// Returns the zone of a complete question, if there is one.
    #[inline(always)]
    fn zone<'a>(&self, answers: &'a Answers) -> Option<&'a ZoneAnswers> {
        let zone = answers.zone(self.question.zone);
        zone.filter(|_| self.is_complete)
    }
}

impl Prefetcher {
    pub(crate) fn new(answers: &Answers) -> Self {
        let empty = ParsedQuestion {
            is_complete: false,
            question: HashedQuestion::new(),
        };
        Self {
            is_worthwhile: answers.size().memory >= MIN_PREFETCHED,
            expanded: NameBuf::new(),
            questions: vec![empty; MAX_BATCH].into_boxed_slice(),
        }
    }

    /// Prefetches from other answers. The questions of the last batch are no longer valid.
    pub(crate) fn set_answers(&mut self, answers: &Answers) {
        self.is_worthwhile = answers.size().memory >= MIN_PREFETCHED;
    }

    /// Returns true if prefetching pays off for a batch of `len` frames.
    #[inline(always)]
    pub(crate) fn pays_off(&self, len: usize) -> bool {
        self.is_worthwhile && len > 1
    }

    /// Parses the questions of a batch, and prefetches the slots and answers that the queries will
    /// read.
    #[inline(always)]
    pub(crate) fn fetch(&mut self, answers: &Answers, inputs: &[Input]) {
        for (input, parsed) in inputs.iter().zip(&mut self.questions) {
            parsed.is_complete = false;
            let Some(message) = message(input) else {
                continue;
            };
            let result = parsed.question.read(message, answers, &mut self.expanded);
            parsed.is_complete = result.is_ok() && !parsed.question.question.is_compressed;
            if let Some(zone) = parsed.zone(answers) {
                zone.fetch_slot(parsed.question.hash);
            }
        }
        for parsed in &self.questions[..inputs.len()] {
            if let Some(zone) = parsed.zone(answers) {
                zone.fetch_answer(parsed.question.hash);
            }
        }
    }

    /// Returns the parsed question of the packet at this position in the batch, if the question is
    /// complete and not compressed.
    #[inline(always)]
    pub(crate) fn question(&mut self, position: usize) -> Option<&mut HashedQuestion> {
        let parsed = &mut self.questions[position];
        parsed.is_complete.then_some(&mut parsed.question)
    }
}

/// Returns the bytes after the UDP header, which may be a DNS message. They may extend beyond the
/// datagram's end, because the UDP length field has not been checked. Returns `None` for other
/// packets.
#[inline(always)]
fn message(input: &Input) -> Option<&[u8]> {
    match input {
        Input::Udp(datagram) => datagram.payload().get(udpip::HEADER_LEN..),
        _ => None,
    }
}
