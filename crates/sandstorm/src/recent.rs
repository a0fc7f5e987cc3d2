//! Requests seen lately, whole, and their answers.
//!
//! A client says the same words with every request, and many clients say the
//! same: most of a request's work would be to read them again. What a request
//! is answered with depends on its bytes and the site alone, so that bytes
//! seen before need no reading: one hash, one comparison.

use xxhash_rust::xxh3::xxh3_64;

use crate::session::Answer;

/// Requests that are remembered: what the second-level cache of a core has
/// room for beside packets. A power of two.
const ENTRIES: usize = 128;
/// The longest request that is remembered: browsers' are about as long.
const MAX_LEN: usize = 512 - size_of::<(Answer, u16)>();

#[derive(Clone, Copy, Debug)]
struct Entry {
    answer: Answer,
    /// 0 when there is none.
    len: u16,
    bytes: [u8; MAX_LEN],
}

// A power of two, so that an entry is found by a shift.
const _: () = assert!(size_of::<Entry>() == 512);

/// The requests of one worker; each new one takes the place of another that
/// hashes alike.
#[derive(Debug)]
pub(crate) struct Recent(Box<[Entry]>);

impl Recent {
    pub(crate) fn new() -> Self {
        let none = Entry {
            answer: Answer::NONE,
            len: 0,
            bytes: [0; MAX_LEN],
        };
        Self(vec![none; ENTRIES].into())
    }

    /// Gives the answer to `request`, by `read` when it is not known, and
    /// remembers it. `read` must depend on nothing else.
    #[inline]
    pub(crate) fn answer(
        &mut self,
        request: &[u8],
        read: impl FnOnce() -> Option<Answer>,
    ) -> Option<Answer> {
        if !(1..=MAX_LEN).contains(&request.len()) {
            return read();
        }
        let entry = &mut self.0[xxh3_64(request) as usize % ENTRIES];
        if entry.bytes[..usize::from(entry.len)] == *request {
            return Some(entry.answer);
        }
        let answer = read()?;
        entry.answer = answer;
        entry.len = request.len() as u16;
        entry.bytes[..request.len()].copy_from_slice(request);
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(consumed: usize) -> Answer {
        let mut answer = Answer::NONE;
        answer.consumed = consumed;
        answer
    }

    #[test]
    fn what_was_read_is_not_read_again() {
        let mut recent = Recent::new();
        let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        assert_eq!(recent.answer(request, || None), None, "not whole yet");
        assert_eq!(
            recent.answer(request, || Some(answer(27))),
            Some(answer(27))
        );
        let again = || unreachable!("it is known");
        assert_eq!(recent.answer(request, again), Some(answer(27)));
        let longer = [&request[..], b"GET"].concat();
        assert_eq!(recent.answer(&longer, || Some(answer(1))), Some(answer(1)));
    }

    #[test]
    fn others_take_its_place_and_never_its_answer() {
        let mut recent = Recent::new();
        for round in 0..3 {
            for i in 1..5 * ENTRIES {
                let request = format!("GET /{i} HTTP/1.1\r\nHost: x\r\n\r\n");
                let found = recent.answer(request.as_bytes(), || Some(answer(i)));
                assert_eq!(found, Some(answer(i)), "round {round}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_read_each_time() {
        let mut recent = Recent::new();
        for (len, expected) in [(0, 3), (1, 1), (MAX_LEN, 1), (MAX_LEN + 1, 3), (5000, 3)] {
            let mut reads = 0;
            for _ in 0..3 {
                let found = recent.answer(&vec![b'x'; len], || {
                    reads += 1;
                    Some(answer(len))
                });
                assert_eq!(found, Some(answer(len)));
            }
            assert_eq!(reads, expected, "{len} bytes");
        }
    }
}
