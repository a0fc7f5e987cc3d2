//! Looking up a whole batch ahead.
//!
//! With many names a look-up reads two places that are in no cache: a slot of
//! the index and the answer. One after the other these waits cost more than
//! everything else that a query does. For a batch they are begun together:
//! first all slots are asked for, then all answers, and then the queries are
//! handled, each finding its memory near.
//!
//! Nothing is decided here. A datagram that is no query costs a look-up in
//! vain. A question that has been read here is not read again when its query
//! is handled.

use ip::Input;
use nmio::MAX_BATCH;

use crate::answers::Answers;
use crate::asked::Asked;
use crate::query::NameBuf;

/// Bytes of answers below which they stay in the processor's own caches, and
/// looking ahead would only be work.
const WORTH_FETCHING: usize = 2 << 20;

/// What the looking ahead of one worker writes in.
#[derive(Debug)]
pub(crate) struct Ahead {
    worth: bool,
    expanded: NameBuf,
    /// By their places in the batch.
    read: Box<[Read]>,
}

/// What was read of one part of a batch.
#[derive(Clone, Debug)]
struct Read {
    /// `false` where there is no question, or its name is compressed: only one
    /// decompressed name is kept at a time.
    is_whole: bool,
    asked: Asked,
}

impl Ahead {
    pub(crate) fn new(answers: &Answers) -> Self {
        let nothing = Read {
            is_whole: false,
            asked: Asked::new(),
        };
        Self {
            worth: answers.size().memory >= WORTH_FETCHING,
            expanded: NameBuf::new(),
            read: vec![nothing; MAX_BATCH].into_boxed_slice(),
        }
    }

    /// Whether it is worth the work for a batch of `len` frames.
    #[inline(always)]
    pub(crate) fn is_worth(&self, len: usize) -> bool {
        self.worth && len > 1
    }

    /// Reads the questions of a batch, and asks for everything that handling them
    /// will read.
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

    /// The question at this place of the batch, if it has been read.
    #[inline(always)]
    pub(crate) fn known(&mut self, place: usize) -> Option<&mut Asked> {
        let read = &mut self.read[place];
        read.is_whole.then_some(&mut read.asked)
    }
}

/// What seems to be a DNS message. Its length has not been checked.
#[inline(always)]
fn message(input: &Input) -> Option<&[u8]> {
    match input {
        Input::Udp(datagram) => datagram.payload().get(udpip::HEADER_LEN..),
        _ => None,
    }
}
