//! Looking up a whole batch ahead.
//!
//! With many names a look-up reads two places that are in no cache: a slot of
//! the index and the answer. One after the other these waits cost more than
//! everything else that a query does. For a batch they are begun together:
//! first all slots are asked for, then all answers, and then the queries are
//! handled, each finding its memory near.
//!
//! Nothing is decided here. A frame that is not what it seems to be costs a
//! look-up in vain; the real parsing comes after.

use eth::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, HEADER_LEN};
use ip::{IPV4_HEADER_LEN, IPV6_HEADER_LEN, PROTOCOL_UDP};
use nmio::{Batch, Frame, MAX_BATCH, prefetch};

use crate::answers::Answers;
use crate::key::Key;
use crate::query::{NameBuf, parse_question};

/// Bytes of answers below which they stay in the processor's own caches, and
/// looking ahead would only be work.
const WORTH_FETCHING: usize = 2 << 20;
/// Frames asked for ahead of the one that is read: they were written by
/// somebody else, a device or another core.
const FRAMES_AHEAD: usize = 4;
/// Where the ethertype lies.
const ETHERTYPE_AT: usize = 12;

/// What the looking ahead of one worker writes in.
#[derive(Debug)]
pub(crate) struct Ahead {
    worth: bool,
    key: Key,
    expanded: NameBuf,
    hashes: [u64; MAX_BATCH],
}

impl Ahead {
    pub(crate) fn new(answers: &Answers) -> Self {
        Self {
            worth: answers.size().memory >= WORTH_FETCHING,
            key: Key::new(),
            expanded: NameBuf::new(),
            hashes: [0; MAX_BATCH],
        }
    }

    /// Asks for everything that the queries of `batch` will read.
    #[inline(always)]
    pub(crate) fn fetch(&mut self, answers: &Answers, batch: &Batch) {
        if self.worth && batch.len() > 1 {
            self.fetch_all(answers, batch);
        }
    }

    fn fetch_all(&mut self, answers: &Answers, batch: &[Frame]) {
        let mut count = 0;
        for frame in batch.iter().take(FRAMES_AHEAD) {
            prefetch(&**frame);
        }
        for (at, frame) in batch.iter().enumerate() {
            if let Some(next) = batch.get(at + FRAMES_AHEAD) {
                prefetch(&**next);
            }
            let Some(message) = message(frame) else {
                continue;
            };
            let (key, expanded) = (&mut self.key, &mut self.expanded);
            if let Ok(question) = parse_question(message, answers.form(), key, expanded) {
                self.hashes[count] = answers.fetch_slot(question.qtype, key.bytes());
                count += 1;
            }
        }
        for hash in &self.hashes[..count] {
            answers.fetch_answer(*hash);
        }
    }
}

/// The DNS message in a frame that seems to be a UDP packet without tag,
/// options or extension headers.
#[inline(always)]
fn message(frame: &[u8]) -> Option<&[u8]> {
    let ethertype = frame.get(ETHERTYPE_AT..)?.first_chunk()?;
    let (protocol_at, header_len) = match u16::from_be_bytes(*ethertype) {
        ETHERTYPE_IPV4 => (9, IPV4_HEADER_LEN),
        ETHERTYPE_IPV6 => (6, IPV6_HEADER_LEN),
        _ => return None,
    };
    if *frame.get(HEADER_LEN + protocol_at)? != PROTOCOL_UDP {
        return None;
    }
    frame.get(HEADER_LEN + header_len + udpip::HEADER_LEN..)
}
