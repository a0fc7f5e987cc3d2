//! A prepared answer as it lies in memory.

use ip::Sum;
use udpip::Tail;

use crate::index::At;
use crate::key::{Form, wire_len};

/// The header fields of a prepared answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    /// The type asked for. It is 0 if the answer is found only through a [`Node`], not by type and
    /// name.
    pub qtype: u16,
    /// The lower four bits of the response code, as in a message header.
    pub rcode: u8,
    /// Whether the AA flag is set.
    pub authoritative: bool,
    /// Number of records in the answer, authority and additional sections.
    pub counts: [u16; 3],
}

/// The part of a tail that a reply with records always includes. The additional records after this
/// part are left out if the message would be too long with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Required {
    /// Length of this part of the tail, in bytes.
    pub len: usize,
    /// Number of additional records in this part.
    pub additional: u16,
}

/// Size of the header before a prepared answer's key, in bytes.
const HEADER: usize = 14;
const RCODE: u8 = 0x0f;
const AUTHORITATIVE: u8 = 0x10;
/// Flag: the answer has optional records. Three 16-bit words follow the tail: the required part's
/// length, checksum and number of additional records.
const OPTIONAL: u8 = 0x20;
/// Flag: the answer has compression pointers that must be adjusted for a longer qname. Their number
/// and offsets follow the tail, after the three words of [`OPTIONAL`] if there are any.
const FIXUPS: u8 = 0x40;

/// A prepared answer of a zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    form: Form,
    /// The bytes from the answer's header to the end of the zone's answers.
    bytes: &'a [u8],
    at: At,
}

impl<'a> Answer<'a> {
    /// Returns the answer at the start of `bytes`, whose position is `at`. Its key has this form.
    #[inline(always)]
    pub(super) fn new(form: Form, bytes: &'a [u8], at: At) -> Self {
        Self { form, bytes, at }
    }

    /// Returns true if `self` and `other` are the same answer of the same zone.
    pub(crate) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self.bytes, other.bytes)
    }

    /// Returns the wire-format length of the name that the answer was prepared for.
    pub(crate) fn name_len(&self) -> usize {
        wire_len(self.form, self.key_len())
    }

    #[inline(always)]
    fn header(&self) -> &'a [u8; HEADER] {
        self.bytes
            .first_chunk()
            .expect("every prepared answer has a whole header")
    }

    #[inline(always)]
    fn word(&self, at: usize) -> u16 {
        let header = self.header();
        u16::from_be_bytes([header[at], header[at + 1]])
    }

    /// Returns the answer's position, which identifies it in its zone.
    #[inline(always)]
    pub(crate) fn at(&self) -> At {
        self.at
    }

    #[inline(always)]
    pub(super) fn qtype(&self) -> u16 {
        self.word(0)
    }

    #[inline(always)]
    fn key_len(&self) -> usize {
        usize::from(self.header()[2])
    }

    #[inline(always)]
    pub(super) fn key(&self) -> &'a [u8] {
        &self.bytes[HEADER..][..self.key_len()]
    }

    /// Returns the lower four bits of the response code, as in a message header.
    #[inline(always)]
    pub(crate) fn rcode(&self) -> u8 {
        self.header()[3] & RCODE
    }

    /// Returns true if the AA flag is set.
    #[inline(always)]
    pub(crate) fn is_authoritative(&self) -> bool {
        self.header()[3] & AUTHORITATIVE != 0
    }

    /// Returns the numbers of answer, authority and additional records, encoded as in a message
    /// header: two bytes each.
    #[inline(always)]
    pub(crate) fn counts(&self) -> [u8; 6] {
        let header = self.header();
        [
            header[8], header[9], header[10], header[11], header[12], header[13],
        ]
    }

    #[inline(always)]
    fn tail_at(&self) -> usize {
        HEADER + self.key_len()
    }

    /// Returns the whole tail.
    #[inline(always)]
    pub(crate) fn tail(&self) -> Tail<'a> {
        Tail {
            bytes: &self.bytes[self.tail_at()..][..usize::from(self.word(4))],
            sum: Sum::from_folded(self.word(6)),
        }
    }

    /// Returns the 16-bit word at `index` among the words that follow the tail.
    fn trailer_word(&self, index: usize) -> u16 {
        let at = self.tail_at() + usize::from(self.word(4)) + 2 * index;
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Returns the tail without its optional records, and the number of additional records that
    /// this shorter tail holds. Returns `None` if the answer has no optional records.
    #[inline(always)]
    pub(crate) fn required(&self) -> Option<(Tail<'a>, u16)> {
        let has_optional = self.header()[3] & OPTIONAL != 0;
        has_optional.then(|| self.without_optional())
    }

    #[inline(never)]
    fn without_optional(&self) -> (Tail<'a>, u16) {
        let tail = Tail {
            bytes: &self.tail().bytes[..usize::from(self.trailer_word(0))],
            sum: Sum::from_folded(self.trailer_word(1)),
        };
        (tail, self.trailer_word(2))
    }

    /// Returns the offsets of the fixups in the tail. A fixup is a compression pointer that must be
    /// adjusted if the qname is longer than the name for which the answer was prepared.
    pub(crate) fn fixups(&self) -> impl Iterator<Item = usize> + use<'a> {
        let flags = self.header()[3];
        let first = if flags & OPTIONAL == 0 { 0 } else { 3 };
        let count = if flags & FIXUPS == 0 {
            0
        } else {
            usize::from(self.trailer_word(first))
        };
        let answer = *self;
        (first + 1..first + 1 + count).map(move |index| usize::from(answer.trailer_word(index)))
    }
}

/// Writes an answer as it is stored: what comes before its key, and what follows its tail.
pub(super) fn encode(
    key_len: usize,
    meta: Meta,
    tail: &[u8],
    required: Option<Required>,
    fixups: &[u16],
) -> ([u8; HEADER], Vec<u8>) {
    let mut header = [0; HEADER];
    header[..2].copy_from_slice(&meta.qtype.to_be_bytes());
    header[2] = key_len as u8;
    header[3] = meta.rcode & RCODE;
    header[4..6].copy_from_slice(&(tail.len() as u16).to_be_bytes());
    header[6..8].copy_from_slice(&Sum::of(tail).fold().to_be_bytes());
    for (at, count) in meta.counts.iter().enumerate() {
        header[8 + 2 * at..][..2].copy_from_slice(&count.to_be_bytes());
    }
    if meta.authoritative {
        header[3] |= AUTHORITATIVE;
    }
    let mut trailer = Vec::new();
    if let Some(required) = required {
        header[3] |= OPTIONAL;
        trailer.extend((required.len as u16).to_be_bytes());
        trailer.extend(Sum::of(&tail[..required.len]).fold().to_be_bytes());
        trailer.extend(required.additional.to_be_bytes());
    }
    if !fixups.is_empty() {
        header[3] |= FIXUPS;
        trailer.extend((fixups.len() as u16).to_be_bytes());
        for fixup in fixups {
            trailer.extend(fixup.to_be_bytes());
        }
    }
    (header, trailer)
}

const _: () = assert!(HEADER + crate::name::MAX_NAME < 1 << 10);
