//! A prepared answer as it lies in memory.

use ip::Sum;
use udpip::Tail;

use crate::index::At;
use crate::key::{Form, wire_len};

/// One form of an answer: the part of a message after the question.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Variant<'a> {
    /// Number of records in the answer, authority and additional sections.
    pub counts: [u16; 3],
    /// The records.
    pub tail: &'a [u8],
    /// The part of the tail that is always sent. It is `None` if there is no other.
    pub required: Option<Required>,
    /// The offsets in the tail of the compression pointers that must be adjusted for a longer qname.
    pub fixups: &'a [u16],
    /// Whether `fixups` lists all compression pointers in the tail.
    pub lists_pointers: bool,
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

/// Size of the fields before a prepared answer's key, in bytes: type, key length and the fields of
/// the plain variant.
const HEADER: usize = FIELDS_AT + FIELDS;
/// Offset of the plain variant's fields.
const FIELDS_AT: usize = 3;
/// Size of a variant's fields, in bytes: flags, length and checksum of the tail, and three counts.
const FIELDS: usize = 11;
/// Flag: the fixups are all compression pointers of the variant.
const LISTS_POINTERS: u8 = 0x08;
/// Flag: the AA flag is set in replies.
const AUTHORITATIVE: u8 = 0x10;
/// Flag: the variant has optional records. Three 16-bit words follow the tail: the required part's
/// length, checksum and number of additional records.
const OPTIONAL: u8 = 0x20;
/// Flag: the variant has compression pointers that must be adjusted for a longer qname. Their number
/// and offsets follow the tail, after the three words of [`OPTIONAL`] if there are any.
const FIXUPS: u8 = 0x40;
/// Flag: the signed variant follows: its fields, its tail, and the words after that.
const SIGNED: u8 = 0x80;
/// Number of words that [`OPTIONAL`] puts after the tail.
const OPTIONAL_WORDS: usize = 3;

/// A prepared answer of a zone, in one of its variants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    form: Form,
    /// The bytes from the answer's header to the end of the zone's answers.
    bytes: &'a [u8],
    at: At,
    /// Offset of the variant's fields.
    fields_at: u32,
    /// Offset of the variant's tail.
    tail_at: u32,
}

impl<'a> Answer<'a> {
    /// Returns the plain variant of the answer at the start of `bytes`, whose position is `at`. Its
    /// key has this form.
    #[inline(always)]
    pub(super) fn new(form: Form, bytes: &'a [u8], at: At) -> Self {
        Self::with_key(form, bytes, at, usize::from(bytes[2]))
    }

    /// Like [`new`](Self::new), for an answer whose key has this length.
    #[inline(always)]
    pub(super) fn with_key(form: Form, bytes: &'a [u8], at: At, key_len: usize) -> Self {
        Self {
            form,
            bytes,
            at,
            fields_at: FIELDS_AT as u32,
            tail_at: (HEADER + key_len) as u32,
        }
    }

    /// Returns the variant with signatures, for a client that wants them. Returns `None` if the
    /// records have no signatures.
    #[inline(always)]
    pub(crate) fn signed(&self) -> Option<Self> {
        (self.flags() & SIGNED != 0).then(|| {
            let fields_at = self.words_at(self.words());
            Self {
                fields_at: fields_at as u32,
                tail_at: (fields_at + FIELDS) as u32,
                // An entry takes several units, so no other answer has this position.
                at: self.at + 1,
                ..*self
            }
        })
    }

    /// Returns the variant with signatures if `signatures` is set and there is one, or else the plain
    /// variant.
    #[inline(always)]
    pub(crate) fn variant(&self, signatures: bool) -> Self {
        if signatures {
            self.signed().unwrap_or(*self)
        } else {
            *self
        }
    }

    /// Returns true if `self` and `other` are the same answer of the same zone.
    pub(crate) fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self.bytes, other.bytes)
    }

    /// Returns the wire-format length of the name that the answer was prepared for.
    pub(crate) fn name_len(&self) -> usize {
        wire_len(self.form, self.key().len())
    }

    /// Returns the fields of the variant: its flags, and then five words.
    #[inline(always)]
    fn fields(&self) -> &'a [u8; FIELDS] {
        self.bytes[self.fields_at as usize..]
            .first_chunk()
            .expect("every variant has all fields")
    }

    #[inline(always)]
    fn flags(&self) -> u8 {
        self.fields()[0]
    }

    /// Returns the length of the tail, in bytes.
    #[inline(always)]
    fn len(&self) -> usize {
        let fields = self.fields();
        usize::from(u16::from_be_bytes([fields[1], fields[2]]))
    }

    /// Returns the position of the variant, which identifies it in its zone.
    #[inline(always)]
    pub(crate) fn at(&self) -> At {
        self.at
    }

    /// Returns true if the answer at the start of `bytes` is for this type and the name with this key.
    #[inline(always)]
    pub(super) fn is_for(bytes: &[u8], qtype: u16, key: &[u8]) -> bool {
        let header: &[u8; HEADER] = bytes
            .first_chunk()
            .expect("every prepared answer has a whole header");
        u16::from_be_bytes([header[0], header[1]]) == qtype
            && usize::from(header[2]) == key.len()
            && bytes[HEADER..][..key.len()] == *key
    }

    #[inline(always)]
    fn key(&self) -> &'a [u8] {
        &self.bytes[HEADER..][..usize::from(self.bytes[2])]
    }

    /// Returns true if the AA flag is set.
    #[inline(always)]
    pub(crate) fn is_authoritative(&self) -> bool {
        self.flags() & AUTHORITATIVE != 0
    }

    /// Returns the numbers of answer, authority and additional records, encoded as in a message
    /// header: two bytes each.
    #[inline(always)]
    pub(crate) fn counts(&self) -> [u8; 6] {
        let [.., a, b, c, d, e, f] = *self.fields();
        [a, b, c, d, e, f]
    }

    /// Returns the whole tail.
    #[inline(always)]
    pub(crate) fn tail(&self) -> Tail<'a> {
        let fields = self.fields();
        Tail {
            bytes: &self.bytes[self.tail_at as usize..][..self.len()],
            sum: Sum::from_folded(u16::from_be_bytes([fields[3], fields[4]])),
        }
    }

    /// Returns the offset of the 16-bit word at `index` among the words that follow the tail.
    #[inline(always)]
    fn words_at(&self, index: usize) -> usize {
        self.tail_at as usize + self.len() + 2 * index
    }

    /// Returns the 16-bit word at `index` among the words that follow the tail.
    fn word(&self, index: usize) -> u16 {
        let at = self.words_at(index);
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Returns the number of words that follow the tail.
    #[inline(always)]
    fn words(&self) -> usize {
        let first = self.first_fixup_word();
        if self.flags() & FIXUPS == 0 {
            return first;
        }
        first + 1 + usize::from(self.word(first))
    }

    /// Returns the index of the first word that is about fixups: their number.
    #[inline(always)]
    fn first_fixup_word(&self) -> usize {
        if self.flags() & OPTIONAL == 0 {
            0
        } else {
            OPTIONAL_WORDS
        }
    }

    /// Returns the tail without its optional records, and the number of additional records that
    /// this shorter tail holds. Returns `None` if the answer has no optional records.
    #[inline(always)]
    pub(crate) fn required(&self) -> Option<(Tail<'a>, u16)> {
        let has_optional = self.flags() & OPTIONAL != 0;
        has_optional.then(|| self.without_optional())
    }

    #[inline(never)]
    fn without_optional(&self) -> (Tail<'a>, u16) {
        let tail = Tail {
            bytes: &self.tail().bytes[..usize::from(self.word(0))],
            sum: Sum::from_folded(self.word(1)),
        };
        (tail, self.word(2))
    }

    /// Returns true if the fixups are all compression pointers of the tail.
    pub(crate) fn lists_pointers(&self) -> bool {
        self.flags() & LISTS_POINTERS != 0
    }

    /// Returns the offsets of the fixups in the tail. A fixup is a compression pointer that must be
    /// adjusted if the qname is longer than the name for which the answer was prepared.
    #[inline(always)]
    pub(crate) fn fixups(&self) -> impl Iterator<Item = usize> + use<'a> {
        let first = self.first_fixup_word();
        let (words, _) = self.bytes[self.words_at(first)..].as_chunks();
        let number = |word: &[u8; 2]| usize::from(u16::from_be_bytes(*word));
        let count = words.first().filter(|_| self.flags() & FIXUPS != 0);
        let count = count.map_or(0, number);
        words.iter().skip(1).take(count).map(number)
    }
}

/// Appends to `to` an answer as it is stored. `key` is the key of its name.
pub(super) fn encode(
    to: &mut Vec<u8>,
    (qtype, key): (u16, &[u8]),
    is_authoritative: bool,
    plain: &Variant<'_>,
    signed: Option<&Variant<'_>>,
) {
    let authoritative = if is_authoritative { AUTHORITATIVE } else { 0 };
    let has_signed = if signed.is_some() { SIGNED } else { 0 };
    to.extend(qtype.to_be_bytes());
    to.push(key.len() as u8);
    to.extend(fields(authoritative | has_signed, plain));
    to.extend(key);
    append_tail(to, plain);
    if let Some(signed) = signed {
        to.extend(fields(authoritative, signed));
        append_tail(to, signed);
    }
}

fn fields(mut flags: u8, variant: &Variant<'_>) -> [u8; FIELDS] {
    if variant.required.is_some() {
        flags |= OPTIONAL;
    }
    if !variant.fixups.is_empty() {
        flags |= FIXUPS;
    }
    if variant.lists_pointers {
        flags |= LISTS_POINTERS;
    }
    let mut fields = [flags; FIELDS];
    let (len, sum) = (variant.tail.len() as u16, Sum::of(variant.tail).fold());
    let [answer, authority, additional] = variant.counts;
    let words = [len, sum, answer, authority, additional];
    for (to, word) in fields[1..].chunks_exact_mut(2).zip(words) {
        to.copy_from_slice(&word.to_be_bytes());
    }
    fields
}

fn append_tail(to: &mut Vec<u8>, variant: &Variant<'_>) {
    to.extend(variant.tail);
    let mut push = |word: u16| to.extend(word.to_be_bytes());
    if let Some(required) = variant.required {
        push(required.len as u16);
        push(Sum::of(&variant.tail[..required.len]).fold());
        push(required.additional);
    }
    if !variant.fixups.is_empty() {
        push(variant.fixups.len() as u16);
        for fixup in variant.fixups {
            push(*fixup);
        }
    }
}
