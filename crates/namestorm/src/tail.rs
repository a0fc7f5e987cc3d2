//! Writes the part of a message after its question: records with compressed names.

use crate::name;
use crate::rtype::{self, layout};

/// Offset of the question in a message.
pub(crate) const QUESTION_AT: usize = 12;
/// Size of the fields after the name in a question, in bytes: type and class.
pub(crate) const QUESTION_REST: usize = 4;
/// Maximum number of aliases followed in one answer. If a chain is longer, the resolver continues
/// from the last target.
pub(crate) const MAX_CHAIN: usize = 16;
/// Length of a compression pointer, in bytes.
pub(crate) const POINTER: usize = 2;
/// Size of the fields between a record's owner and its data, in bytes: type, class, TTL and data
/// length.
pub(crate) const FIELDS: usize = 10;
/// The bits that make a compression pointer of its target.
pub(crate) const POINTER_BITS: u16 = 0xc000;
/// Maximum length of the records that a chain of aliases can put before a tail, in bytes. Each
/// alias adds at most a DNAME and a CNAME record.
const MAX_CHAIN_LEN: usize = MAX_CHAIN * 2 * (POINTER + FIELDS + name::MAX_NAME);
/// The first offset in a message that a compression pointer cannot hold (RFC 1035, section 4.1.4).
pub(crate) const MAX_POINTER: usize = 0x4000;
/// Only offsets in the message below this limit may be targets of compression pointers. The
/// limit is lower than [`MAX_POINTER`], because a longer qname and a chain of aliases can move the tail
/// towards the end of the message.
const POINTER_LIMIT: usize = MAX_POINTER - name::MAX_NAME - MAX_CHAIN_LEN;
/// Maximum length of a message over TCP, in bytes (RFC 1035, section 4.2.2).
pub const MAX_TCP_MESSAGE: usize = 65_535;
/// Maximum number of names in a tail that are remembered as targets of pointers. The limit bounds
/// the time of the search for a target. Later names are compressed only against the remembered
/// names and the qname.
const MAX_KNOWN: usize = 64;
const CLASS_IN: u16 = 1;

/// The message would exceed the maximum length of a DNS message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// How the name that a tail is written for relates to the qname of a query that the tail answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// The name is the qname.
    Exact,
    /// The name is the qname or an ancestor of the qname: an apex, a cut or a DNAME owner.
    Above,
    /// The name is a wildcard. The qname is a name that the wildcard matches, or the wildcard
    /// itself.
    Wildcard,
}

/// A position in a tail that the writer can rewind to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    len: usize,
    known: usize,
    known_bytes: usize,
    fixups: usize,
}

/// A writer for the part of a message after its question.
///
/// Names are compressed against the qname that the tail is written for, and against each other. A
/// tail whose base is not [`Base::Exact`] is also used for longer qnames. The targets of its
/// pointers then move by the difference in length, and [`TailWriter::fixups`] lists these pointers.
/// The exception is an owner that is the whole wildcard of [`Base::Wildcard`]: its pointer always
/// leads to the start of the qname.
#[derive(Debug)]
pub(crate) struct TailWriter {
    qname: Vec<u8>,
    base: Base,
    bytes: Vec<u8>,
    fixups: Vec<u16>,
    /// Names written so far, to which pointers can lead. Each entry holds the name's offset in the
    /// tail and the start of its uncompressed copy in `known_bytes`. The last field is the length
    /// in bytes of the labels that were written literally.
    known: Vec<(u16, u32, u8)>,
    known_bytes: Vec<u8>,
}

impl TailWriter {
    /// Creates a writer, which can write many tails, one after another.
    pub(crate) fn new() -> Self {
        Self {
            qname: Vec::new(),
            base: Base::Exact,
            bytes: Vec::new(),
            fixups: Vec::new(),
            known: Vec::new(),
            known_bytes: Vec::new(),
        }
    }

    /// Reserves the memory that the longest tail needs, so that writing a tail with [`Base::Exact`]
    /// never allocates. Such a tail has no fixups, so no memory is reserved for them.
    pub(crate) fn reserve(&mut self) {
        self.qname.reserve(name::MAX_NAME);
        // A record is written before its length is checked, so the buffer may hold one record too
        // many.
        self.bytes.reserve(2 * MAX_TCP_MESSAGE + name::MAX_NAME);
        self.known.reserve(MAX_KNOWN);
        self.known_bytes.reserve(MAX_KNOWN * name::MAX_NAME);
    }

    /// Returns the capacity of each buffer.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> [usize; 5] {
        [
            self.qname.capacity(),
            self.bytes.capacity(),
            self.fixups.capacity(),
            self.known.capacity(),
            self.known_bytes.capacity(),
        ]
    }

    /// Discards everything written, and starts the tail of an answer to a question for `qname`.
    pub(crate) fn start(&mut self, qname: &[u8], base: Base) {
        self.qname.clear();
        self.qname.extend_from_slice(qname);
        self.base = base;
        self.bytes.clear();
        self.fixups.clear();
        self.known.clear();
        self.known_bytes.clear();
    }

    /// Returns the bytes written so far.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the offsets in the tail of the pointers that must be adjusted if the qname is
    /// longer. The list is empty for [`Base::Exact`].
    pub(crate) fn fixups(&self) -> &[u16] {
        &self.fixups
    }

    /// Returns true if the fixups are all pointers of the tail.
    pub(crate) fn lists_pointers(&self) -> bool {
        self.base == Base::Above
    }

    /// Returns the length of the whole message so far, in bytes.
    pub(crate) fn message_len(&self) -> usize {
        self.tail_at() + self.bytes.len()
    }

    /// Returns the length of the whole message so far with the longest qname that the tail answers, in bytes.
    pub(crate) fn longest_message_len(&self) -> usize {
        let growth = match self.base {
            Base::Exact => 0,
            Base::Above | Base::Wildcard => name::MAX_NAME - self.qname.len(),
        };
        self.message_len() + growth
    }

    /// Returns the current position.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            len: self.bytes.len(),
            known: self.known.len(),
            known_bytes: self.known_bytes.len(),
            fixups: self.fixups.len(),
        }
    }

    /// Removes everything written after `mark`.
    pub(crate) fn rewind(&mut self, mark: Mark) {
        self.bytes.truncate(mark.len);
        self.known.truncate(mark.known);
        self.known_bytes.truncate(mark.known_bytes);
        self.fixups.truncate(mark.fixups);
    }

    /// Writes one record. `data` is uncompressed. Names in the data are compressed if the type
    /// allows it.
    ///
    /// # Errors
    ///
    /// Returns an error if the message becomes too long. The caller must then rewind to the
    /// position before the record.
    pub(crate) fn record(
        &mut self,
        owner: &[u8],
        rtype: u16,
        ttl: u32,
        data: &[u8],
    ) -> Result<(), TooLong> {
        self.owner(owner);
        let data_at = push_fields(&mut self.bytes, rtype, ttl);
        let (fixed, names, rest) = rtype::split_data(rtype, data);
        self.bytes.extend_from_slice(fixed);
        for name in names {
            self.name(name);
        }
        self.bytes.extend_from_slice(rest);
        if self.message_len() > MAX_TCP_MESSAGE {
            return Err(TooLong);
        }
        set_data_len(&mut self.bytes, data_at);
        Ok(())
    }

    /// Writes records that were composed in advance for any qname. All compression pointers in
    /// these records lead to the start of the qname.
    ///
    /// # Errors
    ///
    /// Returns an error, and writes nothing, if the message would become too long.
    pub(crate) fn write_composed(&mut self, records: &[u8]) -> Result<(), TooLong> {
        if self.message_len() + records.len() > MAX_TCP_MESSAGE {
            return Err(TooLong);
        }
        self.bytes.extend_from_slice(records);
        Ok(())
    }

    fn tail_at(&self) -> usize {
        QUESTION_AT + self.qname.len() + QUESTION_REST
    }

    fn owner(&mut self, owner: &[u8]) {
        if owner != name::ROOT && name::eq(owner, &self.qname) {
            self.pointer(QUESTION_AT, self.base == Base::Above);
        } else {
            self.name(owner);
        }
    }

    fn pointer(&mut self, to: usize, shifts: bool) {
        if shifts && self.base != Base::Exact {
            self.fixups.push(self.bytes.len() as u16);
        }
        self.bytes.extend((POINTER_BITS | to as u16).to_be_bytes());
    }

    /// Writes a name, compressed as far as possible.
    fn name(&mut self, name: &[u8]) {
        let at = self.bytes.len();
        let mut start = 0;
        let mut to = None;
        while name[start] != 0 {
            to = self.find(&name[start..]);
            if to.is_some() {
                break;
            }
            start += 1 + usize::from(name[start]);
        }
        self.bytes.extend_from_slice(&name[..start]);
        match to {
            Some(to) => self.pointer(to, true),
            None => self.bytes.push(0),
        }
        if start > 0 && self.known.len() < MAX_KNOWN {
            let from = self.known_bytes.len() as u32;
            self.known_bytes.extend_from_slice(name);
            self.known.push((at as u16, from, start as u8));
        }
    }

    /// Returns the offset in the message of an earlier copy of `suffix` to which a pointer can
    /// lead.
    fn find(&self, suffix: &[u8]) -> Option<usize> {
        if let Some(cut) = self.qname.len().checked_sub(suffix.len())
            // A pointer must not lead to the whole wildcard, because a qname that the wildcard
            // matches has a different first label.
            && !(cut == 0 && self.base == Base::Wildcard)
            && name::is_within(&self.qname, suffix)
        {
            return Some(QUESTION_AT + cut);
        }
        for &(at, from, literal) in &self.known {
            let known = &self.known_bytes[from as usize..];
            let known = &known[..name::prefix_len(known)?];
            let Some(cut) = known.len().checked_sub(suffix.len()) else {
                continue;
            };
            let to = self.tail_at() + usize::from(at) + cut;
            // Only the literal labels can be targets, because the known name may continue with a
            // pointer.
            if cut < usize::from(literal) && to < POINTER_LIMIT && name::is_within(known, suffix) {
                return Some(to);
            }
        }
        None
    }
}

impl Default for TailWriter {
    fn default() -> Self {
        Self::new()
    }
}

/// Appends the fields between a record's owner and its data, whose length is not known yet. Returns
/// where the data begins.
pub(crate) fn push_fields(out: &mut Vec<u8>, rtype: u16, ttl: u32) -> usize {
    out.extend(rtype.to_be_bytes());
    out.extend(CLASS_IN.to_be_bytes());
    out.extend(ttl.to_be_bytes());
    out.extend([0; 2]);
    out.len()
}

/// Sets the length of the record's data that begins at `data_at` and ends with `out`.
pub(crate) fn set_data_len(out: &mut [u8], data_at: usize) {
    let len = (out.len() - data_at) as u16;
    out[data_at - 2..data_at].copy_from_slice(&len.to_be_bytes());
}

/// Changes the target of the pointer at offset `at` of a copied tail. `new` is called with the current
/// target in the message, and returns the new one.
///
/// # Panics
///
/// Panics if the pointer is not within the tail.
#[inline(always)]
pub(crate) fn map_pointer(tail: &mut [u8], at: usize, new: impl FnOnce(u16) -> u16) {
    let pointer: &mut [u8; 2] = tail[at..]
        .first_chunk_mut()
        .expect("fixups lie in their tail");
    let to = u16::from_be_bytes(*pointer) & !POINTER_BITS;
    *pointer = (POINTER_BITS | new(to)).to_be_bytes();
}

/// Splits the compressed name at the start of `bytes` into its literal labels and the target of the
/// pointer after them, if any.
pub(crate) fn split_name(bytes: &[u8]) -> (&[u8], Option<u16>) {
    let mut at = 0;
    loop {
        match bytes[at] {
            0 => return (&bytes[..at], None),
            high if high & 0xc0 == 0xc0 => {
                let to = u16::from_be_bytes([high & 0x3f, bytes[at + 1]]);
                return (&bytes[..at], Some(to));
            }
            len => at += 1 + usize::from(len),
        }
    }
}

/// Changes the target of every pointer in a tail. `new` is called with the current target in the
/// message, and returns the new one.
///
/// # Panics
///
/// Panics if `tail` does not hold this many records. A [`TailWriter`] must have written them.
pub(crate) fn map_pointers(tail: &mut [u8], records: u16, mut new: impl FnMut(u16) -> u16) {
    let mut map_name = |tail: &mut [u8], start: usize| {
        let (literal, to) = split_name(&tail[start..]);
        let at = start + literal.len();
        let Some(to) = to else {
            return at + 1;
        };
        let pointer = POINTER_BITS | new(to);
        tail[at..][..POINTER].copy_from_slice(&pointer.to_be_bytes());
        at + POINTER
    };
    let mut at = 0;
    for _ in 0..records {
        at = map_name(tail, at);
        let word = |at: usize| u16::from_be_bytes([tail[at], tail[at + 1]]);
        let (layout, len) = (layout(word(at)), usize::from(word(at + 8)));
        at += FIELDS;
        let mut name_at = at + layout.fixed;
        for _ in 0..layout.names {
            name_at = map_name(tail, name_at);
        }
        at += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Vec<u8> {
        name::parse(text).unwrap()
    }

    #[test]
    fn names_are_compressed_against_the_qname_and_each_other() {
        let mut writer = TailWriter::new();
        writer.start(&name("www.example.org"), Base::Exact);
        writer
            .record(&name("WWW.example.org"), 5, 60, &name("web.Example.org"))
            .unwrap();
        // The owner is a pointer to the qname. The data is "web" and a pointer to "example.org" in
        // the qname.
        let expected = b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x06\x03web\xc0\x10";
        assert_eq!(writer.bytes(), expected);
        let at = 12 + 17 + 4_u16;
        writer
            .record(&name("web.example.org"), 1, 60, &[1, 2, 3, 4])
            .unwrap();
        let owner = &writer.bytes()[expected.len()..][..2];
        assert_eq!(owner, (0xc000 | (at + 12)).to_be_bytes());
        assert!(writer.fixups().is_empty());
    }

    #[test]
    fn pointers_that_must_move_are_listed_as_fixups() {
        let mut writer = TailWriter::new();
        writer.start(&name("*.w.org"), Base::Wildcard);
        // As the owner, the wildcard stands for the qname, so the owner becomes a pointer. In the
        // data, the wildcard is an ordinary name.
        writer
            .record(&name("*.w.org"), 5, 60, &name("*.w.org"))
            .unwrap();
        assert_eq!(writer.bytes()[..2], *b"\xc0\x0c");
        assert_eq!(writer.bytes()[12..], *b"\x01*\xc0\x0e");
        assert_eq!(writer.fixups(), [14]);
        let mut longer = writer.bytes().to_vec();
        map_pointer(&mut longer, 14, |to| to + 3);
        assert_eq!(longer[12..], *b"\x01*\xc0\x11");
        writer.start(&name("w.org"), Base::Above);
        writer.record(&name("w.org"), 1, 60, &[1; 4]).unwrap();
        assert_eq!(writer.fixups(), [0]);
    }

    #[test]
    fn rewind_removes_records_and_compression_targets() {
        let mut writer = TailWriter::new();
        writer.start(&name("a.org"), Base::Above);
        let mark = writer.mark();
        let before = writer.message_len();
        writer
            .record(&name("b.org"), 2, 60, &name("c.b.org"))
            .unwrap();
        writer.rewind(mark);
        assert_eq!(writer.message_len(), before);
        assert!(writer.fixups().is_empty());
        writer.record(&name("b.org"), 1, 60, &[1; 4]).unwrap();
        assert_eq!(writer.bytes()[..4], *b"\x01b\xc0\x0e");
    }

    #[test]
    fn the_root_is_never_compressed() {
        let mut writer = TailWriter::new();
        writer.start(name::ROOT, Base::Above);
        writer.record(name::ROOT, 2, 60, name::ROOT).unwrap();
        assert_eq!(writer.bytes()[0], 0);
        assert_eq!(writer.bytes().len(), 1 + 10 + 1);
        assert!(writer.fixups().is_empty());
    }

    #[test]
    fn names_beyond_the_reach_of_pointers_are_not_compressed() {
        let mut writer = TailWriter::new();
        writer.start(&name("a.org"), Base::Exact);
        for _ in 0..70 {
            writer.record(&name("a.org"), 16, 60, &[0; 255]).unwrap();
        }
        let mark = writer.mark();
        writer
            .record(&name("a.org"), 2, 60, &name("far.net"))
            .unwrap();
        writer
            .record(&name("a.org"), 2, 60, &name("far.net"))
            .unwrap();
        let ends = writer.bytes()[mark.len..].windows(9);
        assert_eq!(ends.filter(|w| *w == name("far.net")).count(), 2);
        let mut count = 0;
        while writer.record(&name("a.org"), 16, 60, &[0; 255]).is_ok() {
            count += 1;
        }
        assert!(count > 150 && count < 200, "{count}");
    }
}
