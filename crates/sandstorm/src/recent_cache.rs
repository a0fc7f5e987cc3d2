//! Bytes that were read lately, and what they say.
//!
//! A client sends the same words with every request, and many clients send the
//! same words. What a request is answered with depends on its bytes and the site
//! alone, and what its fields say on theirs. So bytes that were seen before need
//! no reading: one hash, one comparison.

use xxhash_rust::xxh3::xxh3_64;

/// Pieces that are remembered: the second-level cache of a core has room for them
/// beside packets. A power of two.
const ENTRIES: usize = 128;
/// The longest piece that is remembered: browsers' requests are about as long.
const MAX_LEN: usize = 480;

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Entry<T> {
    /// `None` in an entry that is free.
    value: Option<T>,
    len: u16,
    bytes: [u8; MAX_LEN],
}

const _: () = assert!(size_of::<Entry<crate::session::Answer>>() == 512);

/// What one worker remembers. Each new piece takes the place of another that
/// hashes alike.
#[derive(Debug)]
pub(crate) struct RecentCache<T>(Box<[Entry<T>]>);

/// Where a piece belongs: see [`RecentCache::find`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place(usize);

impl<T: Copy> RecentCache<T> {
    pub(crate) fn new() -> Self {
        let none = Entry {
            value: None,
            len: 0,
            bytes: [0; MAX_LEN],
        };
        Self(vec![none; ENTRIES].into())
    }

    /// What `bytes` say, or the place where it is to be remembered. There is none
    /// for no bytes, and for too many.
    #[inline(always)]
    pub(crate) fn find(&self, bytes: &[u8]) -> Result<T, Option<Place>> {
        if !(1..=MAX_LEN).contains(&bytes.len()) {
            return Err(None);
        }
        let place = Place(xxh3_64(bytes) as usize % ENTRIES);
        let entry = &self.0[place.0];
        match entry.value {
            Some(value) if entry.bytes[..usize::from(entry.len)] == *bytes => Ok(value),
            _ => Err(Some(place)),
        }
    }

    /// Remembers what `bytes` say, which [`find`](Self::find) has not found.
    #[inline]
    pub(crate) fn remember(&mut self, place: Option<Place>, bytes: &[u8], value: T) {
        let Some(place) = place else { return };
        let entry = &mut self.0[place.0];
        entry.value = Some(value);
        entry.len = bytes.len() as u16;
        entry.bytes[..bytes.len()].copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(recent: &mut RecentCache<usize>, bytes: &[u8], value: usize) {
        let place = recent.find(bytes).unwrap_err();
        recent.remember(place, bytes, value);
    }

    #[test]
    fn what_was_read_is_not_read_again() {
        let mut recent = RecentCache::new();
        let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        add(&mut recent, request, 27);
        assert_eq!(recent.find(request), Ok(27));
        let longer = [&request[..], b"GET"].concat();
        add(&mut recent, &longer, 1);
        assert_eq!(recent.find(&longer), Ok(1));
    }

    #[test]
    fn others_take_its_place_and_never_its_answer() {
        let mut recent = RecentCache::new();
        for round in 0..3 {
            for i in 1..5 * ENTRIES {
                let request = format!("GET /{i} HTTP/1.1\r\nHost: x\r\n\r\n");
                if let Ok(found) = recent.find(request.as_bytes()) {
                    assert_eq!(found, i, "round {round}");
                } else {
                    add(&mut recent, request.as_bytes(), i);
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_read_each_time() {
        let mut recent = RecentCache::new();
        for (len, is_kept) in [(0, false), (1, true), (MAX_LEN, true), (MAX_LEN + 1, false)] {
            let bytes = vec![b'x'; len];
            add(&mut recent, &bytes, len);
            assert_eq!(recent.find(&bytes).ok(), is_kept.then_some(len));
        }
    }
}
