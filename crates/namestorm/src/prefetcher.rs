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

use crate::answers::Answers;
use crate::hashed_question::HashedQuestion;
use crate::query::NameBuf;

/// Minimum total size in bytes of the answers and their index for which prefetching pays off.
/// Smaller data stays in the core's private caches.
const MIN_PREFETCHED: usize = 2 << 20;

/// The prefetcher of one worker, with the questions of the current batch.
#[derive(Debug)]
pub(crate) struct Prefetcher {
    worth: bool,
    expanded: NameBuf,
    /// The parsed questions, indexed by the packet's position in the batch.
    read: Box<[Read]>,
}

/// The parsed question of one packet of a batch.
#[derive(Clone, Debug)]
struct Read {
    /// Whether `asked` holds a complete question. A question with a compressed name does not count,
    /// because the batch has only one buffer for a decompressed name.
    is_whole: bool,
    asked: HashedQuestion,
}

impl Prefetcher {
    pub(crate) fn new(answers: &Answers) -> Self {
        let nothing = Read {
            is_whole: false,
            asked: HashedQuestion::new(),
        };
        Self {
            worth: answers.size().memory >= MIN_PREFETCHED,
            expanded: NameBuf::new(),
            read: vec![nothing; MAX_BATCH].into_boxed_slice(),
        }
    }

    /// Returns true if prefetching pays off for a batch of `len` frames.
    #[inline(always)]
    pub(crate) fn is_worth(&self, len: usize) -> bool {
        self.worth && len > 1
    }

    /// Parses the questions of a batch, and prefetches the slots and answers that the queries will
    /// read.
    #[inline(always)]
    pub(crate) fn fetch(&mut self, answers: &Answers, inputs: &[Input]) {
        for (input, read) in inputs.iter().zip(&mut self.read) {
            read.is_whole = false;
            let Some(message) = message(input) else {
                continue;
            };
            let parsed = read.asked.read(message, answers, &mut self.expanded);
            read.is_whole = parsed.is_ok() && !read.asked.question.is_compressed;
            if read.is_whole {
                answers.fetch_slot(read.asked.hash);
            }
        }
        for read in &self.read[..inputs.len()] {
            if read.is_whole {
                answers.fetch_answer(read.asked.hash);
            }
        }
    }

    /// Returns the parsed question of the packet at this position in the batch, if the question is
    /// complete and not compressed.
    #[inline(always)]
    pub(crate) fn known(&mut self, place: usize) -> Option<&mut HashedQuestion> {
        let read = &mut self.read[place];
        read.is_whole.then_some(&mut read.asked)
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
