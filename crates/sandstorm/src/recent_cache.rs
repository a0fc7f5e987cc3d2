//! A cache that maps recently received bytes to their meaning, for example to the site's answer.
//!
//! Clients repeat the same bytes in their requests, and many clients send the same bytes. An answer
//! depends only on the request's bytes and on the site. So known bytes need no parsing: a hash and
//! a comparison suffice.

use std::fmt::{self, Debug};

use xxhash_rust::xxh3::xxh3_64;

/// Number of entries, a power of two. The keys of typical requests leave room for packets in a
/// core's second-level cache.
const ENTRIES: usize = 128;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Entry<T, const MAX_LEN: usize> {
    /// Hash of the key.
    hash: u64,
    /// `None` if the entry is free.
    value: Option<T>,
    /// Length of the key.
    len: u16,
    /// Length of the key and of what was remembered with it.
    end: u16,
    bytes: [u8; MAX_LEN],
}

impl<T, const MAX_LEN: usize> Entry<T, MAX_LEN> {
    /// The bytes that were remembered with the key.
    #[inline(always)]
    fn more(&self) -> &[u8] {
        &self.bytes[usize::from(self.len)..usize::from(self.end)]
    }
}

/// The cache of one worker, for keys of up to `MAX_LEN` bytes. Each key has one possible entry, and a
/// new key replaces the old one there.
///
/// Keys contain secrets of clients, such as cookies. [`find`](Self::find) compares bytes only after
/// equal hashes. So its duration does not tell how much of a guessed key is right.
pub(crate) struct RecentCache<T, const MAX_LEN: usize>(Box<[Entry<T, MAX_LEN>]>);

/// The entry for a key, named by the hash of the key; see [`RecentCache::find`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CachePlace(u64);

impl CachePlace {
    /// The entry for a key that [`find`](RecentCache::find) has found.
    #[cold]
    pub(crate) fn of(key: &[u8]) -> Self {
        Self(xxh3_64(key))
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize % ENTRIES
    }
}

impl<T: Copy, const MAX_LEN: usize> RecentCache<T, MAX_LEN> {
    /// Size of an entry in bytes.
    pub(crate) const ENTRY_SIZE: usize = size_of::<Entry<T, MAX_LEN>>();

    pub(crate) fn new() -> Self {
        const { assert!(MAX_LEN <= u16::MAX as usize) };
        let none = Entry {
            hash: 0,
            value: None,
            len: 0,
            end: 0,
            bytes: [0; MAX_LEN],
        };
        Self(vec![none; ENTRIES].into())
    }

    /// Forgets all values.
    pub(crate) fn clear(&mut self) {
        self.0.iter_mut().for_each(|entry| entry.value = None);
    }

    /// Returns the value for `bytes`. If there is none, returns the entry in which to store the
    /// value. Empty and overlong keys have no entry.
    #[inline(always)]
    pub(crate) fn find(&self, bytes: &[u8]) -> Result<T, Option<CachePlace>> {
        self.find_entry(bytes).map(|(value, _)| value)
    }

    /// Same as [`find`](Self::find), but also returns the bytes that were remembered with the key.
    #[inline(always)]
    pub(crate) fn find_with_more(&self, bytes: &[u8]) -> Result<(T, &[u8]), Option<CachePlace>> {
        let found = self.find_entry(bytes);
        found.map(|(value, entry)| (value, entry.more()))
    }

    #[inline(always)]
    fn find_entry(&self, bytes: &[u8]) -> Result<(T, &Entry<T, MAX_LEN>), Option<CachePlace>> {
        if !(1..=MAX_LEN).contains(&bytes.len()) {
            return Err(None);
        }
        let place = CachePlace(xxh3_64(bytes));
        let entry = &self.0[place.index()];
        match entry.value {
            Some(value)
                if entry.hash == place.0 && entry.bytes[..usize::from(entry.len)] == *bytes =>
            {
                Ok((value, entry))
            }
            _ => Err(Some(place)),
        }
    }

    /// Stores a value for `bytes` in the entry that [`find`](Self::find) returned.
    #[inline]
    pub(crate) fn remember(&mut self, place: Option<CachePlace>, bytes: &[u8], value: T) {
        let Some(place) = place else { return };
        let entry = &mut self.0[place.index()];
        entry.hash = place.0;
        entry.value = Some(value);
        entry.len = bytes.len() as u16;
        entry.end = entry.len;
        entry.bytes[..bytes.len()].copy_from_slice(bytes);
    }

    /// Same as [`remember`](Self::remember), but also stores `more` bytes. If there is no room for them,
    /// stores nothing.
    pub(crate) fn remember_with_more(
        &mut self,
        place: Option<CachePlace>,
        bytes: &[u8],
        more: &[u8],
        value: T,
    ) {
        let end = bytes.len() + more.len();
        let Some(place) = place.filter(|_| end <= MAX_LEN) else {
            return;
        };
        self.remember(Some(place), bytes, value);
        let entry = &mut self.0[place.index()];
        entry.end = end as u16;
        entry.bytes[bytes.len()..end].copy_from_slice(more);
    }

    /// Changes the value for `bytes`, which was remembered with `more` bytes. Returns its entry, or `None` if
    /// there is no value.
    pub(crate) fn replace(&mut self, bytes: &[u8], more: &[u8], value: T) -> Option<CachePlace> {
        let (_, entry) = self.find_entry(bytes).ok()?;
        if entry.more() != more {
            return None;
        }
        let place = CachePlace(entry.hash);
        self.0[place.index()].value = Some(value);
        Some(place)
    }

    /// Forgets the value in this entry, unless the entry has another key meanwhile.
    pub(crate) fn forget(&mut self, place: CachePlace) {
        let entry = &mut self.0[place.index()];
        if entry.hash == place.0 {
            entry.value = None;
        }
    }
}

impl<T, const MAX_LEN: usize> Debug for RecentCache<T, MAX_LEN> {
    /// Does not write the keys, because they contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecentCache").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_LEN: usize = 480;

    fn add(recent: &mut RecentCache<usize, MAX_LEN>, bytes: &[u8], value: usize) {
        let place = recent.find(bytes).unwrap_err();
        recent.remember(place, bytes, value);
    }

    #[test]
    fn remembered_bytes_are_found() {
        let mut recent = RecentCache::new();
        let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        add(&mut recent, request, 27);
        assert_eq!(recent.find(request), Ok(27));
        let longer = [&request[..], b"GET"].concat();
        add(&mut recent, &longer, 1);
        assert_eq!(recent.find(&longer), Ok(1));
    }

    #[test]
    fn a_key_may_be_replaced_but_never_returns_the_value_of_another() {
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
    fn another_key_with_the_same_hash_is_not_found() {
        let mut recent = RecentCache::<usize, MAX_LEN>::new();
        let place = recent.find(b"ours").unwrap_err();
        recent.remember(place, b"other", 1);
        assert_eq!(recent.find(b"ours"), Err(place));
    }

    #[test]
    fn no_key_is_written_for_debugging() {
        let mut recent = RecentCache::new();
        add(&mut recent, b"Cookie: secret", 1);
        assert_eq!(format!("{recent:?}"), "RecentCache { .. }");
    }

    #[test]
    fn bytes_that_were_remembered_with_a_key_are_returned_with_its_value() {
        let mut recent = RecentCache::<usize, MAX_LEN>::new();
        let place = recent.find(b"key").unwrap_err();
        recent.remember_with_more(place, b"key", b"more", 1);
        assert_eq!(recent.find_with_more(b"key"), Ok((1, &b"more"[..])));
        assert_eq!(
            recent.find_with_more(b"keymore"),
            Err(CachePlace(xxh3_64(b"keymore")).into())
        );
        assert_eq!(recent.replace(b"key", b"other", 2), None);
        assert_eq!(recent.replace(b"key", b"more", 2), place);
        assert_eq!(recent.find(b"key"), Ok(2));
        let overlong = [b'x'; MAX_LEN - 2];
        recent.remember_with_more(place, b"key", &overlong, 3);
        assert_eq!(recent.find(b"key"), Ok(2));
        recent.remember_with_more(place, b"key", &overlong[1..], 3);
        assert_eq!(recent.find_with_more(b"key"), Ok((3, &overlong[1..])));
        recent.forget(place.unwrap());
        assert_eq!(recent.find(b"key"), Err(place));
    }

    #[test]
    fn empty_and_too_long_keys_are_not_remembered() {
        let mut recent = RecentCache::new();
        for (len, is_kept) in [(0, false), (1, true), (MAX_LEN, true), (MAX_LEN + 1, false)] {
            let bytes = vec![b'x'; len];
            add(&mut recent, &bytes, len);
            assert_eq!(recent.find(&bytes).ok(), is_kept.then_some(len));
        }
    }
}
